/* streamfp correct and streamfp forget: corrections of a live run. */
#include "cli/command.h"
#include "cli/output.h"
#include "cli/ui.h"

#include "base/error.h"
#include "streamfp.h"

static const sfp__opt options[] = {SFP_ROW_JSON};

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

#define SAMPLE                                                                                                        \
    "FILE is the name of the sample in its stream, such as mug/1.png, or the path of its image file, whose bytes are " \
    "compared. The image is needed: its features are taken out of the sums. The run may be running or not."

const sfp__command sfp__cmd_correct = {
    .name = "correct",
    .summary = "give a sample of a live run another label, as if it had always had it",
    .operands = "DIR FILE LABEL",
    .min_operands = 3,
    .max_operands = 3,
    .text = "DIR is the --out directory of a run with a live stream. " SAMPLE
            " An image that waits for a label, or was dropped, is learned.",
    .examples = "  streamfp correct runs/live mug/17.jpg bowl\n",
    SFP_COMMAND_OPTIONS(options),
    .run = run_correct,
};

const sfp__command sfp__cmd_forget = {
    .name = "forget",
    .summary = "take a sample out of a live run, as if it had never been learned",
    .operands = "DIR FILE",
    .min_operands = 2,
    .max_operands = 2,
    .text = "DIR is the --out directory of a run with a live stream. " SAMPLE
            " Of the sample only its id is left, and a mark by which the same bytes are not learned again. Lines of the logs "
            "and the image file itself stay.",
    .examples = "  streamfp forget runs/live mug/17.jpg\n",
    SFP_COMMAND_OPTIONS(options),
    .run = run_forget,
};
