/* Corrections of a live run in its directory (streamfp.h, part 8). The request is a row in the store of samples. The process of the run
 * serves it; if the run is not running, it is resumed here until the request is served. */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"
#include "base/monotonic.h"
#include "io/directory.h"
#include "results/result.h"
#include "stream/source_internal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double answer_seconds = 60, poll_seconds = 0.05;

DEFINE_OWNED_PTR(sfp_result, sfp_result_free)
DEFINE_OWNED_PTR(sfp_run, sfp_run_close)

/* Finds the sample that `file` names: its name in the stream, else the path of a file with its bytes, whose full path is written to
 * `path`. */
static sfp_status find_sample(sfp__store *s, const char *dir, const char *file, sfp__stored *row, char path[PATH_MAX],
                              sfp_error *err)
{
    OWNED_BY(sfp__raw_image_done) sfp__raw_image image = {0};
    bool found = false;
    TRY(sfp__store_find(s, file, row, &found, err));
    path[0] = '\0';
    if (found)
        return SFP_OK;
    if (realpath(file, path)) {
        TRY(sfp__raw_image_read(path, &image, err));
        sfp__digest digest = sfp__digest_bytes((sfp__digest){0}, image.bytes, image.size);
        TRY(sfp__store_find_bytes(s, &digest, UINT64_MAX, row, &found, err));
    }
    return found ? SFP_OK
                 : sfp__fail(err, SFP_ENOTFOUND,
                             "%s: not a sample of %s, expected a name of its stream or the path of an image that arrived", file,
                             dir);
}

/* Sets what the user of the run had set. */
static sfp_status read_settings(const char *dir, sfp_settings *settings, sfp_error *err)
{
    OWNED_PTR(sfp_result_free) sfp_result *r = NULL;
    TRY(sfp_result_read(dir, &r, err));
    const char *preset = sfp__result_preset_name(r);
    if (preset)
        TRY(sfp_settings_set(settings, "preset", preset, err));
    for (int i = 0; i < r->config_count; i++) {
        const sfp__config_entry *c = &r->config[i];
        const char *key = sfp__result_option_name(c->key);
        if (strcmp(key, "preset") != 0 && c->value && *c->value && sfp__config_differs(c))
            TRY(sfp_settings_set(settings, key, sfp__result_option_value(c->key, c->value), err));
    }
    TRY(sfp_settings_set(settings, "out", dir, err));
    return sfp_settings_set(settings, "resume", "on", err);
}

/* Resumes the run until its requests are served. */
static sfp_status serve_here(const char *dir, sfp_error *err)
{
    OWNED_PTR(sfp_settings_free) sfp_settings *settings = NULL;
    OWNED_PTR(sfp_engine_close) sfp_engine *engine = NULL;
    OWNED_PTR(sfp_run_close) sfp_run *run = NULL;
    TRY(sfp_settings_create(&settings, err));
    TRY(read_settings(dir, settings, err));
    TRY(sfp_engine_open_for(settings, NULL, NULL, &engine, err));
    TRY(sfp_run_open(engine, settings, NULL, &run, err));
    sfp_run_cancel(run);
    return sfp_run_finish(run, err);
}

static sfp_status ask(const char *dir, const char *file, const char *label, sfp_error *err)
{
    OWNED_PTR(sfp__store_close) sfp__store *s = NULL;
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    OWNED char *store = NULL;
    char path[PATH_MAX];
    int64_t number;
    bool done = false;
    TRY(sfp__path_make(dir, SFP__STORE_NAME, &store, err));
    if (!sfp__store_is_one(store))
        return sfp__fail(err, SFP_ENOTFOUND, "%s: no samples of a live run, expected the --out directory of one", dir);
    TRY(sfp__store_open(dir, &s, err));
    TRY(find_sample(s, dir, file, &row, path, err));
    TRY(sfp__store_request(s, row.name, *path ? path : NULL, label, &number, err));
    for (double until = sfp__monotonic_seconds() + answer_seconds; sfp__monotonic_seconds() < until;) {
        if (!sfp__directory_is_locked(dir))
            TRY(serve_here(dir, err));
        TRY(sfp__store_read_answer(s, number, &done, err));
        if (done)
            return SFP_OK;
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)(poll_seconds * 1e9)}, NULL);
    }
    return sfp__fail(err, SFP_ELIMIT, "%s: the run has not answered for %.0f s; it makes the change when it continues", dir,
                     answer_seconds);
}

sfp_status sfp_run_correct(const char *dir, const char *file, const char *label, sfp_error *err)
{
    IN_LIBRARY;
    if (!dir || !file || !label)
        return sfp__fail(err, SFP_EINVAL, "dir, file and label must not be NULL");
    if (!*label || strlen(label) > SFP_CLASS_NAME_MAX || !sfp__utf8_valid(label))
        return sfp__fail_key(err, "label", SFP_EINVAL, "label is empty, longer than %d bytes or not UTF-8, expected the name of a class",
                             SFP_CLASS_NAME_MAX);
    return ask(dir, file, label, err);
}

sfp_status sfp_run_forget(const char *dir, const char *file, sfp_error *err)
{
    IN_LIBRARY;
    if (!dir || !file)
        return sfp__fail(err, SFP_EINVAL, "dir and file must not be NULL");
    return ask(dir, file, NULL, err);
}
