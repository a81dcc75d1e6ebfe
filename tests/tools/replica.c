/* One function per layout, which lists the files of the layout. Every image shows the shape of its class (label % 10), with
 * other colours for each further ten classes. The world drifts from image to image as in the synthetic source. Any error ends
 * the program. */
#include "tools/replica.h"

#include "base/mem.h"
#include "io/directory.h"
#include "io/image/image.h"
#include "io/json_write.h"
#include "stream/source_internal.h"
#include "stream/sources/render.h"
#include "tools/jpeg_make.h"

#include <archive.h>
#include <archive_entry.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_CAPACITY 256
#define PATH_CAPACITY 4096
#define QUALITY 90
#define WORLD_STEP 37.0 /* drift of the world from one image of a class to the next */

/* A replica being written. */
typedef struct maker {
    const char *root;
    replica_options opt;
    uint64_t files;
    sfp__image im; /* the current image */
} maker;

/* ---------------------------------------------------------------------- files */

static void must(bool fine, const char *what)
{
    if (fine)
        return;
    (void)fprintf(stderr, "replica: %s\n", what);
    exit(1);
}

/* Writes ROOT/name, which must not exist, and creates its parent directories. */
static void put_file(maker *m, const char *name, const void *bytes, size_t size)
{
    char path[PATH_CAPACITY];
    sfp_error err = {0};
    must((size_t)snprintf(path, sizeof path, "%s/%s", m->root, name) < sizeof path, "the path is too long");
    must(sfp__directory_create_for(path, &err) == SFP_OK, err.message);
    FILE *f = fopen(path, "wbx");
    must(f && fwrite(bytes, 1, size, f) == size && fclose(f) == 0, path);
    m->files++;
}

/* Writes a text and empties it. */
static void put_text_file(maker *m, const char *name, sfp__text *t)
{
    must(!t->failed, "no memory");
    put_file(m, name, t->s ? t->s : "", t->length);
    sfp__text_done(t);
    *t = (sfp__text){0};
}

/* Writes the current image as JPEG or PNG, depending on the name. */
static void put_image(maker *m, const char *name)
{
    sfp__text t = {0};
    sfp_error err = {0};
    if (strcmp(strrchr(name, '.'), ".png") == 0)
        must(sfp__image_encode_png(name, &m->im, &t, &err) == SFP_OK, err.message);
    else
        put_jpeg(&m->im, QUALITY, &t);
    put_text_file(m, name, &t);
}

/* Pickles of protocol 2, as written by Python 2. */
static void put_pickle_int(sfp__text *t, int v)
{
    char b[5] = {v < 256 ? 'K' : v < 65536 ? 'M' : 'J', (char)v, (char)(v >> 8), (char)(v >> 16), (char)(v >> 24)};
    sfp__text_putn(t, b, v < 256 ? 2 : v < 65536 ? 3 : 5);
}

static void put_pickle_string(sfp__text *t, const char *s)
{
    size_t n = strlen(s);
    char head[2] = {'U', (char)n}; /* names are short */
    sfp__text_putn(t, head, 2);
    sfp__text_putn(t, s, n);
}

/* ------------------------------------------------------------------- images */

/* Draws image number `index` of a class into m->im: the middle `height` rows of a square image. */
static void draw(maker *m, int label, uint64_t index, double time, int width, int height, sfp__scene *scene)
{
    size_t square = (size_t)width * (size_t)width * 3, skip = (size_t)(width - height) / 2 * (size_t)width * 3;
    sfp__scene own;
    sfp__scene_make(label % SFP__SHAPES, label / SFP__SHAPES, m->opt.seed, time, m->opt.seed, (uint64_t)label << 32 | index,
                    &own);
    if (scene)
        *scene = own;
    sfp__image_done(&m->im);
    m->im.rgb = sfp__malloc(square);
    must(m->im.rgb != NULL, "no memory");
    sfp__scene_draw(&own, width, m->im.rgb);
    memmove(m->im.rgb, m->im.rgb + skip, (size_t)height * (size_t)width * 3);
    m->im.width = width;
    m->im.height = height;
}

static void draw_square(maker *m, int label, uint64_t index, double time)
{
    draw(m, label, index, time, m->opt.size, m->opt.size, NULL);
}

/* Returns the name of a class of a larger dataset: "star", "star-2". */
static const char *class_name(int label, char buf[NAME_CAPACITY])
{
    if (label < SFP__SHAPES)
        (void)snprintf(buf, NAME_CAPACITY, "%s", sfp__shape_names[label]);
    else
        (void)snprintf(buf, NAME_CAPACITY, "%s-%d", sfp__shape_names[label % SFP__SHAPES], label / SFP__SHAPES + 1);
    return buf;
}
#define CLASS_NAME(label) class_name(label, (char[NAME_CAPACITY]){0})

/* ------------------------------------------------------------------- stream51 */

enum { STREAM51_CLASSES = 51, STREAM51_NOVEL = 3, STREAM51_VIDEOS = 2 };

/* Appends "[w, h], [x2, x1, y2, y1], path]" of the current image. */
static void put_row_end(const maker *m, const sfp__scene *s, const char *name, sfp__text *rows)
{
    float half = (float)m->im.width / 2, x = (s->x + 1) * half, y = (s->y + 1) * half - (float)(m->im.width - m->im.height) / 2;
    float r = 0.9f * s->radius * half;
    int x1 = x - r > 0 ? (int)(x - r) : 0, y1 = y - r > 0 ? (int)(y - r) : 0;
    int x2 = x + r < (float)m->im.width ? (int)(x + r) : m->im.width,
        y2 = y + r < (float)m->im.height ? (int)(y + r) : m->im.height;
    sfp__text_printf(rows, "[%d, %d], [%d, %d, %d, %d], ", m->im.width, m->im.height, x2, x1, y2, y1);
    sfp__text_json(rows, name);
    sfp__text_put(rows, "]");
}

static void make_stream51(maker *m)
{
    char name[NAME_CAPACITY];
    sfp__text train = {0}, test = {0};
    sfp__scene scene = {0};
    int width = m->opt.size, height = m->opt.size * 3 / 4;
    for (int c = 0; c < STREAM51_CLASSES + STREAM51_NOVEL; c++) {
        for (int v = 0; v < STREAM51_VIDEOS && c < STREAM51_CLASSES; v++) {
            for (int f = 0; f < m->opt.each; f++) {
                /* one object in a moving world */
                draw(m, c, (uint64_t)v << 16, WORLD_STEP * (20 * v + f), width, height, &scene);
                (void)snprintf(name, sizeof name, "train/%s/%s_%04d_%03d/%06d.jpg", CLASS_NAME(c), CLASS_NAME(c), v, 0, f);
                put_image(m, name);
                sfp__text_printf(&train, "%s[%d, 0, %d, %d, ", train.length ? ", " : "[", c, v, f);
                put_row_end(m, &scene, name, &train);
            }
        }
        draw(m, c, 1 << 24, WORLD_STEP * 10, width, height, &scene);
        (void)snprintf(name, sizeof name, "test/%s/%06d.jpg", CLASS_NAME(c), 0);
        put_image(m, name);
        sfp__text_printf(&test, "%s[%d, ", test.length ? ", " : "[", c);
        put_row_end(m, &scene, name, &test);
    }
    sfp__text_put(&train, "]");
    sfp__text_put(&test, "]");
    put_text_file(m, "Stream-51_meta_train.json", &train);
    put_text_file(m, "Stream-51_meta_test.json", &test);
}

/* --------------------------------------------------------------------- core50 */

enum { CORE50_SESSIONS = 11, CORE50_OBJECTS = 50, CORE50_RUNS = 10, CORE50_BATCHES = 9, CORE50_FIRST = 10, CORE50_EACH = 5 };

static bool core50_test_session(int s)
{
    return s == 3 || s == 7 || s == 10;
}

/* Images are numbered by session and object (both from 1). */
static int core50_index(const maker *m, int session, int object, int frame)
{
    return ((session - 1) * CORE50_OBJECTS + object - 1) * m->opt.each + frame;
}

/* Appends one batch of one run, as indices or as labels: the objects at positions [first, last) of its order. */
static void put_core50_batch(const maker *m, sfp__text *t, const int64_t *order, int first, int last, bool test, bool labels)
{
    sfp__text_put(t, "](");
    for (int s = 1; s <= CORE50_SESSIONS; s++) {
        for (int place = first; place < last && core50_test_session(s) == test; place++)
            for (int f = 0; f < m->opt.each; f++)
                put_pickle_int(t, labels ? place : core50_index(m, s, (int)order[place] + 1, f));
    }
    sfp__text_put(t, "e");
}

/* Writes {"nc": [run, ...]}. A run is a list of batches, and the last one is the test set. Run 0 has the objects in their own
 * order. */
static void put_core50_runs(maker *m, const char *name, bool labels)
{
    sfp__text t = {0};
    sfp__text_put(&t, "\x80\x02}");
    put_pickle_string(&t, "nc");
    sfp__text_put(&t, "](");
    for (int run = 0; run < CORE50_RUNS; run++) {
        int64_t order[CORE50_OBJECTS];
        for (int i = 0; i < CORE50_OBJECTS; i++)
            order[i] = i;
        if (run > 0)
            sfp__shuffle(order, CORE50_OBJECTS, m->opt.seed, (uint64_t)run);
        sfp__text_put(&t, "](");
        for (int b = 0; b < CORE50_BATCHES; b++) {
            int first = b == 0 ? 0 : CORE50_FIRST + (b - 1) * CORE50_EACH, last = CORE50_FIRST + b * CORE50_EACH;
            put_core50_batch(m, &t, order, first, last, false, labels);
        }
        put_core50_batch(m, &t, order, 0, CORE50_OBJECTS, true, labels);
        sfp__text_put(&t, "e");
    }
    sfp__text_put(&t, "es.");
    put_text_file(m, name, &t);
}

static void make_core50(maker *m)
{
    char name[NAME_CAPACITY];
    sfp__text paths = {0};
    sfp__text_put(&paths, "\x80\x02](");
    for (int s = 1; s <= CORE50_SESSIONS; s++) {
        for (int o = 1; o <= CORE50_OBJECTS; o++) {
            for (int f = 0; f < m->opt.each; f++) {
                (void)snprintf(name, sizeof name, "core50_128x128/s%d/o%d/C_%02d_%02d_%03d.png", s, o, s, o, f);
                draw_square(m, o - 1, (uint64_t)(s * 1000 + f), 300.0 * s + WORLD_STEP * f);
                put_image(m, name);
                put_pickle_string(&paths, strchr(name, '/') + 1);
            }
        }
    }
    sfp__text_put(&paths, "e.");
    put_text_file(m, "paths.pkl", &paths);
    put_core50_runs(m, "LUP.pkl", false);
    put_core50_runs(m, "labels.pkl", true);
}

/* ---------------------------------------------------------------------- clear */

/* Writes the images of a class in a bucket, and the list that names them. */
static void make_clear_list(maker *m, const char *part, int bucket, int label)
{
    char name[NAME_CAPACITY];
    sfp__text list = {0};
    bool test = strcmp(part, "test") == 0;
    for (int i = 0; i < m->opt.each; i++) {
        (void)snprintf(name, sizeof name, "%s/labeled_images/%d/%s/%05d.jpg", part, bucket, CLASS_NAME(label), i);
        draw_square(m, label, (uint64_t)(bucket * 1000 + i + 500 * test), 300.0 * bucket + WORLD_STEP * i);
        put_image(m, name);
        sfp__text_printf(&list, "%s\"%d%03d%05d\": {\"IMG_PATH\": ", i ? ", " : "{", bucket, label, i);
        sfp__text_json(&list, strchr(name, '/') + 1);
        sfp__text_put(&list, "}");
    }
    sfp__text_put(&list, m->opt.each ? "}" : "{}");
    (void)snprintf(name, sizeof name, "%s/labeled_metadata/%d/%s.json", part, bucket, CLASS_NAME(label));
    put_text_file(m, name, &list);
}

/* Writes one part with all its buckets. */
static void make_clear_part(maker *m, const char *part, int classes, int first_bucket)
{
    char name[NAME_CAPACITY];
    sfp__text meta = {0}, names = {0};
    for (int b = first_bucket; b <= 10; b++) {
        sfp__text_printf(&meta, "%s\"%d\": {", b > first_bucket ? ", " : "{", b);
        for (int c = 0; c < classes; c++) {
            make_clear_list(m, part, b, c);
            (void)snprintf(name, sizeof name, "labeled_metadata/%d/%s.json", b, CLASS_NAME(c));
            sfp__text_put(&meta, c ? ", " : "");
            sfp__text_json(&meta, CLASS_NAME(c));
            sfp__text_put(&meta, ": ");
            sfp__text_json(&meta, name);
        }
        sfp__text_put(&meta, "}");
    }
    sfp__text_put(&meta, "}");
    for (int c = 0; c < classes; c++)
        sfp__text_printf(&names, "%s%s", c ? "\n" : "", CLASS_NAME(c)); /* as published: no newline at the end */
    (void)snprintf(name, sizeof name, "%s/labeled_metadata.json", part);
    put_text_file(m, name, &meta);
    (void)snprintf(name, sizeof name, "%s/class_names.txt", part);
    put_text_file(m, name, &names);
}

static void make_clear10(maker *m)
{
    make_clear_part(m, "train", 11, 0);
    make_clear_part(m, "test", 11, 0);
}

static void make_clear100(maker *m)
{
    make_clear_part(m, "train", 100, 1);
    make_clear_part(m, "test", 100, 1);
}

/* --------------------------------------------------------- directories, manifests */

/* Writes one directory per class, below `domain` ("" or "NAME/"). */
static void make_classes(maker *m, const char *domain, int first, double time)
{
    char name[NAME_CAPACITY];
    for (int c = 0; c < SFP__SHAPES; c++) {
        for (int i = 0; i < m->opt.each; i++) {
            (void)snprintf(name, sizeof name, "%s%s/%04d.jpg", domain, CLASS_NAME(c), i);
            draw_square(m, c, (uint64_t)(first + i), time + WORLD_STEP * i);
            put_image(m, name);
        }
    }
}

static void make_folder_dataset(maker *m)
{
    make_classes(m, "", 0, 0);
}

static void make_domain(maker *m)
{
    static const char *const domains[] = {"autumn/", "spring/", "winter/"};
    for (int d = 0; d < 3; d++)
        make_classes(m, domains[d], d * 1000, 1500.0 * d);
}

/* Two tasks: the first five classes, the last five; times ascend. */
static void make_manifest(maker *m)
{
    char name[NAME_CAPACITY];
    sfp__text list = {0};
    sfp__text_put(&list, "path,label,task,time\n");
    for (int task = 0, time = 0; task < 2; task++) {
        for (int i = 0; i < m->opt.each; i++) {
            for (int c = 5 * task; c < 5 * task + 5; c++, time++) {
                (void)snprintf(name, sizeof name, "images/%06d.png", time);
                draw_square(m, c, (uint64_t)i, WORLD_STEP * time);
                put_image(m, name);
                sfp__text_printf(&list, "%s,%s,%d,%d\n", name, CLASS_NAME(c), task, time);
            }
        }
    }
    put_text_file(m, "manifest.csv", &list);
}

/* ------------------------------------------------------------ idx, cifar, tar */

static void put_be32(sfp__text *t, int v)
{
    char b[4] = {(char)(v >> 24), (char)(v >> 16), (char)(v >> 8), (char)v};
    sfp__text_putn(t, b, 4);
}

static void make_idx_part(maker *m, const char *part, int each, uint64_t first)
{
    enum { SIDE = 28 };
    char name[NAME_CAPACITY];
    sfp__text images = {0}, labels = {0};
    for (int i = 0; i < 4; i++)
        put_be32(&images, (const int[]){0x803, each * SFP__SHAPES, SIDE, SIDE}[i]);
    put_be32(&labels, 0x801);
    put_be32(&labels, each * SFP__SHAPES);
    for (int i = 0; i < each; i++) {
        for (int c = 0; c < SFP__SHAPES; c++) {
            char grey[SIDE * SIDE], label = (char)c;
            draw(m, c, first + (uint64_t)i, WORLD_STEP * i, SIDE, SIDE, NULL);
            for (int p = 0; p < SIDE * SIDE; p++)
                grey[p] = (char)((m->im.rgb[3 * p] * 77 + m->im.rgb[3 * p + 1] * 150 + m->im.rgb[3 * p + 2] * 29) >> 8);
            sfp__text_putn(&images, grey, sizeof grey);
            sfp__text_putn(&labels, &label, 1);
        }
    }
    (void)snprintf(name, sizeof name, "%s-images-idx3-ubyte", part);
    put_text_file(m, name, &images);
    (void)snprintf(name, sizeof name, "%s-labels-idx1-ubyte", part);
    put_text_file(m, name, &labels);
}

static void make_idx(maker *m)
{
    make_idx_part(m, "train", m->opt.each, 0);
    make_idx_part(m, "t10k", 1, 1 << 20);
}

static void make_cifar_batch(maker *m, const char *name, uint64_t first, int each)
{
    enum { SIDE = 32 };
    sfp__text t = {0};
    for (int i = 0; i < each; i++) {
        for (int c = 0; c < SFP__SHAPES; c++) {
            char planes[1 + 3 * SIDE * SIDE] = {(char)c};
            draw(m, c, first + (uint64_t)i, WORLD_STEP * i, SIDE, SIDE, NULL);
            for (int p = 0; p < 3 * SIDE * SIDE; p++)
                planes[1 + p] = (char)m->im.rgb[p % (SIDE * SIDE) * 3 + p / (SIDE * SIDE)];
            sfp__text_putn(&t, planes, sizeof planes);
        }
    }
    put_text_file(m, name, &t);
}

static void put_names(maker *m, const char *file)
{
    sfp__text names = {0};
    for (int c = 0; c < SFP__SHAPES; c++)
        sfp__text_printf(&names, "%s\n", CLASS_NAME(c));
    put_text_file(m, file, &names);
}

static void make_cifar(maker *m)
{
    char name[NAME_CAPACITY];
    for (int b = 1; b <= 5; b++) {
        (void)snprintf(name, sizeof name, "data_batch_%d.bin", b);
        make_cifar_batch(m, name, (uint64_t)b << 16, m->opt.each);
    }
    make_cifar_batch(m, "test_batch.bin", 1 << 20, 1);
    put_names(m, "batches.meta.txt");
}

/* Appends an entry to a ustar file. */
static void put_tar(struct archive *a, const char *name, const char *bytes, size_t size)
{
    struct archive_entry *e = archive_entry_new();
    archive_entry_set_pathname(e, name);
    archive_entry_set_size(e, (la_int64_t)size);
    archive_entry_set_filetype(e, AE_IFREG);
    archive_entry_set_perm(e, 0644);
    must(archive_write_header(a, e) == ARCHIVE_OK && archive_write_data(a, bytes, size) == (la_ssize_t)size,
         archive_error_string(a));
    archive_entry_free(e);
}

static la_ssize_t write_to_text(struct archive *a, void *text, const void *bytes, size_t n)
{
    (void)a;
    sfp__text_putn(text, bytes, n);
    return (la_ssize_t)n;
}

static void make_tar(maker *m)
{
    char name[NAME_CAPACITY], digit[8];
    for (int shard = 0; shard < 2; shard++) {
        sfp__text t = {0};
        struct archive *a = archive_write_new();
        must(archive_write_set_format_ustar(a) == ARCHIVE_OK && archive_write_set_bytes_per_block(a, 0) == ARCHIVE_OK &&
                 archive_write_open(a, &t, NULL, write_to_text, NULL) == ARCHIVE_OK,
             archive_error_string(a));
        for (int i = 0; i < m->opt.each; i++) {
            for (int c = 0; c < SFP__SHAPES; c++) {
                int key = (shard * m->opt.each + i) * SFP__SHAPES + c;
                sfp__text jpeg = {0};
                draw_square(m, c, (uint64_t)key, WORLD_STEP * key);
                put_jpeg(&m->im, QUALITY, &jpeg);
                must(!jpeg.failed, "no memory");
                (void)snprintf(name, sizeof name, "%06d.jpg", key);
                put_tar(a, name, jpeg.s, jpeg.length);
                sfp__text_done(&jpeg);
                (void)snprintf(name, sizeof name, "%06d.cls", key);
                put_tar(a, name, digit, (size_t)snprintf(digit, sizeof digit, "%d", c));
            }
        }
        must(archive_write_free(a) == ARCHIVE_OK, "cannot end the tar");
        (void)snprintf(name, sizeof name, "shard-%06d.tar", shard);
        put_text_file(m, name, &t);
    }
    put_names(m, "classes.txt");
}

/* --------------------------------------------------------------------- public */

static const struct {
    const char *name, *data; /* how it is opened: KIND, ':' and the text after the path */
    void (*make)(maker *m);
} kinds[] = {
    /* 51 classes, two videos each, boxes, novelty classes in the test part */
    {"stream51", "stream51:", make_stream51},
    {"core50", "core50:", make_core50},                    /* 50 objects, 11 sessions, with its three pickles */
    {"clear10", "clear10:", make_clear10},                 /* 11 classes, buckets 0 to 10 */
    {"clear100", "clear100:", make_clear100},              /* 100 classes, buckets 1 to 10 */
    {"folder", "folder:", make_folder_dataset},            /* one directory per class */
    {"domain", "folder:", make_domain},                    /* directories domain/class */
    {"manifest", "manifest:/manifest.csv", make_manifest}, /* a CSV with tasks and times */
    {"idx", "idx:", make_idx},                             /* uncompressed MNIST files */
    {"cifar", "cifar:", make_cifar},                       /* CIFAR-10 binary files */
    {"tar", "tar:", make_tar},                             /* two WebDataset shards with numeric classes */
};

uint64_t replica_make(const char *kind, const char *path, replica_options opt, const char **data)
{
    maker m = {.root = path, .opt = opt};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, kind) != 0)
            continue;
        kinds[i].make(&m);
        sfp__image_done(&m.im);
        if (data)
            *data = kinds[i].data;
        return m.files;
    }
    must(false, kind);
    return 0;
}
