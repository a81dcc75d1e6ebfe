/* Memory does not grow with the length of a stream: checks the resident size over thousands of timestamps on a very small model,
 * with occasional predictions. 2,000 timestamps; 20,000 with SFP_LONG=1 (or STREAMFP_LONG=1). */
#include "learner/learner.h"

#include "base/monotonic.h"

#include "test.h"
#include "test_learner_fixture.h"

/* A sanitizer retains freed memory, so its resident size is meaningless. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

static long resident(void)
{
    long pages = 0, all = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f)
        return 0;
    int found = fscanf(f, "%ld %ld", &all, &pages);
    (void)fclose(f);
    return found == 2 ? pages * sysconf(_SC_PAGESIZE) : 0;
}

TEST(resident_size_is_constant_over_a_long_stream)
{
    enum { WARM = 200, KINDS = 50 };
    uint64_t timestamps = SANITIZED ? 200 : long_tests() ? 20000 : 2000;
    OWNED_BY(free_model) model m = tiny_model(2);
    sfp__learner_options o = small_options(&m, 0, 0);
    o.fp.pool = 10;
    o.steps = 2;
    o.drift = SFP_DRIFT_PH;
    OWNED_PTR(sfp__learner_free) sfp__learner *l = make_learner(&m, &o);
    OWNED_PTR(sfp__predictor_free) sfp__predictor *p = NULL;
    MUST(sfp__predictor_create(l, m.pool, 2, &p, &err));
    batch kinds[KINDS]; /* created in advance, so that the test itself allocates nothing */
    for (uint64_t i = 0; i < KINDS; i++)
        kinds[i] = make_batch(m.S, o.batch, 0, 10, i);
    long start = 0, peak = 0;
    unsigned long allocations = 0;
    double begin = sfp__monotonic_seconds();
    for (uint64_t t = 0; t < WARM + timestamps; t++) {
        sfp__timestamp_details r = {0};
        const batch *b = &kinds[t * 7 % KINDS];
        MUST(sfp__learner_offer(l, b->b, b->sample, &r, &err));
        if (t % 10 == 0) {
            const uint8_t *rgb[2] = {b->sample[0].rgb, b->sample[1].rgb};
            int32_t label[2];
            MUST(sfp__predictor_run(p, 2, rgb, label, NULL, 0, NULL, &err));
        }
        if (t == WARM) {
            start = peak = resident();
            allocations = sfp__mem_count();
        }
        if (t > WARM && t % 100 == 0)
            peak = resident() > peak ? resident() : peak;
    }
    peak = resident() > peak ? resident() : peak;
    print_message("%d timestamps in %.1f s: resident %ld KiB, at peak %ld KiB more later; %lu allocations\n", (int)timestamps,
                  sfp__monotonic_seconds() - begin, start / 1024, (peak - start) / 1024, sfp__mem_count() - allocations);
    assert_true(start > 0);
    if (!SANITIZED)
        assert_true(peak - start < 1 << 20);
}
