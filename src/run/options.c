#include "run/options.h"

#include "fingerprint/attune.h"
#include "learner/settings.h"
#include "learner/settings_list.h"
#include "stream/source.h"
#include "stream/tasks.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define FASHION "/usr/share/datasets/fashion-mnist"

/* ----------------------------------------------------------------------- checks of values that are kept as text */

static sfp_status check_learner(const sfp__opt *o, const char *text, sfp_error *err)
{
    return sfp__settings_check(o->name, text, err);
}

static sfp_status check_source(const sfp__opt *o, const char *text, sfp_error *err)
{
    sfp_error found = {0};
    sfp_status status = sfp__source_check(text, &found);
    if (status) {
        sfp__fail_rename(&found, o->name, o->name);
        *err = found;
    }
    return status;
}

/* At a lower rate, times of arrival could overflow. */
static const double min_rate = 1e-9;

/* 0: max. */
static bool parse_rate(const char *text, double *out)
{
    *out = 0;
    return strcmp(text, "max") == 0 || (sfp__parse_real(text, out) && *out >= min_rate);
}

static sfp_status check_rate(const sfp__opt *o, const char *text, sfp_error *err)
{
    double rate;
    if (parse_rate(text, &rate))
        return SFP_OK;
    return sfp__fail_key(err, o->name, SFP_EINVAL, "%s is '%s', expected samples per second (%g or more), or max", o->name, text,
                         min_rate);
}

double sfp__run_rate(const sfp__args *a)
{
    double rate;
    (void)parse_rate(sfp__args_string(a, "rate"), &rate);
    return rate;
}

static sfp_status check_img_size(const sfp__opt *o, const char *text, sfp_error *err)
{
    int64_t n;
    if (strcmp(text, SFP_IMG_SIZE_AUTO) == 0 || (sfp__parse_int(text, &n) && n >= 0 && n <= SFP_IMG_SIZE_MAX))
        return SFP_OK;
    return sfp__fail_key(err, o->name, SFP_EINVAL, "%s is '%s', expected 0 to %d, or " SFP_IMG_SIZE_AUTO, o->name, text,
                         SFP_IMG_SIZE_MAX);
}

/* authors:K is -K. */
static bool parse_order(const char *text, int *out)
{
    static const char authors[] = "authors:";
    bool theirs = strncmp(text, authors, sizeof authors - 1) == 0;
    int64_t n = 0;
    bool fine = sfp__parse_int(theirs ? text + sizeof authors - 1 : text, &n) && n >= theirs && n <= INT32_MAX;
    *out = (int)(theirs ? -n : n);
    return fine;
}

static sfp_status check_order(const sfp__opt *o, const char *text, sfp_error *err)
{
    int order;
    if (parse_order(text, &order))
        return SFP_OK;
    return sfp__fail_key(err, o->name, SFP_EINVAL, "%s is '%s', expected 0 to %d, or authors:K with K from 1", o->name, text,
                         INT32_MAX);
}

/* 0: after each task. */
static bool parse_eval_every(const char *text, int *out)
{
    int64_t n = 0;
    bool fine = strcmp(text, "task") == 0 || (sfp__parse_int(text, &n) && n >= 1 && n <= INT_MAX);
    *out = (int)n;
    return fine;
}

static sfp_status check_eval_every(const sfp__opt *o, const char *text, sfp_error *err)
{
    int n;
    if (parse_eval_every(text, &n))
        return SFP_OK;
    return sfp__fail_key(err, o->name, SFP_EINVAL, "%s is '%s', expected task, or a number of timestamps", o->name, text);
}

#define CLASSES_WORDS "open|strict"

/* The number of a learner, or the words of a run. */
static sfp_status check_classes(const sfp__opt *o, const char *text, sfp_error *err)
{
    if (sfp__word_index(CLASSES_WORDS, text) >= 0 || sfp__settings_check(o->name, text, NULL) == SFP_OK)
        return SFP_OK;
    return sfp__fail_key(err, o->name, SFP_EINVAL, "%s is '%s', expected open or strict; for a learner, a whole number from 0",
                         o->name, text);
}

/* Whether the stream has these classes and domains is checked when it is open. */
static sfp_status check_tasks(const sfp__opt *o, const char *text, sfp_error *err)
{
    (void)o;
    return sfp__task_spec_check(text, err);
}

/* ----------------------------------------------------------------------------------------------------------- the table */

/* Numbers of the learner stay text: the learner checks them, and takes 1e6 for a whole number. */
#define ROW_TEXT(k, v, d, h, ...) \
    {.name = k, .type = SFP_OPT_STRING, .arg = v, .default_value = d, .help = h, .check = check_learner, __VA_ARGS__},
#define ROW_INT ROW_TEXT
#define ROW_SEED ROW_TEXT
#define ROW_REAL ROW_TEXT
#define ROW_FLOAT ROW_TEXT
#define ROW_LAYERS ROW_TEXT
#define ROW_SELECTOR(k, v, d, h, ...) \
    {.name = k, .type = SFP_OPT_STRING, .arg = v, .default_value = d, .help = h, .word = sfp__selector_name, __VA_ARGS__},
#define ROW_BUFFER(k, v, d, h, ...) \
    {.name = k, .type = SFP_OPT_STRING, .arg = v, .default_value = d, .help = h, .word = sfp__buffer_method_name, __VA_ARGS__},
#define ROW_TASKS(k, v, d, h, ...)                                                                                         \
    {.name = k,                                                                                                            \
     .type = SFP_OPT_STRING,                                                                                               \
     .arg = "J|SIZES|domain[:a,b]|time|free",                                                                              \
     .check = check_tasks,                                                                                                 \
     .help = "How the stream is split into tasks: J groups of classes of equal size, groups of SIZES (3,2,2), by domain, " \
             "by time, or not at all (free). Default: the tasks of the dataset, else free; without --data 5."},
#define ROW_CLASSES(k, v, d, h, ...)                                                                                       \
    {.name = k,                                                                                                            \
     .type = SFP_OPT_STRING,                                                                                               \
     .arg = CLASSES_WORDS,                                                                                                 \
     .default_value = "open",                                                                                              \
     .check = check_classes,                                                                                               \
     .resume = SFP_NOT_SAVED,                                                                                              \
     .help = "Live streams: what happens to a label that is not the name of a known class. open: it adds a class, with a " \
             "warning if it resembles another; strict: the sample is skipped. Known are the classes of classes.txt, of "   \
             "stdin:FILE and of the state from which the run starts. A learner in a program has a number instead."},
#define ROW_CHOICE(k, v, d, h, ...) {.name = k, .type = SFP_OPT_CHOICE, .arg = v, .default_value = d, .help = h, __VA_ARGS__},
#define ROW_FLIP ROW_CHOICE
#define ROW_NORM ROW_CHOICE
#define ROW_FLAG(k, v, d, h, ...) {.name = k, .type = SFP_OPT_FLAG, .default_value = d, .help = h, __VA_ARGS__},
#define SETTING_ROW(type, key, values, default_value, help, place, min, max, ...) \
    ROW_##type(key, values, default_value, help, __VA_ARGS__)

#define AT(member) SFP_AT(sfp__run_options, member)

/* The order of the rows is that of "config" in result.json. */
const sfp__opt sfp__run_table[] = {
    SFP_ROW_GROUP("Data"),
    SFP_ROW_STRING("data", "KIND:PATH", "idx:" FASHION,
                   "The stream. 'streamfp data' lists the kinds of sources. Without it: Fashion-MNIST in 5 tasks.", AT(data),
                   .check = check_source),
    SFP_ROW_STRING("test", "KIND:PATH", NULL, "The test set. Default: the test part of the dataset, if it has one.", AT(test),
                   .resume = SFP_RESUME_LIVE, .check = check_source),
    SFP_SETTINGS_STREAM(SETTING_ROW)
        SFP_ROW_STRING("order", "SEED|authors:K", "0",
                       "Order of the classes; 0: natural order, else the seed of a random order. authors:K: class order K of the "
                       "paper's authors; the first is the natural order.",
                       .check = check_order),
    SFP_ROW_CHOICE("within", "shuffle|class|given", NULL,
                   "Order of the samples within a task: shuffled by the seed, one class after the other as in the paper, or as "
                   "the source gives them. Default: given if the source keeps its order, else shuffle."),
    SFP_SETTINGS_INPUT(SETTING_ROW) SFP_ROW_GROUP("Backbone"),
    SFP_ROW_STRING(
        "backbone", "FILE|builtin", "builtin",
        "Pretrained ViT: a safetensors, PyTorch (.pth, .bin) or .npz file; builtin: the one that the program contains."),
    SFP_ROW_STRING("img-size", "N|auto", "0",
                   SFP_IMG_SIZE_HELP
                   " auto (preset best): about half as many patches if at --rate images arrive more "
                   "than five times as fast as they can be queried, else the size of the file. A run that resumes "
                   "or has --init-state keeps its size.",
                   .check = check_img_size),
    SFP_ROW_CHOICE("precision", "f32|bf16", "f32", "Precision of matrix products; bf16 where the CPU supports it."),
    SFP_ROW_GROUP("Clock"),
    SFP_ROW_STRING("rate", "LAMBDA|max", "max",
                   "Arrival rate in samples per second, whether or not the learner is ready; max: no sample waits or is dropped.",
                   .resume = SFP_RESUME_LIVE, .check = check_rate),
    SFP_ROW_CHOICE(
        "clock", "paper|virtual|real|off", NULL,
        "Model of time: decides what happens to samples that arrive while the learner is busy. Default: off without a "
        "rate; with a rate virtual, or real on a live stream. On a live stream clock real needs no rate: images arrive "
        "at their own rate.",
        .resume = SFP_RESUME_LIVE),
    SFP_ROW_INT("calibrate", "N", "20", 1, 100000,
                "Clock paper: number of batches to measure, after 3 warm-up batches, on a copy of the learner.", AT(calibrate)),
    SFP_ROW_STRING("costs", "FILE", NULL,
                   "Clock paper or virtual: file of processing times in seconds, one per line, used in turn instead of measured "
                   "times. This makes a run repeatable.",
                   AT(costs)),
    SFP_ROW_INT("queue", "N", "0", 0, 100000,
                "Clock virtual or real: maximum number of batches that wait while the learner is busy.", AT(queue),
                .resume = SFP_RESUME_LIVE),
    SFP_ROW_CHOICE("queue-policy", "drop-oldest|drop-newest|block", "drop-oldest",
                   "Action if the queue is full: drop a batch, or block the source.", AT(policy), .resume = SFP_RESUME_LIVE),
    SFP_ROW_CHOICE(
        "allocate", "fixed|adaptive", "fixed",
        "Closed-form heads: which samples are learned from if more arrive than can be queried: the batches that the clock "
        "leaves (fixed), or samples chosen among all that arrived, balanced over classes (adaptive).",
        AT(allocate), .resume = SFP_RESUME_LIVE),
    SFP_ROW_INT("label-queue", "N", "1000", 0, 1000000,
                "Live streams that cannot deliver an image again: maximum number of images that wait for their label; if it is "
                "exceeded, the oldest is dropped.",
                AT(pending), .resume = SFP_RESUME_ANY),
    SFP_ROW_GROUP("Learner"),
    SFP_ROW_CHOICE(
        "preset", "best|paper", "best",
        "best: the best known settings, a closed-form head; paper: StreamFP as published, which trains fingerprints, with clock "
        "paper if there is a rate. Options that are given replace those of the preset."),
    SFP_SETTINGS_TRAIN(SETTING_ROW) SFP_ROW_STRING(
        "init-state", "FILE|DIR", NULL, "Start with what a run has learned: its directory, checkpoint or state.", AT(init_state)),
    SFP_ROW_GROUP("Coreset"),
    SFP_SETTINGS_SELECT(SETTING_ROW) SFP_ROW_GROUP("Buffer"),
    SFP_SETTINGS_BUFFER(SETTING_ROW) SFP_ROW_GROUP("Fingerprints"),
    SFP_SETTINGS_FINGERPRINT(SETTING_ROW) SFP_ROW_GROUP("Head"),
    SFP_SETTINGS_CLOSED_FORM(SETTING_ROW)
        SFP_ROW_STRING("method", "NAME", NULL, "Closed-form head, which has no selection, training steps and buffer.",
                       .word = sfp__head_name, AT(method)),
    SFP_ROW_GROUP("Evaluation and output"),
    SFP_ROW_STRING("eval-every", "task|N", "task", "Evaluate after each task; N: also every N timestamps.",
                   .resume = SFP_RESUME_ANY, .check = check_eval_every),
    SFP_ROW_INT("eval-limit", "N", "0", 0, INT32_MAX,
                "Maximum number of test samples per task (without tasks: of the whole test set); 0: all.", AT(eval_limit),
                .resume = SFP_RESUME_LIVE),
    SFP_ROW_SWITCH(
        "diagnostics", "off",
        "Measure the cost of coresets, how well the buffer represents the stream, and the correlation of the gradients "
        "of tasks. This takes time that the clock does not count.",
        AT(diagnostics)),
    SFP_ROW_REAL(
        "max-skipped", "SHARE", "0.01", 0, 1,
        "Share of the images of a dataset, and of its test set, that may be unreadable, rounded up to a number of images. "
        "They are skipped; if there are more, the run fails.",
        AT(max_skipped), .resume = SFP_NOT_SAVED),
    SFP_ROW_STRING("cache", "DIR", NULL,
                   "Directory in which queries and embeddings of images are stored and found again by later runs with the same "
                   "backbone. Changes no result: the clock charges the time of the real passes. Several runs may share it.",
                   AT(cache), .resume = SFP_NOT_SAVED),
    SFP_ROW_INT("cache-size", "MIB", "4096", 1, 1 << 30, "Maximum size of the cache in MiB; if it is full, nothing is added.",
                AT(cache_mebibytes), .resume = SFP_NOT_SAVED),
    SFP_ROW_STRING("out", "DIR", NULL,
                   "Directory for the results: result.json, events.jsonl, state.safetensors, checkpoint, report.html. A finished "
                   "run in it is replaced. Default: runs/N in the current directory.",
                   AT(out), .resume = SFP_NOT_SAVED),
    SFP_ROW_REAL(
        "checkpoint-every", "SECONDS", NULL, 0, 1e6,
        "Seconds between checkpoints: of training, or on live streams and with --clock real of wall time. Default: 2, for a "
        "watched directory 300, for other live streams 10; more if checkpoints are large, or take more than 2 % of the time.",
        .resume = SFP_NOT_SAVED),
    SFP_ROW_REAL(
        "max-wait", "SECONDS", NULL, 0, 1e6,
        "Live streams: an incomplete batch is learned this time after its first sample arrived, or when an image without a label "
        "arrives. Default: 1; on standard input with --clock off, batches wait until they are full.",
        .resume = SFP_NOT_SAVED),
    SFP_ROW_INT("log-size", "BYTES", "67108864", 0, INT64_C(1) << 50,
                "Live streams: events.jsonl and predictions.jsonl become NAME.1 before they exceed this size; 0: never.",
                AT(log_bytes), .resume = SFP_NOT_SAVED),
    SFP_ROW_INT("log-files", "N", "4", 0, 1000,
                "Live streams: number of rotated files NAME.1, NAME.2, ... of a log that are kept.", AT(log_files),
                .resume = SFP_NOT_SAVED),
    SFP_ROW_FLAG(
        "resume",
        "Resume from DIR/checkpoint. If there is no checkpoint, the run starts from the beginning; a finished run is not "
        "changed. The options must be as before, except threads, eval-every, label-queue and, on live streams, rate, "
        "clock, queue, queue-policy, allocate, test and eval-limit.",
        AT(resume), .resume = SFP_NOT_SAVED),
    SFP_ROW_GROUP("Program"),
    SFP_ROW_THREADS,
};
const size_t sfp__run_table_count = sizeof sfp__run_table / sizeof *sfp__run_table;

/* ------------------------------------------------------------------------------------------------------------- presets */

enum { PRESET_BEST, PRESET_PAPER }; /* the words of the row */

/* When an option of a preset is set, beside the choice of the preset. */
typedef enum preset_condition {
    PRESET_ALWAYS,
    PRESET_IF_RATED,      /* there is an arrival rate */
    PRESET_IF_RIDGE,      /* the head is ridge, and the user has not chosen its taps */
    PRESET_IF_ALLOCATABLE /* the user has not chosen another way to spend the time */
} preset_condition;

/* Clock paper keeps batches before the stream begins, so it leaves nothing to allocate. */
static bool is_allocatable(const sfp__args *a)
{
    const char *clock = sfp__args_text(a, "clock");
    return !sfp__args_given(a, "queue") && !sfp__args_given(a, "queue-policy") && !(clock && strcmp(clock, "paper") == 0);
}

static bool holds(const sfp__args *a, preset_condition condition)
{
    double rate;
    switch (condition) {
    case PRESET_IF_RATED:
        return parse_rate(sfp__args_string(a, "rate"), &rate) && rate > 0;
    case PRESET_IF_RIDGE:
        return strcmp(sfp__args_string(a, "method"), "ridge") == 0 && !sfp__args_given(a, "taps");
    case PRESET_IF_ALLOCATABLE:
        return is_allocatable(a);
    default:
        return true;
    }
}

static const struct {
    int preset;
    preset_condition condition;
    const char *key, *value;
} preset_settings[] = {
    {PRESET_PAPER, PRESET_IF_RATED, "clock", "paper"},   {PRESET_PAPER, PRESET_IF_RATED, "calibrate", "500"},
    {PRESET_BEST, PRESET_ALWAYS, "method", "ridge"},     {PRESET_BEST, PRESET_ALWAYS, "img-size", SFP_IMG_SIZE_AUTO},
    {PRESET_BEST, PRESET_ALWAYS, "taps", "0"},           {PRESET_BEST, PRESET_IF_RIDGE, "tap-mean", "on"},
    {PRESET_BEST, PRESET_IF_RIDGE, "ridge", "balanced"}, {PRESET_BEST, PRESET_IF_ALLOCATABLE, "allocate", "adaptive"}};
enum { PRESET_SETTINGS = sizeof preset_settings / sizeof *preset_settings };

/* Does the preset in use set row i of the list? */
static bool is_in_preset(const sfp__args *a, int i)
{
    return preset_settings[i].preset == sfp__args_choice(a, "preset") && holds(a, preset_settings[i].condition);
}

static sfp_status set_preset(sfp__args *a, sfp_error *err)
{
    TRY(sfp__args_clear_rank(a, SFP_RANK_PRESET, err));
    for (int i = 0; i < PRESET_SETTINGS; i++)
        if (is_in_preset(a, i))
            TRY(sfp__args_set(a, preset_settings[i].key, preset_settings[i].value, SFP_RANK_PRESET, "preset", err));
    return SFP_OK;
}

sfp_status sfp__run_record_preset(const sfp__args *a, sfp_result *r, sfp_error *err)
{
    for (int i = 0; a && i < PRESET_SETTINGS; i++)
        if (is_in_preset(a, i))
            TRY(sfp__result_preset(r, preset_settings[i].key, preset_settings[i].value, err));
    return SFP_OK;
}

sfp_status sfp__run_args_init(sfp__args *a, sfp_error *err)
{
    OWNED_BY(sfp__args_done) sfp__args made = {0};
    TRY(sfp__args_init(&made, "run", sfp__run_table, sfp__run_table_count, err));
    TRY(set_preset(&made, err));
    *a = TAKE(made);
    return SFP_OK;
}

/* Other settings decide which options of a preset are set. */
sfp_status sfp__run_set(sfp__args *a, const char *key, const char *text, sfp__opt_rank rank, const char *origin, sfp_error *err)
{
    TRY(sfp__args_set(a, key, text, rank, origin, err));
    return set_preset(a, err);
}

/* -------------------------------------------------------------------------------------------------------- the learner */

/* Layers that were set must exist; the default is reduced to those that do (sfp__learner_options_defaults). */
static sfp_status read_layers(const sfp__args *a, const sfp__vit_config *vit, sfp__learner_options *o, char *note, sfp_error *err)
{
    const char *value = sfp__args_value(a, "prompt-layers");
    sfp__fp_options *fp = &o->fp;
    int last = fp->last_layer; /* of the default, reduced */
    TRY(sfp__settings_apply(o, vit, "prompt-layers", value, err));
    if (sfp__args_rank(a, "prompt-layers") > SFP_RANK_PRESET && fp->last_layer >= vit->depth)
        return sfp__fail_key(err, "prompt-layers", SFP_EINVAL,
                             "prompt-layers is '%s', expected layers up to %d: this backbone has %d blocks", value,
                             vit->depth - 1, vit->depth);
    if (fp->last_layer >= vit->depth) {
        if (!sfp__args_string(a, "method") && fp->kind != SFP_FP_L2P)
            (void)snprintf(note, SFP_ERROR_MAX,
                           "prompt-layers: this backbone has %d blocks, so layers 0-%d get prefixes instead of %s", vit->depth,
                           last, value);
        fp->last_layer = last;
    }
    if (fp->kind == SFP_FP_L2P && sfp__args_given(a, "prompt-layers") && fp->last_layer > fp->first_layer)
        return sfp__fail_key(err, "prompt-layers", SFP_EINVAL,
                             "prompt-layers is '%s', expected one layer (%d-%d) with pool-kind l2p", value, fp->first_layer,
                             fp->first_layer);
    return SFP_OK;
}

/* Returns how many blocks a backbone must have if this setting is on; 0: any number. */
static int needs_blocks(const char *key)
{
    return strcmp(key, "attune") == 0 ? SFP_ATTUNE_MAPS : strcmp(key, "tap-mean") == 0 ? 2 : 0;
}

sfp_status sfp__run_learner_options(const sfp__args *a, const sfp__vit_config *vit, bool alone, sfp__learner_options *o,
                                    char *note, sfp_error *err)
{
    *note = '\0';
    if (vit->rows && !sfp__args_string(a, "method"))
        return sfp__fail_key(
            err, "method", SFP_EUNSUPPORTED,
            "method is none with preset %s, expected ridge, slda, ncm or ranpac: nothing can be trained on features",
            sfp__args_text(a, "preset"));
    for (int i = 0; i < sfp__settings_count; i++) {
        const sfp__setting *s = &sfp__settings[i];
        const char *value = sfp__args_value(a, s->info.key);
        if (value && sfp__args_rank(a, s->info.key) <= SFP_RANK_PRESET && needs_blocks(s->info.key) > vit->depth)
            value = "off"; /* defaults and presets do not know the backbone */
        if (!alone && (s->type == SFP_SETTING_TASKS || s->type == SFP_SETTING_CLASSES))
            continue; /* the stream has them */
        bool open = s->type == SFP_SETTING_CLASSES && strcmp(value, "open") == 0;
        if (open || (!value && s->type == SFP_SETTING_TASKS))
            value = s->info.default_value; /* which is that of a learner, not that of a run */
        if (value && s->type == SFP_SETTING_LAYERS)
            TRY(read_layers(a, vit, o, note, err));
        else if (value)
            TRY(sfp__settings_apply(o, vit, s->info.key, value, err));
    }
    if (vit->rows) { /* which a pass restores from them */
        memcpy(o->mean, vit->mean, sizeof o->mean);
        memcpy(o->std, vit->std, sizeof o->std);
    }
    size_t length = strlen(note);
    if (vit->depth < SFP_ATTUNE_MAPS && sfp__args_flag(a, "attune") && !sfp__args_string(a, "method"))
        (void)snprintf(note + length, SFP_ERROR_MAX - length, "%sattune is off: it needs %d blocks", length ? "; " : "",
                       SFP_ATTUNE_MAPS);
    return SFP_OK;
}

/* ------------------------------------------------------------------------------------------------------------- the run */

static sfp_status read_clock(const sfp__args *a, sfp__run_options *o, sfp_error *err)
{
    bool max = parse_rate(sfp__args_string(a, "rate"), &o->rate) && !(o->rate > 0);
    int clock = sfp__args_choice(a, "clock");
    o->clock = clock < 0 ? SFP_CLOCK_DEFAULT : (sfp__clock_kind)clock;
    o->clock_of_preset = sfp__args_rank(a, "clock") == SFP_RANK_PRESET;
    if (max && clock >= 0 && sfp__args_rank(a, "rate") > SFP_RANK_DEFAULT)
        o->clock = SFP_CLOCK_OFF; /* rate max is clock off */
    if ((o->clock == SFP_CLOCK_PAPER || o->clock == SFP_CLOCK_VIRTUAL) && max)
        return sfp__fail_key(err, "clock", SFP_EINVAL,
                             "clock %s: this clock needs an arrival rate; use --rate LAMBDA (samples per second)",
                             sfp__args_text(a, "clock"));
    return SFP_OK;
}

sfp_status sfp__run_options_store(const sfp__args *a, bool own_source, sfp__run_options *o, sfp_error *err)
{
    sfp__args_store(a, o);
    o->given = a;
    o->tasks = sfp__args_string(a, "tasks");
    if (own_source && sfp__args_rank(a, "data") <= SFP_RANK_DEFAULT)
        o->data = NULL;
    else if (!o->tasks && sfp__args_rank(a, "data") <= SFP_RANK_DEFAULT)
        o->tasks = "5";
    TRY(read_clock(a, o, err));
    (void)parse_eval_every(sfp__args_string(a, "eval-every"), &o->eval_every);
    (void)parse_order(sfp__args_string(a, "order"), &o->order);
    o->within = (sfp__within)(sfp__args_choice(a, "within") + 1); /* not set: DEFAULT */
    o->max_wait = sfp__args_text(a, "max-wait") ? sfp__args_real(a, "max-wait") : NAN;
    o->checkpoint_seconds = sfp__args_text(a, "checkpoint-every") ? sfp__args_real(a, "checkpoint-every") : NAN;
    o->drop_short = sfp__args_choice(a, "preset") == PRESET_PAPER;
    return SFP_OK;
}

sfp_status sfp__run_options_read(const sfp__args *a, bool own_source, sfp__run_options *o, char *note, sfp_error *err)
{
    *note = '\0';
    const char *classes = sfp__args_string(a, "classes");
    if (sfp__word_index(CLASSES_WORDS, classes) < 0)
        return sfp__fail_key(err, "classes", SFP_EINVAL,
                             "classes is %s, expected open or strict: the stream determines its classes", classes);
    o->strict_classes = strcmp(classes, "strict") == 0;
    TRY(sfp__run_options_store(a, own_source, o, err));
    if (o->resume && !o->out)
        return sfp__fail_key(err, "resume", SFP_EINVAL, "resume needs the directory of the run (--out DIR)");
    TRY(sfp__run_learner_options(a, &o->vit->config, false, &o->learner, note, err));
    /* a run that resumes was given the same settings before: they were checked then */
    return o->resume ? SFP_OK : sfp__run_check_no_effect(o, NULL, err);
}
