/* Batches for the buffer tests. Every field of a sample is a function of its id, so that a slot can be checked completely.
 * Include after <cmocka.h>. */
#ifndef SFP_TESTS_BUFFER_BATCH_H
#define SFP_TESTS_BUFFER_BATCH_H

#include "buffer/buffer.h"

#include "test.h"

typedef struct test_batch {
    sfp__buffer_batch view; /* passed to the buffer */
    int dim;
    int32_t *label;
    uint64_t *id;
    uint8_t **image;
    float *mean_embed, *query, *score, *fingerprint;
    bool *has_query;
} test_batch;

static inline void *test_array(int n, size_t size)
{
    return kept_calloc((size_t)(n ? n : 1), size);
}

static inline uint8_t test_pixel(uint64_t id, size_t k)
{
    return (uint8_t)(id * 31 + k * 7 + (id >> 8));
}

/* Returns eighths in [-1, 1]: sums of products are exact in any order, so that scores and ties can be compared. */
static inline float test_value(uint64_t id, int k, int which)
{
    uint64_t x = id * 2654435761u + (uint64_t)k * 40503u + (uint64_t)which * 977u;
    return (float)(int)((x ^ x >> 7 ^ x >> 15) % 17) / 8 - 1;
}

static inline int32_t test_label(uint64_t id)
{
    return (int32_t)(id % 13) - 1;
}

static inline bool test_has_query(uint64_t id)
{
    return id % 3 != 0;
}

/* Creates b samples with ids from `first` on. The score is <mean_embed, fingerprint>, as in the learner. */
static inline test_batch batch_make(int b, int dim, size_t image_bytes, uint64_t first, uint64_t now)
{
    test_batch t = {.dim = dim,
                    .label = test_array(b, sizeof(int32_t)),
                    .id = test_array(b, sizeof(uint64_t)),
                    .image = test_array(b, sizeof(uint8_t *)),
                    .mean_embed = test_array(b * dim, sizeof(float)),
                    .query = test_array(b * dim, sizeof(float)),
                    .score = test_array(b, sizeof(float)),
                    .fingerprint = test_array(dim, sizeof(float)),
                    .has_query = test_array(b, sizeof(bool))};
    for (int k = 0; k < dim; k++)
        t.fingerprint[k] = test_value(77, k, 3);
    for (int i = 0; i < b; i++) {
        uint64_t id = first + (uint64_t)i;
        t.id[i] = id;
        t.label[i] = test_label(id);
        t.image[i] = test_array((int)image_bytes, 1);
        for (size_t k = 0; k < image_bytes; k++)
            t.image[i][k] = test_pixel(id, k);
        t.has_query[i] = test_has_query(id);
        for (int k = 0; k < dim; k++) {
            t.mean_embed[i * dim + k] = test_value(id, k, 1);
            t.query[i * dim + k] = test_value(id, k, 2);
            t.score[i] += t.mean_embed[i * dim + k] * t.fingerprint[k];
        }
    }
    t.view = (sfp__buffer_batch){.b = b,
                                 .now = now,
                                 .label = t.label,
                                 .id = t.id,
                                 .image = (const uint8_t *const *)t.image,
                                 .mean_embed = t.mean_embed,
                                 .query = t.query,
                                 .has_query = t.has_query,
                                 .score = t.score,
                                 .fingerprint = t.fingerprint};
    return t;
}

static inline sfp__buffer *buffer_make(const char *method, int slots, int dim, size_t image_bytes, int max_batch)
{
    sfp__buffer_options opt = sfp__buffer_options_defaults();
    opt.method = method;
    opt.slots = slots;
    opt.dim = dim;
    opt.image_bytes = image_bytes;
    sfp__buffer *b = NULL;
    MUST(sfp__buffer_create(&opt, max_batch, &b, &err));
    return b;
}

/* Returns whether both generators are at the same place of the same sequence. (The struct has padding, so its bytes cannot be
 * compared.) */
static inline bool same_rng(const sfp__rng *a, const sfp__rng *b)
{
    return a->key == b->key && a->stream == b->stream && a->counter == b->counter && a->left == b->left;
}

/* Checks that slot i holds exactly the sample with this id. */
static inline void check_slot(sfp__buffer *b, int i, uint64_t id, uint64_t stored_at)
{
    const sfp__slot *s = &b->slot[i];
    const sfp__buffer_options *opt = &b->opt;
    assert_int_equal(s->id, id);
    assert_int_equal(s->stored_at, stored_at);
    assert_int_equal(s->label, test_label(id));
    for (size_t k = 0; k < opt->image_bytes; k++)
        assert_int_equal(s->image[k], test_pixel(id, k));
    assert_int_equal(s->has_query, test_has_query(id));
    for (int k = 0; k < opt->dim; k++) {
        assert_true(s->mean_embed[k] == test_value(id, k, 1));
        assert_true(s->query[k] == (s->has_query ? test_value(id, k, 2) : 0));
    }
}

#endif
