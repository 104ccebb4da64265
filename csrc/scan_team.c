/* Threads. A team lives as long as one pass of a scan, so that a fork finds none. */
#define _POSIX_C_SOURCE 200809L
#include "scan_team.h"

#include <stdlib.h>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>

struct scan_team {
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    pthread_t *members;
    size_t size; /* threads besides the caller */
    scan_task task;
    void *context;
    size_t next, count, busy; /* of the job: next task, tasks, threads at work */
    size_t job;               /* number of jobs so far */
    int closing;
};

/* Called and left with the lock held. */
static void work(scan_team *team) {
    while (team->next < team->count) {
        size_t mine = team->next++;
        pthread_mutex_unlock(&team->lock);
        team->task(team->context, mine);
        pthread_mutex_lock(&team->lock);
    }
}

static void *member(void *argument) {
    scan_team *team = argument;
    size_t seen = 0;
    pthread_mutex_lock(&team->lock);
    for (;;) {
        while (team->job == seen && !team->closing) pthread_cond_wait(&team->wake, &team->lock);
        if (team->closing) break;
        seen = team->job;
        team->busy++;
        work(team);
        if (--team->busy == 0) pthread_cond_signal(&team->done);
    }
    pthread_mutex_unlock(&team->lock);
    return NULL;
}

scan_team *surnn_team_open(size_t threads) {
    scan_team *team = calloc(1, sizeof *team);
    if (!team) return NULL;
    team->members = malloc((threads + 1) * sizeof *team->members);
    if (!team->members) {
        free(team);
        return NULL;
    }
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->wake, NULL);
    pthread_cond_init(&team->done, NULL);
    while (team->size + 1 < threads) {
        if (pthread_create(&team->members[team->size], NULL, member, team)) break;
        team->size++;
    }
    return team;
}

void surnn_team_run(scan_team *team, scan_task task, void *context, size_t count) {
    if (!team->size || count < 2) {
        for (size_t i = 0; i < count; i++) task(context, i);
        return;
    }
    pthread_mutex_lock(&team->lock);
    team->task = task, team->context = context;
    team->next = 0, team->count = count;
    team->job++;
    pthread_cond_broadcast(&team->wake);
    work(team);
    while (team->busy) pthread_cond_wait(&team->done, &team->lock);
    pthread_mutex_unlock(&team->lock);
}

void surnn_team_close(scan_team *team) {
    if (!team) return;
    pthread_mutex_lock(&team->lock);
    team->closing = 1;
    pthread_cond_broadcast(&team->wake);
    pthread_mutex_unlock(&team->lock);
    for (size_t i = 0; i < team->size; i++) pthread_join(team->members[i], NULL);
    pthread_cond_destroy(&team->wake);
    pthread_cond_destroy(&team->done);
    pthread_mutex_destroy(&team->lock);
    free(team->members);
    free(team);
}

#else /* one thread */

struct scan_team {
    int unused;
};

scan_team *surnn_team_open(size_t threads) {
    (void)threads;
    return calloc(1, sizeof(scan_team));
}

void surnn_team_run(scan_team *team, scan_task task, void *context, size_t count) {
    (void)team;
    for (size_t i = 0; i < count; i++) task(context, i);
}

void surnn_team_close(scan_team *team) { free(team); }

#endif
