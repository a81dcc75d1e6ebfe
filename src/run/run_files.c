/* The files of a run: the folder and what was in it, checkpoints and how they
 * are found again, and what is left when it has ended. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"
#include "io/folder.h"
#include "results/registry.h"
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
            sfp__checkpoint_look(path, method, sizeof method, &position, NULL) != SFP_OK)
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
        status = sfp__run_position_text(s, &position, err);
    if (!status)
        status = sfp__learner_checkpoint(s->learner, path, position, err);
    free(position); /* jansson's */
    s->since = 0;
    s->saved_at = sfp__now();
    s->last_cost = s->saved_at - begin;
    return status;
}

/* -------------------------------------------------------------------- resume */

/* Checkpoints of older programs have no marks. */
static sfp_status check_pictures(sfp__run_state *s, const char *path, json_t *root, sfp_error *err)
{
    sfp_status status = sfp__run_mark_sources(s, err);
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
        if (sfp__checkpoint_look(path, method, sizeof method, &position, &unused) != SFP_OK)
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
    if (!sfp__run_read_position(s, root))
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
    status = sfp__learner_resume(s->learner, path, &text, &used_old, err);
    if (status == SFP_ENOTFOUND) {
        status = take_finished(s, err);
        *resumed = *finished = status == SFP_OK;
        if (status != SFP_ENOTFOUND)
            return status;
        if (sfp__folder_has(s->opt->out, SFP_EVENTS_FILE))
            sfp__run_say(s, "the run that was there ended before its first checkpoint: from the beginning");
        return SFP_OK;
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
    if (*resumed && !*finished && !s->tasks.free)
        status = sfp__learner_set_classes(s->learner, s->tasks.task[s->task].classes, s->tasks.task[s->task].class_of, err);
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
        (status = sfp__learner_save_state(s->learner, path, err)) ||
        (status = sfp__run_path(s, "report.html", path, sizeof path, err)) || (status = sfp__run_write_report(s, path, err)) ||
        (status = sfp__run_path(s, "result.json", path, sizeof path, err)) || (status = sfp__result_write(s->r, path, err)))
        return status;
    return sfp__run_leave(s, err);
}
