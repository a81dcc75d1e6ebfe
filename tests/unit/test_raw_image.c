/* From an image of a source to the input of the network. */
#include "stream/source.h"

#include "stream/tasks.h"

#include "source_files.h"
#include "test.h"
#include "test_image_encode.h"
#include "tools/replica.h"

AROUND_EACH(make_directory, remove_directory)

enum { W = 6, H = 4 };

TEST(grey_and_colour_become_rgb)
{
    uint8_t grey[W * H], rgb[3 * W * H], a[3 * 4 * 4], b[3 * 4 * 4];
    for (int i = 0; i < W * H; i++) {
        grey[i] = (uint8_t)(i * 10);
        memset(rgb + 3 * i, i * 10, 3);
    }
    const sfp__raw_image g = {.kind = SFP__RAW_IMAGE_GREY, .width = W, .height = H, .bytes = grey, .size = sizeof grey};
    const sfp__raw_image c = {.kind = SFP__RAW_IMAGE_RGB, .width = W, .height = H, .bytes = rgb, .size = sizeof rgb};
    MUST(sfp__raw_image_fit(&g, "grey", 4, SFP__RESIZE_SQUASH, a, NULL));
    MUST(sfp__raw_image_fit(&c, "colour", 4, SFP__RESIZE_SQUASH, b, NULL));
    assert_memory_equal(a, b, sizeof a);
    assert_true(a[0] == a[1] && a[1] == a[2] && a[0] < a[3 * 15]);
}

TEST(a_box_is_cut_and_clipped)
{
    uint8_t grey[W * H] = {0}, out[3 * 2 * 2];
    for (int y = 2; y < H; y++)
        memset(grey + y * W + 4, 200, 2); /* the lower right 2 x 2 pixels */
    sfp__raw_image p = {
        .kind = SFP__RAW_IMAGE_GREY, .width = W, .height = H, .bytes = grey, .size = sizeof grey, .has_box = true};
    p.box[0] = 4;
    p.box[1] = 2;
    p.box[2] = 400;
    p.box[3] = 300;
    MUST(sfp__raw_image_fit(&p, "box", 2, SFP__RESIZE_SQUASH, out, NULL));
    for (size_t i = 0; i < sizeof out; i++)
        assert_int_equal(out[i], 200);
    p.box[0] = 6;
    REFUSED_EXACTLY(sfp__raw_image_fit(&p, "box", 2, SFP__RESIZE_SQUASH, out, &err), SFP_EFORMAT,
                    "box: the box (6, 2)-(400, 300) lies outside the 6 x 4 image");
}

TEST(a_wrong_number_of_bytes_is_refused)
{
    uint8_t grey[W * H] = {0}, out[3 * 2 * 2];
    sfp__raw_image p = {.kind = SFP__RAW_IMAGE_RGB, .width = W, .height = H, .bytes = grey, .size = sizeof grey};
    REFUSED_EXACTLY(sfp__raw_image_fit(&p, "short", 2, SFP__RESIZE_SQUASH, out, &err), SFP_EFORMAT,
                    "short: image of 6 x 4 pixels has 24 bytes, expected 72");
    p = (sfp__raw_image){.kind = SFP__RAW_IMAGE_ENCODED, .bytes = grey, .size = sizeof grey};
    assert_int_not_equal(sfp__raw_image_fit(&p, "noise", 2, SFP__RESIZE_SQUASH, out, &err), SFP_OK);
    assert_non_null(strstr(err.message, "noise"));
}

TEST(an_image_is_turned_upright_before_it_is_resized)
{
    uint8_t *rgb = make_samples(W, H, 3), turned[3 * W * H], a[3 * 4 * 4], b[3 * 4 * 4];
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            memcpy(turned + 3 * (x * H + H - 1 - y), rgb + 3 * (y * W + x), 3);
    const png_how how = {.type = SPNG_COLOR_TYPE_TRUECOLOR, .depth = 8, .exif = make_exif(6, true, false)};
    blob file = encode_png(rgb, 3 * W * H, W, H, how);
    const sfp__raw_image photo = {.kind = SFP__RAW_IMAGE_ENCODED, .bytes = file.bytes, .size = file.size};
    const sfp__raw_image upright = {.kind = SFP__RAW_IMAGE_RGB, .width = H, .height = W, .bytes = turned, .size = sizeof turned};
    for (int i = 0; i < 2; i++) {
        MUST(sfp__raw_image_fit(&photo, "photo", 4, (sfp__resize)i, a, NULL));
        MUST(sfp__raw_image_fit(&upright, "upright", 4, (sfp__resize)i, b, NULL));
        assert_memory_equal(a, b, sizeof a);
    }
}

TEST(a_box_of_a_large_image_is_decoded_exactly)
{
    enum { SIDE = 160 };
    blob file = encode_jpeg(make_samples(SIDE, SIDE, 3), SIDE, SIDE, (jpeg_how){JCS_RGB, JCS_YCbCr, 90, false, 0, {NULL, 0}});
    sfp__raw_image p = {.kind = SFP__RAW_IMAGE_ENCODED, .bytes = file.bytes, .size = file.size};
    uint8_t exact[3 * 4 * 4], fast[3 * 4 * 4];
    for (int box = 0; box < 2; box++) {
        p.has_box = box;
        memcpy(p.box, (const int32_t[]){100, 90, 150, 155}, sizeof p.box);
        MUST(sfp__raw_image_fit(&p, "photo", 4, SFP__RESIZE_SQUASH, exact, NULL));
        MUST(sfp__raw_image_fit(&p, "photo", 4, SFP__RESIZE_SQUASH | SFP__RESIZE_FAST, fast, NULL));
        for (int k = 0; k < 3 * 4 * 4; k++)
            assert_in_range(fast[k] + 4, exact[k], exact[k] + 8);
        if (box)
            assert_memory_equal(fast, exact, sizeof fast);
    }
}

TEST(a_large_image_without_memory_is_at_fault_itself)
{
    enum { SIDE = 2400 }; /* 17 MB */
    size_t size = (size_t)SIDE * SIDE * 3;
    uint8_t *rgb = kept_calloc(size, 1), out[3 * 2 * 2];
    blob file = encode_png(rgb, size, SIDE, SIDE, (png_how){.type = SPNG_COLOR_TYPE_TRUECOLOR, .depth = 8});
    const sfp__raw_image large = {.kind = SFP__RAW_IMAGE_ENCODED, .bytes = file.bytes, .size = file.size};
    blob one = encode_png(rgb, 3, 1, 1, (png_how){.type = SPNG_COLOR_TYPE_TRUECOLOR, .depth = 8});
    const sfp__raw_image small = {.kind = SFP__RAW_IMAGE_ENCODED, .bytes = one.bytes, .size = one.size};
    for (long k = 0; k < 3; k += 2) { /* of the decoder, and of the resize */
        sfp__mem_fail_at(k);
        sfp_status status = sfp__raw_image_fit(&large, "in/large.png", 2, SFP__RESIZE_SQUASH, out, &err);
        sfp__mem_fail_at(-1);
        assert_int_equal(status, SFP_ELIMIT);
        assert_int_equal(strncmp(err.message, "in/large.png: ", 14), 0);
        HOLDS(err.message, "cannot allocate memory for an image of 2400 x 2400");
        sfp__mem_fail_at(k);
        status = sfp__raw_image_fit(&small, "in/small.png", 2, SFP__RESIZE_SQUASH, out, &err);
        sfp__mem_fail_at(-1);
        assert_int_equal(status, SFP_ENOMEM);
        assert_int_equal(strncmp(err.message, "in/small.png: ", 14), 0);
    }
}

/* Checks that reading and fitting image i fails with the message WHERE followed by `what`. */
static void check_unfit(const sfp_source *s, int64_t i, const char *where, const char *what)
{
    uint8_t out[3 * 2 * 2];
    char expected[700];
    (void)snprintf(expected, sizeof expected, "%s: %s", where, what);
    assert_int_equal(sfp__raw_image_read_fit(s, i, 2, SFP__RESIZE_SQUASH, out, &err), SFP_EFORMAT);
    assert_string_equal(err.message, expected);
}

/* Checks that the errors of image 0 (empty) and image 1 (not an image) name their places alike. */
static void check_both(const sfp_source *s, const char *first, const char *second)
{
    check_unfit(s, 0, first, "file is empty");
    check_unfit(s, 1, second, "not a JPEG, PNG or WebP image");
}

TEST(undecodable_and_unreadable_images_are_named_alike)
{
    put_text("d/cat/1.jpg", "");
    put_text("d/cat/2.jpg", "text");
    put_text("list.csv", "d/cat/1.jpg,cat\nd/cat/2.jpg,cat\n");
    sfp_source *s = NULL;
    MUST(sfp__source_folder.open(in_directory("d"), &(sfp__source_options){0}, &s, &err));
    const char *first = in_directory("d/cat/1.jpg"), *second = in_directory("d/cat/2.jpg");
    check_both(s, first, second);
    sfp__class_filter *k = NULL;
    MUST(sfp__class_filter_open(s, 1, (const char *const[]){"cat"}, &k, NULL));
    (void)keep_source(&k->base);
    check_both(&k->base, first, second);
    char buf[24];
    assert_ptr_equal(sfp__source_display_name(&k->base, 0, buf, sizeof buf), buf);
    assert_int_equal(strncmp(buf, first, sizeof buf - 4), 0);
    assert_string_equal(buf + sizeof buf - 4, "...");
    const char *list = in_directory("list.csv");
    check_both(open_source(&sfp__source_manifest, "list.csv"), kept_print("%s:1: %s", list, first),
               kept_print("%s:2: %s", list, second));
}

TEST(the_place_is_the_image_name_if_there_are_no_files)
{
    const replica_options opt = {.each = 2, .size = 48, .seed = 1};
    char where[200], name[200], expected[400];
    (void)replica_make("tar", in_directory("t"), opt, NULL);
    sfp_source *s = open_source(&sfp__source_tar, "t");
    (void)snprintf(expected, sizeof expected, ".tar: %s", sfp__source_name(s, 3, name, sizeof name));
    (void)sfp__source_display_name(s, 3, where, sizeof where);
    assert_int_equal(strncmp(where, s->path, strlen(s->path)), 0); /* the shard, in the directory */
    assert_string_equal(where + strlen(where) - strlen(expected), expected);
    (void)replica_make("idx", in_directory("i"), opt, NULL);
    s = open_source(&sfp__source_idx, "i");
    assert_string_equal(sfp__source_display_name(s, 3, where, sizeof where), sfp__source_name(s, 3, name, sizeof name));
}
