/* The measurements of a run (docs/method.md, sections 10 and 17), the metrics computed from them, and result.json. */
#ifndef SFP_RESULTS_RESULT_H
#define SFP_RESULTS_RESULT_H

#include "base/error.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SFP__RESULT_TASKS_MAX 4096
#define SFP__RESULT_CLASSES_MAX (1 << 20)
#define SFP__CONFUSION_MAX 4096
#define SFP__CURVE_MAX (1 << 24) /* points */

typedef struct sfp__config_entry {
    char *key, *value;
    char *default_value; /* "": the option has no default; NULL: unknown */
    char *preset_value;  /* the value that the preset of the run gives to it; NULL: none */
} sfp__config_entry;

typedef struct sfp__curve {
    int count;
    size_t capacity;
    double *x, *y;
} sfp__curve;

enum { SFP__CURVE_PREQUENTIAL, SFP__CURVE_LOSS, SFP__CURVE_RATE, SFP__CURVE_LAG, SFP__CURVES };

/* One evaluation on the test sets of all tasks so far. */
typedef struct sfp__evaluation {
    uint64_t offered; /* samples of the stream before the evaluation */
    int task;         /* index of the current task */
    double *accuracy; /* (task + 1) accuracy on each task so far; NAN: not measured */
    double average;   /* mean of the measured accuracies; NAN: none was measured */
} sfp__evaluation;

#define SFP__EVALUATIONS_MAX 1000

/* Predictions by their confidence, the probability of the predicted class, in bins of equal width. */
enum { SFP__RELIABILITY_BINS = 15 };
typedef struct sfp__reliability {
    uint64_t count[SFP__RELIABILITY_BINS], correct[SFP__RELIABILITY_BINS];
    double confidence[SFP__RELIABILITY_BINS]; /* sum */
} sfp__reliability;

/* cost(coreset) / cost(batch) over all timestamps, for one definition of the cost; NAN: not measured. */
typedef struct sfp__coreset_ratios {
    double ratio, deviation, within;        /* mean, standard deviation, share within c^-1/2 of 1 */
    double random_deviation, random_within; /* deviation and within of random coresets */
} sfp__coreset_ratios;

enum { SFP__COSINES_FINGERPRINTS, SFP__COSINES_HEAD, SFP__COSINES };

typedef struct sfp__result_machine {
    char cpu[128], kernels[16], gemm[64];
    int threads;
} sfp__result_machine;

typedef struct sfp__result_calibration {
    double error, before; /* expected calibration error; before: with unscaled scores. NAN: not measured; no fitted scale */
    sfp__reliability bins;
} sfp__result_calibration;

typedef struct sfp__result_samples {
    uint64_t offered, scored, trained, replayed, dropped, skipped;
    uint64_t closed_form; /* part of trained: samples that a closed-form head learned from */
    uint64_t excluded;    /* part of dropped: samples in short last batches, which a preset excludes */
} sfp__result_samples;

/* Live streams only: numbers of samples by standing. samples.offered is the sum of learned, waiting, forgotten, samples.dropped and
 * samples.skipped. corrected: learned samples that got another label. */
typedef struct sfp__result_standings {
    uint64_t learned, waiting, forgotten, corrected;
} sfp__result_standings;

/* Live streams only: the number of images that arrived without a label; of these: labelled later, expired, still in the label
 * queue. */
typedef struct sfp__result_labels {
    uint64_t unlabelled, late, expired, waiting;
} sfp__result_labels;

/* Seconds from arrival to processing; NAN: the clock has no lag. */
typedef struct sfp__result_lag {
    double mean, max, last;
} sfp__result_lag;

typedef struct sfp__result_seconds {
    double decode, select, train, buffer, evaluate, total;
    double wait_seconds; /* time in which the learner waited for data */
} sfp__result_seconds;

/* Every number and text below has a row in result_fields.c. */
struct sfp_result {
    /* the run */
    char version[16]; /* of the program that wrote it */
    char started[32]; /* ISO 8601, UTC */
    bool finished;
    uint64_t seed;
    sfp__result_machine machine;
    sfp__config_entry *config; /* (config_count) every option with its value as text */
    int config_count;
    size_t config_capacity;
    /* tasks and classes */
    int tasks, classes;
    char **task_names, **class_names;
    size_t class_capacity; /* of class_names */
    /* accuracy */
    int tasks_done;   /* number of tasks after which the accuracy was measured */
    double *accuracy; /* (tasks, tasks): row i after task i, column j on task j; NAN: not measured */
    double average_accuracy, forgetting, backward_transfer; /* NAN: not defined */
    double prequential_accuracy;                            /* NAN: not measured */
    uint64_t *confusion; /* (classes, classes) of the last evaluation: row = truth; NULL: more than SFP__CONFUSION_MAX classes */
    sfp__result_calibration calibration; /* of the last evaluation */
    int evaluation_count;
    sfp__evaluation *evaluations; /* (SFP__EVALUATIONS_MAX) oldest first; if full, every second one is removed; NULL: none */
    /* counts */
    sfp__result_samples samples;
    sfp__result_standings standings;
    sfp__result_labels labels;
    double coverage; /* classes learned from / classes offered */
    uint64_t peak_rss_bytes;
    /* time */
    double lambda, cs; /* arrival rate and C_S; NAN: no arrival rate, no paper clock */
    int starved_tasks; /* clock paper: tasks of which no whole batch fits the time; one batch of them is trained on nevertheless */
    sfp__result_lag lag;
    sfp__result_seconds seconds;
    double samples_per_second; /* offered samples / (select + train + buffer) */
    uint64_t timestamps;
    double batch_seconds; /* mean processing time of a timestamp after the first 3; NAN: there is none */
    struct {
        uint64_t hits, misses;
    } cache; /* values that the last process of the run found in the feature cache, and did not find; both 0: no cache */
    sfp__curve curve[SFP__CURVES]; /* x: number of offered samples */
    /* measurements with --diagnostics on (docs/method.md, section 10); NAN: not measured */
    struct {
        bool measured; /* result.json has them */
        sfp__coreset_ratios coreset_cost, coreset_angle;
        double buffer_mmd, buffer_mmd_mean, stream_score_deviation;
        double gradient_cosine_fingerprints, gradient_cosine_head;
        double *cosines; /* (SFP__COSINES, tasks, tasks) between the gradients of tasks; NULL: not measured */
    } diagnostics;
};

/* The matrix (tasks, tasks) of SFP__COSINES_*; allocated on first use with NAN. NULL: out of memory. */
double *sfp__result_gradient_cosines(sfp_result *r, int which);

/* Sets counts to 0 and measurements to NAN. */
sfp_status sfp__result_init(sfp_result *r, int tasks, int classes, sfp_error *err);
void sfp__result_done(sfp_result *r);
/* Adds an option, or replaces its value. */
sfp_status sfp__result_config(sfp_result *r, const char *key, const char *value, sfp_error *err);
/* Sets the default of an option that has a value, so that the report can list the options that differ from their defaults. */
sfp_status sfp__result_default(sfp_result *r, const char *key, const char *default_value, sfp_error *err);
/* Sets the value that the preset gives to an option that has a value. */
sfp_status sfp__result_preset(sfp_result *r, const char *key, const char *preset_value, sfp_error *err);
/* Returns the value that the option would have if the user had not set it; "": none, NULL: unknown. */
const char *sfp__config_base(const sfp__config_entry *p);
/* Whether the user has set the option to another value than that; false if it is unknown. */
bool sfp__config_differs(const sfp__config_entry *p);
const char *sfp__result_value(const sfp_result *r, const char *key); /* NULL: no such option */
/* The preset whose values the result has; NULL: none. */
const char *sfp__result_preset_name(const sfp_result *r);
/* Writes a short name of the method: "ranpac" (--method), "streamfp", or "random+er" (selector and buffer), and the
 * preset: "random+er, preset paper". */
void sfp__result_method(const sfp_result *r, char *buf, size_t size);
/* The number of samples that were trained on: samples.trained without those that a closed-form head learned from. */
uint64_t sfp__result_trained(const sfp_result *r);
/* The number of samples that were dropped because the learner was busy: samples.dropped without samples.excluded. */
uint64_t sfp__result_dropped(const sfp_result *r);
/* The name of task i for people (sfp__task_title), with the names of its classes if it is one of classes. */
const char *sfp__result_task_title(const sfp_result *r, int i, int width, char buf[SFP__TITLE_SIZE]);
/* Accuracy on class c in the last evaluation; NAN: no test samples. *tested (may be NULL) is the number of test samples. */
double sfp__result_class_accuracy(const sfp_result *r, int c, uint64_t *tested);
/* The number of test images of the last evaluation whose class had not appeared in a live stream; they count as wrong. *tested (may be
 * NULL) is the number of all test images. Both 0: unknown. */
uint64_t sfp__result_unseen(const sfp_result *r, uint64_t *tested);
sfp_status sfp__curve_add(sfp__curve *c, double x, double y, sfp_error *err);
void sfp__curve_done(sfp__curve *c);
/* Removes every second point, which bounds the size of a curve over an endless stream. */
void sfp__curve_thin(sfp__curve *c);
/* Adds a class that a live stream has introduced; its number is classes - 1. Frees the confusion matrix; sfp__result_confusion
 * allocates a new one. */
sfp_status sfp__result_add_class(sfp_result *r, const char *name, sfp_error *err);
/* Allocates a zeroed confusion matrix for the current classes, unless there are more than SFP__CONFUSION_MAX. */
sfp_status sfp__result_confusion(sfp_result *r, sfp_error *err);
/* Adds an evaluation of tasks [0, task] with their accuracies (task + 1) and the mean. If the last one has the same `offered` and
 * `task`, replaces it. */
sfp_status sfp__result_evaluated(sfp_result *r, uint64_t offered, int task, const double *accuracy, sfp_error *err);

/* Computes average accuracy, forgetting and backward transfer from `accuracy` and tasks_done. */
void sfp__result_summarise(sfp_result *r);

/* Metrics of an accuracy matrix `a` (tasks, tasks), of which the first `done` rows are measured. NAN: not defined. */
double sfp__average_accuracy(int tasks, int done, const double *a);
/* clipped: no task forgets less than 0, as in the authors' code. */
double sfp__forgetting(int tasks, int done, const double *a);
double sfp__backward_transfer(int tasks, int done, const double *a);
/* Counts a prediction, unless its confidence is NAN: no class was predicted. */
void sfp__reliability_add(sfp__reliability *c, double confidence, bool correct);
/* Returns the mean of |accuracy - mean confidence| over the bins, weighted by their counts; NAN: no predictions. */
double sfp__reliability_error(const sfp__reliability *c);
/* Returns 0 if x rounds to 0 with this number of decimals, else x; avoids "-0.0" in texts. */
double sfp__no_minus_zero(double x, int decimals);
typedef struct sfp__confusion_pair {
    int truth, answer;
    uint64_t count;
} sfp__confusion_pair;
/* Finds the most frequent wrong answers of a confusion matrix (classes, classes); NULL: none. They are sorted by decreasing
 * count, then by truth and answer. Returns their number, at most max_pairs. */
int sfp__top_confusions(int classes, const uint64_t *confusion, int max_pairs, sfp__confusion_pair *out);

/* Converts a result to the text of result.json, on one line or indented; the caller frees it with sfp__free. Parsing names the
 * source `label` in messages. */
sfp_status sfp__result_text(const sfp_result *r, bool one_line, char **out, sfp_error *err);
sfp_status sfp__result_parse(const char *label, const char *text, size_t size, sfp_result *out, sfp_error *err);
/* Reads a result from JSON that has been parsed. */
struct sfp__json_value;
sfp_status sfp__result_from(const char *label, const struct sfp__json_value *root, sfp_result *out, sfp_error *err);
/* Writes a seed. One above 2^63 - 1 is written as a string, because many JSON readers do not accept it as an integer. */
struct sfp__json;
void sfp__json_seed(struct sfp__json *j, const char *key, uint64_t seed);
/* Writes result.json atomically, and reads it. Reading checks every value, because the file may be from an untrusted source. */
sfp_status sfp__result_write(const sfp_result *r, const char *path, sfp_error *err);
sfp_status sfp__result_read(const char *path, sfp_result *out, sfp_error *err);

/* A number by its key in result.json, with a dot between the keys of an inner object and its member: "samples.offered". A flag is 0
 * or 1. NAN: not measured, or there is no such number. */
double sfp__result_number(const sfp_result *r, const char *key);
/* A text by its key, such as "started" or "config.sigma"; NULL: there is none. */
const char *sfp__result_string(const sfp_result *r, const char *key);

#endif
