/* What a run measured (docs/method.md, sections 10 and 17), and the files made of it. */
#ifndef SFP_RESULTS_RESULT_H
#define SFP_RESULTS_RESULT_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SFP_RESULT_TASKS_MAX 4096
#define SFP_RESULT_CLASSES_MAX (1 << 20)
#define SFP_CONFUSION_MAX 4096
#define SFP_CURVE_MAX (1 << 24) /* points */
#define SFP_RESULT_HEADS 3      /* of a mixed one: linear, slda, ranpac */

typedef struct sfp__config_entry {
    char *key, *value;
    char *default_value; /* the option's default; "": it has none, NULL: not known */
} sfp__config_entry;

typedef struct sfp__curve {
    int count;
    size_t capacity;
    double *x, *y;
} sfp__curve;

enum { SFP_CURVE_PREQUENTIAL, SFP_CURVE_LOSS, SFP_CURVE_RATE, SFP_CURVE_LAG, SFP_CURVES };

/* One look at the test sets. */
typedef struct sfp__evaluation {
    uint64_t offered; /* samples of the stream until then */
    int task;         /* the task at hand */
    double *accuracy; /* (task + 1) on each task so far; NAN: not measured */
    double average;   /* of these; NAN: none was */
} sfp__evaluation;

#define SFP_EVALUATIONS_MAX 1000

/* Its numbers and texts are in the table of result_json.c: one that is added goes there too. */
struct sfp_result {
    /* what was run */
    char started[32]; /* ISO 8601, UTC */
    bool finished;
    uint64_t seed;
    struct {
        char cpu[128], kernels[16], gemm[64];
        int threads;
    } machine;
    sfp__config_entry *config; /* every option with its value as text */
    int config_count;
    size_t config_capacity;
    /* tasks and classes */
    int tasks, classes;
    char **task_names, **class_names;
    size_t class_capacity; /* of class_names */
    /* accuracy */
    int tasks_done;   /* evaluated after so many tasks */
    double *accuracy; /* (tasks, tasks): row i after task i, column j on task j; NAN where not measured */
    double *heads;    /* (SFP_RESULT_HEADS, tasks, tasks) as accuracy, of each head of a mixed one alone; NULL: not mixed */
    double average_accuracy, forgetting, backward_transfer; /* NAN where not defined */
    double prequential_accuracy;                            /* NAN when none was measured */
    uint64_t *confusion; /* (classes, classes): row = truth, last evaluation; NULL with more than SFP_CONFUSION_MAX classes */
    int evaluation_count;
    sfp__evaluation *evaluations; /* (SFP_EVALUATIONS_MAX) in order; when there are too many every second one goes; NULL: none */
    /* counts */
    struct {
        uint64_t offered, scored, trained, replayed, dropped, skipped;
    } samples;
    struct {
        uint64_t unlabelled, late, expired,
            waiting; /* images that came without a label: all, labelled later, given up, waiting */
    } labels;        /* live streams */
    double coverage; /* classes trained on / classes offered */
    uint64_t peak_rss_bytes;
    /* time */
    double lambda, cs; /* NAN: no rate / no paper clock */
    struct {
        double mean, max, last;
    } lag; /* seconds behind arrival; NAN: nothing can be late */
    struct {
        double decode, select, train, buffer, evaluate, total, wait_seconds; /* waited: the learner for data */
    } seconds;
    double samples_per_second;    /* offered over select + train + buffer */
    sfp__curve curve[SFP_CURVES]; /* over offered samples */
};

/* Accuracies of head h of a mixed one, as r->accuracy; made on first use. NULL: no memory. */
double *sfp__result_head(sfp_result *r, int h);
extern const char *const sfp__result_head_names[SFP_RESULT_HEADS];

sfp_status sfp__result_init(sfp_result *r, int tasks, int classes, sfp_error *err); /* numbers NAN or 0 */
void sfp__result_done(sfp_result *r);
sfp_status sfp__result_config(sfp_result *r, const char *key, const char *value, sfp_error *err); /* adds or replaces */
/* The default of an option that is there, so that a report can say what differs; without it the learner's own table is asked. */
sfp_status sfp__result_default(sfp_result *r, const char *key, const char *default_value, sfp_error *err);
const char *sfp__result_value(const sfp_result *r, const char *key); /* NULL: no such option */
/* In a few words: "ranpac" (--method), "streamfp", or "random+er" (selector and buffer). */
void sfp__result_method(const sfp_result *r, char *buf, size_t size);
/* Fraction of right answers of class c in the last evaluation; NAN without test samples. *tested may be NULL. */
double sfp__result_class_accuracy(const sfp_result *r, int c, uint64_t *tested);
sfp_status sfp__curve_add(sfp__curve *c, double x, double y, sfp_error *err);
void sfp__curve_done(sfp__curve *c);
/* Every second point goes: how a curve over a stream without end stays small. */
void sfp__curve_thin(sfp__curve *c);
/* A class of a stream whose classes appear; its number is classes - 1. Clears the confusion matrix: sfp__result_confusion. */
sfp_status sfp__result_add_class(sfp_result *r, const char *name, sfp_error *err);
/* A cleared confusion matrix for the classes as they are, unless there are too many. */
sfp_status sfp__result_confusion(sfp_result *r, sfp_error *err);
/* Notes an evaluation of tasks [0, task], accuracy (task + 1) and their mean; one at the same place is replaced. */
sfp_status sfp__result_evaluated(sfp_result *r, uint64_t offered, int task, const double *accuracy, sfp_error *err);

/* From `accuracy` and tasks_done: average, forgetting, backward transfer. */
void sfp__result_summarise(sfp_result *r);

/* Pure pieces. a: (J, J). */
double sfp__average_accuracy(int tasks, int done, const double *a);
double sfp__forgetting(int tasks, int done, const double *a);
double sfp__backward_transfer(int tasks, int done, const double *a);
/* 0 for what rounds to 0 with so many decimals: nobody should read "-0.0". */
double sfp__no_minus_zero(double x, int decimals);
/* The most frequent wrong answers of a confusion matrix (classes, classes; NULL: none), most frequent first, ties in order of
 * truth and answer, at most `most`; returns how many. */
typedef struct sfp__confusion_pair {
    int truth, answer;
    uint64_t count;
} sfp__confusion_pair;
int sfp__top_confusions(int classes, const uint64_t *confusion, int most, sfp__confusion_pair *out);
/* Mean and half width of the 95 % Student-t interval of n numbers; half NAN for n < 2. */
void sfp__mean_interval(int n, const double *x, double *mean, double *half);
/* Regularised incomplete beta function I_x(a, b), a and b > 0, x in [0, 1]. */
double sfp__incomplete_beta(double a, double b, double x);
/* The t with P(T <= t) = p for Student's T with df > 0 degrees of freedom; NAN outside 0 < p < 1. */
double sfp__student_t(double p, double df);

/* The same as text, on one line or laid out for people; sfp__free. `label` names the source in messages. */
sfp_status sfp__result_text(const sfp_result *r, bool one_line, char **out, sfp_error *err);
sfp_status sfp__result_parse(const char *label, const char *text, size_t size, sfp_result *out, sfp_error *err);
/* A seed beyond 2^63 - 1 is no integer to many readers of JSON: it goes as text. */
struct sfp__json;
void sfp__json_seed(struct sfp__json *j, const char *key, uint64_t seed);
/* DIR/result.json, atomically; and back. Everything read is checked: the file may come from anywhere. */
sfp_status sfp__result_write(const sfp_result *r, const char *path, sfp_error *err);
sfp_status sfp__result_read(const char *path, sfp_result *out, sfp_error *err);

#endif
