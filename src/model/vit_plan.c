/* Plans: the workspace of each lane, the prepared products, and the division of a batch into micro-batches.
 *
 * The division depends only on the sizes and the batch, never on the number of threads, and a micro-batch runs from pixels to
 * gradients on one lane. Therefore results do not depend on threads, memory does not depend on the batch, and a pass synchronises
 * only once. A forward pass over fewer samples than there are threads is also divided within a sample (vit_divide.c). */
#include "base/monotonic.h"
#include "model/vit_internal.h"

#include <string.h>

enum {
    MICROBATCH_ROWS = 400, /* intended token rows per micro-batch: enough for the products, few enough for the caches */
    MICROBATCH_PARTS = 8   /* a batch is divided into about this many at least, so that lanes end together */
};

/* ---------------------------------------------------------------- workspace */

/* Allocates one block. In a forward plan all blocks of the ViT share their arrays, but the query pass must not overwrite the first one's
 * input, which the prompted pass needs. */
sfp_status sfp__vit_lane_create(const sfp__vit_plan *p, int samples, bool two_qkv, sfp__vit_lane *l, void **block, sfp_error *err)
{
    const sfp__vit_config *c = &p->v->config;
    size_t n = (size_t)samples, T = (size_t)p->v->tokens, L = (size_t)p->v->patches, M = n * T;
    size_t D = (size_t)c->dim, F = (size_t)c->hidden;
    size_t patch_in = (size_t)c->channels * (size_t)c->patch_size * (size_t)c->patch_size;
    bool backward = p->opt.mode != SFP__VIT_FORWARD, weights = p->opt.mode & SFP__VIT_GRAD_WEIGHTS;
    int own = backward ? c->depth : p->opt.queries && c->depth > 1 ? 2 : 1; /* number of blocks with arrays of their own */
    size_t normed = p->opt.token_head ? M : n;                              /* number of rows of the final norm */
    sfp__want list[8 * SFP__VIT_MAX_DEPTH + 27];
    size_t count = 0;
    float *odd_qkv = NULL;
#define WANT(to, floats)               \
    list[count++] = (sfp__want)        \
    {                                  \
        &(to), (floats), sizeof(float) \
    }
    for (int i = 0; i < own; i++) {
        sfp__vit_saved *s = &l->saved[i];
        size_t rows = backward && i == c->depth - 1 && !p->opt.all_tokens ? n : M;
        WANT(s->xin, M * D);
        WANT(s->st1, M * 2);
        WANT(s->qkv, M * D * (rows == M ? 3 : 2));
        if (backward || (p->opt.queries && i == 0))
            WANT(s->xmid, rows * D);
        WANT(s->st2, rows * 2);
        WANT(s->h, rows * F);
        if (i == 0 || weights) {
            WANT(s->att, (i == 0 ? M : rows) * D);
            WANT(s->g, (i == 0 ? M : rows) * F);
        }
    }
    if (two_qkv)
        WANT(odd_qkv, M * D * 3);
    WANT(l->patch, n * L * patch_in);
    WANT(l->emb, n * L * (D > patch_in ? D : patch_in));
    if (c->pre_norm) {
        WANT(l->xpre, M * D);
        WANT(l->stpre, M * 2);
    }
    WANT(l->xout, (p->opt.all_tokens ? M : n) * D);
    WANT(l->xc, n * D);
    WANT(l->qc, n * D);
    WANT(l->feature, normed * D);
    WANT(l->stf, normed * 2);
    WANT(l->a, M * D);
    WANT(l->y, M * D);
    WANT(l->yc, n * D);
    if (backward) {
        WANT(l->dfeature, normed * D);
        WANT(l->dxc, n * D);
        WANT(l->dqkv, M * 3 * D);
        WANT(l->dg, M * F);
        if (weights) {
            WANT(l->dx, M * D);
            WANT(l->dh, M * F);
        }
    }
    WANT(l->tap, n * (size_t)(1 + c->depth) * D);
    if (p->opt.merge_tokens) {
        size_t half = (T + 1) / 2;
        WANT(l->size, M);
        WANT(l->keys, T * (size_t)p->v->head_dim);
        WANT(l->cosine, half);
        WANT(l->partner, half);
        WANT(l->best, half);
    }
    WANT(l->scratch, p->kernels->attn_scratch((int)T, (int)T + p->opt.prefix_rows, p->v->head_dim));
#undef WANT
    TRY(sfp__block(block, count, list, err));
    if (backward && !weights) { /* only weight gradients read these results of the forward pass */
        l->dx = l->saved[0].att;
        l->dh = l->saved[0].g;
    }
    for (int i = 0; i < c->depth; i++) {
        sfp__vit_saved *s = &l->saved[i];
        if (i >= own)
            *s = l->saved[i - 1];
        if (!s->xmid)
            s->xmid = s->xin;
        if (!s->att) {
            s->att = l->saved[0].att;
            s->g = l->saved[0].g;
        }
    }
    for (int i = 1; i < c->depth && two_qkv; i += 2)
        l->saved[i].qkv = odd_qkv;
    return SFP_OK;
}

/* ---------------------------------------------------------- plan, products */

sfp_status sfp__vit_plan_create(sfp__vit *v, sfp__thread_pool *pool, const sfp__vit_plan_options *opt, sfp__vit_plan **out,
                                sfp_error *err)
{
    if (opt->prefix_rows < 0 || opt->prefix_rows > 4096)
        return sfp__fail(err, SFP_EINVAL, "prefix_rows is %d, expected 0 to 4096", opt->prefix_rows);
    if (opt->token_head && opt->queries)
        return sfp__fail(err, SFP_EINVAL, "a plan has a token head or computes queries, not both");
    if (opt->merge_tokens && (opt->merge_tokens < 0 || opt->mode != SFP__VIT_FORWARD || opt->prefix_rows || opt->queries ||
                              opt->all_tokens || opt->token_head))
        return sfp__fail(err, SFP_EINVAL,
                         "merge_tokens is %d, expected 0 to merge none; only forward passes without prefixes merge tokens",
                         opt->merge_tokens);
    if (v->precision == SFP_PRECISION_INT8 && opt->mode != SFP__VIT_FORWARD)
        return sfp__fail(err, SFP_EUNSUPPORTED,
                         "int8 matrix products have no gradients; use --precision f32, or a closed-form head (--method)");
    bool all_tokens = opt->all_tokens || opt->token_head;
    if (!v->config.rows)
        TRY(sfp__vit_pack(v, opt->mode, all_tokens, err));
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *p = NULL;
    TRY(sfp__alloc(&p, 1, sizeof *p, err));
    p->v = v;
    p->pool = pool;
    p->kernels = sfp__kernels_get();
    p->opt = *opt;
    p->opt.all_tokens = all_tokens;
    if (v->config.rows) {
        TRY(sfp__vit_rows_plan(p, err));
        *out = TAKE(p);
        return SFP_OK;
    }
    p->microbatch_size = opt->microbatch_size > 0 ? opt->microbatch_size : MICROBATCH_ROWS / v->tokens;
    p->microbatch_size = p->microbatch_size < 1                         ? 1
                         : p->microbatch_size > SFP__VIT_MICROBATCH_MAX ? SFP__VIT_MICROBATCH_MAX
                                                                        : p->microbatch_size;
    p->levels = opt->merge_tokens ? v->config.depth : 1;
    p->tokens[0] = v->tokens;
    for (int l = 0; l < v->config.depth; l++) {
        int most = l < v->config.depth - 1 ? (p->tokens[l] - 1) / 2 : 0; /* only the class token of the last block is computed */
        p->tokens[l + 1] = p->tokens[l] - (opt->merge_tokens < most ? opt->merge_tokens : most);
    }
    int lanes = sfp__thread_pool_size(pool);
    const sfp__want list[] = {{&p->ops, (size_t)p->levels * ((size_t)p->microbatch_size + 1), sizeof *p->ops},
                              {&p->lane, (size_t)lanes + 1, sizeof *p->lane},
                              {&p->blocks, (size_t)lanes + 1, sizeof *p->blocks}};
    TRY(sfp__block_cleared(&p->arrays, SFP__LIST(list), err));
    p->lanes = lanes;
    for (int i = 0; i < lanes; i++) {
        if (i > 0 && (opt->mode & SFP__VIT_GRAD_WEIGHTS))
            TRY(sfp__vit_weights_create(&v->config, &p->lane[i].grad, err));
        TRY(sfp__vit_lane_create(p, p->microbatch_size, false, &p->lane[i], &p->blocks[i], err));
    }
    *out = TAKE(p);
    return SFP_OK;
}

static void ops_free(sfp__vit_ops *o)
{
    sfp__gemm_op *all[] = {o->patch, o->patch_t, o->qkv,   o->kv,       o->proj,    o->fc1,    o->fc2,
                           o->q_c,   o->proj_c,  o->fc1_c, o->fc2_c,    o->qkv_t,   o->kv_t,   o->proj_t,
                           o->fc1_t, o->fc2_t,   o->q_t_c, o->proj_t_c, o->fc1_t_c, o->fc2_t_c};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sfp__gemm_op_free(all[i]);
    *o = (sfp__vit_ops){0};
}

void sfp__vit_plan_free(sfp__vit_plan *p)
{
    if (!p)
        return;
    for (int i = 0; p->ops && i < p->levels * (p->microbatch_size + 1); i++)
        ops_free(&p->ops[i]);
    for (int i = 0; i < SFP__VIT_PART_KINDS; i++)
        ops_free(&p->part_ops[i]);
    for (int i = 0; p->blocks && i <= p->lanes; i++) {
        sfp__vit_weights_done(&p->v->config, &p->lane[i].grad);
        sfp__free(p->blocks[i]);
    }
    sfp__free(p->arrays);
    sfp__free(p);
}

double sfp__vit_plan_flops(const sfp__vit_plan *p)
{
    return p->flops;
}

sfp__vit_seconds sfp__vit_plan_seconds(const sfp__vit_plan *p)
{
    return p->seconds;
}

sfp_status sfp__vit_ops_create(const sfp__vit_plan *p, int n, int M, int patches, sfp__vit_ops *o, sfp_error *err)
{
    const sfp__vit_packed *first = &p->v->packed[0], *last = &p->v->packed[p->v->config.depth - 1];
    bool class_only = !p->opt.all_tokens, backward = p->opt.mode != SFP__VIT_FORWARD;
    bool whole = p->opt.all_tokens || p->v->config.depth > 1; /* some block computes all tokens */
    const struct {
        bool wanted;
        sfp__gemm_op **op;
        sfp__gemm_weight *const *like; /* read only if `wanted`: another plan may be packing a weight that is not wanted */
        int m;
    } list[] = {
        {true, &o->patch, &p->v->patch, patches},
        {p->opt.mode & SFP__VIT_GRAD_INPUT, &o->patch_t, &p->v->patch_t, patches},
        {whole, &o->qkv, &first->qkv, M},
        {true, &o->proj, &first->proj, M},
        {true, &o->fc1, &first->fc1, M},
        {true, &o->fc2, &first->fc2, M},
        {class_only, &o->kv, &last->kv, M},
        {class_only, &o->q_c, &last->q, n},
        {class_only, &o->proj_c, &last->proj, n},
        {class_only, &o->fc1_c, &last->fc1, n},
        {class_only, &o->fc2_c, &last->fc2, n},
        {backward && whole, &o->qkv_t, &first->qkv_t, M},
        {backward, &o->proj_t, &first->proj_t, M},
        {backward, &o->fc1_t, &first->fc1_t, M},
        {backward, &o->fc2_t, &first->fc2_t, M},
        {backward && class_only, &o->kv_t, &last->kv_t, M},
        {backward && class_only, &o->q_t_c, &last->q_t, n},
        {backward && class_only, &o->proj_t_c, &last->proj_t, n},
        {backward && class_only, &o->fc1_t_c, &last->fc1_t, n},
        {backward && class_only, &o->fc2_t_c, &last->fc2_t, n},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].wanted && !*list[i].op)
            TRY(sfp__gemm_op_create(*list[i].like, list[i].m, p->lanes, list[i].op, err));
    o->ready = true;
    return SFP_OK;
}

/* Prepares the products for micro-batches of n samples, when the first one of this size occurs. */
static sfp_status need_ops(sfp__vit_plan *p, int n, sfp_error *err)
{
    for (int l = 0; l < p->levels; l++) {
        sfp__vit_ops *o = &p->ops[l * (p->microbatch_size + 1) + n];
        if (!o->ready)
            TRY(sfp__vit_ops_create(p, n, n * p->tokens[l], n * p->v->patches, o, err));
    }
    return SFP_OK;
}

/* The number of samples per micro-batch for a batch of b. */
static int microbatch_size_of(const sfp__vit_plan *p, int b)
{
    int microbatch_size = (b + MICROBATCH_PARTS - 1) / MICROBATCH_PARTS;
    return microbatch_size > p->microbatch_size ? p->microbatch_size : microbatch_size;
}

sfp_status sfp__vit_plan_prepare(sfp__vit_plan *p, int max_batch, sfp_error *err)
{
    for (int n = 1; n <= microbatch_size_of(p, max_batch); n++)
        TRY(need_ops(p, n, err));
    return sfp__vit_can_divide(p) ? sfp__vit_need_parts(p, err) : SFP_OK;
}

/* --------------------------------------------------------------------- run */

static sfp_status check_pass(const sfp__vit_plan *p, const sfp__vit_pass *pass, sfp_error *err)
{
    const sfp__vit_config *c = &p->v->config;
    if (pass->b < 0 || pass->b > 1 << 24)
        return sfp__fail(err, SFP_EINVAL, "batch has %d samples, expected 0 to %d", pass->b, 1 << 24);
    for (int l = 0; l < c->depth; l++) {
        const sfp__vit_prompt prompt = sfp__vit_prompt_at(pass, l);
        int rows = prompt.rows;
        if (rows < 0 || rows > p->opt.prefix_rows)
            return sfp__fail(err, SFP_EINVAL, "layer %d: number of prefix rows is %d, expected 0 to %d as in the plan", l, rows,
                             p->opt.prefix_rows);
        if (rows && (!prompt.k || !prompt.v))
            return sfp__fail(err, SFP_EINVAL, "layer %d: prefix keys or values are missing", l);
        if (!prompt.grad_k != !prompt.grad_v)
            return sfp__fail(err, SFP_EINVAL, "layer %d: one of grad_k and grad_v is NULL, expected both or none", l);
        if (pass->tokens && pass->tokens[l] && l == c->depth - 1 && !p->opt.all_tokens)
            return sfp__fail(err, SFP_EINVAL, "tokens of the last block need a plan with all_tokens");
    }
    if (pass->tap && (pass->taps < 1 || pass->taps > c->depth))
        return sfp__fail(err, SFP_EINVAL, "number of taps is %d, expected 1 to %d, the number of blocks", pass->taps, c->depth);
    if (pass->tap && pass->tap_mean && c->depth < 2)
        return sfp__fail(err, SFP_EINVAL, "mean tap: the backbone has 1 block, expected at least 2");
    for (int l = 0; l < c->depth && p->opt.merge_tokens; l++)
        if (pass->class_attention || pass->prompts || (pass->tokens && pass->tokens[l]))
            return sfp__fail(err, SFP_EINVAL, "a plan that merges tokens has neither prefixes nor outputs of single tokens");
    if (pass->normed && !p->opt.token_head)
        return sfp__fail(err, SFP_EINVAL, "tokens after the final norm need a plan with token_head");
    if (!pass->x && !pass->xs)
        return sfp__fail(err, SFP_EINVAL, "pass has no input, expected x or xs");
    if (pass->query && (pass->queries < 0 || pass->queries > pass->b))
        return sfp__fail(err, SFP_EINVAL, "number of queries is %d, expected 0 to %d, the batch size", pass->queries, pass->b);
    if (pass->query && pass->queries > 0 && !p->opt.queries)
        return sfp__fail(err, SFP_EINVAL, "computing queries needs a plan with the option queries");
    if (p->opt.mode != SFP__VIT_FORWARD && !pass->token_head && (p->opt.token_head || !pass->head) && !pass->embed_only)
        return sfp__fail(err, SFP_EINVAL, "a backward pass needs a loss");
    if ((pass->grad_w && !(p->opt.mode & SFP__VIT_GRAD_WEIGHTS)) || (pass->grad_x && !(p->opt.mode & SFP__VIT_GRAD_INPUT)))
        return sfp__fail(err, SFP_EINVAL, "gradients of weights or input need a plan with that mode");
    return SFP_OK;
}

typedef struct run_ctx {
    sfp__vit_plan *plan;
    const sfp__vit_pass *pass;
    int microbatch_size;
    int query_microbatches, microbatches; /* number of micro-batches that compute queries; number of all */
    int lowest;
    sfp__vit_memo_role role;
    bool by_lane; /* a piece is a lane and not a micro-batch: sums over samples keep their order */
} run_ctx;

static int queries_of(const sfp__vit_pass *pass)
{
    return pass->query ? pass->queries : 0;
}

static int count_microbatches(int n, int microbatch_size)
{
    return (n + microbatch_size - 1) / microbatch_size;
}

void sfp__vit_choose_taps(sfp__vit_microbatch *u)
{
    const sfp__vit_pass *pass = u->pass;
    if (u->role == SFP__MEMO_QUERY || u->role == SFP__MEMO_PROMPTED) {
        sfp__vit_memo_choose_taps(pass->memo, u);
        u->tap = u->lane->tap;
    } else if (pass->tap && (u->query || !pass->prompts)) {
        u->taps = pass->taps;
        u->tap_mean = pass->tap_mean;
        u->tap = pass->tap + (size_t)u->first * (size_t)(u->tap_mean + u->taps) * (size_t)u->plan->v->config.dim;
    }
}

static void run_microbatch(const run_ctx *r, int index, int lane)
{
    sfp__vit_plan *p = r->plan;
    bool query = index < r->query_microbatches;
    int first = query ? index * r->microbatch_size : queries_of(r->pass) + (index - r->query_microbatches) * r->microbatch_size;
    int end = query ? queries_of(r->pass) : r->pass->b;
    int n = end - first < r->microbatch_size ? end - first : r->microbatch_size;
    sfp__vit_microbatch u = sfp__vit_whole(p, r->pass, lane, first, n);
    u.query = query;
    u.lowest = r->lowest;
    u.grad = !r->pass->grad_w ? NULL : lane == 0 ? r->pass->grad_w : &p->lane[lane].grad;
    u.role = query || r->role != SFP__MEMO_PROMPTED ? r->role : SFP__MEMO_NONE;
    sfp__vit_choose_taps(&u);
    u.forced = u.role && sfp__vit_memo_forced(p, r->pass, u.role, index);
    u.known = u.role && sfp__vit_memo_read(&u);
    if (u.known && u.role != SFP__MEMO_PROMPTED)
        return;
    int token = sfp__gemm_enter();
    unsigned failures = sfp__gemm_failures();
    double from = sfp__monotonic_seconds();
    sfp__vit_forward(&u);
    if (u.role && !u.known && sfp__gemm_failures() == failures) {
        double seconds = sfp__monotonic_seconds() - from;
        sfp__vit_memo_measure(&u, index, u.role == SFP__MEMO_PROMPTED ? u.lane->query_seconds : seconds);
        sfp__vit_memo_write(&u);
    }
    if (p->opt.mode != SFP__VIT_FORWARD && !r->pass->embed_only) {
        double begin = sfp__monotonic_seconds();
        sfp__vit_backward(&u);
        u.lane->seconds.backward += sfp__monotonic_seconds() - begin;
    }
    sfp__gemm_leave(token);
}

static void run_piece(void *ctx, int piece, int worker)
{
    const run_ctx *r = ctx;
    if (!r->by_lane) {
        run_microbatch(r, piece, worker);
        return;
    }
    for (int i = piece; i < r->microbatches; i += r->plan->lanes)
        run_microbatch(r, i, piece);
}

sfp_status sfp__vit_run(sfp__vit_plan *p, const sfp__vit_pass *pass, sfp_error *err)
{
    TRY(check_pass(p, pass, err));
    if (pass->b == 0)
        return SFP_OK;
    if (p->v->config.rows) {
        sfp__vit_rows_run(p, pass);
        return SFP_OK;
    }
    run_ctx r = {.plan = p, .pass = pass};
    r.microbatch_size = microbatch_size_of(p, pass->b);
    int queries = queries_of(pass), rest = pass->b - queries;
    r.query_microbatches = count_microbatches(queries, r.microbatch_size);
    r.microbatches = r.query_microbatches + count_microbatches(rest, r.microbatch_size);
    r.by_lane = pass->grad_w != NULL;
    r.role = sfp__vit_memo_role_of(p, pass);
    bool everything = p->opt.mode & (SFP__VIT_GRAD_WEIGHTS | SFP__VIT_GRAD_INPUT);
    while (!everything && r.lowest < p->v->config.depth && !sfp__vit_prompt_at(pass, r.lowest).grad_k)
        r.lowest++;
    const int sizes[] = {r.microbatch_size, queries % r.microbatch_size, rest % r.microbatch_size};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i])
            TRY(need_ops(p, sizes[i], err));
    if (r.role)
        TRY(need_ops(p, 1, err));
    bool divided = sfp__vit_divides(p, pass, r.microbatch_size, r.role);
    if (divided) {
        TRY(sfp__vit_need_parts(p, err));
        divided = p->parts > 1;
    }
    unsigned failures = sfp__gemm_failures();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && r.role; i++)
        if (sizes[i])
            sfp__vit_memo_probe(pass->memo, p, sizes[i]);
    for (int i = 0; i < p->lanes; i++) {
        p->lane[i].flops = 0;
        p->lane[i].seconds = (sfp__vit_seconds){0};
        p->lane[i].memo = (sfp__vit_memo_lane){0};
        if (i > 0 && pass->grad_w)
            sfp__vit_weights_zero(&p->v->config, &p->lane[i].grad);
    }
    if (divided)
        sfp__vit_run_divided(p, pass);
    else
        sfp__thread_pool_run(p->pool, r.by_lane ? p->lanes : r.microbatches, run_piece, &r);
    TRY(sfp__gemm_check(failures, err));
    p->flops = 0;
    p->seconds = (sfp__vit_seconds){0};
    for (int i = 0; i < p->lanes; i++) {
        p->flops += p->lane[i].flops;
        p->seconds.query += p->lane[i].seconds.query / p->lanes;
        p->seconds.forward += p->lane[i].seconds.forward / p->lanes;
        p->seconds.backward += p->lane[i].seconds.backward / p->lanes;
        if (i > 0 && pass->grad_w)
            sfp__vit_weights_add(&p->v->config, pass->grad_w, &p->lane[i].grad);
    }
    if (r.role)
        sfp__vit_memo_charge(p, pass, r.role, r.role == SFP__MEMO_PROMPTED ? r.query_microbatches : r.microbatches,
                             r.microbatches);
    return SFP_OK;
}
