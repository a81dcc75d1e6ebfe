/* The files of a run: its directory, checkpoints and how they are found again, and the files that it leaves at its end. */
#include "base/mem.h"
#include "base/text.h"
#include "io/directory.h"
#include "io/json_read.h"
#include "results/registry.h"
#include "run/run_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define STATE "state.safetensors"
#define REPORT "report.html"
#define RESULT "result.json"

/* in the order in which they are tried */
static const char *const checkpoints[] = {"checkpoint", "checkpoint.old"};

/* All files of a run, in the order in which they are removed. Checkpoints go first: --resume must not find one of a run whose other
 * files are gone. */
static const struct {
    const char *name; /* '#' matches any decimal number */
    unsigned kind;    /* SFP__FILES_... */
} files[] = {
    {"checkpoint.old", SFP__FILES_CHECKPOINT},
    {"checkpoint", SFP__FILES_CHECKPOINT},
    {RESULT, SFP__FILES_OUTPUT},
    {REPORT, SFP__FILES_OUTPUT},
    {SFP__RUN_PREDICTIONS, SFP__FILES_OUTPUT},
    {SFP__RUN_PREDICTIONS ".#", SFP__FILES_OUTPUT},
    {SFP__STORE_NAME, SFP__FILES_STORE},
    {SFP__STORE_NAME "-wal", SFP__FILES_STORE},
    {SFP__STORE_NAME "-shm", SFP__FILES_STORE},
    {SFP__STORE_NAME "-journal", SFP__FILES_STORE},
    {SFP__IMAGES_NAME, SFP__FILES_STORE},
    {SFP__IMAGES_NAME "-wal", SFP__FILES_STORE},
    {SFP__IMAGES_NAME "-shm", SFP__FILES_STORE},
    {SFP__IMAGES_NAME "-journal", SFP__FILES_STORE},
    {STATE, SFP__FILES_OUTPUT},
    {"state-task-#.safetensors", SFP__FILES_TASK_STATE},
    {SFP__RUN_EVENTS, SFP__FILES_EVENTS},
    {"checkpoint.tmp.#", SFP__FILES_UNFINISHED},
    {"checkpoint.old.tmp", SFP__FILES_UNFINISHED},
    {RESULT ".tmp.#", SFP__FILES_UNFINISHED},
    {REPORT ".tmp.#", SFP__FILES_UNFINISHED},
    {STATE ".tmp.#", SFP__FILES_UNFINISHED},
    {"state-task-#.safetensors.tmp.#", SFP__FILES_UNFINISHED},
};
enum { FILES = sizeof files / sizeof *files };

/* ------------------------------------------------------------- the directory */

/* Writes the names of the files of these kinds to `out` (FILES); returns their number. */
static size_t list_files(unsigned kinds, const char **out)
{
    size_t count = 0;
    for (size_t i = 0; i < FILES; i++)
        if (files[i].kind & kinds)
            out[count++] = files[i].name;
    return count;
}

sfp_status sfp__run_remove_files(const char *out, unsigned kinds, const char *kept, sfp_error *err)
{
    const char *names[FILES];
    size_t count = list_files(kinds, names);
    return sfp__directory_remove_files(out, count, names, 1, &kept, err);
}

/* Reads the position of the last intact checkpoint (sfp__free), its path and its method; NULL: there is none. Fails if the machine
 * prevents this: a run must not seem to be finished because its checkpoint could not be read. */
static sfp_status peek_checkpoint(const sfp__plan *p, char path[PATH_MAX], char method[SFP__NAME_MAX], sfp__json_value **root,
                                  sfp_error *err)
{
    sfp_status failed = SFP_OK;
    for (size_t i = 0; i < sizeof checkpoints / sizeof *checkpoints; i++) {
        OWNED char *position = NULL;
        sfp_error why;
        TRY(sfp__plan_path(p, checkpoints[i], path, PATH_MAX, err));
        sfp_status status = sfp__checkpoint_peek(path, method, SFP__NAME_MAX, &position, &why);
        if (sfp__is_machine_error(status))
            failed = sfp__fail(err, status, "%s", why.message);
        if (status)
            continue;
        return sfp__json_parse(path, position, strlen(position), root, err);
    }
    return failed;
}

/* Whether the run of a checkpoint has ended. */
static bool is_finished(const sfp__json_value *root)
{
    return sfp__json_is(sfp__json_get(sfp__json_get(root, "result"), "finished"), SFP__JSON_TRUE);
}

static sfp_status has_checkpoint(const sfp__plan *p, bool *has, sfp_error *err)
{
    return sfp__directory_has_any(p->opt->out, SFP__LIST(checkpoints), has, err);
}

/* Reads DIR/result.json; SFP_ENOTFOUND: there is none. */
static sfp_status read_result_file(const sfp__plan *p, sfp_result *out, sfp_error *err)
{
    char path[PATH_MAX];
    TRY(sfp__plan_path(p, RESULT, path, sizeof path, err));
    return sfp__result_read(path, out, err);
}

/* *has: the run has ended. Its result alone does not show this, because live runs also write it earlier. foreign_ok: a result.json that is not that
 * of a run is ignored; otherwise it is refused, because the files of the directory may belong to another program. */
static sfp_status has_finished_result(const sfp__plan *p, bool foreign_ok, bool *has, sfp_error *err)
{
    OWNED_BY(sfp__result_done) sfp_result r = {0};
    sfp_error why = {0};
    sfp_status status = read_result_file(p, &r, &why);
    *has = status == SFP_OK && r.finished;
    if (sfp__is_machine_error(status))
        return sfp__fail(err, status, "%s", why.message);
    return foreign_ok || status == SFP_OK || status == SFP_ENOTFOUND
               ? SFP_OK
               : sfp__fail(err, SFP_EINVAL, "%s; it is not the result of a run: choose another --out", why.message);
}

/* Returns in *found whether this is a log of a run. Refuses one that is a symbolic link. */
static sfp_status check_log(const sfp__plan *p, const char *name, const char *key, bool *found, sfp_error *err)
{
    char path[PATH_MAX];
    sfp_error why;
    TRY(sfp__plan_path(p, name, path, sizeof path, err));
    sfp_status status = sfp__line_log_check(path, key, &why);
    *found = status == SFP_OK;
    return status == SFP_EINVAL || sfp__is_machine_error(status) ? sfp__fail(err, status, "%s", why.message) : SFP_OK;
}

/* Refuses a directory in which files of other programs would be replaced. If it has neither result nor checkpoint, only events.jsonl shows that a
 * run was killed there. Also refuses logs that are symbolic links. */
static sfp_status check_owner(const sfp__plan *p, sfp_error *err)
{
    const char *names[FILES], *out = p->opt->out;
    size_t count = list_files(SFP__FILES_OUTPUT | SFP__FILES_TASK_STATE | SFP__FILES_EVENTS | SFP__FILES_STORE, names);
    char found[NAME_MAX + 1], store[PATH_MAX];
    bool predictions, events, checkpoint, result;
    TRY(check_log(p, SFP__RUN_PREDICTIONS, "id", &predictions, err));
    TRY(check_log(p, SFP__RUN_EVENTS, "t", &events, err));
    TRY(has_checkpoint(p, &checkpoint, err));
    TRY(sfp__directory_has(out, RESULT, &result, err));
    TRY(sfp__plan_path(p, SFP__STORE_NAME, store, sizeof store, err));
    if (events || checkpoint || result || sfp__store_is_one(store))
        return SFP_OK;
    TRY(sfp__directory_find(out, count, names, found, sizeof found, err));
    return *found
               ? sfp__fail(err, SFP_EINVAL, "%s: directory contains %s, which is not of a run; choose another --out", out, found)
               : SFP_OK;
}

/* Refuses an output directory among the images of the source: the next run would take the output files for images. */
static sfp_status check_apart(const sfp__plan *p, const sfp_source *source, sfp_error *err)
{
    char images[PATH_MAX], out[PATH_MAX];
    if (!source || !source->kind || !source->kind->walks || !realpath(source->path, images) || !realpath(p->opt->out, out))
        return SFP_OK;
    size_t n = strlen(images);
    if (strncmp(out, images, n) != 0 || (out[n] && (out[n] != '/' || out[n + 1] == '.')))
        return SFP_OK;
    return sfp__fail_key(err, "out", SFP_EINVAL, "out is %s, expected a directory that is not in %s, which has the images",
                         p->opt->out, source->path);
}

sfp_status sfp__files_check_apart(const sfp__plan *p, sfp_error *err)
{
    if (!p->opt->out)
        return SFP_OK;
    TRY(check_apart(p, p->source, err));
    return check_apart(p, p->test, err);
}

sfp_status sfp__files_lock(sfp__run *run, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    char path[PATH_MAX], method[SFP__NAME_MAX];
    TRY(sfp__directory_take(p->opt->out, &run->created, &run->lock, err));
    if (run->created == 0) /* the caller may have just created the directory */
        sfp__directory_sync_parent(p->opt->out);
    bool found, finished;
    TRY(has_checkpoint(p, &found, err));
    TRY(has_finished_result(p, p->opt->resume && found, &finished, err));
    TRY(check_owner(p, err));
    if (p->opt->resume || !found)
        return SFP_OK;
    /* If all checkpoints are damaged, the run is finished if it has a result. A live run can always be resumed. */
    OWNED sfp__json_value *root = NULL;
    TRY(peek_checkpoint(p, path, method, &root, err));
    bool unfinished = root ? !is_finished(root) : !finished;
    bool live = sfp__json_get(root, "live") != NULL;
    if (unfinished || live)
        return sfp__fail(err, SFP_EINVAL, "%s: directory contains %s; use --resume to continue it, or choose another --out",
                         p->opt->out, unfinished ? "an unfinished run" : "the run of a live stream");
    return SFP_OK;
}

sfp_status sfp__files_clear(const sfp__run *run, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    const char *out = p->opt->out, *kept = run->init_state[0] ? run->init_state : NULL; /* --resume reads it again */
    unsigned kinds = SFP__FILES_UNFINISHED;
    bool checkpoint, result;
    TRY(has_checkpoint(p, &checkpoint, err));
    TRY(sfp__directory_has(out, RESULT, &result, err));
    if (!run->resumed && (checkpoint || result)) {
        sfp__plan_info(p, "%s: the finished run in this directory is replaced", out);
        /* The events stay until the new run opens the file: they show that the directory belongs to a run (check_owner). */
        kinds |= SFP__FILES_CHECKPOINT | SFP__FILES_OUTPUT | SFP__FILES_TASK_STATE | (p->live ? 0 : SFP__FILES_STORE);
    }
    return sfp__run_remove_files(out, kinds, kept, err);
}

/* ---------------------------------------------------------------- checkpoint */

sfp_status sfp__files_checkpoint(sfp__run *run, sfp_error *err)
{
    char path[PATH_MAX];
    OWNED char *position = NULL;
    sfp__arrivals *a = run->arrivals;
    TRY(sfp__plan_path(&run->plan, "checkpoint", path, sizeof path, err));
    TRY(sfp__journal_sync(&run->journal, err));
    if (a->store)
        TRY(sfp__store_prepare_checkpoint(a->store, &a->generation, err));
    TRY(sfp__position_text(run, &position, err));
    sfp_status status = sfp__learner_checkpoint(run->learner, path, position, err);
    return !status && a->store ? sfp__store_finish_checkpoint(a->store, false, err) : status;
}

/* -------------------------------------------------------------------- resume */

static sfp_status check_images(sfp__plan *p, const char *path, const sfp__json_value *root, sfp_error *err)
{
    const sfp__json_value *then = sfp__json_get(root, "pictures"), *test = sfp__json_get(root, "test_pictures");
    TRY(sfp__plan_digest_sources(p, err));
    bool same = p->live || sfp__json_integer(then) == (int64_t)(p->source_digest >> 1);
    bool same_test = p->live || !test || sfp__json_integer(test) == (int64_t)(p->test_digest >> 1);
    if (same && same_test)
        return SFP_OK;
    return sfp__fail(err, SFP_EINVAL,
                     "%s: the images of %s have changed (names, labels or order); restore them, or choose another --out", path,
                     same ? "the test set" : p->data);
}

static sfp_status parse_result(const char *path, const sfp__json_value *root, sfp_result *out, sfp_error *err)
{
    const sfp__json_value *result = sfp__json_get(root, "result");
    return result ? sfp__result_from(path, result, out, err)
                  : sfp__fail(err, SFP_EFORMAT, "%s: the checkpoint has no result", path);
}

static sfp_status restore_result(sfp__run *run, const char *path, const sfp__json_value *root, sfp_error *err)
{
    OWNED_BY(sfp__result_done) sfp_result then = {0};
    const sfp_result *now = run->journal.r;
    bool live = run->plan.live;
    TRY(parse_result(path, root, &then, err));
    if (then.tasks != now->tasks || (!live && then.classes != now->classes))
        return sfp__fail(err, SFP_EFORMAT, "%s: the checkpoint has %d tasks and %d classes, expected %d and %d", path, then.tasks,
                         then.classes, now->tasks, now->classes);
    if (!live)
        TRY(sfp__classes_check_result(&run->classes, path, &then, err));
    sfp__journal_restore(&run->journal, &run->plan, &then, then.finished && !live);
    return live ? sfp__classes_restore(&run->classes, &run->plan, err) : SFP_OK;
}

/* Compares the settings of a run that has a result but no checkpoint with those of this run. */
static sfp_status check_finished(const sfp__plan *p, sfp_error *err)
{
    OWNED_BY(sfp__result_done) sfp_result then = {0};
    sfp_error why;
    if (read_result_file(p, &then, &why) != SFP_OK) /* there is none, or sfp__files_lock has refused it */
        return SFP_OK;
    if (p->live)
        return sfp__fail(err, SFP_EINVAL,
                         "%s: directory contains a result but no checkpoint to resume from; choose another --out", p->opt->out);
    char path[PATH_MAX];
    TRY(sfp__plan_path(p, RESULT, path, sizeof path, err));
    return sfp__settings_same(p->opt->given, path, &then, false, err);
}

sfp_status sfp__files_check_resume(const sfp__plan *p, sfp_error *err)
{
    char path[PATH_MAX], method[SFP__NAME_MAX];
    const char *now = p->opt->method ? p->opt->method : "";
    if (!p->opt->out)
        return SFP_OK;
    OWNED sfp__json_value *root = NULL;
    OWNED_BY(sfp__result_done) sfp_result then = {0};
    bool found;
    TRY(peek_checkpoint(p, path, method, &root, err));
    TRY(has_checkpoint(p, &found, err));
    if (!root)
        return found ? SFP_OK : check_finished(p, err);
    if (strcmp(method, now) != 0)
        return sfp__fail(err, SFP_EINVAL, "%s: the checkpoint is of a run %s%s, expected one %s%s", path,
                         *method ? "with --method " : "without --method", method, *now ? "with --method " : "without --method",
                         now);
    /* restore_result reports a result that cannot be read */
    return parse_result(path, root, &then, NULL) ? SFP_OK : sfp__settings_same(p->opt->given, path, &then, p->live, err);
}

sfp_status sfp__files_resume(sfp__run *run, bool *finished, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    char path[PATH_MAX];
    OWNED char *text = NULL;
    bool used_old = false;
    *finished = false;
    if (!p->opt->out)
        return sfp__fail(err, SFP_EINVAL, "--resume needs the directory of the run; use --out DIR");
    TRY(sfp__plan_path(p, "checkpoint", path, sizeof path, err));
    sfp_status status = sfp__learner_resume(run->learner, path, &text, &used_old, err);
    if (status == SFP_ENOTFOUND) { /* a finished run stays finished when its checkpoint is removed */
        OWNED_BY(sfp__result_done) sfp_result r = {0};
        bool events;
        status = read_result_file(p, &r, err);
        run->resumed = *finished = status == SFP_OK && r.finished;
        if (*finished)
            sfp__journal_restore(&run->journal, p, &r, true);
        if (*finished || (status && status != SFP_ENOTFOUND))
            return status;
        TRY(sfp__directory_has(p->opt->out, SFP__RUN_EVENTS, &events, err));
        if (events)
            sfp__plan_info(
                p, "the earlier run in this directory stopped before its first checkpoint: the run starts from the beginning");
        return SFP_OK;
    }
    TRY(status);
    OWNED sfp__json_value *root = NULL;
    TRY(sfp__json_parse(path, text, strlen(text), &root, err));
    if (!sfp__position_read(run, root))
        return sfp__fail(err, SFP_EFORMAT,
                         "%s: the position in the checkpoint does not fit this stream; use the data, tasks and clock of that run",
                         path);
    TRY(restore_result(run, path, root, err));
    TRY(check_images(&run->plan, path, root, err));
    *finished = is_finished(root);
    run->resumed = true;
    if (*finished && !p->live)
        return SFP_OK;
    if (used_old)
        sfp__plan_warn(p, "the last checkpoint of %s is damaged; the run resumes from the one before (timestamp %lld)",
                       p->opt->out, (long long)run->at.timestamps);
    else
        sfp__plan_info(p, "resuming %s from its last checkpoint (timestamp %lld)", p->opt->out, (long long)run->at.timestamps);
    return SFP_OK;
}

/* ------------------------------------------------------------------- outputs */

/* Writes the registry entry. Its failure is only a warning, because the files of the run are complete. Returns whether it failed. */
static bool register_run(const sfp__run *run, bool warns)
{
    const sfp__plan *p = &run->plan;
    const sfp_result *r = run->journal.r;
    sfp__registry *registry = NULL;
    sfp_error why;
    int64_t id;
    bool failed = sfp__registry_open(&registry, &why) || sfp__registry_put(registry, p->opt->out, r, &id, &why);
    if (failed && warns) {
        if (r->finished)
            sfp__plan_warn(p, "the run is finished but not in the registry (%s); add it with 'streamfp runs add %s'", why.message,
                           p->opt->out);
        else
            sfp__plan_warn(p, "the run is not in the registry (%s); it is added when it resumes", why.message);
    }
    sfp__registry_close(registry);
    return failed;
}

sfp_status sfp__files_save_stopped(sfp__run *run, sfp_error *err)
{
    TRY(sfp__files_checkpoint(run, err));
    (void)register_run(run, true);
    return SFP_OK;
}

static sfp_status save_state(const sfp__run *run, sfp_error *err)
{
    char path[PATH_MAX];
    TRY(sfp__plan_path(&run->plan, STATE, path, sizeof path, err));
    return sfp__learner_save(run->learner, path, err);
}

static sfp_status save_report(const sfp__run *run, sfp_error *err)
{
    char path[PATH_MAX];
    TRY(sfp__plan_path(&run->plan, REPORT, path, sizeof path, err));
    return sfp__journal_report(run, path, err);
}

static sfp_status save_result(const sfp__run *run, sfp_error *err)
{
    char path[PATH_MAX];
    TRY(sfp__plan_path(&run->plan, RESULT, path, sizeof path, err));
    return sfp__result_write(run->journal.r, path, err);
}

static double bytes_of(const sfp__run *run, const char *name)
{
    char path[PATH_MAX];
    struct stat st;
    return !sfp__plan_path(&run->plan, name, path, sizeof path, NULL) && stat(path, &st) == 0 ? (double)st.st_size : 0;
}

sfp_status sfp__files_save_running(sfp__run *run, bool all, double *bytes, sfp_error *err)
{
    sfp__journal_finish(run, false);
    TRY(sfp__files_checkpoint(run, err));
    if (all) {
        TRY(save_state(run, err));
        TRY(save_report(run, err));
        run->no_registry |= register_run(run, !run->no_registry);
    }
    *bytes = bytes_of(run, checkpoints[0]) + bytes_of(run, STATE);
    return save_result(run, err);
}

sfp_status sfp__files_forget(sfp__run *run, double *bytes, sfp_error *err)
{
    static const char *const old[] = {"checkpoint.old", "state-task-1.safetensors"};
    const char *kept = NULL, *out = run->plan.opt->out;
    if (out) {
        sfp__journal_finish(run, false);
        TRY(sfp__files_checkpoint(run, err));
        TRY(sfp__directory_remove_files(out, 2, old, 1, &kept, err));
        TRY(sfp__files_save_running(run, true, bytes, err));
        TRY(sfp__directory_remove_files(out, 2, old, 1, &kept, err));
    }
    TRY(run->arrivals->kind->saved(run->arrivals, err));
    sfp__journal_finish(run, false);
    return out ? save_result(run, err) : SFP_OK;
}

/* The report comes before the checkpoint, which does not contain the images of the last batch. The result comes last: a directory
 * with a finished result is complete. */
sfp_status sfp__files_save_outputs(sfp__run *run, sfp_error *err)
{
    TRY(sfp__journal_sync(&run->journal, err));
    TRY(save_state(run, err));
    TRY(save_report(run, err));
    TRY(sfp__files_save_stopped(run, err));
    return save_result(run, err);
}

sfp_status sfp__files_complete(const sfp__run *run, sfp_error *err)
{
    const sfp__plan *p = &run->plan;
    const char *out = p->opt->out;
    bool checkpoint, state, report, result;
    TRY(has_checkpoint(p, &checkpoint, err));
    TRY(sfp__directory_has(out, STATE, &state, err));
    TRY(sfp__directory_has(out, REPORT, &report, err));
    TRY(has_finished_result(p, true, &result, err));
    bool writes = checkpoint && !(state && report); /* only the checkpoint restores the learner from which they are written */
    TRY(sfp__run_remove_files(out, SFP__FILES_UNFINISHED, NULL, err));
    if (writes && !state)
        TRY(save_state(run, err));
    if (writes && !report)
        TRY(save_report(run, err));
    (void)register_run(run, true);
    if (!result)
        TRY(save_result(run, err));
    sfp__plan_info(p, "this run has already ended: %s", writes || !result ? "its missing files were written" : "nothing to do");
    return SFP_OK;
}
