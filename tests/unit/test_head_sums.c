/* Heads that are functions of sums: the sums of parts add up, samples can be taken out and relabelled, and their order does not
 * matter. Scores are compared in double. */
#include "learner/features.h"
#include "learner/heads/head.h"
#include "learner/heads/head_kind.h"
#include "learner/heads/sums.h"

#include "base/rng.h"

#include <limits.h>

#include "failing_alloc.h"
#include "numeric.h"
#include "test.h"

enum { N = 700, D = 70, CLASSES = 12, PARTS = 7 };

static const char *const kinds[] = {"ncm", "slda", "ridge", "balanced ridge"};
enum { KINDS = sizeof kinds / sizeof *kinds };

static float x[N][D];
static int32_t label[N];
static uint64_t key[N];

/* Gaussian clusters with labels 0, 2, 4, ...; the last two samples of the stream are the only ones of the last class. */
static void make_samples(void)
{
    sfp__rng rng = sfp__rng_init(3, 0);
    float *mean = normals(&rng, CLASSES * D, 1);
    for (int i = 0; i < N; i++) {
        int k = i >= N - 2 ? CLASSES - 1 : (int)sfp__rng_below(&rng, CLASSES - 1);
        label[i] = 2 * k;
        key[i] = (uint64_t)sfp__rng_u32(&rng) << 32 | sfp__rng_u32(&rng);
        for (int j = 0; j < D; j++)
            x[i][j] = (float)(0.5 * j + (double)mean[k * D + j] + 3 * sfp__rng_normal(&rng));
    }
}

AROUND_EACH(make_samples, NULL)

static sfp__head *make(const char *kind)
{
    sfp__head_options opt = sfp__head_options_defaults(D, 2);
    sfp__head *h = NULL;
    opt.ridge_balanced = strcmp(kind, "balanced ridge") == 0;
    MUST(sfp__head_create(opt.ridge_balanced ? "ridge" : kind, &opt, &h, &err));
    return h;
}

static void learn(sfp__head *h, int i)
{
    MUST(sfp__head_update(h, 1, x[i], &label[i], &key[i], &err));
}

static void forget(sfp__head *h, int i)
{
    MUST(sfp__head_forget(h, x[i], label[i], &key[i], &err));
}

/* Computes the scores (SFP_HEAD_GRAIN, 2 * CLASSES) by label, before normalisation; -INFINITY: never predicted. */
static double *scores(sfp__head *h, bool exact)
{
    double *out = kept_malloc(SFP_HEAD_GRAIN * 2 * CLASSES * sizeof *out),
           *raw = kept_malloc(SFP_HEAD_GRAIN * 2 * CLASSES * sizeof *raw);
    MUST(sfp__head_refresh(h, exact, &err));
    h->kind->score(h, SFP_HEAD_GRAIN, x[0], exact, raw);
    for (int i = 0; i < SFP_HEAD_GRAIN; i++)
        for (int c = 0; c < 2 * CLASSES; c++) {
            int row = c < h->label_capacity ? h->row_of[c] : -1;
            out[i * 2 * CLASSES + c] = row >= 0 ? raw[i * h->rows + row] : -INFINITY;
        }
    return out;
}

static void check_equal(const char *what, sfp__head *a, sfp__head *b, bool exact)
{
    double *got = scores(a, exact), *want = scores(b, exact), largest = 0, worst = 0;
    for (int i = 0; i < SFP_HEAD_GRAIN * 2 * CLASSES; i++) {
        if (isinf(want[i]) || isinf(got[i])) {
            assert_true(got[i] == want[i]);
            continue;
        }
        largest = fmax(largest, fabs(want[i]));
        worst = fmax(worst, fabs(got[i] - want[i]));
    }
    print_message("%s, %s: relative difference %.1e\n", what, sfp__head_kind_name(a), worst / largest);
    if (!(worst <= 1e-8 * largest))
        fail_msg("%s, %s: difference is %g, largest score %g", what, sfp__head_kind_name(a), worst, largest);
    assert_int_equal(sfp__head_samples(a), sfp__head_samples(b));
}

TEST(the_sums_of_seven_parts_give_the_same_head)
{
    for (int k = 0; k < KINDS; k++) {
        OWNED_PTR(sfp__head_free) sfp__head *whole = make(kinds[k]), *sum = make(kinds[k]);
        sfp__head *part[PARTS];
        sfp__rng rng = sfp__rng_init(8, 0);
        for (int p = 0; p < PARTS; p++)
            part[p] = make(kinds[k]);
        for (int i = 0; i < N; i++) {
            learn(whole, i);
            learn(part[sfp__rng_below(&rng, PARTS)], i);
            if (i % 100 == 0)
                MUST(sfp__head_refresh(whole, false, NULL)); /* own solutions leave no trace in the exact one */
        }
        for (int p = PARTS - 1; p >= 0; p--) {
            MUST(sfp__head_merge(sum, part[p], &err));
            sfp__head_free(part[p]);
        }
        check_equal("seven parts", sum, whole, true);
    }
}

TEST(the_order_of_samples_does_not_matter)
{
    for (int k = 0; k < KINDS; k++) {
        OWNED_PTR(sfp__head_free) sfp__head *forward = make(kinds[k]), *backward = make(kinds[k]);
        for (int i = 0; i < N; i++) {
            learn(forward, i);
            learn(backward, N - 1 - i);
        }
        check_equal("backwards", backward, forward, true);
    }
}

/* Every fifth sample is taken out, among them some that are held out and both of the last class. */
static bool leaves(int i)
{
    return i % 5 == 0 || i >= N - 2;
}

TEST(a_forgotten_sample_was_never_seen)
{
    for (int k = 0; k < KINDS; k++) {
        OWNED_PTR(sfp__head_free) sfp__head *forgot = make(kinds[k]), *never = make(kinds[k]);
        for (int i = 0; i < N; i++) {
            learn(forgot, i);
            if (!leaves(i))
                learn(never, i);
        }
        (void)scores(forgot, true);
        (void)scores(forgot, false);
        for (int i = 0; i < N; i++)
            if (leaves(i))
                forget(forgot, i);
        check_equal("forgotten", forgot, never, true);
        check_equal("forgotten, own solution", forgot, never, false);
        float out[2 * CLASSES];
        MUST(sfp__head_scores(forgot, 1, x[N - 1], true, 2 * CLASSES, out, &err));
        assert_true(out[2 * (CLASSES - 1)] == -INFINITY && isfinite(out[0])); /* its last class has no samples */
    }
}

TEST(a_relabelled_sample_never_had_its_first_label)
{
    for (int k = 0; k < KINDS; k++) {
        OWNED_PTR(sfp__head_free) sfp__head *corrected = make(kinds[k]), *right = make(kinds[k]);
        for (int i = 0; i < N; i++)
            learn(right, i);
        for (int i = 0; i < N; i++) {
            int32_t wrong = leaves(i) ? (label[i] + 3) % (2 * CLASSES) : label[i];
            MUST(sfp__head_update(corrected, 1, x[i], &wrong, &key[i], &err));
        }
        (void)scores(corrected, true);
        for (int i = 0; i < N; i++)
            if (leaves(i)) {
                MUST(sfp__head_forget(corrected, x[i], (label[i] + 3) % (2 * CLASSES), &key[i], &err));
                learn(corrected, i);
            }
        check_equal("relabelled", corrected, right, true);
        check_equal("relabelled, own solution", corrected, right, false);
    }
}

TEST(a_head_without_any_sample_left_predicts_nothing)
{
    for (int k = 0; k < KINDS; k++) {
        OWNED_PTR(sfp__head_free) sfp__head *h = make(kinds[k]), *again = make(kinds[k]);
        float out[2 * CLASSES];
        for (int i = 0; i < 60; i++)
            learn(h, i);
        MUST(sfp__head_scores(h, 1, x[0], true, 2 * CLASSES, out, &err));
        for (int i = 0; i < 60; i++)
            forget(h, i);
        for (int exact = 0; exact < 2; exact++) {
            MUST(sfp__head_scores(h, 1, x[0], exact, 2 * CLASSES, out, &err));
            for (int c = 0; c < 2 * CLASSES; c++)
                assert_true(out[c] == -INFINITY);
        }
        REFUSED(sfp__head_forget(h, x[0], label[0], &key[0], &err), SFP_ENOTFOUND, "no such sample with label");
        for (int i = 0; i < 60; i++) { /* it can learn again */
            learn(h, i);
            learn(again, i);
        }
        check_equal("learned again", h, again, true);
    }
}

TEST(samples_that_were_not_learned_cannot_be_forgotten)
{
    OWNED_PTR(sfp__head_free) sfp__head *h = make("ridge"), *ranpac = NULL;
    const uint64_t held = 10, rest = 11;
    MUST(sfp__head_update(h, 1, x[0], &label[0], &rest, &err));
    REFUSED(sfp__head_forget(h, x[0], 99, &rest, &err), SFP_ENOTFOUND, "no such sample with label 99");
    REFUSED(sfp__head_forget(h, x[0], -1, &rest, &err), SFP_ENOTFOUND, "no such sample");
    REFUSED(sfp__head_forget(h, x[0], label[0], &held, &err), SFP_ENOTFOUND, "no such sample"); /* the other fold */
    assert_int_equal(sfp__head_samples(h), 1);
    sfp__head_options opt = sfp__head_options_defaults(D, 2);
    opt.ranpac_width = 16;
    MUST(sfp__head_create("ranpac", &opt, &ranpac, &err));
    MUST(sfp__head_update(ranpac, 1, x[0], &label[0], NULL, &err));
    REFUSED(sfp__head_forget(ranpac, x[0], label[0], NULL, &err), SFP_EUNSUPPORTED, "ncm, slda and ridge can");
    REFUSED(sfp__head_merge(h, ranpac, &err), SFP_EUNSUPPORTED, "cannot be added to head ridge");
    REFUSED(sfp__head_merge(h, h, &err), SFP_EUNSUPPORTED, "another ncm, slda or ridge");
    opt = sfp__head_options_defaults(D - 1, 2);
    OWNED_PTR(sfp__head_free) sfp__head *narrow = NULL;
    MUST(sfp__head_create("ridge", &opt, &narrow, &err));
    REFUSED(sfp__head_merge(h, narrow, &err), SFP_EUNSUPPORTED,
            "with 69 values per sample cannot be added to head ridge with 70");
}

TEST(a_merge_without_memory_changes_nothing)
{
    for (int k = 0; k < KINDS; k++) {
        OWNED_PTR(sfp__head_free) sfp__head *h = make(kinds[k]), *from = make(kinds[k]), *want = make(kinds[k]);
        for (int i = 0; i < 100; i++) {
            learn(i < 3 ? h : from, i);
            learn(want, i);
        }
        int rows = h->rows;
        assert_true(FAIL_EACH_ALLOCATION(sfp__head_merge(h, from, alloc_err), h->rows == rows && sfp__head_samples(h) == 3) > 2);
        check_equal("merged", h, want, true);
    }
}

/* Five classes were learned and solved; the other ones come with few samples each, before the next solve. */
TEST(classes_that_are_new_since_the_last_solve_are_predicted)
{
    enum { OLD = 5, FEW = 12 };
    sfp__head_options opt = sfp__head_options_defaults(D, 2);
    OWNED_PTR(sfp__head_free) sfp__head *h = NULL;
    int learned[CLASSES] = {0}, right = 0, tested = 0;
    opt.ridge_balanced = true;
    opt.solve_gap = INT_MAX;
    MUST(sfp__head_create("ridge", &opt, &h, &err));
    for (int i = 0; i < N; i++)
        if (label[i] < 2 * OLD)
            learn(h, i);
    MUST(sfp__head_refresh(h, false, &err));
    for (int i = 0; i < N; i++)
        if (label[i] >= 2 * OLD && learned[label[i] / 2]++ < FEW)
            learn(h, i);
    memset(learned, 0, sizeof learned);
    for (int i = 0; i < N; i++) {
        float out[2 * CLASSES];
        if (label[i] < 2 * OLD || learned[label[i] / 2]++ < FEW)
            continue;
        MUST(sfp__head_scores(h, 1, x[i], false, 2 * CLASSES, out, &err));
        right += sfp__best_class(2 * CLASSES, NULL, out) == label[i];
        tested++;
    }
    if (right < tested / 2)
        fail_msg("%d of %d samples of new classes are right", right, tested);
}

/* The labels are drawn from softmax(scale * scores), so that the fitted scale is near it. */
TEST(the_fitted_scale_is_that_of_the_labels)
{
    enum { SAMPLES = 4000, ROWS = 5 };
    sfp__rng rng = sfp__rng_init(4, 0);
    for (double scale = 1; scale < 40; scale *= 3) {
        KEPT_IN_BLOCK;
        double *z = kept_malloc(SAMPLES * ROWS * sizeof *z);
        int64_t *row = kept_malloc(SAMPLES * sizeof *row);
        for (int i = 0; i < SAMPLES; i++) {
            double p[ROWS], sum = 0;
            for (int r = 0; r < ROWS; r++) {
                z[i * ROWS + r] = sfp__rng_normal(&rng) / 4;
                sum += p[r] = exp(scale * z[i * ROWS + r]);
            }
            double u = sfp__rng_double(&rng) * sum;
            for (row[i] = 0; row[i] < ROWS - 1 && u > p[row[i]]; row[i]++)
                u -= p[row[i]];
        }
        double got = sfp__head_fit_scale(SAMPLES, ROWS, z, row, 10);
        if (!(got > scale / 1.3 && got < scale * 1.3))
            fail_msg("scale is %g, expected %g", got, scale);
    }
    assert_true(sfp__head_fit_scale(0, ROWS, NULL, NULL, 10) == 10); /* without samples the likely value is kept */
}

/* ------------------------------------------------------------------------------------------ ridge by its definition */

/* A solution from samples, not from sums: scores are prior + (x - mean) . weight. */
typedef struct direct {
    double mean[D], prior[CLASSES], weight[CLASSES][D];
} direct;

/* Solves a w = b for each class in place, by elimination; a is symmetric and positive definite. */
static void eliminate(double a[D][D], double b[CLASSES][D])
{
    for (int k = 0; k < D; k++)
        for (int i = k + 1; i < D; i++) {
            double f = a[i][k] / a[k][k];
            for (int j = k; j < D; j++)
                a[i][j] -= f * a[k][j];
            for (int c = 0; c < CLASSES; c++)
                b[c][i] -= f * b[c][k];
        }
    for (int c = 0; c < CLASSES; c++)
        for (int i = D - 1; i >= 0; i--) {
            for (int j = i + 1; j < D; j++)
                b[c][i] -= a[i][j] * b[c][j];
            b[c][i] /= a[i][i];
        }
}

static direct solve(bool all, double lambda)
{
    direct s = {0};
    double n = 0, deviation[D] = {0}, a[D][D] = {{0}};
    for (int i = 0; i < N; i++) {
        if (!all && key[i] % 10 == 0)
            continue;
        n++;
        s.prior[label[i] / 2]++;
        for (int j = 0; j < D; j++)
            s.mean[j] += (double)x[i][j];
    }
    for (int c = 0; c < CLASSES; c++)
        s.prior[c] /= n;
    for (int j = 0; j < D; j++)
        s.mean[j] /= n;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < D && (all || key[i] % 10 != 0); j++)
            deviation[j] += ((double)x[i][j] - s.mean[j]) * ((double)x[i][j] - s.mean[j]) / n;
    for (int j = 0; j < D; j++)
        deviation[j] = sqrt(deviation[j]);
    for (int i = 0; i < N; i++) {
        if (!all && key[i] % 10 == 0)
            continue;
        for (int j = 0; j < D; j++) {
            double z = ((double)x[i][j] - s.mean[j]) / deviation[j];
            for (int k = 0; k < D; k++)
                a[j][k] += z * ((double)x[i][k] - s.mean[k]) / deviation[k] / n;
            for (int c = 0; c < CLASSES; c++)
                s.weight[c][j] += z * ((label[i] == 2 * c) - s.prior[c]) / n;
        }
    }
    for (int j = 0; j < D; j++)
        a[j][j] += lambda;
    eliminate(a, s.weight);
    for (int c = 0; c < CLASSES; c++)
        for (int j = 0; j < D; j++)
            s.weight[c][j] /= deviation[j];
    return s;
}

static double product(const direct *s, int i, int c)
{
    double sum = 0;
    for (int j = 0; j < D; j++)
        sum += ((double)x[i][j] - s->mean[j]) * s->weight[c][j];
    return sum;
}

/* Returns the squared error of the held-out samples; balanced: that of the best multiple of the scores without the prior. */
static double error_of(double lambda, bool balanced)
{
    direct s = solve(false, lambda);
    double square = 0, on_target = 0, target = 0;
    for (int i = 0; i < N; i++)
        for (int c = 0; c < CLASSES && key[i] % 10 == 0; c++) {
            double p = product(&s, i, c), t = (label[i] == 2 * c) - s.prior[c];
            square += p * p;
            on_target += p * t;
            target += t * t;
        }
    return balanced ? target - on_target * on_target / square : target - 2 * on_target + square;
}

/* The classes have unequal numbers of samples, so that the balanced scores differ from the plain ones. */
TEST(ridge_scores_equal_their_definition)
{
    for (int balanced = 0; balanced < 2; balanced++) {
        OWNED_PTR(sfp__head_free) sfp__head *h = make(balanced ? "balanced ridge" : "ridge");
        int held = 0, k = 0;
        for (int i = 0; i < N; i++) {
            if (i % 3 && label[i] < CLASSES) /* the first half of the classes loses two of three samples */
                label[i] += CLASSES;
            learn(h, i);
            held += key[i] % 10 == 0;
        }
        double enough = balanced ? 1 : 1 - 1.0 / held;
        while (k < 2 && error_of(pow(10, k + 1), balanced) < enough * error_of(pow(10, k), balanced))
            k++;
        while (k <= 0 && error_of(pow(10, k - 1), balanced) < enough * error_of(pow(10, k), balanced))
            k--;
        direct s = solve(true, pow(10, k));
        double *got = scores(h, true), scale = h->kind->scale(h, true), worst = 0;
        for (int i = 0; i < SFP_HEAD_GRAIN; i++)
            for (int c = 0; c < CLASSES; c++) {
                if (s.prior[c] == 0)
                    continue;
                double p = product(&s, i, c), want = balanced ? p / sqrt(h->rows * s.prior[c]) : s.prior[c] + p;
                worst = fmax(worst, fabs(got[i * 2 * CLASSES + 2 * c] / scale - want));
            }
        print_message("balanced %d: lambda 1e%d, difference %.1e\n", balanced, k, worst);
        assert_true(worst < 1e-8);
    }
}
