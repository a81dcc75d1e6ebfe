/* Diagnostics of a run: the same files without them, the same numbers after every stop, and the number and mean processing time
 * of timestamps. */
#include "learner/diagnostics.h"

#include "run_world.h"
#include "test.h"

AROUND_ALL(make_world, end_world)

static sfp__run_options diagnosed(const char *tasks)
{
    sfp__run_options o = clocked("synthetic:250", tasks, SFP__CLOCK_VIRTUAL, 100);
    o.queue = 2;
    o.diagnostics = true;
    return o;
}

static void same_diagnostics(const sfp_result *a, const sfp_result *b)
{
    size_t n = SFP__COSINES * (size_t)a->tasks * (size_t)a->tasks * sizeof *a->diagnostics.cosines;
    assert_true(a->diagnostics.measured && b->diagnostics.measured);
    assert_memory_equal(&a->diagnostics.coreset_cost, &b->diagnostics.coreset_cost, sizeof a->diagnostics.coreset_cost);
    assert_memory_equal(&a->diagnostics.coreset_angle, &b->diagnostics.coreset_angle, sizeof a->diagnostics.coreset_angle);
    for (const char *const *key = STRINGS("buffer_mmd", "buffer_mmd_mean", "stream_score_deviation",
                                          "gradient_cosine_fingerprints", "gradient_cosine_head");
         *key; key++) {
        const char *name = kept_print("diagnostics.%s", *key);
        double x = sfp__result_number(a, name), y = sfp__result_number(b, name);
        assert_true(x == y || (isnan(x) && isnan(y)));
    }
    assert_int_equal(a->diagnostics.cosines != NULL, b->diagnostics.cosines != NULL);
    if (a->diagnostics.cosines)
        assert_memory_equal(a->diagnostics.cosines, b->diagnostics.cosines, n);
}

TEST(diagnostics_change_nothing_and_survive_every_stop)
{
    for (const char *const *tasks = STRINGS("5", "free"); *tasks; tasks++) {
        sfp__run_options o = diagnosed(*tasks);
        const char *on = kept_print("on-%s", *tasks), *off = kept_print("off-%s", *tasks), *cut = kept_print("cut-%s", *tasks);
        sfp_result want = run_once(&o, on, 0, NULL), r;
        assert_true(want.diagnostics.coreset_cost.ratio > 0 && want.diagnostics.buffer_mmd > 0);
        assert_int_equal(want.diagnostics.gradient_cosine_head > 0, strcmp(*tasks, "free") != 0);
        o.diagnostics = false;
        r = run_once(&o, off, 0, NULL);
        assert_true(!r.diagnostics.measured && isnan(r.diagnostics.buffer_mmd));
        same_result(&want, &r);
        same_state(on, off);
        o.diagnostics = true;
        o.resume = true;
        do
            r = run_once(&o, cut, 3, NULL);
        while (!r.finished);
        same_state(on, cut);
        same_diagnostics(&want, &r);
    }
}

TEST(closed_form_heads_have_no_diagnostics)
{
    sfp__run_options o = diagnosed("5");
    o.method = "ncm";
    sfp_result r = run_once(&o, "ncm", 0, NULL);
    assert_true(r.finished && !r.diagnostics.measured);
}

TEST(timestamps_and_their_mean_time)
{
    sfp__run_options o = options("synthetic:50", "free");
    sfp_result r = run_once(&o, "five", 0, NULL);
    double mean = (r.curve[SFP__CURVE_RATE].count == 5) ? 0 : NAN;
    for (int i = 3; i < 5; i++) /* the speed of each timestamp: 10 samples / its processing time */
        mean += 10 / r.curve[SFP__CURVE_RATE].y[i] / 2;
    assert_int_equal(r.timestamps, 5);
    assert_true(r.batch_seconds > 0 && fabs(r.batch_seconds - mean) < 1e-9);
    o.data = "synthetic:30";
    r = run_once(&o, "three", 0, NULL);
    assert_int_equal(r.timestamps, 3);
    assert_true(isnan(r.batch_seconds));
    o.data = "synthetic:50"; /* stopped and resumed: the mean includes both parts */
    r = run_once(&o, "cut", 4, NULL);
    double first = r.batch_seconds;
    o.resume = true;
    r = run_once(&o, "cut", 0, NULL);
    double last = 10 / r.curve[SFP__CURVE_RATE].y[4];
    assert_int_equal(r.timestamps, 5);
    assert_true(first > 0 && fabs(r.batch_seconds - (first + last) / 2) < 1e-9);
}
