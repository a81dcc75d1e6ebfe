/* The batches of a stream, and the thread that prefetches them. */
#include "run/batch_loader.h"

#include "fake_source.h"
#include "test.h"

enum { SIDE = 4, CLASSES = 4 };

static uint8_t shade(int64_t i)
{
    return (uint8_t)(i % 251);
}

static fake_source f;
static sfp__tasks t;
static sfp__batches b;
static sfp__skipped skipped; /* of the batches that were taken */

static void end_stream(void)
{
    sfp__batches_done(&b);
    sfp__tasks_done(&t);
    b = (sfp__batches){0};
    t = (sfp__tasks){0};
}

AROUND_EACH(NULL, end_stream)

/* Creates f, t and b. whole: without short last batches. */
static void begin_with(int64_t count, const char *spec, int batch, bool whole)
{
    end_stream();
    skipped = (sfp__skipped){0};
    f = make_fake(count, CLASSES, SIDE, shade);
    MUST(sfp__tasks_create(&f.s, spec, NULL, NULL, &t, &err));
    MUST(sfp__batches_create(&t, batch, whole, &b, &err));
}

static void begin(int64_t count, const char *spec, int batch)
{
    begin_with(count, spec, batch, false);
}

static sfp__batch_loader *load_from(int64_t start)
{
    static const sfp__batch_loader_options four_ahead = {.size = SIDE, .depth = 4};
    sfp__batch_loader *loader = NULL;
    MUST(sfp__batch_loader_create(&f.s, &t, &b, &four_ahead, start, &loader, &err));
    return loader;
}

static int take(sfp__batch_loader *loader, int64_t k, const sfp__sample **s)
{
    const sfp__loaded_batch *batch = NULL;
    MUST(sfp__batch_loader_take(loader, k, &batch, &err));
    sfp__skipped_join(&skipped, &batch->skipped);
    *s = batch->samples;
    return batch->count;
}

TEST(batches_never_cross_tasks_and_keep_a_short_last_one)
{
    begin(52, "2", 10); /* two tasks of 26 */
    static const int sizes[] = {10, 10, 6, 10, 10, 6};
    assert_int_equal(b.count, 6);
    assert_int_equal(b.max_batch_samples, 10);
    for (int64_t k = 0, sum = 0; k < b.count; k++) {
        assert_int_equal(b.first[k + 1] - b.first[k], sizes[k]);
        assert_int_equal(b.task[k], k / 3);
        assert_int_equal(b.arrived[k], sum += sizes[k]);
        for (int64_t i = b.first[k]; i < b.first[k + 1]; i++)
            assert_int_equal(b.order[i] % CLASSES / 2, b.task[k]);
    }
}

TEST(short_last_batches_can_be_excluded_but_still_take_time)
{
    begin_with(52, "2", 10, true);
    static const int64_t arrived[] = {10, 20, 36, 46};
    assert_int_equal(b.count, 4);
    assert_int_equal(b.first[4], 40);
    for (int k = 0; k < 4; k++)
        assert_int_equal(b.arrived[k], arrived[k]);
    begin_with(52, "2", 100, true); /* the only batch of a task is kept */
    assert_int_equal(b.count, 2);
    assert_int_equal(b.max_batch_samples, 26);
    sfp__task pieces[] = {{.count = 26}, {.count = 4}, {.count = 20}};
    const sfp__tasks three = {.count = 3, .task = pieces};
    assert_int_equal(sfp__batches_excluded(&three, 10, 3), 6);
    assert_int_equal(sfp__batches_excluded(&three, 8, 3), 2 + 4);
    assert_int_equal(sfp__batches_excluded(&three, 8, 1), 2);
}

TEST(batches_are_delivered_in_order_with_their_images)
{
    begin(230, "2", 7);
    OWNED_PTR(sfp__batch_loader_free) sfp__batch_loader *loader = load_from(0);
    for (int64_t k = 0; k < b.count; k++) {
        const sfp__sample *s;
        int n = take(loader, k, &s);
        assert_int_equal(n, b.first[k + 1] - b.first[k]);
        for (int i = 0; i < n; i++) {
            assert_int_equal(s[i].id, b.order[b.first[k] + i]);
            assert_int_equal(s[i].label, t.label_of[s[i].id % CLASSES]);
            assert_int_equal(s[i].rgb[0], s[i].id % 251);
            assert_int_equal(s[i].rgb[3 * SIDE * SIDE - 1], s[i].id % 251);
        }
        sfp__batch_loader_release(loader, k + 1);
    }
    assert_int_equal(skipped.count, 0);
}

TEST(unreadable_images_are_skipped_and_counted)
{
    begin(60, "free", 12);
    f.broken_every = 6;
    OWNED_PTR(sfp__batch_loader_free) sfp__batch_loader *loader = load_from(0);
    for (int64_t k = 0; k < b.count; k++) {
        const sfp__sample *s;
        int n = take(loader, k, &s);
        assert_int_equal(n, 10);
        for (int i = 0; i < n; i++) {
            assert_int_not_equal(s[i].id % 6, 0);
            assert_int_equal(s[i].rgb[0], s[i].id);
        }
        sfp__batch_loader_release(loader, k + 1);
    }
    assert_int_equal(skipped.count, 10);
    assert_string_equal(skipped.first, "image 0: broken");
    sfp__batch_loader_free(loader);
    f.broken_every = 1; /* no readable image: empty batches, and no endless wait */
    loader = load_from(0);
    const sfp__sample *s;
    assert_int_equal(take(loader, 0, &s), 0);
}

TEST(the_loader_jumps_ahead_and_several_batches_can_be_held)
{
    begin(400, "free", 4);
    f.pause = 100000;
    OWNED_PTR(sfp__batch_loader_free) sfp__batch_loader *loader = load_from(3);
    static const int64_t jumps[] = {3, 4, 40, 41, 45, 80, 97};
    int n = 0;
    const sfp__sample *held[3];
    for (size_t j = 0; j < sizeof jumps / sizeof *jumps; j++) {
        sfp__batch_loader_release(loader, jumps[j]);
        for (int h = 0; h < 3; h++) /* three batches stay valid at once, as allocation needs */
            n = take(loader, jumps[j] + h, &held[h]);
        for (int h = 0; h < 3; h++)
            for (int i = 0; i < n; i++) {
                assert_int_equal(held[h][i].id, 4 * (jumps[j] + h) + i);
                assert_int_equal(held[h][i].rgb[5], held[h][i].id % 251);
            }
    }
}

/* The paper's clock keeps some batches of each task, evenly spaced, and the others are not decoded. */
TEST(only_the_batches_that_are_kept_are_decoded)
{
    atomic_long loads = 0;
    begin(400, "free", 4);
    f.loads = &loads;
    static const int64_t kept[] = {0, 16, 33, 50, 66, 83}; /* of 100 */
    assert_int_equal(sfp__batches_keep(&b, 16), 0);
    assert_int_equal(b.count, 6);
    assert_int_equal(b.samples, 400); /* still the samples of the whole stream */
    sfp__batch_loader *loader = load_from(0);
    for (int64_t i = 0; i < b.count; i++) {
        const sfp__sample *s;
        assert_int_equal(b.arrived[i], 4 * (kept[i] + 1));
        assert_int_equal(take(loader, i, &s), 4);
        for (int k = 0; k < 4; k++)
            assert_int_equal(s[k].id, 4 * kept[i] + k);
        sfp__batch_loader_release(loader, i + 1);
    }
    sfp__batch_loader_free(loader);
    assert_int_equal(atomic_load(&loads), 24);
}

TEST(a_task_without_time_for_a_batch_keeps_one_and_is_counted)
{
    begin(52, "2", 10); /* three batches per task */
    assert_int_equal(sfp__batches_keep(&b, 3), 0);
    begin(52, "2", 10);
    assert_int_equal(sfp__batches_keep(&b, 3.01), 2);
    assert_int_equal(b.count, 2);
    assert_int_equal(b.task[1], 1);
    begin(8, "free", 10);
    assert_int_equal(sfp__batches_keep(&b, 0.5), 0);
    assert_int_equal(sfp__batches_keep(&b, 1e9), 1);
    assert_int_equal(b.count, 1);
}

TEST(a_loader_with_a_count_begins_again_after_the_last_batch)
{
    begin(22, "free", 10); /* 10, 10 and 2 samples */
    const sfp__batch_loader_options cycle = {.size = SIDE, .depth = 2, .count = 8};
    OWNED_PTR(sfp__batch_loader_free) sfp__batch_loader *loader = NULL;
    const sfp__sample *s;
    const sfp__loaded_batch *none;
    MUST(sfp__batch_loader_create(&f.s, &t, &b, &cycle, 0, &loader, &err));
    for (int64_t k = 0; k < 8; k++) {
        assert_int_equal(take(loader, k, &s), k % 3 == 2 ? 2 : 10);
        assert_int_equal(s[0].id, t.task[0].sample[k % 3 * 10]);
        sfp__batch_loader_release(loader, k + 1);
    }
    assert_int_equal(sfp__batch_loader_take(loader, 8, &none, &err), SFP_EINVAL);
}

TEST(a_batch_that_is_not_loaded_is_refused)
{
    begin(40, "free", 4);
    OWNED_PTR(sfp__batch_loader_free) sfp__batch_loader *loader = load_from(2);
    const sfp__loaded_batch *none;
    REFUSED_EXACTLY(sfp__batch_loader_take(loader, 1, &none, &err), SFP_EINVAL, "batch is 1, expected 2 to 5");
    assert_int_equal(sfp__batch_loader_take(loader, 6, &none, &err), SFP_EINVAL);
    sfp__batch_loader_release(loader, 10);
    assert_int_equal(sfp__batch_loader_take(loader, 10, &none, &err), SFP_EINVAL); /* there are 10: 0 to 9 */
}

TEST(the_loader_can_be_freed_at_any_time)
{
    begin(4000, "free", 16);
    for (int round = 0; round < 60; round++) {
        f.pause = round % 3 ? 0 : 10000;
        OWNED_PTR(sfp__batch_loader_free) sfp__batch_loader *loader = load_from(round);
        for (int64_t k = round; k < 2 * round; k++) {
            const sfp__sample *s;
            (void)take(loader, k, &s);
            sfp__batch_loader_release(loader, k + 1);
        }
    }
    OWNED_PTR(sfp__batch_loader_free) sfp__batch_loader *loader = load_from(b.count); /* no batches are left */
    sfp__batch_loader_free(NULL);
}
