/* Threads. A team lives as long as one pass of a scan, so that a fork finds none. */
#define _POSIX_C_SOURCE 200809L
#include "scan_team.h"

#include "scan.h"

#include <stdlib.h>

#if (defined(__unix__) || defined(__APPLE__)) && defined(__GNUC__)
#include <pthread.h>
#include <unistd.h>

/* The sanitizer of threads does not see how a pool that it did not build synchronises. */
#if defined(__SANITIZE_THREAD__)
#define OWN_THREADS 1
#elif defined(__has_feature)
#define OWN_THREADS __has_feature(thread_sanitizer)
#else
#define OWN_THREADS 0
#endif

/* The pool, and the process that has its threads: a fork does not take them along. */
static surnn_parallel *pool;
static pid_t pool_owner;

void surnn_scan_use_pool(surnn_parallel *parallel) {
    pool = OWN_THREADS ? NULL : parallel;
    pool_owner = getpid();
}

typedef struct team_job {
    scan_task task;
    void *context;
    size_t next, count;
} team_job;

struct scan_team {
    surnn_parallel *pool; /* NULL: the members run the jobs */
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    pthread_t *members;
    size_t size, busy; /* threads besides the caller, and those at work */
    team_job job;
    size_t number; /* of the job, from 1 */
    int closing;
};

/* Runs tasks until none is left. Each thread of a team calls it, however many there are. */
static void take_tasks(void *argument) {
    team_job *job = argument;
    size_t task;
    while ((task = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED)) < job->count)
        job->task(job->context, task);
}

static void *member(void *argument) {
    scan_team *team = argument;
    size_t seen = 0;
    pthread_mutex_lock(&team->lock);
    for (;;) {
        while (team->number == seen && !team->closing) pthread_cond_wait(&team->wake, &team->lock);
        if (team->closing) break;
        seen = team->number;
        team->busy++;
        pthread_mutex_unlock(&team->lock);
        take_tasks(&team->job);
        pthread_mutex_lock(&team->lock);
        if (--team->busy == 0) pthread_cond_signal(&team->done);
    }
    pthread_mutex_unlock(&team->lock);
    return NULL;
}

static int start_members(scan_team *team) {
    team->members = malloc(team->size * sizeof *team->members);
    if (!team->members) return 1;
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->wake, NULL);
    pthread_cond_init(&team->done, NULL);
    for (size_t i = 0; i < team->size; i++)
        if (pthread_create(&team->members[i], NULL, member, team)) team->size = i;
    return 0;
}

scan_team *surnn_team_open(size_t threads) {
    scan_team *team = calloc(1, sizeof *team);
    if (!team || threads < 2) return team;
    team->size = threads - 1;
    if (getpid() == pool_owner) team->pool = pool;
    if (!team->pool && start_members(team)) {
        free(team);
        return NULL;
    }
    return team;
}

void surnn_team_run(scan_team *team, scan_task task, void *context, size_t count) {
    team_job job = {task, context, 0, count};
    if (!team->size || count < 2) {
        take_tasks(&job);
    } else if (team->pool) {
        /* As many threads as the program set: another number would end threads and start them again. */
        team->pool(take_tasks, &job, 0, 0);
    } else {
        pthread_mutex_lock(&team->lock);
        while (team->busy) pthread_cond_wait(&team->done, &team->lock); /* some came late to the last job */
        team->job = job;
        team->number++;
        pthread_cond_broadcast(&team->wake);
        pthread_mutex_unlock(&team->lock);
        take_tasks(&team->job);
        pthread_mutex_lock(&team->lock);
        while (team->busy) pthread_cond_wait(&team->done, &team->lock);
        pthread_mutex_unlock(&team->lock);
    }
}

void surnn_team_close(scan_team *team) {
    if (team && team->members) {
        pthread_mutex_lock(&team->lock);
        team->closing = 1;
        pthread_cond_broadcast(&team->wake);
        pthread_mutex_unlock(&team->lock);
        for (size_t i = 0; i < team->size; i++) pthread_join(team->members[i], NULL);
        pthread_cond_destroy(&team->wake);
        pthread_cond_destroy(&team->done);
        pthread_mutex_destroy(&team->lock);
        free(team->members);
    }
    free(team);
}

#else /* one thread */

struct scan_team {
    int unused;
};

void surnn_scan_use_pool(surnn_parallel *parallel) { (void)parallel; }

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
