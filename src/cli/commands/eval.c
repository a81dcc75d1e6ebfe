/* streamfp eval: how well a saved state answers on a data set. */
#include "cli/backbone.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "base/thread_pool.h"
#include "learner/state/state.h"
#include "results/result.h"
#include "run/state_eval.h"
#include "stream/source.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PAIRS_SHOWN = 10, UNKNOWN_SHOWN = 10 };

static const sfp__opt options[] = {
    SFP_ROW_STRING("state", "FILE|DIR", NULL,
                   "What was learned: a state.safetensors, or the folder of a run that has one. The backbone "
                   "is brought to the input size of the run."),
    SFP_ROW_STRING("backbone", "FILE|builtin", "builtin", "The backbone it was learned on; another one is refused."),
    SFP_ROW_STRING("data", "KIND:PATH", NULL, "Labelled images; of a data set with a test part, that part."),
    SFP_ROW_CHOICE("part", "test|train", "test", "Which part of a data set that has both."),
    SFP_ROW_STRING("tasks", "J|SIZES|domain[:a,b]|time|free", NULL,
                   "Accuracy for each of these too, cut as run cuts them: over the classes "
                   "of the state. Default: the data set's domains or tasks, if any."),
    SFP_ROW_INT("eval-limit", "N", "0", 0, INT32_MAX, "Images a task at most; 0: all."),
    SFP_ROW_INT(
        "seed", "N", NULL, 0, INT64_MAX,
        "Of data that is drawn (synthetic; of stream51 and clear the order of the training part). Default: that of the run."),
    SFP_ROW_IMG_SIZE,
    SFP_ROW_CHOICE("precision", "f32|bf16", "f32", "Of the matrix products; bf16 where the CPU has it."),
    SFP_ROW_THREADS,
    SFP_ROW_JSON,
};

static double fraction(uint64_t part, uint64_t of)
{
    return of ? (double)part / (double)of : NAN;
}

/* Of class c: images, and how many were answered right. Needs the confusion matrix. */
static uint64_t tested(const sfp__state_eval *e, int c, uint64_t *right)
{
    const uint64_t *row = e->confusion + (size_t)c * (size_t)e->classes;
    uint64_t n = 0;
    for (int k = 0; k < e->classes; k++)
        n += row[k];
    *right = row[c];
    return n;
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

static void put_tasks(sfp__out *o, const sfp__state_eval *e)
{
    bool shown = e->tasks > 1;
    if (shown)
        sfp__out_printf(o, "  %-24s %8.4f   mean over tasks\ntasks\n", "average accuracy", e->average);
    sfp__json_array(&o->json, "tasks");
    for (int t = 0; t < e->tasks; t++) {
        sfp__json_object(&o->json, NULL);
        sfp__json_string(&o->json, "name", e->task_names[t]);
        sfp__json_exact(&o->json, "accuracy", e->answered[t] ? e->accuracy[t] : NAN);
        sfp__json_uint(&o->json, "pictures", e->answered[t]);
        sfp__json_end(&o->json);
        if (!shown)
            continue;
        sfp__out_printf(o, "  ");
        sfp__out_cell(o, e->task_names[t], 24);
        if (e->answered[t])
            sfp__out_printf(o, " %8.4f   %llu image%s\n", e->accuracy[t], (unsigned long long)e->answered[t],
                            plural(e->answered[t]));
        else
            sfp__out_printf(o, "        -   none of a known class\n");
    }
    sfp__json_end(&o->json);
}

static void put_classes(sfp__out *o, const sfp__state_eval *e)
{
    if (e->confusion)
        sfp__out_printf(o, "classes\n");
    sfp__json_array(&o->json, "per_class");
    for (int c = 0; e->confusion && c < e->classes; c++) {
        uint64_t right, n = tested(e, c, &right);
        sfp__json_object(&o->json, NULL);
        sfp__json_string(&o->json, "name", e->class_names[c]);
        sfp__json_exact(&o->json, "accuracy", fraction(right, n));
        sfp__json_uint(&o->json, "pictures", n);
        sfp__json_end(&o->json);
        if (n == 0)
            continue;
        sfp__out_printf(o, "  ");
        sfp__out_cell(o, e->class_names[c], 24);
        sfp__out_printf(o, " %8.4f   %llu of %llu\n", fraction(right, n), (unsigned long long)right, (unsigned long long)n);
    }
    sfp__json_end(&o->json);
}

static void put_confusion(sfp__out *o, const sfp__state_eval *e)
{
    sfp__confusion_pair worst[PAIRS_SHOWN];
    int pairs = sfp__top_confusions(e->classes, e->confusion, PAIRS_SHOWN, worst);
    if (pairs)
        sfp__out_printf(o, "most confused\n");
    for (int i = 0; i < pairs; i++) {
        uint64_t right, n = tested(e, worst[i].truth, &right);
        sfp__out_printf(o, "  ");
        sfp__out_cell(o, e->class_names[worst[i].truth], 24);
        sfp__out_printf(o, " as ");
        sfp__out_cell(o, e->class_names[worst[i].answer], 24);
        sfp__out_printf(o, " %llu of %llu\n", (unsigned long long)worst[i].count, (unsigned long long)n);
    }
    if (!e->confusion)
        return;
    sfp__json_array(&o->json, "confusion");
    for (int t = 0; t < e->classes; t++) {
        sfp__json_array(&o->json, NULL);
        for (int a = 0; a < e->classes; a++)
            sfp__json_uint(&o->json, NULL, e->confusion[(size_t)t * (size_t)e->classes + (size_t)a]);
        sfp__json_end(&o->json);
    }
    sfp__json_end(&o->json);
}

static void print(const sfp__state_eval *e, const char *state, const char *data, bool json)
{
    sfp__out o;
    double rate = e->seconds > 0 ? (double)e->images / e->seconds : 0;
    double strict = fraction(e->correct, e->images + e->unknown_images);
    sfp__out_begin(&o, json, 0);
    sfp__json_string(&o.json, "state", state);
    sfp__json_string(&o.json, "data", data);
    sfp__json_exact(&o.json, "accuracy", fraction(e->correct, e->images));
    sfp__json_exact(&o.json, "average_accuracy", e->average);
    sfp__json_exact(&o.json, "accuracy_unknown_as_wrong", strict);
    sfp__json_uint(&o.json, "pictures", e->images);
    sfp__json_uint(&o.json, "right", e->correct);
    sfp__json_uint(&o.json, "skipped", e->skipped);
    sfp__json_uint(&o.json, "unlabelled", e->unlabelled);
    sfp__out_printf(&o, "  %-24s %8.4f   %llu of %llu image%s, %.1f images/s\n", "accuracy", fraction(e->correct, e->images),
                    (unsigned long long)e->correct, (unsigned long long)e->images, plural(e->images), rate);
    if (e->unknown_count)
        sfp__out_printf(&o, "  %-24s %8.4f   when the %llu image%s of unknown classes count%s as wrong\n", "", strict,
                        (unsigned long long)e->unknown_images, plural(e->unknown_images), e->unknown_images == 1 ? "s" : "");
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
    sfp__json_real(&o.json, "seconds", e->seconds);
    sfp__json_real(&o.json, "pictures_per_second", e->seconds > 0 ? rate : NAN);
    sfp__out_end(&o);
}

static void say_left_out(const sfp__state_eval *e)
{
    if (e->unknown_count)
        sfp__warn("%llu image%s of %d class%s that the state does not know %s left out:", (unsigned long long)e->unknown_images,
                  plural(e->unknown_images), e->unknown_count, e->unknown_count == 1 ? "" : "es", was(e->unknown_images));
    for (int i = 0; i < e->unknown_count && i < UNKNOWN_SHOWN; i++) {
        (void)fprintf(stderr, "  ");
        sfp__put_cell(stderr, e->unknown[i].name, 24);
        (void)fprintf(stderr, " %llu\n", (unsigned long long)e->unknown[i].images);
    }
    if (e->unknown_count > UNKNOWN_SHOWN)
        (void)fprintf(stderr, "  and %d more\n", e->unknown_count - UNKNOWN_SHOWN);
    if (e->unlabelled)
        sfp__warn("%llu image%s without a label %s left out", (unsigned long long)e->unlabelled, plural(e->unlabelled),
                  was(e->unlabelled));
    if (e->skipped)
        sfp__warn("%llu image%s could not be read and %s left out; the first: %s", (unsigned long long)e->skipped,
                  plural(e->skipped), was(e->skipped), e->first_error);
}

/* -------------------------------------------------------------------- command */

static void on_begin(void *ctx, uint64_t images, const char *note)
{
    if (note)
        sfp__info("%s", note);
    sfp__progress_init(ctx, "images", images);
}

static void on_progress(void *ctx, uint64_t done)
{
    sfp__progress_update(ctx, done);
}

static const sfp__no_effect_rule idle[] = {{"part", "test-part=off", "data {data}", "it has no test part"},
                                           {"seed", "drawn=off", "data {data}", "nothing of it is drawn"}};

/* Of data that cannot be opened nothing is known: the evaluation tells. */
static sfp_status check_idle(const sfp__args *a, sfp_error *err)
{
    sfp__fact facts[] = {{"test-part", NULL}, {"drawn", NULL}};
    for (int seed = 0; seed < 2; seed++) {
        const sfp__source_options o = {.test = !seed || sfp__args_choice(a, "part") == 0};
        sfp_source *s = NULL;
        sfp_error none;
        if (!sfp__args_given(a, seed ? "seed" : "part") || sfp__source_open(sfp__args_string(a, "data"), &o, &s, &none))
            continue;
        facts[seed].value = (seed ? s->seeded : s->test_part) ? "on" : "off";
        sfp__source_close(s);
    }
    return sfp__args_check_no_effect(a, SFP_LIST(idle), SFP_LIST(facts), err);
}

static sfp_status run(const sfp__args *a, sfp_error *err)
{
    OWNED_BY(sfp__state_eval_done) sfp__state_eval e = {0};
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = NULL;
    OWNED_PTR(sfp__vit_free) sfp__vit *vit = NULL;
    char state[PATH_MAX];
    sfp__progress progress = {0};
    if (!sfp__args_string(a, "state") || !sfp__args_string(a, "data"))
        return sfp__fail_usage(err, "needs --state FILE|DIR and --data KIND:PATH");
    TRY(check_idle(a, err));
    TRY(sfp__state_path(sfp__args_string(a, "state"), state, PATH_MAX, err));
    TRY(sfp__thread_pool_create((int)sfp__args_int(a, "threads"), &pool, err));
    TRY(sfp__backbone_open_for(a, state, &vit, err));
    uint64_t seed = sfp__args_text(a, "seed") ? (uint64_t)sfp__args_int(a, "seed") : 0;
    const sfp__state_eval_options o = {.vit = vit,
                                       .pool = pool,
                                       .state = state,
                                       .data = sfp__args_string(a, "data"),
                                       .train_part = sfp__args_choice(a, "part") == 1,
                                       .tasks = sfp__args_string(a, "tasks"),
                                       .limit = sfp__args_int(a, "eval-limit"),
                                       .seed = sfp__args_text(a, "seed") ? &seed : NULL,
                                       .progress = on_progress,
                                       .begin = on_begin,
                                       .ctx = &progress};
    sfp_status s = sfp__state_eval_run(&o, &e, err);
    sfp__progress_done(&progress);
    TRY(s);
    say_left_out(&e);
    print(&e, state, o.data, sfp__args_flag(a, "json"));
    return e.skipped ? sfp__fail_quietly(err) : SFP_OK;
}

const sfp__command sfp__cmd_eval = {
    .name = "eval",
    .summary = "measure a saved state on labelled images",
    .text =
        "Answers every image of a data set from what a run has saved, and counts: accuracy overall, for each task or domain "
        "and "
        "for each class, and which classes are taken for which. Classes are matched by name; images of classes that the state "
        "does not know are named, counted and left out.\n\n"
        "The exit code is 1 when images could not be read.",
    .examples = "  streamfp eval --state runs/3 --backbone deit_tiny.safetensors --data folder:pacs/test\n"
                "  streamfp eval --state runs/3/state-task-2.safetensors --backbone deit_tiny.safetensors --data "
                "folder:pacs/test --tasks 3,2,2\n",
    SFP_COMMAND_OPTIONS(options),
    .run = run,
};
