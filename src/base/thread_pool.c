/* Workers sleep on a condition variable between runs. Within a run they obtain pieces from one atomic counter, so a worker that
 * the machine slows down simply does fewer pieces. */
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
    pid_t process;            /* that created it */
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
    int pieces;
    atomic_int next;
};

static void run_pieces(sfp__thread_pool *p, int index)
{
    for (;;) {
        int piece = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (piece >= p->pieces)
            return;
        p->fn(p->ctx, piece, index);
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
        return sfp__fail(err, SFP_EUNSUPPORTED, "%s was opened by another process, which has its threads; open it after fork", what);
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

void sfp__thread_pool_run(sfp__thread_pool *p, int pieces, sfp__thread_pool_fn fn, void *ctx)
{
    if (pieces <= 0)
        return;
    pthread_mutex_lock(&p->run_lock);
    p->fn = fn;
    p->ctx = ctx;
    p->pieces = pieces;
    atomic_store(&p->next, 0);
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
