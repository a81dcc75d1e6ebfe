/* RanPAC (McDonnell et al., NeurIPS 2023): ridge regression from a random ReLU projection of the query to the one-hot label,
 * solved online and exactly.
 *
 *     phi = relu(q R), R (D, M) normal (several taps are normalised first);  W = (Phi^T Phi + lambda I)^-1 Phi^T Y
 *
 * A factorisation of the (M, M) system costs M^3/3 (21 GFLOP at M = 4000), so it is not computed for every batch. Samples are
 * stored in two parts:
 *
 *     base    Samples folded into G = sum phi^T phi and C = sum phi^T y, with a factor G + lambda I = L L^T; initially empty (L =
 *             sqrt(lambda) I).
 *     recent  p samples stored as queries, which correct the solution of the base:
 *
 *     Z = Phi_recent L^-T                      (p, M)
 *     I + Z Z^T = F F^T                        (p, p), grows by rows with each sample
 *     U = C L^-T                               (classes, M)
 *     W = (U + (Y_recent^T - U Z^T) (I + Z Z^T)^-1 Z) L^-1
 *
 * This is Woodbury's identity in residual form, always the exact ridge solution of all samples. With an empty base it is the dual
 * (kernel) form, so the first M/2 samples need no (M, M) matrix. When `recent` is full, it is folded into the base and the factor
 * is recomputed, once every M/4 samples.
 *
 * Choice of lambda: every tenth sample enters a reservoir of 128 held-out samples (uniform over the stream, so that old classes
 * stay represented under drift). Whenever the number of samples has doubled, ridges are fitted without the reservoir, for
 * powers of ten around s = mean |phi|^2. They range from s 1e-6 to s 1e3 (for usual features about 1e-1 to 1e8). The lambda
 * with the smallest squared error on the reservoir is chosen: among all powers while that is cheap, else downhill from the last
 * choice. The final solution also uses the reservoir, so no sample is lost. Before the first choice (40 samples) lambda is
 * about s/100. A lambda that is too small for a float factorisation is multiplied by ten. Log-probabilities are softmax(scale *
 * W phi), because regression outputs are close to 0 and 1; `scale` is fitted on the same held-out predictions.
 *
 * Cost at M = 4000: 2 D M FLOP to project a sample; M^2 FLOP per sample (forward substitution) and M^2 per class to refresh;
 * every 1000 samples a fold and a factorisation (16 + 21 GFLOP); 3 to 10 factorisations for a choice of lambda, at doublings.
 * Memory: G and L 64 MB each, Z 32 MB, F 16 MB, reserved at once but touched only when used.
 *
 * This file has the learned part; head_ranpac_solve.c computes the derived part. The derived part is computed in fixed groups of
 * GRAIN rows, so that it is a function of the saved part, regardless of when it was refreshed. Only lambda, scale and what is
 * folded depend on when scores were needed; they are saved. */
#include "learner/heads/head_ranpac.h"

#include "base/mem.h"
#include "base/rng.h"
#include "compute/gemm.h"

#include <math.h>
#include <string.h>

enum { GRAIN = SFP__RANPAC_GRAIN, HELD = SFP__RANPAC_HELD, HELD_EVERY = 10, FIRST_CHOICE = 40 };
enum { STREAM_PROJECT = 1, STREAM_HELD = 2 }; /* streams of the random generator */
enum { BLOCK = 512 };                         /* rows of G per product; omitting the blocks above the diagonal halves the cost */

static int round_up(int n)
{
    return (n + GRAIN - 1) / GRAIN * GRAIN;
}

/* Draws the projection for the seed, and releases the previous one. */
static sfp_status draw_projection(sfp__ranpac *m, sfp_error *err)
{
    sfp__rng rng = sfp__rng_init((uint64_t)m->setup[SFP__RANPAC_SEED], STREAM_PROJECT);
    size_t count = (size_t)m->base.opt.dim * (size_t)m->width;
    float *r = sfp__malloc(count * sizeof *r);
    TRY(sfp__check_memory(r, err));
    for (size_t i = 0; i < count; i++)
        r[i] = (float)sfp__rng_normal(&rng);
    sfp__free(m->project);
    m->project = r;
    return SFP_OK;
}

static sfp_status ranpac_init(sfp__head *h, sfp_error *err)
{
    sfp__ranpac *m = (sfp__ranpac *)h;
    m->width = h->opt.ranpac_width;
    m->first = round_up(m->width / 2 > 2 * GRAIN ? m->width / 2 : 2 * GRAIN);
    m->later = HELD + round_up(m->width / 4 > GRAIN ? m->width / 4 : GRAIN);
    m->cap = m->first > m->later ? m->first : m->later;
    m->side = m->width > m->cap ? m->width : m->cap;
    m->setup[SFP__RANPAC_SEED] = (int64_t)h->opt.seed;
    m->setup[SFP__RANPAC_WIDTH] = m->width;
    m->counter[SFP__RANPAC_NEXT_CHOICE] = FIRST_CHOICE;
    m->strength[SFP__RANPAC_SCALE] = 10;
    size_t w = (size_t)m->width, d = (size_t)h->opt.dim, cap = (size_t)m->cap, side = (size_t)m->side, f = sizeof(float);
    TRY(sfp__check_memory((m->query = sfp__malloc(cap * d * f)) && (m->row = sfp__malloc(cap * sizeof *m->row)) &&
                              (m->slot = sfp__malloc(cap * sizeof *m->slot)) && (m->gram = sfp__malloc(side * side * f)) &&
                              (m->factor = sfp__malloc(side * side * f)) && (m->z = sfp__malloc(cap * w * f)) &&
                              (m->small = sfp__malloc(cap * cap * f)) &&
                              (m->piece = sfp__malloc(SFP__HEAD_GRAIN * (w > d ? w : d) * f)),
                          err));
    if (h->opt.tap_dim < h->opt.dim)
        TRY(sfp__alloc(&m->normed, SFP__HEAD_GRAIN * d, sizeof *m->normed, err));
    return draw_projection(m, err);
}

static void ranpac_done(sfp__head *h)
{
    sfp__ranpac *m = (sfp__ranpac *)h;
    void *blocks[] = {m->query, m->row,  m->slot,   m->gram,  m->target, m->factor,     m->start,   m->z,
                      m->small, m->dual, m->weight, m->piece, m->scored, m->contiguous, m->project, m->normed};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        sfp__free(blocks[i]);
}

static sfp_status ranpac_grow(sfp__head *h, int capacity, sfp_error *err)
{
    sfp__ranpac *m = (sfp__ranpac *)h;
    size_t f = sizeof(float), row = (size_t)m->width * f, old = (size_t)h->capacity, count = (size_t)capacity;
    TRY(sfp__check_memory(sfp__head_extend(&m->target, row, old, count) && sfp__head_extend(&m->start, row, old, count) &&
                              sfp__head_extend(&m->weight, (size_t)m->side * f, old, count) &&
                              sfp__head_extend(&m->dual, (size_t)m->cap * f, old, count) &&
                              sfp__head_extend(&m->scored, SFP__HEAD_GRAIN * f, old, count),
                          err));
    return SFP_OK;
}

/* --------------------------------------------------------------- projection */

/* Writes each tap with mean 0 and variance 1 over its entries to m->normed: earlier blocks have other magnitudes than later ones. */
static void normalise_taps(const sfp__ranpac *m, int n, const float *q)
{
    size_t d = (size_t)m->base.opt.tap_dim, taps = (size_t)n * (size_t)m->base.opt.dim / d;
    for (size_t t = 0; t < taps; t++, q += d) {
        double sum = 0, square = 0;
        for (size_t i = 0; i < d; i++)
            sum += (double)q[i];
        for (size_t i = 0; i < d; i++)
            square += ((double)q[i] - sum / (double)d) * ((double)q[i] - sum / (double)d);
        double scale = square > 0 ? 1 / sqrt(square / (double)d) : 0;
        for (size_t i = 0; i < d; i++)
            m->normed[t * d + i] = (float)(((double)q[i] - sum / (double)d) * scale);
    }
}

void sfp__ranpac_project(const sfp__ranpac *m, int n, const float *q, float *phi)
{
    int w = m->width, d = m->base.opt.dim;
    if (m->normed) {
        normalise_taps(m, n, q);
        q = m->normed;
    }
    sfp__gemm_plain(false, false, n, w, d, q, d, m->project, w, 0.0f, phi, w);
    size_t count = (size_t)n * (size_t)w;
    for (size_t i = 0; i < count; i++)
        phi[i] = phi[i] > 0 ? phi[i] : 0;
}

int sfp__ranpac_project_recent(sfp__ranpac *m, bool held, float *phi)
{
    size_t d = (size_t)m->base.opt.dim;
    int n = 0, gathered = 0;
    for (int i = 0; i < m->recent; i++) {
        if ((m->slot[i] >= 0) == held)
            memcpy(m->piece + (size_t)gathered++ * d, m->query + (size_t)i * d, d * sizeof *m->piece);
        if (gathered == GRAIN || (gathered > 0 && i + 1 == m->recent)) {
            sfp__ranpac_project(m, gathered, m->piece, phi + (size_t)n * (size_t)m->width);
            n += gathered;
            gathered = 0;
        }
    }
    return n;
}

/* -------------------------------------------------------------------- learn */

void sfp__ranpac_fold(sfp__ranpac *m)
{
    int w = m->width, n = sfp__ranpac_project_recent(m, false, m->z), kept = 0;
    size_t d = (size_t)m->base.opt.dim, width = (size_t)w;
    if (!sfp__ranpac_has_base(m))
        memset(m->gram, 0, width * width * sizeof *m->gram);
    for (int i = 0; n > 0 && i < w; i += BLOCK) {
        int rows = w - i < BLOCK ? w - i : BLOCK;
        sfp__gemm_plain(true, false, rows, i + rows, n, m->z + i, w, m->z, w, 1.0f, m->gram + (size_t)i * width, w);
    }
    const float *phi = m->z;
    for (int i = 0; i < m->recent; i++) {
        if (m->slot[i] >= 0) {
            memmove(m->query + (size_t)kept * d, m->query + (size_t)i * d, d * sizeof *m->query);
            m->row[kept] = m->row[i];
            m->slot[kept++] = m->slot[i];
            continue;
        }
        float *target = m->target + (size_t)m->row[i] * width;
        for (size_t j = 0; j < width; j++)
            target[j] += phi[j];
        phi += width;
    }
    m->counter[SFP__RANPAC_FOLDED] += n;
    m->recent = kept;
    m->done = 0;
    m->factored = false;
}

/* Returns the position of sample number n of the stream in the reservoir; -1: none. It is a function of n, so that no generator
 * has to be saved. */
static int64_t held_slot(const sfp__ranpac *m, int64_t n)
{
    if (n % HELD_EVERY != HELD_EVERY - 1)
        return -1;
    int64_t k = n / HELD_EVERY;
    if (k < HELD)
        return k;
    sfp__rng rng = sfp__rng_init((uint64_t)m->setup[SFP__RANPAC_SEED], STREAM_HELD);
    rng.counter = (uint64_t)k;
    double slot = floor(sfp__rng_double(&rng) * (double)(k + 1));
    return slot < HELD ? (int64_t)slot : -1;
}

/* Returns the maximum number of recent samples before a fold. */
static int recent_limit(const sfp__ranpac *m)
{
    return sfp__ranpac_has_base(m) ? m->later : m->first;
}

static void ranpac_learn(sfp__head *h, const float *q, int row, uint64_t key)
{
    (void)key;
    sfp__ranpac *m = (sfp__ranpac *)h;
    if (m->recent >= recent_limit(m))
        sfp__ranpac_fold(m);
    int64_t slot = held_slot(m, h->n);
    for (int i = 0; slot >= 0 && i < m->recent; i++)
        if (m->slot[i] == slot)
            m->slot[i] = -1; /* an ordinary sample from now on: the next fold includes it */
    memcpy(m->query + (size_t)m->recent * (size_t)h->opt.dim, q, (size_t)h->opt.dim * sizeof *q);
    m->row[m->recent] = row;
    m->slot[m->recent++] = slot;
}

/* -------------------------------------------------------------------- score */

static sfp_status ranpac_refresh(sfp__head *h, bool exact, sfp_error *err)
{
    (void)exact;
    sfp__ranpac *m = (sfp__ranpac *)h;
    return m->solved == h->n ? SFP_OK : sfp__ranpac_solve(m, err);
}

static void ranpac_score(sfp__head *h, int n, const float *q, bool exact, double *out)
{
    (void)exact;
    sfp__ranpac *m = (sfp__ranpac *)h;
    int w = m->width;
    sfp__ranpac_project(m, n, q, m->piece);
    sfp__gemm_plain(false, true, n, h->rows, w, m->piece, w, m->weight, m->side, 0.0f, m->scored, h->rows);
    size_t count = (size_t)n * (size_t)h->rows;
    for (size_t i = 0; i < count; i++)
        out[i] = m->strength[SFP__RANPAC_SCALE] * (double)m->scored[i];
}

/* --------------------------------------------------------------- save, load */

/* Returns false for values that no stream can produce: the file was edited or damaged. */
static bool plausible(const sfp__ranpac *m)
{
    size_t values = (size_t)m->recent * (size_t)m->base.opt.dim;
    bool held[HELD] = {false};
    bool fine = m->recent <= recent_limit(m) && m->counter[SFP__RANPAC_FOLDED] == m->base.n - m->recent &&
                m->counter[SFP__RANPAC_NEXT_CHOICE] > 0 && m->strength[SFP__RANPAC_LAMBDA] >= 0 &&
                m->strength[SFP__RANPAC_SCALE] > 0 && m->strength[SFP__RANPAC_SCALE] < 1e3;
    for (int i = 0; i < m->recent; i++) {
        fine &= m->row[i] >= 0 && m->row[i] < m->base.rows && m->slot[i] >= -1 && m->slot[i] < HELD;
        if (fine && m->slot[i] >= 0) { /* a fold keeps every sample with a slot, so each slot has at most one */
            fine = !held[m->slot[i]];
            held[m->slot[i]] = true;
        }
    }
    for (size_t i = 0; i < values; i++)
        fine &= fabsf(m->query[i]) <= SFP__HEAD_VALUE_MAX;
    return fine;
}

static sfp_status visit_setup(sfp__ranpac *m, const sfp__visitor *v, sfp_error *err)
{
    const int64_t two = 2;
    TRY(sfp__visit(v, "setup", SFP__DTYPE_I64, 1, &two, m->setup, err));
    if (m->setup[SFP__RANPAC_WIDTH] != m->width)
        return sfp__fail(err, SFP_ESHAPE, "%s: '%s': width of the projection is %lld, expected %d", v->file, v->prefix,
                         (long long)m->setup[SFP__RANPAC_WIDTH], m->width);
    return SFP_OK;
}

/* Draws the projection of the loaded setup, if its seed differs. */
static sfp_status use_saved_seed(sfp__ranpac *m, sfp_error *err)
{
    if (m->setup[SFP__RANPAC_SEED] == (int64_t)m->base.opt.seed)
        return SFP_OK;
    m->base.opt.seed = (uint64_t)m->setup[SFP__RANPAC_SEED];
    return draw_projection(m, err);
}

/* Reads the number of samples in the file that are not folded into its base. */
static sfp_status read_recent(sfp__ranpac *m, const sfp__visitor *v, sfp_error *err)
{
    const sfp__tensor *t = NULL;
    TRY(sfp__visit_find(v, "row", SFP__DTYPE_I64, &t, err));
    if (t->count > (size_t)m->cap)
        return sfp__fail(err, SFP_EFORMAT, "%s: '%s': number of recent samples is %zu, expected at most %d", v->file, v->prefix,
                         t->count, m->cap);
    m->recent = (int)t->count;
    return SFP_OK;
}

static sfp_status ranpac_visit(sfp__head *h, const sfp__visitor *v, sfp_error *err)
{
    sfp__ranpac *m = (sfp__ranpac *)h;
    TRY(visit_setup(m, v, err));
    if (!v->put)
        TRY(read_recent(m, v, err));
    bool folded = v->put ? sfp__ranpac_has_base(m) : h->n > m->recent;
    const int64_t two = 2, query[] = {m->recent, h->opt.dim}, gram[] = {folded ? m->width : 0, m->width},
                  target[] = {folded ? h->rows : 0, m->width};
    TRY(sfp__visit(v, "counter", SFP__DTYPE_I64, 1, &two, m->counter, err));
    TRY(sfp__visit(v, "strength", SFP__DTYPE_F64, 1, &two, m->strength, err));
    TRY(sfp__visit(v, "query", SFP__DTYPE_F32, 2, query, m->query, err));
    TRY(sfp__visit(v, "row", SFP__DTYPE_I64, 1, query, m->row, err));
    TRY(sfp__visit(v, "slot", SFP__DTYPE_I64, 1, query, m->slot, err));
    TRY(sfp__visit(v, "gram", SFP__DTYPE_F32, 2, gram, m->gram, err));
    TRY(sfp__visit(v, "target", SFP__DTYPE_F32, 2, target, m->target, err));
    if (v->put)
        return SFP_OK;
    if (!plausible(m))
        return sfp__fail(err, SFP_EFORMAT, "%s: '%s': counters, classes and samples are inconsistent", v->file, v->prefix);
    return use_saved_seed(m, err);
}

/* Allocates m->contiguous for the current rows. */
static sfp_status alloc_contiguous(sfp__ranpac *m, sfp_error *err)
{
    size_t floats = (size_t)m->width * (size_t)(m->base.rows > 0 ? m->base.rows : 1);
    float *contiguous = sfp__malloc(floats * sizeof *contiguous);
    TRY(sfp__check_memory(contiguous, err));
    sfp__free(m->contiguous);
    m->contiguous = contiguous;
    return SFP_OK;
}

static sfp_status ranpac_visit_inference(sfp__head *h, const sfp__visitor *v, sfp_error *err)
{
    sfp__ranpac *m = (sfp__ranpac *)h;
    const int64_t two = 2, shape[] = {h->rows, m->width};
    size_t width = (size_t)m->width, side = (size_t)m->side, rows = (size_t)h->rows;
    TRY(alloc_contiguous(m, err));
    for (size_t r = 0; v->put && r < rows; r++)
        memcpy(m->contiguous + r * width, m->weight + r * side, width * sizeof *m->contiguous);
    TRY(visit_setup(m, v, err));
    TRY(sfp__visit(v, "strength", SFP__DTYPE_F64, 1, &two, m->strength, err));
    TRY(sfp__visit(v, "weight", SFP__DTYPE_F32, 2, shape, m->contiguous, err));
    if (v->put)
        return SFP_OK;
    for (size_t r = 0; r < rows; r++)
        memcpy(m->weight + r * side, m->contiguous + r * width, width * sizeof *m->weight);
    m->solved = h->n;
    return use_saved_seed(m, err);
}

static double ranpac_scale(const sfp__head *h, bool exact)
{
    (void)exact;
    return ((const sfp__ranpac *)h)->strength[SFP__RANPAC_SCALE];
}

const sfp__head_kind sfp__head_ranpac = {
    .name = "ranpac",
    .saves_solution = true,
    .size = sizeof(sfp__ranpac),
    .init = ranpac_init,
    .done = ranpac_done,
    .grow = ranpac_grow,
    .learn = ranpac_learn,
    .refresh = ranpac_refresh,
    .score = ranpac_score,
    .scale = ranpac_scale,
    .visit = ranpac_visit,
    .visit_inference = ranpac_visit_inference,
};
