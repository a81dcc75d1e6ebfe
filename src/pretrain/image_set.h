/* All pictures of a data set in memory, small enough for the student: decoded once, read at every step. */
#ifndef SFP_PRETRAIN_IMAGE_SET_H
#define SFP_PRETRAIN_IMAGE_SET_H

#include "base/thread_pool.h"
#include "pretrain/pretrain.h"
#include "stream/source.h"

typedef struct sfp_image_set {
    int size; /* S */
    int64_t count;
    uint8_t *rgb;   /* (count, S, S, 3) */
    int32_t *label; /* (count); -1: none */
    int classes;
    char **class_names; /* (classes) */
    uint64_t skipped;   /* broken ones */
    char first_error[256];
} sfp_image_set;

typedef struct sfp_image_set_options {
    bool test;       /* the data set's own test part, where it has one */
    bool or_nothing; /* with test: SFP_ENOTFOUND where it has none */
    int size;
    int64_t limit;             /* at most so many, evenly spread; 0: all */
    const sfp_image_set *like; /* labels by this set's class names (unknown classes: -1); NULL: the source's own */
} sfp_image_set_options;

sfp_status sfp__image_set_load(const char *spec, const sfp_image_set_options *opt, sfp_thread_pool *pool,
                               const sfp_pretrain_hooks *hooks, sfp_image_set *out, sfp_error *err);
/* Moves every nth picture of `from` to `out`. */
sfp_status sfp__image_set_hold_out(sfp_image_set *from, int nth, sfp_image_set *out, sfp_error *err);
void sfp__image_set_done(sfp_image_set *p);

static inline const uint8_t *sfp__image_set_at(const sfp_image_set *p, int64_t i)
{
    return p->rgb + (size_t)i * 3 * (size_t)p->size * (size_t)p->size;
}

/* A number that changes with any pixel or the count. */
uint64_t sfp__image_set_hash(const sfp_image_set *p);

#endif
