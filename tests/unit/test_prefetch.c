/* The prefetcher: items are produced in order, at most DEPTH ahead, and released items are not produced. */
#include "base/prefetch.h"

#include <semaphore.h>
#include <stdatomic.h>

#include "test.h"

enum { DEPTH = 3, MAX_ITEMS = 64 };

typedef struct ring {
    int64_t slot[DEPTH];
    atomic_int times[MAX_ITEMS]; /* number of times that each item was produced */
    atomic_llong highest;
    sem_t *gate; /* NULL: production does not wait; else one post per item */
} ring;

static void make(void *ctx, int64_t item)
{
    ring *r = ctx;
    while (r->gate && sem_wait(r->gate) != 0)
        ;
    r->slot[item % DEPTH] = 1000 + item;
    atomic_fetch_add(&r->times[item], 1);
    atomic_store(&r->highest, item);
}

static sfp__prefetcher *begin(ring *r, int64_t first, int64_t end)
{
    const sfp__prefetcher_options o = {.item_name = "cup", .first = first, .end = end, .depth = DEPTH, .make = make, .ctx = r};
    sfp__prefetcher *a = NULL;
    MUST(sfp__prefetcher_create(&o, &a, NULL));
    return a;
}

TEST(each_item_is_produced_once_and_at_most_the_depth_ahead)
{
    ring r = {0};
    sfp__prefetcher *a = begin(&r, 7, 40);
    double wait_seconds = 0;
    for (int64_t k = 7; k < 40; k++) {
        sfp__prefetcher_release(a, k);
        MUST(sfp__prefetcher_take(a, k, &wait_seconds, NULL));
        assert_int_equal(r.slot[k % DEPTH], 1000 + k);
        if (k % 8 == 0)
            (void)usleep(2000); /* gives the thread time to run too far ahead */
        assert_true(atomic_load(&r.highest) < k + DEPTH);
        assert_int_equal(r.slot[k % DEPTH], 1000 + k);
    }
    assert_true(wait_seconds >= 0);
    sfp__prefetcher_free(a);
    for (int k = 0; k < MAX_ITEMS; k++)
        assert_int_equal(atomic_load(&r.times[k]), k >= 7 && k < 40);
}

TEST(an_item_released_before_its_turn_is_never_produced)
{
    sem_t gate;
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    ring r = {.gate = &gate};
    sfp__prefetcher *a = begin(&r, 0, MAX_ITEMS);
    double wait_seconds = 0;
    sfp__prefetcher_release(a, 20);
    sfp__prefetcher_release(a, 10); /* releasing never moves backwards */
    for (int i = 0; i < 5; i++)
        (void)sem_post(&gate);
    MUST(sfp__prefetcher_take(a, 21, &wait_seconds, NULL));
    assert_int_equal(r.slot[21 % DEPTH], 1021);
    for (int k = 1; k < 20; k++) /* the thread may have started with item 0 */
        assert_int_equal(atomic_load(&r.times[k]), 0);
    for (int i = 0; i < MAX_ITEMS; i++)
        (void)sem_post(&gate);
    sfp__prefetcher_free(a);
    (void)sem_destroy(&gate);
}

TEST(an_item_out_of_range_is_refused)
{
    ring r = {0};
    double wait_seconds = 0;
    sfp__prefetcher *a = begin(&r, 0, 6);
    sfp__prefetcher_release(a, 2);
    REFUSED_EXACTLY(sfp__prefetcher_take(a, 1, &wait_seconds, &err), SFP_EINVAL, "cup is 1, expected 2 to 4");
    assert_int_equal(sfp__prefetcher_take(a, 5, &wait_seconds, &err), SFP_EINVAL);
    sfp__prefetcher_release(a, 5);
    MUST(sfp__prefetcher_take(a, 5, &wait_seconds, &err));
    assert_int_equal(sfp__prefetcher_take(a, 6, &wait_seconds, &err), SFP_EINVAL); /* there are only 6 items */
    sfp__prefetcher_free(a);
    sfp__prefetcher_free(NULL);
}
