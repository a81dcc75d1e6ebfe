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
#include "io/tensor/safetensors.h"

#include <stdatomic.h>
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
        const char *command; /* the command line, recorded in config.json; NULL: unknown */
        bool half;           /* model.safetensors is F16, else F32 */
        bool resume;
        double checkpoint_seconds; /* between checkpoints */
        double probe_seconds;      /* between probes; 0: only at the end */
        int max_probe_images;      /* maximum number of images of each set in a probe */
    } output;
} sfp__pretrain_options;

typedef struct sfp__pretrain_progress {
    const char *phase;     /* "images", "teacher", "train" */
    uint64_t done, total;  /* images, cache entries or, in "train", steps; total 0: the run ends by time */
    double fraction;       /* completed fraction of the phase, 0..1 */
    double start_fraction; /* fraction that was completed when this call started */
    double seconds;        /* of this call in the phase */
    double epoch;
    double images_per_second;
    double loss[SFP__TERMS]; /* NAN: the term is not used */
    double ncm, knn;         /* the last probe; NAN: none yet */
} sfp__pretrain_progress;

typedef struct sfp__pretrain_hooks {
    void *ctx;
    void (*progress)(void *ctx, const sfp__pretrain_progress *p);
    void (*info)(void *ctx, const char *message); /* notes: normal events */
    void (*warn)(void *ctx, const char *message); /* data was skipped, or a file was damaged or replaced */
    const atomic_int *stop;
} sfp__pretrain_hooks;

/* The hooks, and each of their members, may be NULL. */
static inline void sfp__pretrain_info(const sfp__pretrain_hooks *h, const char *text)
{
    if (h && h->info)
        h->info(h->ctx, text);
}
static inline void sfp__pretrain_warn(const sfp__pretrain_hooks *h, const char *text)
{
    if (h && h->warn)
        h->warn(h->ctx, text);
}
static inline void sfp__pretrain_report_progress(const sfp__pretrain_hooks *h, const sfp__pretrain_progress *p)
{
    if (h && h->progress)
        h->progress(h->ctx, p);
}
static inline bool sfp__pretrain_stopped(const sfp__pretrain_hooks *h)
{
    return h && h->stop && atomic_load(h->stop);
}

typedef struct sfp__pretrain_result {
    bool finished;
    uint64_t steps, images;
    double seconds, images_per_second, epochs;
    double loss[SFP__TERMS];
    double ncm, knn; /* probe of the written model; NAN: no labels */
    size_t parameters;
} sfp__pretrain_result;

sfp_status sfp__pretrain(const sfp__pretrain_options *o, sfp__thread_pool *pool, const sfp__pretrain_hooks *hooks,
                         sfp__pretrain_result *out, sfp_error *err);

/* -------------------------------------------------------------------- settings
 *
 * The option table of `streamfp pretrain`, the options that a checkpoint records, and the comparison of both when a run
 * resumes. */

enum { SFP__PRETRAIN_ROWS = 41 };
extern const sfp__opt sfp__pretrain_rows[SFP__PRETRAIN_ROWS];

/* Sets the options from the values of the table, except output.command. SFP_EINVAL: the error names the option. */
sfp_status sfp__pretrain_read_options(const sfp__args *a, sfp__pretrain_options *o, sfp_error *err);

/* true: a numeric option (other than the seed) that affects the steps. A run can resume only with the same value. */
bool sfp__pretrain_affects_steps(const sfp__opt *row);

enum { SFP__PRETRAIN_SAVED_OPTIONS_MAX = SFP__PRETRAIN_ROWS };

typedef struct sfp__saved_option {
    char key[32];     /* "option.NAME" */
    const char *text; /* the value of a text option, "": not set; NULL: the value is in `number` */
    char number[32];
} sfp__saved_option;

/* Lists the options that affect the steps; returns their number. `o` must outlive them. */
size_t sfp__pretrain_saved_options(const sfp__pretrain_options *o, sfp__saved_option *out);
/* Always fails with SFP_EINVAL: the checkpoint f belongs to a run with other options or data. The message names the first option
 * that differs, with both values. */
sfp_status sfp__pretrain_check_saved_options(const sfp__tensor_file *f, const sfp__pretrain_options *o, sfp_error *err);

#endif
