/* Rows are processed in chunks of CHUNK components of one layer: a chunk is a piece of work of the thread pool and the rows of
 * one matrix product. */
#include "fingerprint/attune.h"

#include "base/mem.h"
#include "compute/gemm.h"
#include "compute/kernels.h"
#include "compute/vec.h"

#include <math.h>
#include <string.h>

enum { MAPS = SFP__ATTUNE_MAPS, CHUNK = 16 };

typedef struct worker {
    float *h, *g, *y; /* (CHUNK*Lp, D) each */
} worker;

/* The division of [0, active_end) into chunks: first the frozen components, then the active ones. */
typedef struct chunking {
    int frozen_end, active_end, frozen_chunks, chunks;
} chunking;

struct sfp__attune {
    sfp__attune_options opt;
    int D;
    sfp__thread_pool *threads;
    const sfp__kernels *kernels;
    sfp__gemm_weight *k[MAPS], *v[MAPS], *k_t[MAPS], *v_t[MAPS];
    sfp__gemm_op *op_k[CHUNK + 1], *op_v[CHUNK + 1], *op_k_t[CHUNK + 1], *op_v_t[CHUNK + 1]; /* by number of components */
    float *map;          /* (layers, pool, MAPS, Lp, D): outputs of the maps */
    float *der;          /* (layers, learning, MAPS, Lp, D) derivatives of GELU, in panels per chunk */
    float *gate;         /* (layers, pool, Lp, MAPS) */
    float *part;         /* (layers, chunks, MAPS*D + MAPS): partial sums of the gate's gradient */
    int *valid;          /* (layers): maps of components [0, valid) belong to frozen values and need no update */
    chunking *chunkings; /* (layers) division used by the current call */
    int chunks;          /* maximum number of chunks per layer */
    worker *workers;
    void *block, *scratch; /* memory of the arrays; of the workers */
};

/* -------------------------------------------------------- creating and freeing */

/* Packs the maps of a block. */
static sfp_status create_map(sfp__attune *a, int r, const sfp__vit_block_weights *b, sfp_error *err)
{
    size_t D = (size_t)a->D;
    const float *wk = b->qkv_w + D * D, *wv = b->qkv_w + 2 * D * D;
    const struct {
        sfp__gemm_weight **slot;
        sfp__gemm_weight_desc d;
    } list[] = {{&a->k[r], {.n = a->D, .k = a->D, .w = wk, .bias = b->qkv_b + D}},
                {&a->v[r], {.n = a->D, .k = a->D, .w = wv, .bias = b->qkv_b + 2 * D}},
                {&a->k_t[r], {.n = a->D, .k = a->D, .w = wk, .transposed = true}},
                {&a->v_t[r], {.n = a->D, .k = a->D, .w = wv, .transposed = true}}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        TRY(sfp__gemm_weight_create(&list[i].d, list[i].slot, err));
    return SFP_OK;
}

static sfp_status create_arrays(sfp__attune *a, sfp__vit *vit, sfp_error *err)
{
    const sfp__vit_config *c = &vit->config;
    size_t D = (size_t)c->dim, rows = CHUNK * (size_t)a->opt.length;
    for (int r = 0; r < MAPS; r++) {
        int block = c->depth - MAPS + r;
        TRY(sfp__vit_hold(vit, block, SFP__VIT_QKV, err));
        sfp_status status = create_map(a, r, &vit->weights.blocks[block], err);
        sfp__vit_unhold(vit, block, SFP__VIT_QKV);
        TRY(status);
    }
    size_t layers = (size_t)a->opt.layers, pool = (size_t)a->opt.pool, Lp = (size_t)a->opt.length;
    size_t threads = (size_t)sfp__thread_pool_size(a->threads);
    a->chunks = (a->opt.pool + CHUNK - 1) / CHUNK + 1; /* one more, because frozen and active components are in separate chunks */
    const sfp__want list[] = {{&a->map, layers * pool * MAPS * Lp * D, sizeof(float)},
                              {&a->der, layers * (size_t)a->opt.learning * MAPS * Lp * D, sizeof(float)},
                              {&a->gate, layers * pool * Lp * MAPS, sizeof(float)},
                              {&a->part, layers * (size_t)a->chunks * (MAPS * D + MAPS), sizeof(float)},
                              {&a->valid, layers, sizeof *a->valid},
                              {&a->chunkings, layers, sizeof *a->chunkings},
                              {&a->workers, threads, sizeof *a->workers}};
    TRY(sfp__block_cleared(&a->block, SFP__LIST(list), err));
    float *x;
    const sfp__want scratch = {&x, threads * 3 * rows * D, sizeof *x};
    TRY(sfp__block(&a->scratch, 1, &scratch, err));
    for (size_t i = 0; i < threads; i++, x += 3 * rows * D)
        a->workers[i] = (worker){x, x + rows * D, x + 2 * rows * D};
    return SFP_OK;
}

sfp_status sfp__attune_create(sfp__vit *vit, sfp__thread_pool *threads, const sfp__attune_options *opt, sfp__attune **out,
                              sfp_error *err)
{
    if (vit->config.depth < MAPS)
        return sfp__fail_key(err, "attune", SFP_EINVAL,
                             "attune is on, expected off with a backbone of %d blocks: attunement needs at least %d",
                             vit->config.depth, MAPS);
    if (opt->topk < 1 || opt->topk > MAPS)
        return sfp__fail_key(err, "attune-topk", SFP_EINVAL, "attune-topk is %d, expected 1 to %d", opt->topk, MAPS);
    OWNED_PTR(sfp__attune_free) sfp__attune *a = NULL;
    TRY(sfp__alloc(&a, 1, sizeof *a, err));
    a->opt = *opt;
    a->D = vit->config.dim;
    a->threads = threads;
    a->kernels = sfp__kernels_get();
    TRY(create_arrays(a, vit, err));
    *out = TAKE(a);
    return SFP_OK;
}

void sfp__attune_free(sfp__attune *a)
{
    if (!a)
        return;
    for (int r = 0; r < MAPS; r++) {
        sfp__gemm_weight_free(a->k[r]);
        sfp__gemm_weight_free(a->v[r]);
        sfp__gemm_weight_free(a->k_t[r]);
        sfp__gemm_weight_free(a->v_t[r]);
    }
    for (int i = 0; i <= CHUNK; i++) {
        sfp__gemm_op_free(a->op_k[i]);
        sfp__gemm_op_free(a->op_v[i]);
        sfp__gemm_op_free(a->op_k_t[i]);
        sfp__gemm_op_free(a->op_v_t[i]);
    }
    sfp__free(a->scratch);
    sfp__free(a->block);
    sfp__free(a);
}

void sfp__attune_invalidate(sfp__attune *a)
{
    memset(a->valid, 0, (size_t)a->opt.layers * sizeof *a->valid);
}

static sfp_status need_ops(sfp__attune *a, int comps, sfp_error *err)
{
    int m = comps * a->opt.length, lanes = sfp__thread_pool_size(a->threads);
    const struct {
        sfp__gemm_op **op;
        const sfp__gemm_weight *like;
    } list[] = {
        {&a->op_k[comps], a->k[0]}, {&a->op_v[comps], a->v[0]}, {&a->op_k_t[comps], a->k_t[0]}, {&a->op_v_t[comps], a->v_t[0]}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (!*list[i].op)
            TRY(sfp__gemm_op_create(list[i].like, m, lanes, list[i].op, err));
    return SFP_OK;
}

/* -------------------------------------------------------------------- chunks */

/* Divides every layer into chunks; returns the maximum number of chunks per layer. */
static int divide_layers(sfp__attune *a, const sfp__attune_layer *layer)
{
    int max_chunks = 0;
    for (int l = 0; l < a->opt.layers; l++) {
        int frozen_end = layer[l].frozen_end, active_end = layer[l].active_end, frozen = (frozen_end + CHUNK - 1) / CHUNK;
        a->chunkings[l] = (chunking){frozen_end, active_end, frozen, frozen + (active_end - frozen_end + CHUNK - 1) / CHUNK};
        max_chunks = a->chunkings[l].chunks > max_chunks ? a->chunkings[l].chunks : max_chunks;
    }
    return max_chunks;
}

static void chunk_at(const chunking *c, int i, int *first, int *n, bool *is_active)
{
    *is_active = i >= c->frozen_chunks;
    *first = *is_active ? c->frozen_end + (i - c->frozen_chunks) * CHUNK : i * CHUNK;
    int end = *is_active ? c->active_end : c->frozen_end;
    *n = end - *first < CHUNK ? end - *first : CHUNK;
}

static float *map_at(const sfp__attune *a, int layer, int comp, int r)
{
    size_t Lp = (size_t)a->opt.length;
    return a->map + (((size_t)layer * (size_t)a->opt.pool + (size_t)comp) * MAPS + (size_t)r) * Lp * (size_t)a->D;
}

/* Returns the derivatives of map r of an active chunk: n*Lp rows in panels, contiguous. */
static float *der_at(const sfp__attune *a, int layer, int offset, int n, int r)
{
    size_t comp = (size_t)a->opt.length * (size_t)a->D;
    return a->der + ((size_t)layer * (size_t)a->opt.learning + (size_t)offset) * MAPS * comp + (size_t)r * (size_t)n * comp;
}

static float *gate_at(const sfp__attune *a, int layer, int comp)
{
    return a->gate + ((size_t)layer * (size_t)a->opt.pool + (size_t)comp) * (size_t)a->opt.length * MAPS;
}

/* g = softmax over the topk largest of W p + b (ties: lower index); the others are 0. */
static void gate_row(const sfp__attune *a, const float *p, const float *w, const float *b, float *g)
{
    float z[MAPS], kept[MAPS], sum = 0;
    bool keep[MAPS] = {false};
    for (int r = 0; r < MAPS; r++)
        z[r] = b[r] + sfp__dot(a->D, w + r * a->D, p);
    float top = 0;
    for (int k = 0; k < a->opt.topk; k++) {
        int best = -1;
        for (int r = 0; r < MAPS; r++)
            if (!keep[r] && (best < 0 || z[r] > z[best]))
                best = r;
        keep[best] = true;
        top = k == 0 ? z[best] : top;
    }
    for (int r = 0; r < MAPS; r++)
        sum += kept[r] = keep[r] ? expf(z[r] - top) : 0;
    for (int r = 0; r < MAPS; r++)
        g[r] = kept[r] / sum;
}

typedef struct job {
    sfp__attune *a;
    int chunks; /* maximum number of chunks per layer; some layers have fewer */
    const sfp__attune_layer *layer;
    const float *gate_w, *gate_b;
} job;

/* Computes the maps of n components from `first` on of a layer. offset >= 0: the components are active, and derivatives are
 * stored. */
static void run_maps(const job *j, int layer, int first, int n, int offset, int lane)
{
    sfp__attune *a = j->a;
    worker *w = &a->workers[lane];
    int D = a->D, Lp = a->opt.length, m = n * Lp;
    const float *p = j->layer[layer].p + (size_t)first * (size_t)Lp * (size_t)D;
    for (int r = 0; r < MAPS; r++) {
        float *h = offset >= 0 ? der_at(a, layer, offset, n, r) : w->h;
        sfp__gemm_run(a->op_k[n], lane, a->k[r], p, h);
        a->kernels->gelu_fwd(m, D, h, sfp__gemm_panel(a->k[r]), offset >= 0, w->g);
        sfp__gemm_run(a->op_v[n], lane, a->v[r], w->g, w->y);
        int pw = sfp__gemm_panel(a->v[r]);
        for (int row = 0; row < m; row++) {
            float *to = map_at(a, layer, first + row / Lp, r) + (size_t)(row % Lp) * (size_t)D;
            for (int c = 0; c < D; c += pw)
                memcpy(to + c, w->y + (size_t)c * (size_t)m + (size_t)row * (size_t)pw, (size_t)pw * sizeof *to);
        }
    }
}

static void forward_piece(void *ctx, int piece, int lane)
{
    const job *j = ctx;
    sfp__attune *a = j->a;
    int layer = piece / j->chunks, first, n, D = a->D, Lp = a->opt.length;
    const chunking *c = &a->chunkings[layer];
    bool is_active;
    if (piece % j->chunks >= c->chunks)
        return;
    chunk_at(c, piece % j->chunks, &first, &n, &is_active);
    int token = sfp__gemm_enter();
    if (is_active || first + n > a->valid[layer])
        run_maps(j, layer, first, n, is_active ? first - c->frozen_end : -1, lane);
    sfp__gemm_leave(token);
    for (int k = first; k < first + n; k++)
        for (int i = 0; i < Lp; i++) {
            size_t at = ((size_t)k * (size_t)Lp + (size_t)i) * (size_t)D;
            const float *p = j->layer[layer].p + at;
            float *g = gate_at(a, layer, k) + i * MAPS, *out = j->layer[layer].out + at;
            const float *y[MAPS];
            gate_row(a, p, j->gate_w, j->gate_b, g);
            for (int r = 0; r < MAPS; r++)
                y[r] = map_at(a, layer, k, r) + (size_t)i * (size_t)D;
            for (int d = 0; d < D; d++)
                out[d] = (a->opt.residual ? p[d] : 0) + g[0] * y[0][d] + g[1] * y[1][d] + g[2] * y[2][d];
        }
}

sfp_status sfp__attune_fwd(sfp__attune *a, const sfp__attune_layer *layer, const sfp__param *gate_w, const sfp__param *gate_b,
                           sfp_error *err)
{
    job j = {.a = a, .chunks = divide_layers(a, layer), .layer = layer, .gate_w = gate_w->data, .gate_b = gate_b->data};
    for (int l = 0; l < a->opt.layers; l++) {
        int frozen_end = layer[l].frozen_end, learning = layer[l].active_end - frozen_end;
        const int sizes[] = {CHUNK, frozen_end % CHUNK, learning % CHUNK};
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            if (sizes[i])
                TRY(need_ops(a, sizes[i], err));
    }
    unsigned failures = sfp__gemm_failures();
    sfp__thread_pool_run(a->threads, a->opt.layers * j.chunks, forward_piece, &j);
    TRY(sfp__gemm_check(failures, err));
    for (int l = 0; l < a->opt.layers; l++)
        a->valid[l] = layer[l].frozen_end;
    return SFP_OK;
}

/* ------------------------------------------------------------------ backward */

/* The gradient through the maps of an active chunk: dp += K_r^T (gelu' * V_r^T (g_r dout)). */
static void maps_backward(const job *j, int layer, int first, int n, int lane)
{
    sfp__attune *a = j->a;
    worker *w = &a->workers[lane];
    int D = a->D, Lp = a->opt.length, m = n * Lp;
    size_t at = (size_t)first * (size_t)Lp * (size_t)D;
    const float *dout = j->layer[layer].dout + at, *g = gate_at(a, layer, first);
    float *dp = j->layer[layer].dp + at;
    for (int r = 0; r < MAPS; r++) {
        for (int row = 0; row < m; row++)
            for (int c = 0; c < D; c++)
                w->g[row * D + c] = dout[row * D + c] * g[row * MAPS + r];
        sfp__gemm_run(a->op_v_t[n], lane, a->v_t[r], w->g, w->h);
        a->kernels->gelu_bwd(m, D, w->h, der_at(a, layer, first - a->chunkings[layer].frozen_end, n, r),
                             sfp__gemm_panel(a->v_t[r]), w->g);
        sfp__gemm_run(a->op_k_t[n], lane, a->k_t[r], w->g, w->y);
        int pw = sfp__gemm_panel(a->k_t[r]);
        for (int c0 = 0; c0 < D; c0 += pw)
            for (int row = 0; row < m; row++)
                for (int c = 0; c < pw; c++)
                    dp[row * D + c0 + c] += w->y[c0 * m + row * pw + c];
    }
    for (int i = 0; a->opt.residual && i < m * D; i++)
        dp[i] += dout[i];
}

static void backward_piece(void *ctx, int piece, int lane)
{
    const job *j = ctx;
    sfp__attune *a = j->a;
    int layer = piece / j->chunks, chunk = piece % j->chunks, first, n, D = a->D, Lp = a->opt.length;
    bool is_active;
    if (chunk >= a->chunkings[layer].chunks)
        return;
    chunk_at(&a->chunkings[layer], chunk, &first, &n, &is_active);
    float *dw = a->part + ((size_t)layer * (size_t)a->chunks + (size_t)chunk) * (size_t)(MAPS * D + MAPS), *db = dw + MAPS * D;
    memset(dw, 0, (size_t)(MAPS * D + MAPS) * sizeof *dw);
    if (is_active) {
        int token = sfp__gemm_enter();
        maps_backward(j, layer, first, n, lane);
        sfp__gemm_leave(token);
    }
    for (int k = first; k < first + n; k++)
        for (int i = 0; i < Lp; i++) {
            size_t at = ((size_t)k * (size_t)Lp + (size_t)i) * (size_t)D;
            const float *p = j->layer[layer].p + at, *dout = j->layer[layer].dout + at, *g = gate_at(a, layer, k) + i * MAPS;
            float dg[MAPS], mean = 0;
            for (int r = 0; r < MAPS; r++) {
                dg[r] = sfp__dot(D, dout, map_at(a, layer, k, r) + (size_t)i * (size_t)D);
                mean += g[r] * dg[r];
            }
            for (int r = 0; r < MAPS; r++) {
                float dz = g[r] * (dg[r] - mean);
                db[r] += dz;
                sfp__axpy(D, dz, p, dw + r * D);
                if (is_active)
                    sfp__axpy(D, dz, j->gate_w + r * D, j->layer[layer].dp + at);
            }
        }
}

void sfp__attune_bwd(sfp__attune *a, const sfp__attune_layer *layer, sfp__param *gate_w, sfp__param *gate_b)
{
    job j = {.a = a, .chunks = divide_layers(a, layer), .layer = layer, .gate_w = gate_w->data, .gate_b = gate_b->data};
    sfp__thread_pool_run(a->threads, a->opt.layers * j.chunks, backward_piece, &j);
    for (int l = 0; l < a->opt.layers; l++) /* in a fixed order, so that the sum does not depend on threads */
        for (int chunk = 0; chunk < a->chunkings[l].chunks; chunk++) {
            const float *part = a->part + ((size_t)l * (size_t)a->chunks + (size_t)chunk) * (size_t)(MAPS * a->D + MAPS);
            for (int i = 0; i < MAPS * a->D; i++)
                gate_w->grad[i] += part[i];
            for (int r = 0; r < MAPS; r++)
                gate_b->grad[r] += part[MAPS * a->D + r];
        }
}
