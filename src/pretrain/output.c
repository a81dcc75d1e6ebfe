#include "pretrain/output.h"

#include "base/mem.h"
#include "base/text.h"
#include "io/file.h"
#include "io/folder.h"
#include "io/json_write.h"
#include "io/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CONFIG_BYTES_MAX ((size_t)64 << 20)

static void put_number(sfp_text *t, const char *key, double x)
{
    if (isfinite(x))
        sfp__text_printf(t, ", \"%s\": %.9g", key, x);
    else
        sfp__text_printf(t, ", \"%s\": null", key);
}

static void put_string(sfp_text *t, const char *key, const char *s)
{
    sfp__text_printf(t, ",\n    \"%s\": ", key);
    if (s)
        sfp__text_json(t, s);
    else
        sfp__text_put(t, "null");
}

static void put_training(sfp_text *t, const sfp_pretrain_options *o, int64_t pictures, const sfp_pretrain_result *r)
{
    char date[32] = "";
    time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm))
        (void)strftime(date, sizeof date, "%Y-%m-%d", &tm);
    sfp__text_printf(t, "  \"pretraining\": {\n    \"version\": \"%s\"", sfp_version());
    put_string(t, "date", date);
    put_string(t, "command", o->command);
    put_string(t, "data", o->data);
    put_string(t, "test", o->test);
    put_string(t, "teacher", o->teacher);
    sfp__text_printf(t, ",\n    \"pictures\": %lld, \"steps\": %" PRIu64, (long long)pictures, r->steps);
    put_number(t, "epochs", r->epochs);
    put_number(t, "seconds", r->seconds);
    put_number(t, "images_per_second", r->images_per_second);
    sfp__text_printf(t, ",\n    \"finished\": %s, \"parameters\": %zu", r->finished ? "true" : "false", r->parameters);
    put_number(t, "ncm", r->ncm);
    put_number(t, "knn", r->knn);
    for (int i = 0; i < SFP_TERMS; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "loss_%s", sfp__pretrain_term_name(i));
        put_number(t, key, r->loss[i]);
    }
    sfp__text_put(t, "\n  }");
}

sfp_status sfp__pretrain_write_config(const char *path, const sfp_pretrain_options *o, const sfp_vit_config *c, int64_t pictures,
                                      const sfp_pretrain_result *r, sfp_error *err)
{
    sfp_text t = {0};
    sfp__text_put(&t, "{");
    sfp__vit_put_config(c, &t);
    sfp__text_put(&t, ",\n");
    put_training(&t, o, pictures, r);
    sfp__text_put(&t, "\n}\n");
    sfp_status s = t.failed ? sfp__fail_nomem(err) : sfp__file_write(path, t.s, t.length, err);
    sfp__text_done(&t);
    return s;
}

/* ------------------------------------------------------ what an earlier one left */

/* config.json's "pretraining"; NULL: there is none. json_decref. */
static json_t *read_pretraining(const char *out)
{
    char path[PATH_MAX];
    uint8_t *bytes = NULL;
    size_t size = 0;
    (void)snprintf(path, sizeof path, "%s/" SFP__PRETRAIN_CONFIG, out);
    if (sfp__file_read(path, CONFIG_BYTES_MAX, &bytes, &size, NULL) != SFP_OK)
        return NULL;
    json_t *root = json_loadb((const char *)bytes, size, 0, NULL), *p = json_object_get(root, "pretraining");
    sfp__free(bytes);
    json_incref(p);
    json_decref(root);
    return p;
}

/* The step of the checkpoint; -1: it cannot be read. */
static int64_t checkpoint_step(const char *out)
{
    char path[PATH_MAX];
    sfp_safetensors *f = NULL;
    (void)snprintf(path, sizeof path, "%s/" SFP__PRETRAIN_CHECKPOINT, out);
    if (sfp__safetensors_open(path, &f, NULL) != SFP_OK)
        return -1;
    const char *text = sfp__safetensors_meta(f, "step");
    int64_t step = text ? strtoll(text, NULL, 10) : -1;
    sfp__safetensors_close(f);
    return step;
}

/* A finished one may have been given more epochs and stopped there: then its config is of an earlier step than its checkpoint. */
static bool is_finished(const char *out)
{
    json_t *p = read_pretraining(out), *steps = json_object_get(p, "steps");
    bool finished = json_is_true(json_object_get(p, "finished")) && json_is_integer(steps) &&
                    json_integer_value(steps) == checkpoint_step(out);
    json_decref(p);
    return finished;
}

static bool has_checkpoint(const char *out)
{
    return sfp__folder_has(out, SFP__PRETRAIN_CHECKPOINT) || sfp__folder_has(out, SFP__PRETRAIN_CHECKPOINT_OLD);
}

sfp_status sfp__pretrain_take_folder(const sfp_pretrain_options *o, int *lock, int *made, sfp_error *err)
{
    if (strlen(o->out) > PATH_MAX - 64) /* the longest name of a file in it */
        return sfp__fail(err, SFP_EINVAL, "%.60s...: is %zu bytes long, expected at most %d", o->out, strlen(o->out),
                         PATH_MAX - 64);
    sfp_status s = sfp__folder_make(o->out, made, err);
    if (!s)
        s = sfp__folder_lock(o->out, lock, err);
    if (!s && !o->resume && has_checkpoint(o->out) && !is_finished(o->out))
        s = sfp__fail(err, SFP_EINVAL, "%s: holds a training that was not finished; give --resume to go on, or another --out",
                      o->out);
    return s;
}

sfp_status sfp__pretrain_clear_folder(const sfp_pretrain_options *o, const sfp_pretrain_hooks *hooks, sfp_error *err)
{
    static const char *const names[] = {SFP__PRETRAIN_CHECKPOINT_OLD, SFP__PRETRAIN_CHECKPOINT,
                                        SFP__PRETRAIN_CONFIG,         SFP__PRETRAIN_LOG,
                                        SFP__PRETRAIN_REPORT,         SFP__PRETRAIN_MODEL};
    const char *const keep[] = {o->init, o->teacher}; /* --resume will read them again */
    char text[PATH_MAX + 64];
    json_t *p = read_pretraining(o->out);
    bool there = p || has_checkpoint(o->out);
    json_decref(p);
    if (!there)
        return SFP_OK; /* whatever is there is no training's */
    (void)snprintf(text, sizeof text, "%s: replaces the training in it", o->out);
    if (hooks && hooks->say)
        hooks->say(hooks->ctx, text);
    return sfp__folder_remove(o->out, sizeof names / sizeof *names, names, sizeof keep / sizeof *keep, keep, err);
}
