/* Helpers of the learner tests: a small ViT, images of distinguishable classes, a learner. Include after <cmocka.h>. */
#ifndef SFP_TESTS_LEARNER_FIXTURE_H
#define SFP_TESTS_LEARNER_FIXTURE_H

#include "learner/learner_internal.h"
#include "learner/predictor.h"

#include "numeric.h"
#include "world.h"

enum { MAX_BATCH = 64, MAX_PARAMS = 32 };

typedef struct batch {
    int b;
    uint8_t *rgb; /* (b, S, S, 3) */
    sfp__sample sample[MAX_BATCH];
} batch;

static UNUSED world make_model(int S, int patch, int D, int depth, int threads)
{
    return make_world_of((sfp__vit_config)VIT(S, patch, D, depth, 2, 2 * D, 0.5f, 0.25f), 3, 0.2f, threads);
}

static UNUSED world tiny_model(int threads)
{
    return make_model(8, 4, 16, 3, threads);
}

static UNUSED sfp__learner_options small_options(const world *m, int tasks, int classes)
{
    sfp__learner_options o = sfp__learner_options_defaults(m->vit);
    o.fp.pool = 12;
    o.fp.length = 4;
    o.fp.last_layer = 2;
    o.fp.tasks = tasks;
    o.fp.classes = classes;
    o.batch = 8;
    o.replay = 4;
    o.buffer.slots = 20;
    o.seed = 11;
    return o;
}

/* Creates b images with labels in [lo, hi): one colour per class, stripes by image, noise. The same t gives the same images. */
static UNUSED batch make_batch(int S, int b, int lo, int hi, uint64_t t)
{
    batch x = {.b = b, .rgb = kept_malloc((size_t)(b * S * S * 3))};
    assert_non_null(x.rgb);
    sfp__rng rng = sfp__rng_init(500, t);
    for (int i = 0; i < b; i++) {
        int y = lo + (int)sfp__rng_below(&rng, (uint32_t)(hi - lo)), period = 2 + (int)sfp__rng_below(&rng, 4);
        uint8_t *to = x.rgb + (size_t)(i * S * S * 3);
        for (int k = 0; k < S * S * 3; k++) {
            int colour = (y * (k % 3 + 1) * 67 + 40 * (k % 3)) % 200, stripe = (k / 3 % S) % period ? 0 : 30;
            to[k] = (uint8_t)(colour + stripe + (int)sfp__rng_below(&rng, 25));
        }
        x.sample[i] = (sfp__sample){.rgb = to, .label = y, .id = t * 1000 + (uint64_t)i};
    }
    return x;
}

/* Offers one timestamp with make_batch(t). */
static UNUSED sfp__timestamp_details offer(sfp__learner *l, int lo, int hi, uint64_t t)
{
    sfp__timestamp_details r = {0};
    batch x = make_batch(l->S, l->opt.batch, lo, hi, t);
    MUST(sfp__learner_offer(l, x.b, x.sample, &r, &err));
    return r;
}

/* Offers timestamps [from, to) of classes 0 to 5. */
static UNUSED void offer_range(sfp__learner *l, uint64_t from, uint64_t to)
{
    for (uint64_t t = from; t < to; t++)
        (void)offer(l, 0, 6, t);
}

static UNUSED void check_allocates_nothing(const char *name, sfp__learner *l, int lo, int hi, uint64_t t)
{
    unsigned long before = sfp__mem_count();
    (void)offer(l, lo, hi, t);
    if (sfp__mem_count() != before)
        fail_msg("%s: %lu allocations in timestamp %llu", name, sfp__mem_count() - before, (unsigned long long)t);
}

/* Resumes b from a checkpoint of a, and frees a. */
static UNUSED sfp_status resume_from(sfp__learner *a, sfp__learner *b)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/tmp/sfp_test_learner_%d", (int)getpid());
    MUST(sfp__learner_checkpoint(a, path, "here", &err));
    sfp_status status = sfp__learner_resume(b, path, NULL, NULL, &err);
    (void)unlink(path);
    return status;
}

/* Returns all values of the learnable state, concatenated. */
typedef struct values {
    size_t n;
    float *x;
} values;

static UNUSED values take_values(sfp__learner *l)
{
    int count;
    sfp__param **p = sfp__fp_params(l->fp, &count);
    values v = {0};
    for (int i = 0; i < count; i++)
        v.n += (size_t)p[i]->rows * p[i]->width;
    v.x = floats(v.n);
    for (size_t at = 0, i = 0; i < (size_t)count; i++) {
        memcpy(v.x + at, p[i]->data, (size_t)p[i]->rows * p[i]->width * sizeof *v.x);
        at += (size_t)p[i]->rows * p[i]->width;
    }
    return v;
}

static UNUSED bool same_values(const values *a, const values *b)
{
    return a->n == b->n && memcmp(a->x, b->x, a->n * sizeof *a->x) == 0;
}

/* Checks that the values of the learner equal `v`, and frees v. */
static UNUSED void check_values(sfp__learner *l, values *want)
{
    values v = take_values(l);
    assert_true(same_values(&v, want));
}

#endif
