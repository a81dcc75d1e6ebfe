#include "learner/restored.h"

#include "base/mem.h"
#include "learner/settings.h"
#include "learner/state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct reading {
    sfp_restored *r;
    sfp_vit *vit;
    sfp_thread_pool *threads;
    const char *path;
    sfp_tensor_file *st;
    int classes;
} reading;

/* ------------------------------------------------------------------ settings */

static sfp_status read_setting(const reading *f, const char *key, bool wanted, sfp_error *err)
{
    const char *text = sfp__tensor_file_meta(f->st, key);
    char value[SFP_NAME_MAX];
    if (!text)
        return wanted ? sfp__fail(err, SFP_EFORMAT, "%s: metadata '%s' is missing", f->path, key) : SFP_OK;
    sfp_status s = sfp__settings_apply(&f->r->opt, &f->vit->config, key, sfp__printable(text, value, sizeof value), err);
    return s ? sfp__fail_prefix(err, s, "%s: metadata", f->path) : SFP_OK;
}

/* "0.5,0.5,0.5", each above `least`. */
static sfp_status read_three(const reading *f, const char *key, double least, float *out, sfp_error *err)
{
    const char *text = sfp__tensor_file_meta(f->st, key);
    char shown[SFP_NAME_MAX];
    float v[3];
    int used = 0;
    if (!text)
        return SFP_OK;
    bool fine = sscanf(text, "%f,%f,%f%n", &v[0], &v[1], &v[2], &used) == 3 && text[used] == '\0';
    for (int i = 0; fine && i < 3; i++)
        fine = isfinite(v[i]) && (double)v[i] > least;
    if (!fine)
        return sfp__fail(err, SFP_EFORMAT, "%s: metadata '%s' is '%s', expected three numbers above %g", f->path, key,
                         sfp__printable(text, shown, sizeof shown), least);
    memcpy(out, v, sizeof v);
    return SFP_OK;
}

static sfp_status read_settings(reading *f, sfp_error *err)
{
    static const struct {
        const char *key;
        bool of_fingerprints, wanted;
    } list[] = {
        {"pool-kind", true, false}, {"pool", true, true},         {"prompt-length", true, true},    {"prompt-layers", true, true},
        {"attune", true, false},    {"attune-topk", true, false}, {"attune-residual", true, false}, {"prefix", true, false},
        {"query", true, false},     {"head", true, false},        {"resize", false, false},         {"batch", false, false},
        {"seed", false, false}};
    sfp_status s = SFP_OK;
    for (size_t i = 0; !s && i < sizeof list / sizeof *list; i++)
        if (!(list[i].of_fingerprints && f->r->method))
            s = read_setting(f, list[i].key, list[i].wanted, err);
    if (!s)
        s = read_three(f, "mean", -1e6, f->r->opt.mean, err);
    return s ? s : read_three(f, "std", 0, f->r->opt.std, err);
}

/* --------------------------------------------------------------------- heads */

static sfp_status load_head(const reading *f, const char *kind, sfp_head **out, sfp_error *err)
{
    sfp_head_options o = sfp__head_options_defaults(f->vit->config.dim, f->classes);
    sfp_visitor v = sfp__visit_reading(f->st, false);
    char prefix[32];
    o.seed = f->r->opt.seed;
    sfp_status s = sfp__head_create(kind, &o, out, err);
    if (s)
        return sfp__fail_prefix(err, s, "%s", f->path);
    (void)snprintf(prefix, sizeof prefix, SFP_STATE_HEAD "%s", kind);
    v.prefix = prefix;
    v.answers = true;
    return sfp__head_visit(*out, &v, err);
}

static sfp_status load_weights(const reading *f, sfp_mix *mix, sfp_error *err)
{
    sfp_visitor v = sfp__visit_reading(f->st, false);
    double n[SFP_STATE_MIX];
    v.finite = true;
    TRY(sfp__visit_values(&v, SFP_STATE_HEAD "mix", SFP_DTYPE_F64, SFP_STATE_MIX, n, err));
    *mix = (sfp_mix){.rate = (double)sfp__head_options_defaults(1, 1).mix_rate, .count = n[0]};
    memcpy(mix->loss, n + 1, sizeof mix->loss);
    return SFP_OK;
}

static sfp_status load_mix(const reading *f, sfp_error *err)
{
    sfp_restored *r = f->r;
    sfp_status s = load_weights(f, &r->snapshot.mix, err);
    for (int i = 1; !s && i < SFP_HEAD_EXPERTS; i++)
        if (!(s = load_head(f, sfp__learner_experts[i], &r->heads[i], err)))
            s = sfp__head_freeze(r->heads[i], &r->snapshot.heads[i], err);
    r->snapshot.mixed = !s;
    return s;
}

/* -------------------------------------------------------------- fingerprints */

/* How many rows the classifier has; that the pool is in the file as the metadata says comes before memory is taken for it. */
static sfp_status check_sizes(reading *f, sfp_error *err)
{
    const sfp_fp_options *o = &f->r->opt.fp;
    const int64_t D = f->vit->config.dim, pool[] = {o->pool, o->length, D};
    const sfp_tensor *t = NULL;
    char name[40];
    (void)snprintf(name, sizeof name, "prompt.e_p_%d", sfp__fp_pool_layer(o));
    sfp_status s = sfp__tensor_file_need(f->st, name, &t, err);
    if (!s)
        s = sfp__tensor_expect(f->path, t, pool, 3, err);
    if (!s)
        s = sfp__tensor_file_need(f->st, "last.weight", &t, err);
    if (s)
        return s;
    const int64_t rows = t->ndim == 2 && t->shape[0] <= SFP_LEARNER_MAX_CLASSES ? t->shape[0] : 0, last[] = {rows, D};
    f->classes = (int)rows;
    return sfp__tensor_expect(f->path, t, last, 2, err);
}

static sfp_status load_fingerprints(reading *f, sfp_error *err)
{
    sfp_restored *r = f->r;
    long long start = 0, open = 0;
    float *values = NULL;
    sfp_status s = check_sizes(f, err);
    if (s)
        return s;
    r->opt.fp.tasks = 0; /* tasks bear on learning; free, any span of components fits */
    r->opt.fp.span = 1;
    r->opt.fp.classes = f->classes;
    if ((s = sfp__fp_create(f->vit, f->threads, &r->opt.fp, 1, &r->fp, err)))
        return sfp__fail_prefix(err, s, "%s", f->path);
    r->opt.fp = r->fp->opt;
    if ((s = sfp__state_values(r->fp, f->st, f->classes, &values, err)))
        return s;
    sfp__state_put_values(r->fp, values);
    sfp__free(values);
    if ((s = sfp__saved_int(f->st, "open", 1, r->opt.fp.pool, &open, err)) ||
        (s = sfp__saved_int(f->st, "start", 0, open - 1, &start, err)) ||
        (s = sfp__fp_restore(r->fp, 0, (int)start, (int)open, err)) || (s = sfp__fp_prepare(r->fp, err)))
        return s;
    r->snapshot.view = r->fp->view;
    r->snapshot.last_w = r->fp->last_w.data;
    r->snapshot.last_b = r->fp->last_b.data;
    return r->opt.head == SFP_HEAD_MIX ? load_mix(f, err) : SFP_OK;
}

static sfp_status load_method(reading *f, const char *method, sfp_error *err)
{
    long long classes = 0;
    sfp_status s = sfp__saved_int(f->st, "classes", 0, SFP_LEARNER_MAX_CLASSES, &classes, err);
    f->classes = (int)classes;
    return s ? s : load_head(f, method, &f->r->heads[0], err);
}

/* ---------------------------------------------------------------------- whole */

static sfp_status read_state(reading *f, sfp_error *err)
{
    sfp_restored *r = f->r;
    long long t = 0;
    sfp_status s;
    if ((s = sfp__safetensors_open(f->path, &f->st, err)) ||
        (s = sfp__saved_check_format(f->st, SFP_STATE_FORMAT, SFP_STATE_VERSION, true, err)) ||
        (s = sfp__state_check_sum(f->st, err)) || (s = sfp__saved_check_backbone(f->st, f->vit, err)))
        return s;
    const char *method = sfp__tensor_file_meta(f->st, "method");
    r->method = method != NULL;
    if ((s = read_settings(f, err)) || (s = method ? load_method(f, method, err) : load_fingerprints(f, err)) ||
        (s = sfp__state_seen(f->st, f->classes, true, &r->snapshot.seen, err)) ||
        (s = sfp__saved_names_read(f->st, SFP_LEARNER_MAX_CLASSES, &r->names, err)) ||
        (sfp__tensor_file_meta(f->st, "timestamps") && (s = sfp__saved_int(f->st, "timestamps", 0, INT64_MAX, &t, err))))
        return s;
    r->snapshot.t = (uint64_t)t;
    r->snapshot.classes = f->classes;
    return SFP_OK;
}

sfp_status sfp__restored_load(sfp_vit *vit, sfp_thread_pool *threads, const char *path, sfp_restored **out, sfp_error *err)
{
    sfp_restored *r = sfp__calloc(1, sizeof *r);
    if (!r)
        return sfp__fail_nomem(err);
    r->opt = sfp__learner_options_defaults(vit);
    reading f = {.r = r, .vit = vit, .threads = threads, .path = path};
    sfp_status s = read_state(&f, err);
    sfp__tensor_file_close(f.st);
    if (s)
        sfp__restored_free(r);
    else
        *out = r;
    return s;
}

void sfp__restored_free(sfp_restored *r)
{
    if (!r)
        return;
    for (int i = 0; i < SFP_HEAD_EXPERTS; i++) {
        sfp__head_scorer_free(r->snapshot.heads[i]);
        sfp__head_free(r->heads[i]);
    }
    sfp__free(r->snapshot.seen);
    sfp__saved_names_done(&r->names);
    sfp__fp_free(r->fp);
    sfp__free(r);
}
