/* Views: what an image looks like when it is learned from, and batches of them.
 *
 * A view's crop and flip follow from (seed, image, view) and nothing else, so a teacher can see the same ones and its
 * outputs can be kept. Colours change at every step; the teacher does not see that.
 *
 * Batches say which views a step learns from; a thread of their own makes them ahead so that the learner never waits. Batch k
 * depends on (seed, k) alone. Epoch e shows every image once, in an order of its own; with fixed views image i shows view
 * (e + i) mod V, so all views come up equally often and a batch mixes them; half of them are shown mirrored, which the teacher's
 * outputs follow. A batch that does not fill is left out: an epoch has floor(count / b) steps. */
#ifndef SFP_PRETRAIN_VIEWS_H
#define SFP_PRETRAIN_VIEWS_H

#include "base/mem.h"
#include "base/rng.h"
#include "model/vit.h"
#include "pretrain/image_set.h"

typedef struct sfp_view {
    int left, top, width, height;
    bool flip;
} sfp_view;

/* Sequences of one seed, independent as long as a < 2^34 and b < 2^22; after 4 million steps two may be the same, no more. */
enum { SFP_DRAW_VIEW = 1, SFP_DRAW_ORDER, SFP_DRAW_COLOUR, SFP_DRAW_MIX, SFP_DRAW_WEIGHTS };
sfp_rng sfp__draw(uint64_t seed, int what, uint64_t a, uint64_t b);

/* Of a picture of size x size: `least` .. 1 of its area, sides 3:4 to 4:3. */
sfp_view sfp__view(uint64_t seed, uint64_t picture, uint64_t view, int size, double least);

/* rgb (size, size, 3) cropped, flipped and brought to out (to, to, 3). */
sfp_status sfp__view_render(const uint8_t *rgb, int size, const sfp_view *v, int to, uint8_t *out, sfp_error *err);

/* n images of a set as a vit takes them, x (n, 3, S, S): each by its view (NULL: all of it), brought to the vit's size and
 * normalised. */
sfp_status sfp__inputs_make(const sfp_image_set *p, int n, const int64_t *image, const sfp_view *view, const sfp_vit_config *c,
                            sfp_thread_pool *pool, float *x, sfp_error *err);

/* Brightness, contrast and saturation, each by a factor in 1 +- strength, in place. */
void sfp__view_colour(sfp_rng *r, double strength, int size, uint8_t *rgb);

/* Sample i is `part` of picture[i] and 1 - part of picture[mate(i)], mate(i) = b - 1 - i. */
typedef struct sfp_batch_made {
    uint64_t step;
    float part;        /* 1: not mixed */
    float *x;          /* (b, 3, S, S) */
    int64_t *picture;  /* (b) */
    int *view;         /* (b) */
    bool *mirrored;    /* (b) against the fixed view */
    sfp_status status; /* of making it */
    sfp_error err;
} sfp_batch_made;

typedef struct sfp_batch_feed sfp_batch_feed;

uint64_t sfp__batch_feed_epoch_steps(const sfp_image_set *p, int batch);
/* o: its plan and views; c: the student; fixed_views: per image, 0: a new one every epoch. */
sfp_status sfp__batch_feed_create(const sfp_image_set *p, const sfp_pretrain_options *o, const sfp_vit_config *c, int fixed_views,
                                  uint64_t first_step, sfp_batch_feed **out, sfp_error *err);
void sfp__batch_feed_free(sfp_batch_feed *f);
DEFINE_OWNED_PTR(sfp_batch_feed, sfp__batch_feed_free)
/* The batch of the next step; it is valid until the next take. */
sfp_status sfp__batch_feed_take(sfp_batch_feed *f, const sfp_batch_made **out, sfp_error *err);

#endif
