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

static sfp_status check_shard(const sfp__opt *o, const char *text, sfp_error *err)
{
    int index, count;
    (void)o;
    return sfp__shard_parse(text, &index, &count, err);
}

/* Parses the order of the classes; authors:K becomes -K. */
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

#define CLASSES_WORDS "open|strict"

/* Accepts the words of a run, and the number of classes of a learner. */
static sfp_status check_classes(const sfp__opt *o, const char *text, sfp_error *err)
{
    sfp__learner_options scratch;
    if (sfp__word_index(CLASSES_WORDS, text) >= 0 || sfp__learner_set(&scratch, o->name, text, NULL) == SFP_OK)
        return SFP_OK;
    return sfp__fail_key(err, o->name, SFP_EINVAL, "%s is '%s', expected open or strict; for a learner, a whole number from 0",
                         o->name, text);
}

/* Checks only the form. Whether the stream has these classes and domains is checked after it has been opened. */
static sfp_status check_tasks(const sfp__opt *o, const char *text, sfp_error *err)
{
    (void)o;
    return sfp__task_spec_check(text, err);
}

/* ----------------------------------------------------------------------------------------------------------- the table */

#define AT(member) SFP__AT(sfp__run_options, member)
#define LEARNER(member) SFP__AT(sfp__run_options, learner.member)
#define ONLY_LIVE .only = SFP__ONLY_LIVE
#define OUTPUT .changes = SFP__CHANGES_NOTHING, .resume = SFP__NOT_SAVED
#define RESULT_ONLY .changes = SFP__CHANGES_RESULT

/* The order of the rows is that of "config" in result.json. */
const sfp__opt sfp__run_table[] = {
    SFP__ROW_GROUP("Data"),
    SFP__ROW_STRING("data", "KIND:PATH", "idx:" FASHION,
                    "The stream. 'streamfp data' lists the kinds of sources. Without it: Fashion-MNIST in 5 tasks.", AT(data),
                    .check = check_source, .example = "--data folder:pacs/train", .see = "test tasks"),
    SFP__ROW_STRING("test", "KIND:PATH", NULL, "The test set. Default: the test part of the dataset, if it has one.", AT(test),
                    RESULT_ONLY, .resume = SFP__RESUME_LIVE, .check = check_source,
                    .example = "--data folder:pacs/train --test folder:pacs/test", .see = "data eval-every eval-limit"),
    SFP__ROW_STRING(
        "shard", "I/N", NULL,
        "Learn only from part I (0 to N-1) of N of the dataset. Which images are in it depends on their names alone, so that "
        "'streamfp merge' of all N runs is the run of the whole.",
        AT(shard), .only = SFP__ONLY_DATASET, .check = check_shard, .example = "--data folder:photos --shard 0/16",
        .see = "data"),
    SFP__ROW_STRING("tasks", "J|SIZES|domain[:a,b]|time|free", NULL,
                    "How the stream is split into tasks: J groups of classes of equal size, groups of SIZES (3,2,2), by domain, "
                    "by time, or not at all (free). Default: the tasks of the dataset, else free; without --data 5.",
                    AT(tasks), .scope = SFP__SCOPE_LEARNER, .check = check_tasks, .example = "--tasks 3", .see = "data order"),
    SFP__ROW_STRING("classes", CLASSES_WORDS, "open",
                    "Live streams: what happens to a label that is not the name of a known class. open: it adds a class, with a "
                    "warning if it resembles another; strict: the sample is skipped. Known are the classes of classes.txt, of "
                    "stdin:FILE and of the state from which the run starts. A learner in a program has a number instead.",
                    .scope = SFP__SCOPE_LEARNER, ONLY_LIVE, .check = check_classes, .resume = SFP__NOT_SAVED,
                    .example = "--data dir:inbox --classes strict", .see = "data init-state"),
    SFP__ROW_STRING("order", "SEED|authors:K", "0",
                    "Order of the classes; 0: natural order, else the seed of a random order. authors:K: class order K of the "
                    "paper's authors; the first is the natural order.",
                    .only = SFP__ONLY_DATASET, RESULT_ONLY, .check = check_order, .example = "--tasks 3 --order 3",
                    .see = "tasks within seed"),
    SFP__ROW_CHOICE("within", "shuffle|class|given", NULL,
                    "Order of the samples within a task: shuffled by the seed, one class after the other as in the paper, or as "
                    "the source gives them. Default: given if the source keeps its order, else shuffle.",
                    .only = SFP__ONLY_DATASET, .example = "--within class", .see = "order seed"),
    SFP__ROWS_INPUT(LEARNER) SFP__ROW_GROUP("Backbone"),
    SFP__ROW_STRING(
        "backbone", "FILE|builtin", "builtin",
        "Pretrained ViT: a safetensors, PyTorch (.pth, .bin) or .npz file; builtin: the one that the program contains.",
        .scope = SFP__SCOPE_ENGINE, .example = "--backbone builtin", .see = "img-size precision"),
    SFP__ROW_INT(
        "img-size", "N|auto", "0", 0, SFP__IMG_SIZE_MAX,
        SFP__IMG_SIZE_HELP
        " auto (preset best): about half as many patches if at --rate images arrive more than five times as fast as they can "
        "be queried, else the size of the file. A run that resumes or has --init-state keeps its size.",
        .named = {"auto", SFP_IMAGE_SIZE_AUTO}, .scope = SFP__SCOPE_ENGINE, .example = "--img-size 48", .see = "backbone rate"),
    SFP__ROW_CHOICE("precision", SFP__PRECISIONS, "f32", SFP__PRECISION_HELP,
                    .scope = SFP__SCOPE_ENGINE, .example = "--precision f32", .see = "backbone"),
    SFP__ROW_GROUP("Clock"),
    /* the minimum prevents an overflow of arrival times */
    SFP__ROW_REAL("rate", "LAMBDA|max", "max", 1e-9, 1e300,
                  "Arrival rate in samples per second, whether or not the learner is ready; max: no sample waits or is dropped.",
                  AT(rate), .named = {"max", 0}, RESULT_ONLY, .resume = SFP__RESUME_LIVE, .example = "--rate 200",
                  .see = "clock queue allocate"),
    SFP__ROW_CHOICE(
        "clock", "paper|virtual|real|off", NULL,
        "Model of time: decides what happens to samples that arrive while the learner is busy. Default: off without a "
        "rate; with a rate virtual, or real on a live stream. On a live stream clock real needs no rate: images arrive "
        "at their own rate.",
        AT(clock), RESULT_ONLY, .resume = SFP__RESUME_LIVE, .example = "--rate 200 --clock virtual",
        .see = "rate queue calibrate costs"),
    SFP__ROW_INT("calibrate", "N", "20", 1, 100000,
                 "Clock paper: number of batches to measure, divided among the tasks, on a copy of the learner.", AT(calibrate),
                 RESULT_ONLY, .example = "--preset paper --rate 200 --calibrate 5", .see = "clock costs"),
    SFP__ROW_STRING("costs", "FILE", NULL,
                    "Clock paper or virtual: file of processing times in seconds, one per line, used in turn instead of measured "
                    "times. This makes a run repeatable.",
                    AT(costs), RESULT_ONLY, .example = "echo 0.01 >costs.txt\n--rate 200 --costs costs.txt",
                    .see = "clock rate calibrate"),
    SFP__ROW_INT("queue", "N", "0", 0, 100000,
                 "Clock virtual or real: maximum number of batches that wait while the learner is busy.", AT(queue), RESULT_ONLY,
                 .resume = SFP__RESUME_LIVE, .example = "--preset paper --rate 200 --clock virtual --queue 4",
                 .see = "queue-policy rate clock"),
    SFP__ROW_CHOICE("queue-policy", "drop-oldest|drop-newest|block", "drop-oldest",
                    "Action if the queue is full: drop a batch, or block the source.", AT(policy), RESULT_ONLY,
                    .resume = SFP__RESUME_LIVE,
                    .example = "--preset paper --rate 200 --clock virtual --queue 4 --queue-policy drop-newest", .see = "queue"),
    SFP__ROW_CHOICE(
        "allocate", "fixed|adaptive", "fixed",
        "Closed-form heads: which samples are learned from if more arrive than can be queried: the batches that the clock "
        "leaves (fixed), or samples chosen among all that arrived, balanced over classes (adaptive).",
        AT(allocate), .only = SFP__ONLY_CLOSED_FORM, RESULT_ONLY, .resume = SFP__RESUME_LIVE,
        .example = "--rate 200 --allocate fixed", .see = "rate queue"),
    SFP__ROW_INT("label-queue", "N", "1000", 0, 1000000,
                 "Live streams that cannot deliver an image again: maximum number of images that wait for their label; if it is "
                 "exceeded, the oldest is dropped.",
                 AT(pending), .scope = SFP__SCOPE_LEARNER, ONLY_LIVE, RESULT_ONLY, .resume = SFP__RESUME_ANY,
                 .example = "--data stdin: --label-queue 5000", .see = "data classes"),
    SFP__ROW_GROUP("Learner"),
    SFP__ROW_CHOICE(
        "preset", "best|paper", "best",
        "best: the best known settings, a closed-form head; paper: StreamFP as published, which trains fingerprints, with clock "
        "paper if there is a rate. Options that are given replace those of the preset.",
        .scope = SFP__SCOPE_LEARNER, .example = "--preset paper", .see = "method"),
    SFP__ROWS_TRAIN(LEARNER)
        SFP__ROW_STRING("init-state", "FILE|DIR", NULL, "Start with what a run has learned: its directory, checkpoint or state.",
                        AT(init_state), .example = "--data folder:pacs/train --init-state runs/1", .see = "out resume"),
    SFP__ROW_GROUP("Coreset"),
    SFP__ROWS_SELECT(LEARNER) SFP__ROW_GROUP("Buffer"),
    SFP__ROWS_BUFFER(LEARNER) SFP__ROW_GROUP("Fingerprints"),
    SFP__ROWS_FINGERPRINT(LEARNER) SFP__ROW_GROUP("Head"),
    SFP__ROWS_HEAD(LEARNER) SFP__ROW_STRING(
        "method", "NAME", NULL, "Closed-form head, which has no selection, training steps and buffer.", .word = sfp__head_name,
        AT(method), .scope = SFP__SCOPE_LEARNER, .example = "--method slda", .see = "preset taps ridge half-life"),
    SFP__ROW_GROUP("Evaluation and output"),
    SFP__ROW_INT("eval-every", "task|N", "task", 1, INT_MAX, "Evaluate after each task; N: also every N timestamps.",
                 AT(eval_every), .named = {"task", 0}, RESULT_ONLY, .resume = SFP__RESUME_ANY, .example = "--eval-every 2",
                 .see = "eval-limit test"),
    SFP__ROW_INT("eval-limit", "N", "0", 0, INT32_MAX,
                 "Maximum number of test samples per task (without tasks: of the whole test set); 0: all.", AT(eval_limit),
                 RESULT_ONLY, .resume = SFP__RESUME_LIVE, .example = "--eval-limit 20", .see = "eval-every test"),
    SFP__ROW_SWITCH(
        "diagnostics", "off",
        "Measure the cost of coresets, how well the buffer represents the stream, and the correlation of the gradients "
        "of tasks. This takes time that the clock does not count.",
        AT(diagnostics), .only = SFP__ONLY_TRAINED, RESULT_ONLY, .example = "--preset paper --diagnostics",
        .see = "sigma buffer"),
    SFP__ROW_REAL(
        "max-skipped", "SHARE", "0.01", 0, 1,
        "Share of the images of a dataset, and of its test set, that may be unreadable, rounded up to a number of images. "
        "They are skipped; if there are more, the run fails.",
        AT(max_skipped), .only = SFP__ONLY_DATASET, OUTPUT, .example = "--max-skipped 0.05", .see = "data"),
    SFP__ROW_STRING("cache", "DIR", NULL,
                    "Directory in which queries and embeddings of images are stored and found again by later runs with the same "
                    "backbone. Changes no result: the clock charges the time of the real passes. Several runs may share it.",
                    AT(cache), OUTPUT, .example = "--cache queries", .see = "cache-size"),
    SFP__ROW_INT("cache-size", "MIB", "4096", 1, 1 << 30, "Maximum size of the cache in MiB; if it is full, nothing is added.",
                 AT(cache_mebibytes), OUTPUT, .example = "--cache queries --cache-size 1024", .see = "cache"),
    SFP__ROW_STRING(
        "out", "DIR", NULL,
        "Directory for the results: result.json, events.jsonl, state.safetensors, checkpoint, report.html. A finished "
        "run in it is replaced. Default: runs/N in the current directory.",
        AT(out), OUTPUT, .example = "--out runs/first", .see = "resume checkpoint-every"),
    SFP__ROW_REAL(
        "checkpoint-every", "SECONDS", NULL, 0, 1e6,
        "Seconds between checkpoints: of training, or on live streams and with --clock real of wall time. Default: 2, for a "
        "watched directory 300, for other live streams 10; more if checkpoints are large, or take more than 2 % of the time.",
        AT(checkpoint_seconds), OUTPUT, .example = "--checkpoint-every 60", .see = "resume out"),
    SFP__ROW_REAL(
        "max-wait", "SECONDS", NULL, 0, 1e6,
        "Live streams: an incomplete batch is learned this time after its first sample arrived, or when an image without a label "
        "arrives. Default: 1; on standard input with --clock off, batches wait until they are full.",
        AT(max_wait), ONLY_LIVE, OUTPUT, .example = "--data dir:inbox --max-wait 5", .see = "batch data"),
    SFP__ROW_INT("keep-images", "MIB", "1024", 1, INT64_C(1) << 30,
                 "Submitted samples, and watch:DIR,sync: maximum size of the images that are kept for corrections and late "
                 "labels, in MiB. The oldest are removed "
                 "first, but none that still waits to be learned.",
                 AT(image_mebibytes), ONLY_LIVE, OUTPUT, .example = "--data submitted --keep-images 256", .see = "data"),
    SFP__ROW_INT("log-size", "BYTES", "67108864", 0, INT64_C(1) << 50,
                 "Live streams: events.jsonl and predictions.jsonl become NAME.1 before they exceed this size; 0: never.",
                 AT(log_bytes), ONLY_LIVE, OUTPUT, .example = "--data dir:inbox --log-size 1e6", .see = "log-files"),
    SFP__ROW_INT("log-files", "N", "4", 0, 1000,
                 "Live streams: number of rotated files NAME.1, NAME.2, ... of a log that are kept.", AT(log_files), ONLY_LIVE,
                 OUTPUT, .example = "--data dir:inbox --log-files 8", .see = "log-size"),
    SFP__ROW_STRING("share", "DIR", NULL,
                    "redis: and kafka: directory that all workers can reach. It has everything that they learn; 'streamfp merge "
                    "--follow DIR' "
                    "adds it up.",
                    AT(share), ONLY_LIVE, OUTPUT, .example = "--data redis:cams@localhost/plant --share plant",
                    .see = "worker data"),
    SFP__ROW_STRING("worker", "NAME", NULL,
                    "redis: and kafka: name of this worker, under which it resumes. Default: the name of the machine.",
                    AT(worker), ONLY_LIVE, OUTPUT, .example = "--data redis:cams@localhost/plant --share plant --worker w1",
                    .see = "share"),
    SFP__ROW_STRING(
        "answer-with", "FILE", NULL,
        "redis: and kafka: state that answers unlabelled messages, such as the sum of 'streamfp merge --follow'. It is read "
        "again when it changes. Default: what this worker has learned.",
        AT(answer_with), ONLY_LIVE, OUTPUT,
        .example = "--data redis:cams@localhost/plant --share plant --answer-with plant.safetensors", .see = "share"),
    SFP__ROW_REAL("claim-after", "SECONDS", "60", 0.1, 86400,
                  "redis: and kafka: a message that its worker has not committed for so long is learned by another one.",
                  AT(claim_seconds), ONLY_LIVE, OUTPUT,
                  .example = "--data redis:cams@localhost/plant --share plant --claim-after 10", .see = "share worker"),
    SFP__ROW_FLAG(
        "resume",
        "Resume from DIR/checkpoint. If there is no checkpoint, the run starts from the beginning; a finished run is not "
        "changed. The options must be as before, except threads, eval-every, label-queue and, on live streams, rate, "
        "clock, queue, queue-policy, allocate, test and eval-limit.",
        AT(resume), OUTPUT, .example = "--out runs/first --resume", .see = "out checkpoint-every"),
    SFP__ROW_JSON,
    SFP__ROW_GROUP("Program"),
    SFP__ROW_STRING("config", "FILE", NULL, "YAML file of these options; the command line has precedence.",
                    .scope = SFP__SCOPE_COMMAND, OUTPUT,
                    .example = "echo '{data: folder:photos, batch: 10}' >run.yaml\n--config run.yaml", .see = "set"),
    {.name = "set",
     .type = SFP__OPT_PAIR,
     .arg = "KEY=VALUE",
     .help = "The same as --KEY VALUE; may be repeated.",
     .scope = SFP__SCOPE_COMMAND,
     OUTPUT,
     .example = "--set batch=10 --set seed=3",
     .see = "config"},
    SFP__ROW_THREADS,
};
const size_t sfp__run_table_count = sizeof sfp__run_table / sizeof *sfp__run_table;

/* ------------------------------------------------------------------------------------------------------------- presets */

enum { PRESET_BEST, PRESET_PAPER }; /* the words of the row */

/* Additional condition under which a preset sets an option. */
typedef enum preset_condition {
    PRESET_ALWAYS,
    PRESET_IF_RATED,      /* there is an arrival rate */
    PRESET_IF_RIDGE,      /* the head is ridge, and the user has not chosen its taps */
    PRESET_IF_ALLOCATABLE /* the user has not chosen another way to spend the time */
} preset_condition;

static bool holds(const sfp__args *a, preset_condition condition)
{
    const char *clock = sfp__args_text(a, "clock");
    switch (condition) {
    case PRESET_IF_RATED:
        return sfp__args_real(a, "rate") > 0;
    case PRESET_IF_RIDGE:
        return strcmp(sfp__args_string(a, "method"), "ridge") == 0 && !sfp__args_given(a, "taps");
    case PRESET_IF_ALLOCATABLE: /* clock paper keeps batches before the stream begins, so it leaves nothing to allocate */
        return !sfp__args_given(a, "queue") && !sfp__args_given(a, "queue-policy") && !(clock && strcmp(clock, "paper") == 0);
    default:
        return true;
    }
}

static const struct {
    int preset;
    preset_condition condition;
    const char *key, *value;
} preset_settings[] = {{PRESET_PAPER, PRESET_IF_RATED, "clock", "paper"},
                       {PRESET_PAPER, PRESET_IF_RATED, "calibrate", "500"},
                       {PRESET_BEST, PRESET_ALWAYS, "method", "ridge"},
                       {PRESET_BEST, PRESET_ALWAYS, "img-size", "auto"},
                       {PRESET_BEST, PRESET_ALWAYS, "decode", "fast"},
                       {PRESET_BEST, PRESET_ALWAYS, "taps", "0"},
                       {PRESET_BEST, PRESET_IF_RIDGE, "tap-mean", "on"},
                       {PRESET_BEST, PRESET_IF_RIDGE, "ridge", "balanced"},
                       {PRESET_BEST, PRESET_IF_ALLOCATABLE, "allocate", "adaptive"}};
enum { PRESET_SETTINGS = sizeof preset_settings / sizeof *preset_settings };

/* Whether the preset in use sets row i of the list. */
static bool is_in_preset(const sfp__args *a, int i)
{
    return preset_settings[i].preset == sfp__args_choice(a, "preset") && holds(a, preset_settings[i].condition);
}

sfp_status sfp__run_set_preset(sfp__args *a, sfp_error *err)
{
    TRY(sfp__args_clear_rank(a, SFP__RANK_PRESET, err));
    for (int i = 0; i < PRESET_SETTINGS; i++)
        if (is_in_preset(a, i))
            TRY(sfp__args_set(a, preset_settings[i].key, preset_settings[i].value, SFP__RANK_PRESET, "preset", err));
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
    TRY(sfp__run_set_preset(&made, err));
    *a = TAKE(made);
    return SFP_OK;
}

/* Other settings decide which options of a preset are set. */
sfp_status sfp__run_set(sfp__args *a, const char *key, const char *text, sfp__opt_rank rank, const char *origin, sfp_error *err)
{
    TRY(sfp__args_set(a, key, text, rank, origin, err));
    return sfp__run_set_preset(a, err);
}

/* -------------------------------------------------------------------------------------------------------- the learner */

/* Layers that were set must exist; the default is reduced to those that do. */
static sfp_status check_layers(const sfp__args *a, const sfp__vit_config *vit, sfp__fp_options *fp, char *note, sfp_error *err)
{
    const char *value = sfp__args_text(a, "prompt-layers");
    if (sfp__args_rank(a, "prompt-layers") > SFP__RANK_PRESET && fp->last_layer >= vit->depth)
        return sfp__fail_key(err, "prompt-layers", SFP_EINVAL,
                             "prompt-layers is '%s', expected layers up to %d: this backbone has %d blocks", value,
                             vit->depth - 1, vit->depth);
    if (fp->last_layer >= vit->depth) {
        fp->last_layer = vit->depth - 1;
        if (!sfp__args_string(a, "method") && fp->kind != SFP__FP_L2P)
            (void)snprintf(note, SFP_ERROR_MAX,
                           "prompt-layers: this backbone has %d blocks, so layers 0-%d get prefixes instead of %s", vit->depth,
                           fp->last_layer, value);
    }
    if (fp->kind == SFP__FP_L2P && sfp__args_given(a, "prompt-layers") && fp->last_layer > fp->first_layer)
        return sfp__fail_key(err, "prompt-layers", SFP_EINVAL,
                             "prompt-layers is '%s', expected one layer (%d-%d) with pool-kind l2p", value, fp->first_layer,
                             fp->first_layer);
    return SFP_OK;
}

/* Whether a flag is on only by a default or a preset. These do not know the backbone, so the flag may be turned off. */
static bool is_preset(const sfp__args *a, const char *key)
{
    return sfp__args_flag(a, key) && sfp__args_rank(a, key) <= SFP__RANK_PRESET;
}

/* Fits the learner's options, as they were set, to the backbone. */
static sfp_status fit_learner(const sfp__args *a, const sfp__vit_config *vit, sfp__learner_options *o, char *note, sfp_error *err)
{
    *note = '\0';
    if (vit->rows && !sfp__args_string(a, "method"))
        return sfp__fail_key(
            err, "method", SFP_EUNSUPPORTED,
            "method is none with preset %s, expected ridge, slda, ncm or ranpac: nothing can be trained on features",
            sfp__args_text(a, "preset"));
    if (vit->depth < 2 && is_preset(a, "tap-mean"))
        o->tap_mean = false;
    TRY(check_layers(a, vit, &o->fp, note, err));
    sfp__learner_normalise(o, vit, vit->rows ? 0 : sfp__args_choice(a, "normalise"));
    if (vit->depth >= SFP__ATTUNE_MAPS)
        return SFP_OK;
    size_t length = strlen(note);
    if (sfp__args_flag(a, "attune") && !sfp__args_string(a, "method"))
        (void)snprintf(note + length, SFP_ERROR_MAX - length, "%sattune is off: it needs %d blocks", length ? "; " : "",
                       SFP__ATTUNE_MAPS);
    if (is_preset(a, "attune"))
        o->fp.attune = false;
    return SFP_OK;
}

sfp_status sfp__run_learner_options(const sfp__args *a, const sfp__vit_config *vit, sfp__learner_options *o, char *note,
                                    sfp_error *err)
{
    const char *tasks = sfp__args_string(a, "tasks"), *classes = sfp__args_string(a, "classes");
    sfp__run_options all = {.learner = *o};
    sfp__args_store(a, &all);
    all.learner.method = all.method;
    all.learner.fp.tasks = all.learner.fp.classes = 0; /* task-free, and classes are added as they appear */
    TRY(fit_learner(a, vit, &all.learner, note, err));
    if (tasks)
        TRY(sfp__learner_set(&all.learner, "tasks", tasks, err));
    if (strcmp(classes, "open") != 0)
        TRY(sfp__learner_set(&all.learner, "classes", classes, err));
    *o = all.learner;
    return SFP_OK;
}

/* ------------------------------------------------------------------------------------------------------------- the run */

sfp_status sfp__run_options_store(const sfp__args *a, bool own_source, sfp__run_options *o, sfp_error *err)
{
    o->clock = SFP__CLOCK_DEFAULT;
    sfp__args_store(a, o);
    o->given = a;
    if (own_source && sfp__args_rank(a, "data") <= SFP__RANK_DEFAULT)
        o->data = NULL;
    else if (!o->tasks && sfp__args_rank(a, "data") <= SFP__RANK_DEFAULT)
        o->tasks = "5";
    bool max = !(o->rate > 0);
    if (max && sfp__args_text(a, "clock") && sfp__args_rank(a, "rate") > SFP__RANK_DEFAULT)
        o->clock = SFP__CLOCK_OFF; /* rate max means the same as clock off */
    if ((o->clock == SFP__CLOCK_PAPER || o->clock == SFP__CLOCK_VIRTUAL) && max)
        return sfp__fail_key(err, "clock", SFP_EINVAL,
                             "clock %s: this clock needs an arrival rate; use --rate LAMBDA (samples per second)",
                             sfp__args_text(a, "clock"));
    o->clock_of_preset = sfp__args_rank(a, "clock") == SFP__RANK_PRESET;
    o->within = (sfp__within)(sfp__args_choice(a, "within") + 1); /* not set: DEFAULT */
    (void)parse_order(sfp__args_string(a, "order"), &o->order);
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
    TRY(fit_learner(a, &o->vit->config, &o->learner, note, err));
    /* a run that resumes was given the same settings before: they were checked then */
    return o->resume ? SFP_OK : sfp__run_check_no_effect(o, NULL, err);
}
