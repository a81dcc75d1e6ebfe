/* The backward pass of a micro-batch: from the gradient of its features to the prefixes, and on request to all weights and to the
 * pixels.
 *
 * dx is the gradient of the residual stream at the current point. Frozen weights cost nothing: u->grad is NULL, and only the
 * products that propagate dx are computed. They end at the lowest block that has a prefix. */
#include "model/vit_internal.h"

#include <string.h>

/* dW (n, k) += dy^T x with dy (m, n), x (m, k); db (n) += column sums of dy, unless db is NULL. */
static void weight_grad(const sfp__vit_microbatch *u, int m, int n, int k, const float *dy, const float *x, float *dw, float *db)
{
    sfp__gemm_plain(true, false, n, k, m, dy, n, x, k, 1.0f, dw, k);
    *u->flops += 2.0 * m * n * k;
    for (int r = 0; db && r < m; r++)
        for (int c = 0; c < n; c++)
            db[c] += dy[(size_t)r * (size_t)n + (size_t)c];
}

/* Recomputes norm(x) for weight gradients, which is cheaper than storing it. */
static void renorm(int m, int d, const float *x, const float *stats, const float *gamma, const float *beta, float *y)
{
    for (int r = 0; r < m; r++)
        for (int c = 0; c < d; c++) {
            size_t at = (size_t)r * (size_t)d + (size_t)c;
            y[at] = (x[at] - stats[2 * r]) * stats[2 * r + 1] * gamma[c] + beta[c];
        }
}

/* The MLP half of a block on m rows; dx (m, D) is input and output. */
static void mlp_backward(const sfp__vit_microbatch *u, int l, int m, float *dx, const sfp__gemm_op *fc2_t,
                         const sfp__gemm_op *fc1_t, float *y)
{
    const sfp__vit *v = u->plan->v;
    const sfp__kernels *k = u->plan->kernels;
    const sfp__vit_packed *w = &v->packed[l];
    const sfp__vit_block_weights *b = &v->weights.blocks[l];
    sfp__vit_block_weights *g = u->grad ? &u->grad->blocks[l] : NULL;
    sfp__vit_lane *lane = u->lane;
    sfp__vit_saved *s = &lane->saved[l];
    int D = v->config.dim, F = v->config.hidden;
    sfp__vit_product(u, fc2_t, m, F, D, w->fc2_t, dx, lane->dg);
    k->gelu_bwd(m, F, lane->dg, s->h, sfp__gemm_panel(w->fc2_t), lane->dh);
    sfp__vit_product(u, fc1_t, m, D, F, w->fc1_t, lane->dh, y);
    if (g) {
        weight_grad(u, m, D, F, dx, s->g, g->fc2_w, g->fc2_b);
        renorm(m, D, s->xmid, s->st2, b->norm2_w, b->norm2_b, lane->a);
        weight_grad(u, m, F, D, lane->dh, lane->a, g->fc1_w, g->fc1_b);
    }
    k->norm_bwd(m, D, y, sfp__gemm_panel(w->fc1_t), s->xmid, s->st2, b->norm2_w, dx, g ? g->norm2_w : NULL,
                g ? g->norm2_b : NULL);
}

/* The backward pass of attention for all samples and heads; `dout` is in panels of proj_t. Token gradients are computed only
 * above the lowest block, or if weight or input gradients are needed. */
static void attend_backward(const sfp__vit_microbatch *u, int l, float *dout, bool tokens)
{
    const sfp__vit *v = u->plan->v;
    const sfp__vit_prompt prompt = sfp__vit_prompt_at(u->pass, l);
    int D = v->config.dim, T = v->tokens, H = v->config.heads, d = v->head_dim, w = sfp__gemm_panel(v->packed[l].proj_t);
    for (int i = 0; i < u->n; i++)
        for (int h = 0; h < H; h++) {
            sfp__attn a = sfp__vit_attention(u, l, i, h, true);
            a.dout = sfp__vit_panel_at(dout, u->n * a.nq, w, i * a.nq, h * d);
            a.lddo = w;
            if (tokens && a.nq == T) {
                a.dq = u->lane->dqkv + (size_t)i * (size_t)T * 3 * (size_t)D + (size_t)(h * d);
                a.dk = a.dq + D;
                a.dv = a.dk + D;
                a.ldd = 3 * D;
            } else if (tokens) { /* class query: its gradient replaces it; keys and values are those of all tokens */
                a.dq = u->lane->xc + (size_t)i * (size_t)D + (size_t)(h * d);
                a.dk = u->lane->dqkv + (size_t)i * (size_t)T * 2 * (size_t)D + (size_t)(h * d);
                a.dv = a.dk + D;
                a.ldd = 2 * D;
            }
            if (a.np && prompt.grad_k) {
                size_t at = sfp__vit_prefix_at(u, l, i) + (size_t)(h * d);
                a.dpk = prompt.grad_k + at;
                a.dpv = prompt.grad_v + at;
                a.lddp = D;
            }
            u->plan->kernels->attn_bwd(&a);
            double one = 2.0 * a.nq * a.d;
            *u->flops += one * (tokens ? 5.0 * (a.np + a.nk) : 2.0 * (a.np + a.nk) + 2.0 * a.np);
        }
}

static void block_backward(const sfp__vit_microbatch *u, int l)
{
    const sfp__vit *v = u->plan->v;
    const sfp__kernels *k = u->plan->kernels;
    const sfp__vit_packed *w = &v->packed[l];
    const sfp__vit_block_weights *b = &v->weights.blocks[l];
    sfp__vit_block_weights *g = u->grad ? &u->grad->blocks[l] : NULL;
    sfp__vit_lane *lane = u->lane;
    sfp__vit_saved *s = &lane->saved[l];
    int D = v->config.dim, M = u->n * v->tokens;
    bool tokens = l > u->lowest || (u->plan->opt.mode & (SFP__VIT_GRAD_WEIGHTS | SFP__VIT_GRAD_INPUT));
    mlp_backward(u, l, M, lane->dx, u->ops->fc2_t, u->ops->fc1_t, lane->y);
    sfp__vit_product(u, u->ops->proj_t, M, D, D, w->proj_t, lane->dx, lane->y);
    if (g)
        weight_grad(u, M, D, D, lane->dx, s->att, g->proj_w, g->proj_b);
    attend_backward(u, l, lane->y, tokens);
    if (!tokens)
        return;
    if (g) {
        renorm(M, D, s->xin, s->st1, b->norm1_w, b->norm1_b, lane->a);
        weight_grad(u, M, 3 * D, D, lane->dqkv, lane->a, g->qkv_w, g->qkv_b);
    }
    sfp__vit_product(u, u->ops->qkv_t, M, D, 3 * D, w->qkv_t, lane->dqkv, lane->y);
    k->norm_bwd(M, D, lane->y, sfp__gemm_panel(w->qkv_t), s->xin, s->st1, b->norm1_w, lane->dx, g ? g->norm1_w : NULL,
                g ? g->norm1_b : NULL);
}

/* The last block, for class tokens only: input dxc (n, D), output dx (M, D). */
static void class_block_backward(const sfp__vit_microbatch *u, int l)
{
    const sfp__vit *v = u->plan->v;
    const sfp__vit_packed *w = &v->packed[l];
    const sfp__vit_block_weights *b = &v->weights.blocks[l];
    sfp__vit_block_weights *g = u->grad ? &u->grad->blocks[l] : NULL;
    sfp__vit_lane *lane = u->lane;
    sfp__vit_saved *s = &lane->saved[l];
    int D = v->config.dim, n = u->n, T = v->tokens, M = n * T;
    bool tokens = l > u->lowest || (u->plan->opt.mode & (SFP__VIT_GRAD_WEIGHTS | SFP__VIT_GRAD_INPUT));
    mlp_backward(u, l, n, lane->dxc, u->ops->fc2_t_c, u->ops->fc1_t_c, lane->yc);
    sfp__vit_product(u, u->ops->proj_t_c, n, D, D, w->proj_t, lane->dxc, lane->yc);
    if (g)
        weight_grad(u, n, D, D, lane->dxc, s->att, g->proj_w, g->proj_b);
    attend_backward(u, l, lane->yc, tokens);
    if (!tokens)
        return;
    sfp__vit_product(u, u->ops->kv_t, M, D, 2 * D, w->kv_t, lane->dqkv, lane->y);
    sfp__vit_product(u, u->ops->q_t_c, n, D, D, w->q_t, lane->xc, lane->yc);
    int wk = sfp__gemm_panel(w->kv_t), wq = sfp__gemm_panel(w->q_t);
    for (int i = 0; i < n; i++)
        for (int c = 0; c < D; c++)
            *sfp__vit_panel_at(lane->y, M, wk, i * T, c) += *sfp__vit_panel_at(lane->yc, n, wq, i, c);
    if (g) {
        size_t kv = (size_t)D * (size_t)D;
        renorm(M, D, s->xin, s->st1, b->norm1_w, b->norm1_b, lane->a);
        weight_grad(u, M, 2 * D, D, lane->dqkv, lane->a, g->qkv_w + kv, g->qkv_b + D);
        for (int i = 0; i < n; i++)
            memcpy(lane->yc + (size_t)i * (size_t)D, lane->a + (size_t)i * (size_t)T * (size_t)D, (size_t)D * sizeof(float));
        weight_grad(u, n, D, D, lane->xc, lane->yc, g->qkv_w, g->qkv_b);
    }
    memset(lane->dx, 0, (size_t)M * (size_t)D * sizeof(float));
    for (int i = 0; i < n; i++)
        memcpy(lane->dx + (size_t)i * (size_t)T * (size_t)D, lane->dxc + (size_t)i * (size_t)D, (size_t)D * sizeof(float));
    u->plan->kernels->norm_bwd(M, D, lane->y, wk, s->xin, s->st1, b->norm1_w, lane->dx, g ? g->norm1_w : NULL,
                               g ? g->norm1_b : NULL);
}

/* Copies rows of patches (L, C*P*P), in panels, to pixels (C, S, S). */
static void patches_to_pixels(const sfp__vit_microbatch *u, int i, float *from, int w, float *x)
{
    const sfp__vit_config *c = &u->plan->v->config;
    int S = c->img_size, P = c->patch_size, side = S / P, L = u->plan->v->patches;
    for (int t = 0; t < L; t++)
        for (int ch = 0; ch < c->channels; ch++)
            for (int y = 0; y < P; y++)
                for (int k = 0; k < P; k++)
                    x[((size_t)ch * (size_t)S + (size_t)(t / side * P + y)) * (size_t)S + (size_t)(t % side * P + k)] =
                        *sfp__vit_panel_at(from, u->n * L, w, i * L + t, (ch * P + y) * P + k);
}

/* Propagates dx through the norm before the blocks. */
static void pre_norm_backward(const sfp__vit_microbatch *u)
{
    const sfp__vit *v = u->plan->v;
    sfp__vit_lane *lane = u->lane;
    int D = v->config.dim, M = u->n * v->tokens;
    size_t bytes = (size_t)M * (size_t)D * sizeof(float);
    memcpy(lane->y, lane->dx, bytes);
    memset(lane->dx, 0, bytes);
    u->plan->kernels->norm_bwd(M, D, lane->y, D, lane->xpre, lane->stpre, v->weights.pre_w, lane->dx,
                               u->grad ? u->grad->pre_w : NULL, u->grad ? u->grad->pre_b : NULL);
}

/* Gradients of positions, class token, patch embedding and pixels. */
static void embed_backward(const sfp__vit_microbatch *u)
{
    const sfp__vit *v = u->plan->v;
    const sfp__vit_config *c = &v->config;
    sfp__vit_lane *lane = u->lane;
    int D = c->dim, L = v->patches, T = v->tokens, in = c->channels * c->patch_size * c->patch_size;
    float *dpatch = lane->emb; /* (n*L, D) dense: dx without the class rows */
    if (c->pre_norm)
        pre_norm_backward(u);
    for (int i = 0; i < u->n; i++) {
        const float *dx = lane->dx + (size_t)i * (size_t)T * (size_t)D;
        memcpy(dpatch + (size_t)i * (size_t)L * (size_t)D, dx + D, (size_t)L * (size_t)D * sizeof *dx);
        for (int k = 0; u->grad && k < D; k++)
            u->grad->cls[k] += dx[k];
        for (size_t k = 0; u->grad && k < (size_t)T * (size_t)D; k++)
            u->grad->pos[k] += dx[k];
    }
    if (u->grad)
        weight_grad(u, u->n * L, D, in, dpatch, lane->patch, u->grad->patch_w, u->grad->patch_b);
    if (!u->pass->grad_x)
        return;
    size_t pixels = (size_t)c->channels * (size_t)c->img_size * (size_t)c->img_size;
    sfp__vit_product(u, u->ops->patch_t, u->n * L, in, D, v->patch_t, dpatch, lane->patch);
    for (int i = 0; i < u->n; i++)
        patches_to_pixels(u, i, lane->patch, sfp__gemm_panel(v->patch_t), u->pass->grad_x + (size_t)(u->first + i) * pixels);
}

/* Propagates dx through block l and the blocks below it, down to the lowest one that is needed. */
static void blocks_backward(const sfp__vit_microbatch *u, int l)
{
    for (; l >= u->lowest; l--)
        block_backward(u, l);
    if (u->plan->opt.mode & (SFP__VIT_GRAD_WEIGHTS | SFP__VIT_GRAD_INPUT))
        embed_backward(u);
}

void sfp__vit_backward(const sfp__vit_microbatch *u)
{
    const sfp__vit *v = u->plan->v;
    const sfp__vit_config *c = &v->config;
    sfp__vit_lane *lane = u->lane;
    int D = c->dim, last = c->depth - 1;
    size_t rows = (size_t)u->n * (size_t)D;
    bool all = u->plan->opt.all_tokens;
    if (u->plan->opt.token_head) {
        int M = u->n * v->tokens;
        u->pass->token_head(u->pass->head_ctx, u->lane_index, u->first, u->n, lane->feature, lane->dfeature);
        memset(lane->dx, 0, (size_t)M * (size_t)D * sizeof(float));
        u->plan->kernels->norm_bwd(M, D, lane->dfeature, D, lane->xout, lane->stf, v->weights.norm_w, lane->dx,
                                   u->grad ? u->grad->norm_w : NULL, u->grad ? u->grad->norm_b : NULL);
        blocks_backward(u, last);
        return;
    }
    if (u->pass->token_head)
        u->pass->token_head(u->pass->head_ctx, u->lane_index, u->first, u->n, lane->feature, lane->dfeature);
    else
        u->pass->head(u->pass->head_ctx, u->first, u->n, lane->feature, lane->dfeature);
    if (u->lowest > last)
        return;
    memset(lane->dxc, 0, rows * sizeof(float));
    u->plan->kernels->norm_bwd(u->n, D, lane->dfeature, D, all ? lane->xc : lane->xout, lane->stf, v->weights.norm_w, lane->dxc,
                               u->grad ? u->grad->norm_w : NULL, u->grad ? u->grad->norm_b : NULL);
    if (all) {
        memset(lane->dx, 0, (size_t)u->n * (size_t)v->tokens * (size_t)D * sizeof(float));
        for (int i = 0; i < u->n; i++)
            memcpy(lane->dx + (size_t)i * (size_t)v->tokens * (size_t)D, lane->dxc + (size_t)i * (size_t)D,
                   (size_t)D * sizeof(float));
        blocks_backward(u, last);
    } else {
        class_block_backward(u, last);
        blocks_backward(u, last - 1);
    }
}
