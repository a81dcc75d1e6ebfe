/* What is due first when a run goes on from where an evaluation was given up: that evaluation, and the batches that the clock had
 * given by then. An evaluation at the end of a task comes when the next task's first batch is there: which one that is only the
 * clock knows, and it does not give it twice. */
#include "run/run_internal.h"

bool sfp__run_has_due(const sfp__run_state *s)
{
    return s->due.count > 0 || s->due.evaluation;
}

json_t *sfp__run_due_json(const sfp__run_state *s)
{
    json_t *batches = json_array();
    for (int i = 0; i < s->due.count; i++)
        (void)json_array_append_new(batches, json_integer(s->due.batch[i]));
    return json_pack("{s:b,s:o,s:f}", "evaluation", s->due.evaluation, "batches", batches, "spent", s->due.spent);
}

bool sfp__run_read_due(sfp__run_state *s, const json_t *j)
{
    const json_t *batches = json_object_get(j, "batches"), *spent = json_object_get(j, "spent");
    size_t n = json_array_size(batches);
    if (!json_is_array(batches) || !json_is_number(spent) || !(json_number_value(spent) >= 0) ||
        n > (s->opt->triage ? SFP__RUN_POOL : 1))
        return false;
    for (size_t i = 0; i < n; i++) {
        json_int_t k = json_integer_value(json_array_get(batches, i));
        if (k < 0 || k >= s->batches.count || (i > 0 && k <= s->due.batch[i - 1]))
            return false;
        s->due.batch[i] = k;
    }
    s->due.count = (int)n;
    s->due.spent = json_number_value(spent);
    s->due.evaluation = json_is_true(json_object_get(j, "evaluation"));
    return true;
}
