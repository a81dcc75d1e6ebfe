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
    const sfp__evaluation_engine *engine;
    const char *state;
    const sfp_evaluation_options *opt;
    sfp_evaluation *e;
    sfp_predictor *predictor;
    sfp_source *source; /* of the options, until data owns it */
    const char *name;   /* of the data, for messages */
    sfp__class_filter *data;
    sfp__tasks tasks;
    sfp__evaluator *evaluator;
    uint64_t total; /* images to evaluate */
} eval_context;

/* Fills a row; its name is copied. */
static sfp_status put_row(sfp_evaluation *e, sfp_accuracy *row, const char *name, uint64_t images, uint64_t correct,
                          sfp_error *err)
{
    size_t size = strlen(name) + 1;
    char *copy = sfp__arena_take(&e->texts, size, 1);
    TRY(sfp__check_memory(copy, err));
    memcpy(copy, name, size);
    *row = (sfp_accuracy){copy, images, correct, images ? (double)correct / (double)images : NAN};
    return SFP_OK;
}

/* ----------------------------------------------------------------------- data */

static sfp_status open_data(eval_context *s, sfp_error *err)
{
    const sfp_evaluation_options *o = s->opt;
    int classes = sfp__predictor_classes(s->predictor);
    const sfp__source_options so = {.test = !o->train_part, .seed = o->has_seed ? o->seed : s->predictor->opt.seed};
    OWNED const char **names = NULL;
    OWNED_PTR(sfp__source_close) sfp_source *inner = TAKE(s->source);
    TRY(sfp__alloc(&names, (size_t)classes, sizeof *names, err));
    if (!inner)
        TRY(sfp__source_open(o->data, &so, &inner, err));
    s->name = o->data ? o->data : inner->path;
    TRY(sfp__shard_open(&inner, o->shard, err));
    if (inner->live)
        return sfp__fail_key(err, "data", SFP_EINVAL, "data %s: a live source cannot be a test set, expected a dataset", s->name);
    TRY(sfp__check_input(inner, &s->engine->vit->config, "data", s->name, err));
    for (int c = 0; c < classes; c++)
        names[c] = sfp__predictor_class_name(s->predictor, c);
    sfp_status status = sfp__class_filter_open(inner, classes, names, &s->data, err);
    if (!status)
        (void)TAKE(inner);
    return status == SFP_EFORMAT ? sfp__fail_prefix(err, status, "%s", s->state)
                                 : status; /* the class names come from the state */
}

static sfp_status add_unknown(sfp_evaluation *e, const char *name, uint64_t images, sfp_error *err)
{
    size_t n = (size_t)e->unknown_count;
    TRY(sfp__check_memory(sfp__grow(&e->unknown, sizeof *e->unknown, n, n + 1, &e->unknown_capacity), err));
    TRY(put_row(e, &e->unknown[n], name, images, 0, err));
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
        return sfp__fail(err, SFP_EINVAL, "%s: dataset has no images of the classes that %s has learned", s->name, s->state);
    TRY(sfp__tasks_create(source, spec, NULL, NULL, &like, err));
    TRY(sfp__tasks_create_test(source, source, &like, spec, (int64_t)s->opt->limit, &s->tasks, err));
    for (int c = 0; c < source->classes; c++)
        s->tasks.label_of[c] = c; /* labels of the state, in place of those that the split assigned */
    return exclude_unlearned(s, err);
}

/* ------------------------------------------------------------------ evaluation */

static void on_progress(void *ctx, uint64_t done)
{
    const eval_context *s = ctx;
    if (s->opt->progress)
        s->opt->progress(s->opt->ctx, done, s->total);
}

static sfp_status predict_all(eval_context *s, sfp_error *err)
{
    const sfp__evaluation_engine *g = s->engine;
    sfp_evaluation *e = s->e;
    TRY(sfp__evaluator_create(&s->data->base, &s->tasks, g->vit->config.img_size, sfp__learner_resize(&s->predictor->opt),
                              s->predictor->tap_dim, SFP__EVALUATOR_MEMORY, &s->evaluator, err));
    for (int t = 0; t < s->tasks.count; t++)
        s->total += (uint64_t)s->tasks.task[t].count;
    if (s->total == 0)
        return sfp__fail(err, SFP_EINVAL, "%s: dataset has no images of the classes that %s has learned", s->name, s->state);
    if (s->data->inner->warning && g->log)
        g->log(g->log_ctx, SFP_LOG_WARNING, s->data->inner->warning);
    on_progress(s, 0);
    s->evaluator->on_progress = on_progress;
    s->evaluator->progress_ctx = s;
    double begin = sfp__monotonic_seconds();
    TRY(sfp__evaluator_run(s->evaluator, s->predictor, e->tasks - 1, s->data->base.classes, err));
    e->seconds = sfp__monotonic_seconds() - begin;
    return SFP_OK;
}

/* Fills the rows of tasks and classes, and the numbers over all tasks. */
static sfp_status sum_up(eval_context *s, sfp_error *err)
{
    sfp_evaluation *e = s->e;
    sfp__evaluator *from = s->evaluator;
    double sum = 0;
    int n = 0;
    for (int t = 0; t < e->tasks; t++) {
        uint64_t images = from->answered[t];
        TRY(put_row(e, &e->task[t], s->tasks.task[t].name, images, from->correct[t], err));
        e->images += images;
        e->correct += from->correct[t];
        sum += images ? from->accuracy[t] : 0;
        n += images > 0;
    }
    if (from->classes)
        TRY(sfp__alloc(&e->class_row, (size_t)from->classes, sizeof *e->class_row, err));
    e->classes = from->classes;
    e->confusion = TAKE(from->confusion);
    for (int c = 0; c < e->classes; c++) {
        const uint64_t *row = e->confusion + (size_t)c * (size_t)e->classes;
        uint64_t images = 0;
        for (int k = 0; k < e->classes; k++)
            images += row[k];
        TRY(put_row(e, &e->class_row[c], s->data->base.class_names[c], images, row[c], err));
    }
    e->average = n ? sum / n : NAN;
    e->calibration = sfp__reliability_error(&from->calibration[0]);
    e->unscaled_calibration = sfp__reliability_error(&from->calibration[1]);
    e->skipped = from->skipped;
    e->unlabelled = s->data->unlabelled;
    return SFP_OK;
}

static sfp_status evaluate(eval_context *s, sfp_error *err)
{
    sfp_evaluation *e = s->e;
    TRY(sfp__predictor_open(s->engine->vit, s->engine->pool, s->state, 0, &s->predictor, err));
    TRY(open_data(s, err));
    TRY(split_data(s, err));
    TRY(sfp__alloc(&e->task, (size_t)s->tasks.count, sizeof *e->task, err));
    e->tasks = s->tasks.count;
    TRY(predict_all(s, err));
    TRY(sum_up(s, err));
    return e->images ? SFP_OK : sfp__skipped_all(&e->skipped, s->name, err);
}

sfp_status sfp__state_eval(const sfp__evaluation_engine *engine, const char *state, sfp_evaluation_options *opt,
                           sfp_evaluation **out, sfp_error *err)
{
    OWNED_PTR(sfp__state_eval_free) sfp_evaluation *e = NULL;
    eval_context s = {.engine = engine, .state = state, .opt = opt, .source = TAKE(opt->source)};
    sfp_status status = sfp__alloc(&e, 1, sizeof *e, err);
    s.e = e;
    if (!status)
        status = evaluate(&s, err);
    sfp__evaluator_free(s.evaluator);
    sfp__tasks_done(&s.tasks);
    sfp__source_close(s.data ? &s.data->base : NULL);
    sfp__predictor_free(s.predictor);
    sfp__source_close(s.source);
    TRY(status);
    *out = TAKE(e);
    return SFP_OK;
}

void sfp__state_eval_free(sfp_evaluation *e)
{
    if (!e)
        return;
    sfp__arena_done(&e->texts);
    sfp__free(e->task);
    sfp__free(e->class_row);
    sfp__free(e->unknown);
    sfp__free(e->confusion);
    sfp__free(e);
}
