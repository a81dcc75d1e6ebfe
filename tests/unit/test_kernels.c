/* Kernels: every kernel table that this CPU can run against the plain-C table, and the plain-C backward passes against central
 * differences of the formulas in double. Sizes are deliberately irregular: not multiples of a vector, one row, one key, whole
 * and partial tiles. */
#include "compute/kernels.h"

#include "numeric.h"
#include "test.h"
#include "vit_oracle.h"

static const sfp__kernels *const ref = &sfp__kernels_ref;
static const sfp__kernels *fast[3]; /* ends with NULL */
static size_t fast_count;

static const float canary = 12345.75f;

static const char *label(const char *isa, const char *what, const char *sizes)
{
    static char text[256];
    (void)snprintf(text, sizeof text, "%s %s %s", isa, what, sizes);
    return text;
}

TEST(all_tables_of_this_cpu_are_named)
{
    assert_true(fast_count >= 1);
    for (size_t i = 0; i < fast_count; i++)
        assert_ptr_equal(sfp__kernels_named(fast[i]->isa), fast[i]);
    assert_ptr_equal(sfp__kernels_named("ref"), ref);
    assert_null(sfp__kernels_named("mmx"));
    assert_null(sfp__kernels_named(""));
    assert_ptr_equal(sfp__kernels_named(sfp__kernels_get()->isa), sfp__kernels_get());
}

/* ------------------------------------------------------------- layer norm */

static const int norm_rows[] = {1, 2, 7, 13};
static const struct {
    int d, w;
} norm_sizes[] = {{1, 1},   {3, 3},   {8, 8},     {12, 4},   {16, 16},   {20, 10},   {31, 31},  {44, 22},
                  {44, 44}, {64, 32}, {100, 100}, {192, 96}, {200, 200}, {768, 384}, {768, 768}};

#define COUNT(a) (sizeof(a) / sizeof *(a))

TEST(norm_forward_agrees)
{
    sfp__rng rng = sfp__rng_init(1, 0);
    for (size_t s = 0; s < COUNT(norm_sizes); s++)
        for (size_t r = 0; r < COUNT(norm_rows); r++)
            for (int offset = 0; offset < 2; offset++) {
                KEPT_IN_BLOCK;
                int m = norm_rows[r], d = norm_sizes[s].d;
                size_t n = (size_t)m * (size_t)d;
                char sizes[64];
                (void)snprintf(sizes, sizeof sizes, "(%d, %d)", m, d);
                float *x = normals(&rng, n, 2), *gamma = normals(&rng, (size_t)d, 1), *beta = normals(&rng, (size_t)d, 1);
                for (size_t i = 0; offset && i < n; i++)
                    x[i] += 50; /* a mean far from 0 must not cancel the variance */
                float *y = floats(n), *stats = floats(2 * (size_t)m), *wy = floats(n), *wstats = floats(2 * (size_t)m);
                ref->norm_fwd(m, d, x, gamma, beta, 1e-3f, wy, wstats);
                for (size_t k = 0; k < fast_count; k++) {
                    fast[k]->norm_fwd(m, d, x, gamma, beta, 1e-3f, y, stats);
                    check_near(label(fast[k]->isa, "norm", sizes), y, wy, n, offset ? 1e-4 : 2e-6);
                    check_near(label(fast[k]->isa, "norm stats", sizes), stats, wstats, 2 * (size_t)m, 2e-5);
                }
            }
}

TEST(sum_and_norm_agree_in_place_and_without_norm)
{
    sfp__rng rng = sfp__rng_init(2, 0);
    for (size_t s = 0; s < COUNT(norm_sizes); s++)
        for (size_t r = 0; r < COUNT(norm_rows); r++) {
            KEPT_IN_BLOCK;
            int m = norm_rows[r], d = norm_sizes[s].d, w = norm_sizes[s].w;
            size_t n = (size_t)m * (size_t)d, rows = 2 * (size_t)m;
            char sizes[64];
            (void)snprintf(sizes, sizeof sizes, "(%d, %d) panels of %d", m, d, w);
            float *x = normals(&rng, n, 1), *dense = normals(&rng, n, 1), *res = to_panels(dense, m, d, w);
            float *gamma = normals(&rng, (size_t)d, 1), *beta = normals(&rng, (size_t)d, 1);
            float *xo = floats(n), *y = floats(n), *stats = floats(rows), *wxo = floats(n), *wy = floats(n),
                  *wstats = floats(rows);
            ref->add_norm_fwd(m, d, x, res, w, gamma, beta, 1e-6f, wxo, wy, wstats);
            for (size_t i = 0; i < n; i++) /* checks the layout */
                assert_true(wxo[i] == x[i] + dense[i]);
            for (size_t k = 0; k < fast_count; k++) {
                const char *isa = fast[k]->isa;
                fast[k]->add_norm_fwd(m, d, x, res, w, gamma, beta, 1e-6f, xo, y, stats);
                check_same(label(isa, "sum", sizes), xo, wxo, n * sizeof *xo);
                check_near(label(isa, "norm of sum", sizes), y, wy, n, d == 1 ? 1e-4 : 5e-6);
                check_near(label(isa, "stats of sum", sizes), stats, wstats, rows, d == 1 ? 1e-4 : 2e-5);
                memcpy(xo, x, n * sizeof *x);
                fast[k]->add_norm_fwd(m, d, xo, res, w, gamma, beta, 1e-6f, xo, y, stats);
                check_same(label(isa, "sum in place", sizes), xo, wxo, n * sizeof *xo);
                check_near(label(isa, "norm of sum in place", sizes), y, wy, n, d == 1 ? 1e-4 : 5e-6);
                memset(xo, 0, n * sizeof *xo);
                fast[k]->add_norm_fwd(m, d, x, res, w, NULL, NULL, 1e-6f, xo, NULL, NULL);
                check_same(label(isa, "sum only", sizes), xo, wxo, n * sizeof *xo);
            }
        }
}

TEST(norm_backward_agrees_with_and_without_weights)
{
    sfp__rng rng = sfp__rng_init(3, 0);
    for (size_t s = 0; s < COUNT(norm_sizes); s++)
        for (size_t r = 0; r < COUNT(norm_rows); r++) {
            KEPT_IN_BLOCK;
            int m = norm_rows[r], d = norm_sizes[s].d, w = norm_sizes[s].w;
            if (d == 1)
                continue; /* the exact gradient is 0: only rounding errors would be compared */
            size_t n = (size_t)m * (size_t)d, D = (size_t)d;
            char sizes[64];
            (void)snprintf(sizes, sizeof sizes, "(%d, %d) panels of %d", m, d, w);
            float *x = normals(&rng, n, 1), *dense = normals(&rng, n, 1), *dy = to_panels(dense, m, d, w);
            float *gamma = normals(&rng, D, 1), *beta = normals(&rng, D, 1), *start = normals(&rng, n, 1),
                  *gstart = normals(&rng, D, 1);
            float *y = floats(n), *stats = floats(2 * (size_t)m);
            ref->norm_fwd(m, d, x, gamma, beta, 1e-6f, y, stats);
            float *wdx = copied(start, n), *wdg = copied(gstart, D), *wdb = copied(gstart, D), *ddx = copied(start, n);
            ref->norm_bwd(m, d, dy, w, x, stats, gamma, wdx, wdg, wdb);
            ref->norm_bwd(m, d, dense, d, x, stats, gamma, ddx, NULL, NULL);
            check_same("ref: panels equal dense", wdx, ddx, n * sizeof *wdx);
            for (size_t k = 0; k < fast_count; k++) {
                const char *isa = fast[k]->isa;
                float *dx = copied(start, n), *dg = copied(gstart, D), *db = copied(gstart, D);
                fast[k]->norm_bwd(m, d, dy, w, x, stats, gamma, dx, dg, db);
                check_near(label(isa, "dx", sizes), dx, wdx, n, 1e-5);
                check_near(label(isa, "dgamma", sizes), dg, wdg, D, 5e-6);
                check_near(label(isa, "dbeta", sizes), db, wdb, D, 5e-6);
                memcpy(dx, start, n * sizeof *dx);
                fast[k]->norm_bwd(m, d, dy, w, x, stats, gamma, dx, NULL, NULL);
                check_near(label(isa, "dx without weights", sizes), dx, wdx, n, 1e-5);
                memcpy(dx, start, n * sizeof *dx);
                fast[k]->norm_bwd(m, d, dense, d, x, stats, gamma, dx, NULL, NULL);
                check_near(label(isa, "dx dense", sizes), dx, wdx, n, 1e-5);
            }
        }
}

TEST(norm_backward_equals_central_differences)
{
    enum { M = 3, D = 11 };
    sfp__rng rng = sfp__rng_init(4, 0);
    float *x = normals(&rng, M * D, 1), *gamma = normals(&rng, D, 1), *beta = normals(&rng, D, 1), *dy = normals(&rng, M * D, 1);
    float y[M * D], stats[2 * M], dx[M * D] = {0}, dgamma[D] = {0}, dbeta[D] = {0};
    const double eps = 1e-2, h = 1e-5;
    ref->norm_fwd(M, D, x, gamma, beta, (float)eps, y, stats);
    ref->norm_bwd(M, D, dy, D, x, stats, gamma, dx, dgamma, dbeta);
    /* argument i of all: M*D inputs, D gammas, D betas */
    for (int i = 0; i < (M + 2) * D; i++) {
        double loss[2] = {0, 0};
        for (int side = 0; side < 2; side++) {
            double a[(M + 2) * D], out[D];
            for (int j = 0; j < M * D; j++)
                a[j] = (double)x[j];
            for (int j = 0; j < D; j++) {
                a[M * D + j] = (double)gamma[j];
                a[(M + 1) * D + j] = (double)beta[j];
            }
            a[i] += side ? h : -h;
            for (int r = 0; r < M; r++) {
                oracle_norm(D, eps, a + r * D, a + M * D, a + (M + 1) * D, out);
                for (int c = 0; c < D; c++)
                    loss[side] += out[c] * (double)dy[r * D + c];
            }
        }
        double want = (loss[1] - loss[0]) / (2 * h);
        double got = i < M * D ? (double)dx[i] : i < (M + 1) * D ? (double)dgamma[i - M * D] : (double)dbeta[i - (M + 1) * D];
        if (!(fabs(got - want) < 1e-5 * (1 + fabs(want))))
            fail_msg("gradient %d is %.8g, central difference %.8g", i, got, want);
    }
}

/* ------------------------------------------------------------------- GELU */

static double gelu_slope(double x)
{
    return 0.5 * erfc(-x / sqrt(2.0)) + x * exp(-x * x / 2) / sqrt(2 * acos(-1.0));
}

static double quick_gelu(double x)
{
    return x / (1 + exp(-1.702 * x));
}

static double quick_gelu_slope(double x)
{
    double s = 1 / (1 + exp(-1.702 * x));
    return s + 1.702 * x * s * (1 - s);
}

/* The activations of a table and the formulas that they must follow. */
typedef void activation_fn(int m, int n, float *h, int w, bool save, float *y);

static activation_fn *activation_of(const sfp__kernels *k, int which)
{
    return which ? k->quick_gelu_fwd : k->gelu_fwd;
}

static const struct {
    const char *name;
    double (*value)(double), (*slope)(double);
} activations[] = {{"gelu", oracle_gelu, gelu_slope}, {"quick gelu", quick_gelu, quick_gelu_slope}};

static const struct {
    int m, n, w;
} gelu_sizes[] = {{1, 1, 1}, {1, 7, 7}, {3, 20, 10}, {5, 44, 22}, {2, 44, 44}, {7, 64, 16}, {13, 200, 40}, {25, 768, 384}};

static void check_activation(int which, int m, int n, int w, sfp__rng *rng)
{
    size_t count = (size_t)m * (size_t)n;
    char sizes[64];
    (void)snprintf(sizes, sizeof sizes, "%s (%d, %d) panels of %d", activations[which].name, m, n, w);
    float *dense = normals(rng, count, 3), *in = to_panels(dense, m, n, w), *dy = normals(rng, count, 1);
    float *wh = copied(in, count), *wy = floats(count), *wdh = floats(count);
    activation_of(ref, which)(m, n, wh, w, true, wy);
    ref->gelu_bwd(m, n, dy, wh, w, wdh);
    for (int r = 0; r < m; r++)
        for (int c = 0; c < n; c++) { /* layouts: y and dh are dense, the derivative replaces h */
            size_t at = (size_t)r * (size_t)n + (size_t)c, panel = panel_at(m, w, r, c);
            double x = (double)dense[at];
            assert_true(fabs((double)wy[at] - activations[which].value(x)) < 1e-6 * (1 + fabs(x)));
            assert_true(fabs((double)wh[panel] - activations[which].slope(x)) < 1e-6);
            assert_true(wdh[at] == dy[panel] * wh[panel]);
        }
    for (size_t k = 0; k < fast_count; k++) {
        const char *isa = fast[k]->isa;
        activation_fn *fwd = activation_of(fast[k], which);
        float *h = copied(in, count), *y = floats(count), *dh = floats(count);
        fwd(m, n, h, w, false, y);
        check_near(label(isa, "value", sizes), y, wy, count, 1e-6);
        check_same(label(isa, "leaves h", sizes), h, in, count * sizeof *h);
        fwd(m, n, h, w, true, y);
        check_near(label(isa, "saved", sizes), y, wy, count, 1e-6);
        check_near(label(isa, "derivative", sizes), h, wh, count, 1e-6);
        fast[k]->gelu_bwd(m, n, dy, wh, w, dh);
        check_same(label(isa, "backward", sizes), dh, wdh, count * sizeof *dh);
    }
}

TEST(gelus_agree_in_panels_saved_or_not)
{
    sfp__rng rng = sfp__rng_init(5, 0);
    for (int which = 0; which < 2; which++)
        for (size_t s = 0; s < COUNT(gelu_sizes); s++)
            check_activation(which, gelu_sizes[s].m, gelu_sizes[s].n, gelu_sizes[s].w, &rng);
}

static void check_accuracy(const sfp__kernels *k, int which)
{
    enum { N = 200001 };
    float *h = floats(N), *y = floats(N);
    for (int i = 0; i < N; i++)
        h[i] = (float)(-10 + i * 1e-4);
    activation_of(k, which)(1, N, h, N, true, y);
    for (int i = 0; i < N; i++) {
        double x = (double)(float)(-10 + i * 1e-4), value = activations[which].value(x), slope = activations[which].slope(x);
        if (!(fabs((double)y[i] - value) <= 3e-7 * fmax(1, fabs(x))) || !(fabs((double)h[i] - slope) <= 4e-7))
            fail_msg("%s: %s(%.6g) is %.9g, slope %.9g; expected %.9g, %.9g", k->isa, activations[which].name, x, (double)y[i],
                     (double)h[i], value, slope);
    }
    static const float far[] = {20, 100, 1e4f, -20, -100, -1e4f};
    float in[COUNT(far)], out[COUNT(far)];
    memcpy(in, far, sizeof in);
    activation_of(k, which)(1, COUNT(far), in, COUNT(far), true, out);
    for (size_t i = 0; i < COUNT(far); i++) {
        assert_true(fabsf(out[i] - fmaxf(far[i], 0)) <= 2e-7f * fabsf(far[i]));
        assert_true(fabsf(in[i] - (far[i] > 0)) <= 1e-6f);
    }
}

TEST(gelus_are_as_accurate_as_a_float_from_minus_10_to_10)
{
    for (int which = 0; which < 2; which++)
        for (size_t k = 0; k < fast_count; k++)
            check_accuracy(fast[k], which);
}

/* -------------------------------------------------------------- attention */

/* Data of one head, with row strides larger than the rows; the outputs of one table. */
typedef struct head {
    sfp__attn a;
    float *q, *k, *v, *pk, *pv, *dout;
} head;

typedef struct result {
    size_t nq, nk, np; /* number of floats, strides included */
    float *out, *prob0, *dq, *dk, *dv, *dpk, *dpv;
} result;

static head make_head(sfp__rng *rng, int nq, int nk, int np, int d, double sd)
{
    int pad = (int)sfp__rng_below(rng, 3) * 5;
    head h = {.a = {.nq = nq,
                    .nk = nk,
                    .np = np,
                    .d = d,
                    .scale = 1.0f / sqrtf((float)d),
                    .ldq = d + pad,
                    .ldkv = d + 2 * pad,
                    .ldp = d + pad,
                    .ldo = d + 3,
                    .lddo = d + pad,
                    .ldd = d + 7,
                    .lddp = d + 2}};
    h.a.q = h.q = normals(rng, (size_t)(nq * h.a.ldq), sd);
    h.a.k = h.k = normals(rng, (size_t)(nk * h.a.ldkv), sd);
    h.a.v = h.v = normals(rng, (size_t)(nk * h.a.ldkv), 1);
    h.a.pk = h.pk = normals(rng, (size_t)(np * h.a.ldp), sd);
    h.a.pv = h.pv = normals(rng, (size_t)(np * h.a.ldp), 1);
    h.a.dout = h.dout = normals(rng, (size_t)(nq * h.a.lddo), 1);
    return h;
}

typedef enum wish { WANT_ALL, WANT_PREFIX, WANT_TOKENS } wish;

/* Runs forward and backward with one table. The outputs are filled with a canary before. */
static result attend(const sfp__kernels *t, const head *h, wish want)
{
    sfp__attn a = h->a;
    result r = {.nq = (size_t)(a.nq * a.ldd), .nk = (size_t)(a.nk * a.ldd), .np = (size_t)(a.np * a.lddp)};
    size_t scratch = t->attn_scratch(a.nq, a.np + a.nk, a.d);
    void *aligned = NULL;
    assert_int_equal(posix_memalign(&aligned, 64, scratch * sizeof(float)), 0);
    for (size_t i = 0; i < scratch; i++)
        ((float *)aligned)[i] = NAN; /* no element may be read before it is written */
    a.scratch = aligned;
    a.out = r.out = filled((size_t)(a.nq * a.ldo), canary);
    a.prob0 = r.prob0 = filled((size_t)a.nk, canary);
    t->attn_fwd(&a);
    r.dq = filled(r.nq, canary), r.dk = filled(r.nk, canary), r.dv = filled(r.nk, canary);
    r.dpk = filled(r.np, canary), r.dpv = filled(r.np, canary);
    if (want != WANT_PREFIX)
        a.dq = r.dq, a.dk = r.dk, a.dv = r.dv;
    if (want != WANT_TOKENS && a.np)
        a.dpk = r.dpk, a.dpv = r.dpv;
    t->attn_bwd(&a);
    free(aligned);
    return r;
}

/* Checks that rows are close and the gaps between them are untouched. */
static void check_rows(const char *what, const float *got, const float *want, int rows, int d, int ld, double tolerance)
{
    float *g = floats((size_t)(rows * d)), *w = floats((size_t)(rows * d));
    for (int r = 0; r < rows; r++) {
        memcpy(g + r * d, got + r * ld, (size_t)d * sizeof *g);
        memcpy(w + r * d, want + r * ld, (size_t)d * sizeof *w);
        for (int c = d; c < ld; c++)
            if (got[r * ld + c] != canary)
                fail_msg("%s: wrote beyond column %d of row %d", what, d, r);
    }
    check_near(what, g, w, (size_t)(rows * d), tolerance);
}

static void compare_attention(const sfp__kernels *t, const head *h, const result *want, const char *sizes, double tolerance)
{
    const sfp__attn *a = &h->a;
    result r = attend(t, h, WANT_ALL);
    check_rows(label(t->isa, "attention", sizes), r.out, want->out, a->nq, a->d, a->ldo, tolerance);
    check_near(label(t->isa, "class row", sizes), r.prob0, want->prob0, (size_t)a->nk, tolerance);
    check_rows(label(t->isa, "dq", sizes), r.dq, want->dq, a->nq, a->d, a->ldd, tolerance);
    check_rows(label(t->isa, "dk", sizes), r.dk, want->dk, a->nk, a->d, a->ldd, tolerance);
    check_rows(label(t->isa, "dv", sizes), r.dv, want->dv, a->nk, a->d, a->ldd, tolerance);
    check_rows(label(t->isa, "dpk", sizes), r.dpk, want->dpk, a->np, a->d, a->lddp, tolerance);
    check_rows(label(t->isa, "dpv", sizes), r.dpv, want->dpv, a->np, a->d, a->lddp, tolerance);
    r = attend(t, h, WANT_PREFIX);
    check_rows(label(t->isa, "dpk alone", sizes), r.dpk, want->dpk, a->np, a->d, a->lddp, tolerance);
    check_rows(label(t->isa, "dpv alone", sizes), r.dpv, want->dpv, a->np, a->d, a->lddp, tolerance);
    for (size_t i = 0; i < r.nk; i++)
        assert_true(r.dk[i] == canary && r.dv[i] == canary);
    for (size_t i = 0; i < r.nq; i++)
        assert_true(r.dq[i] == canary);
    r = attend(t, h, WANT_TOKENS);
    check_rows(label(t->isa, "dq without prefix gradients", sizes), r.dq, want->dq, a->nq, a->d, a->ldd, tolerance);
    check_rows(label(t->isa, "dk without prefix gradients", sizes), r.dk, want->dk, a->nk, a->d, a->ldd, tolerance);
    for (size_t i = 0; i < r.np; i++)
        assert_true(r.dpk[i] == canary && r.dpv[i] == canary);
}

TEST(weights_of_keys_multiply_their_probabilities)
{
    static const int sizes[][3] = {{1, 10, 0}, {1, 197, 4}, {26, 50, 0}, {97, 33, 7}, {5, 1, 0}}; /* nq, nk, np */
    sfp__rng rng = sfp__rng_init(8, 0);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        int nq = sizes[i][0], nk = sizes[i][1], d = 20;
        head h = make_head(&rng, nq, nk, sizes[i][2], d, 1);
        const result plain = attend(ref, &h, WANT_ALL);
        float *weight = floats((size_t)nk);
        for (int j = 0; j < nk; j++)
            weight[j] = (float)(1 + sfp__rng_below(&rng, 9));
        h.a.weight = weight;
        const result want = attend(ref, &h, WANT_ALL);
        if (sizes[i][2] == 0 && nk > 1) { /* the definition: the probabilities without weights, multiplied and normalised again */
            double sum = 0;
            for (int j = 0; j < nk; j++)
                sum += (double)plain.prob0[j] * (double)weight[j];
            for (int j = 0; j < nk; j++)
                assert_true(fabs((double)plain.prob0[j] * (double)weight[j] / sum - (double)want.prob0[j]) < 1e-6);
        }
        for (size_t k = 0; k < fast_count; k++) {
            const result got = attend(fast[k], &h, WANT_ALL);
            check_rows(label(fast[k]->isa, "weighted attention", "output"), got.out, want.out, nq, d, h.a.ldo, 1e-5);
            check_near(label(fast[k]->isa, "weighted attention", "class row"), got.prob0, want.prob0, (size_t)nk, 1e-5);
        }
    }
}

TEST(numbers_are_rounded_to_the_nearest_bf16)
{
    enum { N = 1000 };
    static const struct {
        uint32_t f32;
        uint16_t bf16;
    } list[] = {{0x3f800000, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f818000, 0x3f82}, {0x3f808001, 0x3f81},
                {0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x7fbfffff, 0x7fff},
                {0xff800001, 0xffc0}, {0x80000000, 0x8000}, {0x00008000, 0x0000}, {0x00018000, 0x0002}};
    sfp__rng rng = sfp__rng_init(10, 0);
    float x[N];
    uint16_t want[N], got[N + 1];
    for (size_t i = 0; i < N; i++) {
        uint32_t u = i < COUNT(list) ? list[i].f32 : sfp__rng_u32(&rng);
        memcpy(&x[i], &u, sizeof u);
    }
    ref->to_bf16(N, x, want);
    for (size_t i = 0; i < COUNT(list); i++)
        assert_int_equal(want[i], list[i].bf16);
    for (size_t k = 0; k < fast_count; k++)
        for (size_t n = N - 40; n <= N; n++) {
            memset(got, 0xaa, sizeof got);
            fast[k]->to_bf16(n, x, got);
            assert_memory_equal(got, want, n * sizeof *got);
            assert_int_equal(got[n], 0xaaaa);
        }
}

TEST(rows_are_rounded_to_levels_between_their_least_and_largest_number)
{
    static const int sizes[][3] = {{1, 1, 255}, {3, 7, 127}, {2, 16, 255}, {5, 33, 127}, {4, 192, 255}}; /* m, k, levels */
    sfp__rng rng = sfp__rng_init(12, 0);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        int m = sizes[i][0], k = sizes[i][1], levels = sizes[i][2];
        float *x = normals(&rng, (size_t)(m * k), 3), want_rows[10], rows[10];
        uint8_t want[800], got[801];
        for (int c = 0; m > 2 && c < k; c++)
            x[k + c] = 7.25f; /* a row without a range */
        ref->to_u8(m, k, levels, x, want, want_rows);
        for (int r = 0; r < m; r++)
            for (int c = 0; c < k; c++)
                assert_true(fabsf(want_rows[2 * r] * want[r * k + c] + want_rows[2 * r + 1] - x[r * k + c]) <=
                            0.501f * want_rows[2 * r] + 1e-6f);
        for (size_t f = 0; f < fast_count; f++) {
            memset(got, 0xaa, sizeof got);
            fast[f]->to_u8(m, k, levels, x, got, rows);
            check_same(label(fast[f]->isa, "levels", ""), got, want, (size_t)m * (size_t)k);
            check_same(label(fast[f]->isa, "rows", ""), rows, want_rows, (size_t)m * 2 * sizeof *rows);
            assert_int_equal(got[m * k], 0xaa);
            for (int bad = 0; bad < 2; bad++) { /* what is no number must not look like one */
                float kept = x[k - 1], out[1] = {0}, one[1] = {1};
                x[k - 1] = bad ? INFINITY : NAN;
                fast[f]->to_u8(1, k, levels, x, got, rows);
                fast[f]->scale_product(1, 1, rows, one, one, one, out);
                assert_true(!isfinite(out[0]));
                x[k - 1] = kept;
            }
        }
    }
}

TEST(products_of_rounded_numbers_are_scaled_back)
{
    enum { M = 3, N = 37 };
    sfp__rng rng = sfp__rng_init(13, 0);
    float *y = normals(&rng, M * N, 1000), *rows = normals(&rng, M * 2, 1), *columns = normals(&rng, N * 3, 1);
    float *want = floats(M * N), *got = floats(M * N);
    memcpy(want, y, M * N * sizeof *y);
    ref->scale_product(M, N, rows, columns, columns + N, columns + 2 * N, want);
    for (size_t k = 0; k < fast_count; k++) {
        memcpy(got, y, M * N * sizeof *y);
        fast[k]->scale_product(M, N, rows, columns, columns + N, columns + 2 * N, got);
        check_near(label(fast[k]->isa, "scaled product", ""), got, want, M * N, 1e-3);
    }
}

TEST(nearest_rows_are_those_of_the_largest_products)
{
    static const int sizes[][3] = {{1, 1, 8}, {3, 2, 5}, {49, 98, 64}, {98, 97, 64}, {50, 33, 20}}; /* m, n, d */
    sfp__rng rng = sfp__rng_init(9, 0);
    for (size_t i = 0; i < COUNT(sizes); i++) {
        int m = sizes[i][0], n = sizes[i][1], d = sizes[i][2], want[128], got[128];
        float *a = normals(&rng, (size_t)(m * d), 1), *b = normals(&rng, (size_t)(n * d), 1), product[128], expected[128];
        if (n > 2)
            memcpy(b + (n - 1) * d, b, (size_t)d * sizeof *b); /* of equal rows the first one is chosen */
        ref->nearest_rows(m, n, d, a, b, want, expected, NULL);
        for (size_t k = 0; k < fast_count; k++) {
            void *scratch = NULL;
            assert_int_equal(posix_memalign(&scratch, 64, fast[k]->attn_scratch(m, n, d) * sizeof(float)), 0);
            fast[k]->nearest_rows(m, n, d, a, b, got, product, scratch);
            free(scratch);
            assert_memory_equal(got, want, (size_t)m * sizeof *got);
            check_near(label(fast[k]->isa, "nearest rows", "products"), product, expected, (size_t)m, 1e-5);
        }
    }
}

TEST(attention_agrees_forward_and_backward)
{
    static const int ds[] = {8, 16, 20, 64, 80}, nqs[] = {1, 2, 23, 24, 25, 26, 197}, nps[] = {0, 1, 4, 7},
                     nks[] = {1, 10, 50, 197};
    sfp__rng rng = sfp__rng_init(6, 0);
    for (size_t i = 0; i < COUNT(ds) * COUNT(nqs) * COUNT(nps) * COUNT(nks); i++) {
        KEPT_IN_BLOCK;
        int d = ds[i % COUNT(ds)], nq = nqs[i / COUNT(ds) % COUNT(nqs)], np = nps[i / COUNT(ds) / COUNT(nqs) % COUNT(nps)];
        int nk = nks[i / COUNT(ds) / COUNT(nqs) / COUNT(nps)];
        nk += np + nk == 1; /* with a single key the gradient is only rounding error */
        char sizes[64];
        (void)snprintf(sizes, sizeof sizes, "d %d, nq %d, np %d, nk %d", d, nq, np, nk);
        head h = make_head(&rng, nq, nk, np, d, 1);
        result want = attend(ref, &h, WANT_ALL);
        for (size_t k = 0; k < fast_count; k++)
            compare_attention(fast[k], &h, &want, sizes, 1e-5);
    }
}

/* The plain-C attention in its three modes, against loops in double and central differences. */
static double attention_loss(const sfp__attn *a, const double *q, const double *k, const double *v)
{
    double loss = 0; /* k, v: prefix rows first, dense */
    int n = a->np + a->nk, d = a->d;
    for (int i = 0; i < a->nq; i++) {
        double s[64], sum = 0, max = -INFINITY;
        for (int j = 0; j < n; j++) {
            s[j] = 0;
            for (int c = 0; c < d; c++)
                s[j] += q[i * d + c] * k[j * d + c] * (double)a->scale;
            max = fmax(max, s[j]);
        }
        for (int j = 0; j < n; j++)
            sum += s[j] = exp(s[j] - max);
        for (int j = 0; j < n; j++)
            for (int c = 0; c < d; c++)
                loss += s[j] / sum * v[j * d + c] * (double)a->dout[i * a->lddo + c];
    }
    return loss;
}

static void check_difference(const char *what, const sfp__attn *a, double *q, double *k, double *v, double *at, float got)
{
    const double h = 1e-5, kept = *at;
    *at = kept + h;
    double up = attention_loss(a, q, k, v);
    *at = kept - h;
    double want = (up - attention_loss(a, q, k, v)) / (2 * h);
    *at = kept;
    if (!(fabs((double)got - want) < 2e-6 * (1 + fabs(want))))
        fail_msg("%s is %.8g, central difference %.8g", what, (double)got, want);
}

TEST(attention_backward_equals_central_differences)
{
    sfp__rng rng = sfp__rng_init(7, 0);
    static const struct {
        int nq, nk, np, d;
    } shapes[] = {{1, 5, 2, 6}, {6, 6, 0, 4}, {7, 7, 3, 5}, {3, 11, 1, 8}};
    for (size_t s = 0; s < COUNT(shapes); s++) {
        head h = make_head(&rng, shapes[s].nq, shapes[s].nk, shapes[s].np, shapes[s].d, 1);
        const sfp__attn *a = &h.a;
        int n = a->np + a->nk, d = a->d;
        double q[64 * 8], k[64 * 8], v[64 * 8];
        for (int c = 0; c < d; c++) {
            for (int i = 0; i < a->nq; i++)
                q[i * d + c] = (double)h.q[i * a->ldq + c];
            for (int j = 0; j < n; j++) {
                k[j * d + c] = (double)(j < a->np ? h.pk[j * a->ldp + c] : h.k[(j - a->np) * a->ldkv + c]);
                v[j * d + c] = (double)(j < a->np ? h.pv[j * a->ldp + c] : h.v[(j - a->np) * a->ldkv + c]);
            }
        }
        result r = attend(ref, &h, WANT_ALL);
        for (int c = 0; c < d; c++) {
            for (int i = 0; i < a->nq; i++)
                check_difference("dq", a, q, k, v, &q[i * d + c], r.dq[i * a->ldd + c]);
            for (int j = 0; j < n; j++) {
                int p = j * a->lddp + c, t = (j - a->np) * a->ldd + c;
                check_difference("dk", a, q, k, v, &k[j * d + c], j < a->np ? r.dpk[p] : r.dk[t]);
                check_difference("dv", a, q, k, v, &v[j * d + c], j < a->np ? r.dpv[p] : r.dv[t]);
            }
        }
        compare_attention(ref, &h, &r, "the oracle's ways of asking", 0);
    }
}

TEST(huge_scores_stay_finite_and_within_the_values)
{
    sfp__rng rng = sfp__rng_init(8, 0);
    const sfp__kernels *tables[] = {ref, fast[0], fast[1], fast[2]};
    static const int nqs[] = {1, 30};
    for (size_t s = 0; s < COUNT(nqs); s++) {
        KEPT_IN_BLOCK;
        head h = make_head(&rng, nqs[s], 50, 4, 16, 70); /* q.k of about +-2e4, after scaling +-5e3 */
        for (size_t k = 0; k <= fast_count; k++) {
            result r = attend(tables[k], &h, WANT_ALL);
            const sfp__attn *a = &h.a;
            double sum = 0;
            for (int j = 0; j < a->nk; j++) {
                assert_true(r.prob0[j] >= 0 && r.prob0[j] <= 1.00001f);
                sum += (double)r.prob0[j];
            }
            assert_true(sum <= 1.0001);
            for (int c = 0; c < a->d; c++) {
                float low = INFINITY, high = -INFINITY;
                for (int j = 0; j < a->np + a->nk; j++) {
                    float x = j < a->np ? h.pv[j * a->ldp + c] : h.v[(j - a->np) * a->ldkv + c];
                    low = fminf(low, x), high = fmaxf(high, x);
                }
                for (int i = 0; i < a->nq; i++) {
                    float o = r.out[i * a->ldo + c];
                    if (!(o >= low - 1e-4f && o <= high + 1e-4f))
                        fail_msg("%s: attention of huge scores gives %g, values lie in %g..%g", tables[k]->isa, (double)o,
                                 (double)low, (double)high);
                    assert_true(isfinite(r.dq[i * a->ldd + c]));
                }
                for (int j = 0; j < a->nk; j++)
                    assert_true(isfinite(r.dk[j * a->ldd + c]) && isfinite(r.dv[j * a->ldd + c]));
            }
        }
    }
}

/* -------------------------------------------------------- double product */

static double *normal_doubles(sfp__rng *rng, size_t n)
{
    double *x = kept_malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = sfp__rng_normal(rng);
    return x;
}

/* Both layouts of a: by columns of the sum (a_k = 1) and by rows. Elements beyond a row of c must not change. */
TEST(double_products_agree)
{
    static const int side[] = {1, 2, 3, 7, 8, 9, 16, 17, 31, 33, 64, 65}, depth[] = {0, 1, 2, 31, 64};
    sfp__rng rng = sfp__rng_init(9, 0);
    for (size_t a = 0; a < COUNT(side); a++)
        for (size_t b = 0; b < COUNT(side); b++)
            for (size_t d = 0; d < COUNT(depth); d++)
                for (int transposed = 0; transposed < 2; transposed++) {
                    KEPT_IN_BLOCK;
                    int m = side[a], n = side[b], k = depth[d], ldb = n + 3, ldc = n + 2;
                    ptrdiff_t a_k = transposed ? 1 : m + 1, a_m = transposed ? k + 1 : 1;
                    size_t c_count = (size_t)m * (size_t)ldc;
                    double *x = normal_doubles(&rng, (size_t)(m + 1) * (size_t)(k + 1)),
                           *y = normal_doubles(&rng, (size_t)(k + 1) * (size_t)ldb), *start = normal_doubles(&rng, c_count),
                           *want = kept_malloc(c_count * sizeof *want), *got = kept_malloc(c_count * sizeof *got);
                    memcpy(want, start, c_count * sizeof *want);
                    ref->product_f64(m, n, k, -1, x, a_k, a_m, y, ldb, want, ldc);
                    for (size_t f = 0; f < fast_count; f++) {
                        memcpy(got, start, c_count * sizeof *got);
                        fast[f]->product_f64(m, n, k, -1, x, a_k, a_m, y, ldb, got, ldc);
                        for (size_t i = 0; i < c_count; i++)
                            if (!(fabs(got[i] - want[i]) <= ((int)(i % (size_t)ldc) < n ? 1e-13 * (1 + k) : 0)))
                                fail_msg("%s (%d, %d, %d): element %zu is %g, expected %g", fast[f]->isa, m, n, k, i, got[i],
                                         want[i]);
                    }
                }
}

/* ------------------------------------------------------ NaN is never hidden */

/* Returns a NaN with a payload: exponent tricks in a fast exp must not turn it into a number. */
static float nan_with(uint32_t payload)
{
    uint32_t bits = 0x7fc00000u | payload;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static const uint32_t payloads[] = {0, 1, 2, 0x81, 0x155, 0x1ff, 0x80000001u};

static void check_nan_kept(const char *what, const float *got, const float *want, size_t n, bool must)
{
    size_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        seen += isnan(want[i]) ? 1 : 0;
        if (isnan(want[i]) && !isnan(got[i]))
            fail_msg("%s: element %zu is %g, expected NaN", what, i, (double)got[i]);
    }
    assert_true(seen > 0 || !must);
}

TEST(a_nan_in_norm_or_gelu_is_propagated)
{
    enum { M = 3, D = 44 };
    sfp__rng rng = sfp__rng_init(9, 0);
    float *gamma = normals(&rng, D, 1), *beta = normals(&rng, D, 1);
    for (size_t p = 0; p < COUNT(payloads); p++)
        for (int at = 0; at < M * D; at += 5) {
            float *x = normals(&rng, M * D, 1);
            x[at] = nan_with(payloads[p]);
            float *wh = copied(x, M * D);
            float y[M * D], stats[2 * M], wy[M * D], wstats[2 * M], g[M * D], wg[M * D];
            ref->norm_fwd(M, D, x, gamma, beta, 1e-6f, wy, wstats);
            float *wq = copied(x, M * D), wqg[M * D];
            ref->gelu_fwd(M, D, wh, D, true, wg);
            ref->quick_gelu_fwd(M, D, wq, D, true, wqg);
            for (size_t k = 0; k < fast_count; k++) {
                float *fh = copied(x, M * D);
                fast[k]->norm_fwd(M, D, x, gamma, beta, 1e-6f, y, stats);
                check_nan_kept(label(fast[k]->isa, "norm", ""), y, wy, M * D, true);
                fast[k]->gelu_fwd(M, D, fh, D, true, g);
                check_nan_kept(label(fast[k]->isa, "gelu", ""), g, wg, M * D, true);
                check_nan_kept(label(fast[k]->isa, "gelu slope", ""), fh, wh, M * D, true);
                memcpy(fh, x, M * D * sizeof *fh);
                fast[k]->quick_gelu_fwd(M, D, fh, D, true, g);
                check_nan_kept(label(fast[k]->isa, "quick gelu", ""), g, wqg, M * D, true);
                check_nan_kept(label(fast[k]->isa, "quick gelu slope", ""), fh, wq, M * D, true);
            }
        }
}

TEST(a_nan_in_attention_is_propagated)
{
    sfp__rng rng = sfp__rng_init(10, 0);
    static const int nqs[] = {1, 3, 25};
    for (size_t s = 0; s < COUNT(nqs); s++)
        for (size_t p = 0; p < COUNT(payloads); p++)
            for (int place = 0; place < 5; place++) {
                KEPT_IN_BLOCK;
                head h = make_head(&rng, nqs[s], 37, 3, 20, 1);
                float *all[] = {h.q, h.k, h.v, h.pk, h.pv};
                const int rows[] = {h.a.nq, h.a.nk, h.a.nk, h.a.np, h.a.np};
                const int ld[] = {h.a.ldq, h.a.ldkv, h.a.ldkv, h.a.ldp, h.a.ldp};
                int row = (int)sfp__rng_below(&rng, (uint32_t)rows[place]), column = (int)sfp__rng_below(&rng, (uint32_t)h.a.d);
                all[place][row * ld[place] + column] = nan_with(payloads[p]);
                result want = attend(ref, &h, WANT_ALL);
                for (size_t k = 0; k < fast_count; k++) {
                    const char *isa = fast[k]->isa;
                    result r = attend(fast[k], &h, WANT_ALL);
                    check_nan_kept(label(isa, "attention", ""), r.out, want.out, (size_t)(h.a.nq * h.a.ldo), true);
                    check_nan_kept(label(isa, "class row", ""), r.prob0, want.prob0, (size_t)h.a.nk, false);
                    check_nan_kept(label(isa, "dq", ""), r.dq, want.dq, r.nq, true);
                    check_nan_kept(label(isa, "dk", ""), r.dk, want.dk, r.nk, true);
                    check_nan_kept(label(isa, "dv", ""), r.dv, want.dv, r.nk, false);
                    check_nan_kept(label(isa, "dpk", ""), r.dpk, want.dpk, r.np, true);
                    check_nan_kept(label(isa, "dpv", ""), r.dpv, want.dpv, r.np, false);
                }
            }
}

static void find_fast_tables(void)
{
    static const char *const names[] = {"generic", "avx2", "avx512"};
    for (size_t i = 0; i < COUNT(names); i++)
        if (sfp__kernels_named(names[i]))
            fast[fast_count++] = sfp__kernels_named(names[i]);
}

AROUND_ALL(find_fast_tables, NULL)
