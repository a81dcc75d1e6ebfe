/* Forward passes over fewer samples than there are threads: the tokens of a sample are divided into parts of consecutive rows, one per
 * thread.
 *
 * Except for attention, a block computes each row only from the same row of its input. Attention reads the keys and values of all rows, which the
 * previous stage has computed. So threads need to wait for each other only once per block, before its attention (sfp__vit_forward_stage). This
 * requires that neighbouring blocks do not share the array of q, k and v.
 *
 * The bytes of a result must not depend on the number of threads. So the product of a part must have the same bytes as these rows have in the
 * product of all rows. This was true for all products that were tried, but no library guarantees it. Therefore every kind of product is compared
 * once; if one differs, the plan does not divide samples. */
#include "base/monotonic.h"
#include "base/rng.h"
#include "model/vit_internal.h"

#include <string.h>

enum { PART_ROWS = 16 }; /* minimum rows of a part: smaller products take more time per row */

bool sfp__vit_can_divide(const sfp__vit_plan *p)
{
    return p->lanes > 1 && p->opt.mode == SFP__VIT_FORWARD && !p->opt.all_tokens && !p->opt.merge_tokens && !p->v->config.rows &&
           p->v->config.depth > 1 && p->v->patches >= 2 * PART_ROWS;
}

bool sfp__vit_divides(const sfp__vit_plan *p, const sfp__vit_pass *pass, int microbatch_size, sfp__vit_memo_role role)
{
    return sfp__vit_can_divide(p) && microbatch_size == 1 && pass->b < p->lanes && !pass->embed_only && !pass->tokens && !role;
}

/* Sets the rows of the micro-batch to those of a part of a sample's tokens. */
static void set_part(const sfp__vit_plan *p, int part, sfp__vit_microbatch *u)
{
    int first = part * p->part_patches, end = first + p->part_patches;
    end = end < p->v->patches ? end : p->v->patches;
    u->row = part == 0 ? 0 : first + 1;
    u->rows = end + 1 - u->row;
    u->ops = &p->part_ops[part == 0 ? 0 : part == p->parts - 1 ? 1 : 2];
}

/* Returns whether the products of all parts have the bytes of the whole product x w. */
static bool rows_agree(const sfp__vit_plan *p, const sfp__gemm_weight *w, size_t product, int k, const float *x, float *whole,
                       float *parts, size_t bytes)
{
    /* an op is a member of sfp__vit_ops, at offset `product` */
    const sfp__vit_ops *all = &p->ops[1];
    bool patches = product == offsetof(sfp__vit_ops, patch);
    int rows = patches ? p->v->patches : p->v->tokens, panel = sfp__gemm_panel(w);
    sfp__gemm_run(*(sfp__gemm_op *const *)((const char *)all + product), 0, w, x, whole);
    for (int i = 0; i < p->parts; i++) {
        sfp__vit_microbatch u;
        set_part(p, i, &u);
        size_t from = (size_t)(patches && i > 0 ? u.row - 1 : u.row);
        sfp__gemm_run_rows(*(sfp__gemm_op *const *)((const char *)u.ops + product), 0, w, x + from * (size_t)k,
                           parts + from * (size_t)panel, rows);
    }
    return memcmp(whole, parts, bytes * (size_t)rows) == 0;
}

/* Compares all kinds of products of a block, and the patch embedding, on random numbers. */
static sfp_status compare_rows(const sfp__vit_plan *p, bool *agree, sfp_error *err)
{
    const sfp__vit *v = p->v;
    const sfp__vit_config *c = &v->config;
    const sfp__vit_packed *first = &v->packed[0], *last = &v->packed[c->depth - 1];
    int D = c->dim, F = c->hidden, in = c->channels * c->patch_size * c->patch_size;
#define PRODUCT(member) offsetof(sfp__vit_ops, member)
    const struct {
        const sfp__gemm_weight *w;
        size_t product;
        int n, k;
    } list[] = {{v->patch, PRODUCT(patch), D, in},  {first->qkv, PRODUCT(qkv), 3 * D, D}, {last->kv, PRODUCT(kv), 2 * D, D},
                {first->proj, PRODUCT(proj), D, D}, {first->fc1, PRODUCT(fc1), F, D},     {first->fc2, PRODUCT(fc2), D, F}};
#undef PRODUCT
    OWNED float *x = NULL, *whole = NULL, *parts = NULL;
    size_t rows = (size_t)v->tokens, widest_in = (size_t)(F > in ? F : in), widest_out = (size_t)(F > 3 * D ? F : 3 * D);
    TRY(sfp__alloc(&x, rows * widest_in, sizeof *x, err));
    TRY(sfp__alloc(&whole, rows * widest_out, sizeof *whole, err));
    TRY(sfp__alloc(&parts, rows * widest_out, sizeof *parts, err));
    sfp__rng rng = sfp__rng_init(1, 0);
    for (size_t i = 0; i < rows * widest_in; i++)
        x[i] = (float)(int32_t)sfp__rng_u32(&rng) * 0x1p-31f;
    unsigned failures = sfp__gemm_failures();
    int token = sfp__gemm_enter();
    *agree = true;
    for (size_t i = 0; i < sizeof list / sizeof *list && *agree; i++)
        *agree = rows_agree(p, list[i].w, list[i].product, list[i].k, x, whole, parts, (size_t)list[i].n * sizeof *whole);
    sfp__gemm_leave(token);
    return sfp__gemm_check(failures, err);
}

sfp_status sfp__vit_need_parts(sfp__vit_plan *p, sfp_error *err)
{
    if (p->parts)
        return SFP_OK;
    int L = p->v->patches, parts = p->lanes < L / PART_ROWS ? p->lanes : L / PART_ROWS;
    p->part_patches = (L + parts - 1) / parts;
    parts = (L + p->part_patches - 1) / p->part_patches;
    const int patches[SFP__VIT_PART_KINDS] = {p->part_patches, L - (parts - 1) * p->part_patches, p->part_patches};
    if (!p->ops[1].ready)
        TRY(sfp__vit_ops_create(p, 1, p->v->tokens, L, &p->ops[1], err));
    for (int i = 0; i < SFP__VIT_PART_KINDS; i++)
        if (!p->part_ops[i].ready)
            TRY(sfp__vit_ops_create(p, 1, patches[i] + (i == 0), patches[i], &p->part_ops[i], err));
    if (!p->blocks[p->lanes])
        TRY(sfp__vit_lane_create(p, 1, true, &p->lane[p->lanes], &p->blocks[p->lanes], err));
    bool agree = false;
    p->parts = parts; /* set before compare_rows, which reads it */
    sfp_status s = compare_rows(p, &agree, err);
    p->parts = s ? 0 : agree ? parts : 1;
    return s;
}

typedef struct divided {
    sfp__vit_plan *plan;
    const sfp__vit_pass *pass;
    double mark; /* when the current stage began; written by its first part */
    bool query;  /* it belongs to a query pass */
    sfp__vit_seconds seconds;
} divided;

static void add_seconds(divided *d, bool query)
{
    double now = sfp__monotonic_seconds();
    *(d->query ? &d->seconds.query : &d->seconds.forward) += now - d->mark;
    d->mark = now;
    d->query = query;
}

/* Processes one part of each sample. The samples are processed one after another, beginning with those that need their query. */
static void run_part(void *ctx, int index, int worker)
{
    divided *d = ctx;
    sfp__vit_plan *p = d->plan;
    int stage = index / p->parts, part = index % p->parts;
    sfp__vit_microbatch u = sfp__vit_whole(p, d->pass, worker, 0, 1);
    u.lane = &p->lane[p->lanes];
    u.query = d->pass->query && d->pass->queries > 0;
    for (int stages = sfp__vit_stages(&u); stage >= stages; stages = sfp__vit_stages(&u)) {
        stage -= stages;
        u.first++;
        u.query = u.query && u.first < d->pass->queries;
    }
    set_part(p, part, &u);
    sfp__vit_choose_taps(&u);
    if (part == 0)
        add_seconds(d, u.query && stage <= p->v->config.depth);
    int token = sfp__gemm_enter();
    sfp__vit_forward_stage(&u, stage);
    sfp__gemm_leave(token);
}

void sfp__vit_run_divided(sfp__vit_plan *p, const sfp__vit_pass *pass)
{
    int queries = pass->query ? pass->queries : 0;
    divided d = {.plan = p, .pass = pass, .mark = sfp__monotonic_seconds()};
    sfp__thread_pool_run_phases(p->pool, pass->b + (pass->b + queries) * p->v->config.depth, p->parts, run_part, &d);
    add_seconds(&d, false);
    for (int i = 0; i < p->lanes; i++)
        p->lane[i].seconds = d.seconds; /* all lanes worked for the whole time */
}
