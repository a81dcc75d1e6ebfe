/* Commands that change a learned state: merge adds up the sums of several learners, without a backbone; correct, forget and classes change
 * samples and classes of a live run. */
#include "cli/command.h"
#include "cli/output.h"
#include "cli/ui.h"

#include "base/mem.h"
#include "base/monotonic.h"
#include "base/text.h"
#include "streamfp.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

static const sfp__opt merge_options[] = {
    SFP__ROW_STRING("out", "FILE", NULL, "The state to write; -o FILE is the same."),
    SFP__ROW_STRING("subtract", "FILE|DIR", NULL,
                    "Subtract the samples of this file after all others were added; may be repeated. They must be among them.",
                    .repeats = true),
    SFP__ROW_FLAG("sums-only",
                  "Write only sums over samples, and no feature vector of a single sample, such as those that are held out."),
    SFP__ROW_INT("min-count", "N", "2", 2, 1 << 30,
                 "With --sums-only: exclude classes with fewer samples. The sum over one sample is the sample."),
    SFP__ROW_STRING("follow", "DIR", NULL,
                    "Add up what the workers of a message log have committed (--share DIR of 'run'), instead of files."),
    SFP__ROW_REAL("every", "SECONDS", "0", 0, 1e6, "With --follow: repeat with this period until Ctrl-C; 0: only once."),
    SFP__ROW_THREADS,
    SFP__ROW_JSON,
};

/* The names of the excluded classes. */
typedef struct left_out {
    sfp__strings names;
    bool failed; /* no memory */
} left_out;

static void left_out_done(left_out *l)
{
    sfp__strings_done(&l->names);
}

static void add_left_out(void *ctx, int32_t label, const char *name, int64_t samples)
{
    left_out *l = ctx;
    char number[32];
    (void)samples;
    (void)snprintf(number, sizeof number, "class %d", label);
    l->failed = sfp__strings_add(&l->names, name ? name : number, NULL) != SFP_OK || l->failed;
}

static sfp_status warn_left_out(const left_out *l, int64_t min_count, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp__text list = {0};
    int n = l->names.count;
    char shown[SFP__NAME_MAX];
    for (int i = 0; i < n; i++)
        sfp__text_printf(&list, "%s%s", i ? ", " : "", sfp__printable(l->names.s[i], shown, sizeof shown));
    TRY(sfp__check_memory(!l->failed && !list.failed, err));
    if (n > 0)
        sfp__warn("%d class%s with fewer than %lld samples %s excluded: %s", n, n == 1 ? "" : "es", (long long)min_count,
                  n == 1 ? "was" : "were", list.s);
    return SFP_OK;
}

/* Splits the values of an option that may be repeated; *list points into *text. */
static sfp_status split(const char *given, char **text, const char ***list, int *count, sfp_error *err)
{
    TRY(sfp__text_new(text, err, "%s", given ? given : ""));
    TRY(sfp__alloc(list, strlen(*text) + 1, sizeof **list, err));
    for (char *s = given ? *text : NULL; s;) {
        char *end = strchr(s, '\n');
        (*list)[(*count)++] = s;
        if (end)
            *end = '\0';
        s = end ? end + 1 : NULL;
    }
    return SFP_OK;
}

static void print_report(const sfp__args *args, const char *out, int subtracted, const sfp_merge_report *r, const left_out *l)
{
    sfp__out o;
    char digest[20];
    bool follows = sfp__args_string(args, "follow") != NULL;
    (void)snprintf(digest, sizeof digest, "%016llx", (unsigned long long)r->digest);
    sfp__out_begin(&o, sfp__args_flag(args, "json"), 8);
    sfp__json_int(&o.json, "merged", r->units);
    sfp__json_int(&o.json, "subtracted", subtracted);
    sfp__json_int(&o.json, "classes", r->classes);
    sfp__json_int(&o.json, "samples", r->samples);
    if (follows)
        sfp__json_string(&o.json, "digest", digest);
    sfp__json_array(&o.json, "left_out");
    for (int i = 0; i < l->names.count; i++)
        sfp__json_string(&o.json, NULL, l->names.s[i]);
    sfp__json_end(&o.json);
    sfp__json_string(&o.json, "out", out);
    sfp__out_row(&o, "wrote", "%s, %lld sample%s of %d class%s", out, (long long)r->samples, r->samples == 1 ? "" : "s",
                 r->classes, r->classes == 1 ? "" : "es");
    sfp__out_end(&o);
    (void)fflush(stdout);
}

/* Merges once. */
static sfp_status merge(const sfp__args *args, const char *out, sfp_merge_options *o, sfp_error *err)
{
    OWNED_BY(left_out_done) left_out l = {0};
    sfp_merge_report r = SFP_MERGE_REPORT_INIT;
    const char *share = sfp__args_string(args, "follow");
    o->ctx = &l;
    TRY(share ? sfp_merge_share(share, out, o, &r, err)
              : sfp_merge(args->operand_count, (const char *const *)args->operands, out, o, &r, err));
    TRY(warn_left_out(&l, o->min_count, err));
    print_report(args, out, o->subtract_count, &r, &l);
    return SFP_OK;
}

/* Repeats the merge until Ctrl-C. If the log or the share cannot be reached, the file of the last merge is kept. */
static sfp_status follow(const sfp__args *args, const char *out, sfp_merge_options *o, sfp_error *err)
{
    double every = sfp__args_real(args, "every");
    const atomic_int *stop = sfp__stop_on_signals();
    while (!atomic_load(stop)) {
        sfp_error why = {0};
        double until = sfp__monotonic_seconds() + every;
        sfp_status status = merge(args, out, o, &why);
        if (status && !sfp__is_machine_error(status))
            return sfp__fail(err, status, "%s", why.message);
        if (status)
            sfp__warn("%s; the file of the last merge is kept", why.message);
        while (!atomic_load(stop) && sfp__monotonic_seconds() < until)
            (void)nanosleep(&(const struct timespec){.tv_nsec = 100000000}, NULL);
    }
    return SFP_OK;
}

static sfp_status run_merge(const sfp__args *args, sfp_error *err)
{
    const char *out = sfp__args_string(args, "out");
    OWNED char *text = NULL;
    OWNED const char **subtract = NULL;
    sfp_merge_options o = SFP_MERGE_OPTIONS_INIT;
    bool follows = sfp__args_string(args, "follow") != NULL;
    if (!out)
        return sfp__fail_usage(err, "--out is missing, expected the state to write (-o FILE)");
    if (!follows && args->operand_count == 0)
        return sfp__fail_usage(err, "nothing to merge, expected FILE, DIR or --follow DIR");
    if (follows && args->operand_count > 0)
        return sfp__fail_usage(err, "--follow merges a share; it cannot be combined with FILE or DIR");
    if (!follows && sfp__args_given(args, "every"))
        return sfp__fail_usage(err, "--every has no effect without --follow");
    if (sfp__args_given(args, "min-count") && !sfp__args_flag(args, "sums-only"))
        return sfp__fail_usage(err, "--min-count has no effect without --sums-only");
    TRY(split(sfp__args_string(args, "subtract"), &text, &subtract, &o.subtract_count, err));
    o.subtract = subtract;
    o.sums_only = sfp__args_flag(args, "sums-only");
    o.min_count = o.sums_only ? sfp__args_int(args, "min-count") : 0;
    o.left_out = add_left_out;
    o.threads = (int32_t)sfp__args_int(args, "threads");
    return follows && sfp__args_real(args, "every") > 0 ? follow(args, out, &o, err) : merge(args, out, &o, err);
}

const sfp__command sfp__cmd_merge = {
    .name = "merge",
    .summary = "add up what several learners have learned, without their images",
    .operands = "[FILE|DIR...]",
    .min_operands = 0,
    .max_operands = SFP__OPERANDS_ANY,
    .text =
        "The default learner and the methods ncm and slda are functions of sums over samples. The sum of several states or "
        "checkpoints therefore predicts like one learner that has learned all their samples. Classes are matched by name; files "
        "with another backbone, input size, method or preprocessing are refused.\n\n"
        "FILE is a state or a checkpoint, DIR the directory of a run. The written state can be used for prediction, continued "
        "with 'run --init-state', and merged again. No backbone and no images are needed.\n\n"
        "--follow DIR merges the last file that each worker of a message log, or each partition of it, has committed; --subtract "
        "takes a site out of the sum.",
    .examples = "  streamfp merge runs/berlin runs/kyoto -o both.safetensors\n"
                "  streamfp merge both.safetensors --subtract runs/kyoto -o berlin.safetensors\n"
                "  streamfp merge runs/berlin --sums-only --min-count 10 -o to_share.safetensors\n"
                "  streamfp merge --follow plant --every 60 -o plant.safetensors\n",
    SFP__COMMAND_OPTIONS(merge_options),
    .run = run_merge,
};

/* ------------------------------------------------------------- correct and forget */

static const sfp__opt correct_options[] = {SFP__ROW_JSON};

static void print_done(const sfp__args *args, const char *file, const char *label)
{
    sfp__out o;
    sfp__out_begin(&o, sfp__args_flag(args, "json"), 10);
    sfp__json_string(&o.json, "file", file);
    if (label)
        sfp__json_string(&o.json, "label", label);
    else
        sfp__json_bool(&o.json, "forgotten", true);
    sfp__out_row(&o, label ? "corrected" : "forgotten", label ? "%s is learned as %s" : "%s", file, label);
    sfp__out_end(&o);
}

static sfp_status run_correct(const sfp__args *args, sfp_error *err)
{
    TRY(sfp_run_correct(args->operands[0], args->operands[1], args->operands[2], err));
    print_done(args, args->operands[1], args->operands[2]);
    return SFP_OK;
}

static sfp_status run_forget(const sfp__args *args, sfp_error *err)
{
    TRY(sfp_run_forget(args->operands[0], args->operands[1], err));
    print_done(args, args->operands[1], NULL);
    return SFP_OK;
}

#define SAMPLE                                                                                                         \
    "FILE is the name of the sample in its stream, such as mug/1.png, or the path of its image file, whose bytes are " \
    "compared. The image must exist, because its features are subtracted from the sums. The run may be running or not."

const sfp__command sfp__cmd_correct = {
    .name = "correct",
    .summary = "give a sample of a live run another label, as if it had always had it",
    .operands = "DIR FILE LABEL",
    .min_operands = 3,
    .max_operands = 3,
    .text = "DIR is the --out directory of a run with a live stream. " SAMPLE
            " An image that waits for a label, or was dropped, is learned.",
    .examples = "  streamfp correct runs/live mug/17.jpg bowl\n",
    SFP__COMMAND_OPTIONS(correct_options),
    .run = run_correct,
};

const sfp__command sfp__cmd_forget = {
    .name = "forget",
    .summary = "take a sample out of a live run, as if it had never been learned",
    .operands = "DIR FILE",
    .min_operands = 2,
    .max_operands = 2,
    .text = "DIR is the --out directory of a run with a live stream. " SAMPLE
            " Only the id of the sample and a hash of its image are kept, so that the same bytes are not learned again. Lines of "
            "the logs and the image file itself are not changed.",
    .examples = "  streamfp forget runs/live mug/17.jpg\n",
    SFP__COMMAND_OPTIONS(correct_options),
    .run = run_forget,
};

static sfp_status run_classes(const sfp__args *args, sfp_error *err)
{
    const char *dir = args->operands[0], *verb = args->operands[1], *name = args->operands[2];
    const char *to = args->operand_count > 3 ? args->operands[3] : NULL;
    bool merge = strcmp(verb, "merge") == 0, removes = strcmp(verb, "remove") == 0;
    if (!merge && !removes && strcmp(verb, "rename") != 0)
        return sfp__fail_usage(err, "'%s' is not a change of classes, expected rename, merge or remove", verb);
    if (removes == (to != NULL))
        return sfp__fail_usage(err, "%s has %s, expected DIR %s", verb, to ? "two classes" : "one class",
                               removes ? "remove CLASS" : "rename|merge CLASS INTO");
    TRY(removes ? sfp_run_remove_class(dir, name, err) : sfp_run_rename_class(dir, name, to, merge, err));
    sfp__out o;
    sfp__out_begin(&o, sfp__args_flag(args, "json"), 10);
    sfp__json_string(&o.json, "class", name);
    sfp__json_string(&o.json, removes ? "removed" : "into", removes ? name : to);
    sfp__out_row(&o, removes ? "removed" : merge ? "merged" : "renamed", removes ? "%s" : "%s is %s now", name, to);
    sfp__out_end(&o);
    return SFP_OK;
}

const sfp__command sfp__cmd_classes = {
    .name = "classes",
    .summary = "rename, merge or remove classes of a live run",
    .operands = "DIR rename|merge|remove CLASS [INTO]",
    .min_operands = 3,
    .max_operands = 4,
    .text =
        "DIR is the --out directory of a run with a watched directory, running or not. 'rename' and 'merge' give all samples of "
        "CLASS the "
        "label INTO, as if they had always had it; later samples with the old label get it, too. 'remove' forgets all samples of "
        "CLASS. The images are needed: the samples are learned again with their new label.",
    .examples = "  streamfp classes runs/live rename mgu mug\n"
                "  streamfp classes runs/live merge cup mug\n"
                "  streamfp classes runs/live remove test\n",
    SFP__COMMAND_OPTIONS(correct_options),
    .run = run_classes,
};
