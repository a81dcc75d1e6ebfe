#include "run/system.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/pixels.h"
#include "base/text.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "learner/checkpoint.h"
#include "learner/state.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int sfp__system_cut(const sfp_system *s)
{
    return s->opt.batch > 20 ? s->opt.batch : 20;
}

sfp_status sfp__system_init(sfp_system *s, sfp_vit *vit, sfp_thread_pool *pool, const sfp_learner_options *opt,
                            const char *method, int classes, sfp_error *err)
{
    const sfp_vit_config *c = &vit->config;
    *s = (sfp_system){.vit = vit, .pool = pool, .D = c->dim, .S = c->img_size, .grows = classes == 0, .opt = *opt};
    sfp_status status;
    if (!method) {
        status = sfp__learner_create(vit, pool, opt, &s->learner, err);
        if (!status)
            status = sfp__predictor_create(s->learner, pool, sfp__system_cut(s), &s->predictor, err);
        if (!status)
            status = sfp__system_classes(s, classes, err);
        if (status)
            sfp__system_done(s);
        else
            sfp__predictor_on_demand(s->predictor); /* one thread offers and asks in turn */
        return status;
    }
    sfp_head_options h = sfp__head_options_defaults(s->D, classes);
    const sfp_vit_plan_options plan = {.mode = SFP_VIT_FORWARD};
    size_t b = (size_t)s->opt.batch;
    h.seed = opt->seed;
    status = sfp__head_create(method, &h, &s->head, err);
    if (!status)
        status = sfp__vit_plan_create(vit, pool, &plan, &s->plan, err);
    s->x = sfp__malloc(b * 3 * (size_t)s->S * (size_t)s->S * sizeof(float));
    s->query = sfp__malloc(b * (size_t)s->D * sizeof(float));
    s->label = sfp__malloc(b * sizeof *s->label);
    if (!status && (!s->x || !s->query || !s->label))
        status = sfp__fail_nomem(err);
    if (!status)
        status = sfp__system_classes(s, classes, err);
    if (status)
        sfp__system_done(s);
    return status;
}

sfp_status sfp__system_open(sfp_system *s, sfp_vit *vit, sfp_thread_pool *pool, const char *state, sfp_error *err)
{
    const sfp_vit_config *c = &vit->config;
    sfp_predictor *p = NULL;
    sfp_status status = sfp__predictor_open(vit, pool, state, 0, &p, err);
    if (!status)
        *s = (sfp_system){.vit = vit,
                          .pool = pool,
                          .D = c->dim,
                          .S = c->img_size,
                          .predictor = p,
                          .opt = *sfp__predictor_options(p),
                          .classes = sfp__predictor_classes(p)};
    return status;
}

void sfp__system_done(sfp_system *s)
{
    for (int i = 0; i < s->name_room; i++)
        sfp__free(s->names[i]);
    sfp__free(s->names);
    sfp__predictor_free(s->predictor);
    sfp__learner_free(s->learner);
    sfp__vit_plan_free(s->plan);
    sfp__head_free(s->head);
    sfp__free(s->x);
    sfp__free(s->query);
    sfp__free(s->score);
    sfp__free(s->label);
    sfp__free(s->seen);
    sfp__free(s->logp);
    *s = (sfp_system){0};
}

sfp_status sfp__system_classes(sfp_system *s, int classes, sfp_error *err)
{
    if (!s->learner && (classes > s->class_room || !s->seen)) {
        int room = classes > 2 * s->class_room ? classes : 2 * s->class_room;
        size_t n = (size_t)(room ? room : 1);
        float *score = sfp__malloc((size_t)s->opt.batch * n * sizeof *score);
        uint8_t *seen = sfp__calloc(n, 1);
        if (!score || !seen) {
            sfp__free(score);
            sfp__free(seen);
            return sfp__fail_nomem(err);
        }
        if (s->seen)
            memcpy(seen, s->seen, (size_t)s->classes);
        sfp__free(s->score);
        sfp__free(s->seen);
        s->score = score;
        s->seen = seen;
        s->class_room = (int)n;
    }
    s->classes = classes > s->classes ? classes : s->classes;
    return SFP_OK;
}

/* Picture i of the next pass. */
static void put_picture(sfp_system *s, int i, const uint8_t *rgb)
{
    sfp__pixels_normalise(rgb, s->S, s->opt.mean, s->opt.std, s->x + (size_t)i * 3 * (size_t)s->S * (size_t)s->S);
}

/* Queries (n, D) of the n pictures put, at most `batch`. */
static sfp_status queries(sfp_system *s, int n, float *query, sfp_error *err)
{
    const sfp_vit_pass pass = {.b = n, .x = s->x, .feature = query};
    return sfp__vit_run(s->plan, &pass, err);
}

/* The best class among those seen; -1: none. */
static int32_t best_of(const sfp_system *s, const float *score)
{
    int32_t best = -1;
    for (int c = 0; c < s->classes; c++)
        if (s->seen[c] && (best < 0 || score[c] > score[best]))
            best = c;
    return best;
}

static sfp_status head_offer(sfp_system *s, int b, const sfp_sample *samples, sfp_timestamp *t, sfp_error *err)
{
    if (b < 1 || b > s->opt.batch)
        return sfp__fail(err, SFP_EINVAL, "a batch of %d samples, expected 1 to %d", b, s->opt.batch);
    *t = (sfp_timestamp){.t = s->counts.timestamps, .offered = b, .coreset_count = b, .judged = b};
    for (int i = 0; i < b; i++) {
        s->label[i] = samples[i].label;
        if (samples[i].label < 0 || samples[i].label >= s->classes)
            return sfp__fail(err, SFP_EINVAL, "sample %llu has label %d, expected 0 to %d", (unsigned long long)samples[i].id,
                             samples[i].label, s->classes - 1);
    }
    double begin = sfp__now();
    for (int i = 0; i < b; i++)
        put_picture(s, i, samples[i].rgb);
    sfp_status status = queries(s, b, s->query, err);
    double asked = sfp__now();
    if (!status) /* test, then train: not part of the cost */
        status = sfp__head_scores(s->head, b, s->query, NULL, s->classes, s->score, err);
    double judged = sfp__now();
    for (int i = 0; !status && i < b; i++)
        t->right += best_of(s, s->score + (size_t)i * (size_t)s->classes) == s->label[i];
    if (!status)
        status = sfp__head_update(s->head, b, s->query, NULL, s->label, err);
    for (int i = 0; !status && i < b; i++)
        s->seen[s->label[i]] = 1;
    s->counts.timestamps++;
    s->counts.offered += (uint64_t)b;
    s->counts.trained += (uint64_t)b;
    t->seconds.query = asked - begin;
    t->seconds.head = sfp__now() - judged;
    t->seconds.total = t->seconds.query + t->seconds.head;
    return status;
}

sfp_status sfp__system_offer(sfp_system *s, int b, const sfp_sample *samples, sfp_timestamp *t, sfp_error *err)
{
    return s->learner ? sfp__learner_offer(s->learner, b, samples, t, err) : head_offer(s, b, samples, t, err);
}

sfp_status sfp__system_next_task(sfp_system *s, sfp_error *err)
{
    return s->learner ? sfp__learner_next_task(s->learner, err) : SFP_OK;
}

sfp_learner_counts sfp__system_counts(const sfp_system *s)
{
    return s->learner ? sfp__learner_counts(s->learner) : s->counts;
}

static float chance(const float *logp, int32_t label)
{
    return label < 0 ? NAN : expf(logp[label]);
}

static sfp_status ask_predictor(sfp_system *s, int n, const uint8_t *const *rgb, float *query, bool *has_query, int32_t *label,
                                float *probability, sfp_error *err)
{
    int classes = sfp__predictor_classes(s->predictor);
    size_t need = (size_t)n * (size_t)(classes ? classes : 1);
    if (probability && need > s->logp_room) {
        float *logp = sfp__malloc(need * sizeof *logp);
        if (!logp)
            return sfp__fail_nomem(err);
        sfp__free(s->logp);
        s->logp = logp;
        s->logp_room = need;
    }
    sfp_status status =
        sfp__predictor_run_known(s->predictor, n, rgb, query, has_query, label, probability ? s->logp : NULL, classes, NULL, err);
    for (int i = 0; !status && probability && i < n; i++)
        probability[i] = chance(s->logp + (size_t)i * (size_t)classes, label[i]);
    return status;
}

sfp_status sfp__system_predict(sfp_system *s, int n, const uint8_t *const *rgb, float *query, bool *has_query, int32_t *label,
                               float *probability, sfp_error *err)
{
    if (s->predictor)
        return ask_predictor(s, n, rgb, query, has_query, label, probability, err);
    sfp_status status = SFP_OK;
    for (int i = 0; !status && i < n; i++) {
        float *q = query + (size_t)i * (size_t)s->D;
        if (has_query[i])
            continue;
        int m = 1; /* a run of unknown ones */
        while (m < s->opt.batch && i + m < n && !has_query[i + m])
            m++;
        for (int k = 0; k < m; k++)
            put_picture(s, k, rgb[i + k]);
        status = queries(s, m, q, err);
        for (int k = 0; !status && k < m; k++)
            has_query[i + k] = true;
    }
    for (int i = 0; !status && i < n; i += s->opt.batch) {
        int m = n - i < s->opt.batch ? n - i : s->opt.batch;
        status = sfp__head_scores(s->head, m, query + (size_t)i * (size_t)s->D, NULL, s->classes, s->score, err);
        for (int k = 0; !status && k < m; k++) {
            const float *row = s->score + (size_t)k * (size_t)s->classes;
            label[i + k] = best_of(s, row);
            if (probability)
                probability[i + k] = chance(row, label[i + k]);
        }
    }
    return status;
}

/* ---------------------------------------------------------- heads on their own */

sfp_status sfp__system_name_class(sfp_system *s, int label, const char *name, sfp_error *err)
{
    if (s->learner)
        return sfp__learner_name_class(s->learner, label, name, err);
    if (label >= s->name_room) {
        int room = label + 1 > 2 * s->name_room ? label + 1 : 2 * s->name_room;
        size_t old = (size_t)s->name_room, n = (size_t)room;
        char **names = sfp__realloc(s->names, old * sizeof *names, n * sizeof *names);
        if (!names)
            return sfp__fail_nomem(err);
        memset(names + old, 0, (n - old) * sizeof *names);
        s->names = names;
        s->name_room = room;
    }
    char *copy = name ? sfp__strdup(name) : NULL;
    if (name && !copy)
        return sfp__fail_nomem(err);
    sfp__free(s->names[label]);
    s->names[label] = copy;
    return SFP_OK;
}

static sfp_status old_path(const char *path, char *buf, size_t size, sfp_error *err)
{
    if ((size_t)snprintf(buf, size, "%s.old", path) >= size)
        return sfp__fail(err, SFP_EINVAL, "%s: the path is too long", path);
    return SFP_OK;
}

/* Everything the head needs to go on learning. The one before stays, as with a learner. */
static sfp_status head_checkpoint(sfp_system *s, const char *path, const char *position, sfp_error *err)
{
    sfp_saved_tensors all = {0};
    char timestamps[32], offered[32], sum[SFP_CHECKSUM_MAX] = "";
    (void)snprintf(timestamps, sizeof timestamps, "%llu", (unsigned long long)s->counts.timestamps);
    (void)snprintf(offered, sizeof offered, "%llu", (unsigned long long)s->counts.offered);
    const sfp_meta meta[] = {{"kind", sfp__head_kind(s->head)},
                             {"timestamps", timestamps},
                             {"offered", offered},
                             {"position", position},
                             {SFP_CHECKSUM_KEY, sum}};
    sfp_tensor seen = {.name = "seen",
                       .dtype = SFP_DTYPE_U8,
                       .ndim = 1,
                       .shape = {s->classes},
                       .count = (size_t)s->classes,
                       .bytes = (size_t)s->classes,
                       .data = s->seen};
    sfp_status status = sfp__head_visit(s->head, "head", sfp__saved_add_tensor, &all, err);
    if (!status)
        status = sfp__saved_add_tensor(&all, &seen, err);
    char old[PATH_MAX];
    if (!status) {
        sfp__safetensors_sum(position, all.count, all.list, sum);
        status = old_path(path, old, sizeof old, err);
    }
    if (!status && !s->damaged)
        status = sfp__file_keep(path, old, err);
    if (!status)
        status = sfp__safetensors_write(path, all.list, all.count, meta, sizeof meta / sizeof *meta, err);
    s->damaged = s->damaged && status; /* a whole one is there now */
    sfp__saved_tensors_done(&all);
    return status;
}

/* What it needs to answer. */
static sfp_status head_save(sfp_system *s, const char *path, sfp_error *err)
{
    /* an entry for each, also for those that nobody named */
    sfp_status status = s->classes > s->name_room ? sfp__system_name_class(s, s->classes - 1, NULL, err) : SFP_OK;
    if (status)
        return status;
    const sfp_state_method from = {.head = s->head,
                                   .vit = s->vit,
                                   .opt = &s->opt,
                                   .classes = s->classes,
                                   .seen = s->seen,
                                   .names = s->names,
                                   .timestamps = s->counts.timestamps};
    return sfp__state_save_method(&from, path, err);
}

enum { HEAD_CLASSES_MAX = 1 << 20 };

static bool read_count(const sfp_safetensors *st, const char *key, uint64_t *out)
{
    const char *text = sfp__safetensors_meta(st, key);
    char *end;
    if (!text || *text < '0' || *text > '9')
        return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return *end == '\0' && errno == 0;
}

typedef struct head_loading {
    sfp_system *s;
    char **position;
} head_loading;

static sfp_status head_load(void *ctx, const char *path, sfp_error *err)
{
    sfp_system *s = ((head_loading *)ctx)->s;
    char **position = ((head_loading *)ctx)->position;
    sfp_safetensors *st = NULL;
    uint64_t timestamps = 0, offered = 0;
    if (access(path, F_OK) != 0)
        return sfp__fail_errno(err, SFP_ENOTFOUND, "%s: cannot open", path);
    sfp_status status = sfp__safetensors_open(path, &st, err);
    if (!status)
        status = sfp__safetensors_check_sum(st, sfp__safetensors_meta(st, "position"), err);
    const sfp_tensor *seen = NULL;
    const char *kind = status ? NULL : sfp__safetensors_meta(st, "kind");
    if (!status && (!kind || strcmp(kind, sfp__head_kind(s->head)) != 0)) /* "not found" would mean: begin anew, over it */
        status = sfp__fail(err, SFP_EINVAL, "%s: was not made by --method %s", path, sfp__head_kind(s->head));
    if (!status)
        status = sfp__safetensors_need(st, "seen", &seen, err);
    if (!status && s->grows && seen->ndim == 1 && seen->shape[0] >= s->classes && seen->shape[0] <= HEAD_CLASSES_MAX)
        status = sfp__system_classes(s, (int)seen->shape[0], err);
    if (!status && seen->ndim == 1 && seen->shape[0] != s->classes)
        status = sfp__fail(err, SFP_EINVAL, "%s: has %lld classes, expected %d, as many as the stream has", path,
                           (long long)seen->shape[0], s->classes);
    if (!status && (seen->ndim != 1 || seen->dtype != SFP_DTYPE_U8 || !sfp__safetensors_meta(st, "position") ||
                    !read_count(st, "timestamps", &timestamps) || !read_count(st, "offered", &offered)))
        status = sfp__fail(err, SFP_EFORMAT, "%s: not a checkpoint of a head", path);
    if (!status)
        status = sfp__head_load(s->head, "head", sfp__saved_find, st, path, err);
    if (!status && !(*position = sfp__strdup(sfp__safetensors_meta(st, "position"))))
        status = sfp__fail_nomem(err);
    if (!status) {
        s->counts = (sfp_learner_counts){.timestamps = timestamps, .offered = offered, .trained = offered};
        memcpy(s->seen, seen->data, (size_t)s->classes);
    }
    sfp__safetensors_close(st);
    return status;
}

static sfp_status head_resume(sfp_system *s, const char *path, char **position, bool *used_old, sfp_error *err)
{
    char old[PATH_MAX];
    sfp_status status = old_path(path, old, sizeof old, err);
    if (!status)
        status = sfp__file_or_kept(path, old, head_load, &(head_loading){s, position}, used_old, err);
    s->damaged = !status && *used_old;
    return status;
}

sfp_status sfp__system_look(const char *path, char *method, size_t size, char **position, sfp_error *err)
{
    sfp_safetensors *st = NULL;
    sfp_status status = sfp__safetensors_open(path, &st, err);
    if (status)
        return status;
    const char *kind = sfp__safetensors_meta(st, "kind"), *text = sfp__safetensors_meta(st, "position");
    char *copy = NULL;
    if (!text)
        status = sfp__fail(err, SFP_EFORMAT, "%s: not a checkpoint", path);
    if (!status)
        status = kind ? sfp__safetensors_check_sum(st, text, err) : sfp__checkpoint_check(path, err);
    if (!status && !(copy = sfp__strdup(text)))
        status = sfp__fail_nomem(err);
    if (!status) {
        (void)sfp__printable(kind ? kind : "", method, size);
        *position = copy;
    }
    sfp__safetensors_close(st);
    return status;
}

sfp_status sfp__system_save(sfp_system *s, const char *path, sfp_error *err)
{
    return s->learner ? sfp__learner_save_state(s->learner, path, err) : head_save(s, path, err);
}

sfp_status sfp__system_checkpoint(sfp_system *s, const char *path, const char *position, sfp_error *err)
{
    return s->learner ? sfp__learner_checkpoint(s->learner, path, position, err) : head_checkpoint(s, path, position, err);
}

sfp_status sfp__system_resume(sfp_system *s, const char *path, char **position, bool *used_old, sfp_error *err)
{
    *used_old = false;
    return s->learner ? sfp__learner_resume(s->learner, path, position, used_old, err)
                      : head_resume(s, path, position, used_old, err);
}
