/* The world of tests that need a backbone: a small ViT with random weights, a thread pool, and learners on them. Include after
 * <cmocka.h>. */
#ifndef SFP_TESTS_WORLD_H
#define SFP_TESTS_WORLD_H

#include "learner/learner.h"

#include "test.h"
#include "vit_make.h"

typedef struct world {
    sfp__vit *vit;
    sfp__thread_pool *pool;
    int S; /* side of an image */
} world;

static UNUSED world make_world_of(sfp__vit_config c, uint64_t seed, float deviation, int threads)
{
    world w = {.S = c.img_size};
    MUST(sfp__vit_random(&c, seed, deviation, &w.vit, &err));
    MUST(sfp__thread_pool_create(threads, &w.pool, &err));
    return w;
}

static UNUSED void free_world(world *w)
{
    sfp__vit_free(w->vit);
    sfp__thread_pool_free(w->pool);
}

static UNUSED sfp__learner *make_learner(const world *w, const sfp__learner_options *o)
{
    sfp__learner *l = NULL;
    MUST(sfp__learner_create(w->vit, w->pool, o, &l, &err));
    return l;
}

#endif
