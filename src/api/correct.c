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

/* Copies the settings that the user of the run had given, from result.json. */
static sfp_status read_settings(const char *dir, sfp_settings *settings, sfp_error *err)
{
    OWNED_PTR(sfp_result_free) sfp_result *r = NULL;
    TRY(sfp_result_read(dir, &r, err));
    const char *preset = sfp__result_value(r, "preset");
    if (preset)
        TRY(sfp_settings_set(settings, "preset", preset, err));
    for (int i = 0; i < r->config_count; i++) {
        const sfp__config_entry *c = &r->config[i];
        const char *key = c->key;
        if (strcmp(key, "preset") != 0 && c->value && *c->value && sfp__config_differs(c))
            TRY(sfp_settings_set(settings, key, c->value, err));
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

sfp_status sfp__api_open_store(const char *dir, sfp__store **out, sfp_error *err)
{
    OWNED char *path = NULL;
    TRY(sfp__path_make(dir, SFP__STORE_NAME, &path, err));
    if (!sfp__store_is_one(path))
        return sfp__fail(err, SFP_ENOTFOUND, "%s: no samples of a live run, expected the --out directory of one", dir);
    return sfp__store_open(dir, out, err);
}

/* Waits for the answers to the requests up to this number. */
static sfp_status wait_for(sfp__store *s, const char *dir, int64_t first, int64_t last, sfp_error *err)
{
    double until = sfp__monotonic_seconds() + answer_seconds;
    for (int64_t next = first; next <= last;) {
        bool done = false;
        sfp_error why;
        sfp_status status = sfp__directory_is_locked(dir) ? SFP_OK : serve_here(dir, &why);
        if (status && !sfp__directory_is_locked(dir)) /* else the run has just started, and serves it */
            return sfp__fail_key(err, why.key, status, "%s", why.message);
        TRY(sfp__store_read_answer(s, next, &done, err));
        while (done && next < last)
            TRY(sfp__store_read_answer(s, ++next, &done, err));
        if (done)
            return SFP_OK;
        if (sfp__monotonic_seconds() > until + (double)(next - first))
            return sfp__fail(err, SFP_ELIMIT, "%s: the run has not answered for %.0f s; it makes the change when it continues",
                             dir, answer_seconds);
        (void)nanosleep(&(struct timespec){.tv_nsec = (long)(poll_seconds * 1e9)}, NULL);
    }
    return SFP_OK;
}

static sfp_status ask(const char *dir, const char *file, const char *label, sfp_error *err)
{
    OWNED_PTR(sfp__store_close) sfp__store *s = NULL;
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    char path[PATH_MAX];
    int64_t number;
    TRY(sfp__api_open_store(dir, &s, err));
    TRY(find_sample(s, dir, file, &row, path, err));
    TRY(sfp__store_request(s, row.name, *path ? path : NULL, label, &number, err));
    return wait_for(s, dir, number, number, err);
}

sfp_status sfp__api_check_class(const char *name, sfp_error *err)
{
    if (name && *name && strlen(name) <= SFP__CLASS_NAME_MAX && sfp__utf8_valid(name))
        return SFP_OK;
    return sfp__fail_key(err, "label", SFP_EINVAL,
                         "label is empty, longer than %d bytes or not UTF-8, expected the name of a class", SFP__CLASS_NAME_MAX);
}

sfp_status sfp_run_correct(const char *dir, const char *file, const char *label, sfp_error *err)
{
    IN_LIBRARY;
    SFP__REQUIRE(dir && file, "dir and file");
    TRY(sfp__api_check_class(label, err));
    return ask(dir, file, label, err);
}

sfp_status sfp_run_forget(const char *dir, const char *file, sfp_error *err)
{
    IN_LIBRARY;
    SFP__REQUIRE(dir && file, "dir and file");
    return ask(dir, file, NULL, err);
}

/* --------------------------------------------------------------------- classes */

sfp_status sfp_run_rename_class(const char *dir, const char *name, const char *to, int merge, sfp_error *err)
{
    IN_LIBRARY;
    OWNED_PTR(sfp__store_close) sfp__store *s = NULL;
    int64_t number, count;
    SFP__REQUIRE(dir, "dir");
    TRY(sfp__api_check_class(name, err));
    TRY(sfp__api_check_class(to, err));
    TRY(sfp__api_open_store(dir, &s, err));
    TRY(sfp__store_each_of_class(s, name, NULL, NULL, &count, err));
    if (count == 0 || strcmp(name, to) == 0)
        return sfp__fail(err, SFP_ENOTFOUND, "class '%s' has no samples in %s, or already has this name", name, dir);
    TRY(sfp__store_each_of_class(s, to, NULL, NULL, &count, err));
    if ((count > 0) != (merge != 0))
        return sfp__fail(err, SFP_EINVAL, "class '%s' %s in %s; %s", to, merge ? "has no samples" : "exists", dir,
                         merge ? "rename the other one" : "merge both");
    TRY(sfp__store_request(s, NULL, name, to, &number, err));
    return wait_for(s, dir, number, number, err);
}

/* Requests to forget all samples of a class. */
typedef struct removal {
    sfp__strings names;
} removal;

static void removal_done(removal *r)
{
    sfp__strings_done(&r->names);
}

static sfp_status add_name(void *ctx, const char *name, sfp_error *err)
{
    return sfp__strings_add(&((removal *)ctx)->names, name, err);
}

sfp_status sfp_run_remove_class(const char *dir, const char *name, sfp_error *err)
{
    IN_LIBRARY;
    OWNED_PTR(sfp__store_close) sfp__store *s = NULL;
    OWNED_BY(removal_done) removal r = {0};
    int64_t count, first = 0, last = 0;
    bool added = false;
    SFP__REQUIRE(dir, "dir");
    TRY(sfp__api_check_class(name, err));
    TRY(sfp__api_open_store(dir, &s, err));
    TRY(sfp__store_each_of_class(s, name, add_name, &r, &count, err));
    TRY(sfp__store_remove_class(s, name, &added, err));
    if (count == 0)
        return added ? SFP_OK : sfp__fail(err, SFP_ENOTFOUND, "class '%s' has no samples in %s", name, dir);
    for (int i = 0; i < r.names.count; i++) {
        TRY(sfp__store_request(s, r.names.s[i], NULL, NULL, &last, err));
        first = first ? first : last;
    }
    return wait_for(s, dir, first, last, err);
}
