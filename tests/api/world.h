/* What the tests of the public header share: engines, settings and samples in one line each, freed when the test ends. They include
 * streamfp.h and link the shared library, nothing else of the project. */
#ifndef SFP_TESTS_API_WORLD_H
#define SFP_TESTS_API_WORLD_H

#include "streamfp.h"

#include "temp_directory.h"
#include "test.h"

enum { SIDE = 32, BATCH = 4, CLASSES = 3 }; /* SIDE: of the random backbone */

static const sfp_engine_options one_thread = {.size = sizeof(sfp_engine_options), .threads = 1};
static const sfp_predictor_options small_predictor = {.size = sizeof(sfp_predictor_options), .threads = 1, .max_batch = BATCH};

KEEP_BY(keep_engine, sfp_engine, sfp_engine_close)
KEEP_BY(keep_settings, sfp_settings, sfp_settings_free)
KEEP_BY(keep_learner, sfp_learner, sfp_learner_free)
KEEP_BY(keep_predictor, sfp_predictor, sfp_predictor_free)

static inline sfp_engine *random_engine(void)
{
    sfp_engine *e = NULL;
    MUST(sfp_engine_open_random(1, &one_thread, &e, &err));
    return keep_engine(e);
}

/* Settings with a batch of 4, and the pairs of keys and values behind them, up to NULL. */
static inline sfp_settings *settings_of(const char *const *pairs)
{
    sfp_settings *s = NULL;
    MUST(sfp_settings_create(&s, &err));
    MUST(sfp_settings_set(s, "batch", "4", &err));
    for (; pairs && pairs[0]; pairs += 2)
        MUST(sfp_settings_set(s, pairs[0], pairs[1], &err));
    return keep_settings(s);
}
#define SETTINGS(...) settings_of(STRINGS(__VA_ARGS__))
#define TRAINED(...) SETTINGS("preset", "paper", __VA_ARGS__) /* fingerprints */

static inline sfp_learner *learner_of(sfp_engine *e, const sfp_settings *s)
{
    sfp_learner *l = NULL;
    MUST(sfp_learner_create(e, s, &l, &err));
    return keep_learner(l);
}

static inline sfp_predictor *predictor_of(sfp_learner *l)
{
    sfp_predictor *p = NULL;
    MUST(sfp_predictor_create(l, &small_predictor, &p, &err));
    return keep_predictor(p);
}

/* A sample of a flat RGB image at the input size; the shade follows from label and id. */
static inline sfp_sample flat_sample(int32_t label, uint64_t id)
{
    size_t bytes = (size_t)SIDE * SIDE * 3;
    uint8_t *rgb = kept_malloc(bytes);
    memset(rgb, (int)(20 + 70 * (label % 3) + (int32_t)(id % 17)), bytes);
    return (sfp_sample){.image = {.format = SFP_IMAGE_RGB, .width = SIDE, .height = SIDE, .data = rgb}, .label = label, .id = id};
}

/* Offers batches first .. end - 1 of BATCH samples, whose labels go round the classes. */
static inline void offer_batches(sfp_learner *l, int first, int end)
{
    for (int k = first; k < end; k++) {
        KEPT_IN_BLOCK;
        sfp_sample samples[BATCH];
        for (int i = 0; i < BATCH; i++)
            samples[i] = flat_sample(i % CLASSES, (uint64_t)(k * BATCH + i));
        MUST(sfp_learner_offer(l, BATCH, samples, NULL, &err));
    }
}

#endif
