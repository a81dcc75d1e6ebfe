/* Evaluation of saved states (streamfp.h, part 9). */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"
#include "learner/state/state.h"
#include "run/state_eval.h"

#include <limits.h>
#include <math.h>
#include <string.h>

struct sfp_evaluation {
    sfp__state_eval core;
    sfp_accuracy *tasks, *classes, *unknown; /* classes NULL: there is no confusion matrix to count from */
};
DEFINE_OWNED_PTR(sfp_evaluation, sfp_evaluation_free)

typedef struct callbacks {
    const sfp_evaluation_options *opt;
    sfp_log_fn log;
    void *log_ctx;
    uint64_t total;
} callbacks;

static void on_begin(void *ctx, uint64_t images, const char *warning)
{
    callbacks *c = ctx;
    c->total = images;
    if (warning && c->log)
        c->log(c->log_ctx, SFP_LOG_WARNING, warning);
    if (c->opt->progress)
        c->opt->progress(c->opt->ctx, 0, images);
}

static void on_progress(void *ctx, uint64_t done)
{
    const callbacks *c = ctx;
    if (c->opt->progress)
        c->opt->progress(c->opt->ctx, done, c->total);
}

static sfp_accuracy make_row(const char *name, uint64_t images, uint64_t correct)
{
    return (sfp_accuracy){name, images, correct, images ? (double)correct / (double)images : NAN};
}

static sfp_status make_rows(sfp_evaluation *v, sfp_error *err)
{
    const sfp__state_eval *e = &v->core;
    TRY(sfp__alloc(&v->tasks, (size_t)e->tasks, sizeof *v->tasks, err));
    TRY(sfp__alloc(&v->unknown, (size_t)e->unknown_count, sizeof *v->unknown, err));
    for (int t = 0; t < e->tasks; t++) {
        uint64_t n = e->answered[t];
        v->tasks[t] = make_row(e->task_names[t], n, n ? (uint64_t)llround(e->accuracy[t] * (double)n) : 0);
    }
    for (int i = 0; i < e->unknown_count; i++)
        v->unknown[i] = make_row(e->unknown[i].name, e->unknown[i].images, 0);
    if (!e->confusion)
        return SFP_OK;
    TRY(sfp__alloc(&v->classes, (size_t)e->classes, sizeof *v->classes, err));
    for (int c = 0; c < e->classes; c++) {
        const uint64_t *row = e->confusion + (size_t)c * (size_t)e->classes;
        uint64_t n = 0;
        for (int k = 0; k < e->classes; k++)
            n += row[k];
        v->classes[c] = make_row(e->class_names[c], n, row[c]);
    }
    return SFP_OK;
}

/* Closes o->source on failure, or leaves it to the evaluation. */
static sfp_status evaluate(sfp_engine *e, const sfp_evaluation_options *o, sfp_source **source, sfp_evaluation **out,
                           sfp_error *err)
{
    OWNED_PTR(sfp_evaluation_free) sfp_evaluation *v = NULL;
    char state[PATH_MAX];
    if (!e || !o->state || !out)
        return sfp__fail(err, SFP_EINVAL, "engine, options.state and out must not be NULL");
    TRY(sfp__thread_pool_check(e->pool, "the engine", err));
    if (!o->data == !*source)
        return sfp__fail(err, SFP_EINVAL, "options.data and options.source: expected one of them");
    if (o->limit > INT64_MAX)
        return sfp__fail_key(err, "eval-limit", SFP_EINVAL, "eval-limit is %llu, expected 0 to %lld",
                             (unsigned long long)o->limit, (long long)INT64_MAX);
    TRY(sfp__state_path(o->state, state, sizeof state, err));
    TRY(sfp__alloc(&v, 1, sizeof *v, err));
    callbacks c = {.opt = o, .log = o->log ? o->log : e->opt.log, .log_ctx = o->log ? o->ctx : e->opt.log_ctx};
    const sfp__state_eval_options core = {.vit = e->vit,
                                          .pool = e->pool,
                                          .state = state,
                                          .data = o->data,
                                          .source = TAKE(*source),
                                          .train_part = o->train_part != 0,
                                          .tasks = o->tasks,
                                          .limit = (int64_t)o->limit,
                                          .seed = o->has_seed ? &o->seed : NULL,
                                          .progress = on_progress,
                                          .begin = on_begin,
                                          .ctx = &c};
    TRY(sfp__state_eval_run(&core, &v->core, err));
    TRY(make_rows(v, err));
    *out = TAKE(v);
    return SFP_OK;
}

sfp_status sfp_evaluate(sfp_engine *e, const sfp_evaluation_options *options, sfp_evaluation **out, sfp_error *err)
{
    IN_LIBRARY;
    sfp_evaluation_options o;
    if (!options)
        return sfp__fail(err, SFP_EINVAL, "options must not be NULL");
    TRY(sfp__api_options(options, &o, sizeof o, "sfp_evaluation_options", err));
    OWNED_PTR(sfp__source_close) sfp_source *source = o.source;
    return evaluate(e, &o, &source, out, err);
}

void sfp_evaluation_free(sfp_evaluation *v)
{
    if (!v)
        return;
    sfp__state_eval_done(&v->core);
    sfp__free(v->tasks);
    sfp__free(v->classes);
    sfp__free(v->unknown);
    sfp__free(v);
}

double sfp_evaluation_number(const sfp_evaluation *v, const char *key)
{
    const sfp__state_eval *e = &v->core;
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"accuracy", e->images ? (double)e->correct / (double)e->images : NAN},
                   {"average_accuracy", e->average},
                   {"calibration_error", e->calibration},
                   {"calibration_error_before", e->unscaled_calibration},
                   {"images", (double)e->images},
                   {"correct", (double)e->correct},
                   {"skipped", (double)e->skipped},
                   {"unlabelled", (double)e->unlabelled},
                   {"unknown", (double)e->unknown_images},
                   {"seconds", e->seconds}};
    for (size_t i = 0; key && i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(numbers[i].key, key) == 0)
            return numbers[i].value;
    return NAN;
}

const sfp_accuracy *sfp_evaluation_tasks(const sfp_evaluation *v, int *count)
{
    *count = v->core.tasks;
    return v->tasks;
}

const sfp_accuracy *sfp_evaluation_classes(const sfp_evaluation *v, int *count)
{
    *count = v->classes ? v->core.classes : 0;
    return v->classes;
}

const sfp_accuracy *sfp_evaluation_unknown(const sfp_evaluation *v, int *count)
{
    *count = v->core.unknown_count;
    return v->unknown;
}

const uint64_t *sfp_evaluation_confusion(const sfp_evaluation *v)
{
    return v->core.confusion;
}

const char *sfp_evaluation_first_error(const sfp_evaluation *v)
{
    return v->core.first_error;
}
