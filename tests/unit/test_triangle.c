/* Triangles of doubles against plain loops, for sizes around the block size and for several threads. */
#include "learner/heads/triangle.h"

#include "base/rng.h"

#include "numeric.h"
#include "test.h"

static const int sizes[] = {1, 2, 63, 64, 65, 130, 200};

#define COUNT(a) (sizeof(a) / sizeof *(a))

static double *doubles(sfp__rng *rng, size_t n)
{
    double *x = kept_malloc((n ? n : 1) * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = sfp__rng_normal(rng);
    return x;
}

/* Returns B B^T / k + ridge I as a dense (n, n) matrix. */
static double *make_dense(sfp__rng *rng, int n, double ridge)
{
    int k = n + 3;
    double *b = doubles(rng, (size_t)n * (size_t)k), *a = kept_calloc((size_t)n * (size_t)n, sizeof *a);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            for (int r = 0; r < k; r++)
                a[i * n + j] += b[i * k + r] * b[j * k + r] / k;
            a[i * n + j] += i == j ? ridge : 0;
        }
    return a;
}

/* Returns the triangle of a dense matrix. */
static double *pack(int n, const double *a)
{
    double *t = kept_calloc(sfp__triangle_count(n), sizeof *t);
    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++)
            sfp__triangle_row(t, n, i)[j] = a[i * n + j];
    return t;
}

static void near(double got, double want, double tolerance, const char *what, int n)
{
    if (!(fabs(got - want) <= tolerance * (1 + fabs(want))))
        fail_msg("%s, n = %d: %.17g, expected %.17g", what, n, got, want);
}

TEST(rows_of_a_triangle_do_not_overlap)
{
    for (size_t s = 0; s < COUNT(sizes); s++) {
        int n = sizes[s];
        double *t = kept_calloc(sfp__triangle_count(n), sizeof *t);
        for (int i = 0; i < n; i++)
            for (int j = i; j < n; j++) {
                double *at = sfp__triangle_row(t, n, i) + j;
                assert_true(at >= t && at < t + sfp__triangle_count(n) && *at == 0);
                *at = 1;
            }
    }
}

/* Runs add, factor, solve and multiply with `threads` threads (0: no pool); the results must have the bytes of the first run. */
static void check_all(int n, int threads)
{
    KEPT_IN_BLOCK;
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = NULL;
    if (threads > 0)
        MUST(sfp__thread_pool_create(threads, &pool, NULL));
    sfp__rng rng = sfp__rng_init((uint64_t)n, 1);
    int k = 37, columns = 70;
    size_t count = sfp__triangle_count(n);
    double *x = doubles(&rng, (size_t)k * (size_t)n), *dense = make_dense(&rng, n, 0.5), *t = pack(n, dense);
    double *b = doubles(&rng, (size_t)n * (size_t)columns);

    sfp__triangle_add(n, t, k, 0.25, x, pool);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            for (int r = 0; r < k; r++)
                dense[i * n + j] += 0.25 * x[r * n + i] * x[r * n + j];
            if (j >= i)
                near(sfp__triangle_row(t, n, i)[j], dense[i * n + j], 1e-12, "sum of products", n);
        }
    double *got = kept_malloc((size_t)n * (size_t)columns * sizeof *got);
    for (int i = 0; i < n; i++) /* the diagonal blocks are whole */
        for (int j = i / SFP__TRIANGLE_BLOCK * SFP__TRIANGLE_BLOCK; j < i; j++)
            sfp__triangle_row(t, n, i)[j] = dense[i * n + j];
    sfp__triangle_multiply(n, t, columns, b, got);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < columns; c++) {
            double want = 0;
            for (int j = 0; j < n; j++)
                want += dense[i * n + j] * b[j * columns + c];
            near(got[i * columns + c], want, 1e-10, "product", n);
        }
    assert_true(sfp__triangle_factor(n, t, pool));
    for (int i = 0; i < n; i++)
        for (int j = i; j < n; j++) {
            double sum = 0;
            for (int r = 0; r <= i; r++)
                sum += sfp__triangle_row(t, n, r)[i] * sfp__triangle_row(t, n, r)[j];
            near(sum, dense[i * n + j], 1e-11, "factor", n);
        }
    double *solved = kept_malloc((size_t)n * (size_t)columns * sizeof *solved);
    memcpy(solved, b, (size_t)n * (size_t)columns * sizeof *solved);
    sfp__triangle_solve(n, t, columns, solved, pool);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < columns; c++) {
            double sum = 0;
            for (int j = 0; j < n; j++)
                sum += dense[i * n + j] * solved[j * columns + c];
            near(sum, b[i * columns + c], 1e-9, "solution", n);
        }
    memcpy(got, b, (size_t)n * (size_t)columns * sizeof *got);
    sfp__triangle_half_solve(n, t, columns, got, pool);
    for (int c = 0; c < columns; c++) {
        double square = 0, want = 0;
        for (int i = c; i < n * columns; i += columns) {
            square += got[i] * got[i];
            want += b[i] * solved[i];
        }
        near(square, want, 1e-9, "half of a solve", n);
    }
    double *inverse = kept_malloc(count * sizeof *inverse), *work = kept_malloc((size_t)n * SFP__TRIANGLE_BLOCK * sizeof *work);
    sfp__triangle_invert(n, t, inverse, work, pool);
    sfp__triangle_multiply(n, inverse, columns, b, got);
    for (int i = 0; i < n * columns; i++)
        near(got[i], solved[i], 1e-9, "inverse", n);
    static double first[40000 + 14000];
    size_t all = count + (size_t)n * (size_t)columns;
    assert_true(all <= COUNT(first));
    if (threads == 0) {
        memcpy(first, t, count * sizeof *t);
        memcpy(first + count, solved, (all - count) * sizeof *t);
    }
    check_same("factor", t, first, count * sizeof *t);
    check_same("solution", solved, first + count, (all - count) * sizeof *t);
}

TEST(sums_factors_and_solutions_equal_plain_loops_for_any_number_of_threads)
{
    for (size_t s = 0; s < COUNT(sizes); s++)
        for (int threads = 0; threads <= 3; threads++)
            check_all(sizes[s], threads);
}

TEST(ill_conditioned_systems_are_solved)
{
    sfp__rng rng = sfp__rng_init(6, 0);
    for (int n = 1; n <= 140; n += 13) {
        KEPT_IN_BLOCK;
        enum { COLUMNS = 3 };
        double *v = doubles(&rng, (size_t)n), *a = kept_malloc((size_t)n * (size_t)n * sizeof *a);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) /* one eigenvalue of about 1e6 n, the others 1e-3 */
                a[i * n + j] = 1e6 * v[i] * v[j] + (i == j ? 1e-3 : 0);
        double *t = pack(n, a), *b = doubles(&rng, (size_t)n * COLUMNS), *x = kept_malloc((size_t)n * COLUMNS * sizeof *x);
        memcpy(x, b, (size_t)n * COLUMNS * sizeof *x);
        assert_true(sfp__triangle_factor(n, t, NULL));
        sfp__triangle_solve(n, t, COLUMNS, x, NULL);
        for (int i = 0; i < n; i++)
            for (int c = 0; c < COLUMNS; c++) {
                double sum = 0;
                for (int j = 0; j < n; j++)
                    sum += a[i * n + j] * x[j * COLUMNS + c];
                near(sum, b[i * COLUMNS + c], 1e-2, "solution", n);
            }
    }
}

TEST(a_triangle_without_factor_is_reported)
{
    sfp__rng rng = sfp__rng_init(4, 0);
    const int bad[] = {0, 40, 64, 99};
    for (size_t k = 0; k < COUNT(bad); k++)
        for (int how = 0; how < 4; how++) {
            KEPT_IN_BLOCK;
            int n = 100, i = bad[k], other = i == 99 ? 3 : 99;
            double *a = make_dense(&rng, n, 0.1);
            a[i * n + i] = how == 0 ? -1 : how == 1 ? NAN : 0;
            for (int j = 0; how == 3 && j < n; j++) /* a copy of another row: rank n - 1 */
                a[i * n + j] = a[j * n + i] = a[other * n + (j == i ? other : j)];
            assert_false(sfp__triangle_factor(n, pack(n, a), NULL));
        }
}
