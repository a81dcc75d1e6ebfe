/* What the files of `streamfp predict` share: cmd_predict.c reads the options
 * and walks the files, predict_answer.c asks the backbone's own head or a saved
 * state, predict_out.c prints and counts, predict_features.c writes features. */
#ifndef SFP_CLI_PREDICT_H
#define SFP_CLI_PREDICT_H

#include "cli/command.h"
#include "cli/filelist.h"
#include "io/json_write.h"

#include "base/thread_pool.h"
#include "io/image/image.h"
#include "learner/predictor.h"
#include "model/vit.h"

#include <stdio.h>

#define SFP_PREDICT_TOP_MAX 100

typedef struct sfp_predict {
    const sfp_args *args;
    sfp_thread_pool *pool;
    sfp_vit *vit;
    sfp_filelist files;
    char **names; /* of --names; else those of the state, or of the config beside the weights */
    size_t name_count;
    int32_t *labels; /* (files) with --eval */
    sfp_image_options image_options;
    bool json, eval, score;
    bool list; /* of the pictures, in the JSON */
    int topk;

    /* who answers */
    int classes;
    sfp_resize resize;
    sfp_predictor *predictor; /* of --state; or */
    sfp_vit_plan *plan;       /* the backbone and its own head */
    float mean[3], std[3];
    float *x;       /* (chunk, 3, S, S) */
    float *feature; /* (chunk, D) */

    /* a chunk of files */
    int chunk;
    size_t first;            /* file of slot 0 */
    int slots;               /* files of this chunk */
    uint8_t *rgb;            /* (chunk, S, S, 3) */
    sfp_error *errors;       /* (chunk); status SFP_OK: decoded */
    int decoded;
    int *slot_of;            /* (chunk): slot of the i-th decoded picture */
    const uint8_t **picture; /* (chunk): its pixels */
    float *scores;           /* (chunk, classes): logits or log-probabilities; -INFINITY: a class that was never seen */
    int32_t *label;          /* (chunk) of a state */
    int *top_count;          /* (chunk) */
    int32_t *top;            /* (chunk, SFP_PREDICT_TOP_MAX) classes, best first */
    float *top_p;            /* (chunk, SFP_PREDICT_TOP_MAX) their probabilities */

    FILE *spool; /* rows of --features, in the order of files */
    size_t count, failed, top1, top5;
    double seconds;
    sfp_json out;
} sfp_predict;

/* predict_answer.c: opens --state or makes the backbone's head ready; sets classes, score and resize. */
sfp_status sfp__predict_open(sfp_predict *p, sfp_error *err);
sfp_status sfp__predict_room(sfp_predict *p, sfp_error *err); /* for p->chunk pictures */
/* Scores of the decoded pictures (with p->score), their features (without a state), their best classes. */
sfp_status sfp__predict_answer(sfp_predict *p, sfp_error *err);
const char *sfp__predict_class_name(const sfp_predict *p, int k); /* NULL: this class has no name */
void sfp__predict_close(sfp_predict *p);

/* predict_out.c: a picture that could not be decoded, on stderr; the pictures of a chunk in order; the end. */
void sfp__predict_say_failed(const sfp_predict *p, int slot);
void sfp__predict_tell(sfp_predict *p);
void sfp__predict_summary(sfp_predict *p);

/* predict_features.c: nothing to do without --features. */
sfp_status sfp__predict_spool_open(sfp_predict *p, sfp_error *err);
sfp_status sfp__predict_spool_chunk(sfp_predict *p, sfp_error *err);
sfp_status sfp__predict_spool_finish(sfp_predict *p, sfp_error *err);

#endif
