/* The table of selectors and the functions that they share: the size of the coreset, the window of docs/method.md, section 5, and
 * the candidates. */
#include "select/select_internal.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

const sfp__selector *const sfp__selectors[] = {
    &sfp__selector_streamfp, &sfp__selector_none,      &sfp__selector_random,  &sfp__selector_kcenter,   &sfp__selector_camel,
    &sfp__selector_craig,    &sfp__selector_gradmatch, &sfp__selector_freesel, &sfp__selector_learnloss, NULL,
};

enum { BUILT_IN = sizeof sfp__selectors / sizeof *sfp__selectors - 1, REGISTERED_MAX = 256 };

/* An entry is written before it is counted and never changes, so that reading needs no lock. */
static const sfp__selector *registered[REGISTERED_MAX];
static atomic_int registered_count;
static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;

const sfp__selector *sfp__selector_at(int i)
{
    if (i < BUILT_IN)
        return i < 0 ? NULL : sfp__selectors[i];
    return i - BUILT_IN < atomic_load(&registered_count) ? registered[i - BUILT_IN] : NULL;
}

const sfp__selector *sfp__selector_find(const char *name)
{
    const sfp__selector *s;
    for (int i = 0; name && (s = sfp__selector_at(i)); i++)
        if (strcmp(s->name, name) == 0)
            return s;
    return NULL;
}

sfp_status sfp__selector_register(const sfp__selector *s, sfp_error *err)
{
    pthread_mutex_lock(&registering);
    int n = atomic_load(&registered_count);
    bool in_use = sfp__selector_find(s->name), full = n == REGISTERED_MAX;
    if (!in_use && !full) {
        registered[n] = s;
        atomic_store(&registered_count, n + 1);
    }
    pthread_mutex_unlock(&registering);
    if (in_use)
        return sfp__fail(err, SFP_EINVAL, "selector '%s': name is in use, expected a new one", s->name);
    return full ? sfp__fail(err, SFP_ELIMIT, "selector '%s': %d selectors are registered, expected at most %d", s->name, n,
                            REGISTERED_MAX)
                : SFP_OK;
}

sfp__select_options sfp__select_options_defaults(void)
{
    return (sfp__select_options){.sigma = 0.5};
}

int sfp__coreset_size(int b, double sigma)
{
    if (b <= 0)
        return 0;
    if (sigma >= 1)
        return b;
    if (!(sigma > 0)) /* also NaN */
        return 1;
    int c = (int)(sigma * b + 1e-9); /* 1e-9 because 0.29 * 100 is computed as 28.999... and must give 29 */
    return c < 1 ? 1 : c > b ? b : c;
}

int sfp__coreset_window(int b, const int *order, const sfp__select_options *opt, int *out)
{
    int c = sfp__coreset_size(b, opt->sigma);
    if (opt->sigma >= 1) {
        for (int i = 0; i < c; i++)
            out[i] = i;
        return c;
    }
    int first = b / 2 - c / 2;
    for (int i = 0; i < c; i++)
        out[i] = order[first + i];
    return c;
}

/* ------------------------------------------------------------------- checking */

sfp_status sfp__select_check(const sfp__selector *s, const sfp__select_batch *batch, sfp_error *err)
{
    const struct {
        unsigned need;
        const void *data;
        const char *name;
    } inputs[] = {
        {SFP__NEED_SCORE, batch->score, "scores"},        {SFP__NEED_FEATURES, batch->features, "features"},
        {SFP__NEED_QUERY, batch->query, "queries"},       {SFP__NEED_LOGITS, batch->logits, "logits"},
        {SFP__NEED_PROBS, batch->probs, "probabilities"}, {SFP__NEED_ATTENTION, batch->pooled, "pooled patch tokens"},
        {SFP__NEED_TAPS, batch->taps, "token means"},     {SFP__NEED_GRADIENTS, batch->gradients, "gradients"},
    };
    if (batch->b < 0)
        return sfp__fail(err, SFP_EINVAL, "selector '%s': batch size is %d, expected 0 or more", s->name, batch->b);
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        if (batch->b > 0 && (s->needs & inputs[i].need) && !inputs[i].data)
            return sfp__fail(err, SFP_EINVAL, "selector '%s': the batch has no %s, which this selector needs", s->name,
                             inputs[i].name);
    return SFP_OK;
}

sfp_status sfp__select_check_labels(const sfp__selector *s, const sfp__select_batch *batch, sfp_error *err)
{
    if (batch->b > 0 && !batch->label)
        return sfp__fail(err, SFP_EINVAL, "selector '%s': the batch has no labels, which this selector needs", s->name);
    for (int i = 0; i < batch->b; i++)
        if (batch->label[i] < 0 || batch->label[i] >= batch->classes)
            return sfp__fail(err, SFP_EINVAL, "selector '%s': sample %d has label %d, expected 0 to %d", s->name, i,
                             batch->label[i], batch->classes - 1);
    return SFP_OK;
}

void sfp__select_equal_weights(int n, float *weight)
{
    for (int i = 0; weight && i < n; i++)
        weight[i] = 1;
}

void sfp__select_whole(int b, int *out, float *weight, int *count)
{
    for (int i = 0; i < b; i++)
        out[i] = i;
    sfp__select_equal_weights(b, weight);
    *count = b;
}

/* ----------------------------------------------------------------- candidates */

static bool finite_row(const sfp__matrix *m, int i)
{
    const float *x = m->data + (size_t)i * (size_t)m->width;
    float sum = 0; /* the sum of zeros and NaNs; 0 * infinity is NaN too */
    for (int k = 0; k < m->width; k++)
        sum += 0.0f * x[k];
    return sum == 0.0f;
}

sfp_status sfp__select_begin(const sfp__selector *s, const sfp__select_batch *batch, const sfp__select_options *opt,
                             const sfp__select_env *env, int matrices, const sfp__matrix *matrix, sfp__candidates *to, bool *all,
                             int *out, float *weight, int *count, sfp_error *err)
{
    TRY(sfp__select_check(s, batch, err));
    int b = batch->b, c = sfp__coreset_size(b, opt->sigma);
    *all = c >= b;
    if (*all) {
        sfp__select_whole(b, out, weight, count);
        return SFP_OK;
    }
    int *id, n = 0, not_finite = b;
    const sfp__want want = {&id, (size_t)b, sizeof *id};
    sfp__arena_reset(env->arena);
    TRY(sfp__arena_list(env->arena, 1, &want, err));
    for (int i = 0; i < b; i++) {
        bool finite = true;
        for (int m = 0; m < matrices && finite; m++)
            finite = finite_row(&matrix[m], i);
        if (finite)
            id[n++] = i;
        else
            id[--not_finite] = i; /* in descending order, which is reversed below */
    }
    for (int i = n, j = b - 1; i < j; i++, j--) {
        int swap = id[i];
        id[i] = id[j];
        id[j] = swap;
    }
    *to = (sfp__candidates){.b = b, .c = c, .n = n, .id = id};
    return SFP_OK;
}

void sfp__select_end(const sfp__candidates *from, int got, const int *picked, int *out, float *weight, int *count)
{
    for (int i = 0; i < got; i++)
        out[i] = from->id[picked[i]];
    for (int i = got; i < from->c; i++) { /* got < c only if all candidates are chosen */
        out[i] = from->id[from->n + i - got];
        if (weight)
            weight[i] = 1;
    }
    *count = from->c;
}

void sfp__select_gather(const sfp__candidates *from, const sfp__matrix *m, float *out)
{
    size_t width = (size_t)m->width;
    for (int i = 0; i < from->n; i++)
        memcpy(out + (size_t)i * width, m->data + (size_t)from->id[i] * width, width * sizeof *out);
}

typedef struct class_order {
    const int32_t *label;
    const int *id;
} class_order;

/* Sorts by class, then by index. */
static bool class_after(const void *ctx, int i, int j)
{
    const class_order *s = ctx;
    int32_t a = s->label[s->id[i]], b = s->label[s->id[j]];
    return a > b || (a == b && i > j);
}

int sfp__select_group_by_class(sfp__candidates *from, const int32_t *label, int *order, int *id, int *group)
{
    int groups = 0;
    for (int i = 0; i < from->n; i++)
        order[i] = i;
    sfp__heap_sort(from->n, order, class_after, &(class_order){label, from->id});
    for (int i = 0; i < from->n; i++) {
        id[i] = from->id[order[i]];
        if (i == 0 || label[id[i]] != label[id[i - 1]])
            group[groups++] = i;
    }
    group[groups] = from->n;
    memcpy(from->id, id, (size_t)from->n * sizeof *id);
    return groups;
}

/* -------------------------------------------------------------------- threads */

void sfp__select_each(const sfp__select_env *env, int pieces, sfp__thread_pool_fn fn, void *ctx)
{
    if (env->threads) {
        sfp__thread_pool_run(env->threads, pieces, fn, ctx);
        return;
    }
    for (int i = 0; i < pieces; i++)
        fn(ctx, i, 0);
}

int sfp__select_workers(const sfp__select_env *env)
{
    return env->threads ? sfp__thread_pool_size(env->threads) : 1;
}

void sfp__select_report_progress(const sfp__select_env *env, const char *unit, int64_t done, int64_t total)
{
    if (env->on_progress)
        env->on_progress(env->progress_ctx, unit, (uint64_t)done, (uint64_t)total);
}
