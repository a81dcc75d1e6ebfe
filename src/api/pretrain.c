/* Conversion and pretraining of backbones (streamfp.h, part 12). */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"
#include "pretrain/pretrain.h"

#include <stdatomic.h>
#include <string.h>

/* ----------------------------------------------------------------------------------------------------------- conversion */

sfp_status sfp_engine_save(const sfp_engine *e, const char *path, const char *dtype, sfp_error *err)
{
    IN_LIBRARY;
    static const char *const words[] = {"f32", "f16", "bf16"};
    static const sfp__dtype types[] = {SFP__DTYPE_F32, SFP__DTYPE_F16, SFP__DTYPE_BF16};
    size_t i = 0, n = sizeof words / sizeof *words;
    SFP__REQUIRE(e && path, "engine and path");
    if (e->vit->config.rows)
        return sfp__fail(err, SFP_EUNSUPPORTED, "backbone is %s, expected one with weights to save", e->backbone);
    while (dtype && i < n && strcmp(words[i], dtype) != 0)
        i++;
    if (i == n)
        return sfp__fail_key(err, "dtype", SFP_EINVAL, "dtype is '%.80s', expected f32, f16 or bf16", dtype);
    const char *name = strrchr(e->backbone, '/');
    const sfp__meta meta[] = {{"format", "pt"}, {"source", name ? name + 1 : e->backbone}, {"recognised", e->vit->recognised}};
    return sfp__vit_save(&e->vit->config, &e->vit->weights, types[i], meta, sizeof meta / sizeof *meta, path, err);
}

/* ---------------------------------------------------------------------------------------------------------- pretraining */

typedef struct calls {
    const sfp_pretrain_options *o;
    atomic_int stop;
} calls;

static void on_progress(void *ctx, const sfp__pretrain_progress *p)
{
    calls *c = ctx;
    sfp_pretrain_progress out = {.size = sizeof out,
                                 .phase = p->phase,
                                 .done = p->done,
                                 .total = p->total,
                                 .fraction = p->fraction,
                                 .start_fraction = p->start_fraction,
                                 .seconds = p->seconds,
                                 .epoch = p->epoch,
                                 .images_per_second = p->images_per_second,
                                 .ncm = p->ncm,
                                 .knn = p->knn};
    _Static_assert(sizeof out.loss == sizeof p->loss, "one loss per term");
    memcpy(out.loss, p->loss, sizeof out.loss);
    if (c->o->progress)
        c->o->progress(c->o->ctx, &out);
    if (c->o->cancelled && c->o->cancelled(c->o->ctx))
        atomic_store(&c->stop, 1);
}

static void on_info(void *ctx, const char *message)
{
    const calls *c = ctx;
    if (c->o->log)
        c->o->log(c->o->ctx, SFP_LOG_INFO, message);
}

static void on_warning(void *ctx, const char *message)
{
    const calls *c = ctx;
    if (c->o->log)
        c->o->log(c->o->ctx, SFP_LOG_WARNING, message);
}

static void write_result(const sfp__pretrain_result *r, sfp_pretrain_result *out)
{
    sfp_pretrain_result full = {.size = out->size,
                                .finished = r->finished,
                                .steps = r->steps,
                                .images = r->images,
                                .parameters = r->parameters,
                                .seconds = r->seconds,
                                .images_per_second = r->images_per_second,
                                .epochs = r->epochs,
                                .ncm = r->ncm,
                                .knn = r->knn};
    memcpy(full.loss, r->loss, sizeof full.loss);
    memcpy(out, &full, out->size < sizeof full ? out->size : sizeof full);
}

sfp_status sfp_pretrain(const sfp_settings *settings, const sfp_pretrain_options *options, sfp_pretrain_result *result,
                        sfp_error *err)
{
    IN_LIBRARY;
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = NULL;
    sfp_pretrain_options o;
    sfp__pretrain_options p;
    sfp__pretrain_result r = {0};
    TRY(sfp__api_options(options, &o, sizeof o, "sfp_pretrain_options", err));
    if (result && result->size < sizeof result->size)
        return sfp__fail(err, SFP_EINVAL, "sfp_pretrain_result: size is %zu, expected sizeof(sfp_pretrain_result)", result->size);
    const sfp__args *a = settings ? sfp__api_pretrain_args(settings) : NULL;
    if (!a)
        return sfp__fail(err, SFP_EINVAL, "settings: expected those of sfp_pretrain_settings_create");
    TRY(sfp__pretrain_read_options(a, &p, err));
    p.output.command = o.command;
    calls c = {.o = &o};
    const sfp__pretrain_hooks hooks = {.ctx = &c, .progress = on_progress, .info = on_info, .warn = on_warning, .stop = &c.stop};
    TRY(sfp__thread_pool_create((int)sfp__args_int(a, "threads"), &pool, err));
    TRY(sfp__pretrain(&p, pool, &hooks, &r, err));
    if (result)
        write_result(&r, result);
    return SFP_OK;
}
