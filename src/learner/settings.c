#include "learner/settings.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(sfp_learner_options, field)

const sfp_setting sfp__settings[] = {
    {{"select", "NAME", "streamfp", "Which part of a batch is trained on."}, SFP_SETTING_NAME, AT(select), 0, 0},
    {{"sigma", "R", "0.5", "Coreset ratio; 1 and more: the whole batch."}, SFP_SETTING_REAL, AT(coreset.sigma), 1e-9, 1e9},
    {{"coreset", "exact|paper", "exact", "How an odd coreset is cut."}, SFP_SETTING_CHOICE, AT(coreset.mode), 0, 0},
    {{"buffer", "NAME", "streamfp", "What the rehearsal buffer keeps and drops."}, SFP_SETTING_NAME, AT(buffer.method), 0, 0},
    {{"buffer-size", "M", "102", "Slots of the buffer."}, SFP_SETTING_INT, AT(buffer.slots), 1, 1 << 24},
    {{"buffer-bytes", "N", "0", "Bytes the buffer may take; 0: no limit."}, SFP_SETTING_SIZE, AT(buffer.budget), 0, 1e15},
    {{"keep", "pixels|compressed", "pixels", "What a slot keeps of a picture."}, SFP_SETTING_FLIP, AT(keep_compressed), 0, 0},
    {{"resize", "squash|crop", "squash", "How pictures are brought to the input size."}, SFP_SETTING_CHOICE, AT(resize), 0, 0},
    {{"replay", "R", "10", "Rehearsed samples a step."}, SFP_SETTING_INT, AT(replay), 0, 100000},
    {{"drop-rule", "alg2|eq8", "alg2", "Weights of the slots to drop: Algorithm 2 or Equation 8."}, SFP_SETTING_CHOICE, AT(buffer.drop), 0, 0},
    {{"nu", "at-least-one|reservoir", "at-least-one", "Least replacements a batch."}, SFP_SETTING_CHOICE, AT(buffer.nu), 0, 0},
    {{"batch", "B", "20", "Most samples a timestamp."}, SFP_SETTING_INT, AT(batch), 1, 100000},
    {{"steps", "K", "1", "Gradient steps a timestamp."}, SFP_SETTING_INT, AT(steps), 1, 1000},
    {{"lr", "R", "0.001", "Adam's learning rate."}, SFP_SETTING_FLOAT, AT(adam.lr), 0, 1e6},
    {{"pool", "N", "100", "Fingerprint components a layer."}, SFP_SETTING_INT, AT(fp.pool), 1, 65536},
    {{"prompt-length", "N", "8", "Rows a component; even."}, SFP_SETTING_INT, AT(fp.length), 2, 256},
    {{"prompt-layers", "A-B", "0-4", "Layers that get prefixes."}, SFP_SETTING_LAYERS, AT(fp.first_layer), 0, SFP_VIT_MAX_DEPTH - 1},
    {{"ortho-mu", "R", "0", "Weight of the orthogonality penalty."}, SFP_SETTING_FLOAT, AT(fp.ortho_mu), 0, 1e6},
    {{"attune", "on|off", "on", "Attunement of the fingerprints."}, SFP_SETTING_FLAG, AT(fp.attune), 0, 0},
    {{"attune-topk", "N", "3", "Gate outputs that are kept."}, SFP_SETTING_INT, AT(fp.attune_topk), 1, 3},
    {{"attune-residual", "on|off", "off", "Attunement adds the fingerprint itself."}, SFP_SETTING_FLAG, AT(fp.attune_residual), 0, 0},
    {{"prefix", "projected|raw", "projected", "Prefixes after the projections, or before."}, SFP_SETTING_CHOICE, AT(fp.prefix), 0, 0},
    {{"query", "two|one", "two", "Queries by a pass of their own, or the class token of the prompted one."}, SFP_SETTING_FLIP, AT(fp.query_one), 0, 0},
    {{"head", "linear|mix", "linear", "The classifier."}, SFP_SETTING_CHOICE, AT(head), 0, 0},
    {{"head-feed", "coreset|batch", "batch", "Which queries the mixed heads learn from."}, SFP_SETTING_CHOICE, AT(feed), 0, 0},
    {{"weighted", "on|off", "off", "The selector's weights enter the loss."}, SFP_SETTING_FLAG, AT(weighted), 0, 0},
    {{"tasks", "J|free", "free", "Known tasks, or a stream without boundaries."}, SFP_SETTING_TASKS, AT(fp.tasks), 1, 65536},
    {{"classes", "C", "0", "Classes known from the start (needed with known tasks)."}, SFP_SETTING_INT, AT(fp.classes), 0, 1 << 20},
    {{"drift", "off|new-class|ph", "new-class", "Free streams: what opens new components."}, SFP_SETTING_CHOICE, AT(drift), 0, 0},
    {{"span", "N", "0", "Free streams: components opened at a time; 0: a tenth of the pool."}, SFP_SETTING_INT, AT(fp.span), 0, 65536},
    {{"normalise", "checkpoint|none|imagenet|half", "checkpoint", "Mean and deviation taken from pictures."}, SFP_SETTING_NORM, AT(mean), 0, 0},
    {{"seed", "N", "0", "Seed of all random numbers."}, SFP_SETTING_SEED, AT(seed), 0, 0},
};
const int sfp__settings_count = sizeof sfp__settings / sizeof *sfp__settings;

static sfp_status bad(const sfp_setting *s, const char *value, const char *expected, sfp_error *err)
{
    return sfp__fail(err, SFP_EINVAL, "%s is '%.80s', expected %s", s->info.key, value, expected);
}

static sfp_status number(const sfp_setting *s, const char *value, bool whole, double *out, sfp_error *err)
{
    char *end, range[96];
    errno = 0;
    double x = strtod(value, &end);
    (void)snprintf(range, sizeof range, "%s from %.15g to %.15g", whole ? "a whole number" : "a number", s->min, s->max);
    if (end == value || *end || errno || !isfinite(x) || x < s->min || x > s->max || (whole && x != floor(x)) || value[0] == ' ')
        return bad(s, value, range, err);
    *out = x;
    return SFP_OK;
}

/* Index of `value` among "a|b|c"; -1: none. */
static int word_of(const char *words, const char *value)
{
    size_t n = strlen(value);
    for (int i = 0; *words; i++) {
        size_t len = strcspn(words, "|");
        if (len == n && memcmp(words, value, n) == 0)
            return i;
        words += len + (words[len] == '|');
    }
    return -1;
}

static sfp_status set_name(const sfp_setting *s, const char *value, const char **to, sfp_error *err)
{
    char known[256] = "one of:";
    for (int i = 0; strcmp(s->info.key, "select") == 0 && sfp__selectors[i]; i++) {
        if (strcmp(sfp__selectors[i]->name, value) == 0) {
            *to = sfp__selectors[i]->name;
            return SFP_OK;
        }
        size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, " %s", sfp__selectors[i]->name);
    }
    for (int i = 0; strcmp(s->info.key, "buffer") == 0 && sfp__buffer_methods[i]; i++) {
        if (strcmp(sfp__buffer_methods[i]->name, value) == 0) {
            *to = sfp__buffer_methods[i]->name;
            return SFP_OK;
        }
        size_t used = strlen(known);
        (void)snprintf(known + used, sizeof known - used, " %s", sfp__buffer_methods[i]->name);
    }
    return bad(s, value, known, err);
}

static sfp_status set_layers(const sfp_setting *s, const char *value, sfp_fp_options *fp, sfp_error *err)
{
    int first, last, used = 0;
    if (sscanf(value, "%d-%d%n", &first, &last, &used) != 2 || value[used] || first < 0 || last < first || (double)last > s->max)
        return bad(s, value, "two layers, e.g. 0-4", err);
    fp->first_layer = first;
    fp->last_layer = last;
    return SFP_OK;
}

static void set_norm(sfp_learner_options *o, const sfp_vit_config *vit, int which)
{
    static const float imagenet[2][3] = {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
    for (int i = 0; i < 3; i++) {
        o->mean[i] = which == 0 ? vit->mean[i] : which == 1 ? 0 : which == 2 ? imagenet[0][i] : 0.5f;
        o->std[i] = which == 0 ? vit->std[i] : which == 1 ? 1 : which == 2 ? imagenet[1][i] : 0.5f;
    }
}

static sfp_status set_seed(const sfp_setting *s, const char *value, uint64_t *to, sfp_error *err)
{
    char *end;
    errno = 0;
    unsigned long long x = strtoull(value, &end, 10);
    if (end == value || *end || errno || value[0] < '0' || value[0] > '9')
        return bad(s, value, "a whole number from 0 to 2^64 - 1", err);
    *to = x;
    return SFP_OK;
}

static sfp_status apply(const sfp_setting *s, sfp_learner_options *o, const sfp_vit_config *vit, const char *value, sfp_error *err)
{
    void *at = (char *)o + s->offset;
    double x = 0;
    sfp_status status = SFP_OK;
    int word = word_of(s->info.values, value);
    switch (s->type) {
    case SFP_SETTING_INT:
        if (!(status = number(s, value, true, &x, err)))
            *(int *)at = (int)x;
        return status;
    case SFP_SETTING_SIZE:
        if (!(status = number(s, value, true, &x, err)))
            *(size_t *)at = (size_t)x;
        return status;
    case SFP_SETTING_SEED:
        return set_seed(s, value, at, err);
    case SFP_SETTING_REAL:
        if (!(status = number(s, value, false, &x, err)))
            *(double *)at = x;
        return status;
    case SFP_SETTING_FLOAT:
        if (!(status = number(s, value, false, &x, err)))
            *(float *)at = (float)x;
        return status;
    case SFP_SETTING_NAME:
        return set_name(s, value, at, err);
    case SFP_SETTING_LAYERS:
        return set_layers(s, value, &o->fp, err);
    case SFP_SETTING_TASKS:
        if (strcmp(value, "free") == 0)
            o->fp.tasks = 0;
        else if (!(status = number(s, value, true, &x, err)))
            o->fp.tasks = (int)x;
        return status;
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

_Static_assert(sizeof(sfp_coreset_mode) == sizeof(unsigned) && sizeof(sfp_drift) == sizeof(unsigned), "enums are stored as unsigned");

sfp_status sfp__settings_apply(sfp_learner_options *o, const sfp_vit_config *vit, const char *key, const char *value, sfp_error *err)
{
    for (int i = 0; i < sfp__settings_count; i++)
        if (strcmp(sfp__settings[i].info.key, key) == 0)
            return apply(&sfp__settings[i], o, vit, value, err);
    return sfp__fail(err, SFP_EINVAL, "there is no setting '%.80s'", key);
}
