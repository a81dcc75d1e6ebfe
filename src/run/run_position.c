/* A run's position as the text of a checkpoint, and back: where in the stream it stands, and the result so far, so that one file
 * is all that is needed to go on. */
#include "base/mem.h"
#include "run/run_internal.h"

/* ------------------------------------------------------------------- writing */

json_t *sfp__run_lag_json(const sfp_lag *l)
{
    return json_pack("{s:f,s:f,s:f,s:I}", "sum", l->sum, "max", l->max, "last", l->last, "served", (json_int_t)l->served);
}

static json_t *clock_json(const sfp_clock *c)
{
    json_t *queue = json_array();
    for (int i = 0; i < c->waiting; i++)
        (void)json_array_append_new(queue, json_pack("[I,f]", (json_int_t)c->queue[i].batch, c->queue[i].since));
    return json_pack("{s:f,s:f,s:b,s:I,s:o,s:I,s:o}", "now", c->now, "blocked", c->blocked, "held", c->held, "next",
                     (json_int_t)c->next, "queue", queue, "dropped", (json_int_t)c->dropped, "lag", sfp__run_lag_json(&c->lag));
}

sfp_status sfp__run_mark_sources(sfp__run_state *s, sfp_error *err)
{
    sfp_status status = SFP_OK;
    if (!s->source->kind->live && !s->source_mark)
        status = sfp__source_mark(s->source, &s->source_mark, err);
    if (!status && s->test && !s->live && !s->test_mark) /* a live run may go on with another */
        status = sfp__source_mark(s->test, &s->test_mark, err);
    return status;
}

sfp_status sfp__run_position_text(sfp__run_state *s, char **out, sfp_error *err)
{
    char *result = NULL;
    sfp_status status = sfp__run_mark_sources(s, err);
    if (!status)
        status = sfp__result_text(s->r, true, &result, err);
    if (status)
        return status;
    json_t *trained = json_array();
    for (int c = 0; c < s->classes; c++)
        (void)json_array_append_new(trained, json_integer(s->trained_class[c]));
    json_t *root =
        json_pack("{s:I,s:I,s:I,s:i,s:I,s:I,s:o,s:b,s:s}", "next", (json_int_t)s->next, "stamps", (json_int_t)s->stamps,
                  "arrived", (json_int_t)s->arrived, "task", s->task, "judged", (json_int_t)s->judged, "right",
                  (json_int_t)s->right, "trained", trained, "finished", s->r->finished, "result", result);
    sfp__free(result);
    if (root && s->source_mark)
        (void)json_object_set_new(root, "pictures", json_integer((json_int_t)(s->source_mark >> 1)));
    if (root && s->test_mark)
        (void)json_object_set_new(root, "test_pictures", json_integer((json_int_t)(s->test_mark >> 1)));
    if (root && s->live && json_object_set_new(root, "live", sfp__live_position(s)) != 0) {
        json_decref(root);
        root = NULL;
    }
    if (root && s->clocked)
        (void)json_object_set_new(root, "clock", clock_json(&s->clock));
    if (root && !s->live && s->evaluated.stamps >= 0) /* a live run may go on with another test set */
        (void)json_object_set_new(root, "evaluated", json_pack("[I,i]", (json_int_t)s->evaluated.stamps, s->evaluated.task));
    if (root && s->unlabelled.next > 0)
        (void)json_object_set_new(root, "predicted", json_integer(s->unlabelled.next));
    if (root && s->unlabelled.unread > 0)
        (void)json_object_set_new(root, "unread", json_integer((json_int_t)s->unlabelled.unread));
    if (root && sfp__run_has_due(s) && json_object_set_new(root, "due", sfp__run_due_json(s)) != 0) {
        json_decref(root); /* without it a batch or an evaluation would be passed over */
        root = NULL;
    }
    json_t *kept = root && s->kept ? json_array() : NULL;
    for (int64_t i = 0; kept && i < s->kept_count; i++)
        (void)json_array_append_new(kept, json_integer(s->kept[i]));
    if (kept)
        (void)json_object_set_new(root, "kept", kept);
    *out = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    return *out ? SFP_OK : sfp__fail_nomem(err);
}

/* ------------------------------------------------------------------- reading */

bool sfp__run_whole(json_t *root, const char *key, int64_t min, int64_t max, int64_t *out)
{
    json_t *v = json_object_get(root, key);
    if (!json_is_integer(v) || json_integer_value(v) < min || json_integer_value(v) > max)
        return false;
    *out = json_integer_value(v);
    return true;
}

bool sfp__run_read_lag(json_t *j, sfp_lag *l)
{
    int64_t served;
    const json_t *sum = json_object_get(j, "sum"), *max = json_object_get(j, "max"), *last = json_object_get(j, "last");
    if (!sfp__run_whole(j, "served", 0, INT64_MAX, &served) || !json_is_number(sum) || !json_is_number(max) ||
        !json_is_number(last))
        return false;
    *l = (sfp_lag){.sum = json_number_value(sum),
                   .max = json_number_value(max),
                   .last = json_number_value(last),
                   .served = (uint64_t)served};
    return true;
}

static bool read_clock(json_t *j, sfp_clock *c)
{
    int64_t next, dropped;
    json_t *queue = json_object_get(j, "queue");
    if (!sfp__run_whole(j, "next", 0, c->batches, &next) || !sfp__run_whole(j, "dropped", 0, INT64_MAX, &dropped) ||
        !sfp__run_read_lag(json_object_get(j, "lag"), &c->lag) || !json_is_array(queue) ||
        json_array_size(queue) > (size_t)c->room)
        return false;
    c->blocked = json_number_value(json_object_get(j, "blocked"));
    for (size_t i = 0; i < json_array_size(queue); i++) {
        const json_t *one = json_array_get(queue, i);
        bool pair = json_is_array(one); /* of older programs the number alone */
        json_int_t batch = json_integer_value(pair ? json_array_get(one, 0) : one);
        if (batch < 0 || batch >= next)
            return false;
        double since = pair ? json_number_value(json_array_get(one, 1)) : (double)c->arrived[batch] / c->opt.lambda + c->blocked;
        c->queue[i] = (sfp_waiting){batch, since};
    }
    c->waiting = (int)json_array_size(queue);
    c->next = next;
    c->dropped = (uint64_t)dropped;
    c->now = json_number_value(json_object_get(j, "now"));
    c->held = json_is_true(json_object_get(j, "held"));
    sfp__clock_restart(c);
    return true;
}

/* The classes that were trained on; a live stream's are as many as there were. */
static bool read_trained(sfp__run_state *s, const json_t *trained)
{
    size_t n = json_array_size(trained);
    if (!json_is_array(trained) || n > SFP_RESULT_CLASSES_MAX || (!s->live && n != (size_t)s->classes))
        return false;
    if (s->live && !sfp__live_trained_room(s, (int)n))
        return false;
    for (size_t c = 0; c < n; c++)
        s->trained_class[c] = json_integer_value(json_array_get(trained, c)) != 0;
    return true;
}

bool sfp__run_read_position(sfp__run_state *s, json_t *root)
{
    int64_t next, stamps, arrived, task, judged, right;
    json_t *trained = json_object_get(root, "trained"), *kept = json_object_get(root, "kept"),
           *clock = json_object_get(root, "clock"), *live = json_object_get(root, "live"), *due = json_object_get(root, "due");
    if (!sfp__run_whole(root, "next", 0, s->batches.count, &next) || !sfp__run_whole(root, "stamps", 0, INT64_MAX, &stamps) ||
        !sfp__run_whole(root, "arrived", 0, INT64_MAX, &arrived) || !sfp__run_whole(root, "task", 0, s->tasks.count - 1, &task) ||
        !sfp__run_whole(root, "judged", 0, INT64_MAX, &judged) || !sfp__run_whole(root, "right", 0, judged, &right) ||
        !read_trained(s, trained))
        return false;
    if ((s->live != NULL) != (live != NULL) || (live && !sfp__live_read_position(s, live)))
        return false;
    if (s->clocked != (clock != NULL) || (clock && !read_clock(clock, &s->clock)))
        return false;
    if ((s->kept != NULL) != (kept != NULL) || json_array_size(kept) > (size_t)s->batches.count)
        return false;
    for (size_t i = 0; i < json_array_size(kept); i++) { /* what was measured then holds, not what was measured now */
        json_int_t k = json_integer_value(json_array_get(kept, i));
        if (k < 0 || k >= s->batches.count || (i > 0 && k <= s->kept[i - 1]))
            return false;
        s->kept[i] = k;
    }
    if (kept)
        s->kept_count = (int64_t)json_array_size(kept);
    if (due && (s->live || !sfp__run_read_due(s, due) || (s->due.count > 0 && s->batches.task[s->due.batch[0]] < task) ||
                (s->due.count > 0 && s->clocked && s->due.batch[s->due.count - 1] >= s->clock.next)))
        return false;
    int64_t predicted = 0, unread = 0;
    if (json_object_get(root, "predicted") && !sfp__run_whole(root, "predicted", 0, s->unlabelled.count, &predicted))
        return false;
    if (json_object_get(root, "unread") && !sfp__run_whole(root, "unread", 0, predicted, &unread))
        return false;
    s->unlabelled.next = predicted;
    s->unlabelled.unread = (uint64_t)unread;
    json_int_t evaluated;
    if (!s->live && json_unpack(json_object_get(root, "evaluated"), "[I,i]", &evaluated, &s->evaluated.task) == 0)
        s->evaluated.stamps = evaluated;
    s->next = next;
    s->stamps = stamps;
    s->arrived = arrived;
    s->task = (int)task;
    s->judged = (uint64_t)judged;
    s->right = (uint64_t)right;
    return true;
}
