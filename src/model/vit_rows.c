/* A backbone without a network, for streams of feature vectors. A row of D floats takes the place of an image: its bytes are those of
 * the smallest square RGB image that holds them (io/image/image.h), so everything between a source and a pass works on it unchanged.
 * A pass restores the bytes from the normalised pixels, which is exact, and returns the row. */
#include "model/vit_internal.h"

#include "base/mem.h"
#include "compute/pixels.h"
#include "io/image/image.h"

#include <string.h>

sfp_status sfp__vit_rows(int dim, sfp__vit **out, sfp_error *err)
{
    OWNED_PTR(sfp__vit_free) sfp__vit *v = NULL;
    int side = sfp__row_side((size_t)dim * sizeof(float));
    const sfp__vit_config c = {
        .rows = true, .img_size = side, .patch_size = side, .channels = 3, .dim = dim, .depth = 1, .heads = 1, .std = {1, 1, 1}};
    if (dim < 1 || dim > SFP__ROW_MAX)
        return sfp__fail(err, SFP_ESHAPE, "features have %d values, expected 1 to %d", dim, SFP__ROW_MAX);
    TRY(sfp__vit_new(&c, &v, err));
    (void)snprintf(v->recognised, sizeof v->recognised, "no network: features of %d values", dim);
    *out = TAKE(v);
    return SFP_OK;
}

static size_t bytes_of(const sfp__vit_plan *p)
{
    return 3 * (size_t)p->v->config.img_size * (size_t)p->v->config.img_size;
}

sfp_status sfp__vit_rows_plan(sfp__vit_plan *p, sfp_error *err)
{
    const sfp__want list[] = {{&p->row_bytes, (size_t)sfp__thread_pool_size(p->pool), bytes_of(p)}};
    return sfp__block(&p->arrays, SFP__LIST(list), err);
}

typedef struct rows_ctx {
    const sfp__vit_plan *p;
    const sfp__vit_pass *pass;
} rows_ctx;

static void restore(void *ctx, int i, int worker)
{
    const rows_ctx *r = ctx;
    const sfp__vit_config *c = &r->p->v->config;
    uint8_t *bytes = r->p->row_bytes + (size_t)worker * bytes_of(r->p);
    const float *x = r->pass->xs ? r->pass->xs[i] : r->pass->x + (size_t)i * bytes_of(r->p);
    sfp__pixels_to_bytes(x, c->img_size, c->mean, c->std, bytes);
    memcpy(r->pass->feature + (size_t)i * (size_t)c->dim, bytes, (size_t)c->dim * sizeof(float));
}

void sfp__vit_rows_run(const sfp__vit_plan *p, const sfp__vit_pass *pass)
{
    rows_ctx ctx = {p, pass};
    sfp__thread_pool_run(p->pool, pass->b, restore, &ctx);
}
