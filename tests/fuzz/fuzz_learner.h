/* A tiny backbone and learners on it, for the files of a learner. The files depend on the backbone and on the settings of this
 * version, so the seeds of a target are written by the target itself: to the directory SFP_FUZZ_SEEDS, if it is set. */
#ifndef SFP_TESTS_FUZZ_LEARNER_H
#define SFP_TESTS_FUZZ_LEARNER_H

#include "../unit/vit_make.h"
#include "fuzz_directory.h"
#include "io/file.h"
#include "learner/learner.h"
#include "learner/predictor.h"
#include "learner/state/state.h"

#include <limits.h>

enum { SIDE = 8, BATCH = 4, TIMES = 6, LABELS = 3 };

static sfp__vit *vit;
static sfp__thread_pool *threads;
static uint8_t images[BATCH * TIMES][3 * SIDE * SIDE];

/* A call that must not fail; `fatal` is its error record. */
#define MUST(call)                                         \
    do {                                                   \
        sfp_error fatal[1] = {{0}};                        \
        if ((call) != SFP_OK) {                            \
            (void)fprintf(stderr, "%s\n", fatal->message); \
            abort();                                       \
        }                                                  \
    } while (0)

/* Creates the backbone, the images and the directory at the first call. */
static inline void make_world(void)
{
    static const sfp__vit_config config = VIT(SIDE, 4, 8, 3, 2, 16, 0.5f, 0.5f);
    if (vit)
        return;
    MUST(sfp__vit_random(&config, 3, 0.1f, &vit, fatal));
    MUST(sfp__thread_pool_create(1, &threads, fatal));
    for (int i = 0; i < BATCH * TIMES; i++)
        for (int k = 0; k < 3 * SIDE * SIDE; k++)
            images[i][k] = (uint8_t)(i * 37 + k * (i % LABELS + 1));
    make_directory();
}

static inline const char *in_directory(const char *name, char path[PATH_MAX])
{
    (void)snprintf(path, PATH_MAX, "%s/%s", directory, name);
    return path;
}

static inline sfp__learner_options tiny_options(void)
{
    sfp__learner_options o = sfp__learner_options_defaults(vit);
    o.fp.pool = 4;
    o.fp.length = 2;
    o.fp.last_layer = 1;
    o.fp.tasks = 0;
    o.fp.classes = 0;
    o.batch = BATCH;
    o.replay = 2;
    o.buffer.slots = 3;
    return o;
}

/* Offers one timestamp. */
static inline sfp_status offer(sfp__learner *l, int t, sfp_error *err)
{
    sfp__sample samples[BATCH];
    for (int i = 0; i < BATCH; i++) {
        int k = t * BATCH + i;
        samples[i] = (sfp__sample){.rgb = images[k], .label = k % LABELS, .id = (uint64_t)k};
    }
    return sfp__learner_offer(l, BATCH, samples, NULL, err);
}

/* Creates a learner that has processed `times` timestamps. */
static inline sfp__learner *make_learner(const sfp__learner_options *o, int times)
{
    sfp__learner *l = NULL;
    const int32_t labels[LABELS] = {0, 1, 2};
    MUST(sfp__learner_create(vit, threads, o, &l, fatal));
    if (o->fp.tasks > 0)
        MUST(sfp__learner_set_classes(l, LABELS, labels, fatal));
    for (int t = 0; t < times; t++)
        MUST(offer(l, t, fatal));
    MUST(sfp__learner_name_class(l, 1, "b", fatal));
    return l;
}

/* Writes a checkpoint and returns its bytes. */
static inline uint8_t *image_of(sfp__learner *l, size_t *size)
{
    char path[PATH_MAX], old[PATH_MAX];
    uint8_t *bytes = NULL;
    MUST(sfp__learner_checkpoint(l, in_directory("c", path), "{}", fatal));
    MUST(sfp__file_read(path, SIZE_MAX, &bytes, size, fatal));
    (void)unlink(path);
    (void)unlink(in_directory("c.old", old));
    return bytes;
}

/* Predicts some images: refused with a message, or every label is a class. */
static inline void predict(sfp_predictor *p)
{
    const uint8_t *rgb[2] = {images[0], images[1]};
    sfp__predictions found;
    sfp_error err = {0};
    if (!accepted(sfp__predictor_run(p, 2, rgb, NULL, SFP__WANT_SCORES | SFP__WANT_UNKNOWN, &found, &err), &err))
        return;
    for (int i = 0; i < 2; i++)
        REQUIRE(found.label[i] >= -1 && found.label[i] < found.classes);
    touch(found.unknown, 2 * sizeof(float));
}

/* Copies a file to SFP_FUZZ_SEEDS/NAME. */
static inline void put_seed(const char *path, const char *name)
{
    char to[PATH_MAX];
    OWNED uint8_t *bytes = NULL;
    size_t size = 0;
    (void)snprintf(to, sizeof to, "%s/%s", getenv("SFP_FUZZ_SEEDS"), name);
    MUST(sfp__file_read(path, SIZE_MAX, &bytes, &size, fatal));
    FILE *f = fopen(to, "wb");
    REQUIRE(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0);
}

#endif
