/* The public interface (streamfp.h) on top of vit, learner and predictor. */
#include "base/c_locale.h"
#include "base/mem.h"
#include "base/text.h"
#include "io/image/image.h"
#include "learner/learner.h"
#include "learner/predictor.h"
#include "learner/settings.h"

#include <stdio.h>
#include <string.h>

struct sfp_engine {
    sfp_vit *vit;
    sfp_thread_pool *pool;
};
DEFINE_OWNED_PTR(sfp_engine, sfp_engine_close)

struct sfp_settings {
    sfp_strings pairs; /* key, value, key, value, ... */
};

/* -------------------------------------------------------------------- engine */

/* Takes the backbone over, also when it fails. */
static sfp_status make_engine(sfp_vit *vit, int threads, sfp_engine **out, sfp_error *err)
{
    OWNED_PTR(sfp_engine_close) sfp_engine *e = NULL;
    OWNED_PTR(sfp__vit_free) sfp_vit *own = vit;
    TRY(sfp__alloc(&e, 1, sizeof *e, err));
    e->vit = TAKE(own);
    TRY(sfp__thread_pool_create(threads, &e->pool, err));
    *out = TAKE(e);
    return SFP_OK;
}

sfp_status sfp_engine_open(const char *backbone, int threads, sfp_engine **out, sfp_error *err)
{
    IN_C_LOCALE;
    sfp_vit *vit = NULL;
    TRY(sfp__vit_load(backbone, NULL, &vit, err));
    return make_engine(vit, threads, out, err);
}

sfp_status sfp_engine_open_random(uint64_t seed, int threads, sfp_engine **out, sfp_error *err)
{
    IN_C_LOCALE;
    const sfp_vit_config c = {.img_size = 32,
                              .patch_size = 8,
                              .channels = 3,
                              .dim = 64,
                              .depth = 6,
                              .heads = 4,
                              .hidden = 256,
                              .ln_eps = 1e-6f,
                              .mean = {0.5f, 0.5f, 0.5f},
                              .std = {0.25f, 0.25f, 0.25f}};
    sfp_vit *vit = NULL;
    TRY(sfp__vit_random(&c, seed, 0.1f, &vit, err));
    return make_engine(vit, threads, out, err);
}

void sfp_engine_close(sfp_engine *e)
{
    if (!e)
        return;
    sfp__thread_pool_free(e->pool);
    sfp__vit_free(e->vit);
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

static sfp_status read_image(const char *path, int size, sfp_resize how, uint8_t *rgb, sfp_error *err)
{
    OWNED_BY(sfp__image_done) sfp_image whole = {0};
    OWNED_BY(sfp__image_done) sfp_image fit = {0};
    TRY(sfp__image_load(path, NULL, &whole, err));
    TRY(sfp__image_fit(&whole, size, how, &fit, err));
    memcpy(rgb, fit.rgb, 3 * (size_t)size * (size_t)size);
    return SFP_OK;
}

sfp_status sfp_engine_read_image(const sfp_engine *e, const char *path, uint8_t *rgb, sfp_error *err)
{
    IN_C_LOCALE;
    return read_image(path, sfp_engine_image_size(e), SFP_RESIZE_SQUASH, rgb, err);
}

/* ------------------------------------------------------------------ settings */

const sfp_setting_info *sfp_settings_info(int i)
{
    return i >= 0 && i < sfp__settings_count ? &sfp__settings[i].info : NULL;
}

sfp_status sfp_settings_create(sfp_settings **out, sfp_error *err)
{
    IN_C_LOCALE;
    return sfp__alloc(out, 1, sizeof **out, err);
}

void sfp_settings_free(sfp_settings *s)
{
    if (!s)
        return;
    sfp__strings_done(&s->pairs);
    sfp__free(s);
}

sfp_status sfp_settings_set(sfp_settings *s, const char *key, const char *value, sfp_error *err)
{
    IN_C_LOCALE;
    /* checked here, so that the message comes where the mistake is; kept as text, applied when the backbone is known */
    sfp_learner_options scratch = {0};
    const sfp_vit_config plain = {.std = {1, 1, 1}};
    int at = s->pairs.count;
    TRY(sfp__settings_apply(&scratch, &plain, key, value, err));
    OWNED char *k = sfp__strdup(key);
    OWNED char *v = sfp__strdup(value);
    TRY(sfp__check_memory(k && v, err));
    TRY(sfp__strings_resize(&s->pairs, at + 2, err));
    s->pairs.s[at] = TAKE(k);
    s->pairs.s[at + 1] = TAKE(v);
    return SFP_OK;
}

/* ------------------------------------------------------------------- learner */

sfp_status sfp_learner_create(sfp_engine *e, const sfp_settings *settings, sfp_learner **out, sfp_error *err)
{
    IN_C_LOCALE;
    const sfp_vit_config *c = &e->vit->config;
    sfp_learner_options o = sfp__learner_options_defaults(e->vit);
    for (int i = 0; i < sfp__settings_count; i++)
        TRY(sfp__settings_apply(&o, c, sfp__settings[i].info.key, sfp__settings[i].info.default_value, err));
    if (o.fp.last_layer >= c->depth)
        o.fp.last_layer = c->depth - 1; /* the default "0-4" on a shallow backbone; what the caller sets is taken as it is */
    for (int i = 0; settings && i < settings->pairs.count; i += 2)
        TRY(sfp__settings_apply(&o, c, settings->pairs.s[i], settings->pairs.s[i + 1], err));
    return sfp__learner_create(e->vit, e->pool, &o, out, err);
}

sfp_status sfp_learner_offer(sfp_learner *l, int count, const sfp_sample *samples, sfp_report *report, sfp_error *err)
{
    IN_C_LOCALE;
    sfp_timestamp_details t;
    int replayed = 0;
    TRY(sfp__learner_offer(l, count, samples, &t, err));
    if (!report)
        return SFP_OK;
    for (int k = 0; k < t.steps; k++)
        replayed += t.replay_count[k];
    *report = (sfp_report){.timestamp = t.t,
                           .offered = t.offered,
                           .trained = t.coreset_count,
                           .replayed = replayed,
                           .stored = t.buffer.stored,
                           .replaced = t.buffer.nu,
                           .loss = t.loss[t.steps - 1],
                           .seconds = t.seconds.total};
    return SFP_OK;
}

sfp_status sfp_learner_resume(sfp_learner *l, const char *path, char *buffer, size_t size, sfp_error *err)
{
    IN_C_LOCALE;
    OWNED char *position = NULL;
    TRY(sfp__learner_resume(l, path, &position, NULL, err));
    if (buffer && size)
        (void)snprintf(buffer, size, "%s", position);
    return SFP_OK;
}

/* ----------------------------------------------------------------- predictor */

/* The pool goes with the predictor, or when that could not be made goes now. */
static sfp_status own_pool(sfp_status made, sfp_thread_pool *pool, sfp_predictor **p)
{
    if (made)
        sfp__thread_pool_free(pool);
    else
        sfp__predictor_own_pool(*p);
    return made;
}

sfp_status sfp_predictor_create(sfp_learner *l, int threads, int max_batch, sfp_predictor **out, sfp_error *err)
{
    IN_C_LOCALE;
    sfp_thread_pool *pool = NULL;
    TRY(sfp__thread_pool_create(threads, &pool, err));
    return own_pool(sfp__predictor_create(l, pool, max_batch, out, err), pool, out);
}

sfp_status sfp_predictor_open(sfp_engine *e, const char *state, int threads, int max_batch, sfp_predictor **out, sfp_error *err)
{
    IN_C_LOCALE;
    sfp_thread_pool *pool = NULL;
    TRY(sfp__thread_pool_create(threads, &pool, err));
    return own_pool(sfp__predictor_open(e->vit, pool, state, max_batch, out, err), pool, out);
}

sfp_status sfp_predictor_read_image(const sfp_predictor *p, const char *path, uint8_t *rgb, sfp_error *err)
{
    IN_C_LOCALE;
    return read_image(path, sfp__predictor_image_size(p), sfp__predictor_options(p)->resize, rgb, err);
}

sfp_status sfp_predictor_run(sfp_predictor *p, int count, const uint8_t *const *rgb, int32_t *label, float *logp, int classes,
                             uint64_t *timestamps, sfp_error *err)
{
    IN_C_LOCALE;
    sfp_prediction answer = {0};
    TRY(sfp__predictor_run(p, count, rgb, label, logp, classes, &answer, err));
    if (timestamps)
        *timestamps = answer.t;
    return SFP_OK;
}
