/* CIFAR batches: binary of 10 and 100 classes, PNG rows with JSON labels. */
#include "source_files.h"
#include "test.h"

#include "io/image/image.h"
#include "test_image_encode.h"

#include <pthread.h>

AROUND_EACH(make_directory, remove_directory)

static const sfp__source_kind *const kind = &sfp__source_cifar;
enum { PIXELS = 1024, BYTES = 3072 };

/* The value of pixel p, channel c of image i. */
static uint8_t colour(int i, int p, int c)
{
    return (uint8_t)(i * 31 + p * 7 + c * 85 + p / 32);
}

/* Writes a binary batch. A record has `header` label bytes (the last one is the label), then the colour planes. */
static void put_binary(const char *name, int header, const char *labels, int first)
{
    size_t n = strlen(labels), record = (size_t)header + BYTES;
    uint8_t *b = kept_calloc(n, record);
    for (size_t i = 0; i < n; i++) {
        uint8_t *at = b + i * record;
        at[0] = 19;
        at[header - 1] = (uint8_t)(labels[i] - '0');
        for (int p = 0; p < BYTES; p++)
            at[header + p] = colour(first + (int)i, p % PIXELS, p / PIXELS);
    }
    put_bytes(name, b, n * record);
}

static void put_rows(const char *name, int count, int first, int width)
{
    size_t size = (size_t)count * (size_t)width * 3;
    uint8_t *rgb = kept_malloc(size);
    for (size_t k = 0; k < size; k++)
        rgb[k] = colour(first + (int)(k / ((size_t)width * 3)), (int)(k / 3 % (size_t)width), (int)(k % 3));
    blob b = encode_png(rgb, size, width, count, (png_how){.type = SPNG_COLOR_TYPE_TRUECOLOR, .depth = 8});
    put_bytes(name, b.bytes, b.size);
}

static void check_image(const sfp_source *s, int64_t i, int number)
{
    OWNED_BY(sfp__raw_image_done) sfp__raw_image p = {0};
    if (sfp__source_load(s, i, &p, &err) != SFP_OK)
        fail_msg("image %lld: %s", (long long)i, err.message);
    assert_int_equal(p.kind, SFP__RAW_IMAGE_RGB);
    assert_int_equal(p.width, 32);
    assert_int_equal(p.height, 32);
    assert_int_equal(p.size, BYTES);
    for (int k = 0; k < BYTES; k++)
        assert_int_equal(p.bytes[k], colour(number, k / 3, k % 3));
}

TEST(binary_batches_of_ten_classes)
{
    put_binary("d/data_batch_1.bin", 1, "390", 0);
    put_binary("d/data_batch_2.bin", 1, "1", 3);
    put_binary("d/test_batch.bin", 1, "72", 10);
    sfp_source *s = open_source(kind, "d");
    assert_int_equal(s->classes, 10);
    CHECK_LABELS(s, "cat", "truck", "airplane", "automobile");
    for (int i = 0; i < 4; i++)
        check_image(s, i, i);
    check_name(s, 3, "data_batch_2.bin[0]");
    assert_string_equal(s->warning, "data_batch_1 to 2 exist, expected the published 5");
    check_bounds(s);
    s = open_part(kind, "d", true);
    assert_int_equal(s->count, 2);
    check_image(s, 1, 11);
    assert_int_equal(open_source(kind, "d/test_batch.bin")->count, 2);
    put_text("d/batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
    assert_string_equal(label_text(open_source(kind, "d"), 0), "d");
}

TEST(fine_labels_of_a_hundred_classes)
{
    put_binary("d/train.bin", 2, "5\x90", 0); /* 0x90 - '0' = 96 */
    put_binary("d/test.bin", 2, "1", 7);
    sfp_source *s = open_source(kind, "d");
    assert_int_equal(s->classes, 100);
    CHECK_LABELS(s, "5", "96");
    check_image(s, 1, 1);
    check_image(open_part(kind, "d/test.bin", true), 0, 7);
    put_binary("d/train.bin", 2, "5\x94", 0);
    check_refused(kind, "d", SFP_EFORMAT, "train.bin[1]: label is 100", "0..99");
}

typedef struct loader {
    const sfp_source *s;
    int failed;
} loader;

static void *load_all(void *context)
{
    loader *l = context;
    for (int64_t i = 0; i < l->s->count; i++) {
        OWNED_BY(sfp__raw_image_done) sfp__raw_image p = {0};
        l->failed += sfp__source_load(l->s, i, &p, &err) != SFP_OK || p.bytes[5] != colour((int)i, 1, 2);
    }
    return NULL;
}

TEST(png_rows_with_json_labels)
{
    put_rows("d/data_batch_1.png", 3, 0, 1024);
    put_rows("d/data_batch_2.png", 2, 3, 1024);
    put_rows("d/test_batch.png", 1, 9, 1024);
    put_text("d/train_lables.json", "[3, 9, 0, 1, 1]");
    put_text("d/test_labels.json", "[4]");
    sfp_source *s = open_source(kind, "d");
    assert_int_equal(s->count, 5);
    assert_string_equal(label_text(s, 1), "truck");
    pthread_t thread[3];
    loader l[3];
    for (int t = 0; t < 3; t++) { /* the first thread that needs a batch decodes it */
        l[t] = (loader){s, 0};
        assert_int_equal(pthread_create(&thread[t], NULL, load_all, &l[t]), 0);
    }
    for (int t = 0; t < 3; t++) {
        assert_int_equal(pthread_join(thread[t], NULL), 0);
        assert_int_equal(l[t].failed, 0);
    }
    for (int i = 4; i >= 0; i--)
        check_image(s, i, i);
    check_bounds(s);
    s = open_part(kind, "d", true);
    check_image(s, 0, 9);
    assert_string_equal(label_text(s, 0), "deer");
}

TEST(damage_is_reported)
{
    put_binary("d/data_batch_1.bin", 1, "1:", 0);
    check_refused(kind, "d", SFP_EFORMAT, "data_batch_1.bin[1]: label is 10", "0..9");
    check_refused_part(kind, "d", true, SFP_ENOTFOUND, "test_batch.bin", "cannot open");
    put_binary("d/data_batch_1.bin", 1, "11", 0);
    put_binary("d/data_batch_3.bin", 1, "11", 0);
    check_refused(kind, "d", SFP_ENOTFOUND, "data_batch_2.bin", "cannot open");
    put_text("n/batches.meta.txt", "a\nb\n");
    put_binary("n/data_batch_1.bin", 1, "1", 0);
    check_refused(kind, "n", SFP_EFORMAT, "batches.meta.txt", "2 names, expected 10");

    put_binary("s/data_batch_1.bin", 1, "11", 0);
    sfp_source *s = open_source(kind, "s");
    assert_int_equal(truncate(in_directory("s/data_batch_1.bin"), 4000), 0); /* while it is open */
    check_image(s, 0, 0);
    check_not_loaded(s, 1, SFP_EIO, "data_batch_1.bin", "ends before");

    put_rows("p/data_batch_1.png", 2, 0, 512);
    check_refused(kind, "p", SFP_EFORMAT, "data_batch_1.png: image is 512 x 2", "1024");
    put_rows("p/data_batch_1.png", 2, 0, 1024);
    check_refused(kind, "p", SFP_EFORMAT, "train_lables.json", "cannot open");
    CHECK_REFUSALS(kind, "p", {"p/train_lables.json", "[1]", SFP_EFORMAT, "has 1 labels, expected 2", ""},
                   {"p/train_lables.json", "[1, 2, 3]", SFP_EFORMAT, "has 3 labels", ""},
                   {"p/train_lables.json", "[1, ", SFP_EFORMAT, "train_lables.json: line 1", ""},
                   {"p/train_lables.json", "{}", SFP_EFORMAT, "not an array", ""},
                   {"p/train_lables.json", "[1, -1]", SFP_EFORMAT, "label 1", ""},
                   {"p/train_lables.json", "[1, \"2\"]", SFP_EFORMAT, "label 1", ""},
                   {"p/train_lables.json", "[1, 10]", SFP_EFORMAT, "label is 10", ""});
    put_text("p/train_lables.json", "[1, 2]");
    s = open_source(kind, "p");
    assert_int_equal(truncate(in_directory("p/data_batch_1.png"), 60), 0);
    check_not_loaded(s, 1, SFP_EFORMAT, "data_batch_1.png", "");
    put_text("p/data_batch_1.png", "not a png, but long enough for a header");
    check_refused(kind, "p", SFP_EFORMAT, "data_batch_1.png", "not a PNG");
}
