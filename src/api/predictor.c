/* Predictors (streamfp.h, part 6). This file converts images of any kind to the input size and calls the predictor of src/learner. An unreadable
 * image does not affect the others: it is skipped, and its prediction has an error status. */
#include "api/api.h"

#include "base/in_library.h"
#include "learner/learner_internal.h"
#include "learner/state/state.h"
#include "stream/source_internal.h"

#include <limits.h>
#include <string.h>

#define CACHE_BYTES (UINT64_C(4) << 30) /* as the setting cache-size has by default */
enum { BACKBONE_BATCH = 32, IMAGES_MAX = 1 << 20 };

DEFINE_OWNED_PTR(sfp_predictor, sfp_predictor_free)

/* -------------------------------------------------------------------------------------------------------------- opening */

/* Reads the options and creates the threads of a predictor. */
static sfp_status begin(const sfp_predictor_options *given, sfp_predictor_options *o, sfp__thread_pool **threads, sfp_error *err)
{
    TRY(sfp__api_options(given, o, sizeof *o, "sfp_predictor_options", err));
    if (o->threads < 0 || o->threads > 1024)
        return sfp__fail_key(err, "threads", SFP_EINVAL, "threads is %d, expected 0 to 1024", o->threads);
    if (o->max_batch < 0 || o->max_batch > 100000)
        return sfp__fail(err, SFP_EINVAL, "max_batch is %d, expected 0 to 100000", o->max_batch);
    return sfp__thread_pool_create(o->threads, threads, err);
}

/* Transfers the threads to the predictor and loads its classes, so that the caller can read them. */
static sfp_status finish(sfp_predictor **p, sfp__thread_pool **threads, sfp_predictor **out, sfp_error *err)
{
    (*p)->owns_threads = TAKE(*threads);
    TRY(sfp__predictor_refresh(*p, err));
    *out = TAKE(*p);
    return SFP_OK;
}

sfp_status sfp__api_predictor(sfp__learner *l, const sfp_predictor_options *options, sfp_predictor **out, sfp_error *err)
{
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *threads = NULL;
    OWNED_PTR(sfp_predictor_free) sfp_predictor *p = NULL;
    sfp_predictor_options o;
    TRY(begin(options, &o, &threads, err));
    TRY(sfp__predictor_create(l, threads, o.max_batch, &p, err));
    return finish(&p, &threads, out, err);
}

sfp_status sfp_predictor_create(sfp_learner *l, const sfp_predictor_options *options, sfp_predictor **out, sfp_error *err)
{
    IN_LIBRARY;
    SFP__REQUIRE(l && out, "learner and out");
    TRY(sfp__thread_pool_check(sfp__api_engine(l)->pool, "the engine", err));
    return sfp__api_predictor(sfp__api_core(l), options, out, err);
}

static sfp_status open_cache(sfp_predictor *p, const char *directory, sfp_error *err)
{
    const sfp__vit_memo_options o = {.directory = directory, .max_bytes = CACHE_BYTES, .taps = p->taps, .time = &p->time};
    p->time.paused = true; /* processing times are not measured here, so time that the cache saves is not counted */
    TRY(sfp__vit_memo_create(p->vit, &o, &p->own_memo, err));
    sfp__predictor_set_memo(p, p->own_memo);
    return SFP_OK;
}

/* Loads the sums of a state file; if it has none, and belongs to a run, those of the run's checkpoint. */
static sfp_status load_sums(sfp_predictor *p, const char *file, const char *run, sfp_error *err)
{
    OWNED char *checkpoint = NULL;
    sfp_status status = sfp__predictor_load_sums(p, file, err);
    if (status != SFP_EUNSUPPORTED || strcmp(file, run) == 0)
        return status;
    TRY(sfp__path_make(run, "checkpoint", &checkpoint, err));
    return sfp__predictor_load_sums(p, checkpoint, err);
}

sfp_status sfp_predictor_open(sfp_engine *e, const char *state, const sfp_predictor_options *options, sfp_predictor **out,
                              sfp_error *err)
{
    IN_LIBRARY;
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *threads = NULL;
    OWNED_PTR(sfp_predictor_free) sfp_predictor *p = NULL;
    sfp_predictor_options o;
    char path[PATH_MAX];
    SFP__REQUIRE(e && state && out, "engine, state and out");
    TRY(sfp__state_path(state, path, sizeof path, err));
    TRY(begin(options, &o, &threads, err));
    TRY(sfp__predictor_open(e->vit, threads, path, o.max_batch, &p, err));
    if (o.cache)
        TRY(open_cache(p, o.cache, err));
    if (o.sums)
        TRY(load_sums(p, path, state, err));
    return finish(&p, &threads, out, err);
}

sfp_status sfp_predictor_open_backbone(sfp_engine *e, const sfp_settings *settings, const sfp_predictor_options *options,
                                       sfp_predictor **out, sfp_error *err)
{
    IN_LIBRARY;
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *threads = NULL;
    OWNED_PTR(sfp_predictor_free) sfp_predictor *p = NULL;
    sfp_predictor_options o;
    sfp__learner_options how;
    SFP__REQUIRE(e && out, "engine and out");
    TRY(begin(options, &o, &threads, err));
    TRY(sfp__api_learner_options(e, settings, &how, NULL, err));
    if (!settings)
        how.taps = 1, how.tap_mean = false, how.merge_tokens = 0;
    TRY(sfp__learner_check_taps(&how, &e->vit->config, err));
    TRY(sfp__predictor_of_backbone(e->vit, threads, &how, o.max_batch ? o.max_batch : BACKBONE_BATCH, &p, err));
    return finish(&p, &threads, out, err);
}

void sfp_predictor_free(sfp_predictor *p)
{
    if (p && !sfp__thread_pool_is_foreign(p->threads))
        sfp__predictor_free(p);
}

/* -------------------------------------------------------------------------------------------------------------- a run */

sfp_status sfp_predictor_run(sfp_predictor *p, int count, const sfp_image *images, sfp_prediction *predictions, sfp_error *err)
{
    IN_LIBRARY;
    SFP__REQUIRE(p, "predictor");
    TRY(sfp__thread_pool_check(p->threads, "the predictor", err));
    if (count < 0 || count > IMAGES_MAX)
        return sfp__fail(err, SFP_EINVAL, "count is %d, expected 0 to %d", count, IMAGES_MAX);
    if (count > 0 && (!images || !predictions))
        return sfp__fail(err, SFP_EINVAL, "images and predictions must not be NULL");
    sfp__predictions found;
    p->count = -1;
    TRY(sfp__predictor_reserve_input(p, count, err));
    sfp__api_fit_all(p->threads, count, images, sizeof *images, &p->vit->config, sfp__learner_resize(&p->opt), p->input,
                     p->error);
    for (int i = 0; i < count; i++)
        p->readable[i] = p->error[i].status ? NULL : p->input + (size_t)i * p->pixels;
    TRY(sfp__predictor_run(p, count, p->readable, NULL, SFP__WANT_SCORES | SFP__WANT_UNKNOWN, &found, err));
    for (int i = 0; i < count; i++)
        predictions[i] =
            (sfp_prediction){.label = found.label[i], .status = p->error[i].status, .probability = found.probability[i]};
    return SFP_OK;
}

/* ---------------------------------------------------------------------------------------------- what belongs to a run */

sfp_status sfp_predictor_refresh(sfp_predictor *p, sfp_error *err)
{
    IN_LIBRARY;
    SFP__REQUIRE(p, "predictor");
    TRY(sfp__thread_pool_check(p->threads, "the predictor", err));
    if (!p->learner)
        return SFP_OK;
    p->count = -1; /* invalidates the scores of the last run, which may have other classes */
    return sfp__predictor_refresh(p, err);
}

const char *sfp_predictor_image_error(const sfp_predictor *p, int i)
{
    return i >= 0 && i < p->count ? p->error[i].message : "";
}

int sfp_predictor_classes(const sfp_predictor *p)
{
    return p->snapshot->classes;
}

const char *sfp_predictor_class_name(const sfp_predictor *p, int32_t label)
{
    return label < sfp_predictor_classes(p) ? sfp__snapshot_class_name(p->snapshot, label) : NULL;
}

int sfp_predictor_class_seen(const sfp_predictor *p, int32_t label)
{
    return label >= 0 && label < sfp_predictor_classes(p) && p->snapshot->seen[label];
}

uint64_t sfp_predictor_timestamps(const sfp_predictor *p)
{
    return p->snapshot->t;
}

const float *sfp_predictor_scores(const sfp_predictor *p)
{
    return p->count >= 0 && sfp_predictor_classes(p) > 0 ? p->found.scores : NULL;
}

const float *sfp_predictor_features(const sfp_predictor *p)
{
    return p->count >= 0 && !p->rows ? p->query : NULL;
}

int sfp_predictor_feature_dim(const sfp_predictor *p)
{
    return p->rows ? 0 : p->tap_dim;
}

const float *sfp_predictor_unknown(const sfp_predictor *p)
{
    return p->count >= 0 && p->learner ? p->found.unknown : NULL;
}
