/* Cholesky factors and solves against their definitions in double. */
#include "learner/heads/cholesky.h"

#include "compute/gemm.h"

#include "numeric.h"
#include "test.h"

/* Returns A = B B^T / k + ridge I, (n, n) with row stride ld. Elements above the diagonal must not be read. */
static float *make_spd(sfp__rng *rng, int n, int ld, double ridge)
{
    int k = n + 3;
    float *b = normals(rng, (size_t)n * (size_t)k, 1), *a = filled((size_t)n * (size_t)ld, NAN);
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++)
            a[i * ld + j] = (float)(dot(b + i * k, b + j * k, (size_t)k) / k + (i == j ? ridge : 0));
    return a;
}

static double lower(const float *a, int ld, int i, int j)
{
    return (double)(i >= j ? a[i * ld + j] : a[j * ld + i]);
}

/* Checks L L^T = A within float rounding. */
static void check_factor(const float *l, const float *a, int n, int ld)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            double s = dot(l + i * ld, l + j * ld, (size_t)j + 1);
            if (!(fabs(s - (double)a[i * ld + j]) < 2e-5))
                fail_msg("n %d: (L L^T)[%d][%d] is %g, expected %g", n, i, j, s, (double)a[i * ld + j]);
        }
}

static const int sizes[] = {1, 2, 5, 63, 64, 65, 130, 200};

TEST(the_factor_times_its_transpose_is_the_matrix)
{
    sfp__rng rng = sfp__rng_init(1, 0);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int pad = 0; pad < 8; pad += 7) {
            int n = sizes[k], ld = n + pad;
            float *a = make_spd(&rng, n, ld, 0.1), *l = copied(a, (size_t)n * (size_t)ld);
            assert_true(sfp__cholesky(n, l, ld));
            check_factor(l, a, n, ld);
        }
}

TEST(appending_rows_gives_the_same_factor)
{
    sfp__rng rng = sfp__rng_init(2, 0);
    const int steps[] = {1, 7, 32, 64, 100};
    for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
        int n = 150, ld = 160;
        float *a = make_spd(&rng, n, ld, 0.1), *l = copied(a, (size_t)n * (size_t)ld);
        for (int done = 0; done < n; done += steps[k])
            assert_true(sfp__cholesky_append(done, n - done < steps[k] ? n - done : steps[k], l, ld));
        check_factor(l, a, n, ld);
    }
}

TEST(forward_then_backward_solves)
{
    sfp__rng rng = sfp__rng_init(3, 0);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
        for (int rows = 1; rows <= 70; rows += 23) {
            int n = sizes[k], ld = n + 3, ldx = n + 5;
            float *a = make_spd(&rng, n, ld, 0.5), *l = copied(a, (size_t)n * (size_t)ld);
            float *b = normals(&rng, (size_t)rows * (size_t)ldx, 1), *x = copied(b, (size_t)rows * (size_t)ldx);
            assert_true(sfp__cholesky(n, l, ld));
            sfp__cholesky_forward(rows, n, l, ld, x, ldx);
            for (int r = 0; r < rows; r++) /* x L^T = b */
                for (int i = 0; i < n; i++)
                    assert_true(fabs(dot(x + r * ldx, l + i * ld, (size_t)i + 1) - (double)b[r * ldx + i]) < 1e-4);
            sfp__cholesky_backward(rows, n, l, ld, x, ldx);
            for (int r = 0; r < rows; r++) {
                for (int i = 0; i < n; i++) { /* x A = b */
                    double s = 0;
                    for (int j = 0; j < n; j++)
                        s += (double)x[r * ldx + j] * lower(a, ld, i, j);
                    if (!(fabs(s - (double)b[r * ldx + i]) < 2e-4))
                        fail_msg("n %d, rows %d: (x A)[%d] is %g, expected %g", n, rows, i, s, (double)b[r * ldx + i]);
                }
                check_same("beyond the row", x + r * ldx + n, b + r * ldx + n, 5 * sizeof *x);
            }
        }
}

TEST(a_matrix_without_factor_is_reported)
{
    sfp__rng rng = sfp__rng_init(4, 0);
    const int bad[] = {0, 40, 64, 99};
    for (size_t k = 0; k < 4; k++)
        for (int how = 0; how < 4; how++) {
            int n = 100, i = bad[k];
            float *a = make_spd(&rng, n, n, 0.1);
            if (how == 3) /* an exact copy of another row: rank n - 1 */
                for (int j = 0; j < n; j++) {
                    float v = (float)lower(a, n, i == 99 ? 3 : 99, j == i ? (i == 99 ? 3 : 99) : j);
                    a[(i > j ? i : j) * n + (i > j ? j : i)] = v;
                }
            else
                a[i * n + i] = how == 0 ? -1.0f : how == 1 ? NAN : 0.0f;
            assert_false(sfp__cholesky(n, a, n));
        }
    float pair[] = {1, 0, 2, 1}; /* indefinite, detected by append */
    assert_true(sfp__cholesky_append(0, 1, pair, 2));
    assert_false(sfp__cholesky_append(1, 1, pair, 2));
}

TEST(the_same_input_gives_the_same_bytes)
{
    sfp__rng rng = sfp__rng_init(5, 0);
    int n = 150;
    float *a = make_spd(&rng, n, n, 0.1), *l = copied(a, (size_t)n * (size_t)n);
    assert_true(sfp__cholesky(n, a, n) && sfp__cholesky(n, l, n));
    for (int i = 0; i < n; i++)
        check_same("row", a + i * n, l + i * n, ((size_t)i + 1) * sizeof *a);
}

static int token;

static void enter(void)
{
    token = sfp__gemm_enter();
}

static void leave(void)
{
    sfp__gemm_leave(token);
}

AROUND_ALL(enter, leave)
