/* The public interface (streamfp.h) on top of vit, learner and predictor. */
#include "base/mem.h"
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

struct sfp_settings {
    int count, room;
    char **pairs; /* (room) key, value, key, value, ... */
};

/* -------------------------------------------------------------------- engine */

static sfp_status engine_from(sfp_status s, sfp_vit *vit, int threads, sfp_engine **out, sfp_error *err)
{
    sfp_engine *e = NULL;
    sfp_thread_pool *pool = NULL;
    if (!s)
        s = sfp__thread_pool_create(threads, &pool, err);
    if (!s && !(e = sfp__calloc(1, sizeof *e)))
        s = sfp__fail_nomem(err);
    if (s) {
        sfp__thread_pool_free(pool);
        sfp__vit_free(vit);
        return s;
    }
    *e = (sfp_engine){vit, pool};
    *out = e;
    return SFP_OK;
}

sfp_status sfp_engine_open(const char *backbone, int threads, sfp_engine **out, sfp_error *err)
{
    sfp_vit *vit = NULL;
    sfp_status s = sfp__vit_load(backbone, NULL, &vit, err);
    return engine_from(s, vit, threads, out, err);
}

sfp_status sfp_engine_open_random(uint64_t seed, int threads, sfp_engine **out, sfp_error *err)
{
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
    sfp_status s = sfp__vit_random(&c, seed, 0.1f, &vit, err);
    return engine_from(s, vit, threads, out, err);
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
    sfp_image whole = {0}, fit = {0};
    sfp_status s = sfp__image_load(path, NULL, &whole, err);
    if (!s)
        s = sfp__image_fit(&whole, size, how, &fit, err);
    if (!s)
        memcpy(rgb, fit.rgb, 3 * (size_t)size * (size_t)size);
    sfp__image_done(&whole);
    sfp__image_done(&fit);
    return s;
}

sfp_status sfp_engine_read_image(const sfp_engine *e, const char *path, uint8_t *rgb, sfp_error *err)
{
    return read_image(path, sfp_engine_image_size(e), SFP_RESIZE_SQUASH, rgb, err);
}

/* ------------------------------------------------------------------ settings */

const sfp_setting_info *sfp_settings_info(int i)
{
    return i >= 0 && i < sfp__settings_count ? &sfp__settings[i].info : NULL;
}

sfp_status sfp_settings_create(sfp_settings **out, sfp_error *err)
{
    sfp_settings *s = sfp__calloc(1, sizeof *s);
    if (!s)
        return sfp__fail_nomem(err);
    *out = s;
    return SFP_OK;
}

void sfp_settings_free(sfp_settings *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->count; i++)
        sfp__free(s->pairs[i]);
    sfp__free(s->pairs);
    sfp__free(s);
}

sfp_status sfp_settings_set(sfp_settings *s, const char *key, const char *value, sfp_error *err)
{
    /* checked here, so that the message comes where the mistake is; kept as text, applied when the backbone is known */
    sfp_learner_options scratch = {0};
    const sfp_vit_config plain = {.std = {1, 1, 1}};
    sfp_status status = sfp__settings_apply(&scratch, &plain, key, value, err);
    if (status)
        return status;
    if (s->count + 2 > s->room) {
        int room = s->room ? 2 * s->room : 16;
        char **pairs = sfp__realloc(s->pairs, (size_t)s->room * sizeof *pairs, (size_t)room * sizeof *pairs);
        if (!pairs)
            return sfp__fail_nomem(err);
        s->pairs = pairs;
        s->room = room;
    }
    char *k = sfp__strdup(key), *v = sfp__strdup(value);
    if (!k || !v) {
        sfp__free(k);
        sfp__free(v);
        return sfp__fail_nomem(err);
    }
    s->pairs[s->count++] = k;
    s->pairs[s->count++] = v;
    return SFP_OK;
}

/* ------------------------------------------------------------------- learner */

sfp_status sfp_learner_create(sfp_engine *e, const sfp_settings *settings, sfp_learner **out, sfp_error *err)
{
    sfp_learner_options o = sfp__learner_options_defaults(e->vit);
    for (int i = 0; i < sfp__settings_count; i++) {
        sfp_status s = sfp__settings_apply(&o, &e->vit->config, sfp__settings[i].info.key, sfp__settings[i].info.fallback, err);
        if (s)
            return s;
    }
    int depth = e->vit->config.depth;
    if (o.fp.last_layer >= depth)
        o.fp.last_layer = depth - 1; /* the default "0-4" on a shallow backbone; what the caller sets is taken as it is */
    for (int i = 0; settings && i < settings->count; i += 2) {
        sfp_status s = sfp__settings_apply(&o, &e->vit->config, settings->pairs[i], settings->pairs[i + 1], err);
        if (s)
            return s;
    }
    return sfp__learner_create(e->vit, e->pool, &o, out, err);
}

void sfp_learner_free(sfp_learner *l)
{
    sfp__learner_free(l);
}

sfp_status sfp_learner_offer(sfp_learner *l, int count, const sfp_sample *samples, sfp_report *report, sfp_error *err)
{
    sfp_timestamp t;
    sfp_status s = sfp__learner_offer(l, count, samples, &t, err);
    if (s || !report)
        return s;
    int replayed = 0;
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

sfp_status sfp_learner_next_task(sfp_learner *l, sfp_error *err)
{
    return sfp__learner_next_task(l, err);
}

int sfp_learner_classes(const sfp_learner *l)
{
    return sfp__learner_classes(l);
}

sfp_status sfp_learner_name_class(sfp_learner *l, int32_t label, const char *name, sfp_error *err)
{
    return sfp__learner_name_class(l, label, name, err);
}

sfp_status sfp_learner_save(sfp_learner *l, const char *path, sfp_error *err)
{
    return sfp__learner_save_state(l, path, err);
}

sfp_status sfp_learner_load(sfp_learner *l, const char *path, sfp_error *err)
{
    return sfp__learner_load_state(l, path, err);
}

sfp_status sfp_learner_checkpoint(sfp_learner *l, const char *path, const char *position, sfp_error *err)
{
    return sfp__learner_checkpoint(l, path, position ? position : "", err);
}

sfp_status sfp_learner_resume(sfp_learner *l, const char *path, char *buffer, size_t size, sfp_error *err)
{
    char *position = NULL;
    bool used_old;
    sfp_status s = sfp__learner_resume(l, path, &position, &used_old, err);
    if (!s && buffer && size)
        (void)snprintf(buffer, size, "%s", position ? position : "");
    sfp__free(position);
    return s;
}

/* ----------------------------------------------------------------- predictor */

sfp_status sfp_predictor_create(sfp_learner *l, int threads, int max_batch, sfp_predictor **out, sfp_error *err)
{
    sfp_thread_pool *pool = NULL;
    sfp_status s = sfp__thread_pool_create(threads, &pool, err);
    if (s)
        return s;
    if ((s = sfp__predictor_create(l, pool, max_batch, out, err)))
        sfp__thread_pool_free(pool);
    else
        sfp__predictor_own_pool(*out);
    return s;
}

sfp_status sfp_predictor_open(sfp_engine *e, const char *state, int threads, int max_batch, sfp_predictor **out, sfp_error *err)
{
    sfp_thread_pool *pool = NULL;
    sfp_status s = sfp__thread_pool_create(threads, &pool, err);
    if (s)
        return s;
    if ((s = sfp__predictor_open(e->vit, pool, state, max_batch, out, err)))
        sfp__thread_pool_free(pool);
    else
        sfp__predictor_own_pool(*out);
    return s;
}

int sfp_predictor_classes(const sfp_predictor *p)
{
    return sfp__predictor_classes(p);
}

const char *sfp_predictor_class_name(const sfp_predictor *p, int32_t label)
{
    return sfp__predictor_class_name(p, label);
}

sfp_status sfp_predictor_read_image(const sfp_predictor *p, const char *path, uint8_t *rgb, sfp_error *err)
{
    return read_image(path, sfp__predictor_image_size(p), sfp__predictor_options(p)->resize, rgb, err);
}

void sfp_predictor_free(sfp_predictor *p)
{
    sfp__predictor_free(p);
}

sfp_status sfp_predictor_run(sfp_predictor *p, int count, const uint8_t *const *rgb, int32_t *label, float *logp, int classes,
                             uint64_t *timestamps, sfp_error *err)
{
    sfp_prediction answer = {0};
    sfp_status s = sfp__predictor_run(p, count, rgb, label, logp, classes, &answer, err);
    if (!s && timestamps)
        *timestamps = answer.t;
    return s;
}
