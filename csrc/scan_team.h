/* A team of threads that share the tasks of one job after another: those of a pool that the program has
 * already, or else threads of its own. */
#ifndef SURNN_SCAN_TEAM_H
#define SURNN_SCAN_TEAM_H

#include <stddef.h>

typedef struct scan_team scan_team;
typedef void (*scan_task)(void *context, size_t task);

/* Threads that cannot be started are left out; the caller is one of the team. NULL: memory is short. */
scan_team *surnn_team_open(size_t threads);
/* Runs tasks 0 to count - 1, in any order, and returns when all are done. */
void surnn_team_run(scan_team *team, scan_task task, void *context, size_t count);
void surnn_team_close(scan_team *team);

#endif
