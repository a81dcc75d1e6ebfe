/* What a person should review: the queue, suspect labels, and the accuracy per class.
 *
 * Features of samples are computed once and kept in memory, because forward passes take most of the time; there is a limit of bytes, within
 * which those of the newest samples are kept. A lock serialises the requests of a model. Each learned sample is judged by the present model
 * without it (sfp_predictor_judge). The judgements are kept until other samples are learned. If judging takes long, they are kept longer, so
 * that it takes at most a tenth of the time. */
#include "serve/internal.h"

#include "base/monotonic.h"
#include "base/rng.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK = 64,
    LIMIT_MAX = 200,
    LIMIT_DEFAULT = 24,
    CURVE_SAMPLES = 256,
    CURVE_POINTS = 16,
    TESTS_MAX = 64,
    QUEUE_SAMPLES = 4096
};
static const size_t feature_bytes_max = (size_t)256 << 20;
static const double compute_seconds = 3; /* the time that one request may spend on features */
/* If judging takes longer than fast_seconds, the judgements are kept `share` times as long as it took, but at most keep_seconds. */
static const double fast_seconds = 0.25, share = 10, keep_seconds = 30;

typedef struct entry {
    uint64_t id;
    float *feature;  /* (dim) NULL: not computed */
    bool unreadable; /* the image cannot be read, so there is no feature */
    int class;       /* row of the class with which the sample was learned; -1: it waits for a label */
} entry;

/* A learned sample, judged by the model without it. */
typedef struct verdict {
    uint64_t id;
    int class, answer; /* rows of label and answer; answer -1: none */
    float margin;      /* probability of the answer minus that of the label; 0: they are the same class */
} verdict;

typedef struct class_row {
    char *name;
    int64_t samples;
    int judged, right; /* learned samples that were judged, and those of them with the right answer */
    int label;         /* of this class in the predictor; -1: it does not know the class */
    int curve_count;
    struct {
        int64_t samples;
        double accuracy;
    } curve[CURVE_POINTS];
} class_row;

struct sfp__review {
    pthread_mutex_t lock;
    sfp__model *model;
    sfp_predictor *predictor;
    size_t dim;
    entry *entries; /* (count) in order of id */
    size_t count, capacity;
    class_row *classes; /* (class_count) in order of name */
    int class_count;
    size_t class_capacity;
    verdict *verdicts; /* (verdict_count) highest margins first */
    size_t verdict_count;
    bool judged;          /* the verdicts are those of the present classes */
    uint64_t judged_hash; /* hash of the samples that were judged (hash_learned) */
    double judged_at, keep_for;
    sfp_head_options head; /* of the heads that curves need: the settings of the run */
    char method[16];
};

sfp_status sfp__review_create(sfp__model *m, sfp_predictor *p, struct sfp__review **out, sfp_error *err)
{
    struct sfp__review *v = NULL;
    TRY(sfp__alloc(&v, 1, sizeof *v, err));
    pthread_mutex_init(&v->lock, NULL);
    v->model = m;
    v->predictor = p;
    v->dim = (size_t)sfp_predictor_feature_dim(p);
    const sfp_result *r = sfp_run_result(sfp__model_run(m)); /* allowed only before the learning thread starts */
    const char *method = sfp_result_string(r, "config.method"), *form = sfp_result_string(r, "config.ridge"),
               *mean = sfp_result_string(r, "config.tap-mean");
    v->head = (sfp_head_options)SFP_HEAD_OPTIONS_INIT;
    v->head.threads = 1;
    v->head.tap_dim = sfp__model_dim(m);
    v->head.tap_mean = mean && strcmp(mean, "on") == 0;
    v->head.plain = form && strcmp(form, "balanced") != 0;
    (void)snprintf(v->method, sizeof v->method, "%s", method ? method : "ridge");
    *out = v;
    return SFP_OK;
}

static void free_classes(class_row *list, int n)
{
    for (int c = 0; c < n; c++)
        sfp__free(list[c].name);
    sfp__free(list);
}

void sfp__review_free(struct sfp__review *v)
{
    if (!v)
        return;
    for (size_t i = 0; i < v->count; i++)
        sfp__free(v->entries[i].feature);
    free_classes(v->classes, v->class_count);
    sfp__free(v->verdicts);
    sfp__free(v->entries);
    sfp_predictor_free(v->predictor);
    pthread_mutex_destroy(&v->lock);
    sfp__free(v);
}

/* -------------------------------------------------------------------- listing */

static int find_class(const struct sfp__review *v, const char *name)
{
    for (int c = 0; name && c < v->class_count; c++)
        if (strcmp(v->classes[c].name, name) == 0)
            return c;
    return -1;
}

static sfp_status add_class(void *ctx, const char *name, int64_t samples, sfp_error *err)
{
    struct sfp__review *v = ctx;
    size_t n = (size_t)v->class_count;
    TRY(sfp__check_memory(sfp__grow(&v->classes, sizeof *v->classes, n, n + 1, &v->class_capacity), err));
    v->classes[n] = (class_row){.name = sfp__strdup(name), .samples = samples, .label = -1};
    TRY(sfp__check_memory(v->classes[n].name, err));
    v->class_count++;
    return SFP_OK;
}

/* A new list of samples, which is being read. Features of the old list are moved to it. */
typedef struct new_list {
    struct sfp__review *v;
    entry *list;
    size_t count, capacity, old; /* old: first entry of the old list that was not compared yet */
} new_list;

static sfp_status add_entry(void *ctx, const sfp_sample_info *s, sfp_error *err)
{
    new_list *m = ctx;
    const struct sfp__review *v = m->v;
    entry e = {.id = s->id, .class = -1};
    if (s->learned ? (e.class = find_class(v, s->learned)) < 0 : s->label || s->standing != SFP_WAITING)
        return SFP_OK;
    while (m->old < v->count && v->entries[m->old].id < s->id)
        m->old++;
    entry *old = m->old < v->count && v->entries[m->old].id == s->id ? &v->entries[m->old] : NULL;
    if (!old && !s->has_image)
        return SFP_OK;
    TRY(sfp__check_memory(sfp__grow(&m->list, sizeof *m->list, m->count, m->count + 1, &m->capacity), err));
    if (old) {
        e.feature = old->feature; /* the old list owns it until the new list is complete */
        e.unreadable = old->unreadable;
    }
    m->list[m->count++] = e;
    return SFP_OK;
}

/* Frees the features of old entries that are not in the new list. */
static void free_removed(const new_list *m)
{
    size_t k = 0;
    for (size_t i = 0; i < m->v->count; i++) {
        while (k < m->count && m->list[k].id < m->v->entries[i].id)
            k++;
        if (k == m->count || m->list[k].id != m->v->entries[i].id)
            sfp__free(m->v->entries[i].feature);
    }
}

static sfp_status list_samples(struct sfp__review *v, sfp_error *err)
{
    new_list m = {.v = v};
    sfp_sample_filter all = SFP_SAMPLE_FILTER_INIT;
    all.limit = INT_MAX;
    sfp_status status = sfp_run_samples(sfp__model_run(v->model), &all, add_entry, &m, err);
    if (status) {
        sfp__free(m.list);
        return status;
    }
    free_removed(&m);
    sfp__free(v->entries);
    v->entries = m.list;
    v->count = m.count;
    v->capacity = m.capacity;
    return SFP_OK;
}

/* ------------------------------------------------------------------- features */

/* Computes the features of the *n samples in `list`. If their images do not fit into memory together, only of the first ones; *n becomes the
 * number of these. */
static sfp_status compute_chunk(struct sfp__review *v, int *n, entry *const *list, sfp_error *err)
{
    sfp__decoded decoded[CHUNK] = {0};
    sfp_image images[CHUNK] = {0};
    sfp_prediction answers[CHUNK];
    int count = 0;
    for (sfp_status full = SFP_OK; count < *n && !full; count += !full) {
        void *bytes = NULL;
        size_t size = 0;
        sfp_status status = sfp_run_sample_image(sfp__model_run(v->model), list[count]->id, &bytes, &size, NULL);
        status = status ? status : sfp__serve_decode(bytes, size, &decoded[count], NULL);
        sfp_free(bytes);
        full = count > 0 && (status == SFP_ELIMIT || status == SFP_ENOMEM) ? status : SFP_OK;
        images[count] = status ? images[count] : decoded[count].image;
    }
    *n = count;
    sfp_status status = sfp_predictor_run(v->predictor, count, images, answers, err);
    for (int i = 0; i < count && !status; i++) {
        list[i]->unreadable = answers[i].status != SFP_OK;
        if (list[i]->unreadable)
            continue;
        status = sfp__alloc(&list[i]->feature, v->dim, sizeof *list[i]->feature, err);
        if (!status)
            memcpy(list[i]->feature, sfp_predictor_features(v->predictor) + (size_t)i * v->dim, v->dim * sizeof(float));
    }
    for (int i = count - 1; i >= 0; i--)
        sfp__decoded_done(&decoded[i]);
    return status;
}

/* Updates the list of samples, and computes missing features, beginning with the newest sample. */
static sfp_status update_features(struct sfp__review *v, sfp_error *err)
{
    double until = sfp__monotonic_seconds() + compute_seconds;
    if (v->dim == 0) /* the method paper: its predictor has no features, so nothing is judged */
        return SFP_OK;
    size_t left = feature_bytes_max / (v->dim * sizeof(float));
    TRY(list_samples(v, err));
    size_t kept = v->count > left ? v->count - left : 0;
    for (size_t i = 0; i < kept; i++)
        sfp__free(TAKE(v->entries[i].feature));
    for (size_t i = v->count; i > kept && sfp__monotonic_seconds() < until;) { /* a later request computes the rest */
        entry *chunk[CHUNK];
        int n = 0;
        for (size_t k = i; k > kept && n < CHUNK; k--)
            if (!v->entries[k - 1].feature && !v->entries[k - 1].unreadable)
                chunk[n++] = &v->entries[k - 1];
        if (n == 0)
            break;
        TRY(compute_chunk(v, &n, chunk, err));
        i = (size_t)(chunk[n - 1] - v->entries);
    }
    return SFP_OK;
}

/* Finds the newest `most` entries with features that were learned, or that wait for a label; returns their number. */
static size_t find_entries(const struct sfp__review *v, bool learned, size_t most, entry **out)
{
    size_t n = 0, first = v->count;
    for (; first > 0 && n < most; first--)
        n += v->entries[first - 1].feature && (v->entries[first - 1].class >= 0) == learned;
    n = 0;
    for (size_t i = first; i < v->count; i++)
        if (v->entries[i].feature && (v->entries[i].class >= 0) == learned)
            out[n++] = &v->entries[i];
    return n;
}

/* -------------------------------------------------------------------- judgement */

/* Computes how accuracy grows with the number of samples. For k = 1, 2, 4, ... a head learns the first k samples of each class and is tested on
 * later samples. k stays small, so this is fast. The last point of a curve is not computed here: it is the accuracy by leaving one out. */
static sfp_status draw_curve(struct sfp__review *v, size_t n, entry *const *list, sfp_error *err)
{
    for (int64_t k = 1; k <= CURVE_SAMPLES; k *= 2) {
        sfp_head *head = NULL;
        OWNED int64_t *seen = NULL, *tested = NULL, *right = NULL;
        OWNED bool *used = NULL;
        int64_t total = 0;
        bool any = false;
        for (int c = 0; c < v->class_count; c++) {
            total += v->classes[c].judged < k ? v->classes[c].judged : k;
            any = any || v->classes[c].judged >= 2 * k;
        }
        if (!any || total > CURVE_SAMPLES)
            break;
        size_t classes = (size_t)v->class_count;
        TRY(sfp__alloc(&seen, classes, sizeof *seen, err));
        TRY(sfp__alloc(&tested, classes, sizeof *tested, err));
        TRY(sfp__alloc(&right, classes, sizeof *right, err));
        TRY(sfp__alloc(&used, n, sizeof *used, err));
        TRY(sfp_head_create(v->method, (int)v->dim, &v->head, &head, err));
        sfp_status status = SFP_OK;
        for (size_t i = 0; i < n && !status; i++) {
            const int32_t label = list[i]->class;
            used[i] = seen[label]++ < k;
            if (used[i])
                status = sfp_head_learn(head, 1, list[i]->feature, 0, &label, NULL, err);
        }
        for (size_t i = 0; i < n && !status; i++) {
            int c = list[i]->class;
            sfp_prediction p;
            if (used[i] || v->classes[c].judged < 2 * k || tested[c] >= TESTS_MAX)
                continue;
            status = sfp_head_predict(head, 1, list[i]->feature, 0, 1, &p, err);
            tested[c]++;
            right[c] += p.label == c;
        }
        sfp_head_free(head);
        TRY(status);
        for (size_t c = 0; c < classes; c++)
            if (tested[c] > 0 && v->classes[c].curve_count < CURVE_POINTS - 1) {
                class_row *row = &v->classes[c];
                row->curve[row->curve_count].samples = k;
                row->curve[row->curve_count++].accuracy = (double)right[c] / (double)tested[c];
            }
    }
    return SFP_OK;
}

/* Judges n learned samples, each by the model without it; counts judged and right answers per class. */
static sfp_status judge(struct sfp__review *v, size_t n, entry *const *list, verdict *out, sfp_error *err)
{
    OWNED float *features = NULL;
    int32_t labels[CHUNK];
    sfp_prediction answers[CHUNK];
    TRY(sfp__alloc(&features, CHUNK * v->dim, sizeof *features, err));
    TRY(sfp_predictor_refresh(v->predictor, err));
    for (int c = 0; c < sfp_predictor_classes(v->predictor); c++) {
        int row = find_class(v, sfp_predictor_class_name(v->predictor, c));
        if (row >= 0)
            v->classes[row].label = c;
    }
    for (size_t from = 0; from < n; from += CHUNK) {
        int m = n - from < CHUNK ? (int)(n - from) : CHUNK;
        for (int i = 0; i < m; i++) {
            memcpy(features + (size_t)i * v->dim, list[from + (size_t)i]->feature, v->dim * sizeof *features);
            labels[i] = v->classes[list[from + (size_t)i]->class].label;
        }
        TRY(sfp_predictor_judge(v->predictor, m, features, labels, answers, err));
        for (int i = 0; i < m; i++) {
            const entry *e = list[from + (size_t)i];
            class_row *c = &v->classes[e->class];
            int answer = find_class(v, sfp_predictor_class_name(v->predictor, answers[i].label));
            float margin = answer >= 0 && answer != e->class ? answers[i].probability - answers[i].own : 0;
            out[from + (size_t)i] = (verdict){e->id, e->class, answer, margin};
            c->judged += answer >= 0;
            c->right += answer == e->class;
        }
    }
    return SFP_OK;
}

static int by_margin(const void *a, const void *b)
{
    const verdict *x = a, *y = b;
    return x->margin != y->margin ? (x->margin < y->margin) - (x->margin > y->margin) : (x->id > y->id) - (x->id < y->id);
}

/* A hash of the learned samples with features and their classes. While it stays the same, the verdicts stay valid. */
static uint64_t hash_learned(const struct sfp__review *v)
{
    uint64_t mark = SFP__HASH_START;
    for (size_t i = 0; i < v->count; i++) {
        const entry *e = &v->entries[i];
        const uint64_t row[] = {e->id, (uint64_t)e->class, e->feature != NULL};
        mark = e->class >= 0 ? sfp__hash(mark, row, sizeof row) : mark;
    }
    return mark;
}

/* Lists the classes again. *same: the names have not changed; the rows then keep their counts and curves. */
static sfp_status list_classes(struct sfp__review *v, bool *same, sfp_error *err)
{
    class_row *old = v->classes;
    int n = v->class_count;
    v->classes = NULL;
    v->class_count = 0;
    v->class_capacity = 0;
    sfp_status status = sfp_run_classes(sfp__model_run(v->model), add_class, v, err);
    *same = !status && n == v->class_count;
    for (int c = 0; c < n && *same; c++)
        *same = strcmp(old[c].name, v->classes[c].name) == 0;
    for (int c = 0; c < n && *same; c++) {
        int64_t samples = v->classes[c].samples;
        char *name = v->classes[c].name;
        v->classes[c] = old[c];
        v->classes[c].samples = samples;
        old[c].name = name;
    }
    v->judged = v->judged && *same;
    free_classes(old, n);
    return status;
}

/* Judges all learned samples, unless the verdicts are still valid. */
static sfp_status judge_all(struct sfp__review *v, sfp_error *err)
{
    OWNED entry **found = NULL;
    OWNED verdict *verdicts = NULL;
    bool same;
    TRY(list_classes(v, &same, err));
    if (v->judged && sfp__monotonic_seconds() - v->judged_at < v->keep_for)
        return SFP_OK;
    TRY(update_features(v, err));
    uint64_t mark = hash_learned(v);
    if (v->judged && mark == v->judged_hash)
        return SFP_OK;
    v->judged = false;
    double begin = sfp__monotonic_seconds();
    TRY(sfp__alloc(&found, v->count + 1, sizeof *found, err));
    size_t n = find_entries(v, true, v->count, found);
    for (int c = 0; c < v->class_count; c++) {
        class_row *row = &v->classes[c];
        row->judged = row->right = row->curve_count = 0;
        row->label = -1;
    }
    TRY(sfp__alloc(&verdicts, n + 1, sizeof *verdicts, err));
    TRY(judge(v, n, found, verdicts, err));
    TRY(draw_curve(v, n, found, err));
    qsort(verdicts, n, sizeof *verdicts, by_margin);
    sfp__free(v->verdicts);
    v->verdicts = TAKE(verdicts);
    v->verdict_count = n;
    v->judged_hash = mark;
    v->judged_at = sfp__monotonic_seconds();
    double took = v->judged_at - begin;
    v->keep_for = took < fast_seconds ? 0 : fmin(share * took, keep_seconds);
    v->judged = true;
    return SFP_OK;
}

/* ---------------------------------------------------------------------- routes */

/* Writes a sample with the additional members of a queued or suspect one. */
typedef struct writer {
    sfp__json *json;
    const struct sfp__review *v;
    uint64_t id;
    const sfp_queued *queued; /* NULL: not from the queue */
    const verdict *verdict;   /* NULL: not a suspect */
    bool written;
} writer;

static sfp_status put_sample(void *ctx, const sfp_sample_info *s, sfp_error *err)
{
    static const char *const reasons[] = {"uncertain", "unlike", "diverse"};
    writer *w = ctx;
    (void)err;
    /* skips a sample whose label has changed since it was judged */
    if (s->id != w->id || (w->verdict && (!s->label || strcmp(s->label, w->v->classes[w->verdict->class].name) != 0)))
        return SFP_OK;
    w->written = true;
    sfp__json_object(w->json, NULL);
    sfp__json_members(w->json, s);
    if (w->queued) {
        sfp__json_string(w->json, "reason", reasons[w->queued->reason]);
        sfp__json_float(w->json, "score", w->queued->score);
        sfp__json_string(w->json, "answer", sfp_predictor_class_name(w->v->predictor, w->queued->label));
        sfp__json_float(w->json, "answer_probability", w->queued->probability);
    } else if (w->verdict) {
        sfp__json_string(w->json, "suggested", w->verdict->answer < 0 ? NULL : w->v->classes[w->verdict->answer].name);
        sfp__json_float(w->json, "margin", w->verdict->margin);
    }
    sfp__json_end(w->json);
    return SFP_OK;
}

static sfp_status write_sample(writer *w, sfp_error *err)
{
    sfp_sample_filter f = SFP_SAMPLE_FILTER_INIT;
    f.from = w->id;
    f.limit = 1;
    return sfp_run_samples(sfp__model_run(w->v->model), &f, put_sample, w, err);
}

static sfp_status get_queue(struct sfp__review *v, int limit, sfp__json *j, sfp_error *err)
{
    OWNED entry **list = NULL;
    OWNED float *features = NULL;
    OWNED sfp_queued *queue = NULL;
    int found = 0;
    bool same;
    TRY(list_classes(v, &same, err));
    TRY(update_features(v, err));
    TRY(sfp__alloc(&list, v->count + 1, sizeof *list, err));
    size_t n = find_entries(v, false, QUEUE_SAMPLES, list);
    TRY(sfp__alloc(&features, (n + 1) * v->dim, sizeof *features, err));
    TRY(sfp__alloc(&queue, (size_t)limit, sizeof *queue, err));
    for (size_t i = 0; i < n; i++)
        memcpy(features + i * v->dim, list[i]->feature, v->dim * sizeof *features);
    TRY(sfp_predictor_queue(v->predictor, (int)n, features, limit, queue, &found, err));
    for (int k = 0; k < found; k++)
        TRY(write_sample(&(writer){.json = j, .v = v, .id = list[queue[k].index]->id, .queued = &queue[k]}, err));
    return SFP_OK;
}

/* Lists judged samples. If label and answer are NULL: the suspects. Otherwise: the samples with this label, and with this answer of the model
 * without the sample. */
static sfp_status get_judged(struct sfp__review *v, const char *label, const char *answer, int limit, sfp__json *j,
                             sfp_error *err)
{
    TRY(judge_all(v, err));
    int class = find_class(v, label), other = find_class(v, answer);
    for (size_t i = 0; i < v->verdict_count && limit > 0; i++) {
        const verdict *e = &v->verdicts[i];
        if (label || answer ? (label && class != e->class) || (answer && other != e->answer) : !(e->margin > 0))
            continue;
        writer w = {.json = j, .v = v, .id = e->id, .verdict = e};
        TRY(write_sample(&w, err));
        limit -= w.written;
    }
    return SFP_OK;
}

static sfp_status get_limit(sfp__request *r, int *limit, sfp_error *err)
{
    int64_t n = LIMIT_DEFAULT;
    TRY(sfp__request_int(r, "limit", 1, LIMIT_MAX, &n, err));
    *limit = (int)n;
    return SFP_OK;
}

sfp_status sfp__get_queue(sfp__request *r, sfp_error *err)
{
    struct sfp__review *v = sfp__model_review(r->model);
    sfp__json j = {.text = &r->reply};
    int limit;
    TRY(get_limit(r, &limit, err));
    sfp__json_object(&j, NULL);
    sfp__json_array(&j, "samples");
    pthread_mutex_lock(&v->lock);
    sfp_status status = get_queue(v, limit, &j, err);
    pthread_mutex_unlock(&v->lock);
    sfp__json_end_all(&j);
    return status;
}

sfp_status sfp__get_suspects(sfp__request *r, sfp_error *err)
{
    struct sfp__review *v = sfp__model_review(r->model);
    sfp__json j = {.text = &r->reply};
    OWNED char *label = sfp__request_param(r, "label", 0), *answer = sfp__request_param(r, "answer", 0);
    int limit;
    TRY(get_limit(r, &limit, err));
    sfp__json_object(&j, NULL);
    sfp__json_array(&j, "samples");
    pthread_mutex_lock(&v->lock);
    sfp_status status = get_judged(v, label, answer, limit, &j, err);
    pthread_mutex_unlock(&v->lock);
    sfp__json_end_all(&j);
    return status;
}

static void put_class(sfp__json *j, const class_row *c)
{
    sfp__json_object(j, NULL);
    sfp__json_string(j, "name", c->name);
    sfp__json_int(j, "samples", c->samples);
    sfp__json_real(j, "accuracy", c->judged > 0 ? (double)c->right / c->judged : NAN);
    sfp__json_array(j, "curve");
    for (int i = 0; i < c->curve_count; i++) {
        sfp__json_array(j, NULL);
        sfp__json_int(j, NULL, c->curve[i].samples);
        sfp__json_real(j, NULL, c->curve[i].accuracy);
        sfp__json_end(j);
    }
    if (c->judged > 0) {
        sfp__json_array(j, NULL);
        sfp__json_int(j, NULL, c->judged);
        sfp__json_real(j, NULL, (double)c->right / c->judged);
        sfp__json_end(j);
    }
    sfp__json_end(j);
    sfp__json_end(j);
}

static sfp_status get_classes(struct sfp__review *v, sfp__json *j, sfp_error *err)
{
    OWNED int64_t *counts = NULL;
    TRY(judge_all(v, err));
    size_t classes = (size_t)v->class_count;
    TRY(sfp__alloc(&counts, classes * classes + 1, sizeof *counts, err));
    for (size_t i = 0; i < v->verdict_count; i++)
        if (v->verdicts[i].answer >= 0)
            counts[(size_t)v->verdicts[i].class * classes + (size_t)v->verdicts[i].answer]++;
    sfp__json_array(j, "classes");
    for (size_t c = 0; c < classes; c++)
        put_class(j, &v->classes[c]);
    sfp__json_end(j);
    sfp__json_object(j, "confusion");
    sfp__json_array(j, "counts");
    for (size_t a = 0; a < classes; a++) {
        sfp__json_array(j, NULL);
        for (size_t b = 0; b < classes; b++)
            sfp__json_int(j, NULL, counts[a * classes + b]);
        sfp__json_end(j);
    }
    return SFP_OK;
}

sfp_status sfp__get_classes(sfp__request *r, sfp_error *err)
{
    struct sfp__review *v = sfp__model_review(r->model);
    sfp__json j = {.text = &r->reply};
    sfp__json_object(&j, NULL);
    pthread_mutex_lock(&v->lock);
    sfp_status status = get_classes(v, &j, err);
    pthread_mutex_unlock(&v->lock);
    sfp__json_end_all(&j);
    return status;
}
