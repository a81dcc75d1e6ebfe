/* Workers sleep on a condition variable between runs. Within a run they take pieces from one atomic counter, so a worker that is slowed down by
 * other programs simply does fewer pieces. Phases do not need a barrier that every worker must reach: pieces are taken in order, so the pieces
 * that a worker waits for are already being run by other workers. */
#include "base/thread_pool.h"

#include "base/mem.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

typedef struct worker {
    sfp__thread_pool *pool;
    int index;
    pthread_t thread;
} worker;

struct sfp__thread_pool {
    int threads;
    pid_t process;            /* the process that created the pool */
    worker *workers;          /* (threads); [0] stands for the calling thread */
    int started;              /* workers [1, started) have a thread */
    pthread_mutex_t run_lock; /* one run at a time */
    pthread_mutex_t lock;     /* protects the members below */
    pthread_cond_t wake, idle;
    unsigned long round;
    int busy;
    bool stop;
    sfp__thread_pool_fn fn;
    void *ctx;
    int pieces, phase;      /* phase: pieces per phase; 0: no phases */
    atomic_int next, done;  /* done: pieces that have ended, in runs with phases */
    atomic_int waiting;     /* workers that sleep until a phase ends */
    pthread_cond_t advance; /* a phase has ended */
};

enum { SPINS = 4000 }; /* some tens of microseconds: about as long as it takes to sleep and wake up */

/* Waits until `count` pieces have ended. */
static void wait_for_pieces(sfp__thread_pool *p, int count)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->done, memory_order_acquire) >= count)
            return;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->waiting, 1); /* must precede reading `done`: end_piece writes `done` and then reads `waiting` */
    while (atomic_load(&p->done) < count)
        pthread_cond_wait(&p->advance, &p->lock);
    atomic_fetch_sub(&p->waiting, 1);
    pthread_mutex_unlock(&p->lock);
}

static void end_piece(sfp__thread_pool *p)
{
    if ((atomic_fetch_add(&p->done, 1) + 1) % p->phase != 0 || atomic_load(&p->waiting) == 0)
        return;
    pthread_mutex_lock(&p->lock);
    pthread_cond_broadcast(&p->advance);
    pthread_mutex_unlock(&p->lock);
}

static void run_pieces(sfp__thread_pool *p, int index)
{
    for (;;) {
        int piece = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (piece >= p->pieces)
            return;
        if (p->phase && piece >= p->phase)
            wait_for_pieces(p, piece / p->phase * p->phase);
        p->fn(p->ctx, piece, index);
        if (p->phase)
            end_piece(p);
    }
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    sfp__thread_pool *p = w->pool;
    unsigned long seen = 0;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->stop && p->round == seen)
            pthread_cond_wait(&p->wake, &p->lock);
        if (p->stop)
            break;
        seen = p->round;
        pthread_mutex_unlock(&p->lock);
        run_pieces(p, w->index);
        pthread_mutex_lock(&p->lock);
        if (--p->busy == 0)
            pthread_cond_signal(&p->idle);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static int available_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    return 1;
}

sfp_status sfp__thread_pool_create(int threads, sfp__thread_pool **out, sfp_error *err)
{
    if (threads < 1)
        threads = available_cpus();
    if (threads > 1024)
        return sfp__fail(err, SFP_EINVAL, "threads is %d, expected at most 1024", threads);
    OWNED worker *workers = NULL;
    sfp__thread_pool *p = NULL;
    TRY(sfp__alloc(&workers, (size_t)threads, sizeof *workers, err));
    TRY(sfp__alloc(&p, 1, sizeof *p, err));
    p->threads = threads;
    p->process = getpid();
    p->workers = TAKE(workers);
    pthread_mutex_init(&p->run_lock, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->idle, NULL);
    pthread_cond_init(&p->advance, NULL);
    p->started = 1;
    for (int i = 1; i < threads; i++) {
        worker *w = &p->workers[i];
        *w = (worker){.pool = p, .index = i};
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0) {
            sfp__thread_pool_free(p);
            return sfp__fail(err, SFP_ELIMIT, "cannot start thread %d of %d", i + 1, threads);
        }
        p->started = i + 1;
    }
    *out = p;
    return SFP_OK;
}

bool sfp__thread_pool_is_foreign(const sfp__thread_pool *p)
{
    return p->threads > 1 && p->process != getpid();
}

sfp_status sfp__thread_pool_check(const sfp__thread_pool *p, const char *what, sfp_error *err)
{
    if (sfp__thread_pool_is_foreign(p))
        return sfp__fail(err, SFP_EUNSUPPORTED, "%s was opened by another process, which has its threads; open it after fork",
                         what);
    return SFP_OK;
}

void sfp__thread_pool_free(sfp__thread_pool *p)
{
    if (!p || sfp__thread_pool_is_foreign(p))
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (int i = 1; i < p->started; i++)
        pthread_join(p->workers[i].thread, NULL);
    pthread_cond_destroy(&p->advance);
    pthread_cond_destroy(&p->idle);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->run_lock);
    sfp__free(p->workers);
    sfp__free(p);
}

int sfp__thread_pool_size(const sfp__thread_pool *p)
{
    return p->threads;
}

/* Runs all pieces. phase: pieces per phase; 0: no phases. */
static void run_all(sfp__thread_pool *p, int pieces, int phase, sfp__thread_pool_fn fn, void *ctx)
{
    if (pieces <= 0)
        return;
    pthread_mutex_lock(&p->run_lock);
    p->fn = fn;
    p->ctx = ctx;
    p->pieces = pieces;
    p->phase = phase;
    atomic_store(&p->next, 0);
    atomic_store(&p->done, 0);
    bool alone = p->threads == 1 || pieces == 1;
    if (!alone) {
        pthread_mutex_lock(&p->lock);
        p->busy = p->threads - 1;
        p->round++;
        pthread_cond_broadcast(&p->wake);
        pthread_mutex_unlock(&p->lock);
    }
    run_pieces(p, 0);
    if (!alone) {
        pthread_mutex_lock(&p->lock);
        while (p->busy > 0)
            pthread_cond_wait(&p->idle, &p->lock);
        pthread_mutex_unlock(&p->lock);
    }
    pthread_mutex_unlock(&p->run_lock);
}

void sfp__thread_pool_run(sfp__thread_pool *p, int pieces, sfp__thread_pool_fn fn, void *ctx)
{
    run_all(p, pieces, 0, fn, ctx);
}

void sfp__thread_pool_run_phases(sfp__thread_pool *p, int phases, int pieces, sfp__thread_pool_fn fn, void *ctx)
{
    run_all(p, phases * pieces, pieces, fn, ctx);
}
