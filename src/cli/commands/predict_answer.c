#include "cli/commands/predict.h"

#include "cli/backbone.h"

#include "base/mem.h"
#include "compute/pixels.h"

#include <limits.h>
#include <math.h>
#include <string.h>

enum { EVAL_TOP = 5, NORMALISE_NONE = 1, NORMALISE_IMAGENET, NORMALISE_HALF };

/* -------------------------------------------------------------------- opening */

static void choose_normalisation(sfp_predict *p)
{
    const sfp_vit_config *c = &p->vit->config;
    int how = sfp__args_choice(p->args, "normalise");
    for (int i = 0; i < 3; i++) {
        bool none = how == NORMALISE_NONE, half = how == NORMALISE_HALF, imagenet = how == NORMALISE_IMAGENET;
        p->mean[i] = none ? 0.0f : half ? 0.5f : imagenet ? sfp__imagenet_mean[i] : c->mean[i];
        p->std[i] = none ? 1.0f : half ? 0.5f : imagenet ? sfp__imagenet_std[i] : c->std[i];
    }
}

static sfp_status open_backbone(sfp_predict *p, sfp_error *err)
{
    const sfp_args *a = p->args;
    p->classes = p->vit->config.classes;
    p->score = p->classes > 0;
    p->resize = sfp__args_choice(a, "resize") == 0 ? SFP_RESIZE_SQUASH : SFP_RESIZE_CROP;
    choose_normalisation(p);
    if (!p->score && (p->eval || !sfp__args_string(a, "features")))
        return sfp__fail(
            err, SFP_EUNSUPPORTED,
            "%s: this backbone has no head (no tensor 'head.weight'), so it has no classes; --features FILE writes its "
            "features, --state FILE gives it what was learned",
            sfp__args_string(a, "backbone"));
    return SFP_OK;
}

static sfp_status open_state(sfp_predict *p, const char *given, sfp_error *err)
{
    char path[PATH_MAX];
    bool any = false;
    sfp_status s = sfp__state_file(given, path, sizeof path, err);
    if (!s)
        s = sfp__predictor_open(p->vit, p->pool, path, 0, &p->predictor, err);
    if (s)
        return s;
    p->classes = sfp_predictor_classes(p->predictor);
    p->resize = sfp__predictor_options(p->predictor)->resize;
    p->score = true;
    for (int c = 0; c < p->classes && !any; c++)
        any = sfp__predictor_seen(p->predictor, c);
    return any ? SFP_OK : sfp__fail(err, SFP_EINVAL, "%s: has seen no class yet, expected at least one", path);
}

sfp_status sfp__predict_open(sfp_predict *p, sfp_error *err)
{
    const char *state = sfp__args_string(p->args, "state");
    return state ? open_state(p, state, err) : open_backbone(p, err);
}

const char *sfp__predict_class_name(const sfp_predict *p, int k)
{
    const sfp_vit_config *c = &p->vit->config;
    if (p->names)
        return (size_t)k < p->name_count ? p->names[k] : NULL;
    if (p->predictor)
        return sfp_predictor_class_name(p->predictor, k);
    return c->class_names ? c->class_names[k] : NULL;
}

sfp_status sfp__predict_room(sfp_predict *p, sfp_error *err)
{
    const sfp_vit_config *c = &p->vit->config;
    size_t chunk = (size_t)p->chunk, pixels = 3 * (size_t)c->img_size * (size_t)c->img_size,
           classes = p->classes > 0 ? (size_t)p->classes : 1;
    p->scores = sfp__calloc(chunk * classes, sizeof *p->scores);
    p->label = sfp__calloc(chunk, sizeof *p->label);
    p->top_count = sfp__calloc(chunk, sizeof *p->top_count);
    p->top = sfp__calloc(chunk * SFP_PREDICT_TOP_MAX, sizeof *p->top);
    p->top_p = sfp__calloc(chunk * SFP_PREDICT_TOP_MAX, sizeof *p->top_p);
    if (!p->scores || !p->label || !p->top_count || !p->top || !p->top_p)
        return sfp__fail_nomem(err);
    if (p->predictor)
        return SFP_OK;
    p->x = sfp__malloc(chunk * pixels * sizeof *p->x);
    p->feature = sfp__malloc(chunk * (size_t)c->dim * sizeof *p->feature);
    if (!p->x || !p->feature)
        return sfp__fail_nomem(err);
    const sfp_vit_plan_options plan = {.mode = SFP_VIT_FORWARD};
    return sfp__vit_plan_create(p->vit, p->pool, &plan, &p->plan, err);
}

void sfp__predict_close(sfp_predict *p)
{
    sfp_predictor_free(p->predictor);
    sfp__vit_plan_free(p->plan);
    sfp__free(p->x);
    sfp__free(p->feature);
    sfp__free(p->scores);
    sfp__free(p->label);
    sfp__free(p->top_count);
    sfp__free(p->top);
    sfp__free(p->top_p);
}

/* ------------------------------------------------------------------- answering */

static void normalise_one(void *ctx, int i, int worker)
{
    sfp_predict *p = ctx;
    int side = p->vit->config.img_size;
    (void)worker;
    sfp__pixels_normalise(p->picture[i], side, p->mean, p->std, p->x + (size_t)i * 3 * (size_t)side * (size_t)side);
}

static sfp_status ask_backbone(sfp_predict *p, sfp_error *err)
{
    sfp__thread_pool_run(p->pool, p->decoded, normalise_one, p);
    const sfp_vit_pass pass = {.b = p->decoded, .x = p->x, .feature = p->feature};
    sfp_status s = sfp__vit_run(p->plan, &pass, err);
    return s || !p->score ? s : sfp__vit_head(p->vit, p->decoded, p->feature, p->scores, err);
}

/* Probabilities of the best classes of picture i; ties by lower class. */
static void rank_one(void *ctx, int i, int worker)
{
    sfp_predict *p = ctx;
    const float *z = p->scores + (size_t)i * (size_t)p->classes;
    int32_t *top = p->top + (size_t)i * SFP_PREDICT_TOP_MAX;
    float *top_p = p->top_p + (size_t)i * SFP_PREDICT_TOP_MAX;
    int want = p->topk > EVAL_TOP ? p->topk : EVAL_TOP, have = 0;
    (void)worker;
    for (int k = 0; k < p->classes; k++) {
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
    for (int k = 0; have > 0 && k < p->classes; k++)
        sum += exp((double)z[k] - (double)z[top[0]]);
    for (int k = 0; k < have; k++)
        top_p[k] = (float)(exp((double)z[top[k]] - (double)z[top[0]]) / sum);
    p->top_count[i] = have;
}

sfp_status sfp__predict_answer(sfp_predict *p, sfp_error *err)
{
    if (p->decoded == 0)
        return SFP_OK;
    sfp_status s = p->predictor
                       ? sfp__predictor_run(p->predictor, p->decoded, p->picture, p->label, p->scores, p->classes, NULL, err)
                       : ask_backbone(p, err);
    if (!s && p->score)
        sfp__thread_pool_run(p->pool, p->decoded, rank_one, p);
    return s;
}
