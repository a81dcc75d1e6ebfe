/* Coresets of a matrix (streamfp.h, part 11). */
#include "world.h"

enum { ROWS = 6, DIM = 2, LABELS = 2 };

static const float points[ROWS][DIM] = {{0, 0}, {1, 0}, {10, 0}, {10, 1}, {0, 10}, {5, 5}};
static const int32_t labels[ROWS] = {0, 0, 1, 1, 0, 1};
static const float probs[ROWS][LABELS] = {{.9f, .1f}, {.8f, .2f}, {.3f, .7f}, {.4f, .6f}, {.5f, .5f}, {.2f, .8f}};

static sfp_status choose(const char *method, double ratio, const float *x, int32_t *indices, float *weights, int *count)
{
    sfp_coreset_options o = SFP_CORESET_OPTIONS_INIT;
    o.method = method;
    o.ratio = ratio;
    o.threads = 1;
    return sfp_coreset(&o, ROWS, DIM, x, labels, LABELS, probs[0], indices, weights, count, &err);
}

TEST(kcenter_goes_to_the_farthest_point_first)
{
    int32_t i[ROWS];
    float w[ROWS];
    int n = 0;
    MUST(choose("kcenter", 0.5, points[0], i, w, &n));
    assert_int_equal(n, 3);
    assert_int_equal(i[0], 0);
    assert_int_equal(i[1], 3);
    assert_int_equal(i[2], 4);
    assert_true(w[0] == 1);
}

TEST(every_method_chooses_different_rows_and_all_for_a_ratio_of_one)
{
    static const char *const methods[] = {"random", "kcenter", "camel", "craig", "gradmatch", "d2"};
    for (size_t m = 0; m < sizeof methods / sizeof *methods; m++)
        for (int all = 0; all < 2; all++) {
            int32_t i[ROWS];
            int n = 0, seen[ROWS] = {0};
            MUST(choose(methods[m], all ? 1 : 0.5, points[0], i, NULL, &n));
            assert_int_equal(n, all ? ROWS : ROWS / 2);
            for (int k = 0; k < n; k++)
                assert_int_equal(seen[i[k]]++, 0);
        }
}

TEST(rows_that_are_not_finite_are_chosen_last)
{
    float x[ROWS][DIM];
    int32_t i[ROWS];
    int n = 0;
    memcpy(x, points, sizeof x);
    x[1][0] = NAN;
    x[3][1] = INFINITY;
    MUST(choose("random", 1, x[0], i, NULL, &n));
    assert_int_equal(i[4], 1);
    assert_int_equal(i[5], 3);
}

static void count_calls(void *ctx, const char *unit, uint64_t done, uint64_t total)
{
    assert_non_null(unit);
    assert_true(total == 0 || done <= total);
    (*(int *)ctx)++;
}

TEST(wrong_arguments_are_refused_by_name)
{
    sfp_coreset_options o = SFP_CORESET_OPTIONS_INIT;
    int32_t i[ROWS];
    int n = -1, calls = 0;
    o.ratio = 0.5;
    o.progress = count_calls;
    o.ctx = &calls;
#define CALL(rows, x, y, c, p) sfp_coreset(&o, rows, DIM, x, y, c, p, i, NULL, &n, &err)
    REFUSED(CALL(ROWS, points[0], NULL, 0, NULL), SFP_EINVAL, "method is '', expected random");
    o.method = "best";
    REFUSED(CALL(ROWS, points[0], NULL, 0, NULL), SFP_EINVAL, "method is 'best'");
    assert_string_equal(err.key, "method");
    o.method = "camel";
    REFUSED(CALL(ROWS, points[0], NULL, 0, NULL), SFP_EINVAL, "labels are missing");
    o.method = "craig";
    REFUSED(CALL(ROWS, points[0], labels, 0, NULL), SFP_EINVAL, "probs are missing");
    REFUSED(CALL(ROWS, points[0], labels, 1, probs[0]), SFP_EINVAL, "label 2 is 1, expected 0 to 0");
    o.method = "kcenter";
    REFUSED(CALL(0, points[0], NULL, 0, NULL), SFP_EINVAL, "features are 0 x 2");
    REFUSED(CALL(ROWS, NULL, NULL, 0, NULL), SFP_EINVAL, "features");
    o.ratio = 0;
    REFUSED(CALL(ROWS, points[0], NULL, 0, NULL), SFP_EINVAL, "ratio is 0");
    o.ratio = NAN;
    REFUSED(CALL(ROWS, points[0], NULL, 0, NULL), SFP_EINVAL, "ratio is nan");
    o.ratio = 0.5;
    o.threads = -1;
    REFUSED(CALL(ROWS, points[0], NULL, 0, NULL), SFP_EINVAL, "threads is -1");
    o.threads = 0;
    REFUSED(sfp_coreset(NULL, ROWS, DIM, points[0], NULL, 0, NULL, i, NULL, &n, &err), SFP_EINVAL, "must not be NULL");
    REFUSED(sfp_coreset(&o, ROWS, DIM, points[0], NULL, 0, NULL, NULL, NULL, &n, &err), SFP_EINVAL, "must not be NULL");
    o.size = 0;
    REFUSED(CALL(ROWS, points[0], NULL, 0, NULL), SFP_EINVAL, "expected sizeof(sfp_coreset_options)");
    assert_int_equal(n, -1);
    assert_int_equal(calls, 0);
}
