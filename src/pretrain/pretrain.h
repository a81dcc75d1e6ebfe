/* Pretraining: a ViT, the student, learns all its weights from images on disk: from their labels, from a teacher backbone, or
 * from both.
 *
 * The images of a step depend only on (seed, step), and sums have a fixed order for a given number of threads. Everything else
 * that a step reads is in the checkpoint. So an interrupted and resumed run of a given number of epochs writes the same bytes as
 * an uninterrupted one. A run of a given number of seconds depends on the clock and cannot be reproduced. */
#ifndef SFP_PRETRAIN_PRETRAIN_H
#define SFP_PRETRAIN_PRETRAIN_H

#include "base/error.h"
#include "base/settings.h"
#include "base/thread_pool.h"
#include "streamfp.h"

#include <stdbool.h>
#include <stdint.h>

/* The terms of the loss. */
typedef enum sfp__pretrain_term {
    SFP__TERM_LABEL,
    SFP__TERM_CLASS,
    SFP__TERM_PATCH,
    SFP__TERM_LOGITS,
    SFP__TERMS
} sfp__pretrain_term;
const char *sfp__pretrain_term_name(int term);

typedef struct sfp__loss_options {
    double weight[SFP__TERMS], smoothing, temperature;
} sfp__loss_options;

typedef struct sfp__pretrain_options {
    struct {
        const char *train; /* KIND:PATH */
        const char *test;  /* KIND:PATH; NULL: the test part of the dataset; if it has none, every 20th image is held out */
        int size;          /* side of the images that views are cropped from; 0: the student's */
    } data;
    struct {
        int img_size, patch_size, dim, depth, heads, hidden;
        const char *init; /* file of initial weights (position embeddings are resized); NULL: random weights */
    } student;
    struct {
        const char *weights; /* file; NULL: no teacher */
        const char *cache;   /* file with the teacher's outputs; NULL: OUT/teacher.cache */
        int grid;            /* patch tokens per side in the cache, a multiple of the student's; 0: the student's */
        int views;           /* fixed views per image */
    } teacher;
    struct {
        double min_crop; /* minimum fraction of the image's area */
        double jitter;
        double mixup; /* the share of the first image is drawn from Beta(mixup, mixup); 0: no mixing */
    } view;
    sfp__loss_options loss;
    struct {
        int batch, epochs;
        double seconds; /* > 0: the run has this many seconds of training instead of `epochs` */
        uint64_t seed;
    } plan;
    struct {
        double lr, warmup, weight_decay, clip, beta2, ema;
    } adam;
    struct {
        const char *dir;
        bool half; /* model.safetensors is F16, else F32 */
        bool resume;
        double checkpoint_seconds; /* time between checkpoints */
        double probe_seconds;      /* time between probes; 0: only at the end */
        int max_probe_images;      /* maximum number of images of each set in a probe */
    } output;
} sfp__pretrain_options;

/* `calls` has the callbacks and the command line, which config.json records. */
sfp_status sfp__pretrain(const sfp__pretrain_options *o, const sfp_pretrain_options *calls, sfp__thread_pool *pool,
                         sfp_pretrain_result *out, sfp_error *err);

/* -------------------------------------------------------------------- settings
 *
 * The option table of `streamfp pretrain`. A checkpoint records the options that a resumed run must have (SFP__RESUME_SAME). */

enum { SFP__PRETRAIN_ROWS = 41 };
extern const sfp__opt sfp__pretrain_rows[SFP__PRETRAIN_ROWS];

/* Sets the options from the values of the table. SFP_EINVAL: the error names the option. */
sfp_status sfp__pretrain_read_options(const sfp__args *a, sfp__pretrain_options *o, sfp_error *err);

#endif
