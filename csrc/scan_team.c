/* Threads. A team lives as long as one pass of a scan, so that a fork finds none. */
#define _POSIX_C_SOURCE 200809L
#include "scan_team.h"

#include "scan.h"

#if (defined(__unix__) || defined(__APPLE__)) && defined(__GNUC__)
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

/* The sanitizer of threads does not see how a pool that it did not build synchronises. */
#if defined(__SANITIZE_THREAD__)
#define OWN_THREADS 1
#elif defined(__has_feature)
#define OWN_THREADS __has_feature(thread_sanitizer)
#else
#define OWN_THREADS 0
#endif

/* How often a thread looks for the next job before it sleeps: waking it takes longer than most waits. */
enum { LOOKS = 200 };

/* Most threads of our own. */
enum { MEMBERS = 256 };

/* The process that has the pool's threads: a fork does not take them along. */
static surnn_pool pool;
static pid_t pool_owner;

void surnn_scan_use_pool(const surnn_pool *threads) {
    pool = OWN_THREADS || !threads ? (surnn_pool){0} : *threads;
    pool_owner = getpid();
}

typedef struct team_job {
    scan_task task;
    void *context;
    size_t next, count;
} team_job;

struct scan_team {
    scan_pass pass;
    void *context;
    pthread_t caller;
    pthread_mutex_t lock;
    pthread_cond_t wake, idle;
    size_t most, size;   /* threads besides the caller: that may join, and that have come */
    size_t busy, leaving; /* of them, those at work, and those that have left */
    team_job job;
    size_t number; /* of the job, from 1; the last one closes the team */
    int closing;
};

/* Runs tasks until none is left, on each thread of the team, however many there are. */
static void take_tasks(team_job *job) {
    size_t task;
    while ((task = __atomic_fetch_add(&job->next, 1, __ATOMIC_RELAXED)) < job->count)
        job->task(job->context, task);
}

static void *join_team(void *argument) {
    scan_team *team = argument;
    size_t seen = 0;
    pthread_mutex_lock(&team->lock);
    for (int joins = team->size++ < team->most; joins;) {
        pthread_mutex_unlock(&team->lock);
        for (int i = 0; i < LOOKS && __atomic_load_n(&team->number, __ATOMIC_RELAXED) == seen; i++) sched_yield();
        pthread_mutex_lock(&team->lock);
        while (team->number == seen) pthread_cond_wait(&team->wake, &team->lock);
        if (team->closing) break;
        seen = team->number;
        team->busy++;
        pthread_mutex_unlock(&team->lock);
        take_tasks(&team->job);
        pthread_mutex_lock(&team->lock);
        if (--team->busy == 0) pthread_cond_signal(&team->idle);
    }
    team->leaving++;
    pthread_cond_signal(&team->idle);
    pthread_mutex_unlock(&team->lock);
    return NULL;
}

/* Waits without using a processor, which the pool's barrier would do, until `others` have left. */
static void end_team(scan_team *team, size_t others) {
    pthread_mutex_lock(&team->lock);
    team->closing = 1;
    __atomic_fetch_add(&team->number, 1, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&team->wake);
    while (team->leaving < others) pthread_cond_wait(&team->idle, &team->lock);
    pthread_mutex_unlock(&team->lock);
}

static void run_in_pool(void *argument) {
    scan_team *team = argument;
    if (!pthread_equal(pthread_self(), team->caller)) {
        join_team(team);
        return;
    }
    team->pass(team, team->context);
    end_team(team, (size_t)pool.size() - 1);
}

/* Threads that cannot be started are left out. */
static void run_with_members(scan_team *team) {
    pthread_t member[MEMBERS];
    size_t count = 0, most = team->most < MEMBERS ? team->most : MEMBERS;
    while (count < most && !pthread_create(&member[count], NULL, join_team, team)) count++;
    team->pass(team, team->context);
    end_team(team, count);
    for (size_t i = 0; i < count; i++) pthread_join(member[i], NULL);
}

void surnn_team_use(size_t threads, scan_pass pass, void *context) {
    scan_team team = {.pass = pass, .context = context, .caller = pthread_self(), .most = threads - 1};
    if (threads < 2) {
        pass(&team, context);
        return;
    }
    pthread_mutex_init(&team.lock, NULL);
    pthread_cond_init(&team.wake, NULL);
    pthread_cond_init(&team.idle, NULL);
    /* 0: as many threads as the program set; another number would end threads and start them again. */
    if (pool.run && getpid() == pool_owner) pool.run(run_in_pool, &team, 0, 0);
    else run_with_members(&team);
    pthread_cond_destroy(&team.wake);
    pthread_cond_destroy(&team.idle);
    pthread_mutex_destroy(&team.lock);
}

void surnn_team_run(scan_team *team, scan_task task, void *context, size_t count) {
    team_job job = {task, context, 0, count};
    if (!team->most || count < 2) {
        take_tasks(&job);
        return;
    }
    pthread_mutex_lock(&team->lock);
    while (team->busy) pthread_cond_wait(&team->idle, &team->lock); /* some came late to the last job */
    team->job = job;
    __atomic_fetch_add(&team->number, 1, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&team->wake);
    pthread_mutex_unlock(&team->lock);
    take_tasks(&team->job);
    pthread_mutex_lock(&team->lock);
    while (team->busy) pthread_cond_wait(&team->idle, &team->lock);
    pthread_mutex_unlock(&team->lock);
}

#else /* one thread */

void surnn_scan_use_pool(const surnn_pool *threads) { (void)threads; }

void surnn_team_use(size_t threads, scan_pass pass, void *context) {
    (void)threads;
    pass(NULL, context);
}

void surnn_team_run(scan_team *team, scan_task task, void *context, size_t count) {
    (void)team;
    for (size_t i = 0; i < count; i++) task(context, i);
}

#endif
