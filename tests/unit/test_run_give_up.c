/* A stop cancels an evaluation. The resumed run repeats it and ends in the bytes of an uninterrupted run. */
#include "model/vit.h"

#include "run_world.h"
#include "test.h"

AROUND_ALL(make_world, end_world)

/* Lets `evaluations_before` evaluations pass and stops in the next: before its first image, after some, or after the last. */
typedef struct watch {
    atomic_int stop;
    int evaluations_before;
    enum { BEFORE, AFTER_SOME, AFTER_LAST, WAYS } when;
    int started;
    uint64_t images; /* evaluated after the stop */
} watch;

static void stop_in_one(void *ctx, const sfp_run_progress *p)
{
    watch *w = ctx;
    uint64_t done = p->evaluated, total = p->to_evaluate;
    if (!total)
        return;
    assert_true(p->task >= 0 && done <= total);
    w->started += done == 0;
    if (w->stop)
        w->images++;
    if (w->started > w->evaluations_before && (w->when == BEFORE || (done > 0 && w->when == AFTER_SOME) || done == total))
        w->stop = 1;
}

static sfp_result run_watched(sfp__run_options *o, const char *name, watch *w)
{
    const sfp__run_hooks hooks = {.ctx = w, .progress = stop_in_one, .stop = &w->stop};
    return run_with(o, name, &hooks);
}

static bool same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void same_evaluations(const sfp_result *a, const sfp_result *b)
{
    assert_int_equal(a->evaluation_count, b->evaluation_count);
    for (int i = 0; i < a->evaluation_count; i++) {
        const sfp__evaluation *x = &a->evaluations[i], *y = &b->evaluations[i];
        assert_int_equal(x->offered, y->offered);
        assert_int_equal(x->task, y->task);
        for (int j = 0; j <= x->task; j++)
            assert_true(same_number(x->accuracy[j], y->accuracy[j]));
    }
    size_t cells = (size_t)a->classes * (size_t)a->classes;
    assert_memory_equal(a->confusion, b->confusion, cells * sizeof *a->confusion);
}

/* Checks the result of a run that was stopped in its first evaluation. */
static void has_no_numbers(const sfp_result *r)
{
    assert_int_equal(r->tasks_done, 0);
    assert_int_equal(r->evaluation_count, 0);
    for (int i = 0; i < r->tasks * r->tasks; i++)
        assert_true(isnan(r->accuracy[i]));
    for (int i = 0; i < r->classes * r->classes; i++)
        assert_int_equal(r->confusion[i], 0);
}

/* Stops a run repeatedly: every process completes the evaluation that the previous one cancelled, and is stopped in the next. */
static void check(sfp__run_options o, const char *name)
{
    const char *whole = kept_print("%s_whole", name), *parts = kept_print("%s_parts", name);
    int processes = 0;
    sfp_result uninterrupted = run_once(&o, whole, 0, NULL);
    assert_true(uninterrupted.finished && uninterrupted.evaluation_count > 1);
    for (bool finished = false; !finished; processes++) {
        watch w = {.evaluations_before = processes > 0, .when = processes % WAYS};
        sfp_result r = run_watched(&o, parts, &w);
        finished = r.finished;
        assert_true(finished || w.stop);
        assert_int_equal(w.images, 0);
        uint64_t seen = o.method ? r.samples.trained : r.samples.scored;
        assert_int_equal(r.samples.offered, seen + r.samples.dropped + r.samples.skipped); /* holds also for a stopped run */
        assert_true(seen > 0);
        if (processes == 0)
            has_no_numbers(&r);
        if (finished) {
            same_result(&uninterrupted, &r);
            same_evaluations(&uninterrupted, &r);
        }
        o.resume = true;
        assert_true(processes < 100);
    }
    assert_true(processes > uninterrupted.evaluation_count / 2);
    same_state(whole, parts);
    for (int t = 1; t <= uninterrupted.tasks; t++)
        same_file(kept_print("%s/state-task-%d.safetensors", whole, t), kept_print("%s/state-task-%d.safetensors", parts, t));
}

TEST(after_each_task)
{
    check(options("synthetic:130", "3"), "tasks");
}

TEST(between_timestamps)
{
    sfp__run_options o = options("synthetic:130", "2");
    o.eval_every = 3;
    check(o, "between");
    o = options("synthetic:60", "free");
    o.eval_every = 2;
    check(o, "between_free");
    o.eval_every = 2;
    o.method = "slda";
    check(o, "between_head");
}

/* The clock has delivered the first batch of the next task by then. */
TEST(on_a_clock)
{
    sfp__run_options o = clocked("synthetic:200", "3", SFP__CLOCK_VIRTUAL, 80);
    o.queue = 2;
    o.eval_every = 1;
    check(o, "virtual");
    o.eval_every = o.queue = 0;
    o.clock = SFP__CLOCK_PAPER;
    check(o, "paper");
    o = clocked("synthetic:300", "5", SFP__CLOCK_VIRTUAL, 200);
    o.method = "ncm";
    o.allocate = SFP__ALLOCATE_ADAPTIVE; /* batches of two tasks wait together */
    check(o, "adaptive");
}

/* The current batch is read again: its broken images are counted once. */
TEST(with_images_that_cannot_be_read)
{
    put_images("broken", 4, true);
    const char *data = kept_print("folder:%s", in_directory("broken"));
    sfp__run_options o = options(data, "2");
    o.test = data;
    o.max_skipped = 0.25;
    check(o, "broken_images");
}

/* An evaluation that was completed is not repeated: it would be recorded at another position. */
TEST(a_completed_evaluation_is_not_repeated)
{
    sfp__run_options o = clocked("synthetic:200", "3", SFP__CLOCK_VIRTUAL, 80);
    o.eval_every = 1;
    sfp_result whole = run_once(&o, "remembered_whole", 0, NULL);
    for (bool finished = false; !finished;) {
        watch w = {.when = AFTER_LAST};
        sfp_result r = run_watched(&o, "remembered_parts", &w);
        finished = r.finished;
        if (finished)
            same_evaluations(&whole, &r);
        o.resume = true;
    }
}
