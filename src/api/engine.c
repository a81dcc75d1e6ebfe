/* Engines (streamfp.h, part 3). */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"
#include "base/monotonic.h"
#include "base/rng.h"
#include "base/text.h"
#include "compute/gemm.h"
#include "learner/state/state.h"
#include "model/vit.h"
#include "results/result.h"
#include "run/options.h"
#include "stream/source_internal.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Takes ownership of `vit`, also on failure. */
static sfp_status make_engine(sfp__vit *vit, const char *backbone, const sfp_engine_options *o, sfp_engine **out, sfp_error *err)
{
    OWNED_PTR(sfp_engine_close) sfp_engine *e = NULL;
    OWNED_PTR(sfp__vit_free) sfp__vit *own = vit;
    TRY(sfp__gemm_prepare(err));
    TRY(sfp__vit_free_packed(own, err));
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
    if ((o->image_size < 0 && o->image_size != SFP_IMAGE_SIZE_AUTO) || o->image_size > SFP__API_SIDE_MAX)
        return sfp__fail_key(err, "img-size", SFP_EINVAL, "img-size is %d, expected 0 to %d", o->image_size, SFP__API_SIDE_MAX);
    if (!(o->rate >= 0) || !isfinite(o->rate) || !(o->query_seconds >= 0) || !isfinite(o->query_seconds))
        return sfp__fail(err, SFP_EINVAL, "rate is %g and query_seconds is %g, expected finite numbers from 0", o->rate,
                         o->query_seconds);
    if ((int)o->precision < SFP_PRECISION_F32 || o->precision > SFP_PRECISION_AUTO)
        return sfp__fail_key(err, "precision", SFP_EINVAL, "precision is %d, expected %d to %d", (int)o->precision,
                             SFP_PRECISION_F32, SFP_PRECISION_AUTO);
    return SFP_OK;
}

static void log_info(const sfp_engine_options *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void log_info(const sfp_engine_options *o, const char *fmt, ...)
{
    char text[SFP_ERROR_MAX];
    va_list args;
    if (!o->log)
        return;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    o->log(o->log_ctx, SFP_LOG_INFO, text);
}

/* Measures the seconds of a query pass per image, for batches of the default size. The minimum of several passes is used, because other programs
 * can only make a pass slower. */
static sfp_status measure_query(const sfp_engine *e, double *seconds, sfp_error *err)
{
    enum { IMAGES = 20, PASSES = 3 };
    const sfp__vit_plan_options forward = {.mode = SFP__VIT_FORWARD};
    const sfp__vit_config *c = &e->vit->config;
    OWNED_PTR(sfp__vit_plan_free) sfp__vit_plan *plan = NULL;
    OWNED float *x = NULL, *feature = NULL;
    size_t count = (size_t)IMAGES * (size_t)c->channels * (size_t)c->img_size * (size_t)c->img_size;
    sfp__rng r = sfp__rng_init(1, 0);
    double least = INFINITY;
    TRY(sfp__alloc(&x, count, sizeof *x, err));
    TRY(sfp__alloc(&feature, (size_t)IMAGES * (size_t)c->dim, sizeof *feature, err));
    TRY(sfp__vit_plan_create(e->vit, e->pool, &forward, &plan, err));
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(2 * sfp__rng_double(&r) - 1);
    const sfp__vit_pass pass = {.b = IMAGES, .x = x, .feature = feature};
    for (int i = 0; i <= PASSES; i++) { /* the first one is the warm-up */
        double from = sfp__monotonic_seconds();
        TRY(sfp__vit_run(plan, &pass, err));
        if (i > 0)
            least = fmin(least, sfp__monotonic_seconds() - from);
    }
    *seconds = least / IMAGES;
    return SFP_OK;
}

/* Chooses the input size for the arrival rate, and resizes the engine to it; until then the engine has the size of the file. */
static sfp_status choose_size(sfp_engine *e, sfp_error *err)
{
    const sfp_engine_options *o = &e->opt;
    double seconds = o->query_seconds;
    sfp__vit *smaller = NULL;
    if (!(o->rate > 0))
        return SFP_OK;
    if (!(seconds > 0))
        TRY(measure_query(e, &seconds, err));
    int own = e->vit->config.img_size, side = sfp__vit_size_for_load(&e->vit->config, o->rate * seconds);
    if (side == own)
        return SFP_OK;
    const sfp__vit_options load = {.precision = o->precision, .img_size = side};
    TRY(sfp__vit_load(e->backbone, &load, &smaller, err));
    sfp__vit_free(e->vit);
    e->vit = smaller;
    TRY(sfp__vit_free_packed(e->vit, err));
    e->opt.image_size = side;
    log_info(o, "input size is %d instead of %d: at %g images per second, queries of %d pixels have a load of %.3g", side, own,
             o->rate, own, o->rate * seconds);
    return SFP_OK;
}

static bool is_features(const char *backbone)
{
    return strncmp(backbone, SFP__VIT_FEATURES, strlen(SFP__VIT_FEATURES)) == 0;
}

static sfp_status make_random(const sfp__vit_config *c, uint64_t seed, float spread, const char *name,
                              const sfp_engine_options *o, sfp_engine **out, sfp_error *err)
{
    sfp__vit *vit = NULL;
    TRY(sfp__vit_random(c, seed, spread, &vit, err));
    return make_engine(vit, name, o, out, err);
}

/* Opens "features:DIM". */
static sfp_status open_features(const char *backbone, const sfp_engine_options *o, sfp_engine **out, sfp_error *err)
{
    sfp__vit *vit = NULL;
    int64_t dim;
    if (!sfp__parse_int(backbone + strlen(SFP__VIT_FEATURES), &dim) || dim < 1 || dim > SFP__ROW_MAX)
        return sfp__fail_key(err, "backbone", SFP_EINVAL,
                             "backbone is '%.80s', expected " SFP__VIT_FEATURES "1 to " SFP__VIT_FEATURES "%d", backbone,
                             SFP__ROW_MAX);
    if (o->image_size || o->precision)
        return sfp__fail(err, SFP_EINVAL, "features have no image size and no precision, expected 0 for both");
    TRY(sfp__vit_rows((int)dim, &vit, err));
    return make_engine(vit, backbone, o, out, err);
}

static sfp_status open_backbone(const char *backbone, const sfp_engine_options *options, sfp_engine **out, sfp_error *err)
{
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
    sfp_engine_options o = *options;
    sfp__vit *vit = NULL;
    bool chooses = o.image_size == SFP_IMAGE_SIZE_AUTO;
    if (chooses)
        o.image_size = 0;
    if (o.precision == SFP_PRECISION_AUTO) {
        o.precision = is_features(backbone) ? SFP_PRECISION_F32 : sfp__gemm_native_precision();
        if (o.precision)
            log_info(&o, "precision is %s", sfp__precision_name(o.precision));
    }
    if (strcmp(backbone, SFP__VIT_BUILTIN) == 0 && !sfp__vit_has_builtin()) {
        if (o.log)
            o.log(
                o.log_ctx, SFP_LOG_WARNING,
                "backbone: this program was built without models/builtin.safetensors; a random ViT that is not pretrained takes "
                "its place; use --backbone FILE for a pretrained one");
        return make_random(&stand_in, 1, 0.08f, backbone, &o, out, err);
    }
    if (is_features(backbone))
        return open_features(backbone, &o, out, err);
    const sfp__vit_options load = {.precision = o.precision, .img_size = o.image_size};
    OWNED_PTR(sfp_engine_close) sfp_engine *e = NULL;
    TRY(sfp__vit_load(backbone, &load, &vit, err));
    TRY(make_engine(vit, backbone, &o, &e, err));
    if (chooses)
        TRY(choose_size(e, err));
    *out = TAKE(e);
    return SFP_OK;
}

/* Opens the engine with the input size of a saved file (0: not in the file). If the backbone cannot have this size, the file belongs to another
 * backbone; the engine then keeps its own size, and opening the file reports the difference. */
static sfp_status open_as_saved(const char *backbone, const sfp_engine_options *o, const char *file, int size, sfp_engine **out,
                                sfp_error *err)
{
    OWNED_PTR(sfp_engine_close) sfp_engine *own = NULL, *resized = NULL;
    sfp_engine_options other = *o;
    other.image_size = size;
    TRY(open_backbone(backbone, o, &own, err));
    if (size && size != sfp_engine_image_size(own)) {
        sfp_status status = open_backbone(backbone, &other, &resized, err);
        if (sfp__is_machine_error(status))
            return status;
    }
    if (resized && sfp_engine_image_size(resized) == size) {
        log_info(o, "input size is %d as in %s; the size of the backbone is %d", size, file, sfp_engine_image_size(own));
        *out = TAKE(resized);
    } else {
        *out = TAKE(own);
    }
    return SFP_OK;
}

/* Finds the backbone that the run of a file recorded. A relative path refers to the directory in which the run was started, which is unknown: the
 * current directory and those above the file are tried. */
static bool locate_backbone(const char *recorded, const char *file, char name[PATH_MAX])
{
    struct stat st;
    char above[PATH_MAX];
    (void)snprintf(name, PATH_MAX, "%s", recorded);
    bool found = stat(name, &st) == 0;
    if (found || recorded[0] == '/' || !realpath(file, above))
        return found;
    for (char *slash; !found && (slash = strrchr(above, '/'));) {
        *slash = '\0';
        found = snprintf(name, PATH_MAX, "%s/%s", above, recorded) < PATH_MAX && stat(name, &st) == 0;
    }
    return found;
}

/* Finds the backbone of a state: that of its run, which result.json beside the state names. Whether it is unchanged is checked when
 * the state is opened. */
static sfp_status find_backbone(const sfp_engine_options *o, char name[PATH_MAX], sfp_error *err)
{
    OWNED_BY(sfp__result_done) sfp_result r = {0};
    char file[PATH_MAX], result[PATH_MAX], learned[SFP__NAME_MAX];
    sfp_error why;
    TRY(sfp__state_path(o->state, file, sizeof file, err));
    TRY(sfp__state_backbone(file, learned, sizeof learned, err));
    bool own = !*learned || strcmp(learned, SFP__VIT_BUILTIN) == 0 || strcmp(learned, "random") == 0;
    (void)snprintf(name, PATH_MAX, "%s", own ? SFP__VIT_BUILTIN : learned);
    if (own || is_features(learned))
        return SFP_OK;
    const char *slash = strrchr(file, '/');
    TRY(sfp__path_print(result, sizeof result, err, "%.*sresult.json", slash ? (int)(slash + 1 - file) : 0, file));
    sfp_status status = sfp__result_read(result, &r, &why);
    if (sfp__is_machine_error(status))
        return sfp__fail(err, status, "%s", why.message);
    const char *recorded = status ? NULL : sfp__result_value(&r, "backbone");
    if (!recorded || strcmp(recorded, SFP__VIT_BUILTIN) == 0)
        return sfp__fail_key(err, "backbone", SFP_ENOTFOUND,
                             "%s: its backbone is '%s', but no result.json beside it has the path; use --backbone FILE", file,
                             learned);
    if (!locate_backbone(recorded, file, name))
        return sfp__fail_key(err, "backbone", SFP_ENOTFOUND, "%s: its backbone %s does not exist; use --backbone FILE", file,
                             recorded);
    log_info(o, "backbone is %s, as in %s", name, result);
    return SFP_OK;
}

sfp_status sfp_engine_open(const char *backbone, const sfp_engine_options *options, sfp_engine **out, sfp_error *err)
{
    IN_LIBRARY;
    sfp_engine_options o;
    char found[PATH_MAX];
    int size = 0;
    TRY(read_options(options, &o, err));
    if ((!backbone && !o.state) || !out)
        return sfp__fail(err, SFP_EINVAL, "backbone (without a state) and out must not be NULL");
    if (!backbone)
        TRY(find_backbone(&o, found, err));
    backbone = backbone ? backbone : found;
    const char *state = o.image_size == 0 && !is_features(backbone) ? o.state : NULL;
    if (o.precision == SFP_PRECISION_AUTO && o.state && !is_features(backbone)) {
        char file[PATH_MAX];
        TRY(sfp__state_path(o.state, file, sizeof file, err));
        TRY(sfp__state_precision(file, &o.precision, err));
        if (o.precision)
            log_info(&o, "precision is %s as in %s", sfp__precision_name(o.precision), file);
    }
    o.state = NULL;
    if (!state)
        return open_backbone(backbone, &o, out, err);
    TRY(sfp_state_image_size(state, &size, err));
    return open_as_saved(backbone, &o, state, size, out, err);
}

/* Finds the file from which a run with these settings begins, and its input size (0: not in the file). *found false: there is none,
 * or it is damaged, which the run reports. */
static sfp_status find_saved_size(const sfp__args *a, char file[PATH_MAX], int *size, bool *found, sfp_error *err)
{
    const char *out = sfp__args_string(a, "out"), *state = sfp__args_string(a, "init-state");
    sfp_status status = SFP_ENOTFOUND;
    if (sfp__args_flag(a, "resume") && out) {
        TRY(sfp__path_print(file, PATH_MAX, err, "%s/checkpoint", out));
        status = sfp__checkpoint_img_size(file, size, err);
    }
    if (state && status && !sfp__is_machine_error(status)) {
        TRY(sfp__state_path(state, file, PATH_MAX, err));
        status = sfp__checkpoint_img_size(file, size, err);
        if (status && !sfp__is_machine_error(status))
            status = sfp__state_img_size(file, size, err);
    }
    *found = status == SFP_OK;
    return sfp__is_machine_error(status) ? status : SFP_OK;
}

/* Reads the arrival rate and the time of a query. With costs nothing is measured, so that a run can be repeated. A pipe can be read
 * only once, by the run, which also reports a file that cannot be read. */
static sfp_status read_load(const sfp__args *a, sfp_engine_options *o, sfp_error *err)
{
    const char *costs = sfp__args_string(a, "costs");
    struct stat st;
    o->rate = sfp__args_real(a, "rate");
    if (!costs)
        return SFP_OK;
    sfp_status status =
        stat(costs, &st) == 0 && S_ISREG(st.st_mode) ? sfp__run_query_seconds(costs, &o->query_seconds, NULL) : SFP_OK;
    if (!(o->query_seconds > 0))
        o->rate = 0;
    return sfp__check_memory(status != SFP_ENOMEM, err);
}

/* Writes the name of the backbone to `name` if the stream consists of features; "": it does not. */
static sfp_status name_features(const sfp__args *a, char *name, size_t size, sfp_error *err)
{
    const char *data = sfp__args_string(a, "data");
    OWNED_PTR(sfp__source_close) sfp_source *source = NULL;
    const sfp__source_kind *kind = data ? sfp__source_kind_find(data) : NULL;
    *name = '\0';
    if (!kind || (kind != &sfp__source_features && kind != &sfp__source_redis && kind != &sfp__source_kafka))
        return SFP_OK; /* other sources are opened later, because a device can be opened only once */
    TRY(sfp__source_open(data, &(sfp__source_options){0}, &source, err));
    if (!source->row_dim)
        return SFP_OK;
    for (size_t i = 0; i < a->count; i++)
        if (a->opts[i].scope == SFP__SCOPE_ENGINE && a->opts[i].changes == SFP__CHANGES_ALL &&
            a->values[i].rank > SFP__RANK_PRESET)
            return sfp__fail_key(err, a->opts[i].name, SFP_EINVAL,
                                 "%s has no effect with data %s: its features are learned from as they are", a->opts[i].name,
                                 data);
    (void)snprintf(name, size, SFP__VIT_FEATURES "%d", source->row_dim);
    return SFP_OK;
}

sfp_status sfp_engine_open_for(const sfp_settings *settings, sfp_log_fn log, void *log_ctx, sfp_engine **out, sfp_error *err)
{
    IN_LIBRARY;
    const sfp__args *a = settings ? sfp__api_run_args(settings) : NULL;
    char file[PATH_MAX], features[64];
    int size = 0;
    bool found = false;
    SFP__REQUIRE(a && out, "settings must be those of sfp_settings_create, and out");
    const char *backbone = sfp__args_string(a, "backbone");
    const int32_t side = (int32_t)sfp__args_int(a, "img-size");
    sfp_engine_options o = SFP_ENGINE_OPTIONS_INIT;
    o.threads = (int32_t)sfp__args_int(a, "threads");
    o.precision = (sfp_precision)sfp__args_choice(a, "precision");
    o.log = log;
    o.log_ctx = log_ctx;
    TRY(name_features(a, features, sizeof features, err));
    if (*features)
        return open_features(features, &o, out, err);
    if (side != SFP_IMAGE_SIZE_AUTO)
        o.image_size = side;
    else
        TRY(find_saved_size(a, file, &size, &found, err));
    if (found)
        return open_as_saved(backbone, &o, file, size, out, err);
    if (side == SFP_IMAGE_SIZE_AUTO) {
        o.image_size = SFP_IMAGE_SIZE_AUTO;
        TRY(read_load(a, &o, err));
    }
    return sfp_engine_open(backbone, &o, out, err);
}

sfp_status sfp_engine_open_random(uint64_t seed, const sfp_engine_options *options, sfp_engine **out, sfp_error *err)
{
    IN_LIBRARY;
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
    SFP__REQUIRE(out, "out");
    TRY(read_options(options, &o, err));
    if (o.image_size || o.precision)
        return sfp__fail(err, SFP_EINVAL, "a random backbone has its own image size and precision, expected 0 for both");
    return make_random(&tiny, seed, 0.1f, "random", &o, out, err);
}

void sfp_engine_close(sfp_engine *e)
{
    if (!e || (e->pool && sfp__thread_pool_is_foreign(e->pool)))
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
    IN_LIBRARY;
    char file[PATH_MAX];
    SFP__REQUIRE(path && size, "path and size");
    TRY(sfp__state_path(path, file, sizeof file, err));
    return sfp__state_img_size(file, size, err);
}
