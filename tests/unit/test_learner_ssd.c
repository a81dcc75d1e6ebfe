/* The buffer ssd in a learner: matching lowers its loss; whole runs: contents of slots, threads, resume, allocations.
 * test_model_ops_pixels.c tests its gradients. */
#include "compute/pixels.h"
#include "io/file.h"
#include "learner/learner.h"

#include "buffer/ssd.h"
#include "model/vit.h"

#include "test.h"
#include "test_learner_fixture.h"

static sfp__learner_options ssd_options(const model *m, int tasks, int classes)
{
    sfp__learner_options o = small_options(m, tasks, classes);
    o.buffer.method = "ssd";
    o.buffer.ssd_schedule = SFP_SSD_PORT; /* starts after 18 batches */
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

/* Returns |g(X_c) - g(R_c)|^2 of class y; R_c are the samples of the batch, each in equal number. */
static double matching_loss(sfp__learner *l, const batch *real, int32_t y)
{
    const sfp__model_ops *ops = sfp__learner_model_ops(l);
    const uint8_t *synthetic = part_of(l->buffer, "synthetic");
    float *pixels = part_of(l->buffer, "pixels"), *in = floats((size_t)real->b * l->pixels), *g[2];
    const float *x[2][MAX_BATCH];
    int32_t label[MAX_BATCH];
    int n[2] = {0, 0};
    for (int i = 0; i < l->buffer->filled; i++)
        if (synthetic[i] && l->buffer->slot[i].label == y)
            x[0][n[0]++] = pixels + (size_t)i * l->pixels;
    for (int i = 0; i < real->b; i++) {
        sfp__pixels_normalise(real->sample[i].rgb, l->S, l->opt.mean, l->opt.std, in + (size_t)i * l->pixels);
        if (real->sample[i].label == y)
            x[1][n[1]++] = in + (size_t)i * l->pixels;
    }
    for (int i = 0; i < MAX_BATCH; i++)
        label[i] = y;
    for (int i = 0; i < 2; i++) {
        assert_true(n[i] > 0);
        g[i] = floats(ops->params);
        MUST(ops->gradient_at(ops->ctx, &(sfp__image_list){.n = n[i], .x = x[i], .label = label}, g[i], NULL, &err));
    }
    double loss = sfp__ssd_gap(ops->params, g[0], g[1], g[0]);
    return loss;
}

/* With constant parameters and repeated batches every optimisation of the buffer lowers the loss. */
TEST(optimisation_lowers_the_matching_loss)
{
    OWNED_BY(free_model) model m = tiny_model(2);
    sfp__learner_options o = ssd_options(&m, 0, 2);
    o.buffer.slots = 6;
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    for (uint64_t t = 0; t < 3; t++)
        (void)offer(l, 0, 2, t);
    batch x = make_batch(l->S, l->opt.batch, 0, 2, 40);
    const uint8_t *image[MAX_BATCH];
    size_t size[MAX_BATCH];
    int32_t label[MAX_BATCH];
    uint64_t id[MAX_BATCH];
    for (int i = 0; i < x.b; i++) {
        image[i] = x.sample[i].rgb;
        size[i] = l->rgb_bytes;
        label[i] = x.sample[i].label;
        id[i] = x.sample[i].id;
    }
    const sfp__buffer_batch offered = {
        .b = x.b, .label = label, .id = id, .image = image, .image_size = size, .model = sfp__learner_model_ops(l)};
    double first = 0, last = 0;
    for (int t = 3; t < 18 + 6 * 20; t++) {
        MUST(sfp__buffer_update(l->buffer, &offered, &l->buffer_rng, NULL, &err));
        if (t < 18 || t % 6 != 5) /* from now on the whole window is this batch */
            continue;
        double loss = matching_loss(l, &x, label[0]);
        if (last > 0 && !(loss < last))
            fail_msg("batch %d: the loss rose from %.9g to %.9g", t, last, loss);
        first = first > 0 ? first : loss;
        last = loss;
    }
    assert_true(last < 0.85 * first); /* 0.0192 -> 0.0149 */
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

/* A copy of a slot. */
typedef struct had {
    uint64_t id;
    bool has_query;
    uint8_t *image;
    float *query, *embed;
} had;

static had had_of(const sfp__learner *l, int i)
{
    const sfp__slot *slot = &l->buffer->slot[i];
    had h = {slot->id, slot->has_query, kept_malloc(l->rgb_bytes), copied(slot->query, (size_t)l->D),
             copied(slot->mean_embed, (size_t)l->D)};
    assert_non_null(h.image);
    memcpy(h.image, slot->image, l->rgb_bytes);
    return h;
}

/* Moves the pixels of every other synthetic image to the border of the next byte, up and down in turn, as many steps would: the
 * next step changes bytes. Of the other images only the pixels may change. */
static void bring_to_the_border(const sfp__learner *l)
{
    const uint8_t *synthetic = part_of(l->buffer, "synthetic");
    float *pixels = part_of(l->buffer, "pixels");
    for (int i = 0; i < l->buffer->filled; i += 2) {
        float *x = pixels + (size_t)i * l->pixels;
        if (!synthetic[i])
            continue;
        sfp__pixels_normalise(l->buffer->slot[i].image, l->S, l->opt.mean, l->opt.std, x);
        for (size_t k = 0; k < l->pixels; k++)
            x[k] += (k % 2 ? 0.4995f : -0.4995f) / 255 / l->opt.std[k / (l->pixels / 3)];
    }
}

TEST(only_changed_bytes_need_a_new_query_and_embedding)
{
    OWNED_BY(free_model) model m = tiny_model(2);
    sfp__learner_options o = ssd_options(&m, 0, 6);
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    const uint8_t *synthetic = part_of(l->buffer, "synthetic");
    int kept = 0, lost = 0;
    for (uint64_t t = 0; t < 36; t++) {
        had before[32];
        bool optimises = t > 16 && t % 6 == 5;
        int filled = l->buffer->filled;
        for (int i = 0; i < filled && optimises; i++)
            before[i] = had_of(l, i);
        if (optimises)
            bring_to_the_border(l);
        (void)offer(l, 0, 6, t);
        for (int i = 0; i < filled && optimises; i++) {
            const sfp__slot *slot = &l->buffer->slot[i];
            size_t bytes = (size_t)l->D * sizeof(float);
            bool same = memcmp(slot->image, before[i].image, l->rgb_bytes) == 0, ours = synthetic[i] && slot->id == before[i].id;
            if (ours && same) { /* a query may also have been computed by the replay before */
                check_same("mean embedding", slot->mean_embed, before[i].embed, bytes);
                if (before[i].has_query)
                    check_same("query", slot->query, before[i].query, bytes);
                assert_true(slot->has_query || !before[i].has_query);
            } else if (ours) {
                assert_false(slot->has_query);
                assert_memory_not_equal(slot->mean_embed, before[i].embed, bytes);
            }
            kept += ours && same && before[i].has_query;
            lost += ours && !same && before[i].has_query;
        }
        check_slots(l);
    }
    assert_true(kept > 5 && lost > 5);
}

TEST(runs_with_any_selector_keep_slots_consistent)
{
    const char *const selectors[] = {"streamfp", "none", "random", "craig", "learnloss"};
    OWNED_BY(free_model) model m = tiny_model(2);
    for (int i = 0; i < 5; i++) {
        sfp__learner_options o = ssd_options(&m, i % 2 ? 2 : 0, i % 2 ? 6 : 0);
        o.select = selectors[i];
        o.steps = 1 + i % 3;
        o.fp.query_one = i == 4;
        o.fp.kind = i == 1 ? SFP_FP_L2P : i == 3 ? SFP_FP_DUALPROMPT : SFP_FP_CODA;
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

TEST(threads_change_nothing)
{
    values v[2];
    uint8_t *image[2];
    size_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        OWNED_BY(free_model) model m = tiny_model(i ? 3 : 1);
        sfp__learner_options o = ssd_options(&m, 0, 0);
        OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
        for (uint64_t t = 0; t < 26; t++)
            (void)offer(l, t < 8 ? 0 : 2, t < 8 ? 2 : 6, t);
        v[i] = take_values(l);
        bytes = l->rgb_bytes * (size_t)l->buffer->filled;
        image[i] = kept_malloc(bytes);
        for (int k = 0; k < l->buffer->filled; k++)
            memcpy(image[i] + (size_t)k * l->rgb_bytes, l->buffer->slot[k].image, l->rgb_bytes);
    }
    assert_true(same_values(&v[0], &v[1]));
    assert_memory_equal(image[0], image[1], bytes);
}

TEST(a_resumed_learner_continues_with_the_same_bytes)
{
    OWNED_BY(free_model) model m = tiny_model(2);
    char path[2][64];
    for (int i = 0; i < 2; i++)
        (void)snprintf(path[i], sizeof path[i], "/tmp/sfp_test_ssd_%d_%d", (int)getpid(), i);
    for (int at = 3; at <= 21; at += 9) { /* before the first optimisation, between two, and with older classes */
        sfp__learner_options o = ssd_options(&m, 0, 0);
        sfp__learner *l[2] = {make_learner(&m, &o), make_learner(&m, &o)};
        for (int t = 0; t < 30; t++) {
            if (t == at) {
                MUST(sfp__learner_checkpoint(l[0], path[0], "", &err));
                MUST(sfp__learner_resume(l[1], path[0], NULL, NULL, &err));
            }
            for (int i = 0; i < (t < at ? 1 : 2); i++)
                (void)offer(l[i], t < 4 ? 0 : 2, t < 4 ? 2 : 5, (uint64_t)t);
        }
        uint8_t *bytes[2];
        size_t n[2];
        for (int i = 0; i < 2; i++) {
            MUST(sfp__learner_checkpoint(l[i], path[i], "", &err));
            MUST(sfp__file_read(path[i], 1 << 30, &bytes[i], &n[i], &err));
            sfp__learner_free(l[i]);
        }
        assert_int_equal(n[0], n[1]);
        assert_memory_equal(bytes[0], bytes[1], n[0]);
        sfp__free(bytes[0]);
        sfp__free(bytes[1]);
    }
    for (int i = 0; i < 2; i++) {
        char old[80];
        (void)snprintf(old, sizeof old, "%s.old", path[i]);
        (void)unlink(path[i]);
        (void)unlink(old);
    }
}

TEST(later_timestamps_allocate_nothing)
{
    OWNED_BY(free_model) model m = tiny_model(2);
    sfp__learner_options o = ssd_options(&m, 2, 6);
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    uint64_t t = 0;
    for (; t < 24; t++) /* after the first optimisation with older classes */
        (void)offer(l, t < 4 ? 0 : 2, t < 4 ? 2 : 6, t);
    for (; t < 37; t++)
        check_allocates_nothing("ssd", l, 2, 6, t);
}
