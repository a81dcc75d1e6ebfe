#include "run/system.h"

#include "base/clock.h"
#include "base/mem.h"
#include "io/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

sfp_status sfp__system_init(sfp_system *s, sfp_vit *vit, sfp_pool *pool, const sfp_learner_options *opt, const char *method, int classes,
                            sfp_error *err)
{
    const sfp_vit_config *c = sfp__vit_config(vit);
    *s = (sfp_system){.vit = vit, .pool = pool, .D = c->dim, .S = c->img_size, .batch = opt->batch, .classes = classes};
    memcpy(s->mean, opt->mean, sizeof s->mean);
    memcpy(s->std, opt->std, sizeof s->std);
    sfp_status status;
    if (!method) {
        status = sfp__learner_create(vit, pool, opt, &s->learner, err);
        if (!status)
            status = sfp__predictor_create(s->learner, pool, opt->batch > 20 ? opt->batch : 20, &s->predictor, err);
        if (status)
            sfp__system_done(s);
        return status;
    }
    sfp_head_options h = sfp__head_options_defaults(s->D, classes);
    const sfp_vit_plan_options plan = {.mode = SFP_VIT_FORWARD};
    size_t b = (size_t)s->batch, C = (size_t)(classes ? classes : 1);
    h.seed = opt->seed;
    status = sfp__head_create(method, &h, &s->head, err);
    if (!status)
        status = sfp__vit_plan_create(vit, pool, &plan, &s->plan, err);
    s->x = sfp__malloc(b * 3 * (size_t)s->S * (size_t)s->S * sizeof(float));
    s->query = sfp__malloc(b * (size_t)s->D * sizeof(float));
    s->score = sfp__malloc(b * C * sizeof(float));
    s->label = sfp__malloc(b * sizeof *s->label);
    s->seen = sfp__calloc(C, 1);
    if (!status && (!s->x || !s->query || !s->score || !s->label || !s->seen))
        status = sfp__fail_nomem(err, b * 3 * (size_t)s->S * (size_t)s->S * sizeof(float));
    if (status)
        sfp__system_done(s);
    return status;
}

void sfp__system_done(sfp_system *s)
{
    sfp__predictor_free(s->predictor);
    sfp__learner_free(s->learner);
    sfp__vit_plan_free(s->plan);
    sfp__head_free(s->head);
    sfp__free(s->x);
    sfp__free(s->query);
    sfp__free(s->score);
    sfp__free(s->label);
    sfp__free(s->seen);
    *s = (sfp_system){0};
}

/* Picture i of the next pass. */
static void put_picture(sfp_system *s, int i, const uint8_t *rgb)
{
    sfp__vit_normalise(rgb, s->S, s->mean, s->std, s->x + (size_t)i * 3 * (size_t)s->S * (size_t)s->S);
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
    if (b < 1 || b > s->batch)
        return sfp__fail(err, SFP_EINVAL, "a batch of %d samples, expected 1 to %d", b, s->batch);
    *t = (sfp_timestamp){.t = s->counts.timestamps, .offered = b, .coreset_count = b, .judged = b};
    for (int i = 0; i < b; i++) {
        s->label[i] = samples[i].label;
        if (samples[i].label < 0 || samples[i].label >= s->classes)
            return sfp__fail(err, SFP_EINVAL, "sample %llu has label %d, expected 0 to %d", (unsigned long long)samples[i].id, samples[i].label,
                             s->classes - 1);
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

sfp_status sfp__system_predict(sfp_system *s, int n, const uint8_t *const *rgb, float *query, bool *has_query, int32_t *label, sfp_error *err)
{
    if (s->learner)
        return sfp__predictor_run_known(s->predictor, n, rgb, query, has_query, label, NULL, 0, NULL, err);
    sfp_status status = SFP_OK;
    for (int i = 0; !status && i < n; i++) {
        float *q = query + (size_t)i * (size_t)s->D;
        if (has_query[i])
            continue;
        int m = 1; /* a run of unknown ones */
        while (m < s->batch && i + m < n && !has_query[i + m])
            m++;
        for (int k = 0; k < m; k++)
            put_picture(s, k, rgb[i + k]);
        status = queries(s, m, q, err);
        for (int k = 0; !status && k < m; k++)
            has_query[i + k] = true;
    }
    for (int i = 0; !status && i < n; i += s->batch) {
        int m = n - i < s->batch ? n - i : s->batch;
        status = sfp__head_scores(s->head, m, query + (size_t)i * (size_t)s->D, NULL, s->classes, s->score, err);
        for (int k = 0; !status && k < m; k++)
            label[i + k] = best_of(s, s->score + (size_t)k * (size_t)s->classes);
    }
    return status;
}

/* ---------------------------------------------------------- heads on their own */

typedef struct gather {
    sfp_tensor *list;
    size_t count, room;
} gather;

static sfp_status add_tensor(void *ctx, const sfp_tensor *t, sfp_error *err)
{
    gather *g = ctx;
    if (g->count == g->room) {
        size_t room = g->room ? 2 * g->room : 16;
        sfp_tensor *list = sfp__realloc(g->list, g->count * sizeof *list, room * sizeof *list);
        if (!list)
            return sfp__fail_nomem(err, room * sizeof *list);
        g->list = list;
        g->room = room;
    }
    g->list[g->count] = *t;
    if (!(g->list[g->count].name = sfp__strdup(t->name)))
        return sfp__fail_nomem(err, strlen(t->name) + 1);
    g->count++;
    return SFP_OK;
}

static sfp_status head_write(sfp_system *s, const char *path, const char *position, sfp_error *err)
{
    gather g = {0};
    char timestamps[32], offered[32];
    (void)snprintf(timestamps, sizeof timestamps, "%llu", (unsigned long long)s->counts.timestamps);
    (void)snprintf(offered, sizeof offered, "%llu", (unsigned long long)s->counts.offered);
    const sfp_meta meta[] = {{"kind", sfp__head_kind(s->head)}, {"timestamps", timestamps}, {"offered", offered}, {"position", position}};
    sfp_tensor seen = {.name = "seen", .dtype = SFP_DTYPE_U8, .ndim = 1, .shape = {s->classes}, .count = (size_t)s->classes,
                       .bytes = (size_t)s->classes, .data = s->seen};
    sfp_status status = sfp__head_visit(s->head, "head", add_tensor, &g, err);
    if (!status)
        status = add_tensor(&g, &seen, err);
    if (!status)
        status = sfp__safetensors_write(path, g.list, g.count, meta, sizeof meta / sizeof *meta, err);
    for (size_t i = 0; i < g.count; i++) {
        union {
            const char *in;
            char *out;
        } name = {.in = g.list[i].name};
        sfp__free(name.out);
    }
    sfp__free(g.list);
    return status;
}

static const sfp_tensor *find_tensor(void *ctx, const char *name)
{
    return sfp__safetensors_find(ctx, name);
}

static sfp_status head_resume(sfp_system *s, const char *path, char **position, sfp_error *err)
{
    sfp_safetensors *st = NULL;
    FILE *f = fopen(path, "re");
    if (!f)
        return sfp__fail_errno(err, SFP_ENOTFOUND, "%s: cannot open", path);
    (void)fclose(f);
    sfp_status status = sfp__safetensors_open(path, &st, err);
    const sfp_tensor *seen = NULL;
    if (!status)
        status = sfp__safetensors_need(st, "seen", &seen, err);
    if (!status)
        status = sfp__tensor_expect(path, seen, (int64_t[]){s->classes}, 1, err);
    if (!status && (seen->dtype != SFP_DTYPE_U8 || !sfp__safetensors_meta(st, "position")))
        status = sfp__fail(err, SFP_EFORMAT, "%s: not a checkpoint of a head", path);
    if (!status)
        status = sfp__head_load(s->head, "head", find_tensor, st, path, err);
    if (!status && !(*position = sfp__strdup(sfp__safetensors_meta(st, "position"))))
        status = sfp__fail_nomem(err, 1);
    if (!status) {
        unsigned long long timestamps = 0, offered = 0;
        const char *t = sfp__safetensors_meta(st, "timestamps"), *o = sfp__safetensors_meta(st, "offered");
        (void)sscanf(t ? t : "0", "%llu", &timestamps);
        (void)sscanf(o ? o : "0", "%llu", &offered);
        s->counts = (sfp_learner_counts){.timestamps = timestamps, .offered = offered, .trained = offered};
        memcpy(s->seen, seen->data, (size_t)s->classes);
    }
    sfp__safetensors_close(st);
    return status;
}

sfp_status sfp__system_save(sfp_system *s, const char *path, sfp_error *err)
{
    return s->learner ? sfp__learner_save_state(s->learner, path, err) : head_write(s, path, "", err);
}

sfp_status sfp__system_checkpoint(sfp_system *s, const char *path, const char *position, sfp_error *err)
{
    return s->learner ? sfp__learner_checkpoint(s->learner, path, position, err) : head_write(s, path, position, err);
}

sfp_status sfp__system_resume(sfp_system *s, const char *path, char **position, bool *used_old, sfp_error *err)
{
    *used_old = false;
    return s->learner ? sfp__learner_resume(s->learner, path, position, used_old, err) : head_resume(s, path, position, err);
}
