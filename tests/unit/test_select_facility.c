/* Compares camel and craig with their definitions, by recomputing F for every candidate. Also tests the guarantee of the greedy
 * algorithm, and that both phases make the same picks. */
#include "select/facility.h"

#include "select_case.h"
#include "test.h"

enum { MAX_POINTS = 40 };

/* All distances of a small case. */
typedef struct world {
    int n;
    double d[MAX_POINTS][MAX_POINTS], furthest;
    const int32_t *label; /* NULL: all points cover each other */
} world;

static double value(const world *w, int k, const int *chosen)
{
    double sum = 0;
    for (int i = 0; i < w->n; i++) {
        double near = INFINITY;
        for (int j = 0; j < k; j++)
            if (!w->label || w->label[i] == w->label[chosen[j]])
                near = fmin(near, w->d[i][chosen[j]]);
        sum += isinf(near) ? 0 : w->furthest - near;
    }
    return sum;
}

static int near_ties; /* number of picks that are the best only up to rounding */

/* Checks that every pick has the largest gain and, among equal gains, the lowest index. */
static void check_greedy(const char *what, const world *w, int k, const int *chosen)
{
    int with[MAX_POINTS];
    memcpy(with, chosen, (size_t)k * sizeof *with);
    for (int step = 0; step < k; step++) {
        double best = -1, mine = 0, unit = w->n * w->furthest;
        int first = -1;
        for (int j = 0; j < w->n; j++) {
            bool taken = false;
            for (int i = 0; i < step; i++)
                taken = taken || chosen[i] == j;
            if (taken)
                continue;
            with[step] = j;
            double f = value(w, step + 1, with);
            if (first < 0 || f > best + 1e-12 * unit) {
                best = f;
                first = j;
            }
            mine = j == chosen[step] ? f : mine;
        }
        with[step] = chosen[step];
        if (first == chosen[step])
            continue;
        if (mine < best - 1e-8 * unit || fabs(mine - best) <= 1e-12 * unit)
            fail_msg("%s: pick %d of %d is %d with F = %.15g, expected %d with %.15g", what, step, k, chosen[step], mine, first,
                     best);
        near_ties++;
    }
}

/* Checks that the weight of a pick is the number of points that are nearest to it. In a world with classes only picks of the own
 * class count. */
static void check_clusters(const world *w, int k, const int *chosen, const float *weight)
{
    int size[MAX_POINTS] = {0};
    bool unsure = false;
    for (int i = 0; i < w->n; i++) {
        int best = -1;
        for (int j = 0; j < k; j++) {
            if (w->label && w->label[i] != w->label[chosen[j]])
                continue;
            double gap = best < 0 ? -INFINITY : w->d[i][chosen[j]] - w->d[i][chosen[best]], noise = 1e-7 * w->furthest;
            unsure = unsure || (fabs(gap) < noise && fabs(gap) > 1e-13 * w->furthest);
            if (gap < -noise || best < 0 || (fabs(gap) <= noise && chosen[j] < chosen[best]))
                best = j;
        }
        if (best >= 0)
            size[best]++;
    }
    for (int j = 0; j < k && !unsure; j++)
        if ((int)weight[j] != size[j])
            fail_msg("weight of pick %d is %g, expected %d", chosen[j], (double)weight[j], size[j]);
}

static world euclidean(const select_case *c, const float *unit)
{
    world w = {.n = c->batch.b, .label = c->label};
    for (int i = 0; i < w.n; i++)
        for (int j = 0; j < w.n; j++) {
            double s = 0;
            for (int k = 0; k < c->batch.dim; k++)
                s += pow((double)unit[i * c->batch.dim + k] - (double)unit[j * c->batch.dim + k], 2);
            w.d[i][j] = sqrt(s);
            w.furthest = fmax(w.furthest, w.d[i][j]);
        }
    return w;
}

static void unit_rows(const select_case *c, float *out)
{
    for (int i = 0; i < c->batch.b; i++) {
        double s = 0;
        for (int k = 0; k < c->batch.dim; k++)
            s += pow((double)c->query[i * c->batch.dim + k], 2);
        for (int k = 0; k < c->batch.dim; k++)
            out[i * c->batch.dim + k] = s > 0 ? (float)((double)c->query[i * c->batch.dim + k] / sqrt(s)) : 0;
    }
}

TEST(camel_maximises_its_function_greedily)
{
    sfp__rng rng = sfp__rng_init(1, 0);
    OWNED_BY(sfp__arena_done) sfp__arena arena = {0};
    near_ties = 0;
    for (int round = 0; round < 3000; round++) {
        int b = 2 + (int)sfp__rng_below(&rng, 18), dim = 1 + (int)sfp__rng_below(&rng, 5), out[MAX_POINTS];
        select_case c = make_case(&rng, b, dim, 1 + (int)sfp__rng_below(&rng, 4), (case_kind)(round % 3));
        float unit[MAX_POINTS * 8], weight[MAX_POINTS];
        double sigma = sfp__rng_double(&rng);
        int n = case_pick("camel", &c.batch, sigma, NULL, &arena, NULL, out, weight);
        assert_int_equal(n, sfp__coreset_size(b, sigma));
        unit_rows(&c, unit);
        world w = euclidean(&c, unit);
        int before = near_ties;
        if (n < b)
            check_greedy("camel", &w, n, out);
        if (round % 3 == CASE_GRID) /* unit rows of parallel rows differ in the last digit: less than one unit of distance */
            near_ties = before;
        if (n < b)
            check_clusters(&w, n, out, weight);
        for (int i = 0; i < n && n == b; i++)
            assert_true(weight[i] == 1);
    }
    assert_true(near_ties < 5);
}

/* Distances of last-layer gradients, computed from the full gradients. */
static world gradients(const select_case *c)
{
    int D = c->batch.dim, C = c->batch.classes, n = c->batch.b, width = C * (D + 1);
    double *g = kept_calloc((size_t)n * (size_t)width, sizeof *g);
    world w = {.n = n};
    for (int i = 0; i < n; i++)
        for (int k = 0; k < C; k++) {
            double r = (double)(c->probs[i * C + k] - (float)(c->label[i] == k));
            for (int j = 0; j <= D; j++)
                g[i * width + k * (D + 1) + j] = r * (j < D ? (double)c->features[i * D + j] : 1);
        }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double s = 0;
            for (int k = 0; k < width; k++)
                s += (g[i * width + k] - g[j * width + k]) * (g[i * width + k] - g[j * width + k]);
            w.d[i][j] = sqrt(s);
            w.furthest = fmax(w.furthest, w.d[i][j]);
        }
    return w;
}

TEST(craig_is_greedy_with_cluster_sizes_as_weights)
{
    sfp__rng rng = sfp__rng_init(2, 0);
    OWNED_BY(sfp__arena_done) sfp__arena arena = {0};
    near_ties = 0;
    for (int round = 0; round < 3000; round++) {
        int b = 2 + (int)sfp__rng_below(&rng, 16), out[MAX_POINTS];
        select_case c = make_case(&rng, b, 1 + (int)sfp__rng_below(&rng, 4), 1 + (int)sfp__rng_below(&rng, 4), CASE_NORMAL);
        float weight[MAX_POINTS], sum = 0;
        double sigma = sfp__rng_double(&rng);
        if (round % 3 == 1 && b > 3) { /* two equal samples */
            int D = c.batch.dim, C = c.batch.classes;
            memcpy(c.features + (b - 1) * D, c.features + D, (size_t)D * sizeof(float));
            memcpy(c.probs + (b - 1) * C, c.probs + C, (size_t)C * sizeof(float));
            c.label[b - 1] = c.label[1];
        }
        int n = case_pick("craig", &c.batch, sigma, NULL, &arena, NULL, out, weight);
        world w = gradients(&c);
        if (n < b) {
            check_greedy("craig", &w, n, out);
            check_clusters(&w, n, out, weight);
            for (int i = 0; i < n; i++)
                sum += weight[i];
            assert_true(sum == (float)b);
        }
    }
    assert_true(near_ties < 5);
}

static double best_of_all(const world *w, int k, int from, int depth, int *chosen)
{
    if (depth == k)
        return value(w, k, chosen);
    double best = 0;
    for (int j = from; j < w->n; j++) {
        chosen[depth] = j;
        best = fmax(best, best_of_all(w, k, j + 1, depth + 1, chosen));
    }
    return best;
}

/* The bound of Nemhauser, Wolsey and Fisher 1978. */
TEST(greedy_is_within_1_minus_1_over_e_of_the_optimum)
{
    sfp__rng rng = sfp__rng_init(3, 0);
    OWNED_BY(sfp__arena_done) sfp__arena arena = {0};
    double worst = 1;
    for (int round = 0; round < 400; round++) {
        int b = 4 + (int)sfp__rng_below(&rng, 8), out[MAX_POINTS], scratch[MAX_POINTS], k = 1 + (int)sfp__rng_below(&rng, 4);
        select_case c = make_case(&rng, b, 3, 3, CASE_NORMAL);
        float unit[MAX_POINTS * 8];
        unit_rows(&c, unit);
        const world worlds[] = {gradients(&c), euclidean(&c, unit)};
        for (int i = 0; i < 2; i++) {
            int n = case_pick(i ? "camel" : "craig", &c.batch, (double)k / b, NULL, &arena, NULL, out, NULL);
            double got = value(&worlds[i], n, out), best = best_of_all(&worlds[i], n, 0, 0, scratch);
            assert_true(got >= (1 - exp(-1)) * best);
            worst = best > 0 ? fmin(worst, got / best) : worst;
        }
    }
    print_message("worst of all cases: %.4f of the optimum\n", worst);
    assert_true(worst < 1); /* in some case greedy is not optimal, so the test can detect a difference */
}

/* ------------------------------------------------------------------- two phases */

static void greedy_of(const select_case *c, size_t pairs, bool precise, int classes, int count, int *out)
{
    OWNED_BY(sfp__arena_done) sfp__arena arena = {0};
    const sfp__select_env env = {.arena = &arena};
    sfp__metric m;
    int n = c->batch.b, *id = kept_malloc((size_t)n * sizeof *id), group[4] = {0, n / 3, n / 2, n};
    for (int i = 0; i < n; i++)
        id[i] = (i * 7 + 3) % n; /* a permutation if 7 does not divide n */
    MUST(sfp__metric_init(&m, &env, n, c->batch.dim, c->features, classes, classes ? c->probs : NULL, NULL));
    m.precise = precise;
    if (classes)
        group[1] = n;
    const sfp__facility f = {.env = &env, .metric = &m, .groups = classes ? 1 : 3, .group = group, .id = id, .max_pairs = pairs};
    MUST(sfp__facility_greedy(&f, count, out, NULL));
}

TEST(a_small_pair_limit_makes_the_same_picks)
{
    enum { N = 700 };
    static int all[N], some[N];
    sfp__rng rng = sfp__rng_init(4, 0);
    for (int round = 0; round < 12; round++) {
        int n = round % 2 ? 60 + (int)sfp__rng_below(&rng, 40) : 600 + (int)sfp__rng_below(&rng, 100), count = n / 3;
        n += n % 7 == 0;
        select_case c = make_case(&rng, n, 5, 3, (case_kind)(round % 3));
        for (int classes = 0; classes <= 3; classes += 3) {
            greedy_of(&c, SIZE_MAX, true, classes, count, all);
            for (size_t pairs = 0; pairs <= (size_t)n * 40; pairs += (size_t)n * 10) {
                greedy_of(&c, pairs, true, classes, count, some);
                assert_memory_equal(all, some, (size_t)count * sizeof *all);
            }
        }
    }
}

/* In float, picks may differ only if the gains agree to about six digits. */
TEST(float_distances_make_nearly_the_same_picks)
{
    enum { N = 600, COUNT = 60 };
    static int exact[COUNT], fast[COUNT];
    sfp__rng rng = sfp__rng_init(5, 0);
    int differ = 0;
    for (int round = 0; round < 6; round++) {
        select_case c = make_case(&rng, N + round, 16, 5, CASE_NORMAL);
        size_t pairs = round % 2 ? SIZE_MAX : 20 * N;
        for (int classes = 0; classes <= 5; classes += 5) {
            greedy_of(&c, pairs, true, classes, COUNT, exact);
            greedy_of(&c, pairs, false, classes, COUNT, fast);
            for (int i = 0; i < COUNT; i++)
                differ += exact[i] != fast[i];
        }
    }
    print_message("%d of %d picks differ\n", differ, 6 * 2 * COUNT);
    assert_true(differ < 6 * 2 * COUNT / 20);
}

/* Distances are scaled by the largest, so scaling all points does not change the picks, even if squares overflow or underflow a
 * float. */
TEST(huge_and_tiny_points_make_the_same_picks)
{
    enum { N = SFP__DISTANCE_PRECISE + 26, DIM = 3, COUNT = 20 };
    static const float scale[] = {1, 0x1p80f, 0x1p-80f};
    static int id[N], chosen[3][COUNT];
    static float x[N * DIM];
    const int group[] = {0, N};
    sfp__rng rng = sfp__rng_init(6, 0);
    float *rows = case_rows(&rng, N, DIM, CASE_NORMAL);
    for (int i = 0; i < N; i++)
        id[i] = i;
    for (int k = 0; k < 3; k++) {
        OWNED_BY(sfp__arena_done) sfp__arena arena = {0};
        const sfp__select_env env = {.arena = &arena};
        sfp__metric m;
        for (int i = 0; i < N * DIM; i++)
            x[i] = rows[i] * scale[k];
        MUST(sfp__metric_init(&m, &env, N, DIM, x, 0, NULL, NULL));
        assert_int_equal(m.precise, k > 0);
        m.precise = true; /* also for the first, which the others are compared with */
        const sfp__facility f = {
            .env = &env, .metric = &m, .groups = 1, .group = group, .id = id, .max_pairs = SFP__FACILITY_PAIRS};
        MUST(sfp__facility_greedy(&f, COUNT, chosen[k], NULL));
        assert_memory_equal(chosen[k], chosen[0], sizeof chosen[0]);
    }
}
