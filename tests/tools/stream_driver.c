/* A stream learned on the library, with a checkpoint after every (or every k-th) timestamp: what tests/kill kills.
 *
 *     stream_driver --dir DIR [--timestamps N] [--seed S] [--every K] [--resume]
 *
 * A tiny seeded backbone on seeded pictures of six classes in three tasks. DIR/checkpoint is written on the way,
 * DIR/state.safetensors at the end; the same seed gives the same bytes, however often it was killed and resumed. The position
 * is the number of the next timestamp. On standard output: one line with where it began. */
#include "base/mem.h"
#include "base/rng.h"
#include "learner/learner.h"
#include "model/vit.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 32, BATCH = 8, CLASSES = 6, TASKS = 3, BYTES = 3 * SIDE * SIDE };

typedef struct options {
    const char *dir;
    long timestamps, every;
    unsigned long long seed;
    bool resume;
} options;

static bool number(const char *text, long min, long *out)
{
    char *end = NULL;
    *out = strtol(text, &end, 10);
    return end != text && !*end && *out >= min;
}

static bool parse(int argc, char **argv, options *o)
{
    static const struct option table[] = {{"dir", required_argument, NULL, 'd'},  {"timestamps", required_argument, NULL, 't'},
                                          {"seed", required_argument, NULL, 's'}, {"every", required_argument, NULL, 'e'},
                                          {"resume", no_argument, NULL, 'r'},     {NULL, 0, NULL, 0}};
    long seed = 1;
    *o = (options){.timestamps = 60, .every = 1};
    bool ok = true;
    for (int c; (c = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        if (c == 'd')
            o->dir = optarg;
        else if (c == 't')
            ok = ok && number(optarg, 1, &o->timestamps);
        else if (c == 's')
            ok = ok && number(optarg, 0, &seed);
        else if (c == 'e')
            ok = ok && number(optarg, 1, &o->every);
        else if (c == 'r')
            o->resume = true;
        else
            ok = false;
    }
    o->seed = (unsigned long long)seed;
    return ok && o->dir && optind == argc;
}

/* Noise around a colour and a stripe that go with the class. */
static void draw(unsigned long long seed, uint64_t id, int label, uint8_t *rgb)
{
    sfp_rng rng = sfp__rng_init(seed + 1000, id);
    for (int k = 0; k < BYTES; k++) {
        int x = k / 3 % SIDE;
        uint32_t stripe = x / 4 % CLASSES == label ? 120 : 20 * (uint32_t)(k % 3 == label % 3);
        rgb[k] = (uint8_t)(stripe + sfp__rng_below(&rng, 100));
    }
}

static sfp_status begin_task(sfp_learner *l, int task, sfp_error *err)
{
    const int32_t labels[] = {2 * task, 2 * task + 1};
    sfp_status s = task > 0 ? sfp_learner_next_task(l, err) : SFP_OK;
    for (int i = 0; !s && i < 2; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "class %d", labels[i]);
        s = sfp_learner_name_class(l, labels[i], name, err);
    }
    return s ? s : sfp__learner_set_classes(l, 2, labels, err);
}

static sfp_status one_timestamp(sfp_learner *l, const options *o, long t, uint8_t *rgb, sfp_error *err)
{
    long each = (o->timestamps + TASKS - 1) / TASKS;
    int task = (int)(t / each);
    sfp_sample samples[BATCH];
    sfp_status s = t % each == 0 ? begin_task(l, task, err) : SFP_OK;
    for (int i = 0; i < BATCH; i++) {
        uint64_t id = (uint64_t)t * BATCH + (uint64_t)i;
        int label = 2 * task + i % 2;
        draw(o->seed, id, label, rgb + i * BYTES);
        samples[i] = (sfp_sample){.rgb = rgb + i * BYTES, .label = label, .id = id};
    }
    return s ? s : sfp__learner_offer(l, BATCH, samples, NULL, err);
}

/* The timestamp to go on with. */
static sfp_status find_place(sfp_learner *l, const char *path, long *t, sfp_error *err)
{
    char *position = NULL;
    bool old = false;
    sfp_status s = sfp__learner_resume(l, path, &position, &old, err);
    if (s == SFP_ENOTFOUND)
        return SFP_OK;
    if (!s && !number(position, 0, t))
        s = SFP_EFORMAT;
    if (old)
        (void)fprintf(stderr, "stream_driver: %s is damaged or missing, went on from %s.old\n", path, path);
    sfp__free(position);
    return s;
}

static sfp_status run(sfp_learner *l, const options *o, sfp_error *err)
{
    char checkpoint[4096], state[4096], position[32];
    (void)snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint", o->dir);
    (void)snprintf(state, sizeof state, "%s/state.safetensors", o->dir);
    long t = 0;
    uint8_t *rgb = malloc((size_t)BATCH * BYTES);
    sfp_status s = !rgb ? SFP_ENOMEM : o->resume ? find_place(l, checkpoint, &t, err) : SFP_OK;
    if (!s) {
        (void)printf("from %ld\n", t);
        (void)fflush(stdout);
    }
    for (; !s && t < o->timestamps; t++) {
        s = one_timestamp(l, o, t, rgb, err);
        (void)snprintf(position, sizeof position, "%ld", t + 1);
        if (!s && ((t + 1) % o->every == 0 || t + 1 == o->timestamps))
            s = sfp_learner_checkpoint(l, checkpoint, position, err);
    }
    free(rgb);
    return s ? s : sfp_learner_save(l, state, err);
}

int main(int argc, char **argv)
{
    options o;
    if (!parse(argc, argv, &o)) {
        (void)fprintf(stderr, "usage: stream_driver --dir DIR [--timestamps N] [--seed S] [--every K] [--resume]\n");
        return 2;
    }
    const sfp_vit_config config = {.img_size = SIDE,
                                   .patch_size = 8,
                                   .channels = 3,
                                   .dim = 64,
                                   .depth = 6,
                                   .heads = 4,
                                   .hidden = 128,
                                   .ln_eps = 1e-6f,
                                   .mean = {0.5f, 0.5f, 0.5f},
                                   .std = {0.25f, 0.25f, 0.25f}};
    sfp_vit *vit = NULL;
    sfp_thread_pool *threads = NULL;
    sfp_learner *l = NULL;
    sfp_error err = {0};
    sfp_status s = sfp__vit_random(&config, o.seed, 0.1f, &vit, &err);
    if (!s)
        s = sfp__thread_pool_create(2, &threads, &err);
    if (!s) {
        sfp_learner_options lo = sfp__learner_options_defaults(vit);
        lo.fp.pool = 12;
        lo.fp.length = 4;
        lo.fp.tasks = TASKS;
        lo.fp.classes = CLASSES;
        lo.batch = BATCH;
        lo.replay = 6;
        lo.buffer.slots = 60;
        lo.seed = o.seed;
        s = sfp__learner_create(vit, threads, &lo, &l, &err);
    }
    if (!s)
        s = run(l, &o, &err);
    if (s)
        (void)fprintf(stderr, "stream_driver: %s\n", err.message[0] ? err.message : sfp_status_text(s));
    sfp_learner_free(l);
    sfp__thread_pool_free(threads);
    sfp__vit_free(vit);
    return s ? 1 : 0;
}
