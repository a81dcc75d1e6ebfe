/* Ridge regression and linear discriminant analysis, both solved from sums over samples (sums.h; docs/method.md, section 18).
 *
 * With n samples, mean m, G = sum x x^T, H_c the sum of x over class c, n_c its number of samples and pi_c = n_c / n:
 *
 *     ridge   A = Z (G/n - m m^T) Z + lambda I, scores pi + (x - m)^T Z A^-1 Z (H/n - m pi^T)
 *     balanced ridge: scores_c (x - m)^T (..) / sqrt(C pi_c) without pi, C the number of classes
 *     slda    mu_c = H_c / n_c, S = (G - sum_c n_c mu_c mu_c^T) / n, shrunk towards a multiple of I,
 *             scores (x - m)^T S^-1 (mu_c - m) - (mu_c - m)^T S^-1 (mu_c - m) / 2
 *
 * Log-probabilities are log softmax(scale * scores). The scaling Z and lambda are those with the least squared error of kept samples, each
 * of which is predicted by the solution without it; so is the scale, by cross-entropy. The solution without a sample follows from that
 * with it, in closed form.
 *
 * There are two solutions, each with its own strengths. The learner's own predicts samples before they are learned from. It follows
 * the samples: each one changes the matrix by a product of one vector, so the inverse and the weights follow in closed form, too
 * (recursive least squares). Only Z and n lambda stay; when there are GROWTH times as many samples, they are chosen again and it is solved
 * from the sums. So choosing, which takes several factors, stays a small part of the time of a stream. While all samples are kept, and few,
 * it is solved from their products with each other instead, which is fast, so it is solved at each doubling. This solution is saved with its
 * inverse, so that a run that resumes continues with the same bytes. The exact one is a function of the sums alone and is computed when
 * it is needed. */
#include "learner/heads/head_ridge.h"
#include "base/mem.h"
#include "compute/kernels.h"

#include <math.h>
#include <string.h>

/* The own solution is computed again when the number of samples has grown by this factor; FAST: for slda, and for few samples. */
enum { GROWTH = 8, GROWTH_FAST = 2 };
enum { PENDING = 32 }; /* samples that the own solution takes in at a time, at most */
enum { BEHIND = 64 };  /* it may lack one of this many samples */

static sfp_status ridge_init(sfp__head *h, sfp_error *err)
{
    sfp__ridge *m = (sfp__ridge *)h;
    size_t d = (size_t)h->opt.dim, triangle = sfp__triangle_count(h->opt.dim);
    TRY(sfp__sums_init(&m->sums, h->opt.dim, true, h->opt.half_life, err));
    sfp__ridge_reset_strength(m, &m->own);
    sfp__ridge_reset_strength(m, &m->exact);
    TRY(sfp__novelty_init(&m->novelty, h->opt.tap_dim, err));
    TRY(sfp__alloc(&m->own.centre, d, sizeof *m->own.centre, err));
    TRY(sfp__alloc(&m->exact.centre, d, sizeof *m->exact.centre, err));
    TRY(sfp__alloc(&m->follow.inverse, triangle, sizeof *m->follow.inverse, err));
    TRY(sfp__alloc(&m->follow.u, PENDING * d, sizeof *m->follow.u, err));
    TRY(sfp__alloc(&m->follow.s, PENDING, sizeof *m->follow.s, err));
    TRY(sfp__alloc(&m->matrix, triangle, sizeof *m->matrix, err));
    TRY(sfp__alloc(&m->z, d, sizeof *m->z, err));
    TRY(sfp__alloc(&m->norm, SFP__SUMS_KEPT, sizeof *m->norm, err));
    TRY(sfp__alloc(&m->block, SFP__TRIANGLE_BLOCK * d, sizeof *m->block, err));
    if (!sfp__ridge_is_slda(m)) {
        TRY(sfp__alloc(&m->gram, sfp__triangle_count(SFP__SUMS_KEPT), sizeof *m->gram, err));
        TRY(sfp__alloc(&m->gram_factor, sfp__triangle_count(SFP__SUMS_KEPT), sizeof *m->gram_factor, err));
        TRY(sfp__alloc(&m->gram_inverse, SFP__SUMS_KEPT * SFP__SUMS_KEPT, sizeof *m->gram_inverse, err));
    }
    return sfp__alloc(&m->product, SFP__TRIANGLE_BLOCK * d, sizeof *m->product, err);
}

static void ridge_done(sfp__head *h)
{
    sfp__ridge *m = (sfp__ridge *)h;
    void *blocks[] = {m->own.weight, m->own.gain,     m->own.bias,       m->own.centre,  m->exact.weight, m->exact.gain,
                      m->exact.bias, m->exact.centre, m->follow.u,       m->follow.s,    m->follow.c,     m->matrix,
                      m->z,          m->norm,         m->follow.inverse, m->prior,       m->scores,       m->block,
                      m->product,    m->gram,         m->gram_factor,    m->gram_inverse};
    sfp__sums_done(&m->sums);
    sfp__novelty_done(&m->novelty);
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        sfp__free(blocks[i]);
}

static bool grow_solution(sfp__ridge_solution *s, size_t d, size_t old, size_t count)
{
    return sfp__head_extend(&s->weight, d * sizeof *s->weight, old, count) &&
           sfp__head_extend(&s->gain, sizeof *s->gain, old, count) && sfp__head_extend(&s->bias, sizeof *s->bias, old, count);
}

static sfp_status ridge_grow(sfp__head *h, int capacity, sfp_error *err)
{
    sfp__ridge *m = (sfp__ridge *)h;
    size_t d = (size_t)h->opt.dim, old = (size_t)h->capacity, count = (size_t)capacity;
    return sfp__check_memory(sfp__sums_grow(&m->sums, h->capacity, capacity) &&
                                 sfp__novelty_grow(&m->novelty, h->capacity, capacity) && grow_solution(&m->own, d, old, count) &&
                                 grow_solution(&m->exact, d, old, count) &&
                                 sfp__head_extend(&m->follow.c, PENDING * sizeof *m->follow.c, old, count) &&
                                 sfp__head_extend(&m->prior, sizeof *m->prior, old, count) &&
                                 sfp__head_extend(&m->scores, SFP__SUMS_KEPT * sizeof *m->scores, old, count),
                             err);
}

/* ------------------------------------------------------------- the own solution */

/* Stores how a sample will change the own solution; called before the sums contain it. */
static void push(sfp__ridge *m, const float *x, int row)
{
    sfp__ridge_follow *f = &m->follow;
    const sfp__sums *u = &m->sums;
    size_t d = (size_t)m->base.opt.dim;
    double w = u->weight, n = u->total, ny = u->mass[row], *to = f->u + (size_t)f->pending * d;
    const double *sum = u->class_sum + (size_t)row * d;
    bool slda = sfp__ridge_is_slda(m);
    for (size_t i = 0; i < d; i++) {
        to[i] = (double)x[i] - (slda && ny > 0 ? sum[i] / ny : m->own.centre[i]);
        if (!slda)
            m->own.centre[i] += w / (n + w) * to[i];
    }
    f->s[f->pending] = slda ? w * ny / (ny + w) : w * n / (n + w);
    for (int r = 0; r < m->base.rows; r++) {
        double *c = &f->c[(size_t)r * PENDING + (size_t)f->pending];
        if (slda)
            *c = r == row ? w / (ny + w) : 0;
        else
            *c = r == row ? w * (n - ny) / (n + w) : -u->mass[r] * w / (n + w);
    }
    f->pending++;
}

static void clear_pending(sfp__ridge *m)
{
    sfp__ridge_follow *f = &m->follow;
    memset(f->u, 0, PENDING * (size_t)m->base.opt.dim * sizeof *f->u);
    memset(f->s, 0, PENDING * sizeof *f->s);
    memset(f->c, 0, (size_t)m->base.rows * PENDING * sizeof *f->c);
    f->pending = 0;
}

/* Adds rows of new classes to the own solution, without weights. */
static void add_rows(sfp__ridge *m)
{
    sfp__ridge_solution *s = &m->own;
    size_t old = (size_t)s->rows, rows = (size_t)m->base.rows;
    for (size_t i = (size_t)m->base.opt.dim; rows > old && i-- > 0;) {
        memmove(s->weight + i * rows, s->weight + i * old, old * sizeof *s->weight);
        memset(s->weight + i * rows + old, 0, (rows - old) * sizeof *s->weight);
    }
    s->rows = (int)rows;
}

/* Factors the (k, k) matrix a = L L^T in place; its diagonal is at least 1, because a is the identity plus a covariance. */
static void factor_small(int k, double *a)
{
    for (int j = 0; j < k; j++)
        for (int i = j; i < k; i++) {
            double sum = a[i * PENDING + j];
            for (int t = 0; t < j; t++)
                sum -= a[i * PENDING + t] * a[j * PENDING + t];
            a[i * PENDING + j] = i == j ? sqrt(fmax(sum, 1e-12)) : sum / a[j * PENDING + j];
        }
}

/* Computes x <- L^-1 x; x (k, columns) with row stride ld. */
static void solve_small(int k, const double *l, int columns, double *x, int ld)
{
    for (int i = 0; i < k; i++) {
        double *row = x + (ptrdiff_t)i * ld;
        for (int t = 0; t < i; t++)
            for (int c = 0; c < columns; c++)
                row[c] -= l[i * PENDING + t] * x[(ptrdiff_t)t * ld + c];
        for (int c = 0; c < columns; c++)
            row[c] /= l[i * PENDING + i];
    }
}

static void transpose(int rows, int columns, const double *x, double *y)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++)
            y[(ptrdiff_t)j * rows + i] = x[(ptrdiff_t)i * columns + j];
}

/* Takes the pending samples into the own solution; zeros make them k, a whole number of vectors, because products of other widths are
 * slow. With U (k, D), s and c of `push`, V = diag(sqrt s) U, Y = K^-1 U^T and
 * L L^T = I / kappa + V K^-1 V^T (Woodbury):
 *
 *     Q = K^-1 V^T L^-T, K'^-1 = K^-1 - Q Q^T, weight' = weight - Q L^-1 V weight + (Y - Q Q^T U^T) c */
static void take_pending(sfp__ridge *m)
{
    sfp__ridge_follow *f = &m->follow;
    sfp__ridge_solution *s = &m->own;
    const sfp__kernels *kernels = sfp__kernels_get();
    int d = m->base.opt.dim, k = (f->pending + 15) / 16 * 16, rows;
    double small[PENDING * PENDING], across[PENDING * PENDING], *y = m->product, *work = m->block,
                                                                *q = work + (ptrdiff_t)PENDING * d;
    double *vw = m->scores; /* (PENDING, rows) */
    add_rows(m);
    rows = s->rows;
    if (k == 0)
        return;
    transpose(k, d, f->u, work);
    sfp__triangle_multiply(d, f->inverse, k, work, y); /* Y (D, k) */
    memset(across, 0, sizeof across);
    kernels->product_f64(k, k, d, 1, work, k, 1, y, k, across, PENDING); /* U K^-1 U^T */
    for (int i = 0; i < k; i++)
        for (int j = 0; j < k; j++)
            small[i * PENDING + j] = sqrt(f->s[i] * f->s[j]) * across[i * PENDING + j] + (i == j ? 1 / f->kappa : 0);
    factor_small(k, small);
    /* rows of q: L^-1 V K^-1; of vw: L^-1 V weight; of across: L^-1 V K^-1 U^T = Q^T U^T */
    transpose(d, k, y, q);
    memset(vw, 0, (size_t)k * (size_t)rows * sizeof *vw);
    kernels->product_f64(k, rows, d, 1, work, k, 1, s->weight, rows, vw, rows);
    for (int i = 0; i < k; i++) {
        double root = sqrt(f->s[i]);
        for (int j = 0; j < d; j++)
            q[(ptrdiff_t)i * d + j] *= root;
        for (int r = 0; r < rows; r++)
            vw[(ptrdiff_t)i * rows + r] *= root;
        for (int j = 0; j < k; j++)
            across[i * PENDING + j] *= root;
    }
    solve_small(k, small, d, q, d);
    solve_small(k, small, rows, vw, rows);
    solve_small(k, small, k, across, PENDING);
    sfp__triangle_add(d, f->inverse, k, -1, q, m->base.opt.threads);
    /* weight += Q^T-rows times -(vw + across c) + Y c */
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < k; i++)
            for (int j = 0; j < k; j++)
                vw[(ptrdiff_t)i * rows + r] += across[i * PENDING + j] * f->c[(size_t)r * PENDING + (size_t)j];
    kernels->product_f64(d, rows, k, -1, q, d, 1, vw, rows, s->weight, rows);
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < k; i++)
            vw[(ptrdiff_t)i * rows + r] = f->c[(size_t)r * PENDING + (size_t)i];
    kernels->product_f64(d, rows, k, 1, y, 1, k, vw, rows, s->weight, rows);
    clear_pending(m);
}

/* Brings the own solution up to date with the sums. */
static void catch_up(sfp__ridge *m)
{
    take_pending(m);
    for (int r = 0; r < m->base.rows; r++)
        m->prior[r] = m->sums.mass[r] / m->sums.total;
    sfp__ridge_finish(m, &m->own, m->sums.total);
}

static void ridge_learn(sfp__head *h, const float *x, int row, uint64_t key)
{
    sfp__ridge *m = (sfp__ridge *)h;
    if (m->own.n > 0) {
        if (m->follow.pending == PENDING)
            catch_up(m);
        push(m, x, row);
    }
    sfp__sums_add(&m->sums, x, row, h->rows, key, h->n, h->opt.threads);
}

/* Returns whether the own solution is solved again from the sums: lambda is a share of the samples, and old ones fade. */
static bool is_due(const sfp__ridge *m)
{
    const sfp__ridge_follow *f = &m->follow;
    return m->own.n == 0 || m->base.n >= (sfp__ridge_is_slda(m) || sfp__ridge_keeps_all(m) ? GROWTH_FAST : GROWTH) * f->solved ||
           m->sums.weight >= 2 * f->weight || m->sums.weight < f->weight;
}

/* Returns whether the own solution is out of date: it lacks a class, or so many recent samples that it predicts worse. */
static bool is_behind(const sfp__ridge *m)
{
    return m->own.rows < m->base.rows || m->follow.pending * m->sums.weight * BEHIND >= m->sums.total;
}

/* Solves the own solution and inverts its matrix. */
static void solve_own(sfp__ridge *m)
{
    sfp__ridge_follow *f = &m->follow;
    sfp__ridge_solution *s = &m->own;
    int d = m->base.opt.dim;
    double n = m->sums.total;
    if (m->base.n >= 4 * s->chosen || sfp__ridge_keeps_all(m)) {
        sfp__ridge_choose_and_solve(m, s);
    } else {
        m->few = false;
        sfp__ridge_solve(m, s);
    }
    sfp__ridge_invert_solved(m);
    for (int i = 0; sfp__ridge_is_slda(m) && i < d * s->rows; i++)
        s->weight[i] /= n;
    if (sfp__ridge_is_slda(m))
        sfp__ridge_finish(m, s, n);
    f->solved = s->n = m->base.n;
    f->weight = m->sums.weight;
    f->kappa = sfp__ridge_is_slda(m) ? 1 - m->share : 1;
    clear_pending(m);
}

static void discard(const sfp__ridge *m, sfp__ridge_solution *s)
{
    size_t d = (size_t)m->base.opt.dim, rows = (size_t)s->rows;
    memset(s->weight, 0, d * rows * sizeof *s->weight);
    memset(s->gain, 0, rows * sizeof *s->gain);
    memset(s->bias, 0, rows * sizeof *s->bias);
    memset(s->centre, 0, d * sizeof *s->centre);
    s->n = s->chosen = s->rows = 0;
    sfp__ridge_reset_strength(m, s);
}

static void discard_own(sfp__ridge *m)
{
    sfp__ridge_follow *f = &m->follow;
    discard(m, &m->own);
    memset(f->inverse, 0, sfp__triangle_count(m->base.opt.dim) * sizeof *f->inverse);
    f->solved = 0;
    clear_pending(m);
}

/* Discards the solutions, which have other samples than the sums now. Values are cleared, because a state may contain them. */
static void ridge_sums_changed(sfp__head *h)
{
    sfp__ridge *m = (sfp__ridge *)h;
    discard_own(m);
    discard(m, &m->exact);
    m->factored = 0;
    sfp__novelty_clear(&m->novelty);
}

static sfp__sums *ridge_sums(sfp__head *h)
{
    return &((sfp__ridge *)h)->sums;
}

static void ridge_drop_samples(sfp__head *h)
{
    sfp__ridge *m = (sfp__ridge *)h;
    sfp__sums_drop_samples(&m->sums, m->exact.strength);
    discard_own(m);
}

static sfp_status ridge_refresh(sfp__head *h, bool exact, sfp_error *err)
{
    (void)err;
    sfp__ridge *m = (sfp__ridge *)h;
    if (exact && m->exact.n != h->n) {
        sfp__ridge_choose_and_solve(m, &m->exact);
        m->exact.n = h->n;
        sfp__novelty_fit(&m->novelty, &m->sums, h->rows, h->opt.threads);
    }
    if (exact || m->own.n == h->n)
        return SFP_OK;
    if (is_due(m)) {
        solve_own(m);
    } else if (is_behind(m)) {
        catch_up(m);
        m->own.n = h->n;
    }
    return SFP_OK;
}

static void ridge_score(sfp__head *h, int n, const float *q, bool exact, double *out)
{
    const sfp__ridge *m = (const sfp__ridge *)h;
    const sfp__ridge_solution *s = exact ? &m->exact : &m->own;
    for (int k = 0; k < n; k++, q += h->opt.dim, out += h->rows) {
        sfp__ridge_project(m, s, sfp__ridge_centred(m, s, q), out);
        for (int r = 0; r < h->rows; r++)
            out[r] = r < s->rows && s->bias[r] != sfp__ridge_never ? (s->gain[r] * out[r] + s->bias[r]) * s->strength[SFP__SCALE]
                                                                   : -INFINITY;
    }
}

static double ridge_scale(const sfp__head *h, bool exact)
{
    const sfp__ridge *m = (const sfp__ridge *)h;
    return (exact ? m->exact : m->own).strength[SFP__SCALE];
}

static const sfp__novelty *ridge_novelty(const sfp__head *h)
{
    return &((const sfp__ridge *)h)->novelty;
}

/* --------------------------------------------------------------- save, load */

static sfp_status visit_solution(sfp__ridge *m, sfp__ridge_solution *s, const sfp__visitor *v, sfp_error *err)
{
    const int64_t weight[] = {m->base.opt.dim, s->rows}, strengths = SFP__STRENGTHS;
    TRY(sfp__visit(v, "strength", SFP__DTYPE_F64, 1, &strengths, s->strength, err));
    TRY(sfp__visit(v, "weight", SFP__DTYPE_F64, 2, weight, s->weight, err));
    TRY(sfp__visit(v, "gain", SFP__DTYPE_F64, 1, weight + 1, s->gain, err));
    TRY(sfp__visit(v, "bias", SFP__DTYPE_F64, 1, weight + 1, s->bias, err));
    TRY(sfp__visit(v, "centre", SFP__DTYPE_F64, 1, weight, s->centre, err));
    double scaling = s->strength[SFP__SCALING];
    for (int p = SFP__LAMBDA; p <= SFP__SCALE; p++)
        if (!v->put && !(s->strength[p] >= 1e-9 && s->strength[p] < 1e9))
            return sfp__fail(err, SFP_EFORMAT, "%s: '%s.strength': value %d is %g, expected a number from 1e-9 to 1e9", v->file,
                             v->prefix, p, s->strength[p]);
    if (!v->put && scaling != SFP__RIDGE_STANDARD && scaling != SFP__RIDGE_SOFT && scaling != SFP__RIDGE_SOFTER)
        return sfp__fail(err, SFP_EFORMAT, "%s: '%s.strength': the scaling is %g, expected %d to %d", v->file, v->prefix, scaling,
                         SFP__RIDGE_STANDARD, SFP__RIDGE_SOFTER);
    return SFP_OK;
}

/* Visits what the own solution needs to continue. */
static sfp_status visit_follow(sfp__ridge *m, const sfp__visitor *v, sfp_error *err)
{
    sfp__ridge_follow *f = &m->follow;
    const sfp__head *h = &m->base;
    const int64_t counters = SFP__RIDGE_COUNTERS, one = 1;
    int64_t *counter = m->counter;
    counter[0] = m->own.n;
    counter[1] = m->own.rows;
    counter[2] = m->own.chosen;
    counter[3] = f->solved;
    counter[4] = f->pending;
    TRY(sfp__visit(v, "counter", SFP__DTYPE_I64, 1, &counters, counter, err));
    TRY(sfp__visit(v, "solved_weight", SFP__DTYPE_F64, 1, &one, &f->weight, err));
    TRY(sfp__visit(v, "kappa", SFP__DTYPE_F64, 1, &one, &f->kappa, err));
    bool valid = counter[1] >= 0 && counter[1] <= h->rows && counter[4] >= 0 && counter[4] <= PENDING;
    for (int i = 0; i < SFP__RIDGE_COUNTERS; i++)
        valid = valid && counter[i] >= 0 && (i == 1 || counter[i] <= h->n);
    if (!valid || !(f->weight >= 0 && f->kappa >= 0 && f->kappa <= 1))
        return sfp__fail(err, SFP_EFORMAT, "%s: '%s': counters are inconsistent", v->file, v->prefix);
    if (!v->put) { /* a predictor may read them during a write */
        m->own.n = counter[0];
        m->own.rows = (int)counter[1];
        m->own.chosen = counter[2];
        f->solved = counter[3];
        f->pending = (int)counter[4];
    }
    const int64_t inverse = (int64_t)sfp__triangle_count(h->opt.dim), u[] = {f->pending, h->opt.dim}, c[] = {h->rows, PENDING};
    TRY(sfp__visit(v, "inverse", SFP__DTYPE_F64, 1, &inverse, f->inverse, err));
    TRY(sfp__visit(v, "pending", SFP__DTYPE_F64, 2, u, f->u, err));
    TRY(sfp__visit(v, "pending_factor", SFP__DTYPE_F64, 1, u, f->s, err));
    TRY(sfp__visit(v, "pending_change", SFP__DTYPE_F64, 2, c, f->c, err));
    for (int i = 0; !v->put && i < f->pending; i++)
        if (!(f->s[i] >= 0))
            return sfp__fail(err, SFP_EFORMAT, "%s: '%s.pending_factor': value %d is %g, expected at least 0", v->file, v->prefix,
                             i, f->s[i]);
    return SFP_OK;
}

static sfp_status ridge_visit(sfp__head *h, const sfp__visitor *v, sfp_error *err)
{
    sfp__ridge *m = (sfp__ridge *)h;
    TRY(visit_follow(m, v, err));
    TRY(visit_solution(m, &m->own, v, err));
    return sfp__sums_visit(&m->sums, h->rows, h->count, v, err);
}

static sfp_status ridge_visit_inference(sfp__head *h, const sfp__visitor *v, sfp_error *err)
{
    sfp__ridge *m = (sfp__ridge *)h;
    if (!v->put) {
        m->exact.rows = h->rows;
        m->exact.n = h->n;
    }
    TRY(visit_solution(m, &m->exact, v, err));
    return sfp__novelty_visit(&m->novelty, h->rows, v, err);
}

#define KIND(word)                                                                                                        \
    {                                                                                                                     \
        .name = word, .size = sizeof(sfp__ridge), .init = ridge_init, .done = ridge_done, .grow = ridge_grow,             \
        .learn = ridge_learn, .sums = ridge_sums, .sums_changed = ridge_sums_changed, .drop_samples = ridge_drop_samples, \
        .refresh = ridge_refresh, .score = ridge_score, .judge = sfp__ridge_judge, .scale = ridge_scale,                  \
        .novelty = ridge_novelty, .visit = ridge_visit, .visit_inference = ridge_visit_inference                          \
    }
const sfp__head_kind sfp__head_ridge = KIND("ridge"), sfp__head_slda = KIND("slda");
