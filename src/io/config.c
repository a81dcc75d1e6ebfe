/* The JSON configuration of a weights file.
 *
 * Three families of programs write such files; the functions below list the key names of each value. A value that is absent or
 * null remains unset. A value that makes no sense is an error: guessing heads or eps would yield a model that runs and is
 * wrong. */
#include "io/config.h"

#include "base/mem.h"
#include "base/text.h"
#include "io/json_read.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_MAX ((size_t)16 << 20)
#define CLASSES_MAX 1000000
#define PREPROCESSOR "preprocessor_config.json"

/* The objects in which a key is searched, after the root object: CLIP's image tower and timm's two. */
static const char *const sections[] = {"vision_config", "model_args", "pretrained_cfg"};
#define SECTIONS (1 + sizeof sections / sizeof *sections)

struct reader {
    const char *label;
    const sfp__json_value *objects[SECTIONS]; /* NULL: absent */
    sfp_error *err;
};

/* Finds the first of `names` (terminated by NULL) that has a value; *name receives its name. */
static const sfp__json_value *find(const struct reader *r, const char *const *names, const char **name)
{
    for (size_t i = 0; i < SECTIONS; i++) {
        for (const char *const *n = names; *n; n++) {
            const sfp__json_value *v = sfp__json_get(r->objects[i], *n);
            if (v && !sfp__json_is(v, SFP__JSON_NULL)) {
                *name = *n;
                return v;
            }
        }
    }
    return NULL;
}

static sfp_status get_int(const struct reader *r, const sfp__json_value *v, const char *name, int max, int *out)
{
    if (!sfp__json_is(v, SFP__JSON_INTEGER))
        return sfp__fail(r->err, SFP_EFORMAT, "%s: '%s' is not an integer, expected one in 1..%d", r->label, name, max);
    int64_t n = sfp__json_integer(v);
    if (n < 1 || n > max)
        return sfp__fail(r->err, SFP_EFORMAT, "%s: '%s' is %lld, expected an integer in 1..%d", r->label, name, (long long)n,
                         max);
    *out = (int)n;
    return SFP_OK;
}

/* Reads the side of a square: n, [n, n], or with channels [3, n, n]. */
static sfp_status get_side(const struct reader *r, const sfp__json_value *v, const char *name, int max, int *out)
{
    if (!sfp__json_is(v, SFP__JSON_ARRAY))
        return get_int(r, v, name, max, out);
    size_t n = sfp__json_size(v);
    const sfp__json_value *height = sfp__json_at(v, n - 2), *width = sfp__json_at(v, n - 1);
    if (n < 2 || n > 3 || sfp__json_number(height) != sfp__json_number(width))
        return sfp__fail(r->err, SFP_EFORMAT, "%s: '%s' is not square, expected one side, [side, side] or [channels, side, side]",
                         r->label, name);
    return get_int(r, width, name, max, out);
}

static sfp_status get_rgb(const struct reader *r, const sfp__json_value *v, const char *name, bool positive, float out[3])
{
    if (sfp__json_size(v) != 3)
        return sfp__fail(r->err, SFP_EFORMAT, "%s: '%s' is not an array of 3 numbers", r->label, name);
    float values[3];
    for (size_t i = 0; i < 3; i++) {
        const sfp__json_value *item = sfp__json_at(v, i);
        values[i] = (float)sfp__json_number(item);
        if (!sfp__json_is_number(item) || !isfinite(values[i]) || (positive && values[i] <= 0))
            return sfp__fail(r->err, SFP_EFORMAT, "%s: '%s[%zu]' is %g, expected a %snumber", r->label, name, i,
                             sfp__json_number(item), positive ? "positive " : "");
    }
    memcpy(out, values, sizeof values);
    return SFP_OK;
}

static sfp_status read_sizes(const struct reader *r, sfp__model_config *c)
{
    const char *name;
    const sfp__json_value *v = find(r, (const char *const[]){"num_heads", "num_attention_heads", NULL}, &name);
    if (v)
        TRY(get_int(r, v, name, 4096, &c->heads));
    if ((v = find(r, (const char *const[]){"img_size", "image_size", "input_size", NULL}, &name)))
        TRY(get_side(r, v, name, 65536, &c->img_size));
    if ((v = find(r, (const char *const[]){"patch_size", NULL}, &name)))
        TRY(get_side(r, v, name, 65536, &c->patch_size));
    return SFP_OK;
}

static sfp_status read_numbers(const struct reader *r, sfp__model_config *c)
{
    const char *name;
    const sfp__json_value *v = find(r, (const char *const[]){"ln_eps", "layer_norm_eps", NULL}, &name);
    if (v) {
        double eps = sfp__json_number(v);
        if (!sfp__json_is_number(v) || !((float)eps > 0) || eps > 1)
            return sfp__fail(r->err, SFP_EFORMAT, "%s: '%s' is %g, expected a number in (0, 1]", r->label, name, eps);
        c->ln_eps = (float)eps;
    }
    if ((v = find(r, (const char *const[]){"mean", "image_mean", NULL}, &name))) {
        TRY(get_rgb(r, v, name, false, c->mean));
        c->has_mean = true;
    }
    if ((v = find(r, (const char *const[]){"std", "image_std", NULL}, &name))) {
        TRY(get_rgb(r, v, name, true, c->std));
        c->has_std = true;
    }
    return SFP_OK;
}

static sfp_status read_activation(const struct reader *r, sfp__model_config *c)
{
    const char *name;
    const sfp__json_value *v = find(r, (const char *const[]){"activation", "hidden_act", NULL}, &name);
    if (!v)
        return SFP_OK;
    const char *text = sfp__json_text(v);
    if (!text)
        return sfp__fail(r->err, SFP_EFORMAT, "%s: '%s' is not a string, expected \"gelu\" or \"quick_gelu\"", r->label, name);
    if (strcmp(text, "gelu") != 0 && strcmp(text, "quick_gelu") != 0)
        return sfp__fail(r->err, SFP_EUNSUPPORTED, "%s: '%s' is '%s', expected gelu or quick_gelu", r->label, name,
                         sfp__printable(text, (char[64]){0}, 64));
    (void)snprintf(c->activation, sizeof c->activation, "%s", text);
    return SFP_OK;
}

/* ------------------------------------------------------------------ class names */

static sfp_status alloc_names(const struct reader *r, const char *name, size_t n, sfp__model_config *c)
{
    if (n > CLASSES_MAX)
        return sfp__fail(r->err, SFP_ELIMIT, "%s: '%s' has %zu names, expected at most %d", r->label, name, n, CLASSES_MAX);
    TRY(sfp__alloc(&c->class_names, n, sizeof *c->class_names, r->err));
    c->class_count = n;
    return SFP_OK;
}

static sfp_status put_name(const struct reader *r, const char *name, const sfp__json_value *v, size_t i, sfp__model_config *c)
{
    const char *text = sfp__json_text(v);
    if (!text)
        return sfp__fail(r->err, SFP_EFORMAT, "%s: '%s' has a name of class %zu that is not a string", r->label, name, i);
    c->class_names[i] = sfp__strdup(text);
    return c->class_names[i] ? SFP_OK : sfp__fail_nomem(r->err);
}

static sfp_status read_names_array(const struct reader *r, const char *name, const sfp__json_value *v, sfp__model_config *c)
{
    TRY(alloc_names(r, name, sfp__json_size(v), c));
    for (size_t i = 0; i < c->class_count; i++)
        TRY(put_name(r, name, sfp__json_at(v, i), i, c));
    return SFP_OK;
}

/* {"0": "cat", "1": "dog"}: n keys that are distinct and below n are all of 0..n-1. */
static sfp_status read_names_object(const struct reader *r, const char *name, const sfp__json_value *v, sfp__model_config *c)
{
    TRY(alloc_names(r, name, sfp__json_size(v), c));
    for (size_t k = 0; k < sfp__json_size(v); k++) {
        const sfp__json_value *value = sfp__json_at(v, k);
        const char *key = value->key;
        char *end = NULL;
        unsigned long i = key[0] >= '0' && key[0] <= '9' ? strtoul(key, &end, 10) : c->class_count;
        if (i >= c->class_count || *end != '\0' || c->class_names[i])
            return sfp__fail(r->err, SFP_EFORMAT, "%s: '%s' has key '%s', expected each of 0..%zu once", r->label, name,
                             sfp__printable(key, (char[64]){0}, 64), c->class_count - 1);
        TRY(put_name(r, name, value, i, c));
    }
    return SFP_OK;
}

static sfp_status read_names(const struct reader *r, sfp__model_config *c)
{
    const char *name;
    const sfp__json_value *v = find(r, (const char *const[]){"class_names", "id2label", "label_names", NULL}, &name);
    if (!v)
        return SFP_OK;
    if (sfp__json_is(v, SFP__JSON_ARRAY))
        return sfp__json_size(v) > 0 ? read_names_array(r, name, v, c) : SFP_OK;
    if (sfp__json_is(v, SFP__JSON_OBJECT))
        return sfp__json_size(v) > 0 ? read_names_object(r, name, v, c) : SFP_OK;
    return sfp__fail(r->err, SFP_EFORMAT, "%s: '%s' is neither an array nor an object, expected names", r->label, name);
}

/* ------------------------------------------------------------------ files */

static sfp_status read_root(const char *label, const sfp__json_value *root, sfp__model_config *c, sfp_error *err)
{
    struct reader r = {.label = label, .objects = {root}, .err = err};
    if (!sfp__json_is(root, SFP__JSON_OBJECT))
        return sfp__fail(err, SFP_EFORMAT, "%s: not a JSON object", label);
    for (size_t i = 1; i < SECTIONS; i++) {
        const sfp__json_value *section = sfp__json_get(root, sections[i - 1]);
        if (section && !sfp__json_is(section, SFP__JSON_NULL) && !sfp__json_is(section, SFP__JSON_OBJECT))
            return sfp__fail(err, SFP_EFORMAT, "%s: '%s' is not an object", label, sections[i - 1]);
        r.objects[i] = section;
    }
    TRY(read_sizes(&r, c));
    TRY(read_numbers(&r, c));
    TRY(read_activation(&r, c));
    return read_names(&r, c);
}

static sfp_status read_config(const char *label, const sfp__json_value *root, sfp__model_config *out, sfp_error *err)
{
    OWNED_BY(sfp__model_config_done) sfp__model_config c = {0};
    TRY(read_root(label, root, &c, err));
    *out = TAKE(c);
    return SFP_OK;
}

sfp_status sfp__model_config_parse(const char *label, const char *text, size_t size, sfp__model_config *out, sfp_error *err)
{
    OWNED sfp__json_value *root = NULL;
    TRY(sfp__json_parse(label, text, size, &root, err));
    return read_config(label, root, out, err);
}

/* Reads a configuration file. A missing file is not an error: *found receives whether it exists. */
static sfp_status read_if_exists(const char *path, sfp__model_config *out, bool *found, sfp_error *err)
{
    OWNED sfp__json_value *root = NULL;
    sfp_error why; /* *err must not change if the file is missing */
    sfp_status status = sfp__json_read(path, FILE_MAX, &root, &why);
    *found = status == SFP_OK;
    if (status == SFP_ENOTFOUND)
        return SFP_OK;
    if (status != SFP_OK && err)
        *err = why;
    TRY(status);
    return read_config(path, root, out, err);
}

/* Reads mean and std from the preprocessor file if config.json does not have them. `path` is that of config.json, with the file
 * name at offset `dir`. */
static sfp_status add_preprocessor(char *path, size_t dir, sfp__model_config *c, const char **from, sfp_error *err)
{
    OWNED_BY(sfp__model_config_done) sfp__model_config more = {0};
    bool found = false;
    if (c->has_mean && c->has_std)
        return SFP_OK;
    memcpy(path + dir, PREPROCESSOR, sizeof PREPROCESSOR);
    TRY(read_if_exists(path, &more, &found, err));
    if (!found)
        return SFP_OK;
    if (!c->has_mean && more.has_mean)
        memcpy(c->mean, more.mean, sizeof c->mean);
    if (!c->has_std && more.has_std)
        memcpy(c->std, more.std, sizeof c->std);
    c->has_mean |= more.has_mean;
    c->has_std |= more.has_std;
    *from = "config.json and " PREPROCESSOR " beside it";
    return SFP_OK;
}

sfp_status sfp__model_config_find(const char *weights_path, const char *inside, sfp__model_config *out, const char **from,
                                  sfp_error *err)
{
    const char *slash = strrchr(weights_path, '/'), *name = slash ? slash + 1 : weights_path, *dot = strrchr(name, '.');
    size_t dir = (size_t)(name - weights_path), stem = dot && dot != name ? (size_t)(dot - weights_path) : strlen(weights_path);
    size_t capacity = strlen(weights_path) + sizeof PREPROCESSOR;
    OWNED char *path = sfp__malloc(capacity);
    TRY(sfp__check_memory(path, err));
    OWNED_BY(sfp__model_config_done) sfp__model_config c = {0};
    bool found = false;
    const char *where = "the config beside it";
    (void)snprintf(path, capacity, "%.*s.json", (int)stem, weights_path);
    TRY(read_if_exists(path, &c, &found, err));
    if (!found && inside) {
        where = "the config in its metadata";
        TRY(sfp__model_config_parse(weights_path, inside, strlen(inside), &c, err));
        found = true;
    }
    if (!found) {
        memcpy(path + dir, "config.json", sizeof "config.json");
        TRY(read_if_exists(path, &c, &found, err));
        if (found)
            TRY(add_preprocessor(path, dir, &c, &where, err));
    }
    if (found)
        *out = TAKE(c);
    *from = found ? where : NULL;
    return SFP_OK;
}

void sfp__model_config_done(sfp__model_config *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->class_count; i++)
        sfp__free(c->class_names[i]);
    sfp__free(c->class_names);
    *c = (sfp__model_config){0};
}
