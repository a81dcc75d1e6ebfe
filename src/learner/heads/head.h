/* Closed-form heads on the frozen features (docs/method.md, section 13). They learn from queries that are computed anyway, one
 * sample at a time, without gradients.
 *
 *     update(q, label) -> scores(q) -> visit
 *
 * A head computes log-probabilities over the classes seen (-INFINITY for others; 0 for a single class). A class is added with its first sample. To add a head, write head_NAME.c with its `const sfp__head_kind`, and add a row
 * to the table in head.c. */
#ifndef SFP_LEARNER_HEAD_H
#define SFP_LEARNER_HEAD_H

#include "base/thread_pool.h"
#include "io/tensor/visit.h"

#include <stddef.h>
#include <stdint.h>

typedef struct sfp__head sfp__head;

#define SFP__HEAD_LABEL_MAX (1 << 20) /* labels are below this */
#define SFP__HEAD_VALUE_MAX 1e12f     /* |query| is below this, so that sums of squares over a stream stay finite in a float */
#define SFP__RANPAC_WIDTH_DEFAULT 4000

typedef struct sfp__head_options {
    int dim;                   /* number of values of a query: D, or with K taps K * D, and D more with the mean tap */
    int classes;               /* initial capacity in classes; grows if needed */
    uint64_t seed;             /* seed of ranpac's projection */
    int ranpac_width;          /* number of features of ranpac */
    int tap_dim;               /* D: ranpac normalises each tap, unless it is the only one */
    bool shrinkage_oas;        /* always on, except in tests: the shrinkage of slda's covariance is estimated */
    float slda_shrink;         /* the shrinkage, if it is not estimated */
    bool ridge_balanced;       /* ridge: scores do not prefer frequent classes */
    double half_life;          /* not ranpac: samples count half after this number of others; 0: never */
    bool tap_mean;             /* the first D values are the mean tap */
    sfp__thread_pool *threads; /* for solves; NULL: none */
} sfp__head_options;

sfp__head_options sfp__head_options_defaults(int dim, int classes);

/* kind: "ncm", "slda", "ridge", "ranpac". */
sfp_status sfp__head_create(const char *kind, const sfp__head_options *opt, sfp__head **out, sfp_error *err);
void sfp__head_free(sfp__head *h);
DEFINE_OWNED_PTR(sfp__head, sfp__head_free)
/* Returns whether a prediction changes what a checkpoint contains, so that none may be made until the checkpoint is written. */
bool sfp__head_saves_solution(const sfp__head *h);
const char *sfp__head_kind_name(const sfp__head *h);
/* Returns the name of kind i; NULL: i is past the last one. */
const char *sfp__head_name(int i);

/* Learns from n samples; query (n, dim), label (n) >= 0, key (n): digests of the images, which decide which samples are kept
 * (sums.h); NULL: they are derived from the queries. On failure (a query that is not finite, a label out of range, no memory for
 * new classes) it learns from none of them. No kind learns from the prompted feature: that feature changes while the fingerprints
 * are trained, so sums over it would be outdated. */
sfp_status sfp__head_update(sfp__head *h, int n, const float *query, const int32_t *label, const uint64_t *key, sfp_error *err);
/* Takes out n samples that were learned with these labels and keys: the scores are then those of a head that has never seen them, except
 * that fewer samples may be kept to choose strengths (sums.h). SFP_EUNSUPPORTED: the kind is not a function of sums (ranpac);
 * SFP_ENOTFOUND: one of them cannot have been learned. On failure none is taken out. */
sfp_status sfp__head_forget(sfp__head *h, int n, const float *query, const int32_t *label, const uint64_t *key, sfp_error *err);
/* Corrects the label of such a sample. On failure nothing has changed. */
sfp_status sfp__head_relabel(sfp__head *h, const float *query, int32_t from, int32_t to, const uint64_t *key, sfp_error *err);
/* Adds the samples of another head of the same kind and size: the head is then as if it had learned from both streams. label (rows of
 * `from`, sfp__head_row_label): their labels here, -1 for rows without samples that are not added; NULL: the same labels. On failure
 * the head is unchanged. */
sfp_status sfp__head_merge(sfp__head *h, const sfp__head *from, const int32_t *label, sfp_error *err);
/* Takes the samples of such a head out again. SFP_ENOTFOUND: `from` has more samples of a class, or more held-out ones, than the head
 * (sfp__head_find_excess); nothing has changed. */
sfp_status sfp__head_subtract(sfp__head *h, const sfp__head *from, const int32_t *label, sfp_error *err);
/* Returns the first row of `from` of which the head does not have all samples; -1: none. Both have the same kind and size. */
int sfp__head_find_excess(const sfp__head *h, const sfp__head *from, const int32_t *label);
/* Takes out all samples of a label. What cannot be attributed to a class stays in the sums (sfp__sums_leave_out). */
void sfp__head_leave_out(sfp__head *h, int label);
/* Drops all single samples from the sums. The exact solution is computed first and stays. */
sfp_status sfp__head_drop_samples(sfp__head *h, sfp_error *err);

/* Solves the equations that updates defer; sfp__head_scores calls it if needed. exact: of all samples; else they may be some
 * samples behind (head_ridge.c). */
sfp_status sfp__head_refresh(sfp__head *h, bool exact, sfp_error *err);
/* Computes the log-probabilities (n, classes); labels seen that are not below `classes` are excluded. */
sfp_status sfp__head_scores(sfp__head *h, int n, const float *query, bool exact, int classes, float *out, sfp_error *err);
/* Judges n samples that were learned with these labels. For each sample, writes the log-probabilities (n, classes) and the
 * sfp__head_unknown (n) of the head as if it had not learned this sample. They are computed exactly, in closed form, with the
 * strengths (ridge: scaling and n lambda; slda: shrinkage) that were chosen with all samples. A class whose only sample is the
 * judged one has -INFINITY; if the judged sample is the only one of its class, all classes have. Fails for the reasons of
 * sfp__head_forget, except SFP_ENOTFOUND. */
sfp_status sfp__head_judge(sfp__head *h, int n, const float *query, const int32_t *label, int classes, float *out, float *unknown,
                           sfp_error *err);
/* Returns the factor of the scores that was fitted on held-out samples; NAN: the kind has none. softmax(logp / scale) are the
 * probabilities without it. */
double sfp__head_scale(const sfp__head *h, bool exact);
/* Returns the score of a query for "none of the classes" (novelty.h), after an exact refresh; NAN: there is none. work (D). */
float sfp__head_unknown(const sfp__head *h, const float *query, double *work);
/* Returns the number of samples learned from, in total and with a label. */
int64_t sfp__head_samples(const sfp__head *h);
int64_t sfp__head_label_samples(const sfp__head *h, int label);
/* Returns the number of rows, one for each class that ever had a sample, and the label of one. */
int sfp__head_rows(const sfp__head *h);
int sfp__head_row_label(const sfp__head *h, int row);
/* Returns whether the head is a function of sums, so that sfp__head_forget and sfp__head_merge work. */
bool sfp__head_has_sums(const sfp__head *h);
/* Returns the size of its sums in a file, in bytes. */
size_t sfp__head_sums_bytes(const sfp__head *h);

/* Writes or reads the state as tensors. A head that was read continues with the same bytes as the head that was written. If
 * reading fails, the head is unchanged. With v->inference_only only the data for scores is visited: the solution of refresh
 * instead of the sums (ranpac: a matrix per class instead of M x M). A head that was read this way computes the same bytes as the
 * written one, but cannot learn: update fails with SFP_EUNSUPPORTED. With v->sums the sums are visited, in addition when writing with
 * v->inference_only, alone when reading: a head that was read this way learns, and computes its solutions from the sums. */
sfp_status sfp__head_visit(sfp__head *h, const sfp__visitor *v, sfp_error *err);
/* sfp__head_visit for tensors with the prefix head.KIND. h NULL: nothing is visited. */
sfp_status sfp__head_visit_named(sfp__head *h, const sfp__visitor *with, sfp_error *err);

#endif
