/* What a closed-form head is made of; only head*.c see this.
 *
 * head.c owns what all heads share: checking of input, the table of classes,
 * growth, log-softmax, saving and loading. A kind adds sums over samples and a
 * way to score from them. Classes have dense rows in order of first sight, so
 * that labels that skip numbers cost four bytes, not a row.
 *
 * The rules that make a loaded head go on to the same bytes:
 *   - what is learned (saved) depends only on the samples in their order, never on
 *     how they were cut in batches;
 *   - what is derived (solved by refresh) is a function of what is saved. */
#ifndef SFP_LEARNER_HEAD_KIND_H
#define SFP_LEARNER_HEAD_KIND_H

#include "base/mem.h"
#include "learner/heads/head.h"

#define SFP_HEAD_LABEL_MAX (1 << 20) /* labels are below this */
#define SFP_HEAD_VALUE_MAX 1e12f     /* |query| is below this: squares summed over a stream stay finite in a float */
#define SFP_HEAD_GRAIN 64            /* samples scored at a time */

/* A random projection. It does not change once it is drawn, so a head and the scorers frozen from it share one; the last holder
 * frees it. Predictors read r on their own threads but hold no projection: only the learner's thread counts holders. */
typedef struct sfp__projection {
    int holders;
    _Alignas(SFP_ALIGN) float r[]; /* (D, width) */
} sfp__projection;

/* NULL: there is none. */
sfp__projection *sfp__projection_hold(sfp__projection *p);
void sfp__projection_release(sfp__projection *p);

/* A head's scores as a linear map (head_scorer.c). */
typedef struct sfp__head_linear_map {
    int dim, rows, width;     /* width: of the features, D or of the projection */
    sfp__projection *project; /* R: features are relu(q R); NULL: they are q - centre */
    double *weight;           /* (width, rows) */
    double *bias;             /* (rows), zero before */
    double *centre;           /* (D), zero before */
} sfp__head_linear_map;

typedef struct sfp__head_kind {
    const char *name;
    size_t size; /* of the kind's struct, which begins with sfp__head */

    /* Allocates everything whose size is known; done frees what init and grow left, also after a failed init. */
    sfp_status (*init)(sfp__head *h, sfp_error *err);
    void (*done)(sfp__head *h);
    /* Arrays by class from h->capacity rows to `capacity`, new rows zero; on failure nothing has changed. */
    sfp_status (*grow)(sfp__head *h, int capacity, sfp_error *err);
    /* One sample of class `row`; h->n and h->count[row] are those before it. Cannot fail. */
    void (*learn)(sfp__head *h, const float *q, int row);
    sfp_status (*refresh)(sfp__head *h, sfp_error *err);
    /* Unnormalised log-probabilities (n, h->rows), n <= SFP_HEAD_GRAIN, after refresh; cannot fail. */
    void (*score)(sfp__head *h, int n, const float *q, double *out);
    /* After refresh: sets width and project; fills weight, bias and centre when weight is not NULL. */
    void (*linear_map)(const sfp__head *h, sfp__head_linear_map *linear_map);
    /* Writes, or reads into a new head whose classes are read and grown. */
    sfp_status (*visit)(sfp__head *h, const sfp__visitor *v, sfp_error *err);
    /* Of what score and form read, after refresh; NULL: that is no less. */
    sfp_status (*visit_inference)(sfp__head *h, const sfp__visitor *v, sfp_error *err);
} sfp__head_kind;

struct sfp__head {
    const sfp__head_kind *kind;
    sfp__head_options opt;
    bool inference_only; /* loaded for scores alone */
    int64_t n;           /* samples learned from */
    int rows, capacity;  /* classes seen; capacity in the arrays by class */
    int64_t *label;      /* (capacity): label of a row */
    int64_t *count;      /* (capacity): samples of a row */
    int label_capacity;
    int32_t *row_of; /* (label_capacity): row of a label, -1 when not seen */
    double *raw;     /* (SFP_HEAD_GRAIN, capacity) */
};

extern const sfp__head_kind sfp__head_ncm, sfp__head_slda, sfp__head_ranpac;

/* *p from `old` to `count` elements of `size` bytes, the new ones zero. False, *p as before: out of memory. */
bool sfp__head_extend(void *p, size_t size, size_t old, size_t count);

/* Normalised over the rows whose label is below `classes`; the other places of out (classes) are left alone. */
void sfp__head_log_softmax(int rows, const int64_t *label, const double *raw, int classes, float *out);

#endif
