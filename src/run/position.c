/* The position of a run as text in a checkpoint: the place in the stream and the result so far. With it, one file is sufficient
 * to resume. */
#include "base/mem.h"
#include "io/json_read.h"
#include "run/run_internal.h"

#include <math.h>

sfp_status sfp__position_text(sfp__run *run, char **out, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    const sfp__position *at = &run->at;
    const sfp__arrivals *a = run->arrivals;
    OWNED char *result = NULL;
    OWNED_BY(sfp__text_done) sfp__text t = {0};
    sfp__json j = {.text = &t, .one_line = true};
    TRY(sfp__plan_digest_sources(&run->plan, err));
    TRY(sfp__result_text(run->journal.r, true, &result, err));
    sfp__json_object(&j, NULL);
    sfp__json_int(&j, "stamps", at->timestamps);
    sfp__json_int(&j, "arrived", at->arrived);
    sfp__json_int(&j, "task", at->task);
    sfp__json_uint(&j, "judged", at->prequential_total);
    sfp__json_uint(&j, "right", at->prequential_correct);
    sfp__classes_write(&run->classes, &j);
    sfp__json_raw(&j, "result", result);
    sfp__json_object(&j, a->kind->name);
    a->kind->write(a, &j);
    sfp__json_end(&j);
    sfp__json_bool(&j, "evaluation_due", at->evaluation_due);
    sfp__json_exact(&j, "query_seconds", at->query_seconds);
    if (!p->live)
        sfp__json_uint(&j, "pictures", p->source_digest >> 1);
    if (p->test_digest)
        sfp__json_uint(&j, "test_pictures", p->test_digest >> 1);
    if (!isnan(at->cs))
        sfp__json_exact(&j, "cs", at->cs);
    if (!p->live && at->evaluated.timestamps >= 0) { /* a live run may resume with another test set */
        sfp__json_object(&j, "evaluated");
        sfp__json_int(&j, "stamps", at->evaluated.timestamps);
        sfp__json_int(&j, "task", at->evaluated.task);
        sfp__json_end(&j);
    }
    sfp__json_end(&j);
    TRY(sfp__check_memory(!t.failed, err));
    *out = TAKE(t.s);
    return SFP_OK;
}

bool sfp__position_read(sfp__run *run, const sfp__json_value *root)
{
    sfp__plan *p = &run->plan;
    const sfp__arrivals *a = run->arrivals;
    int64_t task, prequential_total, prequential_correct;
    int64_t evaluated_task = 0;
    sfp__position at = {.evaluated.timestamps = -1, .cs = NAN};
    const sfp__json_value *cs = sfp__json_get(root, "cs");
    if (!sfp__json_whole(root, "stamps", 0, INT64_MAX, &at.timestamps) ||
        !sfp__json_whole(root, "arrived", 0, INT64_MAX, &at.arrived) ||
        !sfp__json_whole(root, "task", 0, p->tasks.count - 1, &task) ||
        !sfp__json_whole(root, "judged", 0, INT64_MAX, &prequential_total) ||
        !sfp__json_whole(root, "right", 0, prequential_total, &prequential_correct) ||
        (cs != NULL) != (p->clock == SFP__CLOCK_PAPER) || !sfp__classes_read(&run->classes, sfp__json_get(root, "trained")))
        return false;
    if (cs) { /* restores the measured value, because a new measurement would differ */
        at.cs = sfp__json_number(cs);
        p->starved_tasks = sfp__batches_keep(&p->batches, at.cs);
    }
    if (!a->kind->read(run->arrivals, sfp__json_get(root, a->kind->name), (int)task))
        return false;
    const sfp__json_value *evaluated = sfp__json_get(root, "evaluated");
    if (!p->live && sfp__json_whole(evaluated, "task", 0, p->tasks.count - 1, &evaluated_task) &&
        sfp__json_whole(evaluated, "stamps", 0, INT64_MAX, &at.evaluated.timestamps))
        at.evaluated.task = (int)evaluated_task;
    at.query_seconds = fmax(sfp__json_number(sfp__json_get(root, "query_seconds")), 0);
    at.task = (int)task;
    at.prequential_total = (uint64_t)prequential_total;
    at.prequential_correct = (uint64_t)prequential_correct;
    at.evaluation_due = !p->live && sfp__json_is(sfp__json_get(root, "evaluation_due"), SFP__JSON_TRUE);
    run->at = at;
    return true;
}
