/* Pretraining: a ViT learns all its weights from images on disk - from their labels, from a teacher backbone, or both.
 *
 * What a step sees depends on (seed, step) alone, and sums have a fixed order for a given number of threads; everything
 * else that a step reads is in the checkpoint. So a training by epochs that was interrupted ends in the same bytes; one by
 * seconds follows the clock, which never runs twice the same. */
#ifndef SFP_PRETRAIN_PRETRAIN_H
#define SFP_PRETRAIN_PRETRAIN_H

#include "base/error.h"
#include "base/settings.h"
#include "base/thread_pool.h"
#include "io/tensor/safetensors.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/* The parts of the loss, in this order everywhere. */
typedef enum sfp__pretrain_term { SFP_TERM_LABEL, SFP_TERM_CLASS, SFP_TERM_PATCH, SFP_TERM_LOGITS, SFP_TERMS } sfp__pretrain_term;
const char *sfp__pretrain_term_name(int term);

typedef struct sfp__loss_options {
    double weight[SFP_TERMS], smoothing, temperature;
} sfp__loss_options;

typedef struct sfp__pretrain_options {
    struct {
        const char *train; /* KIND:PATH */
        const char *test;  /* KIND:PATH; NULL: the data set's own test part, else every 20th image */
        int size;          /* side of the images that views are cut from; 0: the student's */
    } data;
    struct {
        int img_size, patch_size, dim, depth, heads, hidden;
        const char *init; /* weights to start from (positions are resized), or NULL: random ones */
    } student;
    struct {
        const char *weights; /* file, or NULL: no teacher */
        const char *cache;   /* file of its outputs; NULL: OUT/teacher.cache */
        int grid;            /* patch tokens kept along a side, a multiple of the student's; 0: the student's */
        int views;           /* fixed views per image */
    } teacher;
    struct {
        double crop_least, jitter;
        double mixup; /* Beta(mixup, mixup) gives the first image's part; 0: no mixing */
    } view;
    sfp__loss_options loss;
    struct {
        int batch, epochs;
        double seconds; /* > 0: the schedule follows the seconds spent in training instead of epochs */
        uint64_t seed;
    } plan;
    struct {
        double lr, warmup, weight_decay, clip, beta2, ema;
    } adam;
    struct {
        const char *dir;
        const char *command; /* how it was called, for the config beside the model; NULL: not told */
        bool half;           /* the model's file is F16 */
        bool resume;
        double checkpoint_seconds; /* between checkpoints */
        double score_seconds;      /* between scores; 0: at the end only */
        int max_scored_images;     /* max images scored */
    } output;
} sfp__pretrain_options;

typedef struct sfp__pretrain_progress {
    const char *phase;    /* "images", "teacher", "train" */
    uint64_t done, total; /* of the phase; training by epochs: steps */
    double fraction;      /* of the phase, 0..1 */
    double from;          /* fraction at which this call began: what an earlier one left */
    double seconds;       /* in this phase, of this call */
    double epoch;
    double images_per_second;
    double loss[SFP_TERMS]; /* NAN: not in use */
    double ncm, knn;        /* the last score; NAN: none yet */
} sfp__pretrain_progress;

typedef struct sfp__pretrain_hooks {
    void *ctx;
    void (*progress)(void *ctx, const sfp__pretrain_progress *p);
    void (*info)(void *ctx, const char *message);
    const volatile sig_atomic_t *stop;
} sfp__pretrain_hooks;

/* Of hooks that may be NULL, in whole or in part. */
static inline void sfp__pretrain_info(const sfp__pretrain_hooks *h, const char *text)
{
    if (h && h->info)
        h->info(h->ctx, text);
}
static inline void sfp__pretrain_report_progress(const sfp__pretrain_hooks *h, const sfp__pretrain_progress *p)
{
    if (h && h->progress)
        h->progress(h->ctx, p);
}
static inline bool sfp__pretrain_stopped(const sfp__pretrain_hooks *h)
{
    return h && h->stop && *h->stop;
}

typedef struct sfp__pretrain_result {
    bool finished;
    uint64_t steps, images;
    double seconds, images_per_second, epochs;
    double loss[SFP_TERMS];
    double ncm, knn; /* of the written model; NAN without labels */
    size_t parameters;
} sfp__pretrain_result;

sfp_status sfp__pretrain(const sfp__pretrain_options *o, sfp__thread_pool *pool, const sfp__pretrain_hooks *hooks,
                         sfp__pretrain_result *out, sfp_error *err);

/* -------------------------------------------------------------------- settings
 *
 * The options of a training: the table of `streamfp pretrain`, what a checkpoint notes of them, and which of them is another one
 * when a training cannot go on. */

enum { SFP_PRETRAIN_ROWS = 41 };
extern const sfp__opt sfp__pretrain_rows[SFP_PRETRAIN_ROWS];

/* A number (the seed apart) that decides what a step does: a training cannot go on with another one. */
bool sfp__pretrain_decides(const sfp__opt *row);

enum { SFP_PRETRAIN_SAVED_OPTIONS_MAX = SFP_PRETRAIN_ROWS };

typedef struct sfp__saved_option {
    char key[32];     /* "option.NAME" */
    const char *text; /* the value: the option's own text ("": none), or NULL: */
    char number[32];
} sfp__saved_option;

/* The options that decide what a step does; returns how many. `o` must outlive them. */
size_t sfp__pretrain_saved_options(const sfp__pretrain_options *o, sfp__saved_option *out);
/* SFP_EINVAL: a checkpoint of another training; with its first note that is not as now, and both values. */
sfp_status sfp__pretrain_check_saved_options(const sfp__tensor_file *f, const sfp__pretrain_options *o, sfp_error *err);

#endif
