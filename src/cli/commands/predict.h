/* Shared by the files of `streamfp predict`: predict.c reads the options and predicts the files, one chunk at a time;
 * predict_out.c prints, counts and writes features. Both use the public header only. */
#ifndef SFP_CLI_PREDICT_H
#define SFP_CLI_PREDICT_H

#include "cli/command.h"
#include "cli/filelist.h"
#include "cli/output.h"

#include "base/text.h"
#include "io/file.h"
#include "streamfp.h"

#define SFP__PREDICT_TOP_MAX 100
#define SFP__PREDICT_TAPS_MAX 1000 /* the backbone sets the limit */

/* The best classes of one image. */
typedef struct sfp__ranking {
    int count;                           /* 0: the image could not be read, or nothing has classes to choose from */
    int32_t label[SFP__PREDICT_TOP_MAX]; /* best first */
    float probability[SFP__PREDICT_TOP_MAX];
} sfp__ranking;

typedef struct sfp__predict {
    const sfp__args *args;
    bool eval; /* --eval: count instead of print */
    bool list; /* --json without --eval: one object per image */
    int topk;
    sfp__filelist files;
    sfp_source *rows; /* of PATH.npy, in place of image files */
    int32_t *labels;  /* (files) with --eval */
    sfp_engine *engine;
    sfp_predictor *predictor;
    int classes;
    sfp__strings names; /* of --names; else those of the predictor */
    /* the chunk of files that is being processed */
    int capacity, count;
    size_t first;                /* file of image 0 */
    void *block;                 /* of the arrays below */
    sfp_image *images;           /* (capacity) */
    sfp_prediction *predictions; /* (capacity) */
    sfp__ranking *rankings;      /* (capacity) */
    /* totals */
    size_t answered, failed, top1, top5;
    bool scored; /* an image has a score for "none of the classes" */
    double seconds;
    sfp__writer features; /* of --features */
    sfp__out out;
} sfp__predict;

const char *sfp__predict_class_name(const sfp__predict *p, int label); /* NULL: the class has no name */

/* The score of image i of the chunk for "none of the classes"; NAN: there is none. */
double sfp__predict_unknown(const sfp__predict *p, int i);

/* predict_out.c: print an unreadable image on standard error, all images of the chunk, and the totals. */
void sfp__predict_print_failed(const sfp__predict *p, int i);
void sfp__predict_print_chunk(sfp__predict *p);
void sfp__predict_print_totals(sfp__predict *p);
/* With --features, these write the header of the .npy file, the rows of the chunk, and close the file. Without it they do nothing. */
sfp_status sfp__predict_features_open(sfp__predict *p, sfp_error *err);
sfp_status sfp__predict_features_put(sfp__predict *p, sfp_error *err);
sfp_status sfp__predict_features_commit(sfp__predict *p, sfp_error *err);

#endif
