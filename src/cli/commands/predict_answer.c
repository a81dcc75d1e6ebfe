#include "cli/commands/predict.h"

#include "cli/backbone.h"

#include "base/mem.h"
#include "compute/pixels.h"
#include "learner/state/state.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum { EVAL_TOP = 5, NORMALISE_NONE = 1, NORMALISE_IMAGENET, NORMALISE_HALF };

/* -------------------------------------------------------------------- opening */

static void choose_normalisation(sfp__image_classifier *a, int how)
{
    const sfp__vit_config *c = &a->vit->config;
    for (int i = 0; i < 3; i++) {
        bool none = how == NORMALISE_NONE, half = how == NORMALISE_HALF, imagenet = how == NORMALISE_IMAGENET;
        a->mean[i] = none ? 0.0f : half ? 0.5f : imagenet ? sfp__imagenet_mean[i] : c->mean[i];
        a->std[i] = none ? 1.0f : half ? 0.5f : imagenet ? sfp__imagenet_std[i] : c->std[i];
    }
}

static sfp_status open_backbone(sfp__image_classifier *a, const sfp__args *args, sfp_error *err)
{
    a->classes = a->vit->config.classes;
    a->score = a->classes > 0;
    a->resize = sfp__args_choice(args, "resize") == 0 ? SFP_RESIZE_SQUASH : SFP_RESIZE_CROP;
    choose_normalisation(a, sfp__args_choice(args, "normalise"));
    if (!a->score && (sfp__args_string(args, "eval") || !sfp__args_string(args, "features")))
        return sfp__fail(
            err, SFP_EUNSUPPORTED,
            "%s: this backbone has no head (no tensor 'head.weight'), so it has no classes; --features FILE writes its "
            "features, --state FILE gives it what was learned",
            sfp__args_string(args, "backbone"));
    return SFP_OK;
}

static sfp_status open_state(sfp__image_classifier *a, const char *given, sfp_error *err)
{
    char path[PATH_MAX];
    bool any = false;
    TRY(sfp__state_path(given, path, sizeof path, err));
    TRY(sfp__predictor_open(a->vit, a->pool, path, 0, &a->predictor, err));
    a->classes = sfp__predictor_classes(a->predictor);
    a->resize = sfp__predictor_options(a->predictor)->resize;
    a->score = true;
    for (int c = 0; c < a->classes && !any; c++)
        any = sfp__predictor_seen(a->predictor, c);
    return any ? SFP_OK : sfp__fail(err, SFP_EINVAL, "%s: has seen no class yet, expected at least one", path);
}

static sfp_status read_names(sfp__image_classifier *a, const char *path, sfp_error *err)
{
    if (!path)
        return SFP_OK;
    TRY(sfp__class_names_read(path, &a->names, err));
    if (a->names.count != a->classes)
        return sfp__fail(err, SFP_EFORMAT, "%s: %d names, expected %d, as many as the %s has classes", path, a->names.count,
                         a->classes, a->predictor ? "state" : "backbone");
    return SFP_OK;
}

sfp_status sfp__image_classifier_open(sfp__image_classifier *a, const sfp__args *args, sfp_error *err)
{
    const char *state = sfp__args_string(args, "state");
    TRY(sfp__thread_pool_create((int)sfp__args_int(args, "threads"), &a->pool, err));
    TRY(sfp__backbone_open_for(args, state, &a->vit, err));
    TRY(state ? open_state(a, state, err) : open_backbone(a, args, err));
    a->topk = (int)sfp__args_int(args, "topk");
    a->topk = a->topk > a->classes ? a->classes : a->topk;
    return read_names(a, sfp__args_string(args, "names"), err);
}

const char *sfp__image_classifier_class_name(const sfp__image_classifier *a, int k)
{
    const sfp__vit_config *c = &a->vit->config;
    if (a->names.count > 0)
        return k < a->names.count ? a->names.s[k] : NULL;
    if (a->predictor)
        return sfp__predictor_class_name(a->predictor, k);
    return c->class_names ? c->class_names[k] : NULL;
}

sfp_status sfp__image_classifier_reserve(sfp__image_classifier *a, int chunk, sfp_error *err)
{
    const sfp__vit_config *c = &a->vit->config;
    size_t n = (size_t)chunk, own = a->predictor ? 0 : n; /* a predictor has arrays of its own */
    const sfp__want list[] = {{&a->scores, n * (size_t)(a->classes > 0 ? a->classes : 1), sizeof *a->scores},
                              {&a->label, n, sizeof *a->label},
                              {&a->top_count, n, sizeof *a->top_count},
                              {&a->top, n * SFP_PREDICT_TOP_MAX, sizeof *a->top},
                              {&a->top_p, n * SFP_PREDICT_TOP_MAX, sizeof *a->top_p},
                              {&a->x, own * 3 * (size_t)c->img_size * (size_t)c->img_size, sizeof *a->x},
                              {&a->feature, own * (size_t)c->dim, sizeof *a->feature}};
    TRY(sfp__block(&a->block, SFP_LIST(list), err));
    const sfp__vit_plan_options plan = {.mode = SFP_VIT_FORWARD};
    return a->predictor ? SFP_OK : sfp__vit_plan_create(a->vit, a->pool, &plan, &a->plan, err);
}

void sfp__image_classifier_close(sfp__image_classifier *a)
{
    sfp__predictor_free(a->predictor);
    sfp__vit_plan_free(a->plan);
    sfp__free(a->block);
    sfp__strings_done(&a->names);
    sfp__vit_free(a->vit);
    sfp__thread_pool_free(a->pool);
}

/* ------------------------------------------------------------------- answering */

static void normalise_one(void *ctx, int i, int worker)
{
    sfp__image_classifier *a = ctx;
    int side = a->vit->config.img_size;
    (void)worker;
    sfp__pixels_normalise(a->image[i], side, a->mean, a->std, a->x + (size_t)i * 3 * (size_t)side * (size_t)side);
}

static sfp_status ask_backbone(sfp__image_classifier *a, int n, sfp_error *err)
{
    sfp__thread_pool_run(a->pool, n, normalise_one, a);
    const sfp__vit_pass pass = {.b = n, .x = a->x, .feature = a->feature};
    TRY(sfp__vit_run(a->plan, &pass, err));
    return a->score ? sfp__vit_head(a->vit, n, a->feature, a->scores, err) : SFP_OK;
}

/* Probabilities of the best classes of image i; ties by lower class. */
static void rank_one(void *ctx, int i, int worker)
{
    sfp__image_classifier *a = ctx;
    const float *z = a->scores + (size_t)i * (size_t)a->classes;
    int32_t *top = a->top + (size_t)i * SFP_PREDICT_TOP_MAX;
    float *top_p = a->top_p + (size_t)i * SFP_PREDICT_TOP_MAX;
    int want = a->topk > EVAL_TOP ? a->topk : EVAL_TOP, have = 0;
    (void)worker;
    for (int k = 0; k < a->classes; k++) {
        if (z[k] == -INFINITY)
            continue;
        int at = have < want ? have++ : want;
        for (; at > 0 && z[k] > z[top[at - 1]]; at--)
            if (at < want)
                top[at] = top[at - 1];
        if (at < want)
            top[at] = k;
    }
    double sum = 0;
    for (int k = 0; have > 0 && k < a->classes; k++)
        sum += exp((double)z[k] - (double)z[top[0]]);
    for (int k = 0; k < have; k++)
        top_p[k] = (float)(exp((double)z[top[k]] - (double)z[top[0]]) / sum);
    a->top_count[i] = have;
}

sfp_status sfp__image_classifier_run(sfp__image_classifier *a, int n, const uint8_t *const *image, sfp_error *err)
{
    if (n == 0)
        return SFP_OK;
    a->image = image;
    TRY(a->predictor ? sfp__predictor_run(a->predictor, n, image, a->label, a->scores, a->classes, NULL, err)
                     : ask_backbone(a, n, err));
    if (a->score)
        sfp__thread_pool_run(a->pool, n, rank_one, a);
    return SFP_OK;
}
