/* IDX files, gzipped or not: which files are read, and inconsistent headers. */
#include "source_files.h"
#include "test.h"

#include <zlib.h>

AROUND_EACH(make_directory, remove_directory)

static const sfp__source_kind *const kind = &sfp__source_idx;

typedef struct bytes {
    uint8_t b[4096];
    size_t n;
} bytes;

static void put_be(bytes *to, uint32_t v)
{
    for (int i = 3; i >= 0; i--)
        to->b[to->n++] = (uint8_t)(v >> (8 * i));
}

/* Returns `count` images of 2 x 3 pixels with consecutive values. */
static bytes make_images(uint32_t count)
{
    bytes x = {{0, 0, 8, 3}, 4};
    put_be(&x, count);
    put_be(&x, 2);
    put_be(&x, 3);
    for (uint32_t i = 0; i < count * 6; i++)
        x.b[x.n++] = (uint8_t)(i + 1);
    return x;
}

static bytes make_labels(const char *digits)
{
    bytes x = {{0, 0, 8, 1}, 4};
    put_be(&x, (uint32_t)strlen(digits));
    for (; *digits; digits++)
        x.b[x.n++] = (uint8_t)(*digits - '0');
    return x;
}

static void put(const char *name, bytes x)
{
    put_bytes(name, x.b, x.n);
}

/* Writes the training part of a dataset. */
static void put_part(const char *name, const char *digits)
{
    put(kept_print("%s/train-images-idx3-ubyte", name), make_images((uint32_t)strlen(digits)));
    put(kept_print("%s/train-labels-idx1-ubyte", name), make_labels(digits));
}

static void put_gz(const char *name, bytes x, size_t cut)
{
    uint8_t packed[8192];
    z_stream z = {.next_in = x.b, .avail_in = (uInt)x.n, .next_out = packed, .avail_out = sizeof packed};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t n = sizeof packed - z.avail_out;
    assert_int_equal(deflateEnd(&z), Z_OK);
    put_bytes(name, packed, n - cut);
}

static void check_pixels(const sfp_source *s, int64_t i, uint8_t first)
{
    OWNED_BY(sfp__raw_image_done) sfp__raw_image p = {0};
    MUST(sfp__source_load(s, i, &p, &err));
    assert_int_equal(p.kind, SFP__RAW_IMAGE_GREY);
    assert_int_equal(p.width, 3);
    assert_int_equal(p.height, 2);
    assert_int_equal(p.size, 6);
    for (int k = 0; k < 6; k++)
        assert_int_equal(p.bytes[k], first + k);
}

TEST(a_directory_has_a_training_and_a_test_part)
{
    put_part("d", "1731");
    put_gz("d/t10k-images.idx3-ubyte.gz", make_images(2), 0);
    put_gz("d/t10k-labels.idx1-ubyte.gz", make_labels("73"), 0);
    sfp_source *s = open_source(kind, "d");
    assert_int_equal(s->classes, 3); /* only those that occur */
    assert_false(s->keeps_order);
    CHECK_LABELS(s, "1", "7", "3", "1");
    for (int i = 0; i < 4; i++)
        check_pixels(s, i, (uint8_t)(6 * i + 1));
    check_name(s, 3, "train-images[3]");
    check_bounds(s);
    s = open_part(kind, "d", true);
    assert_int_equal(s->count, 2);
    assert_string_equal(label_text(s, 0), "7");
    check_pixels(s, 1, 7);
    check_name(s, 0, "t10k-images[0]");
    assert_int_equal(open_source(kind, "d/train-images-idx3-ubyte")->count, 4);
}

TEST(a_file_finds_its_labels)
{
    put_gz("my-train-images.idx3-ubyte.gz", make_images(1), 0);
    put("my-train-labels.idx1-ubyte", make_labels("2")); /* one compressed, one not */
    assert_int_equal(open_source(kind, "my-train-images.idx3-ubyte.gz")->count, 1);
    put("my-t10k-images.idx3-ubyte.gz", make_images(2));
    put("my-t10k-labels.idx1-ubyte.gz", make_labels("22"));
    assert_int_equal(open_part(kind, "my-train-images.idx3-ubyte.gz", true)->count, 2);
    put("lonely-images", make_images(1));
    check_refused(kind, "lonely-images", SFP_EFORMAT, "lonely-images: file of labels is missing", "lonely-labels");
    put("x", make_images(1));
    check_refused(kind, "x", SFP_EINVAL, "x: ", "'images'");
}

TEST(known_classes_have_names_and_bounds)
{
    put_part("Fashion", "09");
    sfp_source *s = open_source(kind, "Fashion");
    assert_int_equal(s->classes, 10);
    CHECK_LABELS(s, "T-shirt/top", "Ankle boot");
    put_part("FashionMNIST/raw", "1");
    CHECK_LABELS(open_source(kind, "FashionMNIST/raw//"), "Trouser");
    put_part("Fashion/mnist", "09"); /* only the name of the directory itself counts */
    s = open_source(kind, "Fashion/mnist");
    assert_int_equal(s->classes, 2);
    assert_string_equal(label_text(s, 1), "9");
    put("Fashion/train-labels-idx1-ubyte", make_labels("0:"));
    check_refused(kind, "Fashion", SFP_EFORMAT, "train-labels-idx1-ubyte: label 1 is 10", "10 classes");
    put_text("Fashion/classes.txt", "hat\r\nshoe\n\n");
    put("Fashion/train-labels-idx1-ubyte", make_labels("01"));
    s = open_source(kind, "Fashion");
    assert_int_equal(s->classes, 2);
    assert_string_equal(label_text(s, 1), "shoe");
    put_text("Fashion/classes.txt", "hat\nhat\n");
    check_refused(kind, "Fashion", SFP_EFORMAT, "classes.txt:2: ", "twice");
}

TEST(damage_is_reported)
{
    const char *images = "d/train-images-idx3-ubyte";
    check_refused(kind, "d", SFP_ENOTFOUND, "/d", "cannot open"); /* does not exist, neither as directory nor as file */
    put("d/train-labels-idx1-ubyte", make_labels("01"));
    check_refused(kind, "d", SFP_EFORMAT, "has no train-images-idx3-ubyte", ".gz");
    check_refused_part(kind, "d", true, SFP_ENOTFOUND, "has no t10k-images", "");
    bytes good = make_images(2), x;
    for (size_t n = 0; n < good.n; n++) { /* every truncation */
        x = good;
        x.n = n;
        put(images, x);
        check_refused(kind, "d", SFP_EFORMAT, "train-images-idx3-ubyte: ",
                      n == 0   ? "is empty"
                      : n < 4  ? "IDX"
                      : n < 16 ? "header of 16"
                               : "bytes in its header");
    }
    static const struct {
        size_t at, n; /* bytes written at this offset */
        const char *bytes;
        sfp_status status;
        const char *message;
    } edits[] = {
        {28, 1, "", SFP_EFORMAT, "continues after"},
        {2, 1, "\x0d", SFP_EUNSUPPORTED, "type 13"},
        {3, 1, "\x01", SFP_EUNSUPPORTED, "1 dimensions"},
        {4, 12, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", SFP_EFORMAT, "dimension 0 is 4294967295"},
        {4, 12, "\x05\0\0\0\0\0\x40\0\0\0\x40\0", SFP_ELIMIT, "exceeds"}, /* 84 million images of 16384 x 16384 */
        {8, 4, "\0\0\0\0", SFP_EFORMAT, "dimension 1 is 0"},
        {4, 4, "\0\x10\0\0", SFP_EFORMAT, "ends after 12 of"}, /* the header promises a million images, the file has two */
    };
    assert_int_equal(good.n, 28);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        x = good;
        memcpy(x.b + edits[i].at, edits[i].bytes, edits[i].n);
        x.n = edits[i].at == good.n ? good.n + edits[i].n : good.n;
        put(images, x);
        check_refused(kind, "d", edits[i].status, "train-images", edits[i].message);
    }
    put(images, make_images(3));
    check_refused(kind, "d", SFP_EFORMAT, "train-labels", "has 2 labels, expected 3");
}

TEST(a_truncated_gzip_is_reported)
{
    put("d/train-labels-idx1-ubyte", make_labels("01"));
    for (size_t cut = 1; cut < 30; cut++) {
        put_gz("d/train-images-idx3-ubyte.gz", make_images(2), cut);
        check_refused(kind, "d", SFP_EFORMAT, "train-images-idx3-ubyte.gz: ", "");
    }
}

TEST(a_small_file_that_unpacks_to_a_large_one_is_refused)
{
    const uint8_t header[16] = {0, 0, 8, 3, 0, 1, 0x38, 0x80, 0, 0, 0, 32, 0, 0, 0, 32}; /* 80,000 images of 32 x 32: 82 MB */
    static const uint8_t zeros[1 << 20];
    gzFile f = gzopen(make_parents("bomb/train-images-idx3-ubyte.gz"), "wb9");
    assert_non_null(f);
    assert_int_equal(gzwrite(f, header, sizeof header), sizeof header);
    for (int i = 0; i < 79; i++)
        assert_int_equal(gzwrite(f, zeros, sizeof zeros), sizeof zeros);
    assert_int_equal(gzclose(f), Z_OK);
    put_text("bomb/train-labels-idx1-ubyte", "");
    check_refused(&sfp__source_idx, "bomb", SFP_ELIMIT, "train-images-idx3-ubyte.gz: file of ",
                  "expected at most 100 times its size");
}

TEST(debians_fashion_mnist_is_read)
{
    sfp_source *s = NULL;
    sfp__source_options opt = {.test = true};
    sfp_status status = kind->open("/usr/share/datasets/fashion-mnist", &opt, &s, &err);
    if (status == SFP_ENOTFOUND)
        skip();
    MUST(status);
    (void)keep_source(s);
    assert_int_equal(s->count, 10000);
    assert_int_equal(s->classes, 10);
    int counts[10] = {0};
    for (int64_t i = 0; i < s->count; i++)
        counts[record_of(s, i).label]++;
    for (int k = 0; k < 10; k++)
        assert_int_equal(counts[k], 1000);
    sfp__raw_image p;
    MUST(sfp__source_load(s, 0, &p, &err));
    assert_int_equal(p.width * p.height, 784);
    sfp__raw_image_done(&p);
    assert_string_equal(label_text(s, 0), "Ankle boot");
}
