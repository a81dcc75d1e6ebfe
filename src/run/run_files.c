/* The files of a run: the folder and what was in it, checkpoints and how they
 * are found again, and what is left when it has ended.
 *
 * A checkpoint's position says where in the stream it stands and holds the
 * result so far, so one file is all that is needed to go on. */
#include "base/clock.h"
#include "base/mem.h"
#include "io/folder.h"
#include "io/text.h"
#include "run/registry.h"
#include "run/run_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* in the order in which they are looked for */
static const char *const checkpoints[] = {"checkpoint", "checkpoint.old"};

sfp_status sfp__run_path(const sfp__run_state *s, const char *name, char *buf, size_t size, sfp_error *err)
{
    int need = snprintf(buf, size, "%s/%s", s->opt->out, name);
    if (need < 0 || (size_t)need >= size)
        return sfp__fail(err, SFP_ELIMIT, "%s/%s: the path is too long", s->opt->out, name);
    return SFP_OK;
}

/* ---------------------------------------------------------------- the folder */

/* What the last whole checkpoint says; when all are damaged, whether there is a result: one that is not a run's was refused
 * before. A live stream's run has never ended for good. */
static void look_at_checkpoint(const sfp__run_state *s, bool *unfinished, bool *live)
{
    *unfinished = !sfp__folder_has(s->opt->out, "result.json");
    *live = false;
    for (size_t i = 0; i < sizeof checkpoints / sizeof *checkpoints; i++) {
        char path[PATH_MAX], method[SFP_NAME_MAX], *position = NULL;
        if (sfp__run_path(s, checkpoints[i], path, sizeof path, NULL) != SFP_OK ||
            sfp__system_look(path, method, sizeof method, &position, NULL) != SFP_OK)
            continue;
        json_t *root = json_loads(position, JSON_REJECT_DUPLICATES, NULL);
        *unfinished = !json_is_true(json_object_get(root, "finished"));
        *live = json_object_get(root, "live") != NULL;
        json_decref(root);
        sfp__free(position);
        return;
    }
}

static bool has_checkpoint(const sfp__run_state *s)
{
    return sfp__folder_has(s->opt->out, checkpoints[0]) || sfp__folder_has(s->opt->out, checkpoints[1]);
}

/* DIR/result.json; SFP_ENOTFOUND: there is none. */
static sfp_status read_result_file(const sfp__run_state *s, sfp_result *out, sfp_error *err)
{
    char path[PATH_MAX];
    sfp_status status = sfp__run_path(s, "result.json", path, sizeof path, err);
    return status ? status : sfp__result_read(path, out, err);
}

/* A result.json that is not a run's belongs to somebody, and so may what lies around it. */
static sfp_status check_result_file(const sfp__run_state *s, sfp_error *err)
{
    sfp_result r;
    sfp_error why = {0};
    sfp_status status = read_result_file(s, &r, &why);
    if (status == SFP_OK)
        sfp__result_done(&r);
    if (status == SFP_OK || status == SFP_ENOTFOUND)
        return SFP_OK;
    return sfp__fail(err, status == SFP_ENOMEM ? status : SFP_EINVAL, "%s; it is not the result of a run: give another --out",
                     why.message);
}

sfp_status sfp__run_take_folder(sfp__run_state *s, sfp_error *err)
{
    bool unfinished, live;
    sfp_status status = sfp__folder_lock(s->opt->out, &s->lock, err);
    bool found = has_checkpoint(s);
    if (!status && !(s->opt->resume && found))
        status = check_result_file(s, err);
    if (status || s->opt->resume || !found)
        return status;
    look_at_checkpoint(s, &unfinished, &live);
    if (unfinished || live)
        return sfp__fail(err, SFP_EINVAL, "%s: holds %s; give --resume to go on, or another --out", s->opt->out,
                         unfinished ? "a run that was not finished" : "the run of a live stream");
    return SFP_OK;
}

sfp_status sfp__run_clear_folder(const sfp__run_state *s, sfp_error *err)
{
    /* the checkpoints first: --resume must not find those of a run of which a part is gone */
    static const char *const names[] = {"checkpoint.old",     "checkpoint",
                                        "result.json",        "report.html",
                                        SFP_EVENTS_FILE,      SFP_EVENTS_FILE ".#",
                                        SFP__RUN_PREDICTIONS, SFP__RUN_PREDICTIONS ".#",
                                        "state.safetensors",  "state-task-#.safetensors"};
    const char *out = s->opt->out;
    char text[PATH_MAX + 64];
    if (!has_checkpoint(s) && !sfp__folder_has(out, "result.json"))
        return SFP_OK; /* whatever is there is no run's */
    (void)snprintf(text, sizeof text, "%s: replaces the finished run in it", out);
    sfp__run_say(s, text);
    return sfp__folder_remove(out, sizeof names / sizeof *names, names, 1, &s->opt->init_state,
                              err); /* --resume will read it again */
}

sfp_status sfp__run_sweep_folder(const sfp__run_state *s, sfp_error *err)
{
    static const char *const names[] = {"checkpoint.tmp.#",  "checkpoint.old.tmp",      "result.json.tmp.#",
                                        "report.html.tmp.#", "state.safetensors.tmp.#", "state-task-#.safetensors.tmp.#"};
    return sfp__folder_remove(s->opt->out, sizeof names / sizeof *names, names, 0, NULL, err);
}

/* -------------------------------------------------------------------- events */

sfp_status sfp__run_open_events(sfp__run_state *s, sfp_error *err)
{
    uint64_t stamps = (uint64_t)s->stamps, last = 0;
    sfp_status status =
        sfp__line_log_open(s->opt->out, SFP_EVENTS_FILE, "t", stamps, SFP__RUN_LOG_BYTES, SFP__RUN_LOGS, &s->events, err);
    if (status || stamps == 0)
        return status;
    uint64_t next = sfp__line_log_last(s->events, &last) ? last + 1 : 0;
    if (next < stamps) {
        char text[PATH_MAX + 128];
        (void)snprintf(text, sizeof text, "%s/%s: the last %llu timestamps before the checkpoint are missing", s->opt->out,
                       SFP_EVENTS_FILE, (unsigned long long)(stamps - next));
        sfp__run_say(s, text);
    }
    return SFP_OK;
}

/* ---------------------------------------------------------------- checkpoint */

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

/* The lists of pictures: position and order of a stream are nothing without them. */
static sfp_status mark_sources(sfp__run_state *s, sfp_error *err)
{
    sfp_status status = SFP_OK;
    if (!s->source->kind->live && !s->source_mark)
        status = sfp__source_mark(s->source, &s->source_mark, err);
    if (!status && s->test && !s->live && !s->test_mark) /* a live run may go on with another */
        status = sfp__source_mark(s->test, &s->test_mark, err);
    return status;
}

static sfp_status position_text(sfp__run_state *s, char **out, sfp_error *err)
{
    char *result = NULL;
    sfp_status status = mark_sources(s, err);
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
    return *out ? SFP_OK : sfp__fail_nomem(err, 4096);
}

sfp_status sfp__run_checkpoint(sfp__run_state *s, sfp_error *err)
{
    char path[PATH_MAX], *position = NULL;
    double begin = sfp__now();
    sfp_status status = sfp__run_path(s, "checkpoint", path, sizeof path, err);
    if (!status && s->events) /* on the disk before the checkpoint that counts them */
        status = sfp__line_log_sync(s->events, err);
    if (!status && s->unlabelled.log)
        status = sfp__line_log_sync(s->unlabelled.log, err);
    if (!status && s->live)
        status = sfp__live_sync(s, err);
    if (!status)
        status = position_text(s, &position, err);
    if (!status)
        status = sfp__system_checkpoint(&s->system, path, position, err);
    free(position); /* jansson's */
    s->since = 0;
    s->last_cost = sfp__now() - begin;
    return status;
}

/* -------------------------------------------------------------------- resume */

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

static bool read_position(sfp__run_state *s, json_t *root)
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
    int64_t predicted = 0;
    if (json_object_get(root, "predicted") && !sfp__run_whole(root, "predicted", 0, s->unlabelled.count, &predicted))
        return false;
    s->unlabelled.next = predicted;
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

/* Checkpoints of older programs have no marks. */
static sfp_status check_pictures(sfp__run_state *s, const char *path, json_t *root, sfp_error *err)
{
    sfp_status status = mark_sources(s, err);
    const json_t *then = json_object_get(root, "pictures"), *test = json_object_get(root, "test_pictures");
    bool same = !then || json_integer_value(then) == (json_int_t)(s->source_mark >> 1);
    bool same_test = s->live || !test || json_integer_value(test) == (json_int_t)(s->test_mark >> 1);
    if (status || (same && same_test))
        return status;
    return sfp__fail(
        err, SFP_EINVAL,
        "%s: was made with other pictures: names, labels or order in %s are not what they were; put them back, or begin "
        "anew in another --out",
        path, same ? "the test set" : s->opt->data);
}

static sfp_status read_result(sfp__run_state *s, const char *path, json_t *root, sfp_error *err)
{
    sfp_result r;
    const char *text = json_string_value(json_object_get(root, "result"));
    sfp_status status =
        text ? sfp__result_parse(path, text, strlen(text), &r, err) : sfp__fail(err, SFP_EFORMAT, "%s: no result in it", path);
    if (status)
        return status;
    if (r.tasks != s->r->tasks || (!s->live && r.classes != s->r->classes))
        status = sfp__fail(err, SFP_EFORMAT, "%s: %d tasks and %d classes, expected %d and %d", path, r.tasks, r.classes,
                           s->r->tasks, s->r->classes);
    else
        status = sfp__run_same_names(s, path, &r, err);
    if (status) {
        sfp__result_done(&r);
        return status;
    }
    sfp__result_done(s->r);
    *s->r = r;
    s->before.decode = r.seconds.decode;
    s->before.waited = r.seconds.waited;
    s->before.total = r.seconds.total;
    return s->live ? sfp__live_resumed(s, err) : SFP_OK;
}

/* The options in the result of a position. One that cannot be read is told when it is taken. */
static sfp_status check_config(const sfp__run_state *s, const char *path, const char *position, sfp_error *err)
{
    sfp_result then;
    sfp_error unused;
    json_t *root = json_loads(position, JSON_REJECT_DUPLICATES, NULL);
    const char *text = json_string_value(json_object_get(root, "result"));
    sfp_status status = SFP_OK;
    if (text && sfp__result_parse(path, text, strlen(text), &then, &unused) == SFP_OK) {
        status = s->hooks->same_config(s->hooks->config_ctx, &then, s->source->kind->live, err);
        sfp__result_done(&then);
    }
    json_decref(root);
    return status ? sfp__fail_prefix(err, status, "%s", path) : SFP_OK;
}

/* The same for a run of which no checkpoint but a result is left. */
static sfp_status may_leave_alone(const sfp__run_state *s, sfp_error *err)
{
    sfp_result then;
    sfp_error why;
    sfp_status status = read_result_file(s, &then, &why);
    if (status) /* none, or sfp__run_take_folder told */
        return SFP_OK;
    if (s->source->kind->live)
        status =
            sfp__fail(err, SFP_EINVAL, "%s: holds a result, but no checkpoint to go on from; give another --out", s->opt->out);
    else if (s->hooks->same_config && (status = s->hooks->same_config(s->hooks->config_ctx, &then, false, err)))
        status = sfp__fail_prefix(err, status, "%s/result.json", s->opt->out);
    sfp__result_done(&then);
    return status;
}

sfp_status sfp__run_may_resume(const sfp__run_state *s, sfp_error *err)
{
    const char *now = s->opt->method ? s->opt->method : "";
    for (size_t i = 0; s->opt->out && i < sizeof checkpoints / sizeof *checkpoints; i++) {
        char path[PATH_MAX], method[SFP_NAME_MAX], *position = NULL;
        sfp_error unused;
        sfp_status status = sfp__run_path(s, checkpoints[i], path, sizeof path, err);
        if (status)
            return status;
        if (sfp__system_look(path, method, sizeof method, &position, &unused) != SFP_OK)
            continue;
        if (strcmp(method, now) != 0)
            status =
                sfp__fail(err, SFP_EINVAL, "%s: was made %s%s, expected one made %s%s", path,
                          *method ? "by --method " : "without --method", method, *now ? "by --method " : "without --method", now);
        else if (s->hooks->same_config)
            status = check_config(s, path, position, err);
        sfp__free(position);
        return status;
    }
    return s->opt->out && !has_checkpoint(s) ? may_leave_alone(s, err) : SFP_OK;
}

/* A finished run whose checkpoint was removed is as finished as before: *s->r is its result. SFP_ENOTFOUND: there is none. */
static sfp_status take_finished(sfp__run_state *s, sfp_error *err)
{
    sfp_result r;
    sfp_status status = read_result_file(s, &r, err);
    if (status)
        return status;
    sfp__result_done(s->r);
    *s->r = r;
    sfp__run_say(s, "this run has ended already: nothing to do");
    return SFP_OK;
}

static sfp_status take_position(sfp__run_state *s, const char *path, const char *text, bool *finished, sfp_error *err)
{
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    sfp_status status = SFP_OK;
    if (!read_position(s, root))
        status =
            sfp__fail(err, SFP_EFORMAT, "%s: its position does not fit this stream: were data, tasks or clock changed?", path);
    if (!status)
        status = read_result(s, path, root, err);
    if (!status)
        status = check_pictures(s, path, root, err);
    *finished = !status && json_is_true(json_object_get(root, "finished"));
    json_decref(root);
    return status;
}

sfp_status sfp__run_resume(sfp__run_state *s, bool *resumed, bool *finished, sfp_error *err)
{
    char path[PATH_MAX], *text = NULL;
    bool used_old = false;
    *resumed = *finished = false;
    if (!s->opt->out)
        return sfp__fail(err, SFP_EINVAL, "--resume needs the directory of the run (--out)");
    sfp_status status = sfp__run_path(s, "checkpoint", path, sizeof path, err);
    if (status)
        return status;
    status = sfp__system_resume(&s->system, path, &text, &used_old, err);
    if (status == SFP_ENOTFOUND) {
        status = take_finished(s, err);
        *resumed = *finished = status == SFP_OK;
        return status == SFP_ENOTFOUND ? SFP_OK : status; /* nothing there: from the beginning */
    }
    if (status)
        return status;
    status = take_position(s, path, text, finished, err);
    sfp__free(text);
    *resumed = !status;
    if (*resumed && s->hooks->say)
        s->hooks->say(s->hooks->ctx, *finished && !s->live ? "this run has ended already: nothing to do"
                                     : used_old            ? "the last checkpoint is damaged: going on from the one before"
                                                           : "going on from the last checkpoint");
    if (*resumed && !*finished && s->system.learner && !s->tasks.free)
        status =
            sfp__learner_set_classes(s->system.learner, s->tasks.task[s->task].classes, s->tasks.task[s->task].class_of, err);
    return status;
}

/* ------------------------------------------------------------------- outputs */

/* Into the registry. The run itself is safe: a failure is only told. */
static void record(const sfp__run_state *s)
{
    sfp_registry *registry = NULL;
    sfp_error why;
    int64_t id;
    char text[SFP_ERROR_MAX + PATH_MAX + 96];
    if (sfp__registry_open(&registry, &why) || sfp__registry_put(registry, s->opt->out, s->r, &id, &why)) {
        if (s->r->finished)
            (void)snprintf(text, sizeof text, "the run is finished but not recorded (%s); record it with 'streamfp runs add %s'",
                           why.message, s->opt->out);
        else
            (void)snprintf(text, sizeof text, "the run is not recorded (%s); it will be when it goes on", why.message);
        sfp__run_say(s, text);
    }
    sfp__registry_close(registry);
}

sfp_status sfp__run_leave(sfp__run_state *s, sfp_error *err)
{
    sfp_status status = sfp__run_checkpoint(s, err);
    if (!status)
        record(s);
    return status;
}

sfp_status sfp__run_outputs(sfp__run_state *s, sfp_error *err)
{
    char path[PATH_MAX];
    sfp_status status;
    if ((status = sfp__run_path(s, "state.safetensors", path, sizeof path, err)) ||
        (status = sfp__system_save(&s->system, path, err)) ||
        (status = sfp__run_path(s, "report.html", path, sizeof path, err)) || (status = sfp__run_write_report(s, path, err)) ||
        (status = sfp__run_path(s, "result.json", path, sizeof path, err)) || (status = sfp__result_write(s->r, path, err)))
        return status;
    return sfp__run_leave(s, err);
}
