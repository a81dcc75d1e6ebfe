#include "run/state_eval.h"

#include "base/mem.h"
#include "base/monotonic.h"
#include "results/result.h"
#include "run/batch_loader.h"
#include "stream/tasks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct eval_context {
    const sfp__state_eval_options *opt;
    sfp__state_eval *e;
    sfp_predictor *predictor;
    sfp_source *source; /* of the options, until data owns it */
    const char *name;   /* of the data, for messages */
    sfp__class_filter *data;
    sfp__tasks tasks;
    sfp__evaluator *evaluator;
} eval_context;

/* ----------------------------------------------------------------------- data */

static sfp_status open_data(eval_context *s, sfp_error *err)
{
    const sfp__state_eval_options *o = s->opt;
    int classes = sfp__predictor_classes(s->predictor);
    const sfp__source_options so = {.test = !o->train_part, .seed = o->seed ? *o->seed : s->predictor->opt.seed};
    OWNED const char **names = NULL;
    OWNED_PTR(sfp__source_close) sfp_source *inner = TAKE(s->source);
    TRY(sfp__alloc(&names, (size_t)classes, sizeof *names, err));
    if (!inner)
        TRY(sfp__source_open(o->data, &so, &inner, err));
    s->name = o->source ? o->source->path : o->data;
    if (inner->live)
        return sfp__fail_key(err, "data", SFP_EINVAL, "data %s: a live source cannot be a test set, expected a dataset", s->name);
    TRY(sfp__check_input(inner, &o->vit->config, "data", s->name, err));
    for (int c = 0; c < classes; c++)
        names[c] = sfp__predictor_class_name(s->predictor, c);
    sfp_status status = sfp__class_filter_open(inner, classes, names, &s->data, err);
    if (!status)
        (void)TAKE(inner);
    return status == SFP_EFORMAT ? sfp__fail_prefix(err, status, "%s", o->state) : status; /* the names are those of the state */
}

static sfp_status add_unknown(sfp__state_eval *e, const char *name, uint64_t images, sfp_error *err)
{
    size_t n = (size_t)e->unknown_count;
    TRY(sfp__check_memory(sfp__grow(&e->unknown, sizeof *e->unknown, n, n + 1, &e->unknown_capacity) &&
                              (e->unknown[n].name = sfp__strdup(name)),
                          err));
    e->unknown[n].images = images;
    e->unknown_count++;
    e->unknown_images += images;
    return SFP_OK;
}

/* Removes images of classes that the state has not learned from the tasks, after the tasks were made as the run makes them. */
static sfp_status exclude_unlearned(eval_context *s, sfp_error *err)
{
    const sfp_source *source = &s->data->base;
    OWNED uint64_t *unseen = NULL;
    TRY(sfp__alloc(&unseen, (size_t)source->classes, sizeof *unseen, err));
    for (int t = 0; t < s->tasks.count; t++) {
        sfp__task *task = &s->tasks.task[t];
        int64_t kept = 0;
        for (int64_t i = 0; i < task->count; i++) {
            sfp_record r = {0};
            TRY(sfp__source_record(source, task->sample[i], &r, err));
            if (sfp__predictor_seen(s->predictor, r.label))
                task->sample[kept++] = task->sample[i];
            else
                unseen[r.label]++;
        }
        task->count = kept;
    }
    for (int c = 0; c < source->classes; c++)
        if (unseen[c])
            TRY(add_unknown(s->e, source->class_names[c], unseen[c], err));
    return SFP_OK;
}

static sfp_status split_data(eval_context *s, sfp_error *err)
{
    const sfp_source *source = &s->data->base;
    const char *spec = s->opt->tasks ? s->opt->tasks : source->domains > 1 ? "domain" : NULL;
    OWNED_BY(sfp__tasks_done) sfp__tasks like = {0};
    for (int c = 0; c < s->data->inner->classes; c++)
        if (s->data->foreign[c])
            TRY(add_unknown(s->e, s->data->inner->class_names[c], s->data->foreign[c], err));
    if (source->count == 0)
        return sfp__fail(err, SFP_EINVAL, "%s: dataset has no images of the classes that %s has learned", s->name, s->opt->state);
    TRY(sfp__tasks_create(source, spec, NULL, NULL, &like, err));
    TRY(sfp__tasks_create_test(source, source, &like, spec, s->opt->limit, &s->tasks, err));
    for (int c = 0; c < source->classes; c++)
        s->tasks.label_of[c] = c; /* labels of the state, in place of those that the split assigned */
    return exclude_unlearned(s, err);
}

/* ------------------------------------------------------------------ evaluation */

static sfp_status allocate_arrays(eval_context *s, sfp_error *err)
{
    sfp__state_eval *e = s->e;
    char *const *class_names = s->data->base.class_names;
    size_t tasks = (size_t)s->tasks.count, classes = (size_t)s->data->base.classes; /* at least one class: there are images */
    TRY(sfp__alloc(&e->task_names, tasks, sizeof *e->task_names, err));
    TRY(sfp__alloc(&e->accuracy, tasks, sizeof *e->accuracy, err));
    TRY(sfp__alloc(&e->answered, tasks, sizeof *e->answered, err));
    TRY(sfp__alloc(&e->class_names, classes, sizeof *e->class_names, err));
    if (classes <= SFP_CONFUSION_MAX)
        TRY(sfp__alloc(&e->confusion, classes * classes, sizeof *e->confusion, err));
    e->tasks = s->tasks.count;
    e->classes = s->data->base.classes;
    for (int t = 0; t < e->tasks; t++)
        TRY(sfp__check_memory((e->task_names[t] = sfp__strdup(s->tasks.task[t].name)), err));
    for (int c = 0; c < e->classes; c++)
        TRY(sfp__check_memory((e->class_names[c] = sfp__strdup(class_names[c])), err));
    return SFP_OK;
}

static sfp_status predict_all(eval_context *s, sfp_error *err)
{
    const sfp__state_eval_options *o = s->opt;
    sfp__state_eval *e = s->e;
    uint64_t total = 0;
    const sfp__vit_config *c = &o->vit->config;
    TRY(sfp__evaluator_create(&s->data->base, &s->tasks, c->img_size, s->predictor->opt.resize, s->predictor->tap_dim,
                              SFP_EVALUATOR_MEMORY, &s->evaluator, err));
    for (int t = 0; t < s->tasks.count; t++)
        total += (uint64_t)s->tasks.task[t].count;
    if (total == 0)
        return sfp__fail(err, SFP_EINVAL, "%s: dataset has no images of the classes that %s has learned", s->name, o->state);
    if (o->begin)
        o->begin(o->ctx, total, s->data->inner->warning);
    s->evaluator->on_progress = o->progress;
    s->evaluator->progress_ctx = o->ctx;
    double begin = sfp__monotonic_seconds();
    TRY(sfp__evaluator_run(s->evaluator, s->predictor, e->tasks - 1, e->accuracy, e->classes, e->confusion, err));
    e->seconds = sfp__monotonic_seconds() - begin;
    return SFP_OK;
}

static void sum_up(eval_context *s)
{
    sfp__state_eval *e = s->e;
    double sum = 0;
    int n = 0;
    for (int t = 0; t < e->tasks; t++) {
        e->answered[t] = s->evaluator->answered[t];
        e->images += e->answered[t];
        if (e->answered[t] == 0)
            continue;
        e->correct += (uint64_t)llround(e->accuracy[t] * (double)e->answered[t]);
        sum += e->accuracy[t];
        n++;
    }
    e->average = n ? sum / n : NAN;
    e->calibration = sfp__reliability_error(&s->evaluator->calibration[0]);
    e->unscaled_calibration = sfp__reliability_error(&s->evaluator->calibration[1]);
    e->skipped = s->evaluator->skipped;
    (void)snprintf(e->first_error, sizeof e->first_error, "%s", s->evaluator->first_error);
    e->unlabelled = s->data->unlabelled;
}

static sfp_status evaluate(eval_context *s, sfp_error *err)
{
    TRY(sfp__predictor_open(s->opt->vit, s->opt->pool, s->opt->state, 0, &s->predictor, err));
    TRY(open_data(s, err));
    TRY(split_data(s, err));
    TRY(allocate_arrays(s, err));
    TRY(predict_all(s, err));
    sum_up(s);
    if (s->e->images == 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: none of the %llu images could be read (first: %s)", s->name,
                         (unsigned long long)s->e->skipped, s->e->first_error);
    return SFP_OK;
}

sfp_status sfp__state_eval_run(const sfp__state_eval_options *opt, sfp__state_eval *out, sfp_error *err)
{
    OWNED_BY(sfp__state_eval_done) sfp__state_eval e = {0};
    eval_context s = {.opt = opt, .e = &e, .source = opt->source};
    sfp_status status = evaluate(&s, err);
    sfp__evaluator_free(s.evaluator);
    sfp__tasks_done(&s.tasks);
    sfp__source_close(s.data ? &s.data->base : NULL);
    sfp__predictor_free(s.predictor);
    sfp__source_close(s.source);
    TRY(status);
    *out = TAKE(e);
    return SFP_OK;
}

void sfp__state_eval_done(sfp__state_eval *e)
{
    for (int t = 0; t < e->tasks; t++)
        sfp__free(e->task_names[t]);
    for (int c = 0; c < e->classes; c++)
        sfp__free(e->class_names[c]);
    for (int i = 0; i < e->unknown_count; i++)
        sfp__free(e->unknown[i].name);
    sfp__free(e->task_names);
    sfp__free(e->class_names);
    sfp__free(e->accuracy);
    sfp__free(e->answered);
    sfp__free(e->confusion);
    sfp__free(e->unknown);
    *e = (sfp__state_eval){0};
}
