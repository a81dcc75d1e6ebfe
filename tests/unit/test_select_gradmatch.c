/* Compares gradmatch with its definition: full gradients, and the best non-negative weights found by trying every subset of
 * positive weights. */
#include "select/omp.h"

#include "select_case.h"
#include "test.h"

enum { MAX_SAMPLES = 12, PICKS = 7, WIDTH = 40 };

typedef struct world {
    int n, width;
    double g[MAX_SAMPLES][WIDTH], sum[WIDTH];
} world;

static world gradients(const select_case *c)
{
    int D = c->batch.dim, C = c->batch.classes;
    world w = {.n = c->batch.b, .width = C * (D + 1)};
    for (int i = 0; i < w.n; i++)
        for (int k = 0; k < C; k++) {
            double r = (double)(c->probs[i * C + k] - (float)(c->label[i] == k));
            for (int j = 0; j <= D; j++) {
                double x = r * (j < D ? (double)c->features[i * D + j] : 1);
                w.g[i][k * (D + 1) + j] = x;
                w.sum[k * (D + 1) + j] += x;
            }
        }
    return w;
}

static double dot(int n, const double *a, const double *b)
{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}

static void residual(const world *w, int k, const int *chosen, const double *weight, double *out)
{
    memcpy(out, w->sum, sizeof w->sum);
    for (int j = 0; j < k; j++)
        for (int x = 0; x < w->width; x++)
            out[x] -= weight[j] * w->g[chosen[j]][x];
}

static double objective(const world *w, int k, const int *chosen, const double *weight)
{
    double r[WIDTH];
    residual(w, k, chosen, weight, r);
    return dot(w->width, r, r) + 0.5 * dot(k, weight, weight);
}

/* Computes the unconstrained ridge solution on the members of `mask` by elimination with pivoting. Returns false if a weight is
 * not positive. */
static bool ridge_of(const world *w, const int *chosen, int k, unsigned mask, double *weight)
{
    double a[PICKS][PICKS + 1];
    int member[PICKS], n = 0;
    for (int j = 0; j < k; j++) {
        weight[j] = 0;
        if (mask >> j & 1)
            member[n++] = j;
    }
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++)
            a[i][j] = dot(w->width, w->g[chosen[member[i]]], w->g[chosen[member[j]]]) + (i == j ? 0.5 : 0);
        a[i][n] = dot(w->width, w->g[chosen[member[i]]], w->sum);
    }
    for (int i = 0; i < n; i++)
        for (int r = 0; r < n; r++) {
            double f = r == i ? 0 : a[r][i] / a[i][i]; /* positive definite: no diagonal element is 0 */
            for (int x = i; x <= n; x++)
                a[r][x] -= f * a[i][x];
        }
    bool positive = true;
    for (int i = 0; i < n; i++) {
        weight[member[i]] = a[i][n] / a[i][i];
        positive = positive && weight[member[i]] > 0;
    }
    return positive;
}

static void best_weights(const world *w, int k, const int *chosen, double *weight)
{
    double best = INFINITY, trial[PICKS];
    for (unsigned mask = 0; mask < 1u << k; mask++) {
        if (!ridge_of(w, chosen, k, mask, trial))
            continue;
        double f = objective(w, k, chosen, trial);
        if (f < best) {
            best = f;
            memcpy(weight, trial, (size_t)k * sizeof *trial);
        }
    }
}

/* Checks the picks one by one. Returns the number of picks before no correlation is positive. */
static int check_pursuit(const world *w, int count, const int *chosen)
{
    double weight[PICKS], r[WIDTH];
    for (int step = 0; step < count; step++) {
        best_weights(w, step, chosen, weight);
        residual(w, step, chosen, weight, r);
        double best = 0, noise = 1e-9 * sqrt(dot(w->width, w->sum, w->sum)), mine = 0;
        int first = -1;
        for (int i = 0; i < w->n; i++) {
            bool taken = false;
            for (int j = 0; j < step; j++)
                taken = taken || chosen[j] == i;
            double corr = dot(w->width, w->g[i], r);
            if (!taken && corr > best + noise) {
                best = corr;
                first = i;
            }
            mine = i == chosen[step] ? corr : mine;
        }
        if (first < 0)
            return step;
        if (first != chosen[step] && fabs(mine - best) > 100 * noise)
            fail_msg("pick %d of %d is %d with correlation %.12g, expected %d with %.12g", step, count, chosen[step], mine, first,
                     best);
    }
    return count;
}

TEST(gradmatch_is_orthogonal_matching_pursuit)
{
    sfp__rng rng = sfp__rng_init(1, 0);
    OWNED_BY(sfp__arena_done) sfp__arena arena = {0};
    int cut = 0, zeros = 0;
    for (int round = 0; round < 4000; round++) {
        int b = 2 + (int)sfp__rng_below(&rng, MAX_SAMPLES - 2), out[MAX_SAMPLES],
            k = 1 + (int)sfp__rng_below(&rng, PICKS < b ? PICKS : (uint32_t)b - 1);
        select_case c =
            make_case(&rng, b, 1 + (int)sfp__rng_below(&rng, 5), 1 + (int)sfp__rng_below(&rng, 5), (case_kind)(round % 3));
        float weight[MAX_SAMPLES];
        double want[PICKS];
        for (int i = 0; i < b && round % 4 == 0; i++) { /* gradients of very different lengths, so that some weights become 0 */
            float longer = expf(2 * (float)sfp__rng_normal(&rng));
            for (int x = 0; x < c.batch.dim; x++)
                c.features[i * c.batch.dim + x] *= longer;
        }
        sfp__rng draw = sfp__rng_init(9, (uint64_t)round);
        int n = case_pick("gradmatch", &c.batch, (double)k / b, &draw, &arena, NULL, out, weight);
        assert_int_equal(n, k);
        world w = gradients(&c);
        int real = k < b ? check_pursuit(&w, k, out) : 0;
        best_weights(&w, real, out, want);
        for (int i = 0; i < real; i++) {
            if (fabs((double)weight[i] - want[i]) > 1e-4 * fmax(1, want[i]))
                fail_msg("round %d: weight of pick %d is %.9g, expected %.9g", round, i, (double)weight[i], want[i]);
            zeros += weight[i] == 0;
        }
        for (int i = real; i < k; i++)
            assert_true(weight[i] == 1);
        cut += real < k && real > 0;
    }
    print_message("%d pursuits ended early, %d weights are 0\n", cut, zeros);
    assert_true(cut > 20 && zeros > 0); /* both occur, so the cases are not all easy */
}

static void gram_of(void *ctx, int c, int n, const int *others, double *out)
{
    const world *w = ctx;
    for (int t = 0; t < n; t++)
        out[t] = dot(w->width, w->g[c], w->g[others[t]]);
}

static int outside_rounds; /* number of rounds in which a column was not in the factor */

static double correlate(void *ctx, const sfp__nnls *s, int n, const int *which, double *out)
{
    const world *w = ctx;
    double r[WIDTH];
    int all[MAX_SAMPLES];
    for (int i = 0; i < s->known; i++)
        all[i] = i;
    residual(w, s->known, all, s->w, r);
    for (int i = 0; i < n; i++)
        out[i] = dot(w->width, w->g[which[i]], r);
    outside_rounds += n;
    return 1e-12;
}

/* Columns and an unrelated target, so that many weights become 0 and some become positive again. After every added column the
 * weights must be the non-negative minimum over all columns so far. */
TEST(the_fit_is_the_non_negative_minimum)
{
    sfp__rng rng = sfp__rng_init(3, 0);
    OWNED_BY(sfp__arena_done) sfp__arena arena = {0};
    outside_rounds = 0;
    for (int round = 0; round < 3000; round++) {
        int k = 1 + (int)sfp__rng_below(&rng, PICKS), chosen[PICKS];
        world w = {.n = k, .width = 2 + (int)sfp__rng_below(&rng, 6)};
        double want[PICKS], scale = round % 2 ? 3 : 30;
        for (int x = 0; x < w.width; x++) {
            w.sum[x] = scale * sfp__rng_normal(&rng);
            for (int i = 0; i < k; i++)
                w.g[i][x] = 1 + sfp__rng_normal(&rng);
        }
        const sfp__select_env env = {.arena = &arena};
        const sfp__columns columns = {.ctx = &w, .gram = gram_of, .correlate = correlate};
        sfp__nnls fit;
        sfp__arena_reset(&arena);
        MUST(sfp__nnls_init(&fit, &env, &columns, k, 0.5, NULL));
        for (int n = 1; n <= k; n++) {
            chosen[n - 1] = n - 1;
            sfp__nnls_add(&fit, dot(w.width, w.g[n - 1], w.sum));
            best_weights(&w, n, chosen, want);
            for (int i = 0; i < n; i++)
                if (fabs(fit.w[i] - want[i]) > 1e-8 * fmax(1, want[i]))
                    fail_msg("round %d: weight %d of %d is %.12g, expected %.12g", round, i, n, fit.w[i], want[i]);
        }
    }
    print_message("a column was outside the factor in %d rounds\n", outside_rounds);
    assert_true(outside_rounds > 1000);
}

/* For both ways to compute correlations: the objective never increases, a prefix equals the shorter pursuit, and weights are >=
 * 0. */
TEST(the_objective_never_increases)
{
    enum { N = 200, D = 12, C = 6, COUNT = 90 };
    sfp__rng rng = sfp__rng_init(2, 0);
    OWNED_BY(sfp__arena_done) sfp__arena arena = {0};
    for (int round = 0; round < 4; round++) {
        select_case c = make_case(&rng, N, D, C, round == 3 ? CASE_TWINS : CASE_NORMAL);
        for (int i = 0; i < N; i++)
            c.probs[i * C + c.label[i]] -= 1;
        static double sum[C * (D + 1)], r[C * (D + 1)];
        memset(sum, 0, sizeof sum);
        for (int i = 0; i < N; i++)
            for (int k = 0; k < C * (D + 1); k++)
                sum[k] += (double)c.probs[i * C + k / (D + 1)] * (k % (D + 1) < D ? (double)c.features[i * D + k % (D + 1)] : 1);
        double last[2] = {INFINITY, INFINITY}, all = 0;
        static int longest[2][COUNT], out[COUNT];
        static double weight[COUNT], final[2][COUNT];
        for (int factored = 0; factored < 2; factored++)
            for (int count = COUNT; count > 0; count -= count == COUNT ? COUNT - 1 : -1) { /* all, then 1, 2, ... */
                const sfp__select_env env = {.arena = &arena};
                sfp__metric m;
                int got = 0;
                sfp__arena_reset(&arena);
                MUST(sfp__metric_init(&m, &env, N, D, c.features, C, c.probs, NULL));
                MUST(sfp__omp(&env, &m, factored ? 0 : SIZE_MAX, count, out, weight, &got, NULL));
                if (count == COUNT && last[factored] == INFINITY) {
                    assert_int_equal(got, COUNT);
                    memcpy(longest[factored], out, sizeof out);
                    memcpy(final[factored], weight, sizeof weight);
                }
                assert_memory_equal(out, longest[factored], (size_t)got * sizeof *out);
                memcpy(r, sum, sizeof r);
                double f = 0;
                for (int j = 0; j < got; j++) {
                    assert_true(weight[j] >= 0);
                    f += 0.5 * weight[j] * weight[j];
                    for (int k = 0; k < C * (D + 1); k++)
                        r[k] -= weight[j] * (double)c.probs[out[j] * C + k / (D + 1)] *
                                (k % (D + 1) < D ? (double)c.features[out[j] * D + k % (D + 1)] : 1);
                }
                f += dot(C * (D + 1), r, r);
                if (count == COUNT && last[factored] != INFINITY)
                    break;
                if (count < COUNT) {
                    if (f > last[factored] * (1 + 1e-9))
                        fail_msg("with %d picks the objective is %.12g, with one less %.12g", count, f, last[factored]);
                    last[factored] = f;
                }
                all = f;
            }
        (void)all;
        int differ = 0;
        for (int i = 0; i < COUNT; i++)
            differ += longest[0][i] != longest[1][i];
        for (int i = 0; i < COUNT && differ == 0; i++)
            assert_true(fabs(final[0][i] - final[1][i]) <= 1e-4 * fmax(1, final[0][i]));
        print_message("factored: %d of %d picks differ\n", differ, COUNT);
        assert_true(differ == 0 || round == 3); /* equal samples tie, and rounding may choose either */
    }
}
