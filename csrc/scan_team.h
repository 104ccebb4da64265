/* A team of threads that share the tasks of one job after another: threads of a pool that the program
 * has already, or else threads of its own. */
#ifndef SURNN_SCAN_TEAM_H
#define SURNN_SCAN_TEAM_H

#include <stddef.h>

typedef struct scan_team scan_team;
typedef void (*scan_task)(void *context, size_t task);
typedef void (*scan_pass)(scan_team *team, void *context);

/* Runs pass(team, context), for which the team has up to this many threads, the caller included. */
void surnn_team_use(size_t threads, scan_pass pass, void *context);
/* Runs tasks 0 to count - 1, in any order, and returns when all are done. Only a pass calls it. */
void surnn_team_run(scan_team *team, scan_task task, void *context, size_t count);

#endif
