/* Errors, versions and engines (streamfp.h, parts 1 and 3). */
#include "api/api.h"

#include "base/c_locale.h"
#include "base/mem.h"
#include "compute/gemm.h"
#include "learner/state/state.h"
#include "model/vit.h"

#include <limits.h>
#include <string.h>

void sfp_free(void *memory)
{
    sfp__free(memory);
}

sfp_status sfp_error_set(sfp_error *err, sfp_status status, const char *message)
{
    IN_C_LOCALE;
    return sfp__fail(err, status, "%s", message ? message : "");
}

sfp_status sfp__api_callback_failed(sfp_status status, sfp_error *why, const char *where, sfp_error *err)
{
    bool known = status > SFP_OK && status <= SFP_ECANCELLED;
    why->message[sizeof why->message - 1] = '\0';
    return sfp__fail(err, known ? status : SFP_EINVAL, "%s: %s", where,
                     why->message[0] ? why->message
                     : known         ? sfp_status_text(status)
                                     : "the callback returned an unknown status");
}

sfp_status sfp__api_options(const void *given, void *out, size_t size, const char *name, sfp_error *err)
{
    size_t has = 0;
    memset(out, 0, size);
    if (given) {
        memcpy(&has, given, sizeof has);
        if (has < sizeof has)
            return sfp__fail(err, SFP_EINVAL, "%s: size is %zu, expected sizeof(%s): initialise it with its _INIT macro", name,
                             has, name);
        memcpy(out, given, has < size ? has : size);
    }
    memcpy(out, &size, sizeof size);
    return SFP_OK;
}

/* -------------------------------------------------------------------------------------------------------------- opening */

/* Takes the backbone over, also if it fails. */
static sfp_status make_engine(sfp__vit *vit, const char *backbone, const sfp_engine_options *o, sfp_engine **out, sfp_error *err)
{
    OWNED_PTR(sfp_engine_close) sfp_engine *e = NULL;
    OWNED_PTR(sfp__vit_free) sfp__vit *own = vit;
    TRY(sfp__gemm_prepare(err));
    TRY(sfp__alloc(&e, 1, sizeof *e, err));
    e->vit = TAKE(own);
    e->opt = *o;
    TRY(sfp__check_memory((e->backbone = sfp__strdup(backbone)), err));
    TRY(sfp__thread_pool_create(o->threads, &e->pool, err));
    *out = TAKE(e);
    return SFP_OK;
}

static sfp_status read_options(const sfp_engine_options *given, sfp_engine_options *o, sfp_error *err)
{
    TRY(sfp__api_options(given, o, sizeof *o, "sfp_engine_options", err));
    if (o->threads < 0 || o->threads > 1024)
        return sfp__fail_key(err, "threads", SFP_EINVAL, "threads is %d, expected 0 to 1024", o->threads);
    if (o->image_size < 0 || o->image_size > SFP__API_SIDE_MAX)
        return sfp__fail_key(err, "img-size", SFP_EINVAL, "img-size is %d, expected 0 to %d", o->image_size, SFP__API_SIDE_MAX);
    if (o->precision != SFP_PRECISION_F32 && o->precision != SFP_PRECISION_BF16)
        return sfp__fail_key(err, "precision", SFP_EINVAL, "precision is %d, expected %d or %d", (int)o->precision,
                             SFP_PRECISION_F32, SFP_PRECISION_BF16);
    return SFP_OK;
}

static sfp_status make_random(const sfp__vit_config *c, uint64_t seed, float spread, const char *name,
                              const sfp_engine_options *o, sfp_engine **out, sfp_error *err)
{
    sfp__vit *vit = NULL;
    TRY(sfp__vit_random(c, seed, spread, &vit, err));
    return make_engine(vit, name, o, out, err);
}

sfp_status sfp_engine_open(const char *backbone, const sfp_engine_options *options, sfp_engine **out, sfp_error *err)
{
    IN_C_LOCALE;
    static const sfp__vit_config stand_in = {.img_size = 32,
                                             .patch_size = 8,
                                             .channels = 3,
                                             .dim = 128,
                                             .depth = 6,
                                             .heads = 4,
                                             .hidden = 512,
                                             .ln_eps = 1e-6f,
                                             .mean = {0.5f, 0.5f, 0.5f},
                                             .std = {0.25f, 0.25f, 0.25f}};
    sfp_engine_options o;
    sfp__vit *vit = NULL;
    if (!backbone || !out)
        return sfp__fail(err, SFP_EINVAL, "backbone and out must not be NULL");
    TRY(read_options(options, &o, err));
    if (strcmp(backbone, SFP_VIT_BUILTIN) == 0 && !sfp__vit_has_builtin()) {
        if (o.log)
            o.log(
                o.log_ctx, SFP_LOG_WARNING,
                "backbone: this program was built without models/builtin.safetensors; a random ViT that is not pretrained takes "
                "its place; use --backbone FILE for a pretrained one");
        return make_random(&stand_in, 1, 0.08f, backbone, &o, out, err);
    }
    const sfp__vit_options load = {.precision = o.precision, .img_size = o.image_size};
    TRY(sfp__vit_load(backbone, &load, &vit, err));
    return make_engine(vit, backbone, &o, out, err);
}

sfp_status sfp_engine_open_random(uint64_t seed, const sfp_engine_options *options, sfp_engine **out, sfp_error *err)
{
    IN_C_LOCALE;
    static const sfp__vit_config tiny = {.img_size = 32,
                                         .patch_size = 8,
                                         .channels = 3,
                                         .dim = 64,
                                         .depth = 6,
                                         .heads = 4,
                                         .hidden = 256,
                                         .ln_eps = 1e-6f,
                                         .mean = {0.5f, 0.5f, 0.5f},
                                         .std = {0.25f, 0.25f, 0.25f}};
    sfp_engine_options o;
    if (!out)
        return sfp__fail(err, SFP_EINVAL, "out must not be NULL");
    TRY(read_options(options, &o, err));
    if (o.image_size || o.precision)
        return sfp__fail(err, SFP_EINVAL, "a random backbone has its own image size and precision, expected 0 for both");
    return make_random(&tiny, seed, 0.1f, "random", &o, out, err);
}

void sfp_engine_close(sfp_engine *e)
{
    if (!e)
        return;
    sfp__thread_pool_free(e->pool);
    sfp__vit_free(e->vit);
    sfp__free(e->backbone);
    sfp__free(e);
}

int sfp_engine_image_size(const sfp_engine *e)
{
    return e->vit->config.img_size;
}

int sfp_engine_dim(const sfp_engine *e)
{
    return e->vit->config.dim;
}

int sfp_engine_classes(const sfp_engine *e)
{
    return e->vit->config.classes;
}

sfp_status sfp_state_image_size(const char *path, int *size, sfp_error *err)
{
    IN_C_LOCALE;
    char file[PATH_MAX];
    if (!path || !size)
        return sfp__fail(err, SFP_EINVAL, "path and size must not be NULL");
    TRY(sfp__state_path(path, file, sizeof file, err));
    return sfp__state_img_size(file, size, err);
}
