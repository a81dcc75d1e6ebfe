/* The position of a run as text in a checkpoint: the place in the stream and the result so far. With it, one file is sufficient
 * to resume. */
#include "base/mem.h"
#include "io/json_read.h"
#include "results/result.h"
#include "run/run_internal.h"

#include <math.h>

/* false: no memory, and the position would be incomplete. */
static bool put(json_t *root, const char *key, json_t *value)
{
    return json_object_set_new(root, key, value) == 0;
}

static json_t *trained_json(const sfp__classes *c)
{
    json_t *list = json_array();
    for (int k = 0; k < c->count; k++)
        (void)json_array_append_new(list, json_integer(c->trained[k]));
    return list;
}

static bool fill(const sfp__run *run, const char *result, json_t *root)
{
    const sfp__plan *p = &run->plan;
    const sfp__position *at = &run->at;
    const sfp__arrivals *a = run->arrivals;
    return put(root, "stamps", json_integer(at->timestamps)) && put(root, "arrived", json_integer(at->arrived)) &&
           put(root, "task", json_integer(at->task)) && put(root, "judged", json_integer((json_int_t)at->prequential_total)) &&
           put(root, "right", json_integer((json_int_t)at->prequential_correct)) &&
           put(root, "trained", trained_json(&run->classes)) && put(root, "finished", json_boolean(run->journal.r->finished)) &&
           put(root, "result", json_string(result)) && put(root, a->kind->name, a->kind->json(a)) &&
           put(root, "evaluation_due", json_boolean(at->evaluation_due)) &&
           put(root, "query_seconds", json_real(at->query_seconds)) &&
           (p->live || put(root, "pictures", json_integer((json_int_t)(p->source_digest >> 1)))) &&
           (!p->test_digest || put(root, "test_pictures", json_integer((json_int_t)(p->test_digest >> 1)))) &&
           (isnan(at->cs) || put(root, "cs", json_real(at->cs))) &&
           /* a live run may resume with another test set */
           (p->live || at->evaluated.timestamps < 0 ||
            put(root, "evaluated", json_pack("[I,i]", (json_int_t)at->evaluated.timestamps, at->evaluated.task)));
}

sfp_status sfp__position_text(sfp__run *run, char **out, sfp_error *err)
{
    OWNED char *result = NULL;
    TRY(sfp__plan_digest_sources(&run->plan, err));
    TRY(sfp__result_text(run->journal.r, true, &result, err));
    json_t *root = json_object();
    *out = fill(run, result, root) ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    return *out ? SFP_OK : sfp__fail_nomem(err);
}

/* Reads which classes were trained on. A live stream has as many classes as the checkpoint. */
static bool read_trained(sfp__run *run, const json_t *trained)
{
    sfp__classes *c = &run->classes;
    size_t n = json_array_size(trained);
    if (!json_is_array(trained) || n > SFP_RESULT_CLASSES_MAX || (!run->plan.live && n != (size_t)c->count) ||
        !sfp__classes_reserve(c, (int)n))
        return false;
    for (size_t k = 0; k < n; k++)
        c->trained[k] = json_integer_value(json_array_get(trained, k)) != 0;
    return true;
}

bool sfp__position_read(sfp__run *run, json_t *root)
{
    sfp__plan *p = &run->plan;
    const sfp__arrivals *a = run->arrivals;
    int64_t task, prequential_total, prequential_correct;
    json_int_t evaluated;
    sfp__position at = {.evaluated.timestamps = -1, .cs = NAN};
    json_t *cs = json_object_get(root, "cs");
    if (!sfp__json_whole(root, "stamps", 0, INT64_MAX, &at.timestamps) ||
        !sfp__json_whole(root, "arrived", 0, INT64_MAX, &at.arrived) ||
        !sfp__json_whole(root, "task", 0, p->tasks.count - 1, &task) ||
        !sfp__json_whole(root, "judged", 0, INT64_MAX, &prequential_total) ||
        !sfp__json_whole(root, "right", 0, prequential_total, &prequential_correct) ||
        (cs != NULL) != (p->clock == SFP_CLOCK_PAPER) || !read_trained(run, json_object_get(root, "trained")))
        return false;
    if (cs) { /* the measured value is kept: a new measurement would differ */
        at.cs = json_number_value(cs);
        (void)sfp__batches_keep(&p->batches, at.cs);
    }
    if (!a->kind->read(run->arrivals, json_object_get(root, a->kind->name), (int)task))
        return false;
    if (!p->live && json_unpack(json_object_get(root, "evaluated"), "[I,i]", &evaluated, &at.evaluated.task) == 0)
        at.evaluated.timestamps = evaluated;
    at.query_seconds = fmax(json_number_value(json_object_get(root, "query_seconds")), 0);
    at.task = (int)task;
    at.prequential_total = (uint64_t)prequential_total;
    at.prequential_correct = (uint64_t)prequential_correct;
    at.evaluation_due = !p->live && json_is_true(json_object_get(root, "evaluation_due"));
    run->at = at;
    return true;
}
