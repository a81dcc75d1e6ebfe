/* A run stopped after every few timestamps and resumed ends with the bytes of one that was left alone, for every method, clock
 * and kind of stream; and the counts add up in odd corners. */
#include "base/mem.h"
#include "base/pool.h"
#include "io/image.h"
#include "model/vit.h"
#include "run/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "source_files.h"

static sfp_vit *vit;
static sfp_pool *threads;

static int make_world(void **state)
{
    const sfp_vit_config c = {.img_size = 16, .patch_size = 8, .channels = 3, .dim = 32, .depth = 3, .heads = 2, .hidden = 64,
                              .ln_eps = 1e-6f, .mean = {0.5f, 0.5f, 0.5f}, .std = {0.25f, 0.25f, 0.25f}};
    if (make_folder(state) || sfp__vit_random(&c, 1, 0.08f, &vit, NULL) || sfp__pool_create(1, &threads, NULL))
        return 1;
    put_text("costs", "0.3\n0.05\n# a remark\n\n0.2\n");
    return setenv("STREAMFP_REGISTRY", in_folder("runs.db"), 1);
}

static int end_world(void **state)
{
    sfp__vit_free(vit);
    sfp__pool_free(threads);
    return remove_folder(state);
}

static sfp_run_options options(const char *data, const char *tasks)
{
    sfp_run_options o = sfp__run_options_defaults(vit, threads);
    o.data = data;
    o.tasks = tasks;
    o.learner.batch = 10;
    o.learner.buffer.slots = 20;
    o.learner.seed = 3;
    o.eval_limit = 4;
    return o;
}

typedef struct stopper {
    volatile sig_atomic_t stop;
    int after;
    char said[SFP_ERROR_MAX];
} stopper;

static void count_down(void *ctx, const sfp_run_progress *p)
{
    stopper *s = ctx;
    assert_true(p->offered <= p->total);
    if (s->after > 0 && --s->after == 0)
        s->stop = 1;
}

static void listen(void *ctx, const char *message)
{
    stopper *s = ctx;
    (void)snprintf(s->said, sizeof s->said, "%s", message);
}

/* after > 0: stops after so many timestamps. */
static sfp_result run_once(sfp_run_options *o, const char *name, int after, char *said)
{
    char out[4600];
    stopper s = {.after = after};
    sfp_run_hooks hooks = {.ctx = &s, .progress = count_down, .say = listen, .stop = &s.stop};
    sfp_result r;
    sfp_error err = {0};
    (void)snprintf(out, sizeof out, "%s", in_folder(name));
    (void)mkdir(out, 0777);
    o->out = out;
    if (sfp__run(o, &hooks, &r, &err))
        fail_msg("%s: %s", name, err.message);
    if (said)
        memcpy(said, s.said, sizeof s.said);
    return r;
}

static void same_file(const char *a, const char *b)
{
    char command[9600];
    (void)snprintf(command, sizeof command, "cmp '%s' '%s'", in_folder(a), in_folder(b));
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c): paths of our own making */
}

static void same_result(const sfp_result *a, const sfp_result *b)
{
    assert_int_equal(a->offered, b->offered);
    assert_int_equal(a->scored, b->scored);
    assert_int_equal(a->trained, b->trained);
    assert_int_equal(a->replayed, b->replayed);
    assert_int_equal(a->dropped, b->dropped);
    assert_int_equal(a->skipped, b->skipped);
    assert_int_equal(a->tasks_done, b->tasks_done);
    assert_memory_equal(&a->prequential_accuracy, &b->prequential_accuracy, sizeof(double));
    assert_true(a->coverage == b->coverage);
    assert_true(a->lag_mean == b->lag_mean && a->lag_max == b->lag_max);
    for (int i = 0; i < a->tasks; i++)
        for (int j = 0; j <= i; j++) {
            double x = a->accuracy[i * a->tasks + j], y = b->accuracy[i * b->tasks + j];
            assert_true(x == y || (x != x && y != y));
        }
    assert_int_equal(a->prequential.count, b->prequential.count);
    for (int i = 0; i < a->prequential.count; i++)
        assert_true(a->prequential.x[i] == b->prequential.x[i] && a->prequential.y[i] == b->prequential.y[i]);
}

static void stopped_is_as_left_alone(sfp_run_options o, int every)
{
    static int number;
    char whole[32], cut[32], a[64], b[64];
    (void)snprintf(whole, sizeof whole, "whole%d", ++number);
    (void)snprintf(cut, sizeof cut, "cut%d", number);
    sfp_result want = run_once(&o, whole, 0, NULL), r;
    assert_true(want.finished);
    o.resume = true;
    for (int stops = 0;; stops++) {
        assert_true(stops < 200);
        r = run_once(&o, cut, every, NULL);
        if (r.finished)
            break;
        sfp__result_done(&r);
    }
    same_result(&want, &r);
    (void)snprintf(a, sizeof a, "%s/state.safetensors", whole);
    (void)snprintf(b, sizeof b, "%s/state.safetensors", cut);
    same_file(a, b);
    sfp__result_done(&want);
    sfp__result_done(&r);
}

static void plain_run(void **unused)
{
    (void)unused;
    stopped_is_as_left_alone(options("synthetic:130", "5"), 1);
    stopped_is_as_left_alone(options("synthetic:130", "3,3,4"), 4);
}

static void run_without_boundaries(void **unused)
{
    (void)unused;
    stopped_is_as_left_alone(options("synthetic:130", "free"), 3);
}

static void closed_form_heads(void **unused)
{
    (void)unused;
    static const char *const methods[] = {"ncm", "slda", "ranpac"};
    for (int i = 0; i < 3; i++) {
        sfp_run_options o = options("synthetic:130", "5");
        o.method = methods[i];
        stopped_is_as_left_alone(o, 2);
    }
}

static void virtual_clock_with_a_queue(void **unused)
{
    (void)unused;
    char costs[4600];
    (void)snprintf(costs, sizeof costs, "%s", in_folder("costs"));
    for (int policy = SFP_QUEUE_DROP_OLDEST; policy <= SFP_QUEUE_BLOCK; policy++) {
        sfp_run_options o = options("synthetic:250", "5");
        o.clock = SFP_CLOCK_VIRTUAL;
        o.rate = 100;
        o.costs = costs;
        o.queue = 2;
        o.policy = (sfp_queue_policy)policy;
        stopped_is_as_left_alone(o, 3);
    }
}

static void paper_clock_with_costs(void **unused)
{
    (void)unused;
    char costs[4600];
    (void)snprintf(costs, sizeof costs, "%s", in_folder("costs"));
    sfp_run_options o = options("synthetic:300", "3");
    o.clock = SFP_CLOCK_PAPER;
    o.rate = 400; /* C_S 7.3: gaps larger than what is decoded ahead */
    o.costs = costs;
    stopped_is_as_left_alone(o, 1);
}

static void triage_pools_across_tasks(void **unused)
{
    (void)unused;
    char costs[4600];
    (void)snprintf(costs, sizeof costs, "%s", in_folder("costs"));
    sfp_run_options o = options("synthetic:250", "5");
    o.clock = SFP_CLOCK_VIRTUAL;
    o.rate = 300;
    o.costs = costs;
    o.triage = true;
    stopped_is_as_left_alone(o, 2);
    o.method = "ncm";
    stopped_is_as_left_alone(o, 1);
}

static void evaluation_in_between_changes_nothing(void **unused)
{
    (void)unused;
    sfp_run_options o = options("synthetic:130", "2");
    sfp_result a = run_once(&o, "between_off", 0, NULL);
    o.eval_every = 2;
    sfp_result b = run_once(&o, "between_on", 0, NULL);
    same_result(&a, &b);
    same_file("between_off/state.safetensors", "between_on/state.safetensors");
    sfp__result_done(&a);
    sfp__result_done(&b);
}

static void paper_clock_measures_a_first_task_of_few_batches(void **unused)
{
    (void)unused;
    sfp_run_options o = options("synthetic:100", "5"); /* 2 batches a task */
    o.clock = SFP_CLOCK_PAPER;
    o.rate = 1e9;
    sfp_result r = run_once(&o, "paper_few", 0, NULL);
    assert_true(r.cs > 1); /* 0 when nothing was measured */
    assert_int_equal(r.dropped, 50);
    sfp__result_done(&r);
}

static void a_new_run_in_an_old_folder_forgets_its_checkpoint(void **unused)
{
    (void)unused;
    char said[SFP_ERROR_MAX];
    sfp_run_options o = options("synthetic:60", "2");
    sfp_result r = run_once(&o, "again", 0, NULL);
    sfp__result_done(&r);
    assert_int_equal(access(in_folder("again/checkpoint"), F_OK), 0);
    r = run_once(&o, "again", 2, NULL); /* begun anew, and stopped */
    assert_false(r.finished);
    assert_int_equal(access(in_folder("again/checkpoint.old"), F_OK), -1);
    sfp__result_done(&r);
    o.resume = true;
    r = run_once(&o, "again", 0, said);
    assert_true(r.finished);
    assert_string_equal(said, "going on from the last checkpoint");
    sfp__result_done(&r);
    r = run_once(&o, "again", 0, said);
    assert_string_equal(said, "this run has ended already: nothing to do");
    sfp__result_done(&r);
}

/* A folder of 2 classes with 12 pictures each, every fourth of which is broken. */
static void put_pictures(const char *top, int classes, bool broken)
{
    for (int c = 0; c < classes; c++)
        for (int i = 0; i < 12; i++) {
            uint8_t rgb[16 * 16 * 3];
            char name[64], path[4600];
            memset(rgb, 20 * i + 9 * c, sizeof rgb);
            (void)snprintf(name, sizeof name, "%s/c%d/%02d.png", top, c, i);
            put_text(name, "not a picture");
            (void)snprintf(path, sizeof path, "%s", in_folder(name));
            sfp_image im = {.width = 16, .height = 16, .rgb = rgb};
            if (!broken || i % 4 != 1)
                assert_int_equal(sfp__image_write_png(path, &im, NULL), SFP_OK);
        }
}

static void broken_pictures_are_counted_once_however_often_it_is_resumed(void **unused)
{
    (void)unused;
    char data[4700], said[SFP_ERROR_MAX];
    put_pictures("pictures", 2, true);
    (void)snprintf(data, sizeof data, "folder:%s", in_folder("pictures"));
    sfp_run_options o = options(data, "2");
    o.learner.batch = 5;
    o.learner.keep_compressed = true;
    stopped_is_as_left_alone(o, 1);
    sfp_result r = run_once(&o, "broken", 0, said);
    assert_int_equal(r.offered, 24);
    assert_int_equal(r.skipped, 6);
    assert_int_equal(r.dropped, 0);
    assert_non_null(strstr(said, "6 pictures could not be read and were left out; the first: "));
    assert_true(r.average_accuracy != r.average_accuracy); /* no test set */
    sfp__result_done(&r);
}

static void one_class_and_a_batch_larger_than_the_data(void **unused)
{
    (void)unused;
    char data[4700];
    put_pictures("single", 1, false);
    (void)snprintf(data, sizeof data, "folder:%s", in_folder("single"));
    static const char *const methods[] = {NULL, "ncm", "slda", "ranpac"};
    for (int i = 0; i < 4; i++) {
        sfp_run_options o = options(data, "1");
        o.method = methods[i];
        o.test = data;
        o.learner.batch = 64;
        sfp_result r = run_once(&o, "single_out", 0, NULL);
        assert_int_equal(r.offered, 12);
        assert_int_equal(r.dropped, 0);
        assert_true(r.average_accuracy == 1);
        assert_true(r.coverage == 1);
        sfp__result_done(&r);
    }
}

static void stopping_before_the_first_timestamp_leaves_no_checkpoint(void **unused)
{
    (void)unused;
    volatile sig_atomic_t stop = 1;
    sfp_run_hooks hooks = {.stop = &stop};
    sfp_run_options o = options("synthetic:60", "2");
    sfp_result r;
    assert_int_equal(mkdir(in_folder("early"), 0777), 0);
    char out[4600];
    (void)snprintf(out, sizeof out, "%s", in_folder("early"));
    o.out = out;
    assert_int_equal(sfp__run(&o, &hooks, &r, NULL), SFP_OK);
    assert_false(r.finished);
    assert_int_equal(access(in_folder("early/checkpoint"), F_OK), -1);
    sfp__result_done(&r);
}

static void refused(sfp_run_options o, const char *message)
{
    sfp_run_hooks hooks = {0};
    sfp_result r;
    sfp_error err = {0};
    assert_true(sfp__run(&o, &hooks, &r, &err) != SFP_OK);
    assert_non_null(strstr(err.message, message));
    if (r.tasks > 0)
        sfp__result_done(&r);
}

static void what_cannot_be_run_is_said(void **unused)
{
    (void)unused;
    char costs[4600], bad[4600];
    put_text("bad", "0.5\nfast\n");
    put_text("empty", "# nothing\n");
    (void)snprintf(bad, sizeof bad, "%s", in_folder("bad"));
    (void)snprintf(costs, sizeof costs, "%s", in_folder("empty"));
    sfp_run_options o = options("synthetic:60", "2");
    o.costs = bad;
    refused(o, "bad:2: expected seconds from 0");
    o.costs = costs;
    refused(o, "empty: no costs, expected seconds, one a line");
    o = options("synthetic:60", "2");
    o.clock = SFP_CLOCK_VIRTUAL;
    refused(o, "this clock needs a rate");
    o = options("synthetic:60", "2");
    o.resume = true;
    refused(o, "--resume needs the directory of the run");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_run),
        cmocka_unit_test(run_without_boundaries),
        cmocka_unit_test(closed_form_heads),
        cmocka_unit_test(virtual_clock_with_a_queue),
        cmocka_unit_test(paper_clock_with_costs),
        cmocka_unit_test(triage_pools_across_tasks),
        cmocka_unit_test(evaluation_in_between_changes_nothing),
        cmocka_unit_test(paper_clock_measures_a_first_task_of_few_batches),
        cmocka_unit_test(a_new_run_in_an_old_folder_forgets_its_checkpoint),
        cmocka_unit_test(broken_pictures_are_counted_once_however_often_it_is_resumed),
        cmocka_unit_test(one_class_and_a_batch_larger_than_the_data),
        cmocka_unit_test(stopping_before_the_first_timestamp_leaves_no_checkpoint),
        cmocka_unit_test(what_cannot_be_run_is_said),
    };
    return cmocka_run_group_tests(tests, make_world, end_world);
}
