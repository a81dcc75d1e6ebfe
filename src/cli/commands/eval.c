/* streamfp eval: how well a saved state answers on a data set. */
#include "cli/backbone.h"
#include "cli/command.h"
#include "cli/ui.h"
#include "io/json_write.h"

#include "base/mem.h"
#include "base/thread_pool.h"
#include "results/result.h"
#include "run/state_eval.h"
#include "stream/source.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PAIRS_SHOWN = 10, UNKNOWN_SHOWN = 10 };

static const sfp_opt options[] = {
    SFP_ROW_STRING("state", "FILE|DIR", NULL, "What was learned: a state.safetensors, or the folder of a run that has one. The backbone "
                                              "is brought to the input size of the run."),
    SFP_ROW_STRING("backbone", "FILE|builtin", "builtin", "The backbone it was learned on; another one is refused."),
    SFP_ROW_STRING("data", "KIND:PATH", NULL, "Labelled pictures; of a data set with a test part, that part."),
    SFP_ROW_CHOICE("part", "test|train", "test", "Which part of a data set that has both."),
    SFP_ROW_STRING("tasks", "J|SIZES|domain[:a,b]|time|free", NULL, "Accuracy for each of these too, cut as run cuts them: over the classes "
                                                                    "of the state. Default: the data set's domains or tasks, if any."),
    SFP_ROW_INT("eval-limit", "N", "0", 0, INT32_MAX, "Pictures a task at most; 0: all."),
    SFP_ROW_INT("seed", "N", NULL, 0, INT64_MAX,
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

/* Of class c: pictures, and how many were answered right. Needs the confusion matrix. */
static uint64_t tested(const sfp_state_eval *e, int c, uint64_t *right)
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

static void print_name(const char *name)
{
    (void)printf("  ");
    sfp__put_cell(stdout, name, 24);
}

static void print_text(const sfp_state_eval *e)
{
    (void)printf("  %-24s %8.4f   %llu of %llu picture%s, %.1f pictures/s\n", "accuracy", fraction(e->right, e->pictures),
                 (unsigned long long)e->right, (unsigned long long)e->pictures, plural(e->pictures), e->seconds > 0 ? (double)e->pictures / e->seconds : 0);
    if (e->unknown_count)
        (void)printf("  %-24s %8.4f   when the %llu picture%s of unknown classes count%s as wrong\n", "",
                     fraction(e->right, e->pictures + e->unknown_pictures), (unsigned long long)e->unknown_pictures,
                     plural(e->unknown_pictures), e->unknown_pictures == 1 ? "s" : "");
    if (e->tasks > 1) {
        (void)printf("  %-24s %8.4f   mean over tasks\n", "average accuracy", e->average);
        (void)printf("tasks\n");
    }
    for (int t = 0; e->tasks > 1 && t < e->tasks; t++) {
        print_name(e->task_names[t]);
        if (e->asked[t])
            (void)printf(" %8.4f   %llu picture%s\n", e->accuracy[t], (unsigned long long)e->asked[t], plural(e->asked[t]));
        else
            (void)printf("        -   none of a known class\n");
    }
    (void)printf(e->confusion ? "classes\n" : "");
    for (int c = 0; e->confusion && c < e->classes; c++) {
        uint64_t right, n = tested(e, c, &right);
        if (n == 0)
            continue;
        print_name(e->class_names[c]);
        (void)printf(" %8.4f   %llu of %llu\n", fraction(right, n), (unsigned long long)right, (unsigned long long)n);
    }
    sfp_mixup worst[PAIRS_SHOWN];
    int pairs = sfp__worst_mixups(e->classes, e->confusion, PAIRS_SHOWN, worst);
    (void)printf(pairs ? "most confused\n" : "");
    for (int i = 0; i < pairs; i++) {
        uint64_t right, n = tested(e, worst[i].truth, &right);
        print_name(e->class_names[worst[i].truth]);
        (void)printf(" as ");
        sfp__put_cell(stdout, e->class_names[worst[i].answer], 24);
        (void)printf(" %llu of %llu\n", (unsigned long long)worst[i].count, (unsigned long long)n);
    }
}

static void say_left_out(const sfp_state_eval *e)
{
    if (e->unknown_count)
        sfp__say("%llu picture%s of %d class%s that the state does not know %s left out:", (unsigned long long)e->unknown_pictures,
                 plural(e->unknown_pictures), e->unknown_count, e->unknown_count == 1 ? "" : "es", was(e->unknown_pictures));
    for (int i = 0; i < e->unknown_count && i < UNKNOWN_SHOWN; i++) {
        (void)fprintf(stderr, "  ");
        sfp__put_cell(stderr, e->unknown[i].name, 24);
        (void)fprintf(stderr, " %llu\n", (unsigned long long)e->unknown[i].pictures);
    }
    if (e->unknown_count > UNKNOWN_SHOWN)
        (void)fprintf(stderr, "  and %d more\n", e->unknown_count - UNKNOWN_SHOWN);
    if (e->unlabelled)
        sfp__say("%llu picture%s without a label %s left out", (unsigned long long)e->unlabelled, plural(e->unlabelled), was(e->unlabelled));
    if (e->skipped)
        sfp__say("%llu picture%s could not be read and %s left out; the first: %s", (unsigned long long)e->skipped, plural(e->skipped),
                 was(e->skipped), e->first_error);
}

static void json_tasks(sfp_json *j, const sfp_state_eval *e)
{
    sfp__json_array(j, "tasks");
    for (int t = 0; t < e->tasks; t++) {
        sfp__json_object(j, NULL);
        sfp__json_string(j, "name", e->task_names[t]);
        sfp__json_exact(j, "accuracy", e->asked[t] ? e->accuracy[t] : NAN);
        sfp__json_int(j, "pictures", (int64_t)e->asked[t]);
        sfp__json_end(j);
    }
    sfp__json_end(j);
}

static void json_classes(sfp_json *j, const sfp_state_eval *e)
{
    sfp__json_array(j, "per_class");
    for (int c = 0; e->confusion && c < e->classes; c++) {
        uint64_t right, n = tested(e, c, &right);
        sfp__json_object(j, NULL);
        sfp__json_string(j, "name", e->class_names[c]);
        sfp__json_exact(j, "accuracy", fraction(right, n));
        sfp__json_int(j, "pictures", (int64_t)n);
        sfp__json_end(j);
    }
    sfp__json_end(j);
    if (!e->confusion)
        return;
    sfp__json_array(j, "confusion");
    for (int t = 0; t < e->classes; t++) {
        sfp__json_array(j, NULL);
        for (int a = 0; a < e->classes; a++)
            sfp__json_int(j, NULL, (int64_t)e->confusion[(size_t)t * (size_t)e->classes + (size_t)a]);
        sfp__json_end(j);
    }
    sfp__json_end(j);
}

static void print_json(const sfp_state_eval *e, const char *state, const char *data)
{
    sfp_json j;
    sfp__json_begin(&j, stdout);
    sfp__json_string(&j, "state", state);
    sfp__json_string(&j, "data", data);
    sfp__json_exact(&j, "accuracy", fraction(e->right, e->pictures));
    sfp__json_exact(&j, "average_accuracy", e->average);
    sfp__json_exact(&j, "accuracy_unknown_as_wrong", fraction(e->right, e->pictures + e->unknown_pictures));
    sfp__json_int(&j, "pictures", (int64_t)e->pictures);
    sfp__json_int(&j, "right", (int64_t)e->right);
    sfp__json_int(&j, "skipped", (int64_t)e->skipped);
    sfp__json_int(&j, "unlabelled", (int64_t)e->unlabelled);
    json_tasks(&j, e);
    json_classes(&j, e);
    sfp__json_array(&j, "unknown_classes");
    for (int i = 0; i < e->unknown_count; i++) {
        sfp__json_object(&j, NULL);
        sfp__json_string(&j, "name", e->unknown[i].name);
        sfp__json_int(&j, "pictures", (int64_t)e->unknown[i].pictures);
        sfp__json_end(&j);
    }
    sfp__json_end(&j);
    sfp__json_real(&j, "seconds", e->seconds);
    sfp__json_real(&j, "pictures_per_second", e->seconds > 0 ? (double)e->pictures / e->seconds : NAN);
    sfp__json_end_all(&j);
}

/* -------------------------------------------------------------------- command */

static void on_begin(void *ctx, uint64_t pictures, const char *note)
{
    if (note)
        sfp__say("%s", note);
    sfp__progress_init(ctx, "pictures", pictures);
}

static void on_progress(void *ctx, uint64_t done)
{
    sfp__progress_tell(ctx, done);
}

static const sfp_idle idle[] = {{"part", "test-part=off", "data {data}", "it has no test part"},
                                {"seed", "drawn=off", "data {data}", "nothing of it is drawn"}};

/* Of data that cannot be opened nothing is known: the exam tells. */
static sfp_status check_idle(const sfp_args *a, sfp_error *err)
{
    sfp_fact facts[] = {{"test-part", NULL}, {"drawn", NULL}};
    for (int seed = 0; seed < 2; seed++) {
        const sfp_source_options o = {.test = !seed || sfp__args_choice(a, "part") == 0};
        sfp_source *s = NULL;
        sfp_error none;
        if (!sfp__args_given(a, seed ? "seed" : "part") || sfp__source_open(sfp__args_string(a, "data"), &o, &s, &none))
            continue;
        facts[seed].value = (seed ? s->seeded : s->test_part) ? "on" : "off";
        sfp__source_close(s);
    }
    return sfp__args_check_idle(a, SFP_LIST(idle), SFP_LIST(facts), err);
}

static sfp_status examine(const sfp_args *a, sfp_state_eval *out, char *state, sfp_error *err)
{
    sfp_progress progress = {0};
    uint64_t seed = sfp__args_text(a, "seed") ? (uint64_t)sfp__args_int(a, "seed") : 0;
    sfp_state_eval_options o = {.state = state,
                          .data = sfp__args_string(a, "data"),
                          .train_part = sfp__args_choice(a, "part") == 1,
                          .tasks = sfp__args_string(a, "tasks"),
                          .limit = sfp__args_int(a, "eval-limit"),
                          .seed = sfp__args_text(a, "seed") ? &seed : NULL,
                          .progress = on_progress,
                          .begin = on_begin,
                          .ctx = &progress};
    sfp_status s = sfp__state_file(sfp__args_string(a, "state"), state, PATH_MAX, err);
    if (!s)
        s = sfp__thread_pool_create((int)sfp__args_int(a, "threads"), &o.pool, err);
    if (!s)
        s = sfp__backbone_open_for(a, state, &o.vit, err);
    if (!s)
        s = sfp__state_eval(&o, out, err);
    sfp__progress_done(&progress);
    sfp__vit_free(o.vit);
    sfp__thread_pool_free(o.pool);
    return s;
}

static int run(const sfp_args *a)
{
    char state[PATH_MAX];
    sfp_state_eval e = {0};
    sfp_error err = {0};
    if (!sfp__args_string(a, "state") || !sfp__args_string(a, "data"))
        return sfp__say_usage(a->command, "needs --state FILE|DIR and --data KIND:PATH");
    if (check_idle(a, &err) || examine(a, &e, state, &err))
        return sfp__command_failed(a, &err);
    say_left_out(&e);
    if (sfp__args_flag(a, "json"))
        print_json(&e, state, sfp__args_string(a, "data"));
    else
        print_text(&e);
    int code = e.skipped ? SFP_EXIT_FAILED : SFP_EXIT_OK;
    sfp__state_eval_done(&e);
    return code;
}

const sfp_command sfp__cmd_eval = {
    .name = "eval",
    .summary = "measure a saved state on labelled pictures",
    .text = "Answers every picture of a data set from what a run has saved, and counts: accuracy overall, for each task or domain and "
            "for each class, and which classes are taken for which. Classes are matched by name; pictures of classes that the state "
            "does not know are named, counted and left out.\n\n"
            "The exit code is 1 when pictures could not be read.",
    .examples = "  streamfp eval --state runs/3 --backbone deit_tiny.safetensors --data folder:pacs/test\n"
                "  streamfp eval --state runs/3/state-task-2.safetensors --backbone deit_tiny.safetensors --data folder:pacs/test --tasks 3,2,2\n",
    SFP_COMMAND_OPTIONS(options),
    .run = run,
};
