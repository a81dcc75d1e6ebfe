/* The files of a run: the folder and what was in it, checkpoints and how they
 * are found again, and what is left when it has ended. */
#include "base/mem.h"
#include "base/monotonic.h"
#include "base/text.h"
#include "io/directory.h"
#include "io/json_read.h"
#include "results/registry.h"
#include "results/result.h"
#include "run/run_internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* in the order in which they are looked for */
static const char *const checkpoints[] = {"checkpoint", "checkpoint.old"};

/* ---------------------------------------------------------------- the folder */

/* The last whole checkpoint: its path, what made it and its position (json_decref); NULL: there is none. */
static json_t *look_at_checkpoint(const sfp__plan *p, char path[PATH_MAX], char method[SFP_NAME_MAX])
{
    for (size_t i = 0; i < sizeof checkpoints / sizeof *checkpoints; i++) {
        OWNED char *position = NULL;
        if (sfp__plan_path(p, checkpoints[i], path, PATH_MAX, NULL) == SFP_OK &&
            sfp__checkpoint_peek(path, method, SFP_NAME_MAX, &position, NULL) == SFP_OK) {
            json_t *root = json_loads(position, JSON_REJECT_DUPLICATES, NULL);
            return root ? root : json_object(); /* sfp__files_resume will tell */
        }
    }
    return NULL;
}

static bool has_checkpoint(const sfp__plan *p)
{
    return sfp__directory_has(p->opt->out, checkpoints[0]) || sfp__directory_has(p->opt->out, checkpoints[1]);
}

/* DIR/result.json; SFP_ENOTFOUND: there is none. */
static sfp_status read_result_file(const sfp__plan *p, sfp_result *out, sfp_error *err)
{
    char path[PATH_MAX];
    TRY(sfp__plan_path(p, "result.json", path, sizeof path, err));
    return sfp__result_read(path, out, err);
}

/* A result.json that is not a run's belongs to somebody, and so may what lies around it. */
static sfp_status check_result_file(const sfp__plan *p, sfp_error *err)
{
    OWNED_BY(sfp__result_done) sfp_result r = {0};
    sfp_error why = {0};
    sfp_status status = read_result_file(p, &r, &why);
    if (status == SFP_OK || status == SFP_ENOTFOUND)
        return SFP_OK;
    return sfp__fail(err, status == SFP_ENOMEM ? status : SFP_EINVAL, "%s; it is not the result of a run: give another --out",
                     why.message);
}

sfp_status sfp__files_take(const sfp__plan *p, int *lock, sfp_error *err)
{
    char path[PATH_MAX], method[SFP_NAME_MAX];
    TRY(sfp__directory_lock(p->opt->out, lock, err));
    bool found = has_checkpoint(p);
    if (!(p->opt->resume && found))
        TRY(check_result_file(p, err));
    if (p->opt->resume || !found)
        return SFP_OK;
    /* when all are damaged, whether there is a result: one that is not a run's was refused; a live run never ends for good */
    OWNED_PTR(json_decref) json_t *root = look_at_checkpoint(p, path, method);
    bool unfinished = root ? !json_is_true(json_object_get(root, "finished")) : !sfp__directory_has(p->opt->out, "result.json");
    bool live = json_object_get(root, "live") != NULL;
    if (unfinished || live)
        return sfp__fail(err, SFP_EINVAL, "%s: holds %s; give --resume to go on, or another --out", p->opt->out,
                         unfinished ? "a run that was not finished" : "the run of a live stream");
    return SFP_OK;
}

sfp_status sfp__files_clear(const sfp__plan *p, bool resumed, sfp_error *err)
{
    /* the checkpoints first: --resume must not find those of a run of which a part is gone */
    static const char *const names[] = {"checkpoint.old",     "checkpoint",
                                        "result.json",        "report.html",
                                        SFP__RUN_EVENTS,      SFP__RUN_EVENTS ".#",
                                        SFP__RUN_PREDICTIONS, SFP__RUN_PREDICTIONS ".#",
                                        "state.safetensors",  "state-task-#.safetensors"};
    static const char *const torn[] = {"checkpoint.tmp.#",  "checkpoint.old.tmp",      "result.json.tmp.#",
                                       "report.html.tmp.#", "state.safetensors.tmp.#", "state-task-#.safetensors.tmp.#"};
    const char *out = p->opt->out;
    if (!resumed && (has_checkpoint(p) || sfp__directory_has(out, "result.json"))) { /* else whatever is there is no run's */
        sfp__plan_info(p, "%s: replaces the finished run in it", out);
        TRY(sfp__directory_remove_files(out, sizeof names / sizeof *names, names, 1, &p->opt->init_state,
                                        err)); /* --resume will read it again */
    }
    return sfp__directory_remove_files(out, sizeof torn / sizeof *torn, torn, 0, NULL, err);
}

/* ---------------------------------------------------------------- checkpoint */

sfp_status sfp__files_checkpoint(sfp__run_context *run, sfp_error *err)
{
    char path[PATH_MAX], *position = NULL;
    sfp__pace *pace = &run->pace;
    double begin = sfp__monotonic_seconds();
    TRY(sfp__plan_path(&run->plan, "checkpoint", path, sizeof path, err));
    TRY(sfp__journal_sync(&run->journal, err));
    TRY(sfp__position_text(run, &position, err));
    sfp_status status = sfp__learner_checkpoint(run->learner, path, position, err);
    free(position); /* jansson's */
    pace->train_seconds = 0;
    pace->saved_at = sfp__monotonic_seconds();
    pace->save_seconds = pace->saved_at - begin;
    pace->unsaved = false;
    return status;
}

/* -------------------------------------------------------------------- resume */

static sfp_status check_images(sfp__plan *p, const char *path, json_t *root, sfp_error *err)
{
    const json_t *then = json_object_get(root, "pictures"), *test = json_object_get(root, "test_pictures");
    TRY(sfp__plan_digest_sources(p, err));
    bool same = p->live || json_integer_value(then) == (json_int_t)(p->source_digest >> 1);
    bool same_test = p->live || !test || json_integer_value(test) == (json_int_t)(p->test_digest >> 1);
    if (same && same_test)
        return SFP_OK;
    return sfp__fail(
        err, SFP_EINVAL,
        "%s: was made with other images: names, labels or order in %s are not what they were; put them back, or begin "
        "anew in another --out",
        path, same ? "the test set" : p->opt->data);
}

static sfp_status parse_result(const char *path, json_t *root, sfp_result *out, sfp_error *err)
{
    const char *text = json_string_value(json_object_get(root, "result"));
    return text ? sfp__result_parse(path, text, strlen(text), out, err)
                : sfp__fail(err, SFP_EFORMAT, "%s: no result in it", path);
}

static sfp_status check_result(const sfp__run_context *run, const char *path, const sfp_result *then, sfp_error *err)
{
    const sfp_result *now = run->journal.r;
    if (then->tasks != now->tasks || (!run->plan.live && then->classes != now->classes))
        return sfp__fail(err, SFP_EFORMAT, "%s: %d tasks and %d classes, expected %d and %d", path, then->tasks, then->classes,
                         now->tasks, now->classes);
    return run->plan.live ? SFP_OK : sfp__classes_same_names(&run->classes, path, then, err);
}

static sfp_status take_result(sfp__run_context *run, const char *path, json_t *root, sfp_error *err)
{
    OWNED_BY(sfp__result_done) sfp_result then = {0};
    sfp__journal *j = &run->journal;
    TRY(parse_result(path, root, &then, err));
    TRY(check_result(run, path, &then, err));
    j->earlier.decode = then.seconds.decode;
    j->earlier.wait_seconds = then.seconds.wait_seconds;
    j->earlier.total = then.seconds.total;
    sfp__result_done(j->r);
    *j->r = TAKE(then);
    return run->plan.live ? sfp__classes_take(&run->classes, &run->plan, err) : SFP_OK;
}

/* The options in the result of a position. One that cannot be read is told when it is taken. */
static sfp_status check_config(const sfp__plan *p, const char *path, json_t *root, sfp_error *err)
{
    OWNED_BY(sfp__result_done) sfp_result then = {0};
    sfp_error unused;
    if (parse_result(path, root, &then, &unused) != SFP_OK)
        return SFP_OK;
    sfp_status status = sfp__settings_same(p->opt->given, &then, p->live, err);
    return status ? sfp__fail_prefix(err, status, "%s", path) : SFP_OK;
}

/* The same for a run of which no checkpoint but a result is left. */
static sfp_status may_leave_alone(const sfp__plan *p, sfp_error *err)
{
    OWNED_BY(sfp__result_done) sfp_result then = {0};
    sfp_error why;
    if (read_result_file(p, &then, &why) != SFP_OK) /* none, or sfp__files_take told */
        return SFP_OK;
    if (p->live)
        return sfp__fail(err, SFP_EINVAL, "%s: holds a result, but no checkpoint to go on from; give another --out", p->opt->out);
    sfp_status status = sfp__settings_same(p->opt->given, &then, false, err);
    return status ? sfp__fail_prefix(err, status, "%s/result.json", p->opt->out) : SFP_OK;
}

sfp_status sfp__files_may_resume(const sfp__plan *p, sfp_error *err)
{
    char path[PATH_MAX], method[SFP_NAME_MAX];
    const char *now = p->opt->method ? p->opt->method : "";
    if (!p->opt->out)
        return SFP_OK;
    OWNED_PTR(json_decref) json_t *root = look_at_checkpoint(p, path, method);
    if (!root)
        return has_checkpoint(p) ? SFP_OK : may_leave_alone(p, err);
    if (strcmp(method, now) != 0)
        return sfp__fail(err, SFP_EINVAL, "%s: was made %s%s, expected one made %s%s", path,
                         *method ? "by --method " : "without --method", method, *now ? "by --method " : "without --method", now);
    return check_config(p, path, root, err);
}

/* A finished run whose checkpoint was removed is as finished as before: *run->journal.r is its result. SFP_ENOTFOUND: there is
 * none. */
static sfp_status take_finished(sfp__run_context *run, sfp_error *err)
{
    sfp_result r;
    TRY(read_result_file(&run->plan, &r, err));
    sfp__result_done(run->journal.r);
    *run->journal.r = r;
    sfp__plan_info(&run->plan, "this run has ended already: nothing to do");
    return SFP_OK;
}

static sfp_status take_position(sfp__run_context *run, const char *path, json_t *root, sfp_error *err)
{
    if (!sfp__position_read(run, root))
        return sfp__fail(err, SFP_EFORMAT, "%s: its position does not fit this stream: were data, tasks or clock changed?", path);
    TRY(take_result(run, path, root, err));
    return check_images(&run->plan, path, root, err);
}

sfp_status sfp__files_resume(sfp__run_context *run, bool *finished, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    char path[PATH_MAX];
    OWNED char *text = NULL;
    bool used_old = false;
    *finished = false;
    if (!p->opt->out)
        return sfp__fail(err, SFP_EINVAL, "--resume needs the directory of the run (--out)");
    TRY(sfp__plan_path(p, "checkpoint", path, sizeof path, err));
    sfp_status status = sfp__learner_resume(run->learner, path, &text, &used_old, err);
    if (status == SFP_ENOTFOUND) {
        status = take_finished(run, err);
        run->resumed = *finished = status == SFP_OK;
        if (status != SFP_ENOTFOUND)
            return status;
        if (sfp__directory_has(p->opt->out, SFP__RUN_EVENTS))
            sfp__plan_info(p, "the run that was there ended before its first checkpoint: from the beginning");
        return SFP_OK;
    }
    TRY(status);
    OWNED_PTR(json_decref) json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    TRY(take_position(run, path, root, err));
    *finished = json_is_true(json_object_get(root, "finished"));
    run->resumed = true;
    sfp__plan_info(p, "%s",
                   *finished && !p->live ? "this run has ended already: nothing to do"
                   : used_old            ? "the last checkpoint is damaged: going on from the one before"
                                         : "going on from the last checkpoint");
    return SFP_OK;
}

/* ------------------------------------------------------------------- outputs */

/* Into the registry. The run itself is safe: a failure is only told. */
static void record(const sfp__run_context *run)
{
    const sfp__plan *p = &run->plan;
    const sfp_result *r = run->journal.r;
    sfp__registry *registry = NULL;
    sfp_error why;
    int64_t id;
    if (sfp__registry_open(&registry, &why) || sfp__registry_put(registry, p->opt->out, r, &id, &why)) {
        if (r->finished)
            sfp__plan_info(p, "the run is finished but not recorded (%s); record it with 'streamfp runs add %s'", why.message,
                           p->opt->out);
        else
            sfp__plan_info(p, "the run is not recorded (%s); it will be when it goes on", why.message);
    }
    sfp__registry_close(registry);
}

sfp_status sfp__files_leave(sfp__run_context *run, sfp_error *err)
{
    TRY(sfp__files_checkpoint(run, err));
    record(run);
    return SFP_OK;
}

sfp_status sfp__files_outputs(sfp__run_context *run, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    char path[PATH_MAX];
    TRY(sfp__plan_path(p, "state.safetensors", path, sizeof path, err));
    TRY(sfp__learner_save(run->learner, path, err));
    TRY(sfp__plan_path(p, "report.html", path, sizeof path, err));
    TRY(sfp__journal_report(run, path, err));
    TRY(sfp__plan_path(p, "result.json", path, sizeof path, err));
    TRY(sfp__result_write(run->journal.r, path, err));
    return sfp__files_leave(run, err);
}
