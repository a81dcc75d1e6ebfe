/* Runs for the tests of parts 8 and 9: small streams whose result does not depend on the machine. */
#ifndef SFP_TESTS_API_RUN_WORLD_H
#define SFP_TESTS_API_RUN_WORLD_H

#include "world.h"

#include <stdlib.h>

KEEP_BY(keep_source, sfp_source, sfp_source_close)

/* The registry of the tests is in their directory. */
static inline void make_run_world(void)
{
    make_directory();
    assert_int_equal(setenv("STREAMFP_REGISTRY", in_directory("runs.db"), 1), 0);
    put_text("costs", "0.3\n0.05\n0.2\n");
}

/* A stream of 130 samples in 2 tasks, which arrive faster than they are processed; the processing times are given. `out` is a
 * name in the directory of the test. */
static inline sfp_settings *run_settings(const char *out)
{
    return TRAINED("data", "synthetic:130", "tasks", "2", "batch", "10", "buffer-size", "20", "seed", "3", "eval-limit", "4",
                   "clock", "virtual", "rate", "80", "queue", "2", "costs", in_directory("costs"), "out", in_directory(out));
}

static inline sfp_run *open_run(sfp_engine *e, const sfp_settings *s, const sfp_run_options *o)
{
    sfp_run *run = NULL;
    MUST(sfp_run_open(e, s, o, &run, &err));
    return run;
}

/* Runs to the end. */
static inline void run_all(sfp_engine *e, const sfp_settings *s)
{
    sfp_run *run = open_run(e, s, NULL);
    MUST(sfp_run_finish(run, &err));
    assert_true(sfp_result_number(sfp_run_result(run), "finished") == 1);
    sfp_run_close(run);
}

static inline void check_same_state(const char *first, const char *second)
{
    check_same_bytes(in_directory(kept_print("%s/state.safetensors", first)),
                     in_directory(kept_print("%s/state.safetensors", second)));
}

/* A dataset of flat images of two classes, with a counter of its closes. */
typedef struct flat_dataset {
    int count, closes;
    const char *const *class_names; /* (2) */
    uint8_t rgb[256][3 * 8 * 8];    /* one image for each shade */
} flat_dataset;

static sfp_status flat_record(void *ctx, int64_t i, sfp_record *record, sfp_error *why)
{
    (void)ctx;
    (void)why;
    record->label = (int32_t)(i % 2);
    return SFP_OK;
}

static sfp_status flat_load(void *ctx, int64_t i, sfp_image *image, sfp_error *why)
{
    flat_dataset *d = ctx;
    (void)why;
    *image = (sfp_image){.format = SFP_IMAGE_RGB, .width = 8, .height = 8, .data = d->rgb[(i % 2 ? 180 : 20) + i % 40]};
    return SFP_OK;
}

static void flat_close(void *ctx)
{
    ((flat_dataset *)ctx)->closes++;
}

static inline flat_dataset *make_flat(int count, const char *const *class_names)
{
    flat_dataset *d = kept_malloc(sizeof *d);
    *d = (flat_dataset){.count = count, .class_names = class_names};
    for (int shade = 0; shade < 256; shade++)
        memset(d->rgb[shade], shade, sizeof d->rgb[shade]);
    return d;
}

static inline sfp_source *source_of(flat_dataset *d, const char *name)
{
    sfp_source_definition o = SFP_SOURCE_DEFINITION_INIT;
    sfp_source *s = NULL;
    o.name = name;
    o.ctx = d;
    o.count = d->count;
    o.classes = 2;
    o.class_names = d->class_names;
    o.record = flat_record;
    o.load = flat_load;
    o.close = flat_close;
    MUST(sfp_source_create(&o, &s, &err));
    return s;
}

#endif
