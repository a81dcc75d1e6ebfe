/* The thread pool: each piece runs once, on a worker that runs one piece at a time; the pool is reusable and may be shared. */
#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "test.h"

enum { MAX_PIECES = 5000, MAX_THREADS = 16 };

/* What happened in a run. The caller checks it, because a failing assert must not jump out of a worker. */
typedef struct record {
    int threads;
    atomic_int done[MAX_PIECES], inside[MAX_THREADS];
    atomic_int outside, crowded;
    bool dawdle; /* yields inside each piece, so that other threads get pieces */
} record;

static void record_piece(void *ctx, int piece, int worker)
{
    record *r = ctx;
    if (piece < 0 || piece >= MAX_PIECES || worker < 0 || worker >= r->threads) {
        atomic_fetch_add(&r->outside, 1);
        return;
    }
    if (atomic_fetch_add(&r->inside[worker], 1) != 0)
        atomic_fetch_add(&r->crowded, 1);
    atomic_fetch_add(&r->done[piece], 1);
    if (r->dawdle)
        sched_yield();
    atomic_fetch_sub(&r->inside[worker], 1);
}

static void check_record(record *r, int pieces)
{
    assert_int_equal(atomic_load(&r->outside), 0);
    assert_int_equal(atomic_load(&r->crowded), 0);
    for (int i = 0; i < MAX_PIECES; i++)
        if (atomic_load(&r->done[i]) != (i < pieces))
            fail_msg("%d threads, %d pieces: piece %d ran %d times", r->threads, pieces, i, atomic_load(&r->done[i]));
}

static sfp__thread_pool *make(int threads)
{
    sfp__thread_pool *p = NULL;
    MUST(sfp__thread_pool_create(threads, &p, &err));
    return p;
}

TEST(every_piece_runs_once_on_a_worker_in_range)
{
    static const int threads[] = {1, 2, 3, 8}, pieces[] = {0, -3, 1, 2, 3, 7, 8, 9, 100, MAX_PIECES};
    record *r = kept_malloc(sizeof *r);
    for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
        OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *p = make(threads[t]);
        assert_int_equal(sfp__thread_pool_size(p), threads[t]);
        for (size_t n = 0; n < sizeof pieces / sizeof *pieces; n++)
            for (int dawdle = 0; dawdle < 2; dawdle++) {
                memset(r, 0, sizeof *r);
                r->threads = threads[t];
                r->dawdle = dawdle;
                sfp__thread_pool_run(p, pieces[n], record_piece, r);
                check_record(r, pieces[n]);
            }
    }
}

/* Plain additions: the thread sanitizer detects a run that returns before all its pieces ended. */
typedef struct sums {
    long piece[64];
} sums;

static void add(void *ctx, int piece, int worker)
{
    (void)worker;
    ((sums *)ctx)->piece[piece] += piece + 1;
}

TEST(a_pool_is_reused_ten_thousand_times)
{
    enum { ROUNDS = 10000 };
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *p = make(3);
    sums s = {0};
    long want[64] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        int pieces = 1 + i % 7; /* a single piece runs on the caller without the workers: both paths alternate */
        sfp__thread_pool_run(p, pieces, add, &s);
        for (int k = 0; k < pieces; k++)
            want[k] += k + 1;
    }
    assert_memory_equal(s.piece, want, sizeof want);
}

/* As many pieces as threads, and each waits until all others have started: the run ends only if every thread runs one. */
typedef struct meeting {
    int expected;
    atomic_int arrived, missed;
} meeting;

static void meet(void *ctx, int piece, int worker)
{
    meeting *m = ctx;
    (void)piece;
    (void)worker;
    atomic_fetch_add(&m->arrived, 1);
    for (int ms = 0; atomic_load(&m->arrived) < m->expected; ms++) {
        if (ms > 20000) {
            atomic_fetch_add(&m->missed, 1);
            return;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

TEST(all_threads_take_part)
{
    enum { THREADS = 4 };
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *p = make(THREADS);
    for (int round = 0; round < 20; round++) {
        meeting m = {.expected = THREADS};
        sfp__thread_pool_run(p, THREADS, meet, &m);
        assert_int_equal(atomic_load(&m.missed), 0);
    }
}

/* Each piece reads what all pieces of the phase before it wrote. */
typedef struct phased {
    int pieces;
    long value[2][8];
    bool sleeps; /* some pieces take longer than the others spin */
} phased;

static void add_phase(void *ctx, int index, int worker)
{
    phased *p = ctx;
    (void)worker;
    int phase = index / p->pieces, piece = index % p->pieces;
    const long *from = p->value[phase % 2];
    long sum = piece;
    for (int i = 0; i < p->pieces; i++)
        sum += from[i];
    if (p->sleeps && piece == phase % p->pieces)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    p->value[1 - phase % 2][piece] = sum % 1000003;
}

TEST(a_phase_begins_when_the_one_before_it_has_ended)
{
    static const int threads[] = {1, 2, 3, 8};
    for (int pieces = 1; pieces <= 8; pieces += 3)
        for (int sleeps = 0; sleeps < 2; sleeps++) {
            int phases = sleeps ? 20 : 500;
            phased want = {.pieces = pieces};
            for (int i = 0; i < phases * pieces; i++)
                add_phase(&want, i, 0);
            for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
                OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *p = make(threads[t]);
                phased got = {.pieces = pieces, .sleeps = sleeps};
                sfp__thread_pool_run_phases(p, phases, pieces, add_phase, &got);
                sfp__thread_pool_run(p, 4, add, &(sums){0}); /* the pool forgets the phases */
                assert_memory_equal(got.value, want.value, sizeof want.value);
            }
        }
}

typedef struct caller {
    sfp__thread_pool *pool;
    sums s;
    long rounds;
} caller;

static void *call_often(void *arg)
{
    caller *c = arg;
    for (long i = 0; i < c->rounds; i++)
        sfp__thread_pool_run(c->pool, 1 + (int)(i % 5), add, &c->s);
    return NULL;
}

TEST(callers_that_share_a_pool_wait_for_each_other)
{
    enum { CALLERS = 4, ROUNDS = 500 };
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *p = make(2);
    caller c[CALLERS] = {0};
    pthread_t thread[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        c[i].pool = p;
        c[i].rounds = ROUNDS;
        assert_int_equal(pthread_create(&thread[i], NULL, call_often, &c[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    for (int i = 0; i < CALLERS; i++)
        for (int k = 0; k < 5; k++)
            assert_int_equal(c[i].s.piece[k], (k + 1) * (ROUNDS - ROUNDS / 5 * k));
}

TEST(zero_threads_means_the_cpus_of_the_process)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    for (int threads = -1; threads < 1; threads++) {
        OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *p = make(threads);
        assert_int_equal(sfp__thread_pool_size(p), CPU_COUNT(&set));
    }
}

TEST(too_many_threads_are_refused)
{
    sfp__thread_pool *p = NULL;
    REFUSED(sfp__thread_pool_create(5000, &p, &err), SFP_EINVAL, "5000");
    assert_null(p);
    assert_non_null(strstr(err.message, "1024"));
    sfp__thread_pool_free(NULL);
}
