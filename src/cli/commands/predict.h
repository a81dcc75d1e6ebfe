/* What the files of `streamfp predict` share: predict.c reads the options and walks the files, a chunk at a time;
 * predict_answer.c asks the backbone's own head or a saved state; predict_out.c prints, counts and writes features. */
#ifndef SFP_CLI_PREDICT_H
#define SFP_CLI_PREDICT_H

#include "cli/command.h"
#include "cli/filelist.h"
#include "cli/output.h"

#include "base/text.h"
#include "base/thread_pool.h"
#include "io/image/image.h"
#include "learner/predictor.h"
#include "model/vit.h"

#include <stdio.h>

#define SFP_PREDICT_TOP_MAX 100

/* Who answers. */
typedef struct sfp__image_classifier {
    sfp__thread_pool *pool;
    sfp__vit *vit;
    sfp__predictor *predictor; /* of --state; or */
    sfp__vit_plan *plan;       /* the backbone and its own head */
    sfp__strings names;        /* of --names; else those of the state, or of the config beside the weights */
    bool score;                /* it has classes */
    int classes, topk;
    sfp__resize resize;
    float mean[3], std[3];
    /* of one call, for up to `chunk` images */
    void *block;
    const uint8_t *const *image;
    float *x;       /* (chunk, 3, S, S) */
    float *feature; /* (chunk, D) */
    float *scores;  /* (chunk, classes): logits or log-probabilities; -INFINITY: a class that was never seen */
    int32_t *label; /* (chunk) of a state */
    int *top_count; /* (chunk) */
    int32_t *top;   /* (chunk, SFP_PREDICT_TOP_MAX) classes, best first */
    float *top_p;   /* (chunk, SFP_PREDICT_TOP_MAX) their probabilities */
} sfp__image_classifier;

/* Opens --state or makes the backbone's head ready, by the options. */
sfp_status sfp__image_classifier_open(sfp__image_classifier *a, const sfp__args *args, sfp_error *err);
sfp_status sfp__image_classifier_reserve(sfp__image_classifier *a, int chunk, sfp_error *err);
/* Scores of n images (with a->score), their features (without a state), their best classes. */
sfp_status sfp__image_classifier_run(sfp__image_classifier *a, int n, const uint8_t *const *image, sfp_error *err);
const char *sfp__image_classifier_class_name(const sfp__image_classifier *a, int k); /* NULL: this class has no name */
void sfp__image_classifier_close(sfp__image_classifier *a);

/* A chunk of files. */
typedef struct sfp__chunk {
    int capacity;
    void *block;
    size_t first;      /* file of slot 0 */
    int slots;         /* files of this chunk */
    uint8_t *rgb;      /* (capacity, S, S, 3) */
    sfp_error *errors; /* (capacity); status SFP_OK: decoded */
    int decoded;
    int *slot_of;          /* (capacity): slot of the i-th decoded image */
    const uint8_t **image; /* (capacity): its pixels */
} sfp__chunk;

/* What came out. */
typedef struct sfp__tally {
    FILE *spool; /* rows of --features, in the order of files */
    size_t count, failed, top1, top5;
    double seconds;
    sfp__out out;
} sfp__tally;

typedef struct sfp__predict {
    const sfp__args *args;
    sfp__filelist files;
    int32_t *labels; /* (files) with --eval */
    sfp__image_options image_options;
    bool eval;
    bool list; /* of the images, in the JSON */
    sfp__image_classifier answer;
    sfp__chunk chunk;
    sfp__tally tally;
} sfp__predict;

/* predict_out.c: an image that could not be decoded, on stderr; the images of a chunk in order; the end. */
void sfp__predict_report_failed(const sfp__predict *p, int slot);
void sfp__predict_tell(sfp__predict *p);
void sfp__predict_summary(sfp__predict *p);
/* Nothing to do without --features. */
sfp_status sfp__predict_spool_open(sfp__predict *p, sfp_error *err);
sfp_status sfp__predict_spool_chunk(sfp__predict *p, sfp_error *err);
sfp_status sfp__predict_spool_finish(sfp__predict *p, sfp_error *err);

#endif
