/* The buffer ssd in a learner: matching lowers its loss; whole runs: contents of slots. test_model_ops_pixels.c tests its gradients. */
#include "compute/pixels.h"
#include "learner/learner.h"

#include "buffer/ssd.h"
#include "model/vit.h"

#include "test.h"
#include "test_learner_fixture.h"

static sfp__learner_options ssd_options(const world *m, int tasks, int classes)
{
    sfp__learner_options o = small_options(m, tasks, classes);
    o.buffer.method = "ssd";
    o.buffer.ssd = (sfp__ssd_timing){.every = 6, .window = 16}; /* starts after 18 batches */
    return o;
}

static void *part_of(const sfp__buffer *b, const char *name)
{
    sfp__state_tensors_fn parts = b->method->state_tensors;
    sfp__state_tensor p = {0};
    for (int i = 0; i < parts(b->state, i, &p); i++)
        if (strcmp(p.name, name) == 0)
            return p.data;
    fail_msg("no part '%s'", name);
    return NULL;
}

/* Checks that the embeddings and the known queries of slots are those of their images. */
static void check_slots(sfp__learner *l)
{
    float *x = floats(l->pixels), *got = floats((size_t)l->D);
    const float *one = x;
    for (int i = 0; i < l->buffer->filled; i++) {
        const sfp__slot *slot = &l->buffer->slot[i];
        sfp__pixels_normalise(slot->image, l->S, l->opt.mean, l->opt.std, x);
        MUST(sfp__trainer_embed(l->trainer, 1, &one, got, &err));
        check_near("mean embedding", slot->mean_embed, got, (size_t)l->D, 1e-5);
        if (!slot->has_query)
            continue;
        MUST(sfp__trainer_queries(l->trainer, 1, &one, got, &err));
        check_near("query", slot->query, got, (size_t)l->D, 1e-5);
    }
}

/* Returns whether synthetic images have moved from their initial bytes by more than rounding. */
static void check_moved(const sfp__learner *l)
{
    const uint8_t *synthetic = part_of(l->buffer, "synthetic");
    const float *pixels = part_of(l->buffer, "pixels");
    float *x = floats(l->pixels), furthest = 0;
    for (int i = 0; i < l->buffer->filled; i++) {
        if (!synthetic[i])
            continue;
        sfp__pixels_normalise(l->buffer->slot[i].image, l->S, l->opt.mean, l->opt.std, x);
        for (size_t k = 0; k < l->pixels; k++)
            furthest = fmaxf(furthest, fabsf(x[k] - pixels[(size_t)i * l->pixels + k]));
    }
    assert_true(furthest > 1e-5f);
}

TEST(runs_with_any_selector_keep_slots_consistent)
{
    const char *const selectors[] = {"streamfp", "none", "random", "craig", "learnloss"};
    OWNED_BY(free_world) world m = tiny_model(2);
    for (int i = 0; i < 5; i++) {
        sfp__learner_options o = ssd_options(&m, i % 2 ? 2 : 0, i % 2 ? 6 : 0);
        o.select = selectors[i];
        o.steps = 1 + i % 3;
        o.fp.kind = i == 1 ? SFP__FP_L2P : i == 3 ? SFP__FP_DUALPROMPT : SFP__FP_CODA;
        OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
        for (uint64_t t = 0; t < 30; t++) {
            sfp__timestamp_details r = t < 8 ? offer(l, 0, 2, t) : offer(l, 2, 6, t); /* 0 and 1 become older classes */
            for (int k = 0; k < r.steps; k++)
                assert_true(isfinite(r.loss[k]));
        }
        check_slots(l);
        check_moved(l);
    }
}
