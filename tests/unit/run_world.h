/* A tiny backbone, a temporary directory, and options of small runs. */
#ifndef TEST_RUN_WORLD_H
#define TEST_RUN_WORLD_H

#include "base/thread_pool.h"
#include "model/vit.h"
#include "run/run.h"

#include "temp_directory.h"
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

#endif
