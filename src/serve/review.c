/* What a person should look at: the accuracy of each class and its mix-ups, if each sample is answered by the model without it; labels that
 * are doubtful; samples whose labels would teach most. The judgements are those of the library; here are the features that they need.
 *
 * Features are kept in memory, up to a limit. Those that are missing are computed between answers, for a short time per request: at first
 * only a part of the samples is judged. Only the newest samples are. */
#include "serve/internal.h"

#include "base/monotonic.h"

#include <math.h>
#include <stdio.h>

enum { SAMPLES_MAX = 4000, CHUNK = 16, LIMIT_MAX = 200, LIMIT_DEFAULT = 20, CURVE_MAX = 48 };
static const double compute_seconds = 2;
static const size_t bytes_max = (size_t)128 << 20;

typedef struct feature {
    uint64_t id;
    float *x; /* (dim) */
} feature;

/* How the accuracy of a class has changed with the number of its samples. */
typedef struct curve {
    char *name;
    int count, samples[CURVE_MAX];
    double accuracy[CURVE_MAX];
} curve;

struct sfp__review {
    pthread_mutex_t lock;
    feature *features; /* (count) by id */
    size_t count, capacity;
    int dim;
    curve *curves;
    size_t curve_count, curve_capacity;
};

struct sfp__review *sfp__review_create(void)
{
    struct sfp__review *v = sfp__calloc(1, sizeof *v);
    if (v)
        pthread_mutex_init(&v->lock, NULL);
    return v;
}

void sfp__review_free(struct sfp__review *v)
{
    if (!v)
        return;
    for (size_t i = 0; i < v->count; i++)
        sfp__free(v->features[i].x);
    for (size_t i = 0; i < v->curve_count; i++)
        sfp__free(v->curves[i].name);
    sfp__free(v->features);
    sfp__free(v->curves);
    pthread_mutex_destroy(&v->lock);
    sfp__free(v);
}

/* The place of the first feature whose id is not smaller. The lock is held. */
static size_t find_place(const struct sfp__review *v, uint64_t id)
{
    size_t low = 0, high = v->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (v->features[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void remove_at(struct sfp__review *v, size_t at)
{
    sfp__free(v->features[at].x);
    memmove(v->features + at, v->features + at + 1, (--v->count - at) * sizeof *v->features);
}

void sfp__review_keep(struct sfp__review *v, uint64_t id, const float *x, int dim)
{
    size_t bytes = (size_t)dim * sizeof *x;
    pthread_mutex_lock(&v->lock);
    size_t at = find_place(v, id);
    bool known = at < v->count && v->features[at].id == id;
    float *copy = known ? NULL : sfp__malloc(bytes);
    if (copy && sfp__grow(&v->features, sizeof *v->features, v->count, v->count + 1, &v->capacity)) {
        memmove(v->features + at + 1, v->features + at, (v->count++ - at) * sizeof *v->features);
        memcpy(copy, x, bytes);
        v->features[at] = (feature){.id = id, .x = copy};
        v->dim = dim;
        if (v->count * bytes > bytes_max)
            remove_at(v, 0);
    } else {
        sfp__free(copy);
    }
    pthread_mutex_unlock(&v->lock);
}

void sfp__review_forget(struct sfp__review *v, uint64_t id)
{
    pthread_mutex_lock(&v->lock);
    size_t at = find_place(v, id);
    if (at < v->count && v->features[at].id == id)
        remove_at(v, at);
    pthread_mutex_unlock(&v->lock);
}

static bool has_feature(struct sfp__review *v, uint64_t id)
{
    pthread_mutex_lock(&v->lock);
    size_t at = find_place(v, id);
    bool known = at < v->count && v->features[at].id == id;
    pthread_mutex_unlock(&v->lock);
    return known;
}

/* ------------------------------------------------------------------ gathering */

/* Samples of a model with their features. */
typedef struct study {
    sfp__model *model;
    bool learned; /* learned samples; else those that wait for a label */
    int count, capacity;
    uint64_t *id;        /* (count) */
    sfp__strings labels; /* (count) of learned samples */
    float *features;     /* (count, dim) of those that have one: the others are removed */
    int dim;
    /* the judgement */
    int classes;
    sfp__strings names;          /* (classes) of the predictor */
    int32_t *label;              /* (count) */
    sfp_prediction *predictions; /* (count) */
    int limit, found;
    sfp_queued queued[LIMIT_MAX];
    int32_t suspects[LIMIT_MAX];
} study;

static void free_study(study *s)
{
    if (!s)
        return;
    sfp__free(s->id);
    sfp__free(s->features);
    sfp__free(s->label);
    sfp__free(s->predictions);
    sfp__strings_done(&s->labels);
    sfp__strings_done(&s->names);
    sfp__free(s);
}
DEFINE_OWNED_PTR(study, free_study)

static sfp_status add_sample(void *ctx, const sfp_sample_info *info, sfp_error *err)
{
    study *s = ctx;
    if (s->count == s->capacity || !info->has_image || (s->learned ? !info->learned : info->label != NULL))
        return SFP_OK;
    if (s->learned)
        TRY(sfp__strings_add(&s->labels, info->learned, err));
    s->id[s->count++] = info->id;
    return SFP_OK;
}

/* Lists the newest samples. */
static sfp_status list_samples(study *s, sfp_error *err)
{
    sfp_sample_filter f = SFP_SAMPLE_FILTER_INIT;
    uint64_t counts[5], all = 0;
    TRY(sfp_run_counts(sfp__model_run(s->model), counts, err));
    for (int i = 0; i < 5; i++)
        all += counts[i]; /* ids are given in turn */
    f.from = all > 2 * SAMPLES_MAX ? all - 2 * SAMPLES_MAX : 0;
    f.limit = s->capacity = 2 * SAMPLES_MAX;
    f.by_standing = 1;
    f.standing = s->learned ? SFP_LEARNED : SFP_WAITING;
    f.unlabelled = !s->learned;
    TRY(sfp__alloc(&s->id, (size_t)s->capacity, sizeof *s->id, err));
    return sfp_run_samples(sfp__model_run(s->model), &f, add_sample, s, err);
}

typedef struct chunk {
    struct sfp__review *review;
    int count;
    uint64_t id[CHUNK];
    sfp_image images[CHUNK];
    sfp__decoded decoded[CHUNK];
} chunk;

static void keep_features(sfp__question *q, const sfp_predictor *p, int first, const sfp_prediction *predictions)
{
    const chunk *c = q->ctx;
    const float *x = sfp_predictor_features(p);
    int dim = sfp_predictor_feature_dim(p);
    (void)predictions;
    for (int i = 0; x && i < c->count; i++)
        sfp__review_keep(c->review, c->id[i], x + (size_t)(first + i) * (size_t)dim, dim);
}

static sfp_status compute_chunk(sfp__model *m, chunk *c, sfp_error *err)
{
    sfp__question q = {.count = c->count, .images = c->images, .answer = keep_features, .ctx = c};
    sfp_status status = c->count ? sfp__model_ask(m, &q, err) : SFP_OK;
    for (int i = 0; i < c->count; i++)
        sfp__decoded_done(&c->decoded[i]);
    c->count = 0;
    return status;
}

/* Computes features that are missing, the newest first. */
static sfp_status compute_features(study *s, sfp_error *err)
{
    OWNED chunk *c = NULL;
    double until = sfp__monotonic_seconds() + compute_seconds;
    TRY(sfp__alloc(&c, 1, sizeof *c, err));
    c->review = sfp__model_review(s->model);
    for (int i = s->count - 1; i >= 0 && sfp__monotonic_seconds() < until; i--) {
        void *bytes = NULL;
        size_t size;
        if (has_feature(c->review, s->id[i]) || sfp_run_sample_image(sfp__model_run(s->model), s->id[i], &bytes, &size, NULL))
            continue;
        if (sfp__serve_decode(bytes, size, &c->decoded[c->count], NULL) == SFP_OK) {
            c->images[c->count] = c->decoded[c->count].image;
            c->id[c->count++] = s->id[i];
        }
        sfp_free(bytes);
        if (c->count == CHUNK)
            TRY(compute_chunk(s->model, c, err));
    }
    return compute_chunk(s->model, c, err);
}

/* Copies the features, and removes samples that have none. */
static sfp_status take_features(study *s, sfp_error *err)
{
    struct sfp__review *v = sfp__model_review(s->model);
    int kept = 0;
    pthread_mutex_lock(&v->lock);
    size_t dim = (size_t)v->dim;
    sfp_status status = sfp__alloc(&s->features, (size_t)s->count * dim, sizeof *s->features, err);
    for (int i = 0; i < s->count && !status; i++) {
        size_t at = find_place(v, s->id[i]);
        if (at == v->count || v->features[at].id != s->id[i])
            continue;
        memcpy(s->features + (size_t)kept * dim, v->features[at].x, dim * sizeof *s->features);
        if (s->learned) {
            char *label = s->labels.s[kept];
            s->labels.s[kept] = s->labels.s[i];
            s->labels.s[i] = label;
        }
        s->id[kept++] = s->id[i];
    }
    s->count = kept;
    s->dim = (int)dim;
    pthread_mutex_unlock(&v->lock);
    return status;
}

static sfp_status judge(sfp__question *q, sfp_predictor *p, sfp_error *err)
{
    study *s = q->ctx;
    TRY(sfp_predictor_refresh(p, err));
    s->classes = sfp_predictor_classes(p);
    for (int c = 0; c < s->classes; c++) {
        const char *name = sfp_predictor_class_name(p, c);
        TRY(sfp__strings_add(&s->names, name ? name : "", err));
    }
    if (!s->learned)
        return sfp_predictor_queue(p, s->count, s->features, s->limit, s->queued, &s->found, err);
    for (int i = 0; i < s->count; i++)
        s->label[i] = i > 0 && strcmp(s->labels.s[i], s->labels.s[i - 1]) == 0 ? s->label[i - 1]
                                                                               : sfp__strings_find(&s->names, s->labels.s[i]);
    return sfp_predictor_judge(p, s->count, s->features, s->label, s->predictions, err);
}

static sfp_status make_study(sfp__request *r, bool learned, study **out, sfp_error *err)
{
    OWNED_PTR(free_study) study *s = NULL;
    int64_t limit = LIMIT_DEFAULT;
    TRY(sfp__request_int(r, "limit", 1, LIMIT_MAX, &limit, err));
    TRY(sfp__alloc(&s, 1, sizeof *s, err));
    s->model = r->model;
    s->learned = learned;
    s->limit = (int)limit;
    TRY(list_samples(s, err));
    TRY(compute_features(s, err));
    TRY(take_features(s, err));
    TRY(sfp__alloc(&s->label, (size_t)s->count, sizeof *s->label, err));
    TRY(sfp__alloc(&s->predictions, (size_t)s->count, sizeof *s->predictions, err));
    sfp__question q = {.run = judge, .ctx = s};
    if (s->count)
        TRY(sfp__model_ask(r->model, &q, err));
    *out = TAKE(s);
    return SFP_OK;
}

/* -------------------------------------------------------------- queue, suspects */

/* Opens the object of a sample in the list. */
static sfp_status open_sample(sfp__request *r, sfp__json *j, uint64_t id, sfp_error *err)
{
    bool found;
    sfp__json_object(j, NULL);
    return sfp__json_sample_members(r->model, id, j, &found, err);
}

sfp_status sfp__get_queue(sfp__request *r, sfp_error *err)
{
    static const char *const reasons[] = {"uncertain", "unlike", "diverse"};
    OWNED_PTR(free_study) study *s = NULL;
    sfp__json j = {.text = &r->reply};
    TRY(make_study(r, false, &s, err));
    sfp__json_object(&j, NULL);
    sfp__json_array(&j, "samples");
    for (int i = 0; i < s->found; i++) {
        TRY(open_sample(r, &j, s->id[s->queued[i].index], err));
        sfp__json_string(&j, "reason", reasons[s->queued[i].reason]);
        sfp__json_real(&j, "score", (double)s->queued[i].score);
        sfp__json_string(&j, "answer", s->queued[i].label < 0 ? NULL : s->names.s[s->queued[i].label]);
        sfp__json_real(&j, "answer_probability", (double)s->queued[i].probability);
        sfp__json_end(&j);
    }
    sfp__json_end_all(&j);
    return SFP_OK;
}

/* Finds samples with this label and this answer without them; NULL: any. */
static int find_judged(study *s, const char *label, const char *answer)
{
    int n = 0, from = label ? sfp__strings_find(&s->names, label) : -1, to = answer ? sfp__strings_find(&s->names, answer) : -1;
    for (int i = 0; i < s->count && n < s->limit; i++)
        if (s->predictions[i].label >= 0 && (!label || s->label[i] == from) && (!answer || s->predictions[i].label == to))
            s->suspects[n++] = i;
    return n;
}

sfp_status sfp__get_suspects(sfp__request *r, sfp_error *err)
{
    OWNED_PTR(free_study) study *s = NULL;
    OWNED char *label = sfp__request_param(r, "label", 0), *answer = sfp__request_param(r, "answer", 0);
    sfp__json j = {.text = &r->reply};
    TRY(make_study(r, true, &s, err));
    int n =
        label || answer ? find_judged(s, label, answer) : sfp_suspects(s->count, s->label, s->predictions, s->limit, s->suspects);
    sfp__json_object(&j, NULL);
    sfp__json_array(&j, "samples");
    for (int i = 0; i < n; i++) {
        const sfp_prediction *p = &s->predictions[s->suspects[i]];
        TRY(open_sample(r, &j, s->id[s->suspects[i]], err));
        sfp__json_string(&j, "suggested", s->names.s[p->label]);
        sfp__json_real(&j, "margin", (double)p->probability - (double)p->own);
        sfp__json_end(&j);
    }
    sfp__json_end_all(&j);
    return SFP_OK;
}

/* ---------------------------------------------------------------------- classes */

/* Notes the accuracy of a class, and writes its curve. A curve that is full loses every second point. */
static void put_curve(struct sfp__review *v, sfp__json *j, const char *name, int samples, double accuracy)
{
    curve *c = NULL;
    pthread_mutex_lock(&v->lock);
    for (size_t i = 0; i < v->curve_count && !c; i++)
        if (strcmp(v->curves[i].name, name) == 0)
            c = &v->curves[i];
    if (!c && sfp__grow(&v->curves, sizeof *v->curves, v->curve_count, v->curve_count + 1, &v->curve_capacity)) {
        v->curves[v->curve_count] = (curve){.name = sfp__strdup(name)};
        c = v->curves[v->curve_count].name ? &v->curves[v->curve_count++] : NULL;
    }
    sfp__json_array(j, "curve");
    if (c && isfinite(accuracy)) {
        if (c->count == CURVE_MAX) {
            for (int i = 0; i < CURVE_MAX / 2; i++) {
                c->samples[i] = c->samples[2 * i];
                c->accuracy[i] = c->accuracy[2 * i];
            }
            c->count = CURVE_MAX / 2;
        }
        int at = c->count > 0 && c->samples[c->count - 1] == samples ? c->count - 1 : c->count;
        c->samples[at] = samples;
        c->accuracy[at] = accuracy;
        c->count = at + 1;
    }
    for (int i = 0; c && i < c->count; i++) {
        sfp__json_array(j, NULL);
        sfp__json_int(j, NULL, c->samples[i]);
        sfp__json_real(j, NULL, c->accuracy[i]);
        sfp__json_end(j);
    }
    sfp__json_end(j);
    pthread_mutex_unlock(&v->lock);
}

typedef struct class_list {
    sfp__strings names;
    int64_t *samples; /* (names.count) */
    size_t capacity;
    int *row;    /* (classes of the predictor) place in this list; -1: none */
    int *counts; /* (names.count, names.count) rows: labels; columns: answers */
} class_list;

static void class_list_done(class_list *l)
{
    sfp__strings_done(&l->names);
    sfp__free(l->samples);
    sfp__free(l->row);
    sfp__free(l->counts);
}

static sfp_status add_class(void *ctx, const char *name, int64_t samples, sfp_error *err)
{
    class_list *l = ctx;
    size_t n = (size_t)l->names.count;
    TRY(sfp__check_memory(sfp__grow(&l->samples, sizeof *l->samples, n, n + 1, &l->capacity), err));
    TRY(sfp__strings_add(&l->names, name, err));
    l->samples[n] = samples;
    return SFP_OK;
}

static sfp_status count_answers(class_list *l, const study *s, sfp_error *err)
{
    size_t n = (size_t)l->names.count;
    TRY(sfp__alloc(&l->counts, n * n, sizeof *l->counts, err));
    TRY(sfp__alloc(&l->row, (size_t)s->classes, sizeof *l->row, err));
    for (int c = 0; c < s->classes; c++)
        l->row[c] = sfp__strings_find(&l->names, s->names.s[c]);
    for (int i = 0; i < s->count; i++) {
        int label = s->label[i] >= 0 ? l->row[s->label[i]] : -1;
        int answer = s->predictions[i].label >= 0 ? l->row[s->predictions[i].label] : -1;
        if (label >= 0 && answer >= 0)
            l->counts[(size_t)label * n + (size_t)answer]++;
    }
    return SFP_OK;
}

sfp_status sfp__get_classes(sfp__request *r, sfp_error *err)
{
    OWNED_PTR(free_study) study *s = NULL;
    OWNED_BY(class_list_done) class_list l = {0};
    sfp_error why;
    sfp__json j = {.text = &r->reply};
    sfp_status status = make_study(r, true, &s, &why);
    if (status && status != SFP_EUNSUPPORTED) /* other heads have no accuracy by leaving samples out */
        return sfp__fail(err, status, "%s", why.message);
    TRY(sfp_run_classes(sfp__model_run(r->model), add_class, &l, err));
    if (s)
        TRY(count_answers(&l, s, err));
    int n = l.names.count;
    sfp__json_object(&j, NULL);
    sfp__json_array(&j, "classes");
    for (int c = 0; c < n; c++) {
        int judged = 0, right = l.counts ? l.counts[c * n + c] : 0;
        for (int k = 0; k < n && l.counts; k++)
            judged += l.counts[c * n + k];
        double accuracy = judged ? (double)right / judged : (double)NAN;
        sfp__json_object(&j, NULL);
        sfp__json_string(&j, "name", l.names.s[c]);
        sfp__json_int(&j, "samples", l.samples[c]);
        sfp__json_real(&j, "accuracy", accuracy);
        put_curve(sfp__model_review(r->model), &j, l.names.s[c], judged, accuracy);
        sfp__json_end(&j);
    }
    sfp__json_end(&j);
    sfp__json_object(&j, "confusion");
    sfp__json_array(&j, "counts");
    for (int c = 0; c < n; c++) {
        sfp__json_array(&j, NULL);
        for (int k = 0; k < n; k++)
            sfp__json_int(&j, NULL, l.counts ? l.counts[c * n + k] : 0);
        sfp__json_end(&j);
    }
    sfp__json_end_all(&j);
    return SFP_OK;
}
