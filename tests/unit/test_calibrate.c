/* The measurement of clock paper: how many batches the copy of the learner processes before and while it is measured. Times are not
 * tested. */
#include "buffer/ssd.h"
#include "run/run_internal.h"

#include "run_world.h"

AROUND_ALL(make_run_world, end_run_world)

/* Measures with these options. With known tasks the first of 5 has 18 of 90 samples: one batch of 10 and one of 8. */
static sfp__calibration measure(sfp__run_options *o, const atomic_int *stop)
{
    OWNED_PTR(sfp__run_close) sfp__run *run = NULL;
    const sfp__run_hooks hooks = {.stop = stop};
    sfp_result r;
    sfp__calibration c = {0};
    o->clock = SFP__CLOCK_PAPER;
    o->rate = 100;
    MUST(sfp__run_open(o, &hooks, &r, &run, &err));
    MUST(sfp__calibrate(&run->plan, &c, &err));
    assert_int_equal(sfp__learner_get_counts(run->learner).offered, 0); /* a copy was measured */
    sfp__run_close(TAKE(run));
    sfp__result_done(&r);
    return c;
}

TEST(the_buffer_is_full_before_the_first_batch_is_measured)
{
    sfp__run_options o = options("synthetic:90", "5");
    o.calibrate = 7;
    sfp__calibration c = measure(&o, NULL);
    assert_int_equal(c.filling, 3); /* 10 + 8 + 10 samples for 20 slots: the batches of the first task begin again */
    assert_int_equal(c.measured, 7);
    assert_true(c.seconds > 0);
    o.learner.buffer.method = "none";
    c = measure(&o, NULL);
    assert_int_equal(c.filling, 0);
    assert_int_equal(c.measured, 7);
    o.tasks = "free";
    o.learner.buffer.method = "er";
    o.learner.buffer.slots = 45;
    assert_int_equal(measure(&o, NULL).filling, 5);
}

TEST(the_measured_batches_are_divided_among_the_tasks)
{
    sfp__run_options o = options("synthetic:90", "5");
    for (o.calibrate = 1; o.calibrate <= 12; o.calibrate++) { /* fewer than tasks, as many, more */
        sfp__calibration c = measure(&o, NULL);
        assert_int_equal(c.measured, o.calibrate);
        assert_int_equal(c.tasks, o.calibrate < 5 ? o.calibrate : 5);
    }
    o.tasks = "free";
    o.calibrate = 7;
    assert_int_equal(measure(&o, NULL).tasks, 1);
}

TEST(the_window_of_ssd_is_full_before_the_first_batch_is_measured)
{
    sfp__run_options o = options("synthetic:90", "5");
    o.calibrate = 2;
    o.learner.buffer.method = "ssd";
    sfp__calibration c = measure(&o, NULL);
    assert_int_equal(c.filling, 32);
    assert_int_equal(c.measured, 2);
    o.learner.buffer.ssd.window = 16;
    assert_int_equal(measure(&o, NULL).filling, 16);
}

TEST(a_closed_form_head_has_nothing_to_fill)
{
    sfp__run_options o = options("synthetic:90", "5");
    o.calibrate = 40; /* more than the stream has */
    o.method = "ncm";
    sfp__calibration c = measure(&o, NULL);
    assert_int_equal(c.filling, 0);
    assert_int_equal(c.measured, 40);
}

TEST(the_filling_is_bounded)
{
    const sfp__buffer_method er = {.name = "er"}, ssd = {.name = "ssd", .needs = SFP__NEED_PIXELS};
    sfp__buffer b = {.opt = {.slots = 102, .ssd.window = 32}, .max_batch = 20, .method = &er};
    assert_true(sfp__calibration_fills(&b, 11)); /* 6 batches of 20 fill 102 slots */
    assert_false(sfp__calibration_fills(&b, 12));
    b.filled = 102;
    assert_false(sfp__calibration_fills(&b, 1));
    b.method = &ssd;
    assert_true(sfp__calibration_fills(&b, 31));
    assert_false(sfp__calibration_fills(&b, 32));
    b.filled = 101;
    assert_true(sfp__calibration_fills(&b, 43));
    assert_false(sfp__calibration_fills(&b, 44));
    b.opt.slots = b.filled = 0;
    assert_false(sfp__calibration_fills(&b, 0));
    assert_false(sfp__calibration_fills(NULL, 0));
}

TEST(a_measurement_that_is_stopped_ends_at_once)
{
    atomic_int stop = 1;
    sfp__run_options o = options("synthetic:90", "5");
    o.calibrate = 100000;
    sfp__calibration c = measure(&o, &stop);
    assert_int_equal(c.filling, 0);
    assert_int_equal(c.measured, 0);
}
