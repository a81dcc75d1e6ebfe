/* A tiny backbone, a temporary directory, and options of small runs. */
#ifndef TEST_RUN_WORLD_H
#define TEST_RUN_WORLD_H

#include "run/run.h"

#include "temp_directory.h"
#include "world.h"

static world small;

static inline void make_run_world(void)
{
    make_directory();
    small = make_world_of((sfp__vit_config)VIT(16, 8, 32, 3, 2, 64, 0.5f, 0.25f), 1, 0.08f, 1);
    assert_int_equal(setenv("STREAMFP_REGISTRY", in_directory("runs.db"), 1), 0);
}

static inline void end_run_world(void)
{
    free_world(&small);
    remove_directory();
}

static UNUSED sfp__run_options options(const char *data, const char *tasks)
{
    sfp__run_options o = sfp__run_options_defaults(small.vit, small.pool);
    o.data = data;
    o.tasks = tasks;
    o.learner.batch = 10;
    o.learner.buffer.slots = 20;
    o.learner.seed = 3;
    o.eval_limit = 4;
    return o;
}

#endif
