/* Creates a result with a value in every field, for the tests of result.json, the registry and the report. Include after
 * <cmocka.h>. */
#ifndef SFP_TESTS_RUN_RESULT_H
#define SFP_TESTS_RUN_RESULT_H

#include "results/result.h"

#include "test.h"

static inline void result_option(sfp_result *r, const char *key, const char *value)
{
    MUST(sfp__result_config(r, key, value, NULL));
}

static inline sfp_result result_make(int tasks, int classes)
{
    sfp_result r;
    char name[64];
    MUST(sfp__result_init(&r, tasks, classes, NULL));
    for (int i = 0; i < tasks; i++) {
        (void)snprintf(name, sizeof name, "task %d", i);
        r.task_names[i] = sfp__strdup(name);
        for (int j = 0; j <= i; j++)
            r.accuracy[i * tasks + j] = 1.0 / (1 + i - j) - 0.1 / 3;
    }
    for (int c = 0; c < classes; c++) {
        (void)snprintf(name, sizeof name, "class %d", c);
        r.class_names[c] = c == 1 ? NULL : sfp__strdup(name);
        for (int k = 0; r.confusion && k < classes; k++)
            r.confusion[c * classes + k] = c == 0 ? 0 : c == k ? 90 : k == 0 ? 10 : 0; /* class 0 has no test samples */
    }
    r.tasks_done = tasks;
    sfp__result_summarise(&r);
    r.prequential_accuracy = 2.0 / 3;
    for (int i = 0; i < 90; i++)
        sfp__reliability_add(&r.calibration.bins, i / 89.0, i % 2 == 0);
    r.calibration.error = sfp__reliability_error(&r.calibration.bins);
    r.calibration.before = 0.4;
    const sfp_result numbers = {
        .samples = {.offered = 1000, .scored = 900, .trained = 500, .replayed = 480, .dropped = 100, .skipped = 3},
        .labels = {.unlabelled = 9, .late = 4, .expired = 3, .waiting = 2},
        .seconds = {.decode = 1, .select = 2, .train = 3, .buffer = 0.5, .evaluate = 1.25, .total = 8},
    };
    r.samples = numbers.samples;
    r.labels = numbers.labels;
    r.seconds = numbers.seconds;
    r.lambda = 150;
    r.lag.mean = 0.25;
    r.lag.max = 1.5;
    r.coverage = 1;
    r.samples_per_second = 181.8;
    r.timestamps = 45;
    r.batch_seconds = 0.125;
    r.diagnostics.measured = true;
    r.diagnostics.coreset_cost = (sfp__coreset_ratios){1.01, 0.25, 0.875, 0.5, 1};
    r.diagnostics.buffer_mmd = 0.001;
    r.diagnostics.gradient_cosine_head = 0.75;
    for (int i = 0; i < SFP__COSINES * tasks * tasks; i++)
        sfp__result_gradient_cosines(&r, 0)[i] = i % 3 ? -1.0 / (1 + i) : NAN;
    r.peak_rss_bytes = 123456789;
    r.seed = 7;
    r.machine.threads = 2;
    r.finished = true;
    (void)snprintf(r.machine.cpu, sizeof r.machine.cpu, "A processor");
    (void)snprintf(r.machine.kernels, sizeof r.machine.kernels, "avx2");
    (void)snprintf(r.machine.gemm, sizeof r.machine.gemm, "oneDNN");
    (void)snprintf(r.started, sizeof r.started, "2025-01-02T03:04:05Z");
    result_option(&r, "data", "synthetic:1000");
    result_option(&r, "select", "random");
    result_option(&r, "buffer", "er");
    result_option(&r, "sigma", "0.3");
    for (int i = 0; i < 50; i++) {
        MUST(sfp__curve_add(&r.curve[SFP__CURVE_PREQUENTIAL], 20 * (i + 1), i == 3 ? NAN : 0.01 * i, NULL));
        MUST(sfp__curve_add(&r.curve[SFP__CURVE_LOSS], 20 * (i + 1), 2 - 0.03 * i, NULL));
        MUST(sfp__curve_add(&r.curve[SFP__CURVE_RATE], 20 * (i + 1), 150 + i % 5, NULL));
        MUST(sfp__curve_add(&r.curve[SFP__CURVE_LAG], 20 * (i + 1), 0.1 * i, NULL));
    }
    for (int i = 0; i < tasks; i++)
        MUST(sfp__result_evaluated(&r, 1000 * (uint64_t)(i + 1) / (uint64_t)tasks, i, r.accuracy + i * tasks, NULL));
    return r;
}

KEEP_BY(keep_text, char, sfp__free)

/* Not inlined: gcc 12 would report dangling pointers that do not exist. */
__attribute__((noinline, unused)) static char *result_text(const sfp_result *r)
{
    char *text = NULL;
    MUST(sfp__result_text(r, true, &text, NULL));
    return keep_text(text);
}

#endif
