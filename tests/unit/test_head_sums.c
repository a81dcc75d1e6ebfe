/* Heads that are functions of sums: the sums of parts add up, samples can be taken out and relabelled, and their order does not
 * matter. Scores are compared in double. */
#include "learner/features.h"
#include "learner/heads/head.h"
#include "learner/heads/head_kind.h"
#include "learner/heads/sums.h"
#include "learner/heads/triangle.h"

#include "base/rng.h"

#include <limits.h>

#include "failing_alloc.h"
#include "test.h"

enum { N = 700, D = 70, CLASSES = 12, PARTS_MAX = 31 };

#include "head_clusters.h"

static void make_samples(void)
{
    make_clusters(3, 2, 0.5, 3, 0);
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
    MUST(sfp__head_forget(h, 1, x[i], &(int32_t){label[i]}, &key[i], &err));
}

/* Computes the scores (SFP__HEAD_GRAIN, 2 * CLASSES) by label, before normalisation; -INFINITY: never predicted. */
static double *scores(sfp__head *h, bool exact)
{
    double *out = kept_malloc(SFP__HEAD_GRAIN * 2 * CLASSES * sizeof *out),
           *raw = kept_malloc(SFP__HEAD_GRAIN * 2 * CLASSES * sizeof *raw);
    MUST(sfp__head_refresh(h, exact, &err));
    h->kind->score(h, SFP__HEAD_GRAIN, x[0], exact, raw);
    for (int i = 0; i < SFP__HEAD_GRAIN; i++)
        for (int c = 0; c < 2 * CLASSES; c++) {
            int row = c < h->label_capacity ? h->row_of[c] : -1;
            out[i * 2 * CLASSES + c] = row >= 0 ? raw[i * h->rows + row] : -INFINITY;
        }
    return out;
}

static void check_equal(const char *what, sfp__head *a, sfp__head *b, bool exact)
{
    double *got = scores(a, exact), *want = scores(b, exact), largest = 0, worst = 0;
    for (int i = 0; i < SFP__HEAD_GRAIN * 2 * CLASSES; i++) {
        if (isinf(want[i]) || isinf(got[i])) {
            assert_true(got[i] == want[i]);
            continue;
        }
        largest = fmax(largest, fabs(want[i]));
        worst = fmax(worst, fabs(got[i] - want[i]));
    }
    print_message("%s, %s: relative difference %.1e\n", what, sfp__head_kind_name(a), worst / largest);
    if (!(worst <= 1e-9 * largest))
        fail_msg("%s, %s: difference is %g, largest score %g", what, sfp__head_kind_name(a), worst, largest);
    assert_int_equal(sfp__head_samples(a), sfp__head_samples(b));
}

/* A part of the stream with its own label for each class. */
typedef struct part {
    sfp__head *head;
    int own_label[CLASSES]; /* of class k, whose label in the whole stream is 2 * k */
} part;

static part make_part(const char *kind, sfp__rng *rng)
{
    part p = {.head = make(kind)};
    for (int k = 0; k < CLASSES; k++)
        p.own_label[k] = k;
    for (int k = CLASSES - 1; k > 0; k--) {
        int other = (int)sfp__rng_below(rng, (uint32_t)k + 1), label_k = p.own_label[k];
        p.own_label[k] = p.own_label[other];
        p.own_label[other] = label_k;
    }
    return p;
}

static void learn_part(const part *p, int i)
{
    const int32_t own = p->own_label[label[i] / 2];
    MUST(sfp__head_update(p->head, 1, x[i], &own, &key[i], &err));
}

/* Writes the labels in the whole stream, by row of the part. */
static void match_labels(const part *p, int32_t *out)
{
    for (int r = 0; r < p->head->rows; r++)
        for (int k = 0; k < CLASSES; k++)
            if (p->own_label[k] == (int)p->head->label[r])
                out[r] = 2 * k;
}

static void check_same_labels(sfp__head *a, sfp__head *b)
{
    float p[2 * CLASSES], q[2 * CLASSES];
    for (int i = 0; i < N; i++) {
        int best[2] = {0};
        MUST(sfp__head_scores(a, 1, x[i], true, 2 * CLASSES, p, &err));
        MUST(sfp__head_scores(b, 1, x[i], true, 2 * CLASSES, q, &err));
        for (int c = 1; c < 2 * CLASSES; c++) {
            best[0] = p[c] > p[best[0]] ? c : best[0];
            best[1] = q[c] > q[best[1]] ? c : best[1];
        }
        assert_int_equal(best[0], best[1]);
    }
}

TEST(the_sums_of_parts_in_any_order_give_the_same_head)
{
    static const int parts[] = {2, 7, PARTS_MAX};
    for (int k = 0; k < 3 * KINDS; k++) {
        const int n = parts[k / KINDS];
        const char *kind = kinds[k % KINDS];
        OWNED_PTR(sfp__head_free) sfp__head *whole = make(kind), *sum = make(kind);
        part list[PARTS_MAX];
        sfp__rng rng = sfp__rng_init(8, (uint64_t)k);
        for (int p = 0; p < n; p++)
            list[p] = make_part(kind, &rng);
        for (int i = 0; i < N; i++) {
            learn(whole, i);
            learn_part(&list[sfp__rng_below(&rng, (uint32_t)n)], i);
            if (i % 100 == 0)
                MUST(sfp__head_refresh(whole, false, NULL)); /* own solutions leave no trace in the exact one */
        }
        for (int left = n; left > 0; left--) {
            int p = (int)sfp__rng_below(&rng, (uint32_t)left);
            int32_t here[CLASSES];
            match_labels(&list[p], here);
            MUST(sfp__head_merge(sum, list[p].head, here, &err));
            sfp__head_free(list[p].head);
            list[p] = list[left - 1];
        }
        check_equal(n == 2 ? "2 parts" : n == 7 ? "7 parts" : "31 parts", sum, whole, true);
        check_same_labels(sum, whole);
    }
}

/* Fails unless all counts are equal, by label. */
static void check_same_counts(sfp__head *a, sfp__head *b)
{
    const sfp__sums *s = a->kind->sums(a), *t = b->kind->sums(b);
    assert_true(s->total == t->total);
    for (int c = 0; c < 2 * CLASSES; c++) {
        int r = c < a->label_capacity ? a->row_of[c] : -1, q = c < b->label_capacity ? b->row_of[c] : -1;
        assert_true((r < 0 ? 0 : s->mass[r]) == (q < 0 ? 0 : t->mass[q]));
    }
    assert_int_equal(sfp__head_samples(a), sfp__head_samples(b));
}

TEST(what_was_merged_can_be_subtracted)
{
    for (int k = 0; k < KINDS; k++) {
        OWNED_PTR(sfp__head_free) sfp__head *h = make(kinds[k]), *from = make(kinds[k]), *alone = make(kinds[k]);
        for (int i = 0; i < N; i++) {
            learn(i % 3 ? h : from, i);
            if (i % 3)
                learn(alone, i);
        }
        MUST(sfp__head_merge(h, from, NULL, &err));
        (void)scores(h, true);
        MUST(sfp__head_subtract(h, from, NULL, &err));
        check_same_counts(h, alone);
        check_equal("subtracted", h, alone, true);
        MUST(sfp__head_subtract(h, alone, NULL, &err));
        REFUSED(sfp__head_subtract(h, from, NULL, &err), SFP_ENOTFOUND, "fewer samples than are to be taken out");
        assert_int_equal(sfp__head_samples(h), 0);
        const sfp__sums *s = h->kind->sums(h);
        for (int i = 0; i < h->rows * D; i++)
            assert_true(s->class_sum[i] == 0);
        assert_true(s->square == 0 && (!s->products || s->product[0] == 0));
    }
}

/* Fails if single samples are kept. */
static void check_no_single_sample(sfp__head *h)
{
    const sfp__sums *s = h->kind->sums(h);
    assert_int_equal(s->kept + s->recent, 0);
}

TEST(without_single_samples_a_head_scores_as_before)
{
    for (int k = 0; k < KINDS; k++) {
        OWNED_PTR(sfp__head_free) sfp__head *h = make(kinds[k]), *whole = make(kinds[k]), *rest = make(kinds[k]);
        for (int i = 0; i < N; i++) {
            learn(h, i);
            learn(whole, i);
        }
        MUST(sfp__head_drop_samples(h, &err));
        check_no_single_sample(h);
        check_equal("without single samples", h, whole, true);
        double scale = sfp__head_scale(h, true);
        MUST(sfp__head_merge(rest, h, NULL, &err)); /* the scale is known to a head that starts from these sums */
        (void)scores(rest, true);
        assert_true(isnan(scale) || fabs(sfp__head_scale(rest, true) / scale - 1) < 1e-9);
        MUST(sfp__head_merge(rest, h, NULL, &err));
        MUST(sfp__head_subtract(rest, h, NULL, &err));
        check_same_counts(rest, h);
    }
}

/* The scale follows held-out samples that are learned after the others were dropped. */
TEST(a_head_without_single_samples_is_calibrated_again)
{
    for (int k = 1; k < KINDS; k++) {
        OWNED_PTR(sfp__head_free) sfp__head *h = make(kinds[k]);
        for (int i = 0; i < N / 2; i++)
            learn(h, i);
        MUST(sfp__head_drop_samples(h, &err));
        double before = sfp__head_scale(h, true);
        for (int i = N / 2; i < N; i++) { /* held out, and with labels that cannot be predicted */
            uint64_t held = 10 * (uint64_t)i;
            int32_t any = 2 * (i * 7 % (CLASSES - 1));
            MUST(sfp__head_update(h, 1, x[i], &any, &held, &err));
        }
        (void)scores(h, true);
        assert_true(sfp__head_scale(h, true) < 0.5 * before);
    }
}

TEST(a_class_that_is_left_out_is_not_predicted)
{
    for (int k = 0; k < KINDS; k++) {
        OWNED_PTR(sfp__head_free) sfp__head *h = make(kinds[k]), *without = make(kinds[k]);
        enum { LAST = 2 * (CLASSES - 1) };
        const int32_t once = LAST;
        for (int i = 0; i < N - 2; i++) {
            learn(h, i);
            learn(without, i);
        }
        MUST(sfp__head_update(h, 1, x[N - 1], &once, &key[N - 1], &err));
        sfp__head_leave_out(h, LAST); /* its only sample is its mean: nothing of it is left */
        check_same_counts(h, without);
        check_equal("left out", h, without, true);
        sfp__head_leave_out(h, 0);
        assert_int_equal(sfp__head_label_samples(h, 0), 0);
        double *s = scores(h, true);
        assert_true(s[0] == -INFINITY && isfinite(s[2]));
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

/* The products below the diagonal, which files contain in part, kept those of forgotten samples. */
TEST(sums_keep_no_products_of_a_forgotten_sample)
{
    OWNED_BY(sfp__sums_done) sfp__sums all = {0}, never = {0};
    MUST(sfp__sums_init(&all, D, true, 0, &err));
    MUST(sfp__sums_init(&never, D, true, 0, &err));
    assert_true(sfp__sums_grow(&all, 0, 1) && sfp__sums_grow(&never, 0, 1));
    for (int i = 0; i < 2 * SFP__SUMS_GROUP; i++) {
        sfp__sums_add(&all, x[i], 0, 1, key[i], i, NULL);
        if (i >= SFP__SUMS_GROUP)
            sfp__sums_add(&never, x[i], 0, 1, key[i], i, NULL);
    }
    for (int i = 0; i < SFP__SUMS_GROUP; i++)
        sfp__sums_remove(&all, x[i], 0, key[i]);
    for (size_t i = 0; i < sfp__triangle_count(D); i++)
        assert_true(fabs(all.product[i] - never.product[i]) < 1e-9 * (1 + fabs(never.product[i])));
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
            if (leaves(i))
                MUST(sfp__head_relabel(corrected, x[i], (label[i] + 3) % (2 * CLASSES), label[i], &key[i], &err));
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
        REFUSED(sfp__head_forget(h, 1, x[0], &(int32_t){label[0]}, &key[0], &err), SFP_ENOTFOUND, "no such sample with label");
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
    const uint64_t rest = 11;
    MUST(sfp__head_update(h, 1, x[0], &label[0], &rest, &err));
    REFUSED(sfp__head_forget(h, 1, x[0], &(int32_t){99}, &rest, &err), SFP_ENOTFOUND, "no such sample with label 99");
    REFUSED(sfp__head_forget(h, 1, x[0], &(int32_t){-1}, &rest, &err), SFP_ENOTFOUND, "no such sample");
    assert_int_equal(sfp__head_samples(h), 1);
    sfp__head_options opt = sfp__head_options_defaults(D, 2);
    opt.ranpac_width = 16;
    MUST(sfp__head_create("ranpac", &opt, &ranpac, &err));
    MUST(sfp__head_update(ranpac, 1, x[0], &label[0], NULL, &err));
    REFUSED(sfp__head_forget(ranpac, 1, x[0], &(int32_t){label[0]}, NULL, &err), SFP_EUNSUPPORTED, "ncm, slda and ridge can");
    REFUSED(sfp__head_merge(h, ranpac, NULL, &err), SFP_EUNSUPPORTED, "cannot be combined with head ridge");
    REFUSED(sfp__head_merge(h, h, NULL, &err), SFP_EUNSUPPORTED, "another ncm, slda or ridge");
    opt = sfp__head_options_defaults(D - 1, 2);
    OWNED_PTR(sfp__head_free) sfp__head *narrow = NULL;
    MUST(sfp__head_create("ridge", &opt, &narrow, &err));
    REFUSED(sfp__head_merge(h, narrow, NULL, &err), SFP_EUNSUPPORTED,
            "with 69 values per sample cannot be combined with head ridge with 70");
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
        assert_true(
            FAIL_EACH_ALLOCATION(sfp__head_merge(h, from, NULL, alloc_err), h->rows == rows && sfp__head_samples(h) == 3) > 2);
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

enum { SMALL = 30, LARGE = 95 }; /* numbers of samples; few are solved from their products with each other */

/* A solution from samples, not from sums: scores are prior + (x - mean) . weight. */
typedef struct direct {
    double mean[D], prior[CLASSES], weight[CLASSES][D];
} direct;

/* Writes 1 / scale of each value from the first n samples (docs/method.md, section 18): its deviation, or a power of it. soft: 0, 1 or 2. */
static void scaling(int n, int soft, double *z)
{
    double variance[D] = {0}, mean[D] = {0}, sum = 0;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < D; j++)
            mean[j] += (double)x[i][j] / n;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < D; j++)
            variance[j] += ((double)x[i][j] - mean[j]) * ((double)x[i][j] - mean[j]) / n;
    for (int j = 0; j < D; j++) {
        z[j] = pow(variance[j], -0.5 + soft / 8.0);
        sum += z[j] * z[j] * variance[j];
    }
    for (int j = 0; soft && j < D; j++)
        z[j] *= sqrt(D / sum);
}

/* Solves from the first `count` samples but `skip` (-1: from all of them). `strength` is n lambda. */
static direct solve(int count, int skip, const double *z, double strength)
{
    direct s = {0};
    double n = skip < 0 ? count : count - 1.0, a[D][D] = {{0}};
    for (int i = 0; i < count; i++) {
        s.prior[label[i] / 2] += (i != skip) / n;
        for (int j = 0; j < D; j++)
            s.mean[j] += (i != skip) * (double)x[i][j] / n;
    }
    for (int i = 0; i < count; i++) {
        double t[D];
        for (int j = 0; j < D && i != skip; j++)
            t[j] = z[j] * ((double)x[i][j] - s.mean[j]);
        for (int j = 0; j < D && i != skip; j++) {
            for (int k = 0; k < D; k++)
                a[j][k] += t[j] * t[k];
            for (int c = 0; c < CLASSES; c++)
                s.weight[c][j] += t[j] * ((label[i] == 2 * c) - s.prior[c]);
        }
    }
    for (int j = 0; j < D; j++)
        a[j][j] += strength;
    solve_dense(D, a[0], CLASSES, s.weight[0], 1, D);
    for (int c = 0; c < CLASSES; c++)
        for (int j = 0; j < D; j++)
            s.weight[c][j] *= z[j];
    return s;
}

static double product(const direct *s, int i, int c)
{
    double sum = 0;
    for (int j = 0; j < D; j++)
        sum += ((double)x[i][j] - s->mean[j]) * s->weight[c][j];
    return sum;
}

/* Returns the squared error of the samples whose classes have others, each predicted by the solution of the other samples. There are at
 * most as many samples as a head keeps. */
static double error_of(int n, int soft, int decade)
{
    double z[D], error = 0, count[CLASSES] = {0};
    scaling(n, soft, z);
    for (int i = 0; i < n; i++)
        count[label[i] / 2]++;
    for (int i = 0; i < n; i++) {
        if (count[label[i] / 2] < 2)
            continue;
        direct s = solve(n, i, z, n * pow(10, decade));
        for (int c = 0; c < CLASSES; c++) {
            double residual = (label[i] == 2 * c) - s.prior[c] - product(&s, i, c);
            error += residual * residual;
        }
    }
    return error;
}

static int descend(int n, int soft, int from)
{
    int k = from;
    while (k < 2 && error_of(n, soft, k + 1) < error_of(n, soft, k))
        k++;
    while (k <= from && k > -5 && error_of(n, soft, k - 1) < error_of(n, soft, k))
        k--;
    return k;
}

/* Returns the largest difference of the scores of a head from those of a solution. */
static double difference(sfp__head *h, bool exact, const direct *s, bool balanced)
{
    double *got = scores(h, exact), scale = h->kind->scale(h, exact), worst = 0;
    for (int i = 0; i < SFP__HEAD_GRAIN; i++)
        for (int c = 0; c < CLASSES; c++) {
            if (s->prior[c] == 0)
                continue;
            double p = product(s, i, c), want = balanced ? p / sqrt(h->rows * s->prior[c]) : s->prior[c] + p;
            worst = fmax(worst, fabs(got[i * 2 * CLASSES + 2 * c] / scale - want));
        }
    return worst;
}

/* The classes have unequal numbers of samples, so that the balanced scores differ from the plain ones. */
static void make_unequal(void)
{
    for (int i = 0; i < N; i++)
        if (i % 3 && label[i] < CLASSES) /* the first half of the classes loses two of three samples */
            label[i] += CLASSES;
}

TEST(ridge_scores_equal_their_definition)
{
    make_unequal();
    for (int test = 0; test < 4; test++) {
        int balanced = test % 2, n = test < 2 ? SMALL : LARGE;
        OWNED_PTR(sfp__head_free) sfp__head *h = make(balanced ? "balanced ridge" : "ridge");
        double z[D];
        for (int i = 0; i < n; i++)
            learn(h, i);
        int soft = balanced, k = descend(n, soft, balanced);
        for (int step = 1; balanced && step >= -1; step -= 2)
            while (soft + step >= 0 && soft + step <= 2 && error_of(n, soft + step, k) < error_of(n, soft, k)) {
                soft += step;
                k = descend(n, soft, k);
            }
        scaling(n, soft, z);
        direct s = solve(n, -1, z, n * pow(10, k));
        double worst = difference(h, true, &s, balanced);
        print_message("balanced %d, %d samples: scaling %d, lambda 1e%d, difference %.1e\n", balanced, n, soft, k, worst);
        assert_true(worst < 1e-8);
    }
}

/* The learner's own solution contains every sample, with the scaling and n lambda of the last time it was solved. */
TEST(the_own_solution_follows_every_sample)
{
    make_unequal();
    for (int test = 0; test < 4; test++) {
        int balanced = test % 2, solved = test < 2 ? SMALL : LARGE, last = 2 * solved;
        OWNED_PTR(sfp__head_free) sfp__head *h = make(balanced ? "balanced ridge" : "ridge");
        double best = INFINITY;
        for (int i = 0; i < solved; i++)
            learn(h, i);
        MUST(sfp__head_refresh(h, false, &err));
        for (int i = solved; i < last; i++) {
            learn(h, i);
            if (i % 7 == 0)
                MUST(sfp__head_refresh(h, false, &err));
        }
        for (int soft = 0; soft < 3; soft++)
            for (int k = -5; k <= 2; k++) {
                double z[D];
                scaling(solved, soft, z);
                direct s = solve(last, -1, z, solved * pow(10, k));
                best = fmin(best, difference(h, false, &s, balanced));
            }
        print_message("balanced %d, %d samples: difference %.1e\n", balanced, last, best);
        assert_true(best < 1e-8);
    }
}

/* The own solution of slda: without shrinkage that depends on the samples it is the exact one. */
TEST(the_own_solution_of_slda_follows_every_sample)
{
    sfp__head_options opt = sfp__head_options_defaults(D, 2);
    OWNED_PTR(sfp__head_free) sfp__head *h = NULL;
    opt.shrinkage_oas = false;
    opt.slda_shrink = 0;
    MUST(sfp__head_create("slda", &opt, &h, &err));
    for (int i = 0; i < N / 2 + 1; i++)
        learn(h, i);
    MUST(sfp__head_refresh(h, false, &err));
    for (int i = N / 2 + 1; i < N; i++)
        learn(h, i);
    double *own = scores(h, false), own_scale = h->kind->scale(h, false);
    double *exact = scores(h, true), scale = h->kind->scale(h, true), worst = 0;
    for (int i = 0; i < SFP__HEAD_GRAIN; i++)
        for (int c = 2; c < 2 * CLASSES; c += 2) /* scores are compared up to what all classes share */
            worst = fmax(worst, fabs((own[i * 2 * CLASSES + c] - own[i * 2 * CLASSES]) / own_scale -
                                     (exact[i * 2 * CLASSES + c] - exact[i * 2 * CLASSES]) / scale));
    print_message("difference %.1e\n", worst);
    assert_true(worst < 1e-8);
}

/* ---------------------------------------------------------------------------------------------------------- half-life */

/* After some half-lives, samples learned with other labels before do not matter any more. */
TEST(with_a_half_life_labels_may_change_their_meaning)
{
    for (int k = 0; k < KINDS; k++) {
        sfp__head_options opt = sfp__head_options_defaults(D, 2);
        OWNED_PTR(sfp__head_free) sfp__head *h = NULL;
        int right = 0;
        opt.ridge_balanced = k == 3;
        opt.half_life = N / 10;
        MUST(sfp__head_create(k == 3 ? "ridge" : kinds[k], &opt, &h, &err));
        for (int i = 0; i < 2 * N; i++) {
            int32_t y = i < N ? label[i] : 2 * ((label[i % N] / 2 + 1) % CLASSES);
            MUST(sfp__head_update(h, 1, x[i % N], &y, &key[i % N], &err));
            if (i % 20 == 0)
                MUST(sfp__head_refresh(h, false, &err));
        }
        for (int exact = 0; exact < 2; exact++)
            for (int i = 0; i < N; i++) {
                float out[2 * CLASSES];
                MUST(sfp__head_scores(h, 1, x[i], exact, 2 * CLASSES, out, &err));
                right += sfp__best_class(2 * CLASSES, NULL, out) == 2 * ((label[i] / 2 + 1) % CLASSES);
            }
        print_message("%s: %.2f\n", kinds[k], right / 2.0 / N);
        assert_true(right > 1.2 * N);
        REFUSED(sfp__head_forget(h, 1, x[0], &(int32_t){2 * ((label[0] / 2 + 1) % CLASSES)}, &key[0], &err), SFP_EUNSUPPORTED,
                "half-life is 70");
        OWNED_PTR(sfp__head_free) sfp__head *other = make(kinds[k]);
        REFUSED(sfp__head_merge(h, other, NULL, &err), SFP_EUNSUPPORTED, "half-life is 70");
    }
}

/* The weights of new samples grow; before they become too large, all sums are divided by them. */
TEST(a_half_life_works_for_any_number_of_samples)
{
    sfp__head_options opt = sfp__head_options_defaults(D, 2);
    OWNED_PTR(sfp__head_free) sfp__head *h = NULL;
    opt.half_life = 3;
    MUST(sfp__head_create("ridge", &opt, &h, &err));
    for (int i = 0; i < N; i++) {
        learn(h, i);
        const sfp__sums *s = h->kind->sums(h);
        double total = s->total / s->weight; /* the sum of 2^(-age / 3), but that weight is already that of the next sample */
        assert_true(total > 0.79 && total < 3.9);
        if (i % 20 == 0)
            MUST(sfp__head_refresh(h, false, &err));
    }
    const double *out = scores(h, true);
    for (int i = 0; i < SFP__HEAD_GRAIN * 2 * CLASSES; i++)
        assert_true(!isnan(out[i]));
}
