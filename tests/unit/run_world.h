/* A tiny backbone, and small runs in a temporary directory. */
#ifndef TEST_RUN_WORLD_H
#define TEST_RUN_WORLD_H

#include "base/thread_pool.h"
#include "io/image/image.h"
#include "model/vit.h"
#include "run/run.h"

#include "source_files.h"
#include "test.h"
#include "vit_make.h"

static sfp__vit *vit;
static sfp__thread_pool *threads;

static inline void make_world(void)
{
    const sfp__vit_config c = VIT(16, 8, 32, 3, 2, 64, 0.5f, 0.25f);
    make_directory();
    MUST(sfp__vit_random(&c, 1, 0.08f, &vit, &err));
    MUST(sfp__thread_pool_create(1, &threads, &err));
    put_text("costs", "0.3\n0.05\n# a comment\n\n0.2\n");
    assert_int_equal(setenv("STREAMFP_REGISTRY", in_directory("runs.db"), 1), 0);
}

static inline void end_world(void)
{
    sfp__vit_free(vit);
    sfp__thread_pool_free(threads);
    remove_directory();
}

static inline sfp__run_options options(const char *data, const char *tasks)
{
    sfp__run_options o = sfp__run_options_defaults(vit, threads);
    o.data = data;
    o.tasks = tasks;
    o.learner.batch = 10;
    o.learner.buffer.slots = 20;
    o.learner.seed = 3;
    o.eval_limit = 4;
    return o;
}

/* Options with a clock, this arrival rate and the processing times of the file `costs`. */
static inline sfp__run_options clocked(const char *data, const char *tasks, sfp__clock_kind clock, double rate)
{
    sfp__run_options o = options(data, tasks);
    o.costs = in_directory("costs");
    o.clock = clock;
    o.rate = rate;
    return o;
}

typedef struct stopper {
    atomic_int stop;
    int after;
    char last_message[SFP_ERROR_MAX];
} stopper;

static inline void count_down(void *ctx, const sfp_run_progress *p)
{
    stopper *s = ctx;
    if (p->to_evaluate)
        return;
    assert_true(p->total == 0 || p->offered <= p->total);
    if (s->after > 0 && --s->after == 0)
        s->stop = 1;
}

static inline void keep_message(void *ctx, sfp_log_level level, const char *message)
{
    (void)level;
    stopper *s = ctx;
    (void)snprintf(s->last_message, sizeof s->last_message, "%s", message);
}

KEEP_BY(keep_result, sfp_result, sfp__result_done)

/* All steps of a run. The caller ends *r, also after a failure. */
static inline sfp_status run_all(const sfp__run_options *o, const sfp__run_hooks *hooks, sfp_result *r)
{
    OWNED_PTR(sfp__run_close) sfp__run *run = NULL;
    TRY(sfp__run_open(o, hooks, r, &run, &err));
    for (bool more = true; more;)
        TRY(sfp__run_step(run, &more, &err));
    return SFP_OK;
}

/* Runs into directory `name`. The result is freed when the test ends: it may be read, but not changed. */
static inline sfp_result run_with(sfp__run_options *o, const char *name, const sfp__run_hooks *hooks)
{
    sfp_result *r = kept_malloc(sizeof *r);
    o->out = in_directory(name);
    (void)mkdir(o->out, 0777);
    if (run_all(o, hooks, r))
        fail_msg("%s: %s", name, err.message);
    return *keep_result(r);
}

/* after > 0: the run is stopped after this number of timestamps. last_message: the last message (NULL: not wanted). */
static inline sfp_result run_once(sfp__run_options *o, const char *name, int after, char *last_message)
{
    stopper s = {.after = after};
    const sfp__run_hooks hooks = {.ctx = &s, .log_ctx = &s, .progress = count_down, .log = keep_message, .stop = &s.stop};
    sfp_result r = run_with(o, name, &hooks);
    if (last_message)
        memcpy(last_message, s.last_message, sizeof s.last_message);
    return r;
}

static inline void refused(sfp__run_options o, const char *message)
{
    sfp__run_hooks hooks = {0};
    sfp_result r;
    assert_true(run_all(&o, &hooks, &r) != SFP_OK);
    if (!strstr(err.message, message))
        fail_msg("'%s', expected '%s'", err.message, message);
    if (r.tasks > 0)
        sfp__result_done(&r);
}

static inline void same_file(const char *a, const char *b)
{
    check_same_bytes(in_directory(a), in_directory(b));
}

/* Checks that two runs have the same state file. */
static inline void same_state(const char *a, const char *b)
{
    same_file(kept_print("%s/state.safetensors", a), kept_print("%s/state.safetensors", b));
}

static inline void same_result(const sfp_result *a, const sfp_result *b)
{
    assert_memory_equal(&a->samples, &b->samples, sizeof a->samples);
    assert_int_equal(a->tasks_done, b->tasks_done);
    assert_memory_equal(&a->prequential_accuracy, &b->prequential_accuracy, sizeof(double));
    assert_true(a->coverage == b->coverage);
    assert_memory_equal(&a->lag.mean, &b->lag.mean, sizeof(double)); /* equal also if both are NAN */
    assert_memory_equal(&a->lag.max, &b->lag.max, sizeof(double));
    for (int i = 0; i < a->tasks; i++)
        for (int j = 0; j <= i; j++) {
            double x = a->accuracy[i * a->tasks + j], y = b->accuracy[i * b->tasks + j];
            assert_true(x == y || (x != x && y != y));
        }
    const sfp__curve *c = &a->curve[SFP__CURVE_PREQUENTIAL], *d = &b->curve[SFP__CURVE_PREQUENTIAL];
    assert_int_equal(c->count, d->count);
    for (int i = 0; i < c->count; i++)
        assert_true(c->x[i] == d->x[i] && c->y[i] == d->y[i]);
}

/* Writes an image of a single shade. */
static inline void put_image(const char *name, int shade)
{
    uint8_t rgb[16 * 16 * 3];
    memset(rgb, shade, sizeof rgb);
    MUST(sfp__image_write_png(make_parents(name), &(sfp__image){.width = 16, .height = 16, .rgb = rgb}, &err));
}

/* Writes a directory of classes with 12 images each. broken: every fourth file is not an image. */
static inline void put_images(const char *top, int classes, bool broken)
{
    for (int c = 0; c < classes; c++)
        for (int i = 0; i < 12; i++) {
            const char *name = kept_print("%s/c%d/%02d.png", top, c, i);
            if (broken && i % 4 == 1)
                put_text(name, "not an image");
            else
                put_image(name, 20 * i + 9 * c);
        }
}

#endif
