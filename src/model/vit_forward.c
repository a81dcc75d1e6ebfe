/* The forward pass of a micro-batch (docs/method.md, section 1).
 *
 * A residual addition and the norm after it are one pass over the data, so every block ends with `a` = norm1 of the next block's
 * input. The last block computes keys and values of all tokens but everything else only for the class token, because nothing else
 * affects the feature.
 *
 * A prompted pass that first needs its queries runs the blocks twice. Both runs share the patch embedding and the q, k and v of
 * the first block, which do not depend on prefixes. */
#include "base/monotonic.h"
#include "compute/vec.h"
#include "model/vit_internal.h"

#include <math.h>
#include <string.h>

/* Copies the pixels of patch t of a sample (C, S, S) to a row (C*P*P). */
static void patch_row(const sfp__vit_config *c, const float *x, int t, float *out)
{
    int S = c->img_size, P = c->patch_size, py = t / (S / P), px = t % (S / P);
    for (int ch = 0; ch < c->channels; ch++)
        for (int y = 0; y < P; y++, out += P)
            memcpy(out, x + ((size_t)ch * (size_t)S + (size_t)(py * P + y)) * (size_t)S + (size_t)(px * P),
                   (size_t)P * sizeof *x);
}

/* Returns the address of row r of a matrix with rows of `width` floats. */
static float *row_of(float *x, int r, int width)
{
    return x + (size_t)r * (size_t)width;
}

/* Returns whether the micro-batch is a part of the tokens of one sample. */
static bool is_part(const sfp__vit_microbatch *u)
{
    return u->rows < u->n * u->plan->v->tokens;
}

/* Computes the mean over tokens of the unit patch embeddings, from l->emb in panels of w. */
static void mean_embed(const sfp__vit_microbatch *u, int w)
{
    int D = u->plan->v->config.dim, L = u->plan->v->patches, m = u->n * L;
    for (int i = 0; i < u->n; i++) {
        float *out = u->pass->mean_embed + (size_t)(u->first + i) * (size_t)D;
        memset(out, 0, (size_t)D * sizeof *out);
        for (int t = 0; t < L; t++) {
            double sum = 0;
            for (int k = 0; k < D; k += w) {
                const float *e = sfp__vit_panel_at(u->lane->emb, m, w, i * L + t, k);
                sum += (double)sfp__dot(w, e, e);
            }
            float f = (float)(1 / (fmax(sqrt(sum), 1e-12) * L));
            for (int k = 0; k < D; k += w) {
                sfp__axpy(w, f, sfp__vit_panel_at(u->lane->emb, m, w, i * L + t, k), out + k);
            }
        }
    }
}

static void activate(const sfp__vit_microbatch *u, int m, float *h, int w, bool save, float *y)
{
    const sfp__vit_config *c = &u->plan->v->config;
    (c->quick_gelu ? u->plan->kernels->quick_gelu_fwd : u->plan->kernels->gelu_fwd)(m, c->hidden, h, w, save, y);
}

/* Computes the input of the first block: patch embedding, class token, positions and, with pre_norm, the norm after them. Patch t of
 * a sample is its token t + 1. */
static void embed(const sfp__vit_microbatch *u)
{
    const sfp__vit *v = u->plan->v;
    const sfp__vit_config *c = &v->config;
    sfp__vit_lane *l = u->lane;
    int D = c->dim, L = v->patches, T = v->tokens, in = c->channels * c->patch_size * c->patch_size,
        w = sfp__gemm_panel(v->patch);
    size_t pixels = (size_t)c->channels * (size_t)c->img_size * (size_t)c->img_size;
    bool part = is_part(u);
    int from = u->row > 0 ? u->row - 1 : 0, to = part ? u->row + u->rows - 1 : u->n * L; /* its patches */
    for (int r = from; r < to; r++) {
        int sample = u->first + r / L;
        patch_row(c, u->pass->x ? u->pass->x + (size_t)sample * pixels : u->pass->xs[sample], r % L,
                  l->patch + (size_t)r * (size_t)in);
    }
    sfp__gemm_run_rows(u->ops->patch, u->lane_index, v->patch, row_of(l->patch, from, in), row_of(l->emb, from, w), u->n * L);
    *u->flops += 2.0 * (to - from) * D * in;
    if (u->pass->mean_embed && !part)
        mean_embed(u, w);
    float *x = row_of(c->pre_norm ? l->xpre : l->saved[0].xin, u->row, D);
    for (int r = u->row; r < u->row + u->rows; r++, x += D) {
        int i = r / T, t = r % T - 1;
        if (t < 0) {
            for (int k = 0; k < D; k++)
                x[k] = v->weights.cls[k] + v->weights.pos[k];
            continue;
        }
        const float *pos = v->weights.pos + (size_t)(t + 1) * (size_t)D;
        float *out = u->pass->embed ? u->pass->embed + ((size_t)(u->first + i) * (size_t)L + (size_t)t) * (size_t)D : NULL;
        for (int k = 0; k < D; k += w) {
            const float *e = sfp__vit_panel_at(l->emb, u->n * L, w, i * L + t, k);
            for (int j = 0; j < w; j++)
                x[k + j] = e[j] + pos[k + j];
            if (out)
                memcpy(out + k, e, (size_t)w * sizeof *e);
        }
    }
    if (c->pre_norm)
        u->plan->kernels->norm_fwd(u->rows, D, row_of(l->xpre, u->row, D), v->weights.pre_w, v->weights.pre_b, c->ln_eps,
                                   row_of(l->saved[0].xin, u->row, D), row_of(l->stpre, u->row, 2));
}

sfp__attn sfp__vit_attention(const sfp__vit_microbatch *u, int l, int i, int h, bool prompted)
{
    const sfp__vit *v = u->plan->v;
    const sfp__vit_prompt prompt = sfp__vit_prompt_at(u->pass, l);
    sfp__vit_lane *lane = u->lane;
    const sfp__vit_packed *packed = &v->packed[l];
    int D = v->config.dim, T = u->plan->tokens[l], d = v->head_dim, M = u->n * T, c = h * d;
    bool class_only = l == v->config.depth - 1 && !u->plan->opt.all_tokens;
    sfp__attn a = {.nq = class_only ? 1 : T, .nk = T, .np = prompted ? prompt.rows : 0, .d = d, .scale = 1.0f / sqrtf((float)d)};
    float *qkv = lane->saved[l].qkv;
    if (class_only) {
        int wq = sfp__gemm_panel(packed->q), w = sfp__gemm_panel(packed->kv);
        a.q = sfp__vit_panel_at(lane->qc, u->n, wq, i, c);
        a.ldq = wq;
        a.k = sfp__vit_panel_at(qkv, M, w, i * T, c);
        a.v = sfp__vit_panel_at(qkv, M, w, i * T, D + c);
        a.ldkv = w;
    } else {
        int w = sfp__gemm_panel(packed->qkv);
        a.q = sfp__vit_panel_at(qkv, M, w, i * T, c);
        a.ldq = w;
        a.k = sfp__vit_panel_at(qkv, M, w, i * T, D + c);
        a.v = sfp__vit_panel_at(qkv, M, w, i * T, 2 * D + c);
        a.ldkv = w;
    }
    if (a.np) {
        size_t at = sfp__vit_prefix_at(u, l, i) + (size_t)c;
        a.pk = prompt.k + at;
        a.pv = prompt.v + at;
        a.ldp = D;
    }
    if (u->plan->opt.merge_tokens && l > 0)
        a.weight = lane->size + (size_t)i * (size_t)T;
    a.scratch = u->scratch;
    return a;
}

/* Copies rows 0, T, 2T, ... of x (n*T, D), with the T tokens that enter block l. */
static void copy_class_rows(const sfp__vit_microbatch *u, int l, const float *x, float *out)
{
    size_t D = (size_t)u->plan->v->config.dim, T = (size_t)u->plan->tokens[l];
    for (size_t i = 0; i < (size_t)u->n; i++)
        memcpy(out + i * D, x + i * T * D, D * sizeof *x);
}

static void attend(const sfp__vit_microbatch *u, int l, bool prompted)
{
    const sfp__vit *v = u->plan->v;
    int D = v->config.dim, T = u->plan->tokens[l], H = v->config.heads;
    bool last = l == v->config.depth - 1;
    for (int i = 0; i < u->n; i++)
        for (int h = 0; h < H; h++) {
            sfp__attn a = sfp__vit_attention(u, l, i, h, prompted);
            a.out = u->lane->saved[l].att + (size_t)i * (size_t)a.nq * (size_t)D + (size_t)(h * v->head_dim);
            a.ldo = D;
            if (is_part(u) && a.nq > 1) {
                a.nq = u->rows;
                a.q += (size_t)u->row * (size_t)a.ldq;
                a.out += (size_t)u->row * (size_t)D;
            }
            if (last && prompted && u->pass->class_attention)
                a.prob0 = u->pass->class_attention + ((size_t)(u->first + i) * (size_t)H + (size_t)h) * (size_t)T;
            u->plan->kernels->attn_fwd(&a);
            *u->flops += 4.0 * a.nq * (a.np + a.nk) * a.d;
        }
}

/* Returns the number of rows of tokens of the micro-batch that enter block l. */
static int rows_of_block(const sfp__vit_microbatch *u, int l)
{
    return u->plan->opt.merge_tokens ? u->n * u->plan->tokens[l] : u->rows;
}

/* Computes q, k and v of block l from `a`: in a class-only block k and v. */
static void project(const sfp__vit_microbatch *u, int l)
{
    const sfp__vit *v = u->plan->v;
    bool class_only = l == v->config.depth - 1 && !u->plan->opt.all_tokens;
    const sfp__gemm_weight *w = class_only ? v->packed[l].kv : v->packed[l].qkv;
    int D = v->config.dim, rows = rows_of_block(u, l);
    const sfp__vit_ops *ops = sfp__vit_ops_at(u, l);
    sfp__gemm_run_rows(class_only ? ops->kv : ops->qkv, u->lane_index, w, row_of(u->lane->a, u->row, D),
                       row_of(u->lane->saved[l].qkv, u->row, sfp__gemm_panel(w)), u->n * u->plan->tokens[l]);
    *u->flops += 2.0 * rows * (class_only ? 2 : 3) * D * D;
}

/* Runs a block after its q, k, v, and computes those of the next block from `a`, norm1 of its input. */
static void run_block(const sfp__vit_microbatch *u, int l, bool prompted)
{
    const sfp__vit *v = u->plan->v;
    const sfp__vit_config *c = &v->config;
    const sfp__kernels *k = u->plan->kernels;
    const sfp__vit_packed *w = &v->packed[l];
    const sfp__vit_block_weights *b = &v->weights.blocks[l];
    sfp__vit_lane *lane = u->lane;
    sfp__vit_saved *s = &lane->saved[l];
    int D = c->dim, F = c->hidden, M = rows_of_block(u, l);
    bool keep = prompted && u->plan->opt.mode != SFP__VIT_FORWARD, last = l == c->depth - 1;
    float *a = row_of(lane->a, u->row, D), *y = row_of(lane->y, u->row, D), *xmid = row_of(s->xmid, u->row, D);
    float *h = row_of(s->h, u->row, F), *g = row_of(s->g, u->row, F); /* y and h: panels of these rows only */
    attend(u, l, prompted);
    sfp__vit_product(u, sfp__vit_ops_at(u, l)->proj, M, D, D, w->proj, row_of(s->att, u->row, D), y);
    bool merges = u->plan->tokens[l + 1] < u->plan->tokens[l];
    k->add_norm_fwd(M, D, row_of(s->xin, u->row, D), y, sfp__gemm_panel(w->proj), b->norm2_w, b->norm2_b, c->ln_eps, xmid,
                    merges ? NULL : a, row_of(s->st2, u->row, 2));
    if (merges) {
        sfp__vit_merge(u, l, xmid);
        M = rows_of_block(u, l + 1);
        k->norm_fwd(M, D, xmid, b->norm2_w, b->norm2_b, c->ln_eps, a, s->st2);
    }
    const sfp__vit_ops *ops = last ? u->ops : sfp__vit_ops_at(u, l + 1);
    sfp__vit_product(u, ops->fc1, M, F, D, w->fc1, a, h);
    activate(u, M, h, sfp__gemm_panel(w->fc1), keep, g);
    sfp__vit_product(u, ops->fc2, M, D, F, w->fc2, g, y);
    float *xout = row_of(last ? lane->xout : lane->saved[l + 1].xin, u->row, D);
    const sfp__vit_block_weights *next = last ? NULL : &v->weights.blocks[l + 1];
    k->add_norm_fwd(M, D, xmid, y, sfp__gemm_panel(w->fc2), next ? next->norm1_w : NULL, next ? next->norm1_b : NULL, c->ln_eps,
                    xout, next ? a : NULL, next ? row_of(lane->saved[l + 1].st1, u->row, 2) : NULL);
    if (prompted && u->pass->tokens && u->pass->tokens[l])
        memcpy(u->pass->tokens[l] + (size_t)u->first * (size_t)v->tokens * (size_t)D, xout, (size_t)M * (size_t)D * sizeof *xout);
    if (next)
        project(u, l + 1);
}

/* Runs the last block for the class tokens only; xout receives their output (n, D), feature its norm. */
static void run_class_block(const sfp__vit_microbatch *u, int l, bool prompted)
{
    const sfp__vit *v = u->plan->v;
    const sfp__vit_config *c = &v->config;
    const sfp__kernels *k = u->plan->kernels;
    const sfp__vit_packed *w = &v->packed[l];
    const sfp__vit_block_weights *b = &v->weights.blocks[l];
    sfp__vit_lane *lane = u->lane;
    sfp__vit_saved *s = &lane->saved[l];
    int D = c->dim, F = c->hidden, n = u->n;
    bool backward = u->plan->opt.mode != SFP__VIT_FORWARD, keep = prompted && backward;
    copy_class_rows(u, l, lane->a, lane->yc);
    sfp__vit_product(u, u->ops->q_c, n, D, D, w->q, lane->yc, lane->qc);
    attend(u, l, prompted);
    sfp__vit_product(u, u->ops->proj_c, n, D, D, w->proj, s->att, lane->yc);
    copy_class_rows(u, l, s->xin, lane->xc);
    float *a = lane->feature; /* (n, D), used as scratch until the end */
    float *xmid = backward ? s->xmid : lane->xc;
    k->add_norm_fwd(n, D, lane->xc, lane->yc, sfp__gemm_panel(w->proj), b->norm2_w, b->norm2_b, c->ln_eps, xmid, a, s->st2);
    sfp__vit_product(u, u->ops->fc1_c, n, F, D, w->fc1, a, s->h);
    activate(u, n, s->h, sfp__gemm_panel(w->fc1), keep, s->g);
    sfp__vit_product(u, u->ops->fc2_c, n, D, F, w->fc2, s->g, lane->yc);
    k->add_norm_fwd(n, D, xmid, lane->yc, sfp__gemm_panel(w->fc2), v->weights.norm_w, v->weights.norm_b, c->ln_eps, lane->xout,
                    lane->feature, lane->stf);
}

/* Runs the last block for all tokens; feature receives the norm of the class tokens or, with a token head, of all. */
static void run_last_block(const sfp__vit_microbatch *u, int l, bool prompted)
{
    const sfp__vit *v = u->plan->v;
    const sfp__vit_config *c = &v->config;
    sfp__vit_lane *lane = u->lane;
    run_block(u, l, prompted);
    if (u->plan->opt.token_head) {
        u->plan->kernels->norm_fwd(u->n * v->tokens, c->dim, lane->xout, v->weights.norm_w, v->weights.norm_b, c->ln_eps,
                                   lane->feature, lane->stf);
        return;
    }
    copy_class_rows(u, l, lane->xout, lane->xc);
    u->plan->kernels->norm_fwd(u->n, c->dim, lane->xc, v->weights.norm_w, v->weights.norm_b, c->ln_eps, lane->feature, lane->stf);
}

/* Writes the mean over patches of the normed tokens that enter the last block; a merged token counts for each of its patches. */
static void write_tap_mean(const sfp__vit_microbatch *u)
{
    const sfp__vit *v = u->plan->v;
    int D = v->config.dim, T = u->plan->tokens[v->config.depth - 1];
    bool merged = u->plan->opt.merge_tokens > 0;
    const float *from = u->lane->saved[v->config.depth - 1].xin;
    float *normed = u->lane->feature; /* scratch until the end of the last block, as is stf */
    for (int i = 0; i < u->n; i++, from += (size_t)T * (size_t)D) {
        float *to = u->tap + (size_t)i * (size_t)(1 + u->taps) * (size_t)D;
        memset(to, 0, (size_t)D * sizeof *to);
        for (int t = 1; t < T; t++) {
            u->plan->kernels->norm_fwd(1, D, from + (size_t)t * (size_t)D, v->weights.norm_w, v->weights.norm_b, v->config.ln_eps,
                                       normed, u->lane->stf);
            for (int d = 0; d < D; d++)
                to[d] += merged ? normed[d] * u->lane->size[i * T + t] : normed[d];
        }
        for (int d = 0; d < D; d++)
            to[d] /= (float)v->patches;
    }
}

/* Writes the taps of block l from its output. The tap of the last block is the feature itself. */
static void write_taps(const sfp__vit_microbatch *u, int l)
{
    const sfp__vit *v = u->plan->v;
    const sfp__vit_config *c = &v->config;
    sfp__vit_lane *lane = u->lane;
    int D = c->dim, last = c->depth - 1, at = l - (c->depth - u->taps);
    int rows = l < last ? u->plan->tokens[l + 1] : u->plan->opt.token_head ? v->tokens : 1; /* rows per sample */
    if (at < 0)
        return;
    for (int i = 0; i < u->n; i++) {
        float *to = u->tap + ((size_t)i * (size_t)(u->tap_mean + u->taps) + (size_t)(u->tap_mean + at)) * (size_t)D;
        const float *from = (l < last ? lane->saved[l + 1].xin : lane->feature) + (size_t)i * (size_t)rows * (size_t)D;
        if (l < last) /* stf has not been computed yet and is scratch */
            u->plan->kernels->norm_fwd(1, D, from, v->weights.norm_w, v->weights.norm_b, c->ln_eps, to, lane->stf);
        else
            memcpy(to, from, (size_t)D * sizeof *to);
    }
}

/* Runs the last block and writes the outputs that the pass requests. */
static void finish(const sfp__vit_microbatch *u, bool prompted, bool tapped)
{
    const sfp__vit *v = u->plan->v;
    const sfp__vit_pass *pass = u->pass;
    int last = v->config.depth - 1;
    size_t at = (size_t)u->first * (size_t)v->config.dim, bytes = (size_t)u->n * (size_t)v->config.dim * sizeof(float);
    if (tapped && u->tap_mean)
        write_tap_mean(u);
    if (u->plan->opt.all_tokens)
        run_last_block(u, last, prompted);
    else
        run_class_block(u, last, prompted);
    if (tapped)
        write_taps(u, last);
    if (!prompted) {
        memcpy(pass->query + at, u->lane->feature, bytes);
        return;
    }
    if (pass->normed)
        memcpy(pass->normed + at * (size_t)v->tokens, u->lane->feature, bytes * (size_t)v->tokens);
    if (pass->feature && u->plan->opt.token_head)
        copy_class_rows(u, last, u->lane->feature, pass->feature + at);
    else if (pass->feature)
        memcpy(pass->feature + at, u->lane->feature, bytes);
}

int sfp__vit_stages(const sfp__vit_microbatch *u)
{
    return u->pass->embed_only ? 1 : 1 + (u->query && !u->known ? 2 : 1) * u->plan->v->config.depth;
}

void sfp__vit_forward_stage(const sfp__vit_microbatch *u, int stage)
{
    const sfp__vit *v = u->plan->v;
    const sfp__vit_config *c = &v->config;
    const sfp__vit_pass *pass = u->pass;
    sfp__vit_lane *lane = u->lane;
    bool first = u->row == 0, prompted = sfp__vit_stages(u) - stage <= c->depth, tapped = u->tap && prompted != u->query;
    if (stage == 0) {
        embed(u);
        if (pass->embed_only)
            return;
        u->plan->kernels->norm_fwd(u->rows, c->dim, row_of(lane->saved[0].xin, u->row, c->dim), v->weights.blocks[0].norm1_w,
                                   v->weights.blocks[0].norm1_b, c->ln_eps, row_of(lane->a, u->row, c->dim),
                                   row_of(lane->saved[0].st1, u->row, 2));
        project(u, 0);
        for (int i = 0; u->plan->opt.merge_tokens && i < u->rows; i++)
            lane->size[i] = 1;
    } else if ((stage - 1) % c->depth < c->depth - 1) {
        int l = (stage - 1) % c->depth;
        run_block(u, l, prompted);
        if (tapped && first)
            write_taps(u, l);
    } else if (first) {
        finish(u, prompted, tapped);
        if (pass->mean_embed && is_part(u) && prompted)
            mean_embed(u, sfp__gemm_panel(v->patch));
    }
    if (first && pass->compose && sfp__vit_stages(u) - stage == c->depth + 1)
        pass->compose(pass->compose_ctx, u->first, u->n, pass->query + (size_t)u->first * (size_t)c->dim);
}

void sfp__vit_forward(const sfp__vit_microbatch *u)
{
    sfp__vit_lane *lane = u->lane;
    int stages = sfp__vit_stages(u), depth = u->plan->v->config.depth;
    bool queries = stages > 1 + depth;
    double begin = sfp__monotonic_seconds(), from = begin;
    for (int stage = 0; stage < stages; stage++) {
        sfp__vit_forward_stage(u, stage);
        if (!queries || (stage != 0 && stage != depth))
            continue;
        double now = sfp__monotonic_seconds();
        if (stage == depth) {
            lane->query_seconds = now - from;
            lane->seconds.query += now - begin;
            begin = now;
        }
        from = now;
    }
    lane->seconds.forward += u->pass->embed_only ? 0 : sfp__monotonic_seconds() - begin;
}
