/* Conversion and pretraining of backbones (streamfp.h, part 12). */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"
#include "pretrain/pretrain.h"

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
    TRY(sfp__vit_hold_all(e->vit, err));
    sfp_status status = sfp__vit_save(&e->vit->config, &e->vit->weights, types[i], meta, sizeof meta / sizeof *meta, path, err);
    sfp__vit_unhold_all(e->vit);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------- pretraining */

sfp_status sfp_pretrain(const sfp_settings *settings, const sfp_pretrain_options *options, sfp_pretrain_result *result,
                        sfp_error *err)
{
    IN_LIBRARY;
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = NULL;
    sfp_pretrain_options o;
    sfp__pretrain_options p;
    sfp_pretrain_result r;
    TRY(sfp__api_options(options, &o, sizeof o, "sfp_pretrain_options", err));
    if (result && result->size < sizeof result->size)
        return sfp__fail(err, SFP_EINVAL, "sfp_pretrain_result: size is %zu, expected sizeof(sfp_pretrain_result)", result->size);
    const sfp__args *a = settings ? sfp__api_pretrain_args(settings) : NULL;
    if (!a)
        return sfp__fail(err, SFP_EINVAL, "settings: expected those of sfp_pretrain_settings_create");
    TRY(sfp__pretrain_read_options(a, &p, err));
    TRY(sfp__thread_pool_create((int)sfp__args_int(a, "threads"), &pool, err));
    TRY(sfp__pretrain(&p, &o, pool, &r, err));
    if (result) {
        r.size = result->size;
        memcpy(result, &r, r.size < sizeof r ? r.size : sizeof r);
    }
    return SFP_OK;
}
