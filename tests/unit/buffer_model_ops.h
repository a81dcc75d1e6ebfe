/* Model callbacks (buffer/model_ops.h) for the buffer tests: features and gradients that are functions of the id of a sample, and
 * a record of the calls. Include after <cmocka.h>. */
#ifndef SFP_TESTS_BUFFER_ASK_H
#define SFP_TESTS_BUFFER_ASK_H

#include "buffer/model_ops.h"

#include "buffer_batch.h"
#include "failing_alloc.h"
#include "test.h"

enum { CALL_MAX = 4096 };

typedef struct test_model_ops {
    sfp__model_ops model;
    sfp__buffer *b;
    const sfp__buffer_batch *batch;
    void (*row)(uint64_t id, int n, float *out); /* computes features (D), or the gradient (params) of one sample */
    int calls;
    int requested, samples[CALL_MAX];      /* samples of the last call of features, or of all calls of gradient_each */
    int counts[CALL_MAX], sizes[CALL_MAX]; /* n and size of each call of gradient_each */
    int fail_at;                           /* index of the call that fails; -1: none */
} test_model_ops;

static inline uint64_t id_of_sample(const test_model_ops *t, int sample)
{
    assert_in_range(sample, 0, t->batch->b + t->b->filled - 1);
    return sample < t->batch->b ? t->batch->id[sample] : t->b->slot[sample - t->batch->b].id;
}

static inline sfp_status record_features(void *ctx, int n, const int *sample, float *out, sfp_error *why)
{
    test_model_ops *t = ctx;
    if (t->calls++ == t->fail_at)
        return sfp__fail(why, SFP_EIO, "injected failure");
    for (int i = 0; i < n; i++) {
        t->row(id_of_sample(t, sample[i]), t->model.dim, out + (size_t)i * (size_t)t->model.dim);
        t->samples[i] = sample[i];
    }
    t->requested = n;
    return SFP_OK;
}

static inline void mean_row(const test_model_ops *t, int n, const int *sample, float *out)
{
    int params = (int)t->model.params;
    float *one = test_array(params, sizeof *one);
    memset(out, 0, t->model.params * sizeof *out);
    for (int i = 0; i < n; i++) {
        t->row(id_of_sample(t, sample[i]), params, one);
        for (int k = 0; k < params; k++)
            out[k] += one[k] / (float)n;
    }
}

/* Calls `take` from the last group to the first, because the order of groups is undefined. */
static inline sfp_status record_gradient_each(void *ctx, int n, const int *sample, int size, float *scratch,
                                              sfp__gradient_fn take, void *user, sfp_error *why)
{
    test_model_ops *t = ctx;
    int groups = (n + size - 1) / size;
    for (int i = groups - 1; i >= 0; i--) {
        mean_row(t, n - i * size < size ? n - i * size : size, sample + i * size, scratch);
        take(user, i, scratch);
    }
    for (int i = 0; i < n; i++)
        t->samples[t->requested++] = sample[i];
    t->counts[t->calls] = n;
    t->sizes[t->calls] = size;
    return t->calls++ == t->fail_at ? sfp__fail(why, SFP_EIO, "injected failure") : SFP_OK;
}

/* Runs one update of b with this batch. */
static inline sfp_status update_with_model(sfp__buffer *b, test_batch *x, test_model_ops *t, sfp__rng *rng, sfp__buffer_change *c,
                                           sfp_error *why)
{
    t->model.ctx = t;
    t->model.features = record_features;
    t->model.gradient_each = record_gradient_each;
    t->b = b;
    t->batch = &x->view;
    t->calls = t->requested = 0;
    x->view.model = &t->model;
    return sfp__buffer_update(b, &x->view, rng, c, why);
}

/* The samples in the slots, and everything that an update may change. */
typedef struct buffer_image {
    int filled;
    uint64_t seen;
    uint64_t id[CALL_MAX];
} buffer_image;

static inline buffer_image image_of(sfp__buffer *b)
{
    buffer_image p = {.filled = b->filled, .seen = b->seen};
    for (int i = 0; i < p.filled; i++)
        p.id[i] = b->slot[i].id;
    return p;
}

static inline void check_same_image(const buffer_image *p, sfp__buffer *b)
{
    buffer_image now = image_of(b);
    assert_int_equal(now.filled, p->filled);
    assert_int_equal(now.seen, p->seen);
    assert_memory_equal(now.id, p->id, (size_t)p->filled * sizeof *p->id);
}

/* Checks that only the slots in `change` have changed, as recorded there, and that every retained sample and slot occurs once. */
static inline void check_change(const buffer_image *before, const test_batch *x, const sfp__buffer_change *c, sfp__buffer *b)
{
    buffer_image want = *before;
    assert_in_range(c->stored, 0, x->view.b);
    for (int i = 0; i < c->stored; i++)
        want.id[want.filled++] = x->id[i];
    for (int i = 0; i < c->nu; i++) {
        assert_in_range(c->retained[i], 0, x->view.b - 1);
        assert_in_range(c->replaced[i], 0, b->opt.slots - 1);
        for (int k = 0; k < i; k++) {
            assert_int_not_equal(c->retained[i], c->retained[k]);
            assert_int_not_equal(c->replaced[i], c->replaced[k]);
        }
        want.id[c->replaced[i]] = x->id[c->retained[i]];
    }
    want.seen += (uint64_t)x->view.b;
    check_same_image(&want, b);
}

/* Checks that a failed update changes neither the slots nor the random generator. */
static inline void check_failed_update(sfp__buffer *b, test_batch *x, test_model_ops *t, sfp__rng *rng)
{
    buffer_image before = image_of(b);
    sfp__rng same = *rng;
    assert_int_equal(update_with_model(b, x, t, rng, NULL, &err), SFP_EIO);
    check_same_image(&before, b);
    assert_true(same_rng(rng, &same));
}

/* Creates a buffer with the options of `like` and updates it with x. */
static inline sfp__buffer *buffer_with(sfp__buffer *like, test_batch *x, test_model_ops *t)
{
    sfp__buffer *b = NULL;
    sfp__rng rng = sfp__rng_init(8, 8);
    MUST(sfp__buffer_create(&like->opt, x->view.b, &b, NULL));
    MUST(update_with_model(b, x, t, &rng, NULL, NULL));
    return b;
}

/* After x, each allocation of the update with y fails in turn: the update returns an error and nothing has changed; then it
 * succeeds. An update keeps its memory for the next one, so every failure needs a new buffer. */
static inline void check_failed_allocations(sfp__buffer *like, test_batch *x, test_batch *y, test_model_ops *t)
{
    sfp__buffer *b = buffer_with(like, x, t);
    buffer_image before = image_of(b);
    sfp__rng rng = sfp__rng_init(9, 9), same = rng;
    long failures = FAIL_EACH_ALLOCATION(update_with_model(b, y, t, &rng, NULL, alloc_err), ({
                                             check_same_image(&before, b);
                                             sfp__buffer_free(b);
                                             b = buffer_with(like, x, t);
                                             same_rng(&rng, &same);
                                         }));
    assert_in_range(failures, 1, 1000);
    sfp__buffer_free(b);
}

#endif
