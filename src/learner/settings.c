#include "learner/settings.h"

#include "base/settings.h"
#include "learner/settings_list.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(sfp__learner_options, field)

const sfp__setting sfp__settings[] = {
#define ROW(type_, key, values, default_value, help, place, min_, max_) \
    {.info = {key, values, default_value, help}, .type = SFP_SETTING_##type_, .offset = AT(place), .min = min_, .max = max_},
    SFP_SETTINGS_LIST(ROW)
#undef ROW
};
const int sfp__settings_count = sizeof sfp__settings / sizeof *sfp__settings;

static sfp_status bad(const sfp__setting *s, const char *value, const char *expected, sfp_error *err)
{
    return sfp__fail_key(err, s->info.key, SFP_EINVAL, "%s is '%.80s', expected %s", s->info.key, value, expected);
}

static sfp_status number(const sfp__setting *s, const char *value, bool whole, double *out, sfp_error *err)
{
    char *end, range[96];
    errno = 0;
    double x = strtod(value, &end);
    (void)snprintf(range, sizeof range, "%s%s from %.15g to %.15g", s->type == SFP_SETTING_TASKS ? "free, or " : "",
                   whole ? "a whole number" : "a number", s->min, s->max);
    if (end == value || *end || errno || !isfinite(x) || x < s->min || x > s->max || (whole && x != floor(x)) || value[0] == ' ')
        return bad(s, value, range, err);
    *out = x;
    return SFP_OK;
}

const char *sfp__selector_name(int i)
{
    const sfp__selector *s = sfp__selector_at(i);
    return s ? s->name : NULL;
}

const char *sfp__buffer_method_name(int i)
{
    const sfp__buffer_method *m = sfp__buffer_method_at(i);
    return m ? m->name : NULL;
}

static sfp_status set_name(const sfp__setting *s, const char *value, const char *(*name)(int i), const char **to, sfp_error *err)
{
    char known[512] = "one of:";
    for (int i = 0; name(i); i++) {
        if (strcmp(name(i), value) == 0) {
            *to = name(i);
            return SFP_OK;
        }
        size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, " %s", name(i));
    }
    return bad(s, value, known, err);
}

static sfp_status set_layers(const sfp__setting *s, const char *value, sfp__fp_options *fp, sfp_error *err)
{
    int first, last, used = 0;
    if (sscanf(value, "%d-%d%n", &first, &last, &used) != 2 || value[used] || first < 0 || last < first || (double)last > s->max)
        return bad(s, value, "two layers, e.g. 0-4", err);
    fp->first_layer = first;
    fp->last_layer = last;
    return SFP_OK;
}

static void set_norm(sfp__learner_options *o, const sfp__vit_config *vit, int which)
{
    for (int i = 0; i < 3; i++) {
        o->mean[i] = which == 0 ? vit->mean[i] : which == 1 ? 0 : which == 2 ? sfp__imagenet_mean[i] : 0.5f;
        o->std[i] = which == 0 ? vit->std[i] : which == 1 ? 1 : which == 2 ? sfp__imagenet_std[i] : 0.5f;
    }
}

static sfp_status set_seed(const sfp__setting *s, const char *value, uint64_t *to, sfp_error *err)
{
    char *end;
    errno = 0;
    unsigned long long x = strtoull(value, &end, 10);
    if (end == value || *end || errno || value[0] < '0' || value[0] > '9')
        return bad(s, value, "a whole number from 0 to 2^64 - 1", err);
    *to = x;
    return SFP_OK;
}

/* Returns whether a number may also be the word off, which is stored as 0. */
static bool may_be_off(const sfp__setting *s)
{
    return sfp__word_index(s->info.values, "off") >= 0;
}

static sfp_status apply(const sfp__setting *s, sfp__learner_options *o, const sfp__vit_config *vit, const char *value,
                        sfp_error *err)
{
    void *at = (char *)o + s->offset;
    double x = 0;
    int word = sfp__word_index(s->info.values, value);
    switch (s->type) {
    case SFP_SETTING_INT:
    case SFP_SETTING_CLASSES:
        TRY(number(s, value, true, &x, err));
        *(int *)at = (int)x;
        return SFP_OK;
    case SFP_SETTING_SEED:
        return set_seed(s, value, at, err);
    case SFP_SETTING_REAL:
        if (!may_be_off(s) || strcmp(value, "off") != 0)
            TRY(number(s, value, false, &x, err));
        *(double *)at = x;
        return SFP_OK;
    case SFP_SETTING_FLOAT:
        TRY(number(s, value, false, &x, err));
        *(float *)at = (float)x;
        return SFP_OK;
    case SFP_SETTING_SELECTOR:
        return set_name(s, value, sfp__selector_name, at, err);
    case SFP_SETTING_BUFFER:
        return set_name(s, value, sfp__buffer_method_name, at, err);
    case SFP_SETTING_LAYERS:
        return set_layers(s, value, &o->fp, err);
    case SFP_SETTING_TASKS:
        if (strcmp(value, "free") != 0)
            TRY(number(s, value, true, &x, err));
        o->fp.tasks = (int)x;
        return SFP_OK;
    case SFP_SETTING_CHOICE:
    case SFP_SETTING_FLAG:
    case SFP_SETTING_FLIP:
    case SFP_SETTING_NORM:
        break;
    }
    if (word < 0)
        return bad(s, value, s->info.values, err);
    if (s->type == SFP_SETTING_NORM)
        set_norm(o, vit, word);
    else if (s->type == SFP_SETTING_CHOICE)
        memcpy(at, &(unsigned){(unsigned)word}, sizeof(unsigned)); /* enums of two or three words are unsigned ints here */
    else
        *(bool *)at = s->type == SFP_SETTING_FLAG ? word == 0 : word == 1;
    return SFP_OK;
}

_Static_assert(sizeof(sfp__drift) == sizeof(unsigned), "enums are stored as unsigned");

const sfp__setting *sfp__settings_find(const char *key)
{
    for (int i = 0; i < sfp__settings_count; i++)
        if (sfp__same_key(sfp__settings[i].info.key, key))
            return &sfp__settings[i];
    return NULL;
}

const char *sfp__setting_saved_text(const sfp__setting *s, const sfp__learner_options *o, char *buf, size_t size)
{
    const void *at = (const char *)o + s->offset;
    const char *words = s->info.values;
    switch (s->type) {
    case SFP_SETTING_TASKS:
    case SFP_SETTING_INT:
    case SFP_SETTING_CLASSES:
        (void)snprintf(buf, size, "%d", *(const int *)at);
        return s->type == SFP_SETTING_TASKS && *(const int *)at == 0 ? sfp__word_at("free", 0, buf, size) : buf;
    case SFP_SETTING_SEED:
        (void)snprintf(buf, size, "%" PRIu64, *(const uint64_t *)at);
        return buf;
    case SFP_SETTING_REAL:
        (void)snprintf(buf, size, "%.17g", *(const double *)at);
        return may_be_off(s) && *(const double *)at == 0 ? sfp__word_at("off", 0, buf, size) : buf;
    case SFP_SETTING_FLOAT:
        (void)snprintf(buf, size, "%.9g", (double)*(const float *)at);
        return buf;
    case SFP_SETTING_SELECTOR:
    case SFP_SETTING_BUFFER:
        (void)snprintf(buf, size, "%s", *(const char *const *)at);
        return buf;
    case SFP_SETTING_LAYERS:
        (void)snprintf(buf, size, "%d-%d", o->fp.first_layer, o->fp.last_layer);
        return buf;
    case SFP_SETTING_CHOICE: {
        int i;
        memcpy(&i, at, sizeof i);
        return sfp__word_at(words, i, buf, size);
    }
    case SFP_SETTING_FLAG:
        return sfp__word_at(words, !*(const bool *)at, buf, size);
    case SFP_SETTING_FLIP:
        return sfp__word_at(words, *(const bool *)at, buf, size);
    case SFP_SETTING_NORM:
        break;
    }
    buf[0] = '\0';
    return buf;
}

sfp_status sfp__settings_apply(sfp__learner_options *o, const sfp__vit_config *vit, const char *key, const char *value,
                               sfp_error *err)
{
    const sfp__setting *s = sfp__settings_find(key);
    if (!s)
        return sfp__fail(err, SFP_EINVAL, "unknown setting '%.80s'", key);
    return apply(s, o, vit, value, err);
}

sfp_status sfp__settings_check(const char *key, const char *value, sfp_error *err)
{
    sfp__learner_options scratch = {0};
    const sfp__vit_config plain = {.std = {1, 1, 1}};
    return sfp__settings_apply(&scratch, &plain, key, value, err);
}
