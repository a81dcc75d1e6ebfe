/* Matrix products: packed and plain ones against sums in double, on one lane and on many at once. */
#include "compute/gemm.h"

#include "compute/kernels.h"

#include <dlfcn.h>
#include <pthread.h>

#include "numeric.h"
#include "test.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const float canary = 12345.75f;

DEFINE_OWNED_PTR(sfp__gemm_weight, sfp__gemm_weight_free)
DEFINE_OWNED_PTR(sfp__gemm_op, sfp__gemm_op_free)

static sfp__gemm_weight *pack(const sfp__gemm_weight_desc *d)
{
    sfp__gemm_weight *w = NULL;
    if (sfp__gemm_weight_create(d, &w, &err))
        fail_msg("weight (%d, %d): %s", d->n, d->k, err.message);
    return w;
}

static sfp__gemm_op *prepare(const sfp__gemm_weight *w, int m, int lanes)
{
    sfp__gemm_op *op = NULL;
    if (sfp__gemm_op_create(w, m, lanes, &op, &err))
        fail_msg("op for %d rows: %s", m, err.message);
    return op;
}

static void run(const sfp__gemm_op *op, int lane, const sfp__gemm_weight *w, const float *x, float *y)
{
    int token = sfp__gemm_enter();
    sfp__gemm_run(op, lane, w, x, y);
    sfp__gemm_leave(token);
}

/* Checks row r of y (dense) against x W^T + bias in double. The error is relative to the sum of absolute values. */
static void check_row(const sfp__gemm_weight_desc *d, int m, int r, const float *x, const float *y, double tolerance)
{
    for (int j = 0; j < d->n; j++) {
        double sum = d->bias ? (double)d->bias[j] : 0, size = fabs(sum) + 1e-6;
        for (int i = 0; i < d->k; i++) {
            size_t at = d->transposed ? (size_t)i * (size_t)d->n + (size_t)j : (size_t)j * (size_t)d->k + (size_t)i;
            double t = (double)x[(size_t)r * (size_t)d->k + (size_t)i] * (double)d->w[at];
            sum += t;
            size += fabs(t);
        }
        double got = (double)y[(size_t)r * (size_t)d->n + (size_t)j];
        if (!(fabs(got - sum) <= tolerance * size))
            fail_msg("m %d, n %d, k %d%s%s: (%d, %d) is %.8g, expected %.8g", m, d->n, d->k, d->transposed ? ", transposed" : "",
                     d->bias ? ", bias" : "", r, j, got, sum);
    }
}

static const struct {
    int n, k, align;
} shapes[] = {{1, 1, 0},      {7, 5, 0},      {44, 12, 11},   {44, 100, 4},    {48, 44, 8},    {192, 768, 0},
              {576, 192, 64}, {1000, 192, 0}, {1537, 200, 0}, {2304, 768, 64}, {768, 3072, 0}, {3072, 768, 0}};

TEST(rows_of_a_product_may_be_written_into_a_larger_matrix)
{
    enum { M = 9, FROM = 4 };
    sfp__rng rng = sfp__rng_init(2, 0);
    for (size_t s = 0; s < COUNT(shapes); s++) {
        int n = shapes[s].n, k = shapes[s].k;
        const sfp__gemm_weight_desc d = {.n = n, .k = k, .w = normals(&rng, (size_t)n * (size_t)k, 1), .align = shapes[s].align};
        OWNED_PTR(sfp__gemm_weight_free) sfp__gemm_weight *packed = pack(&d);
        OWNED_PTR(sfp__gemm_op_free) sfp__gemm_op *op = prepare(packed, M - FROM, 1);
        size_t panel = (size_t)sfp__gemm_panel(packed), count = (size_t)M * (size_t)n;
        float *x = normals(&rng, (size_t)(M - FROM) * (size_t)k, 1), *part = floats(count), *y = filled(count, canary);
        run(op, 0, packed, x, part);
        int token = sfp__gemm_enter();
        sfp__gemm_run_rows(op, 0, packed, x, y + FROM * panel, M);
        sfp__gemm_leave(token);
        for (size_t p = 0; p < (size_t)n / panel; p++) {
            const float *to = y + p * M * panel;
            for (size_t i = 0; i < FROM * panel; i++)
                assert_true(to[i] == canary);
            check_same("rows", to + FROM * panel, part + p * (M - FROM) * panel, (M - FROM) * panel * sizeof *to);
        }
    }
}

TEST(packed_products_equal_sums_in_double)
{
    static const int rows[] = {1, 7, 197};
    sfp__rng rng = sfp__rng_init(1, 0);
    for (size_t s = 0; s < COUNT(shapes); s++)
        for (int variant = 0; variant < 4; variant++) {
            int n = shapes[s].n, k = shapes[s].k;
            float *w = normals(&rng, (size_t)n * (size_t)k, 1), *bias = normals(&rng, (size_t)n, 3);
            sfp__gemm_weight_desc d = {
                .n = n, .k = k, .w = w, .transposed = variant & 1, .bias = variant & 2 ? bias : NULL, .align = shapes[s].align};
            OWNED_PTR(sfp__gemm_weight_free) sfp__gemm_weight *packed = pack(&d);
            int panel = sfp__gemm_panel(packed);
            assert_true(panel >= 1 && n % panel == 0);
            assert_true(shapes[s].align == 0 || panel % shapes[s].align == 0);
            for (size_t r = 0; r < COUNT(rows); r++) {
                int m = rows[r];
                size_t count = (size_t)m * (size_t)n;
                OWNED_PTR(sfp__gemm_op_free) sfp__gemm_op *op = prepare(packed, m, 1);
                float *x = normals(&rng, (size_t)m * (size_t)k, 1), *y = filled(count + 16, canary);
                run(op, 0, packed, x, y);
                for (size_t i = count; i < count + 16; i++)
                    assert_true(y[i] == canary);
                float *dense = from_panels(y, m, n, panel);
                /* checking every row is too slow: the first, the last and some between */
                for (int i = 0; i<m; i += m> 7 ? 97 : 1)
                    check_row(&d, m, i, x, dense, 1e-6);
                check_row(&d, m, m - 1, x, dense, 1e-6);
            }
        }
    sfp__gemm_weight_free(NULL);
    sfp__gemm_op_free(NULL);
}

TEST(unpacked_weights_have_the_bytes_that_were_packed)
{
    sfp__rng rng = sfp__rng_init(4, 0);
    for (size_t s = 0; s < COUNT(shapes); s++)
        for (int transposed = 0; transposed < 2; transposed++) {
            size_t count = (size_t)shapes[s].n * (size_t)shapes[s].k;
            float *w = normals(&rng, count, 1), *back = filled(count + 16, canary);
            w[0] = -0.0f;
            w[count - 1] = 1e-42f;
            const sfp__gemm_weight_desc d = {
                .n = shapes[s].n, .k = shapes[s].k, .w = w, .transposed = transposed, .align = shapes[s].align};
            OWNED_PTR(sfp__gemm_weight_free) sfp__gemm_weight *packed = pack(&d);
            MUST(sfp__gemm_weight_unpack(packed, back, &err));
            check_same("weights", back, w, count * sizeof *w);
            for (size_t i = count; i < count + 16; i++)
                assert_true(back[i] == canary);
        }
}

/* Rows of ones, twos, ...: every row is checked without a sum per element. */
TEST(every_row_is_written_to_its_place)
{
    enum { M = 197, N = 2304, K = 768 };
    sfp__rng rng = sfp__rng_init(2, 0);
    float *w = normals(&rng, (size_t)N * K, 1), *x = floats((size_t)M * K), *y = floats((size_t)M * N);
    sfp__gemm_weight_desc d = {.n = N, .k = K, .w = w, .align = 64};
    OWNED_PTR(sfp__gemm_weight_free) sfp__gemm_weight *packed = pack(&d);
    OWNED_PTR(sfp__gemm_op_free) sfp__gemm_op *op = prepare(packed, M, 1);
    for (int r = 0; r < M; r++)
        for (int i = 0; i < K; i++)
            x[r * K + i] = i == r ? (float)(r + 1) : 0; /* row r selects column r of W */
    run(op, 0, packed, x, y);
    int panel = sfp__gemm_panel(packed);
    for (int r = 0; r < M; r++)
        for (int c = 0; c < N; c++) {
            float want = (float)(r + 1) * w[(size_t)c * K + (size_t)r], got = y[panel_at(M, panel, r, c)];
            if (!(fabsf(got - want) <= 1e-6f * fabsf(want)))
                fail_msg("row %d, column %d is %g, expected %g", r, c, (double)got, (double)want);
        }
}

TEST(an_op_runs_any_weight_of_its_sizes_and_keeps_none)
{
    enum { M = 9, N = 40, K = 24 };
    sfp__rng rng = sfp__rng_init(3, 0);
    float *a = normals(&rng, N * K, 1), *b = normals(&rng, N * K, 1), *bias = normals(&rng, N, 1), *x = normals(&rng, M * K, 1);
    sfp__gemm_weight_desc da = {.n = N, .k = K, .w = a, .bias = bias},
                          db = {.n = N, .k = K, .w = b, .transposed = true, .bias = bias};
    OWNED_PTR(sfp__gemm_weight_free) sfp__gemm_weight *wa = pack(&da), *wb = pack(&db);
    float *ka = copied(a, N * K), *kb = copied(b, N * K), *kept = copied(bias, N);
    /* the packed weight is a copy */
    memset(a, 0, N * K * sizeof *a), memset(b, 0, N * K * sizeof *b), memset(bias, 0, N * sizeof *bias);
    da.w = ka, da.bias = kept, db.w = kb, db.bias = kept;
    OWNED_PTR(sfp__gemm_op_free) sfp__gemm_op *op = prepare(wa, M, 1);
    float y[M * N];
    for (int round = 0; round < 3; round++) {
        run(op, 0, round % 2 ? wb : wa, x, y);
        float *dense = from_panels(y, M, N, sfp__gemm_panel(wa));
        for (int r = 0; r < M; r++)
            check_row(round % 2 ? &db : &da, M, r, x, dense, 1e-6);
    }
}

typedef struct lane_job {
    const sfp__gemm_op *op;
    const sfp__gemm_weight *w;
    int lane, m, n, rounds, wrong;
    float *x, *y, *want;
} lane_job;

static void *run_lane(void *arg)
{
    lane_job *j = arg;
    size_t bytes = (size_t)j->m * (size_t)j->n * sizeof *j->y;
    for (int i = 0; i < j->rounds; i++) {
        memset(j->y, 0xff, bytes);
        run(j->op, j->lane, j->w, j->x, j->y);
        j->wrong += memcmp(j->y, j->want, bytes) != 0;
    }
    return NULL;
}

TEST(lanes_run_at_once_without_touching_each_other)
{
    enum { LANES = 4, M = 50, ROUNDS = 100 };
    sfp__rng rng = sfp__rng_init(4, 0);
    static const struct {
        int n, k;
    } sizes[] = {{44, 20}, {576, 192}};
    for (size_t s = 0; s < COUNT(sizes); s++) {
        int n = sizes[s].n, k = sizes[s].k;
        float *w = normals(&rng, (size_t)n * (size_t)k, 1);
        sfp__gemm_weight_desc d = {.n = n, .k = k, .w = w};
        OWNED_PTR(sfp__gemm_weight_free) sfp__gemm_weight *packed = pack(&d);
        OWNED_PTR(sfp__gemm_op_free) sfp__gemm_op *op = prepare(packed, M, LANES);
        lane_job job[LANES];
        pthread_t thread[LANES];
        for (int i = 0; i < LANES; i++) {
            job[i] = (lane_job){.op = op, .w = packed, .lane = i, .m = M, .n = n, .rounds = ROUNDS};
            job[i].x = normals(&rng, (size_t)M * (size_t)k, 1);
            job[i].y = floats((size_t)M * (size_t)n);
            job[i].want = floats((size_t)M * (size_t)n);
            run(op, 0, packed, job[i].x, job[i].want);
        }
        for (int i = 0; i < LANES; i++)
            assert_int_equal(pthread_create(&thread[i], NULL, run_lane, &job[i]), 0);
        for (int i = 0; i < LANES; i++)
            assert_int_equal(pthread_join(thread[i], NULL), 0);
        for (int i = 0; i < LANES; i++)
            assert_int_equal(job[i].wrong, 0);
    }
}

TEST(plain_products_in_all_transpositions)
{
    static const struct {
        int m, n, k;
    } sizes[] = {{1, 1, 1}, {1, 10, 7}, {5, 1, 9}, {7, 11, 13}, {44, 33, 65}, {192, 48, 50}};
    static const float betas[] = {0, 1, -0.5f};
    sfp__rng rng = sfp__rng_init(5, 0);
    for (size_t i = 0; i < COUNT(sizes) * 4 * COUNT(betas); i++) {
        int m = sizes[i / 12].m, n = sizes[i / 12].n, k = sizes[i / 12].k;
        bool ta = i & 1, tb = i & 2;
        float beta = betas[i / 4 % 3];
        int lda = (ta ? m : k) + 3, ldb = (tb ? k : n) + 2, ldc = n + 5;
        float *a = normals(&rng, (size_t)((ta ? k : m) * lda), 1), *b = normals(&rng, (size_t)((tb ? n : k) * ldb), 1);
        float *c = normals(&rng, (size_t)(m * ldc), 1), *before = copied(c, (size_t)(m * ldc));
        for (int r = 0; beta == 0 && r < m; r++)
            for (int j = 0; j < n; j++)
                c[r * ldc + j] = NAN; /* with beta 0 the old contents must not matter */
        int token = sfp__gemm_enter();
        sfp__gemm_plain(ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc);
        sfp__gemm_leave(token);
        for (int r = 0; r < m; r++)
            for (int j = 0; j < ldc; j++) {
                double want = (double)before[r * ldc + j], size = fabs(want);
                if (j < n) {
                    want = beta != 0 ? want * (double)beta : 0;
                    for (int q = 0; q < k; q++) {
                        double t = (double)a[ta ? q * lda + r : r * lda + q] * (double)b[tb ? j * ldb + q : q * ldb + j];
                        want += t;
                        size += fabs(t);
                    }
                }
                if (!(fabs((double)c[r * ldc + j] - want) <= (j < n ? 1e-6 * size : 0)))
                    fail_msg("ta %d, tb %d, (%d, %d, %d), beta %g: (%d, %d) is %.8g, expected %.8g", ta, tb, m, n, k,
                             (double)beta, r, j, (double)c[r * ldc + j], want);
            }
    }
}

TEST(a_panel_divides_is_aligned_and_fits)
{
    sfp__rng rng = sfp__rng_init(6, 0);
    int smaller = 0;
    for (int i = 0; i < 20000; i++) {
        int align = (int)sfp__rng_below(&rng, 70), n = (1 + (int)sfp__rng_below(&rng, 60)) * (align ? align : 8);
        int k = 1 + (int)sfp__rng_below(&rng, 4000);
        size_t bytes = 1000 + sfp__rng_below(&rng, 4000000);
        int w = sfp__gemm_choose_panel(n, k, align, bytes);
        assert_true(w >= 1 && n % w == 0);
        assert_true(align == 0 || w % align == 0);
        assert_true(w == n || (size_t)w * (size_t)k * sizeof(float) <= bytes);
        assert_true(w == n || w % 8 == 0);
        if ((size_t)n * (size_t)k * sizeof(float) <= bytes)
            assert_int_equal(w, n); /* no need to split */
        smaller += w < n;
    }
    assert_true(smaller > 1000);
    assert_int_equal(sfp__gemm_choose_panel(2304, 768, 64, 1228800), 384);
    assert_int_equal(sfp__gemm_choose_panel(768, 768, 64, 1228800), 384);
    assert_int_equal(sfp__gemm_choose_panel(7, 1000000, 0, 1000), 7);
}

TEST(entering_leaves_one_thread_and_leaving_restores)
{
    union {
        void *p;
        int (*f)(void);
    } get = {.p = dlsym(RTLD_DEFAULT, "omp_get_max_threads")};
    union {
        void *p;
        void (*f)(int);
    } set = {.p = dlsym(RTLD_DEFAULT, "omp_set_num_threads")};
    if (!get.p || !set.p)
        skip(); /* a library without OpenMP */
    int own = get.f();
    set.f(3);
    int token = sfp__gemm_enter();
    assert_int_equal(get.f(), 1);
    int nested = sfp__gemm_enter();
    assert_int_equal(get.f(), 1);
    sfp__gemm_leave(nested);
    assert_int_equal(get.f(), 1);
    sfp__gemm_leave(token);
    assert_int_equal(get.f(), 3);
    set.f(own);
}

TEST(rounded_products_are_close_or_refused_by_name)
{
    enum { M = 33, N = 64, K = 96 };
    static const struct {
        sfp_precision precision;
        double tolerance;
    } list[] = {{SFP_PRECISION_BF16, 1.0 / 128}, {SFP_PRECISION_INT8, 1.0 / 64}};
    sfp__rng rng = sfp__rng_init(7, 0);
    float *w = normals(&rng, N * K, 1), *other = normals(&rng, N * K, 1), *bias = normals(&rng, N, 1),
          *x = normals(&rng, M * K, 1);
    bool cblas = strncmp(sfp__gemm_backend(), "CBLAS", 5) == 0;
    for (size_t i = 0; i < COUNT(list); i++) {
        const char *name = sfp__precision_name(list[i].precision);
        sfp__gemm_weight_desc d = {.n = N, .k = K, .w = w, .bias = bias, .precision = list[i].precision};
        OWNED_PTR(sfp__gemm_weight_free) sfp__gemm_weight *packed = NULL;
        sfp_status s = sfp__gemm_weight_create(&d, &packed, &err);
        if (s) {
            assert_int_equal(s, SFP_EUNSUPPORTED);
            assert_null(packed);
            assert_non_null(strstr(err.message, name));
            assert_non_null(strstr(err.message, cblas ? "CBLAS" : sfp__cpu_name()));
            assert_non_null(strstr(err.message, "--precision f32"));
            assert_true(cblas || (list[i].precision == SFP_PRECISION_BF16 && !sfp__cpu_detect().bf16));
            continue;
        }
        for (int round = 0; round < 2; round++) { /* also after an update */
            float y[M * N], alone[N];
            OWNED_PTR(sfp__gemm_op_free) sfp__gemm_op *op = prepare(packed, M, 1);
            OWNED_PTR(sfp__gemm_op_free) sfp__gemm_op *one = prepare(packed, 1, 1);
            run(op, 0, packed, x, y);
            float *dense = from_panels(y, M, N, sfp__gemm_panel(packed));
            for (int r = 0; r < M; r++)
                check_row(&d, M, r, x, dense, list[i].tolerance);
            run(one, 0, packed, x + 5 * K, alone); /* a row does not depend on the others */
            check_same(name, from_panels(alone, 1, N, sfp__gemm_panel(packed)), dense + 5 * N, N * sizeof *dense);
            d.w = other;
            MUST(sfp__gemm_weight_update(packed, &d, &err));
        }
        REFUSED(sfp__gemm_weight_unpack(packed, x, &err), SFP_EUNSUPPORTED, "rounded");
    }
}
