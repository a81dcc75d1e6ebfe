/* What the files of pretrain share. */
#ifndef SFP_PRETRAIN_PRETRAIN_INTERNAL_H
#define SFP_PRETRAIN_PRETRAIN_INTERNAL_H

#include "base/mem.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "io/file.h"
#include "model/vit.h"
#include "pretrain/pretrain.h"
#include "stream/source.h"

#include <stdio.h>

/* ------------------------------------------------------------------- image set
 *
 * All images of a data set in memory, small enough for the student: decoded once, read at every step. */

typedef struct sfp__image_set {
    int size; /* S */
    int64_t count;
    uint8_t *rgb;   /* (count, S, S, 3) */
    int32_t *label; /* (count); -1: none */
    int classes;
    char **class_names; /* (classes) */
    uint64_t skipped;   /* broken ones */
    char first_error[256];
} sfp__image_set;

typedef struct sfp__image_set_options {
    bool test;       /* the data set's own test part, where it has one */
    bool or_nothing; /* with test: SFP_ENOTFOUND where it has none */
    int size;
    int64_t limit;              /* at most so many, evenly spread; 0: all */
    const sfp__image_set *like; /* labels by this set's class names (unknown classes: -1); NULL: the source's own */
} sfp__image_set_options;

sfp_status sfp__image_set_load(const char *spec, const sfp__image_set_options *opt, sfp__thread_pool *pool,
                               const sfp__pretrain_hooks *hooks, sfp__image_set *out, sfp_error *err);
/* Moves every nth image of `from` to `out`. */
sfp_status sfp__image_set_hold_out(sfp__image_set *from, int nth, sfp__image_set *out, sfp_error *err);
void sfp__image_set_done(sfp__image_set *p);

static inline const uint8_t *sfp__image_set_at(const sfp__image_set *p, int64_t i)
{
    return p->rgb + (size_t)i * 3 * (size_t)p->size * (size_t)p->size;
}

/* A number that changes with any pixel or the count. */
uint64_t sfp__image_set_hash(const sfp__image_set *p);

/* ----------------------------------------------------------------------- views
 *
 * Views: what an image looks like when it is learned from, and batches of them.
 *
 * A view's crop and flip follow from (seed, image, view) and nothing else, so a teacher can see the same ones and its
 * outputs can be kept. Colours change at every step; the teacher does not see that.
 *
 * Batches say which views a step learns from; a thread of their own makes them ahead so that the learner never waits. Batch k
 * depends on (seed, k) alone. Epoch e shows every image once, in an order of its own; with fixed views image i shows view
 * (e + i) mod V, so all views come up equally often and a batch mixes them; half of them are shown mirrored, which the teacher's
 * outputs follow. A batch that does not fill is left out: an epoch has floor(count / b) steps. */

typedef struct sfp__view {
    int left, top, width, height;
    bool flip;
} sfp__view;

/* Sequences of one seed, independent as long as a < 2^34 and b < 2^22; after 4 million steps two may be the same, no more. */
enum { SFP_DRAW_VIEW = 1, SFP_DRAW_ORDER, SFP_DRAW_COLOUR, SFP_DRAW_MIX, SFP_DRAW_WEIGHTS };
sfp__rng sfp__draw(uint64_t seed, int what, uint64_t a, uint64_t b);

/* Of an image of size x size: `least` .. 1 of its area, sides 3:4 to 4:3. */
sfp__view sfp__view_draw(uint64_t seed, uint64_t image, uint64_t view, int size, double least);

/* rgb (size, size, 3) cropped, flipped and brought to out (to, to, 3). */
sfp_status sfp__view_render(const uint8_t *rgb, int size, const sfp__view *v, int to, uint8_t *out, sfp_error *err);

/* n images of a set as a vit takes them, x (n, 3, S, S): each by its view (NULL: all of it), brought to the vit's size and
 * normalised. */
sfp_status sfp__inputs_make(const sfp__image_set *p, int n, const int64_t *image, const sfp__view *view, const sfp__vit_config *c,
                            sfp__thread_pool *pool, float *x, sfp_error *err);

/* Brightness, contrast and saturation, each by a factor in 1 +- strength, in place. */
void sfp__view_colour(sfp__rng *r, double strength, int size, uint8_t *rgb);

/* Sample i is `part` of image[i] and 1 - part of image[mate(i)], mate(i) = b - 1 - i. */
typedef struct sfp__view_batch {
    uint64_t step;
    float part;        /* 1: not mixed */
    float *x;          /* (b, 3, S, S) */
    int64_t *image;    /* (b) */
    int *view;         /* (b) */
    bool *mirrored;    /* (b) against the fixed view */
    sfp_status status; /* of making it */
    sfp_error err;
} sfp__view_batch;

typedef struct sfp__view_loader sfp__view_loader;

uint64_t sfp__view_loader_epoch_steps(const sfp__image_set *p, int batch);
/* o: its plan and views; c: the student; fixed_views: per image, 0: a new one every epoch. */
sfp_status sfp__view_loader_create(const sfp__image_set *p, const sfp__pretrain_options *o, const sfp__vit_config *c,
                                   int fixed_views, uint64_t first_step, sfp__view_loader **out, sfp_error *err);
void sfp__view_loader_free(sfp__view_loader *f);
DEFINE_OWNED_PTR(sfp__view_loader, sfp__view_loader_free)
/* The batch of the next step; it is valid until the next take. */
sfp_status sfp__view_loader_take(sfp__view_loader *f, const sfp__view_batch **out, sfp_error *err);

/* --------------------------------------------------------------------- teacher
 *
 * A teacher's outputs for fixed views, computed once and kept in a file.
 *
 * An entry is what the student is asked to reproduce: the teacher's class token and its patch tokens, both after the final
 * norm, the latter averaged from its grid to the student's (or a finer one, averaged on when read); F16. The file names what it
 * depends on (teacher, images, views, sizes): one made for anything else is made again, but not while another process reads it.
 * It is filled in order and can be gone on with. */

typedef struct sfp__teacher {
    sfp__vit *vit;
    int dim;     /* Dt */
    int classes; /* of its head; 0: none */
    int side;    /* patches along the student's side: L = side^2 */
    int grid;    /* of the entries: a multiple of side */
    int views;
    int64_t images;
    sfp__map map;
    int lock;                /* on the cache, as long as it is read; -1: none */
    const uint16_t *entries; /* (views, images, 1 + grid^2, Dt), F16 */
    float *mean, *scale;     /* (2, Dt) of class token and patch tokens: standardised = (x - mean) * scale */
} sfp__teacher;

/* o: its teacher, views, seed, and the student's size. */
sfp_status sfp__teacher_open(const sfp__pretrain_options *o, const sfp__image_set *p, sfp__thread_pool *pool,
                             const sfp__pretrain_hooks *hooks, sfp__teacher *out, sfp_error *err);
void sfp__teacher_done(sfp__teacher *t);

/* Adds f times the standardised outputs for a view of an image: (1 + L, Dt). Mirrored: what the teacher would say of the
 * mirrored view, very nearly - the same class token, the patch tokens of a row the other way round. */
void sfp__teacher_add(const sfp__teacher *t, int view, int64_t image, bool mirrored, float f, float *out);
/* The class token as the teacher gives it (Dt), for its head. */
void sfp__teacher_class(const sfp__teacher *t, int view, int64_t image, float *out);

/* ------------------------------------------------------------------------ loss
 *
 * The loss over a student's tokens, and the small layers that exist only for it: a linear head for labels, one for the
 * teacher's logits, and projections to the teacher's width.
 *
 * Terms, each a mean over the batch times its weight:
 *   label   cross-entropy with smoothed, mixed labels (images without a label count 0)
 *   class   the class token against the teacher's, standardised: 1 - cosine, as the norm that ends a ViT fixes the length
 *   patch   the patch tokens against the teacher's, standardised: smooth L1, mean over channels and patches
 *   logits  temperature^2 KL(teacher || student) over the teacher's classes
 *
 * Used as the token head of a pass (model/vit.h): gradients of the layers are summed by lane. */

typedef struct sfp__loss sfp__loss;

/* teacher may be NULL; terms that need what is not there get weight 0. lanes: of the passes. */
sfp_status sfp__loss_create(const sfp__loss_options *o, const sfp__vit_config *student, const sfp__image_set *images,
                            const sfp__teacher *teacher, int lanes, int most_samples, sfp__loss **out, sfp_error *err);
void sfp__loss_free(sfp__loss *l);
DEFINE_OWNED_PTR(sfp__loss, sfp__loss_free)

size_t sfp__loss_count(const sfp__loss *l); /* floats of parameters */
void sfp__loss_init(const sfp__loss *l, uint64_t seed, float *params);
/* 1 for each float that weight decay applies to. */
void sfp__loss_decays(const sfp__loss *l, uint8_t *decays);
/* Whether it sees all tokens (n, T, D); else class tokens alone (n, 1, D), and the last block need compute no others. */
bool sfp__loss_all_tokens(const sfp__loss *l);
/* The label head's W (classes, D) and b (classes) in the parameters; NULL without one. */
const float *sfp__loss_label_head(const sfp__loss *l, const float *params, const float **bias);

/* Before a pass: the batch and the parameters; clears the sums. */
void sfp__loss_begin(sfp__loss *l, const sfp__view_batch *batch, int b, const float *params);
/* The token head. */
void sfp__loss_tokens(void *loss, int lane, int first, int n, const float *tokens, float *grad);
/* After it: the terms' values, and the gradients of the parameters (overwritten). */
void sfp__loss_end(const sfp__loss *l, double value[SFP_TERMS], float *grad);

/* ----------------------------------------------------------------------- score
 *
 * How good features are, cheaply: nearest class mean and k nearest neighbours, both from images that were trained on to
 * images that were not. */

typedef struct sfp__probe {
    double ncm, knn; /* fractions; NAN without labels */
    int scored;      /* images */
} sfp__probe;

/* At most `most` images of each set, evenly spread. Class means in Euclidean distance; 10 neighbours by cosine, each vote
 * weighted by it. */
sfp_status sfp__probe_run(sfp__vit *v, sfp__thread_pool *pool, const sfp__image_set *known, const sfp__image_set *held, int most,
                          sfp__probe *out, sfp_error *err);

/* ---------------------------------------------------------------------- output
 *
 * What a training leaves in its folder beside the model, and what an earlier one left: the course of it (log.jsonl, one line of
 * JSON a point, and report.html, the same as curves), config.json, and the folder itself. */

#define SFP__PRETRAIN_CHECKPOINT "checkpoint.safetensors"
#define SFP__PRETRAIN_CHECKPOINT_OLD SFP__PRETRAIN_CHECKPOINT ".old"
#define SFP__PRETRAIN_CONFIG "config.json"
#define SFP__PRETRAIN_LOG "log.jsonl"
#define SFP__PRETRAIN_MODEL "model.safetensors"
#define SFP__PRETRAIN_REPORT "report.html"

typedef struct sfp__log_point {
    uint64_t step;
    double epoch, seconds, lr, grad_norm, images_per_second;
    double loss[SFP_TERMS]; /* means since the point before; NAN: not in use */
    double ncm, knn;        /* NAN: not scored here */
} sfp__log_point;

typedef struct sfp__log {
    char *path;
    FILE *file;
    sfp__log_point *point; /* (count) */
    size_t count, capacity;
} sfp__log;

/* Begins the file, or with `upto` > 0 keeps its points up to that step and goes on after them. */
sfp_status sfp__log_open(const char *path, uint64_t upto, sfp__log *out, sfp_error *err);
sfp_status sfp__log_add(sfp__log *l, const sfp__log_point *p, sfp_error *err);
void sfp__log_close(sfp__log *l);
/* Its curves. */
sfp_status sfp__pretrain_report(const char *path, const sfp__log *log, sfp_error *err);

/* config.json: what reads the model needs, and how it came to be. result may be of an unfinished training. */
sfp_status sfp__pretrain_write_config(const char *path, const sfp__pretrain_options *o, const sfp__vit_config *c,
                                      const sfp__pretrain_result *r, sfp_error *err);

/* OUT, made where it is missing, is ours alone from here on (*made, *lock: io/directory.h). Without --resume one that holds a
 * training that was not finished is refused. */
sfp_status sfp__pretrain_take_directory(const sfp__pretrain_options *o, int *lock, int *made, sfp_error *err);
/* A training that begins, when nothing is left that could be wrong: removes the files of the one that was there, and says so. The
 * teacher's outputs stay: they may be of use again. */
sfp_status sfp__pretrain_clear_directory(const sfp__pretrain_options *o, const sfp__pretrain_hooks *hooks, sfp_error *err);

/* ----------------------------------------------------------------------- state
 *
 * What a training carries from step to step, and its checkpoint: everything the next step reads, so that going on from a
 * file ends in the same bytes as never having stopped. */

/* AdamW (decoupled weight decay) with clipping by norm and an average of the weights, on flat blocks. Cut into fixed pieces: the
 * result does not depend on threads. */
typedef struct sfp__adamw {
    size_t count;
    float *x, *g, *m, *v, *ema; /* (count) */
    const uint8_t *decays;      /* (count) 1: weight decay applies */
} sfp__adamw;

typedef struct sfp__adamw_step {
    uint64_t t; /* 1, 2, ... */
    double lr, weight_decay, beta1, beta2, eps;
    double clip; /* the most the gradient's norm may be; 0: any */
    double ema;  /* what the average keeps */
} sfp__adamw_step;

/* One step; returns the gradient's norm before clipping. A gradient that is not finite changes nothing. */
double sfp__adamw_update(sfp__thread_pool *pool, const sfp__adamw *a, const sfp__adamw_step *s);

#define SFP_PRETRAIN_KIND "streamfp pretrain checkpoint" /* "kind" in the metadata of one */

typedef struct sfp__pretrain_state {
    sfp__vit_config config;
    size_t vit_count;                         /* floats of the vit; the loss's own follow */
    sfp__adamw adam;                          /* x, g, m, v, ema: (count) each */
    uint8_t *decays;                          /* (count) */
    void *block;                              /* of all these */
    sfp__vit_weights weights, grads, average; /* views of x, g, ema */
    uint64_t step;
    double seconds; /* in training */
    uint64_t key;   /* of the options that decide what a step does */
} sfp__pretrain_state;

sfp_status sfp__pretrain_state_init(sfp__pretrain_state *out, const sfp__vit_config *c, size_t loss_count, sfp_error *err);
void sfp__pretrain_state_done(sfp__pretrain_state *s);

/* With the options that it was made with. */
sfp_status sfp__pretrain_state_save(const sfp__pretrain_state *s, const sfp__pretrain_options *o, const char *path,
                                    sfp_error *err);
/* SFP_ENOTFOUND: there is none. SFP_EINVAL: it is of another training. */
sfp_status sfp__pretrain_state_load(sfp__pretrain_state *s, const sfp__pretrain_options *o, const char *path, sfp_error *err);

#endif
