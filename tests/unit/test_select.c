/* Selectors: the size of a coreset, its window in the ranking, the uniformity of random, and the properties of every selector. */
#include "select/select.h"

#include "chi_square.h"
#include "failing_alloc.h"
#include "select_case.h"
#include "test.h"

/* Runs one pick into arrays of exactly the documented sizes. Returns the count; the caller frees `out`. */
static int pick(const char *name, int b, const float *score, double sigma, sfp__rng *rng, int **out)
{
    const sfp__selector *s = sfp__selector_find(name);
    assert_non_null(s);
    sfp__select_options opt = {.sigma = sigma};
    sfp__select_batch batch = {.b = b, .score = score};
    sfp__arena arena = {0};
    const sfp__select_env env = {.rng = rng, .arena = &arena};
    int count = -1;
    float *weight = kept_malloc((size_t)b * sizeof *weight + 1);
    *out = kept_malloc((size_t)b * sizeof **out + 1);
    MUST(s->pick(&batch, &opt, &env, *out, weight, &count, &err));
    assert_in_range(count, 0, b);
    for (int i = 0; i < count; i++)
        assert_true(weight[i] == 1);
    sfp__arena_done(&arena);
    return count;
}

static void check_pick(const char *name, int b, const float *score, double sigma, int n, const int *want)
{
    int *got, count = pick(name, b, score, sigma, NULL, &got);
    assert_int_equal(count, n);
    for (int i = 0; i < n; i++)
        assert_int_equal(got[i], want[i]);
}

TEST(coreset_size_is_floor_of_sigma_b_and_at_least_one)
{
    static const struct {
        int b;
        double sigma;
        int c;
    } cases[] = {
        {0, 0.5, 0},  {0, 2, 0},        {1, 0.5, 1},       {1, 1e-12, 1},       {1, 1, 1},       {2, 0.5, 1},     {3, 0.5, 1},
        {3, 0.67, 2}, {20, 0.5, 10},    {20, 0.55, 11},    {21, 0.5, 10},       {20, 0.049, 1},  {20, 1e-300, 1}, {20, 0, 1},
        {20, -1, 1},  {20, 0.999, 19},  {20, 1, 20},       {20, 7.5, 20},       {100, 0.29, 29}, {10, 0.7, 7},    {10, 0.3, 3},
        {20, NAN, 1}, {7, INFINITY, 7}, {1000, 0.57, 570}, {20, 1 - 1e-12, 20},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (sfp__coreset_size(cases[i].b, cases[i].sigma) != cases[i].c)
            fail_msg("b %d sigma %g: %d, expected %d", cases[i].b, cases[i].sigma, sfp__coreset_size(cases[i].b, cases[i].sigma),
                     cases[i].c);
}

/* Compares with the definition for odd and even b and c: the element at rank r of the window has r elements before
 * it. */
TEST(the_window_is_around_the_middle_for_every_b_and_c)
{
    sfp__rng rng = sfp__rng_init(3, 0);
    for (int b = 1; b <= 41; b++) {
        for (int c = 1; c < b; c++) {
            {
                float score[41];
                for (int i = 0; i < b; i++)
                    score[i] = (float)sfp__rng_below(&rng, 12); /* many ties */
                double sigma = (double)c / b;
                int *got, n = pick("streamfp", b, score, sigma, NULL, &got);
                int first = b / 2 - c / 2;
                assert_int_equal(n, c);
                assert_int_equal(n, sfp__coreset_size(b, sigma));
                for (int k = 0; k < n; k++) {
                    int before = 0;
                    for (int i = 0; i < b; i++)
                        before += score[i] > score[got[k]] || (score[i] == score[got[k]] && i < got[k]);
                    assert_int_equal(before, first + k);
                }
                int *again;
                assert_int_equal(pick("streamfp", b, score, sigma, NULL, &again), n);
                assert_memory_equal(got, again, (size_t)n * sizeof *got);
            }
        }
    }
}

TEST(an_odd_coreset_keeps_its_last_sample)
{
    const float score[] = {0.1f, 0.9f, 0.5f, 0.7f, 0.3f, 0.8f, 0.2f}; /* ranked: 1 5 3 2 4 6 0 */
    check_pick("streamfp", 7, score, 0.5, 3, (int[]){3, 2, 4});
    check_pick("streamfp", 7, score, 0.6, 4, (int[]){5, 3, 2, 4});
    check_pick("streamfp", 6, score, 0.5, 3, (int[]){3, 2, 4}); /* ranked: 1 5 3 2 4 0 */
}

TEST(a_coreset_of_one_is_the_middle)
{
    const float score[] = {4, 1, 3, 0, 2}; /* ranked: 0 2 4 1 3 */
    {
        check_pick("streamfp", 5, score, 1e-6, 1, (int[]){4});
        check_pick("streamfp", 4, score, 0.3, 1, (int[]){1}); /* ranked 0 2 1 3: position 2 */
        check_pick("streamfp", 2, score, 0.5, 1, (int[]){1});
        check_pick("streamfp", 1, score, 0.01, 1, (int[]){0});
    }
}

TEST(sigma_of_one_or_more_chooses_the_whole_batch_in_order)
{
    const float score[] = {0.1f, 0.9f, 0.5f, 0.7f, 0.3f};
    const int all[] = {0, 1, 2, 3, 4};
    static const char *const names[] = {"streamfp", "random", "none"};
    for (size_t i = 0; i < 3; i++) {
        {
            check_pick(names[i], 5, score, 1, 5, all);
            check_pick(names[i], 5, score, 3, 5, all);
            check_pick(names[i], 0, score, 1, 0, all);
            check_pick(names[i], 0, score, 0.5, 0, all);
        }
    }
    check_pick("none", 5, NULL, 0.2, 5, all);
}

TEST(ties_are_ordered_by_index_and_nan_is_last)
{
    const float equal[] = {2, 2, 2, 2, 2, 2}, holes[] = {NAN, 1, NAN, -INFINITY, 2, NAN}, none[] = {NAN, NAN, NAN, NAN};
    check_pick("streamfp", 6, equal, 0.5, 3, (int[]){2, 3, 4});
    check_pick("streamfp", 6, holes, 0.99, 5, (int[]){1, 3, 0, 2, 5}); /* ranked: 4 1 3 0 2 5 */
    check_pick("streamfp", 4, none, 0.5, 2, (int[]){1, 2});
}

/* All 60 ordered triples of five are equally likely, and the same seed gives the same picks. */
TEST(random_is_uniform_and_repeatable)
{
    sfp__rng rng = sfp__rng_init(21, 4);
    long count[125] = {0};
    double p[125];
    for (int i = 0; i < 125; i++) {
        int a = i / 25, b = i / 5 % 5, c = i % 5;
        p[i] = a != b && b != c && a != c ? 1.0 / 60 : 0;
    }
    for (int k = 0; k < 60000; k++) {
        int *out;
        assert_int_equal(pick("random", 5, NULL, 0.6, &rng, &out), 3);
        count[out[0] * 25 + out[1] * 5 + out[2]]++;
    }
    check_distribution("random triples", 125, count, p);

    sfp__rng r1 = sfp__rng_init(9, 9), r2 = sfp__rng_init(9, 9);
    int *a, *b;
    assert_int_equal(pick("random", 50, NULL, 0.5, &r1, &a), 25);
    assert_int_equal(pick("random", 50, NULL, 0.5, &r2, &b), 25);
    assert_memory_equal(a, b, 25 * sizeof *a);
    assert_int_equal(sfp__rng_u32(&r1), sfp__rng_u32(&r2));
}

TEST(the_chi_square_tail_is_right)
{
    static const struct {
        int k;
        double x, p;
    } known[] = {{1, 3.841459, 0.05}, {2, 27.631021, 1e-6}, {10, 18.307038, 0.05},
                 {10, 4.865182, 0.9}, {1, 23.928127, 1e-6}, {100, 124.342113, 0.05}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (fabs(chi_square_tail(known[i].k, known[i].x) / known[i].p - 1) > 1e-5)
            fail_msg("Q(%d, %g) is %.9g, expected %g", known[i].k, known[i].x, chi_square_tail(known[i].k, known[i].x),
                     known[i].p);
}

TEST(missing_inputs_are_named)
{
    static const struct {
        const char *name, *message;
    } cases[] = {{"streamfp", "selector 'streamfp': the batch has no scores, which this selector needs"},
                 {"kcenter", "selector 'kcenter': the batch has no logits, which this selector needs"},
                 {"camel", "selector 'camel': the batch has no queries, which this selector needs"},
                 {"craig", "selector 'craig': the batch has no features, which this selector needs"},
                 {"gradmatch", "selector 'gradmatch': the batch has no features, which this selector needs"},
                 {"freesel", "selector 'freesel': the batch has no pooled patch tokens, which this selector needs"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const sfp__selector *s = sfp__selector_find(cases[i].name);
        sfp__select_options opt = sfp__select_options_defaults();
        const int32_t label[4] = {0};
        sfp__select_batch batch = {.b = 4, .label = label, .classes = 1};
        OWNED_BY(sfp__arena_done) sfp__arena arena = {0};
        sfp__select_env env = {.arena = &arena};
        int out[4] = {7, 7, 7, 7}, count = 77;
        assert_int_equal(s->pick(&batch, &opt, &env, out, NULL, &count, &err), SFP_EINVAL);
        assert_string_equal(err.message, cases[i].message);
        assert_int_equal(count, 77);
        assert_int_equal(out[0], 7);
        batch.b = -1;
        assert_int_equal(s->pick(&batch, &opt, &env, out, NULL, &count, &err), SFP_EINVAL);
    }
}

/* For every selector and any numbers: c different indices in range; repeated calls agree; sigma 1 chooses everything; rows that
 * are not finite are chosen last; later calls allocate no memory. */
TEST(every_selector_has_the_documented_properties)
{
    sfp__rng rng = sfp__rng_init(31, 0);
    for (int round = 0; round < 60; round++) {
        int b = 1 + (int)sfp__rng_below(&rng, 40), classes = 1 + (int)sfp__rng_below(&rng, 5),
            bad = (int)sfp__rng_below(&rng, (uint32_t)b + 1);
        double sigma = sfp__rng_double(&rng) * 1.2;
        select_case c = make_case(&rng, b, 6, classes, (case_kind)(round % 3));
        for (int i = 0; i < bad && round % 2; i++) {
            float no = i % 2 ? NAN : INFINITY;
            c.score[i] = NAN;
            c.query[i * 6] = c.features[i * 6 + 1] = c.pooled[i * 6 + 5] = c.logits[i * classes] = no;
            c.probs[i * classes] = c.taps[i * 24 + 9] = no;
        }
        for (const sfp__selector *const *s = sfp__selectors; *s; s++) {
            int n = sfp__coreset_size(b, sigma), out[2][40], want = strcmp((*s)->name, "none") == 0 || n == b ? b : n;
            float weight[2][40];
            OWNED_BY(sfp__arena_done) sfp__arena arena = {0};
            for (int again = 0; again < 2; again++) {
                sfp__rng draw = sfp__rng_init(5, (uint64_t)round);
                assert_int_equal(case_pick((*s)->name, &c.batch, sigma, &draw, &arena, NULL, out[again], weight[again]), want);
            }
            assert_memory_equal(out[0], out[1], (size_t)want * sizeof(int));
            assert_memory_equal(weight[0], weight[1], (size_t)want * sizeof(float));
            bool seen[40] = {false};
            int not_finite = 0;
            for (int i = 0; i < want; i++) {
                assert_in_range(out[0][i], 0, b - 1);
                assert_false(seen[out[0][i]]);
                assert_true(weight[0][i] >= 0 && isfinite(weight[0][i]));
                seen[out[0][i]] = true;
                not_finite += round % 2 && out[0][i] < bad;
            }
            if (want < b && (*s)->needs & ~(unsigned)SFP__NEED_SCORE &&
                not_finite != (want > b - bad && round % 2 ? want - (b - bad) : 0))
                fail_msg("%s took %d rows of %d that are not finite, %d of %d samples chosen", (*s)->name, not_finite, bad, want,
                         b);
            unsigned long before = sfp__mem_count();
            if (!(*s)->open) {
                sfp__rng draw = sfp__rng_init(5, (uint64_t)round);
                assert_int_equal(case_pick((*s)->name, &c.batch, sigma, &draw, &arena, NULL, out[1], weight[1]), want);
                assert_int_equal(sfp__mem_count(), before);
            }
        }
    }
}

static sfp_status pick_half(const sfp__selector *s, const select_case *c, int *out, int *count, sfp_error *why)
{
    sfp__arena arena = {0};
    sfp__rng draw = sfp__rng_init(1, 1);
    sfp_status status = case_try(s, &c->batch, &(sfp__select_options){.sigma = 0.5},
                                 (sfp__select_env){.rng = &draw, .arena = &arena}, out, NULL, count, why);
    sfp__arena_done(&arena);
    return status;
}

/* Every allocation of every selector fails in turn: the selector returns an error and the outputs are unchanged. */
TEST(failed_allocations_return_an_error)
{
    sfp__rng rng = sfp__rng_init(32, 0);
    select_case c = make_case(&rng, 12, 4, 3, CASE_NORMAL);
    for (const sfp__selector *const *s = sfp__selectors; *s; s++) {
        int out[12] = {77}, count = -1;
        (void)FAIL_EACH_ALLOCATION(pick_half(*s, &c, out, &count, alloc_err), out[0] == 77 && count == -1);
    }
}

TEST(the_table_has_every_selector_once)
{
    assert_null(sfp__selector_find("no such"));
    assert_null(sfp__selector_find(NULL));
    for (const sfp__selector *const *s = sfp__selectors; *s; s++) {
        assert_ptr_equal(sfp__selector_find((*s)->name), *s);
        assert_true(strlen((*s)->summary) > 0);
    }
    assert_true(sfp__selector_find("streamfp")->needs == SFP__NEED_SCORE);
    assert_true(sfp__selector_find("random")->needs == 0);
    sfp__select_options opt = sfp__select_options_defaults();
    assert_true(opt.sigma == 0.5);
}
