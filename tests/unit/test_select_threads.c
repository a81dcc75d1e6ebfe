/* The number of threads changes no pick and no weight. Tests every selector with enough samples to divide all its work, both
 * phases of facility location and both ways of the pursuit. The test is small because it also runs with a race detector. */
#include "select/facility.h"
#include "select/omp.h"

#include "select_case.h"
#include "test.h"

static sfp__thread_pool *pool;

static void make_pool(void)
{
    MUST(sfp__thread_pool_create(3, &pool, &err));
}

static void free_pool(void)
{
    sfp__thread_pool_free(pool);
}

AROUND_ALL(make_pool, free_pool)

TEST(threads_change_no_pick_of_any_selector)
{
    enum { B = 1300, DIM = 8 }; /* more samples than distances are computed in double for */
    static int out[2][B];
    static float weight[2][B];
    sfp__rng rng = sfp__rng_init(1, 0);
    select_case c = make_case(&rng, B, DIM, 4, CASE_NORMAL);
    for (const sfp__selector *const *s = sfp__selectors; *s; s++) {
        int count[2];
        for (int i = 0; i < 2; i++) {
            OWNED_BY(sfp__arena_done) sfp__arena arena = {0};
            sfp__rng draw = sfp__rng_init(2, 2);
            count[i] = case_pick((*s)->name, &c.batch, 0.1, &draw, &arena, i ? pool : NULL, out[i], weight[i]);
        }
        assert_int_equal(count[0], count[1]);
        assert_true(count[0] > 0);
        if (memcmp(out[0], out[1], (size_t)count[0] * sizeof(int)) != 0 ||
            memcmp(weight[0], weight[1], (size_t)count[0] * sizeof(float)) != 0)
            fail_msg("selector '%s': three threads choose otherwise than one", (*s)->name);
    }
}

TEST(threads_change_no_pick_of_phases_and_pursuits)
{
    enum { N = 1100, DIM = 6, C = 3, COUNT = 40 };
    static int id[N];
    sfp__rng rng = sfp__rng_init(3, 0);
    select_case c = make_case(&rng, N, DIM, C, CASE_NORMAL);
    const int group[] = {0, N};
    for (int i = 0; i < N; i++)
        id[i] = i;
    int cover[2][COUNT], pursuit[2][COUNT];
    double weight[2][COUNT];
    for (int i = 0; i < 2; i++) {
        OWNED_BY(sfp__arena_done) sfp__arena arena = {0};
        const sfp__select_env env = {.arena = &arena, .threads = i ? pool : NULL};
        sfp__metric m;
        int got = 0;
        MUST(sfp__metric_init(&m, &env, N, DIM, c.features, C, c.probs, NULL));
        const sfp__facility f = {.env = &env, .metric = &m, .groups = 1, .group = group, .id = id, .max_pairs = (size_t)N * 30};
        MUST(sfp__facility_greedy(&f, COUNT, cover[i], NULL));
        MUST(sfp__omp(&env, &m, 0, COUNT, pursuit[i], weight[i], &got, NULL));
        assert_int_equal(got, COUNT);
    }
    assert_memory_equal(cover[0], cover[1], sizeof cover[0]);
    assert_memory_equal(pursuit[0], pursuit[1], sizeof pursuit[0]);
    assert_memory_equal(weight[0], weight[1], sizeof weight[0]);
}
