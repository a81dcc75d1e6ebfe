/* Judgements of learned samples by the head without them: those of ncm, ridge and slda equal the scores of sums from which the sample was
 * taken out, solved with the same strengths, which is done here by elimination in doubles. */
#include "learner/heads/head.h"
#include "learner/heads/head_kind.h"
#include "learner/heads/sums.h"
#include "learner/heads/triangle.h"

#include "failing_alloc.h"
#include "test.h"

enum { N = 400, D = 24, CLASSES = 6, LABELS = 2 * CLASSES };

#include "head_clusters.h"

static void make_samples(void)
{
    make_clusters(7, 1, 0.2, 1, 0.1);
}

AROUND_EACH(make_samples, NULL)

static sfp__head *make(const char *kind, int n)
{
    sfp__head_options opt = sfp__head_options_defaults(D, 2);
    sfp__head *h = NULL;
    opt.ridge_balanced = strcmp(kind, "balanced ridge") == 0;
    MUST(sfp__head_create(opt.ridge_balanced ? "ridge" : kind, &opt, &h, &err));
    MUST(sfp__head_update(h, n, x[0], label, key, &err));
    return h;
}

/* The strengths of the exact solution: lambda, scale, scaling. */
static double strength[SFP__STRENGTHS];

static sfp_status put(void *ctx, const sfp__tensor *t, sfp_error *error)
{
    (void)ctx, (void)error;
    if (strcmp(t->name, "head.strength") == 0)
        memcpy(strength, t->data, sizeof strength);
    return SFP_OK;
}

typedef struct sums {
    double n, count[CLASSES], mean[D], class_mean[CLASSES][D], total[D][D], within[D][D]; /* scatters around the means */
} sums;

/* Sums over all samples but one; -1: over all. */
static sums sum_without(int out)
{
    sums s = {0};
    for (int i = 0; i < N; i++)
        for (int j = 0; j < D && i != out; j++) {
            s.n += j == 0;
            s.count[label[i] / 2] += j == 0;
            s.mean[j] += (double)x[i][j];
            s.class_mean[label[i] / 2][j] += (double)x[i][j];
        }
    for (int j = 0; j < D; j++) {
        s.mean[j] /= s.n;
        for (int c = 0; c < CLASSES; c++)
            s.class_mean[c][j] /= s.count[c] > 0 ? s.count[c] : 1;
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < D && i != out; j++)
            for (int k = 0; k < D; k++) {
                const double *m = s.class_mean[label[i] / 2];
                s.total[j][k] += ((double)x[i][j] - s.mean[j]) * ((double)x[i][k] - s.mean[k]);
                s.within[j][k] += ((double)x[i][j] - m[j]) * ((double)x[i][k] - m[k]);
            }
    return s;
}

/* Writes the scores of sample i by ridge without it. */
static void ridge_scores(bool balanced, int i, double *out)
{
    static const double exponent[] = {-0.5, -0.375, -0.25};
    sums all = sum_without(-1), s = sum_without(i);
    double z[D], a[D][D], b[D][CLASSES], sum = 0;
    int classes = 0;
    for (int j = 0; j < D; j++) {
        z[j] = pow(all.total[j][j] / N, exponent[(int)strength[SFP__SCALING]]);
        sum += z[j] * z[j] * all.total[j][j] / N;
    }
    for (int j = 0; j < D && strength[SFP__SCALING] != 0; j++)
        z[j] *= sqrt(D / sum);
    for (int j = 0; j < D; j++)
        for (int k = 0; k < D; k++)
            a[j][k] = z[j] * z[k] * s.total[j][k] + (j == k ? N * strength[SFP__LAMBDA] : 0);
    for (int c = 0; c < CLASSES; c++) {
        classes += s.count[c] > 0;
        for (int j = 0; j < D; j++)
            b[j][c] = z[j] * s.count[c] * (s.class_mean[c][j] - s.mean[j]);
    }
    solve_dense(D, a[0], CLASSES, b[0], CLASSES, 1);
    for (int c = 0; c < CLASSES; c++) {
        double share = s.count[c] / s.n;
        out[c] = balanced ? 0 : share;
        for (int j = 0; j < D; j++)
            out[c] += ((double)x[i][j] - s.mean[j]) * z[j] * b[j][c] / (balanced ? sqrt(classes * share) : 1);
        out[c] = share > 0 ? strength[SFP__SCALE] * out[c] : -INFINITY;
    }
}

static void slda_scores(int i, double *out)
{
    sums all = sum_without(-1), s = sum_without(i);
    double *shrunk = kept_malloc(sfp__triangle_count(D) * sizeof *shrunk), a[D][D], b[D][CLASSES];
    for (int j = 0; j < D; j++)
        for (int k = j; k < D; k++)
            sfp__triangle_row(shrunk, D, j)[k] = all.within[j][k] / N;
    double share = sfp__triangle_shrink(D, shrunk, N, -1, 0);
    double diagonal = shrunk[0] - (1 - share) * all.within[0][0] / N;
    for (int j = 0; j < D; j++)
        for (int k = 0; k < D; k++)
            a[j][k] = ((1 - share) * s.within[j][k] + (j == k ? N * diagonal : 0)) / (N - 1);
    for (int c = 0; c < CLASSES; c++)
        for (int j = 0; j < D; j++)
            b[j][c] = (double)x[i][j] - s.class_mean[c][j];
    solve_dense(D, a[0], CLASSES, b[0], CLASSES, 1);
    for (int c = 0; c < CLASSES; c++) {
        out[c] = 0;
        for (int j = 0; j < D; j++)
            out[c] -= 0.5 * ((double)x[i][j] - s.class_mean[c][j]) * b[j][c];
        out[c] = s.count[c] > 0 ? strength[SFP__SCALE] * out[c] : -INFINITY;
    }
}

static void log_softmax(double *v)
{
    double top = -INFINITY, sum = 0;
    for (int c = 0; c < CLASSES; c++)
        top = fmax(top, v[c]);
    for (int c = 0; c < CLASSES; c++)
        sum += exp(v[c] - top);
    for (int c = 0; c < CLASSES; c++)
        v[c] -= top + log(sum);
}

/* The scores that a head gives sample i after it has forgotten it; it learns it again. */
static void forget_and_score(sfp__head *h, int i, double *out)
{
    float found[LABELS];
    MUST(sfp__head_forget(h, 1, x[i], &label[i], &key[i], &err));
    MUST(sfp__head_scores(h, 1, x[i], true, LABELS, found, &err));
    MUST(sfp__head_update(h, 1, x[i], &label[i], &key[i], &err));
    for (int c = 0; c < CLASSES; c++)
        out[c] = (double)found[2 * c];
}

TEST(a_sample_is_judged_as_by_the_sums_without_it)
{
    for (int k = 0; k < KINDS; k++) {
        OWNED_PTR(sfp__head_free) sfp__head *h = make(kinds[k], N), *other = make(kinds[k], N);
        static float found[N][LABELS], unknown[N];
        double want[CLASSES], worst = 0;
        const sfp__visitor v = {.prefix = "head", .put = put, .inference_only = true};
        MUST(sfp__head_visit(h, &v, &err));
        MUST(sfp__head_judge(h, N, x[0], label, LABELS, found[0], unknown, &err));
        for (int i = N - 1; i >= 0; i -= 19) {
            if (k == 0)
                forget_and_score(other, i, want);
            else if (k == 1)
                slda_scores(i, want);
            else
                ridge_scores(k == 3, i, want);
            double largest = 0;
            log_softmax(want);
            for (int c = 0; c < CLASSES; c++) {
                assert_true(found[i][2 * c + 1] == -INFINITY);
                assert_true(isinf(want[c]) == isinf(found[i][2 * c]));
                largest = isinf(want[c]) ? largest : fmax(largest, fabs(want[c]));
            }
            for (int c = 0; c < CLASSES; c++)
                worst = isinf(want[c]) ? worst : fmax(worst, fabs((double)found[i][2 * c] - want[c]) / largest);
            assert_true(k == 0 ? isnan(unknown[i]) : unknown[i] >= 0 && unknown[i] <= 1);
        }
        print_message("%s: relative difference %.1e\n", kinds[k], worst);
        assert_true(worst <= 1e-6);
        assert_true(found[N - 1][label[N - 1]] == -INFINITY); /* no other sample has its class */
    }
}

/* Predictions and files do not depend on whether samples were judged. */
TEST(judging_changes_nothing)
{
    static const int sizes[] = {10, N};
    for (int k = 0; k < 2 * KINDS; k++) {
        int n = sizes[k / KINDS];
        OWNED_PTR(sfp__head_free) sfp__head *h = make(kinds[k % KINDS], n), *other = make(kinds[k % KINDS], n);
        static float found[N][LABELS], unknown[N], a[N][LABELS], b[N][LABELS];
        for (int round = 0; round < 2; round++) {
            MUST(sfp__head_judge(h, n, x[0], label, LABELS, found[0], unknown, &err));
            MUST(sfp__head_scores(h, N, x[0], round, LABELS, a[0], &err));
            MUST(sfp__head_scores(other, N, x[0], round, LABELS, b[0], &err));
            assert_memory_equal(a, b, sizeof a);
            MUST(sfp__head_update(h, 1, x[round], &label[round], &key[round], &err));
            MUST(sfp__head_update(other, 1, x[round], &label[round], &key[round], &err));
        }
    }
}

TEST(few_samples_are_judged)
{
    for (int k = 0; k < KINDS; k++)
        for (int n = 1; n < 6; n++) {
            OWNED_PTR(sfp__head_free) sfp__head *h = make(kinds[k], n);
            float found[6][LABELS], unknown[6];
            MUST(sfp__head_judge(h, n, x[0], label, LABELS, found[0], unknown, &err));
            for (int i = 0; i < n; i++)
                for (int c = 0; c < LABELS; c++)
                    assert_true(!isnan(found[i][c]) && found[i][c] <= 0);
        }
}

TEST(what_cannot_be_left_out_is_not_judged)
{
    OWNED_PTR(sfp__head_free) sfp__head *h = make("ranpac", 20), *ncm = make("ncm", 20);
    float found[LABELS], unknown;
    REFUSED(sfp__head_judge(h, 1, x[0], label, LABELS, found, &unknown, &err), SFP_EUNSUPPORTED, "ranpac");
    MUST(sfp__head_judge(ncm, 1, x[0], &(int32_t){LABELS + 1}, LABELS, found, &unknown, &err)); /* of a class without samples */
    for (int c = 0; c < LABELS; c++)
        assert_true(found[c] == -INFINITY);
}
