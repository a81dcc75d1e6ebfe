/* A tiny backbone, seeded images and a learner on them, for tests of saved files. Include after <cmocka.h>. */
#ifndef SFP_TESTS_LEARNER_WORLD_H
#define SFP_TESTS_LEARNER_WORLD_H

#include "base/rng.h"
#include "io/tensor/safetensors.h"
#include "learner/state/state.h"

#include <dirent.h>

#include "temp_directory.h"
#include "world.h"

enum { SIDE = 32, BATCH = 6, TIMES = 48, SAMPLES = BATCH * TIMES, BYTES = 3 * SIDE * SIDE };

typedef struct image {
    uint8_t rgb[BYTES];
} image;

static world small;
static image *images; /* (SAMPLES) */

/* The images are darker late in the stream, so that the scores drift. */
static void draw(int i, uint8_t *rgb)
{
    sfp__rng rng = sfp__rng_init(77, (uint64_t)i);
    uint32_t base[3], slope[3];
    for (int c = 0; c < 3; c++) {
        base[c] = sfp__rng_below(&rng, 100) + (uint32_t)(i % 5) * 20;
        slope[c] = sfp__rng_below(&rng, 4);
    }
    for (int k = 0; k < BYTES; k++)
        rgb[k] = (uint8_t)((base[k % 3] + slope[k % 3] * (uint32_t)(k / 3 / SIDE)) / (i > SAMPLES * 3 / 4 ? 6 : 1));
}

static void make_small_world(void)
{
    small = make_world_of((sfp__vit_config)VIT(SIDE, 8, 32, 5, 4, 64, 0.5f, 0.5f), 3, 0.1f, 2);
    images = kept_calloc(SAMPLES, sizeof *images);
    for (int i = 0; i < SAMPLES; i++)
        draw(i, images[i].rgb);
}

static inline int count_files(void)
{
    int n = 0;
    DIR *d = opendir(directory);
    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

static void free_small_world(void)
{
    free_world(&small);
}

/* Small sizes: three tasks of two classes, ten slots. */
static sfp__learner_options small_options(void)
{
    sfp__learner_options o = sfp__learner_options_defaults(small.vit);
    o.fp.pool = 7;
    o.fp.length = 4;
    o.fp.last_layer = 1;
    o.fp.tasks = 3;
    o.fp.classes = 6;
    o.batch = BATCH;
    o.replay = 4;
    o.buffer.slots = 10;
    o.seed = 11;
    return o;
}

/* Small options with one change. */
#define SMALL(change)                             \
    ({                                            \
        sfp__learner_options x = small_options(); \
        change;                                   \
        x;                                        \
    })
#define FREE(change) SMALL(x.fp.tasks = x.fp.classes = 0; change)

/* Sets the classes of the task, with known tasks. */
static void name_classes(sfp__learner *l, int task)
{
    const int32_t labels[] = {2 * task, 2 * task + 1};
    MUST(sfp__learner_set_classes(l, 2, labels, &err));
    MUST(sfp__learner_name_class(l, 2 * task, task == 1 ? "a \"name\" \xc3\xa9" : "cat", &err));
}

/* Offers timestamps [from, to). With known tasks the next one begins at `each`, 2 * `each`, ... (0: never). */
static void feed(sfp__learner *l, int from, int to, int each)
{
    bool known = sfp__learner_get_options(l)->fp.tasks > 0;
    for (int t = from; t < to; t++) {
        int task = known && each > 0 ? t / each : 0;
        if (known && t == 0)
            name_classes(l, 0);
        if (known && each > 0 && t > 0 && t % each == 0) {
            MUST(sfp__learner_next_task(l, &err));
            name_classes(l, task);
        }
        sfp__sample samples[BATCH];
        int b = t % 4 == 3 ? BATCH - 2 : BATCH; /* some batches are shorter */
        for (int i = 0; i < b; i++) {
            const image *p = &images[t * BATCH + i];
            samples[i] = (sfp__sample){
                .rgb = p->rgb, .label = known ? 2 * task + i % 2 : (t / 3) + i % 3, .id = (uint64_t)(1000 + t * BATCH + i)};
        }
        MUST(sfp__learner_offer(l, b, samples, NULL, &err));
    }
}

typedef struct bytes {
    uint8_t *p;
    size_t n;
} bytes;

static bytes slurp(const char *path)
{
    bytes b;
    b.p = bytes_of(path, &b.n);
    return b;
}

static inline void assert_same_bytes(bytes a, bytes b, const char *what)
{
    size_t n = a.n < b.n ? a.n : b.n, at = 0;
    while (at < n && a.p[at] == b.p[at])
        at++;
    if (a.n != b.n || at < n)
        fail_msg("%s: %zu and %zu bytes, different from byte %zu on", what, a.n, b.n, at);
}

/* Writes "t": the file "s" with one tensor changed (NULL: removed) or one metadata entry changed, and without its checksum. */
static inline void save_changed(const char *name, const sfp__tensor *tensor, const char *key, const char *value)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    MUST(sfp__safetensors_open(in_directory("s"), &st, &err));
    size_t n = 0, m = 0;
    sfp__tensor *tensors = kept_calloc(st->count, sizeof *tensors);
    sfp__meta *meta = kept_calloc(st->meta_count, sizeof *meta);
    for (size_t i = 0; i < st->count; i++) {
        bool changed = name && strcmp(st->tensors[i].name, name) == 0;
        if (!changed || tensor)
            tensors[n++] = changed ? *tensor : st->tensors[i];
    }
    for (size_t i = 0; i < st->meta_count; i++) {
        meta[m] = st->meta[i];
        if (key && strcmp(meta[m].key, key) == 0)
            meta[m].value = value;
        m += meta[m].value && strcmp(meta[m].key, SFP__CHECKSUM_KEY) != 0;
    }
    MUST(sfp__safetensors_write(in_directory("t"), tensors, n, meta, m, &err));
}

/* Returns the complete state of a learner as the bytes of a checkpoint. */
static inline bytes image_of(sfp__learner *l)
{
    MUST(sfp__learner_checkpoint(l, in_directory("image"), "", &err));
    bytes b = slurp(in_directory("image"));
    (void)unlink(in_directory("image"));
    (void)unlink(in_directory("image.old"));
    return b;
}

#endif
