/* streamfp eval: the accuracy of a saved state on a dataset. */
#include "cli/command.h"
#include "cli/engine.h"
#include "cli/output.h"
#include "cli/ui.h"

#include "streamfp.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

enum { PAIRS_SHOWN = 10, UNKNOWN_SHOWN = 10 };

static const sfp__opt options[] = {
    SFP__ROW_STRING(
        "state", "FILE|DIR", NULL,
        "The saved state: a state.safetensors or a run directory. The backbone is resized to the input size of the run."),
    SFP__ROW_STRING("backbone", "FILE|builtin", "builtin",
                    "The backbone of the run; another one is refused. Default: the path in result.json beside the state."),
    SFP__ROW_STRING("data", "KIND:PATH", NULL, "Source of the labelled images. If it has a test part, that part is used."),
    SFP__ROW_STRING("shard", "I/N", NULL, "Evaluate only part I (0 to N-1) of N of the images, as in 'run'."),
    SFP__ROW_CHOICE("part", "test|train", "test", "Part of the dataset to evaluate, if it has both."),
    SFP__ROW_STRING(
        "tasks", "J|SIZES|domain[:a,b]|time|free", NULL,
        "Print the accuracy per task, too. Tasks are as in 'run', over the classes of the state. Default: the domains "
        "or tasks of the dataset, if any."),
    SFP__ROW_INT("eval-limit", "N", "0", 0, INT32_MAX, "Maximum number of images per task; 0: all."),
    SFP__ROW_INT("seed", "N", NULL, 0, INT64_MAX,
                 "Seed of random data: the images of synthetic, the training order of stream51 and clear. Default: the seed of "
                 "the run."),
    SFP__ROW_IMG_SIZE_OF_STATE,
    SFP__ROW_PRECISION_OF_STATE,
    SFP__ROW_THREADS,
    SFP__ROW_JSON,
};

/* An evaluation with the numbers that several rows print. */
typedef struct evaluation {
    const sfp_evaluation *core;
    const sfp_accuracy *tasks, *classes, *unknown;
    int task_count, class_count, unknown_count;
    uint64_t images, correct, skipped, unlabelled, unknown_images;
} evaluation;

static uint64_t count_of(const sfp_evaluation *v, const char *key)
{
    return (uint64_t)sfp_evaluation_number(v, key);
}

static evaluation read_evaluation(const sfp_evaluation *v)
{
    evaluation e = {.core = v,
                    .images = count_of(v, "images"),
                    .correct = count_of(v, "correct"),
                    .skipped = count_of(v, "skipped"),
                    .unlabelled = count_of(v, "unlabelled"),
                    .unknown_images = count_of(v, "unknown")};
    e.tasks = sfp_evaluation_tasks(v, &e.task_count);
    e.classes = sfp_evaluation_classes(v, &e.class_count);
    e.unknown = sfp_evaluation_unknown(v, &e.unknown_count);
    return e;
}

/* --------------------------------------------------------------------- output */

static const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

static const char *was(uint64_t n)
{
    return n == 1 ? "was" : "were";
}

static void put_accuracy(sfp__out *o, const sfp_accuracy *a)
{
    sfp__json_object(&o->json, NULL);
    sfp__json_string(&o->json, "name", a->name);
    sfp__json_exact(&o->json, "accuracy", a->accuracy);
    sfp__json_uint(&o->json, "pictures", a->images);
    sfp__json_end(&o->json);
}

static void put_tasks(sfp__out *o, const evaluation *e)
{
    bool shown = e->task_count > 1;
    if (shown)
        sfp__out_printf(o, "  %-24s %8.4f   mean over tasks\ntasks\n", "average accuracy",
                        sfp_evaluation_number(e->core, "average_accuracy"));
    sfp__json_array(&o->json, "tasks");
    for (int t = 0; t < e->task_count; t++) {
        const sfp_accuracy *a = &e->tasks[t];
        put_accuracy(o, a);
        if (!shown)
            continue;
        sfp__out_printf(o, "  ");
        sfp__out_cell(o, a->name, 24);
        if (a->images)
            sfp__out_printf(o, " %8.4f   %llu image%s\n", a->accuracy, (unsigned long long)a->images, plural(a->images));
        else
            sfp__out_printf(o, "        -   no images of a known class\n");
    }
    sfp__json_end(&o->json);
}

static void put_classes(sfp__out *o, const evaluation *e)
{
    if (e->class_count)
        sfp__out_printf(o, "classes\n");
    sfp__json_array(&o->json, "per_class");
    for (int c = 0; c < e->class_count; c++) {
        const sfp_accuracy *a = &e->classes[c];
        put_accuracy(o, a);
        if (a->images == 0)
            continue;
        sfp__out_printf(o, "  ");
        sfp__out_cell(o, a->name, 24);
        sfp__out_printf(o, " %8.4f   %llu of %llu\n", a->accuracy, (unsigned long long)a->correct, (unsigned long long)a->images);
    }
    sfp__json_end(&o->json);
}

typedef struct pair {
    int truth, answer;
    uint64_t count;
} pair;

/* Finds the most frequent wrong answers, most frequent first; ties are in the order of truth and answer. Returns their number. */
static int find_top_pairs(int classes, const uint64_t *confusion, pair *out /* (PAIRS_SHOWN) */)
{
    int found = 0;
    for (int t = 0; t < classes; t++)
        for (int a = 0; a < classes; a++) {
            uint64_t count = confusion[(size_t)t * (size_t)classes + (size_t)a];
            if (a == t || count == 0 || (found == PAIRS_SHOWN && count <= out[found - 1].count))
                continue;
            int at = found < PAIRS_SHOWN ? found++ : found - 1;
            for (; at > 0 && out[at - 1].count < count; at--)
                out[at] = out[at - 1];
            out[at] = (pair){t, a, count};
        }
    return found;
}

static void put_confusion(sfp__out *o, const evaluation *e)
{
    const uint64_t *confusion = sfp_evaluation_confusion(e->core);
    pair worst[PAIRS_SHOWN];
    if (!confusion)
        return;
    int pairs = find_top_pairs(e->class_count, confusion, worst);
    if (pairs)
        sfp__out_printf(o, "most confused\n");
    for (int i = 0; i < pairs; i++) {
        const sfp_accuracy *truth = &e->classes[worst[i].truth];
        sfp__out_printf(o, "  ");
        sfp__out_cell(o, truth->name, 24);
        sfp__out_printf(o, " as ");
        sfp__out_cell(o, e->classes[worst[i].answer].name, 24);
        sfp__out_printf(o, " %llu of %llu\n", (unsigned long long)worst[i].count, (unsigned long long)truth->images);
    }
    sfp__json_array(&o->json, "confusion");
    for (int t = 0; t < e->class_count; t++) {
        sfp__json_array(&o->json, NULL);
        for (int a = 0; a < e->class_count; a++)
            sfp__json_uint(&o->json, NULL, confusion[(size_t)t * (size_t)e->class_count + (size_t)a]);
        sfp__json_end(&o->json);
    }
    sfp__json_end(&o->json);
}

static void print(const evaluation *e, const char *state, const char *data, bool json)
{
    sfp__out o;
    double seconds = sfp_evaluation_number(e->core, "seconds"), accuracy = sfp_evaluation_number(e->core, "accuracy");
    double rate = seconds > 0 ? (double)e->images / seconds : 0;
    uint64_t all = e->images + e->unknown_images;
    double strict = all ? (double)e->correct / (double)all : NAN;
    double calibration = sfp_evaluation_number(e->core, "calibration_error"),
           before = sfp_evaluation_number(e->core, "calibration_error_before");
    sfp__out_begin(&o, json, 0);
    sfp__json_string(&o.json, "state", state);
    sfp__json_string(&o.json, "data", data);
    sfp__json_exact(&o.json, "accuracy", accuracy);
    sfp__json_exact(&o.json, "average_accuracy", sfp_evaluation_number(e->core, "average_accuracy"));
    sfp__json_exact(&o.json, "accuracy_unknown_as_wrong", strict);
    sfp__json_exact(&o.json, "calibration_error", calibration);
    sfp__json_exact(&o.json, "calibration_error_before", before);
    sfp__json_uint(&o.json, "pictures", e->images);
    sfp__json_uint(&o.json, "right", e->correct);
    sfp__json_uint(&o.json, "skipped", e->skipped);
    sfp__json_uint(&o.json, "unlabelled", e->unlabelled);
    sfp__out_printf(&o, "  %-24s %8.4f   %llu of %llu image%s, %.1f images/s\n", "accuracy", accuracy,
                    (unsigned long long)e->correct, (unsigned long long)e->images, plural(e->images), rate);
    if (e->unknown_count)
        sfp__out_printf(&o, "  %-24s %8.4f   if the %llu image%s of unknown classes count%s as wrong\n", "", strict,
                        (unsigned long long)e->unknown_images, plural(e->unknown_images), e->unknown_images == 1 ? "s" : "");
    if (isfinite(calibration))
        sfp__out_printf(&o, "  %-24s %8.4f", "calibration error", calibration);
    if (isfinite(before))
        sfp__out_printf(&o, "   %.4f before scaling", before);
    sfp__out_printf(&o, isfinite(calibration) ? "\n" : "");
    put_tasks(&o, e);
    put_classes(&o, e);
    put_confusion(&o, e);
    sfp__json_array(&o.json, "unknown_classes");
    for (int i = 0; i < e->unknown_count; i++) {
        sfp__json_object(&o.json, NULL);
        sfp__json_string(&o.json, "name", e->unknown[i].name);
        sfp__json_uint(&o.json, "pictures", e->unknown[i].images);
        sfp__json_end(&o.json);
    }
    sfp__json_end(&o.json);
    sfp__json_real(&o.json, "seconds", seconds);
    sfp__json_real(&o.json, "pictures_per_second", seconds > 0 ? rate : NAN);
    sfp__out_end(&o);
}

static void warn_excluded(const evaluation *e)
{
    if (e->unknown_count)
        sfp__warn("%llu image%s of %d class%s that the state has not learned %s excluded:", (unsigned long long)e->unknown_images,
                  plural(e->unknown_images), e->unknown_count, e->unknown_count == 1 ? "" : "es", was(e->unknown_images));
    for (int i = 0; i < e->unknown_count && i < UNKNOWN_SHOWN; i++) {
        (void)fprintf(stderr, "  ");
        sfp__put_cell(stderr, e->unknown[i].name, 24);
        (void)fprintf(stderr, " %llu\n", (unsigned long long)e->unknown[i].images);
    }
    if (e->unknown_count > UNKNOWN_SHOWN)
        (void)fprintf(stderr, "  and %d more\n", e->unknown_count - UNKNOWN_SHOWN);
    if (e->unlabelled)
        sfp__warn("%llu image%s no label and %s excluded", (unsigned long long)e->unlabelled,
                  e->unlabelled == 1 ? " has" : "s have", e->unlabelled == 1 ? "is" : "are");
    if (e->skipped)
        sfp__warn("%llu image%s could not be read and %s skipped (first: %s)", (unsigned long long)e->skipped, plural(e->skipped),
                  was(e->skipped), sfp_evaluation_first_error(e->core));
}

/* -------------------------------------------------------------------- command */

static void on_progress(void *ctx, uint64_t done, uint64_t total)
{
    if (done == 0)
        sfp__progress_init(ctx, "images", total);
    else
        sfp__progress_update(ctx, done);
}

static const sfp__no_effect_rule no_effect[] = {
    {"part", "test-part=off", "data {data}", "it has no test part"},
    {"seed", "drawn=off", "data {data}", "its images and their order do not depend on a seed"}};

/* Refuses --part and --seed if the dataset has no use for them. The evaluation reports data that cannot be opened. */
static sfp_status check_no_effect(const sfp__args *a, sfp_error *err)
{
    sfp__fact facts[] = {{"test-part", NULL}, {"drawn", NULL}};
    for (int seed = 0; seed < 2; seed++) {
        sfp_source_options o = SFP_SOURCE_OPTIONS_INIT;
        sfp_source *s = NULL;
        o.test = !seed || sfp__args_choice(a, "part") == 0;
        if (!sfp__args_given(a, seed ? "seed" : "part") || sfp_source_open(sfp__args_string(a, "data"), &o, &s, NULL))
            continue;
        facts[seed].value = (seed ? sfp_source_is_seeded(s) : sfp_source_has_test_part(s)) ? "on" : "off";
        sfp_source_close(s);
    }
    return sfp__args_check_no_effect(a, sizeof no_effect / sizeof *no_effect, no_effect, sizeof facts / sizeof *facts, facts,
                                     err);
}

/* The state file: `given` itself, or state.safetensors in the run directory. */
static sfp_status state_file(const char *given, char *buf, size_t size, sfp_error *err)
{
    struct stat st;
    int failed = stat(given, &st);
    if (failed && errno != ENOENT && errno != ENOTDIR)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot read", given);
    bool directory = !failed && S_ISDIR(st.st_mode);
    int n = snprintf(buf, size, "%s%s", given, directory ? "/state.safetensors" : "");
    return n >= 0 && (size_t)n < size ? SFP_OK : sfp__fail(err, SFP_EINVAL, "%.100s...: path is too long", given);
}

static sfp_status evaluate(const sfp__args *a, const char *state, sfp_engine *engine, sfp_error *err)
{
    sfp__progress progress = {0};
    sfp_evaluation *v = NULL;
    sfp_evaluation_options o = SFP_EVALUATION_OPTIONS_INIT;
    o.state = state;
    o.data = sfp__args_string(a, "data");
    o.train_part = sfp__args_choice(a, "part") == 1;
    o.tasks = sfp__args_string(a, "tasks");
    o.shard = sfp__args_string(a, "shard");
    o.limit = (uint64_t)sfp__args_int(a, "eval-limit");
    o.has_seed = sfp__args_text(a, "seed") != NULL;
    o.seed = o.has_seed ? (uint64_t)sfp__args_int(a, "seed") : 0;
    o.progress = on_progress;
    o.ctx = &progress;
    sfp_status status = sfp_evaluate(engine, &o, &v, err);
    sfp__progress_done(&progress);
    if (status)
        return status;
    evaluation e = read_evaluation(v);
    warn_excluded(&e);
    print(&e, state, o.data, sfp__args_flag(a, "json"));
    bool skipped = e.skipped > 0;
    sfp_evaluation_free(v);
    return skipped ? sfp__fail_quietly(err) : SFP_OK;
}

static sfp_status run(const sfp__args *a, sfp_error *err)
{
    sfp_engine *engine = NULL;
    char state[PATH_MAX];
    if (!sfp__args_string(a, "state") || !sfp__args_string(a, "data"))
        return sfp__fail_usage(err, "needs --state FILE|DIR and --data KIND:PATH");
    TRY(check_no_effect(a, err));
    TRY(sfp__cli_check_state(sfp__args_string(a, "state"), err));
    TRY(state_file(sfp__args_string(a, "state"), state, sizeof state, err));
    TRY(sfp__cli_engine_open(a, state, &engine, err));
    sfp_status status = evaluate(a, state, engine, err);
    sfp_engine_close(engine);
    return status;
}

const sfp__command sfp__cmd_eval = {
    .name = "eval",
    .summary = "measure a saved state on labelled images",
    .text =
        "Predicts every image of a dataset with the saved state of a run. Prints the accuracy overall, per task or domain and "
        "per "
        "class, and the pairs of classes that are confused most often. Classes are matched by name. Images of classes that the "
        "state has not learned are reported, counted and excluded.\n\n"
        "The exit status is 1 if images could not be read.",
    .examples = "  streamfp eval --state runs/3 --data folder:pacs/test\n"
                "  streamfp eval --state runs/3/state-task-2.safetensors --backbone deit_tiny.safetensors --data "
                "folder:pacs/test --tasks 3,2,2\n",
    SFP__COMMAND_OPTIONS(options),
    .run = run,
};
