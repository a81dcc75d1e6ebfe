/* Shared declarations of `streamfp-verify`, which recomputes golden cases. verify.c runs them; backbone.c, learner.c and
 * buffer.c recompute. */
#ifndef SFP_TOOLS_VERIFY_H
#define SFP_TOOLS_VERIFY_H

#include "io/json_read.h"

#include "base/thread_pool.h"
#include "io/tensor/safetensors.h"
#include "model/vit.h"

/* Tolerances of the reference: relative Euclidean error of a tensor. */
#define SFP_VERIFY_VALUE 1e-4
#define SFP_VERIFY_GRADIENT 1e-3
#define SFP_VERIFY_UPDATE 1e-2

typedef struct sfp__verify {
    sfp__thread_pool *pool;
    bool brief; /* one line per case, and one per failed tensor */
    int tensors, failures; /* of the current case */
} sfp__verify;

typedef struct sfp__golden {
    const char *dir;
    sfp__json_value *config; /* config.json */
    sfp__tensor_file *batch, *state, *expect;
    sfp__vit *vit;
    int b, classes;
    float *x;      /* (b, 3, S, S) */
    int64_t *y;    /* (b) */
    float *query;  /* (b, D), recomputed */
    bool *checked; /* (tensors of expect): compared, or an input */
} sfp__golden;

/* Prints one line: name, error, tolerance, ok or FAIL. */
void sfp__verify_line(sfp__verify *r, const char *name, double error, double tolerance);
/* Returns |found - expected| / |expected|, Euclidean; NaN if either side contains one. */
double sfp__verify_error(const float *found, const float *expected, size_t n);
/* Compares with a tensor of the expect file, which must have this shape. */
sfp_status sfp__verify_compare(sfp__verify *r, sfp__golden *g, const char *name, const float *found, const int64_t *shape,
                               int ndim, double tolerance, sfp_error *err);
void sfp__verify_mark(sfp__golden *g, const char *name);

/* Opens DIR/NAME. */
sfp_status sfp__verify_open(const sfp__golden *g, const char *name, sfp__tensor_file **out, sfp_error *err);
/* Reads tensors of exactly this shape; *out is allocated. */
sfp_status sfp__verify_floats(const sfp__tensor_file *st, const char *name, const int64_t *shape, int ndim, float **out,
                              sfp_error *err);
sfp_status sfp__verify_labels(const sfp__tensor_file *st, const char *name, int n, int classes, int64_t **out, sfp_error *err);

sfp_status sfp__verify_backbone(sfp__verify *r, sfp__golden *g, sfp_error *err);
sfp_status sfp__verify_learner(sfp__verify *r, sfp__golden *g, sfp_error *err);
sfp_status sfp__verify_buffer(sfp__verify *r, const char *path, sfp_error *err);

#endif
