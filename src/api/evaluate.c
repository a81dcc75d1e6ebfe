/* Evaluation of saved states (streamfp.h, part 9). */
#include "api/api.h"

#include "base/in_library.h"
#include "learner/state/state.h"
#include "run/state_eval.h"

#include <limits.h>
#include <math.h>
#include <string.h>

sfp_status sfp_evaluate(sfp_engine *e, const sfp_evaluation_options *options, sfp_evaluation **out, sfp_error *err)
{
    IN_LIBRARY;
    sfp_evaluation_options o;
    char state[PATH_MAX];
    SFP__REQUIRE(options, "options");
    TRY(sfp__api_options(options, &o, sizeof o, "sfp_evaluation_options", err));
    OWNED_PTR(sfp__source_close) sfp_source *source = TAKE(o.source);
    SFP__REQUIRE(e && o.state && out, "engine, options.state and out");
    TRY(sfp__thread_pool_check(e->pool, "the engine", err));
    if (!o.data == !source)
        return sfp__fail(err, SFP_EINVAL, "options.data and options.source: expected one of them");
    if (o.limit > INT64_MAX)
        return sfp__fail_key(err, "eval-limit", SFP_EINVAL, "eval-limit is %llu, expected 0 to %lld", (unsigned long long)o.limit,
                             (long long)INT64_MAX);
    TRY(sfp__state_path(o.state, state, sizeof state, err));
    const sfp__evaluation_engine engine = {
        .vit = e->vit, .pool = e->pool, .log = o.log ? o.log : e->opt.log, .log_ctx = o.log ? o.ctx : e->opt.log_ctx};
    o.source = TAKE(source);
    return sfp__state_eval(&engine, state, &o, out, err);
}

void sfp_evaluation_free(sfp_evaluation *v)
{
    sfp__state_eval_free(v);
}

double sfp_evaluation_number(const sfp_evaluation *v, const char *key)
{
    const struct {
        const char *key;
        double value;
    } numbers[] = {{"accuracy", v->images ? (double)v->correct / (double)v->images : NAN},
                   {"average_accuracy", v->average},
                   {"calibration_error", v->calibration},
                   {"calibration_error_before", v->unscaled_calibration},
                   {"images", (double)v->images},
                   {"correct", (double)v->correct},
                   {"skipped", (double)v->skipped.count},
                   {"unlabelled", (double)v->unlabelled},
                   {"unknown", (double)v->unknown_images},
                   {"seconds", v->seconds}};
    for (size_t i = 0; key && i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(numbers[i].key, key) == 0)
            return numbers[i].value;
    return NAN;
}

const sfp_accuracy *sfp_evaluation_tasks(const sfp_evaluation *v, int *count)
{
    *count = v->tasks;
    return v->task;
}

const sfp_accuracy *sfp_evaluation_classes(const sfp_evaluation *v, int *count)
{
    *count = v->classes;
    return v->class_row;
}

const sfp_accuracy *sfp_evaluation_unknown(const sfp_evaluation *v, int *count)
{
    *count = v->unknown_count;
    return v->unknown;
}

const uint64_t *sfp_evaluation_confusion(const sfp_evaluation *v)
{
    return v->confusion;
}

const char *sfp_evaluation_first_error(const sfp_evaluation *v)
{
    return v->skipped.first;
}
