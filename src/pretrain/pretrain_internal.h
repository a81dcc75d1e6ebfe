/* Types and functions that the files of pretrain share. */
#ifndef SFP_PRETRAIN_PRETRAIN_INTERNAL_H
#define SFP_PRETRAIN_PRETRAIN_INTERNAL_H

#include "base/mem.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "io/backed_file.h"
#include "io/line_log.h"
#include "model/vit.h"
#include "pretrain/pretrain.h"
#include "stream/source.h"

#include <stdio.h>
#include <time.h>

/* ------------------------------------------------------------------- callbacks; `calls` and each of them may be NULL */

static inline void sfp__pretrain_message(const sfp_pretrain_options *calls, sfp_log_level level, const char *text)
{
    if (calls && calls->log)
        calls->log(calls->ctx, level, text);
}

static inline void sfp__pretrain_report_progress(const sfp_pretrain_options *calls, const sfp_pretrain_progress *p)
{
    if (calls && calls->progress)
        calls->progress(calls->ctx, p);
}

static inline bool sfp__pretrain_cancelled(const sfp_pretrain_options *calls)
{
    return calls && calls->cancelled && calls->cancelled(calls->ctx);
}

/* ------------------------------------------------------------------- image set
 *
 * All images of a dataset in memory. They are decoded and resized once and read at every step. */

typedef struct sfp__image_set {
    int size; /* S */
    int64_t count;
    uint8_t *rgb;   /* (count, S, S, 3) */
    int32_t *label; /* (count); -1: none */
    int classes;
    char **class_names; /* (classes) */
    sfp__skipped skipped;
} sfp__image_set;

typedef struct sfp__image_set_options {
    bool test;     /* read the test part, if the dataset has one */
    bool required; /* with `test`: fail with SFP_ENOTFOUND if the dataset has no test part */
    int size;
    int64_t limit; /* maximum number of images, evenly spread; 0: all */
    const sfp__image_set
        *like; /* use the labels of this set, matched by class name (other classes: -1); NULL: those of the source */
} sfp__image_set_options;

sfp_status sfp__image_set_load(const char *spec, const sfp__image_set_options *opt, sfp__thread_pool *pool,
                               const sfp_pretrain_options *calls, sfp__image_set *out, sfp_error *err);
/* Moves every nth image of `from` to `out`. */
sfp_status sfp__image_set_hold_out(sfp__image_set *from, int nth, sfp__image_set *out, sfp_error *err);
void sfp__image_set_done(sfp__image_set *p);

static inline const uint8_t *sfp__image_set_at(const sfp__image_set *p, int64_t i)
{
    return p->rgb + (size_t)i * 3 * (size_t)p->size * (size_t)p->size;
}

/* A hash of all pixels. */
uint64_t sfp__image_set_hash(const sfp__image_set *p);

/* ----------------------------------------------------------------------- views
 *
 * A view is a crop of an image, possibly flipped, with changed colours; a step trains on a batch of views.
 *
 * The crop and the flip of a view depend only on (seed, image, view). So the teacher can process the same views, and its outputs
 * can be cached. Colours change at every step; the teacher sees the original ones.
 *
 * A background thread prefetches the batches, so that the training loop does not wait. Batch k depends only on (seed, k). Epoch e
 * uses every image once, in a random order. With V fixed views, image i has view (e + i) mod V, so that all views are equally
 * frequent and each batch mixes them. Half of the views are mirrored, and the teacher's outputs with them. An incomplete last
 * batch is dropped: an epoch has floor(count / b) steps. */

typedef struct sfp__view {
    int left, top, width, height;
    bool flip;
} sfp__view;

/* Random sequences of one seed. They are different for different (purpose, a, b) with a < 2^34 and b < 2^22. A run of more than
 * 4 million steps (b) may use a sequence twice, which is harmless. */
enum { SFP__DRAW_VIEW = 1, SFP__DRAW_ORDER, SFP__DRAW_COLOUR, SFP__DRAW_MIX, SFP__DRAW_WEIGHTS };
sfp__rng sfp__draw(uint64_t seed, int purpose, uint64_t a, uint64_t b);

/* Draws a view of an image of size x size: min_area .. 1 of its area, with an aspect ratio of 3:4 to 4:3. */
sfp__view sfp__view_draw(uint64_t seed, uint64_t image, uint64_t view, int size, double min_area);

/* Crops rgb (size, size, 3), resizes it to out (to, to, 3) and flips it. */
sfp_status sfp__view_render(const uint8_t *rgb, int size, const sfp__view *v, int to, uint8_t *out, sfp_error *err);

/* Writes n images of a set as the input of a ViT, x (n, 3, S, S): cropped to their views (NULL: whole images), resized and
 * normalised. */
sfp_status sfp__inputs_make(const sfp__image_set *p, int n, const int64_t *image, const sfp__view *view, const sfp__vit_config *c,
                            sfp__thread_pool *pool, float *x, sfp_error *err);

/* Changes brightness, contrast and saturation in place, each by a random factor in 1 +- strength. */
void sfp__view_colour(sfp__rng *r, double strength, int size, uint8_t *rgb);

/* Sample i is share * image[i] + (1 - share) * image[mate(i)] with mate(i) = b - 1 - i. */
typedef struct sfp__view_batch {
    uint64_t step;
    float share;       /* 1: not mixed */
    float *x;          /* (b, 3, S, S) */
    int64_t *image;    /* (b) */
    int *view;         /* (b) */
    bool *mirrored;    /* (b) whether the image is mirrored, compared with the fixed view */
    uint16_t *entries; /* (b, 1 + grid^2, Dt) the teacher's outputs for the fixed views, F16; without a teacher empty */
    sfp_status status; /* whether the batch could be made; if not, err has the reason */
    sfp_error err;
} sfp__view_batch;

typedef struct sfp__view_loader sfp__view_loader;
typedef struct sfp__teacher sfp__teacher;

uint64_t sfp__view_loader_epoch_steps(const sfp__image_set *p, int batch);
/* Uses o->plan and o->view; c is the student's. teacher: has the fixed views; NULL: every epoch has new views. */
sfp_status sfp__view_loader_create(const sfp__image_set *p, const sfp__pretrain_options *o, const sfp__vit_config *c,
                                   const sfp__teacher *teacher, uint64_t first_step, sfp__view_loader **out, sfp_error *err);
void sfp__view_loader_free(sfp__view_loader *f);
DEFINE_OWNED_PTR(sfp__view_loader, sfp__view_loader_free)
/* Returns the batch of the next step; it is valid until the next call. */
sfp_status sfp__view_loader_take(sfp__view_loader *f, const sfp__view_batch **out, sfp_error *err);

/* --------------------------------------------------------------------- teacher
 *
 * The teacher's outputs for fixed views are computed once and cached in a file.
 *
 * An entry contains the student's targets as F16: the teacher's class token and its patch tokens, both after the final norm. The
 * patch tokens are averaged from the teacher's grid to the student's, or to a finer one that is averaged again on reading. The
 * file identifies everything that it depends on (teacher, images, views, sizes). A file for anything else is replaced, but not
 * while another process reads it. Entries are written in order, so that an incomplete file can be continued.
 *
 * Files may have gigabytes: the entries of a batch are read when the batch is prefetched. The file is not mapped, because the
 * process would be killed if another program truncated it. */

struct sfp__teacher {
    sfp__vit *vit;
    int dim;     /* Dt */
    int classes; /* of its head; 0: no head */
    int side;    /* patches per side of the student: L = side^2 */
    int grid;    /* patch tokens per side of an entry, a multiple of `side` */
    int views;
    int64_t images;
    char *cache;             /* path of the cache: entries (views, images, 1 + grid^2, Dt), F16 */
    int fd;                  /* the cache, open and locked while it is read; -1: none */
    int64_t size;            /* bytes of the cache */
    struct timespec changed; /* time of the last change of the cache */
    float *mean, *scale;     /* (2, Dt) for class tokens and patch tokens: standardised = (x - mean) * scale */
};

/* Loads the teacher and fills the cache if needed. Uses the teacher, view, seed and student size of o. */
sfp_status sfp__teacher_open(const sfp__pretrain_options *o, const sfp__image_set *p, sfp__thread_pool *pool,
                             const sfp_pretrain_options *calls, sfp__teacher *out, sfp_error *err);
void sfp__teacher_done(sfp__teacher *t);

size_t sfp__teacher_entry_floats(const sfp__teacher *t);
/* Reads the entries of n images and their views. Fails if the cache was changed since it was opened. */
sfp_status sfp__teacher_read(const sfp__teacher *t, int n, const int *view, const int64_t *image, uint16_t *entries,
                             sfp_error *err);
/* Adds f times the standardised outputs of an entry to out (1 + L, Dt). mirrored: uses the same class token and
 * reverses the patch tokens of each row; this approximates the teacher's outputs for the mirrored view. */
void sfp__teacher_add(const sfp__teacher *t, const uint16_t *entry, bool mirrored, float f, float *out);
/* Writes the class token (Dt) of an entry, not standardised, as the input of the teacher's head. */
void sfp__teacher_class(const sfp__teacher *t, const uint16_t *entry, float *out);

/* ------------------------------------------------------------------------ loss
 *
 * The loss of the student's tokens, and the small layers that only the loss uses: a linear head for labels, one for the teacher's
 * logits, and projections to the teacher's width.
 *
 * Terms, each a mean over the batch times its weight:
 *   label   cross-entropy with smoothed, mixed labels (images without a label contribute 0)
 *   class   distance of the class token to the teacher's standardised one: 1 - cosine, because the final norm fixes the length
 *   patch   distance of the patch tokens to the teacher's standardised ones: smooth L1, mean over channels and patches
 *   logits  temperature^2 KL(teacher || student) over the teacher's classes
 *
 * The loss is the token head of a pass (model/vit.h); each lane sums its own gradients of the layers. */

typedef struct sfp__loss sfp__loss;

/* teacher may be NULL. Terms without a teacher, teacher head or labels have weight 0. lanes: number of lanes of the passes;
 * max_samples: maximum number of samples per call of sfp__loss_tokens. */
sfp_status sfp__loss_create(const sfp__loss_options *o, const sfp__vit_config *student, const sfp__image_set *images,
                            const sfp__teacher *teacher, int lanes, int max_samples, sfp__loss **out, sfp_error *err);
void sfp__loss_free(sfp__loss *l);
DEFINE_OWNED_PTR(sfp__loss, sfp__loss_free)

size_t sfp__loss_count(const sfp__loss *l); /* number of floats in the parameters */
void sfp__loss_init(const sfp__loss *l, uint64_t seed, float *params);
/* Sets decays (count) to 1 for each parameter that weight decay applies to, else to 0. */
void sfp__loss_decays(const sfp__loss *l, uint8_t *decays);
/* true: the loss needs all tokens (n, T, D). false: it needs only class tokens (n, 1, D), and the last block can omit the
 * others. */
bool sfp__loss_all_tokens(const sfp__loss *l);
/* Returns W (classes, D) and b (classes) of the label head, which are in params; NULL: the loss has no label head. */
const float *sfp__loss_label_head(const sfp__loss *l, const float *params, const float **bias);

/* Call before a pass: sets the batch and the parameters, and clears the sums. */
void sfp__loss_begin(sfp__loss *l, const sfp__view_batch *batch, int b, const float *params);
/* The token head of the pass. */
void sfp__loss_tokens(void *loss, int lane, int first, int n, const float *tokens, float *grad);
/* Call after the pass: writes the values of the terms and the gradients of the parameters. */
void sfp__loss_end(const sfp__loss *l, double value[SFP__TERMS], float *grad);

/* ----------------------------------------------------------------------- probe
 *
 * A probe measures the quality of features at low cost: the accuracy of nearest class mean and of k nearest neighbours. Both use
 * labelled training images to predict the labels of test images. */

typedef struct sfp__probe {
    double ncm, knn; /* accuracies, 0..1; NAN: no labels */
    int tested;      /* number of labelled test images */
} sfp__probe;

/* Uses at most max_images of each set, evenly spread. ncm: Euclidean distance to class means. knn: votes of the 10 neighbours
 * with the highest cosine, each weighted by exp(10 cosine). */
sfp_status sfp__probe_run(sfp__vit *v, sfp__thread_pool *pool, const sfp__image_set *train, const sfp__image_set *test,
                          int max_images, sfp__probe *out, sfp_error *err);

/* ---------------------------------------------------------------------- output
 *
 * The files of a run in its output directory other than the model: log.jsonl (one JSON object per line and point), report.html
 * (the log as curves) and config.json. Also the check and the removal of the files of an earlier run. */

#define SFP__PRETRAIN_CHECKPOINT "checkpoint.safetensors"
#define SFP__PRETRAIN_CONFIG "config.json"
#define SFP__PRETRAIN_LOG "log.jsonl"
#define SFP__PRETRAIN_LOG_KEY "step"
#define SFP__PRETRAIN_MODEL "model.safetensors"
#define SFP__PRETRAIN_REPORT "report.html"

typedef struct sfp__log_point {
    uint64_t step;
    double epoch, seconds, lr, grad_norm, images_per_second;
    double loss[SFP__TERMS]; /* means since the previous point; NAN: the term is not used */
    double ncm, knn;         /* NAN: no probe at this point */
} sfp__log_point;

/* Writes a point, so that it remains if the process is killed. */
sfp_status sfp__pretrain_log(sfp__line_log *log, const sfp__log_point *p, sfp_error *err);
/* Writes DIR/report.html with the curves of DIR/log.jsonl. */
sfp_status sfp__pretrain_report(const char *dir, sfp_error *err);
/* Writes config.json: the configuration of the model, and how it was trained. The run may be unfinished. */
sfp_status sfp__pretrain_write_config(const char *path, const sfp__pretrain_options *o, const char *command,
                                      const sfp__vit_config *c, const sfp_pretrain_result *r, sfp_error *err);

/* Creates OUT if it is missing, and locks it (*made and *lock: io/directory.h). *has_run: it contains a run. Without --resume, fails if
 * this run is unfinished. */
sfp_status sfp__pretrain_take_directory(const sfp__pretrain_options *o, int *lock, int *made, bool *has_run, sfp_error *err);
/* Removes the files of an earlier run from OUT. Call it after every other check of a new run. The teacher's outputs are kept, because
 * they may be reusable. */
sfp_status sfp__pretrain_clear_directory(const sfp__pretrain_options *o, sfp_error *err);

/* ----------------------------------------------------------------------- state
 *
 * The state of a run between steps, and its checkpoint. The checkpoint contains everything that the next step reads, so that a
 * resumed run writes the same bytes as an uninterrupted one. */

/* AdamW (decoupled weight decay) with clipping by norm and a moving average of the weights, on flat blocks. The work is split
 * into fixed pieces, so that the result does not depend on the number of threads. */
typedef struct sfp__adamw {
    size_t count;
    float *x, *g, *m, *v, *ema; /* (count) */
    const uint8_t *decays;      /* (count) 1: weight decay applies */
} sfp__adamw;

typedef struct sfp__adamw_step {
    uint64_t t; /* 1, 2, ... */
    double lr, weight_decay, beta1, beta2, eps;
    double clip; /* maximum norm of the gradient; 0: no clipping */
    double ema;  /* decay of the average: ema <- ema * average + (1 - ema) * weights */
} sfp__adamw_step;

/* Performs one step. Returns the norm of the gradient before clipping; if it is not finite, nothing is changed. */
double sfp__adamw_update(sfp__thread_pool *pool, const sfp__adamw *a, const sfp__adamw_step *s);

#define SFP__PRETRAIN_KIND "streamfp pretrain checkpoint" /* "kind" in the metadata of a checkpoint */

/* Sums since the last point of the log, and numbers of the last step: a tensor of a checkpoint, so that a resumed run logs the same
 * means. */
typedef struct sfp__log_interval {
    double steps, seconds, lr, grad_norm, sum[SFP__TERMS];
} sfp__log_interval;

typedef struct sfp__pretrain_state {
    sfp__vit_config config;
    size_t vit_count;                         /* floats of the ViT; the parameters of the loss follow them */
    sfp__adamw adam;                          /* x, g, m, v, ema: (count) each */
    uint8_t *decays;                          /* (count) */
    void *block;                              /* of all these */
    sfp__vit_weights weights, grads, average; /* views of x, g, ema */
    uint64_t step;
    double seconds;          /* spent in training */
    double loss[SFP__TERMS]; /* of the last point of the log; NAN: none */
    sfp__log_interval interval;
    uint64_t inputs; /* hash of the images, their labels and the teacher's outputs */
} sfp__pretrain_state;

sfp_status sfp__pretrain_state_init(sfp__pretrain_state *out, const sfp__vit_config *c, size_t loss_count, sfp_error *err);
void sfp__pretrain_state_done(sfp__pretrain_state *s);

/* Writes a checkpoint, which also records the options. */
sfp_status sfp__pretrain_state_save(sfp__pretrain_state *s, const sfp__pretrain_options *o, sfp__backed_file *last,
                                    const char *path, sfp_error *err);
/* Reads a checkpoint or, if it is damaged, the one before it. SFP_ENOTFOUND: there is none. SFP_EINVAL: it belongs to a run with other
 * options or data; the message names the first option that differs, with both values. */
sfp_status sfp__pretrain_state_load(sfp__pretrain_state *s, const sfp__pretrain_options *o, sfp__backed_file *last,
                                    const char *path, bool *used_old, sfp_error *err);

#endif
