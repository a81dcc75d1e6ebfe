/* The experiments: those of the paper (E1-E7, A1, A2, T1, T2, throughput, growth) and those beyond it (E9, E11). To add one, add its
 * rows, its columns and a line to `list`. */
#include "experiment/experiment.h"

#include <string.h>

#define COUNT(list) (int)(sizeof(list) / sizeof *(list))
#define ROWS(list) .rows = (list), .row_count = COUNT(list)
#define COLUMNS(list) .columns = (list), .column_count = COUNT(list)

#define STREAMFP "select=streamfp buffer=streamfp"
#define WHOLE_BATCHES "allocate=fixed img-size=0"
#define QUERY "method=ncm taps=1 " WHOLE_BATCHES /* little more than one query pass */
#define OVER_LOAD "within=class clock=virtual eval-limit=100"
#define PAPER "preset=paper within=class eval-limit=100"

/* ------------------------------------------------------------------------------------------------------------- metrics */

static const sfp__metric metrics[] = {
    {"Acc", "average_accuracy", true, 2, 1, "average accuracy, %"},
    {"Fgt", "forgetting", true, 2, -1, "forgetting, %"},
    {"Preq", "prequential_accuracy", true, 2, 1, "prequential accuracy, %"},
    {"Cover", "coverage", true, 1, 1, "classes trained on, %"},
    {"Runtime", "runtime", false, 1, -1, "seconds to select, train and update the buffer"},
    {"ms", "cost", false, 1, -1, "milliseconds per batch"},
    {"Rate", "throughput", false, 1, 1, "samples per second"},
    {"Batches", "timestamps", false, 0, 0, "batches trained on"},
    {"Ratio", "diagnostics.coreset_angle_ratio", false, 5, 0, "mean angle of the coreset, relative to its batch"},
    {"Dev", "diagnostics.coreset_angle_deviation", false, 5, -1, "standard deviation of the ratio"},
    {"Random dev", "diagnostics.coreset_angle_random_deviation", false, 5, 0, "that of a random coreset"},
    {"Loss ratio", "diagnostics.coreset_cost_ratio", false, 3, 0, "loss of the coreset, relative to its batch"},
    {"Loss within", "diagnostics.coreset_cost_within", true, 1, 1, "share within the bound by loss, %"},
    {"Mean MMD", "diagnostics.buffer_mmd_mean", false, 5, -1, "MMD, mean over the run"},
    {"Within", "diagnostics.coreset_angle_within", true, 1, 1, "share of batches within the bound, %"},
    {"MMD", "diagnostics.buffer_mmd", false, 5, -1, "difference of the mean scores of buffer and stream"},
    {"S dev", "diagnostics.stream_score_deviation", false, 5, 0, "standard deviation of the score"},
    {"Fp cos", "diagnostics.gradient_cosine_fingerprints", false, 3, 0, "mean absolute cosine of fingerprint gradients"},
    {"Head cos", "diagnostics.gradient_cosine_head", false, 3, 0, "that of head gradients"},
};

const sfp__metric *sfp__metric_find(const char *name, size_t length)
{
    for (int i = 0; i < COUNT(metrics); i++)
        if (strncmp(metrics[i].name, name, length) == 0 && metrics[i].name[length] == '\0')
            return &metrics[i];
    return NULL;
}

/* ---------------------------------------------------------------------------------------------------------------- rows */

static const sfp__variant closed[] = {
    {.name = "ncm", .settings = "method=ncm", .closed = true},
    {.name = "slda", .settings = "method=slda slda=published", .closed = true},
    {.name = "ranpac", .settings = "method=ranpac", .closed = true},
    {.name = "ridge, taps", .settings = "method=ridge taps=0", .closed = true},
};

const sfp__variant *sfp__closed_rows(int *count)
{
    *count = COUNT(closed);
    return closed;
}

#define NONE_ROW                                                         \
    {                                                                    \
        .name = "None", .settings = "select=none buffer=none attune=off" \
    }

static const sfp__variant selectors[] = {
    {.name = "StreamFP (w/o buffer)", .settings = "select=streamfp buffer=none"},
    NONE_ROW,
    {.name = "Camel", .settings = "select=camel buffer=none"},
    {.name = "K-center", .settings = "select=kcenter buffer=none"},
    {.name = "FreeSel", .settings = "select=freesel buffer=none"},
    {.name = "Learn-Loss", .settings = "select=learnloss buffer=none"},
    {.name = "GradMatch", .settings = "select=gradmatch buffer=none"},
    {.name = "Craig", .settings = "select=craig buffer=none"},
    {.name = "Camel, weighted", .settings = "select=camel buffer=none weighted=on", .extra = true},
    {.name = "GradMatch, weighted", .settings = "select=gradmatch buffer=none weighted=on", .extra = true},
    {.name = "Craig, weighted", .settings = "select=craig buffer=none weighted=on", .extra = true},
};

static const sfp__variant buffers[] = {
    {.name = "StreamFP", .settings = STREAMFP},
    {.name = "ER", .settings = "select=streamfp buffer=er"},
    {.name = "ASER", .settings = "select=streamfp buffer=aser"},
    {.name = "Camel", .settings = "select=streamfp buffer=camel"},
    {.name = "GSS", .settings = "select=streamfp buffer=gss"},
    {.name = "SSD", .settings = "select=streamfp buffer=ssd"},
};

#define ER_ROW                                               \
    {                                                        \
        .name = "ER*", .settings = "select=random buffer=er" \
    }
#define STREAMFP_ROW                             \
    {                                            \
        .name = "StreamFP", .settings = STREAMFP \
    }

static const sfp__variant whole[] = {
    STREAMFP_ROW,
    ER_ROW,
    NONE_ROW,
    {.name = "Camel", .settings = "select=camel buffer=camel"},
    {.name = "K-center*", .settings = "select=kcenter buffer=streamfp"},
    {.name = "FreeSel*", .settings = "select=freesel buffer=streamfp"},
    {.name = "Learn-Loss*", .settings = "select=learnloss buffer=streamfp"},
    {.name = "GradMatch*", .settings = "select=gradmatch buffer=streamfp"},
    {.name = "Craig*", .settings = "select=craig buffer=streamfp"},
    {.name = "ASER*", .settings = "select=streamfp buffer=aser"},
    {.name = "GSS*", .settings = "select=streamfp buffer=gss"},
    {.name = "SSD*", .settings = "select=streamfp buffer=ssd"},
    {.name = "Camel, weighted", .settings = "select=camel buffer=camel weighted=on", .extra = true},
    {.name = "GradMatch*, weighted", .settings = "select=gradmatch buffer=streamfp weighted=on", .extra = true},
    {.name = "Craig*, weighted", .settings = "select=craig buffer=streamfp weighted=on", .extra = true},
    {.name = "StreamFP, authors' code",
     .settings = STREAMFP " drop-rule=eq8 attune-topk=2",
     .extra = true},
};

static const sfp__variant skipping[] = {
    {.name = "w/ skipping", .settings = STREAMFP},
    {.name = "w/o skipping", .settings = STREAMFP, .fits = true},
};

static const sfp__variant components[] = {
    {.name = "FA+FCS+FBU", .settings = STREAMFP},
    {.name = "none", .settings = "select=none buffer=none attune=off"},
    {.name = "FA", .settings = "select=none buffer=none"},
    {.name = "FA+FCS", .settings = "select=streamfp buffer=none"},
};

static const sfp__variant streamfp_only[] = {STREAMFP_ROW};
static const sfp__variant streamfp_and_er[] = {STREAMFP_ROW, ER_ROW};

static const sfp__variant steps[] = {
    {.name = "K 1", .settings = STREAMFP " steps=1"},
    {.name = "K 5", .settings = STREAMFP " steps=5"},
    {.name = "K 10", .settings = STREAMFP " steps=10"},
    {.name = "K 15", .settings = STREAMFP " steps=15"},
};

static const sfp__variant drop_rules[] = {
    {.name = "Algorithm 2", .settings = STREAMFP " drop-rule=alg2"},
    {.name = "Equation 8", .settings = STREAMFP " drop-rule=eq8"},
    {.name = "ER", .settings = "select=streamfp buffer=er"},
};

static const sfp__variant over_load[] = {
    {.name = "best", .settings = "preset=best method=ridge", .allocates = true},
    {.name = "paper", .settings = "preset=paper " STREAMFP},
    {.name = "random+er", .settings = "preset=paper select=random buffer=er"},
    {.name = "none", .settings = "preset=paper select=none buffer=none attune=off"},
    {.name = "ncm", .settings = QUERY, .closed = true},
    {.name = "slda", .settings = "method=slda slda=published taps=1 " WHOLE_BATCHES, .closed = true},
    {.name = "ranpac", .settings = "method=ranpac taps=1 " WHOLE_BATCHES, .closed = true},
    {.name = "ranpac, taps", .settings = "method=ranpac img-size=0", .closed = true, .allocates = true},
    {.name = "ridge, taps", .settings = "method=ridge taps=0 img-size=0", .closed = true, .allocates = true},
};

/* ------------------------------------------------------------------------------------------------------------- columns */

static const sfp__variant at_92[] = {{.name = "", .batches = 92}};

static const sfp__variant rates[] = {
    {.name = "lambda 30140", .batches = 18},
    {.name = "lambda 15070", .batches = 46},
    {.name = "lambda 6028", .batches = 92},
};

static const sfp__variant load_4[] = {{.name = "", .load = 4, .load_of = STREAMFP}};

static const sfp__variant loads_of_query[] = {
    {.name = "load 0.25", .load = 0.25, .load_of = QUERY},
    {.name = "load 1", .load = 1, .load_of = QUERY},
    {.name = "load 4", .load = 4, .load_of = QUERY},
    {.name = "load 16", .load = 16, .load_of = QUERY},
};

#define COLUMN_92(n, s)                        \
    {                                          \
        .name = n, .learner = s, .batches = 92 \
    }
static const sfp__variant batch_sizes[] = {
    COLUMN_92("b 20", "batch=20"),   COLUMN_92("b 50", "batch=50"),   COLUMN_92("b 100", "batch=100"),
    COLUMN_92("b 200", "batch=200"), COLUMN_92("b 500", "batch=500"),
};
static const sfp__variant sigmas[] = {
    COLUMN_92("sigma 0.2", "sigma=0.2"),
    COLUMN_92("sigma 0.4", "sigma=0.4"),
    COLUMN_92("sigma 0.6", "sigma=0.6"),
    COLUMN_92("sigma 0.8", "sigma=0.8"),
};
static const sfp__variant buffer_sizes[] = {
    COLUMN_92("m 51", "buffer-size=51"),   COLUMN_92("m 102", "buffer-size=102"), COLUMN_92("m 204", "buffer-size=204"),
    COLUMN_92("m 240", "buffer-size=240"), COLUMN_92("m 510", "buffer-size=510"), COLUMN_92("m 1020", "buffer-size=1020"),
};
static const sfp__variant step_buffers[] = {
    COLUMN_92("m 51", "buffer-size=51"),
    COLUMN_92("m 102", "buffer-size=102"),
    COLUMN_92("m 240", "buffer-size=240"),
    COLUMN_92("m 510", "buffer-size=510"),
};

#define PLAIN(n, s)             \
    {                           \
        .name = n, .learner = s \
    }
static const sfp__variant growth_b[] = {PLAIN("b 20", "batch=20"), PLAIN("b 40", "batch=40"), PLAIN("b 80", "batch=80"),
                                        PLAIN("b 160", "batch=160")};
static const sfp__variant growth_n[] = {PLAIN("N 25", "pool=25"), PLAIN("N 50", "pool=50"), PLAIN("N 100", "pool=100"),
                                        PLAIN("N 200", "pool=200"), PLAIN("N 400", "pool=400")};
static const sfp__variant growth_m[] = {PLAIN("m 51", "buffer-size=51"), PLAIN("m 102", "buffer-size=102"),
                                        PLAIN("m 204", "buffer-size=204"), PLAIN("m 510", "buffer-size=510"),
                                        PLAIN("m 1020", "buffer-size=1020")};
static const sfp__variant no_clock[] = {{.name = ""}};

/* ------------------------------------------------------------------------------------------------------------ the list */

/* In the order in which a budget is spent. */
static const sfp__experiment list[] = {
    {.name = "E3",
     .title = "whole methods at three arrival rates",
     .question = "Which method is best when data arrives so fast that StreamFP trains on 18, 46 and 92 batches?",
     .settings = PAPER,
     ROWS(whole),
     COLUMNS(rates),
     .metrics = "Acc,Fgt",
     .paper = "E3",
     .add_closed = true},
    {.name = "E4",
     .title = "whole methods with five class orders",
     .question = "Does the order of the classes change which method is best?",
     .settings = PAPER,
     ROWS(whole),
     COLUMNS(at_92),
     .metrics = "Acc,Fgt",
     .paper = "E4",
     .orders_as_columns = true,
     .add_closed = true},
    {.name = "E2",
     .title = "whole methods on one dataset",
     .question = "Which method is best, and how long does it take?",
     .settings = PAPER,
     ROWS(whole),
     COLUMNS(at_92),
     .metrics = "Acc,Fgt,Runtime",
     .paper = "E2",
     .add_closed = true},
    {.name = "throughput",
     .title = "processing time of every method",
     .question = "How many samples per second can each method process?",
     .settings = PAPER,
     ROWS(whole),
     COLUMNS(no_clock),
     .metrics = "ms,Rate,Runtime",
     .paper = "E2",
     .cost_only = true,
     .needs_costs = true,
     .add_closed = true},
    {.name = "E1-select",
     .title = "selectors without a buffer",
     .question = "Which selector is best if nothing is replayed?",
     .settings = PAPER,
     ROWS(selectors),
     COLUMNS(at_92),
     .metrics = "Acc,Fgt,Runtime",
     .paper = "E1-select",
     .add_closed = true},
    {.name = "E1-buffer",
     .title = "buffers with the selector of StreamFP",
     .question = "Which buffer method is best with the same selector?",
     .settings = PAPER,
     ROWS(buffers),
     COLUMNS(at_92),
     .metrics = "Acc,Fgt,Runtime",
     .paper = "E1-buffer",
     .add_closed = true},
    {.name = "E6",
     .title = "components of StreamFP on and off",
     .question = "What do attunement (FA), coreset selection (FCS) and buffer update (FBU) contribute?",
     .settings = PAPER,
     ROWS(components),
     COLUMNS(at_92),
     .metrics = "Acc,Fgt,Runtime",
     .paper = "E6",
     .add_closed = true},
    {.name = "E5",
     .title = "skipping batches against thin coresets",
     .question =
         "At four times the rate that StreamFP can process: drop batches, or train on a part of each that is small enough?",
     .settings = PAPER,
     ROWS(skipping),
     COLUMNS(load_4),
     .metrics = "Acc,Fgt",
     .paper = "E5",
     .orders_as_columns = true,
     .add_closed = true},
    {.name = "E7-b",
     .title = "batch size",
     .question = "Which batch size b is best?",
     .settings = PAPER,
     ROWS(streamfp_only),
     COLUMNS(batch_sizes),
     .metrics = "Acc,Fgt",
     .numeric_columns = true},
    {.name = "E7-sigma",
     .title = "coreset ratio",
     .question = "Which coreset ratio sigma is best?",
     .settings = PAPER,
     ROWS(streamfp_only),
     COLUMNS(sigmas),
     .metrics = "Acc,Fgt",
     .numeric_columns = true},
    {.name = "E7-m",
     .title = "buffer size",
     .question = "Which buffer size m is best?",
     .settings = PAPER,
     ROWS(streamfp_and_er),
     COLUMNS(buffer_sizes),
     .metrics = "Acc,Fgt",
     .numeric_columns = true},
    {.name = "E7-k",
     .title = "gradient steps and buffer size",
     .question = "Does the best number of steps K grow with the buffer size m?",
     .settings = PAPER,
     ROWS(steps),
     COLUMNS(step_buffers),
     .metrics = "Acc,Fgt",
     .numeric_columns = true},
    {.name = "A1",
     .title = "correlation of gradients between tasks",
     .question = "Are the gradients of different tasks orthogonal?",
     .settings = PAPER " diagnostics=on",
     ROWS(streamfp_and_er),
     COLUMNS(at_92),
     .metrics = "Fp cos,Head cos,Acc"},
    {.name = "A2",
     .title = "pretrained backbones",
     .question = "Does StreamFP lead with every backbone (option --backbones)?",
     .settings = PAPER,
     ROWS(streamfp_and_er),
     COLUMNS(at_92),
     .metrics = "Acc,Fgt",
     .paper = "A2",
     .add_closed = true},
    {.name = "T1",
     .title = "cost of the coreset",
     .question = "Is the cost of the coreset (mean angle to the fingerprints, as in the theorem; also the loss) within 1 +- "
                 "(sigma b)^-1/2 of that of "
                 "its batch?",
     .settings = PAPER " diagnostics=on",
     ROWS(streamfp_only),
     COLUMNS(sigmas),
     .metrics = "Ratio,Dev,Random dev,Within,Loss ratio,Loss within",
     .numeric_columns = true},
    {.name = "T2",
     .title = "distance between buffer and stream",
     .question = "How far is the mean score of the buffer from that of the stream (MMD with the paper's kernel)?",
     .settings = PAPER " diagnostics=on",
     ROWS(streamfp_and_er),
     COLUMNS(buffer_sizes),
     .metrics = "MMD,Mean MMD,S dev",
     .numeric_columns = true},
    {.name = "E9",
     .title = "the two drop rules",
     .question = "Which drop rule is better, that of Algorithm 2 or that of Equation 8?",
     .settings = PAPER,
     ROWS(drop_rules),
     COLUMNS(at_92),
     .metrics = "Acc,Fgt"},
    {.name = "E11",
     .title = "accuracy over load",
     .question = "Which system is best at which arrival rate (load 1: one query pass per sample)?",
     .settings = OVER_LOAD,
     ROWS(over_load),
     COLUMNS(loads_of_query),
     .metrics = "Acc,Cover",
     .numeric_columns = true},
    {.name = "E11-rate",
     .title = "highest arrival rate without drops",
     .question = "How many samples per second can each system of E11 process?",
     .settings = OVER_LOAD,
     ROWS(over_load),
     COLUMNS(no_clock),
     .metrics = "Rate,ms",
     .cost_only = true,
     .needs_costs = true},
    {.name = "growth-b",
     .title = "processing time over the batch size",
     .question = "How does the time per batch grow with b?",
     .settings = PAPER,
     ROWS(streamfp_and_er),
     COLUMNS(growth_b),
     .metrics = "ms",
     .cost_only = true,
     .needs_costs = true,
     .numeric_columns = true},
    {.name = "growth-n",
     .title = "processing time over the number of components",
     .question = "How does the time per batch grow with the pool size N?",
     .settings = PAPER,
     ROWS(streamfp_and_er),
     COLUMNS(growth_n),
     .metrics = "ms",
     .cost_only = true,
     .needs_costs = true,
     .numeric_columns = true},
    {.name = "growth-m",
     .title = "processing time over the buffer size",
     .question = "How does the time per batch grow with m?",
     .settings = PAPER,
     ROWS(streamfp_and_er),
     COLUMNS(growth_m),
     .metrics = "ms",
     .cost_only = true,
     .needs_costs = true,
     .numeric_columns = true},
};

const sfp__experiment *sfp__experiments(int *count)
{
    *count = COUNT(list);
    return list;
}
