/* Sources (streamfp.h, part 7). */
#include "world.h"

AROUND_EACH(make_directory, remove_directory)

enum { EDGE = 4, COUNT = 12 };

KEEP_BY(keep_source, sfp_source, sfp_source_close)

static const char *const names[] = {"cat", "dog", "owl"};
static const char *const places[] = {"indoors", "outdoors"};

/* ------------------------------------------------------------------------------------------------- an indexed source */

typedef struct album {
    int loads, releases, closes;
    sfp_image image;   /* of all images; data NULL: a flat image whose shade follows from its number */
    sfp_record record; /* of image 1 if has_record */
    int has_record;
    sfp_status status; /* of record and load of image 2 */
    const char *why;
    uint8_t pixels[3 * EDGE * EDGE];
} album;

static sfp_status album_record(void *ctx, int64_t i, sfp_record *record, sfp_error *why)
{
    album *a = ctx;
    assert_true(record->label == SFP_UNLABELLED && record->domain == -1 && record->task == -1 && isnan(record->time));
    if (i == 2 && a->status)
        return a->why ? sfp_error_set(why, a->status, a->why) : a->status;
    if (i == 1 && a->has_record)
        *record = a->record;
    else if (i != 3)
        record->label = (int32_t)(i % 3);
    return SFP_OK;
}

static sfp_status album_load(void *ctx, int64_t i, sfp_image *image, sfp_error *why)
{
    album *a = ctx;
    if (i == 2 && a->status)
        return a->why ? sfp_error_set(why, a->status, a->why) : a->status;
    a->loads++;
    *image = a->image;
    if (!image->data) {
        memset(a->pixels, (int)(20 + 60 * (i % 3)), sizeof a->pixels);
        *image = (sfp_image){.format = SFP_IMAGE_RGB, .width = EDGE, .height = EDGE, .data = a->pixels};
    }
    return SFP_OK;
}

static void album_release(void *ctx, sfp_image *image)
{
    album *a = ctx;
    assert_non_null(image);
    a->releases++;
}

static void album_close(void *ctx)
{
    album *a = ctx;
    a->closes++;
}

static sfp_source_definition definition_of(album *a)
{
    sfp_source_definition d = SFP_SOURCE_DEFINITION_INIT;
    d.name = "album";
    d.ctx = a;
    d.count = COUNT;
    d.classes = 3;
    d.class_names = names;
    d.record = album_record;
    d.load = album_load;
    d.release = album_release;
    d.close = album_close;
    return d;
}

static sfp_source *source_of(const sfp_source_definition *d)
{
    sfp_source *s = NULL;
    MUST(sfp_source_create(d, &s, &err));
    return keep_source(s);
}

TEST(an_own_indexed_source_has_records_classes_and_images)
{
    album a = {.has_record = 1, .record = {.label = 1, .domain = 1, .task = 4, .time = 2004.5}};
    sfp_source_definition d = definition_of(&a);
    d.domains = 2;
    d.domain_names = places;
    sfp_source *s = NULL;
    MUST(sfp_source_create(&d, &s, &err));
    assert_int_equal(sfp_source_is_live(s), 0);
    assert_int_equal(sfp_source_has_test_part(s), 0);
    assert_int_equal(sfp_source_is_seeded(s), 0);
    assert_int_equal(sfp_source_count(s), COUNT);
    assert_int_equal(sfp_source_classes(s), 3);
    assert_string_equal(sfp_source_class_name(s, 2), "owl");
    assert_null(sfp_source_class_name(s, 3));
    assert_null(sfp_source_class_name(s, -1));
    assert_int_equal(sfp_source_domains(s), 2);
    assert_string_equal(sfp_source_domain_name(s, 1), "outdoors");
    assert_null(sfp_source_domain_name(s, 2));
    assert_null(sfp_source_warning(s));
    sfp_record r;
    sfp_image image;
    MUST(sfp_source_read(s, 1, &r, &image, &err));
    assert_true(r.label == 1 && r.domain == 1 && r.task == 4 && r.time == 2004.5);
    assert_true(image.format == SFP_IMAGE_RGB && image.width == EDGE && image.height == EDGE);
    assert_int_equal(((const uint8_t *)image.data)[0], 80);
    sfp_source_release(s, &image);
    assert_null(image.data);
    sfp_source_release(s, &image);
    sfp_source_release(s, NULL);
    MUST(sfp_source_read(s, 3, &r, NULL, &err));
    assert_true(r.label == SFP_UNLABELLED && isnan(r.time));
    MUST(sfp_source_read(s, 0, NULL, NULL, &err));
    assert_true(a.loads == 1 && a.releases == 1 && a.closes == 0);
    REFUSED(sfp_source_read(s, COUNT, &r, NULL, &err), SFP_EINVAL, "12");
    REFUSED(sfp_source_read(s, -1, NULL, &image, &err), SFP_EINVAL, "-1");
    sfp_source_close(s);
    assert_int_equal(a.closes, 1);
    sfp_source_close(NULL);
}

TEST(an_own_source_may_be_empty_or_without_classes)
{
    album a = {0};
    sfp_source_definition d = definition_of(&a);
    d.count = 0;
    d.classes = 0;
    d.class_names = NULL;
    d.release = NULL;
    d.close = NULL;
    sfp_source *s = source_of(&d);
    assert_int_equal(sfp_source_count(s), 0);
    assert_int_equal(sfp_source_classes(s), 0);
}

/* Two rows of two pixels, with one byte between the rows. */
static const uint8_t padded[] = {1, 2, 3, 4, 5, 6, 99, 7, 8, 9, 10, 11, 12};

TEST(images_of_an_own_source_are_copied_in_their_stored_format)
{
    static const uint8_t rgb[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, bgr[] = {3, 2, 1, 6, 5, 4, 9, 8, 7, 12, 11, 10};
    static const uint8_t upside[] = {7, 8, 9, 10, 11, 12, 1, 2, 3, 4, 5, 6}, grey[] = {1, 2, 7, 8};
    const char *file = in_directory("file");
    FILE *f = fopen(file, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite("bytes", 1, 5, f), 5);
    assert_int_equal(fclose(f), 0);
    const struct {
        sfp_image image;
        int32_t format;
        const void *data;
        size_t bytes;
    } list[] = {
        {{.format = SFP_IMAGE_RGB, .width = 2, .height = 2, .stride = 7, .data = padded}, SFP_IMAGE_RGB, rgb, 12},
        {{.format = SFP_IMAGE_RGB, .width = 2, .height = 2, .stride = -7, .data = padded + 7}, SFP_IMAGE_RGB, upside, 12},
        {{.format = SFP_IMAGE_BGR, .width = 2, .height = 2, .stride = 7, .data = padded}, SFP_IMAGE_RGB, bgr, 12},
        {{.format = SFP_IMAGE_GREY, .width = 2, .height = 2, .stride = 7, .data = padded}, SFP_IMAGE_GREY, grey, 4},
        {{.format = SFP_IMAGE_ENCODED, .data = "jpeg", .bytes = 4, .box = {1, 2, 3, 4}}, SFP_IMAGE_ENCODED, "jpeg", 4},
        {{.format = SFP_IMAGE_FILE, .data = file}, SFP_IMAGE_ENCODED, "bytes", 5},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        album a = {.image = list[i].image};
        sfp_source_definition d = definition_of(&a);
        sfp_image image;
        sfp_source *s = source_of(&d);
        MUST(sfp_source_read(s, 0, NULL, &image, &err));
        assert_int_equal(image.format, list[i].format);
        assert_int_equal(image.bytes, list[i].bytes);
        assert_memory_equal(image.data, list[i].data, list[i].bytes);
        assert_memory_equal(image.box, list[i].image.box, sizeof image.box);
        assert_int_equal(image.stride, 0);
        sfp_source_release(s, &image);
        assert_int_equal(a.releases, 1);
    }
}

TEST(images_that_cannot_be_used_are_refused_and_released)
{
    static const uint8_t one[3] = {0};
    const struct {
        sfp_image image;
        sfp_status status;
        const char *part;
    } list[] = {
        {{.format = 17, .data = one}, SFP_EINVAL, "album[0]: format is 17"},
        {{.format = SFP_IMAGE_RGB, .width = 0, .height = 1, .data = one}, SFP_EINVAL, "album[0]: size is 0 x 1"},
        {{.format = SFP_IMAGE_GREY, .width = 3, .height = -1, .data = one}, SFP_EINVAL, "album[0]: size is 3 x -1"},
        {{.format = SFP_IMAGE_RGB, .width = 1, .height = 1, .stride = 2, .data = one}, SFP_EINVAL, "album[0]: stride is 2"},
        {{.format = SFP_IMAGE_RGB, .width = INT32_MAX, .height = INT32_MAX, .data = one}, SFP_ELIMIT, "album[0]: image is"},
        {{.format = SFP_IMAGE_GREY, .width = INT32_MAX, .height = INT32_MAX, .data = one}, SFP_ELIMIT, "album[0]: image is"},
        {{.format = SFP_IMAGE_ENCODED, .data = one}, SFP_EFORMAT, "album[0]: image has 0 bytes"},
        {{.format = SFP_IMAGE_ENCODED, .data = one, .bytes = SIZE_MAX}, SFP_ELIMIT, "album[0]: image has"},
        {{.format = SFP_IMAGE_FILE, .data = "no/such/file"}, SFP_ENOTFOUND, "no/such/file"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        album a = {.image = list[i].image};
        sfp_source_definition d = definition_of(&a);
        sfp_image image = {.width = 77};
        sfp_source *s = source_of(&d);
        REFUSED_AS(list[i].part, sfp_source_read(s, 0, NULL, &image, &err), list[i].status, list[i].part);
        assert_int_equal(image.width, 77);
        assert_true(a.loads == 1 && a.releases == 1);
    }
}

TEST(a_failing_callback_is_an_error_of_that_image)
{
    album a = {.status = SFP_EIO, .why = "camera lost"};
    sfp_source_definition d = definition_of(&a);
    sfp_record r;
    sfp_image image;
    sfp_source *s = source_of(&d);
    REFUSED(sfp_source_read(s, 2, &r, NULL, &err), SFP_EIO, "album[2]: camera lost");
    REFUSED(sfp_source_read(s, 2, NULL, &image, &err), SFP_EIO, "album[2]: camera lost");
    assert_int_equal(a.releases, 0);
    a.why = NULL;
    REFUSED(sfp_source_read(s, 2, NULL, &image, &err), SFP_EIO, "album[2]: input/output error");
    a.status = (sfp_status)1000;
    REFUSED(sfp_source_read(s, 2, NULL, &image, &err), SFP_EINVAL, "album[2]: the callback returned an unknown status");
    MUST(sfp_source_read(s, 1, &r, &image, &err));
    sfp_source_release(s, &image);
}

TEST(records_out_of_range_are_refused)
{
    const struct {
        sfp_record record;
        const char *part;
    } list[] = {{{.label = 3, .domain = -1, .task = -1}, "album[1]: label is 3, expected -1 to 2"},
                {{.label = -2, .domain = -1, .task = -1}, "album[1]: label is -2"},
                {{.label = 0, .domain = 0, .task = -1}, "album[1]: domain is 0, expected -1 to -1"},
                {{.label = 0, .domain = -1, .task = -5}, "album[1]: task is -5"},
                {{.label = 0, .domain = -1, .task = -1, .time = INFINITY}, "album[1]: time is infinite"}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        album a = {.has_record = 1, .record = list[i].record};
        sfp_source_definition d = definition_of(&a);
        sfp_record r = {.label = 5};
        sfp_source *s = source_of(&d);
        REFUSED_AS(list[i].part, sfp_source_read(s, 1, &r, NULL, &err), SFP_EINVAL, list[i].part);
        assert_int_equal(r.label, 5);
    }
}

/* ---------------------------------------------------------------------------------------------------------- refusals */

static sfp_status no_next(void *ctx, sfp_live_item *item, int *got, int *end, sfp_error *why)
{
    (void)ctx;
    (void)item;
    (void)got;
    (void)why;
    *end = 1;
    return SFP_OK;
}

static void refuse_definition(const char *part, sfp_source_definition d)
{
    album *a = d.ctx;
    sfp_source *s = NULL;
    int closes = a->closes;
    REFUSED_AS(part, sfp_source_create(&d, &s, &err), SFP_EINVAL, part);
    assert_null(s);
    assert_int_equal(a->closes, closes + 1); /* also if it fails */
}

TEST(hostile_definitions_are_refused)
{
    static const char *const with_null[] = {"cat", NULL, "owl"}, *const twice[] = {"cat", "dog", "cat"};
    static const char *const empty[] = {"cat", "", "owl"}, *const binary[] = {"cat", "\xff\xfe", "owl"};
    album a = {0};
    const sfp_source_definition good = definition_of(&a);
    sfp_source_definition d;
    sfp_source *s = NULL;
#define REFUSE(part, ...) d = good, __VA_ARGS__, refuse_definition(part, d)
    REFUSE("name is empty", d.name = NULL);
    REFUSE("name is empty", d.name = "");
    REFUSE("record is NULL", d.record = NULL);
    REFUSE("load is NULL", d.load = NULL);
    REFUSE("record is NULL", d.record = NULL, d.load = NULL, d.count = -1);
    REFUSE("count is -1", d.count = -1);
    REFUSE("count is 9223372036854775807", d.count = INT64_MAX);
    REFUSE("both set", d.next = no_next);
    REFUSE("both set", d.next = no_next, d.record = NULL, d.load = NULL, d.release = NULL, d.count = 0);
    REFUSE("number of classes is -1", d.classes = -1);
    REFUSE("number of classes is 2147483647", d.classes = INT32_MAX);
    REFUSE("names of classes are NULL", d.class_names = NULL);
    REFUSE("name 1 of classes is NULL", d.class_names = with_null);
    REFUSE("names 0 and 2 of classes are equal", d.class_names = twice);
    REFUSE("name 1 of classes", d.class_names = empty);
    REFUSE("not UTF-8", d.class_names = binary);
    REFUSE("names of domains are NULL", d.domains = 2);
    REFUSE("number of domains is -3", d.domains = -3);
#undef REFUSE
    d = good;
    d.size = 0;
    REFUSED(sfp_source_create(&d, &s, &err), SFP_EINVAL, "sfp_source_definition: size is 0");
    REFUSED(sfp_source_create(NULL, &s, &err), SFP_EINVAL, "definition");
    REFUSED(sfp_source_create(&good, NULL, &err), SFP_EINVAL, "out");
    assert_int_equal(sfp_source_create(&d, &s, NULL), SFP_EINVAL);
}

TEST(a_live_source_has_no_numbered_images)
{
    sfp_source_definition d = SFP_SOURCE_DEFINITION_INIT;
    d.name = "camera";
    d.next = no_next;
    sfp_record r;
    sfp_source *s = source_of(&d);
    assert_int_equal(sfp_source_is_live(s), 1);
    assert_int_equal(sfp_source_count(s), -1);
    assert_int_equal(sfp_source_classes(s), 0);
    REFUSED(sfp_source_read(s, 0, &r, NULL, &err), SFP_EINVAL, "source:camera: live source");
}

/* ------------------------------------------------------------------------------------------- sources of the library */

TEST(the_kinds_of_sources_are_listed)
{
    const char *name = NULL, *summary = NULL;
    int live = -1, kinds = 0, lives = 0;
    for (; sfp_source_kind(kinds, &name, &summary, &live); kinds++) {
        assert_true(*name && *summary);
        lives += live;
    }
    assert_true(kinds > 5 && lives > 1);
    assert_int_equal(sfp_source_kind(0, NULL, NULL, NULL), 1);
    assert_int_equal(sfp_source_kind(-1, &name, NULL, NULL), 0);
    assert_int_equal(sfp_source_kind(1000, &name, NULL, NULL), 0);
}

TEST(sources_of_the_library_are_read_in_the_same_way)
{
    sfp_source *s = NULL, *other = NULL;
    sfp_source_options o = SFP_SOURCE_OPTIONS_INIT;
    uint8_t first[32 * 32 * 3], second[32 * 32 * 3];
    sfp_image image;
    sfp_record r;
    MUST(sfp_source_open("synthetic:20", NULL, &s, &err));
    (void)keep_source(s);
    assert_int_equal(sfp_source_count(s), 20);
    assert_true(sfp_source_classes(s) > 1);
    MUST(sfp_source_read(s, 7, &r, &image, &err));
    assert_true(r.label >= 0 && r.label < sfp_source_classes(s));
    MUST(sfp_image_fit(&image, 32, NULL, first, &err));
    sfp_source_release(s, &image);
    o.seed = 9;
    MUST(sfp_source_open("synthetic:20", &o, &other, &err));
    (void)keep_source(other);
    assert_int_equal(sfp_source_is_seeded(other), 1);
    MUST(sfp_source_read(other, 7, NULL, &image, &err));
    MUST(sfp_image_fit(&image, 32, NULL, second, &err));
    sfp_source_release(other, &image);
    assert_memory_not_equal(first, second, sizeof first);
    sfp_source *none = NULL;
    REFUSED(sfp_source_open("folder:/no/such", NULL, &none, &err), SFP_ENOTFOUND, "/no/such");
    REFUSED(sfp_source_open(NULL, NULL, &none, &err), SFP_EINVAL, "spec");
    o.size = 1;
    REFUSED(sfp_source_open("synthetic:20", &o, &none, &err), SFP_EINVAL, "sfp_source_options: size is 1");
    assert_null(none);
}

/* ---------------------------------------------------------------------------------------------------- with a learner */

TEST(a_learner_learns_from_an_own_source)
{
    album a = {0};
    sfp_source_definition d = definition_of(&a);
    sfp_source *s = source_of(&d);
    sfp_learner *l = learner_of(random_engine(), settings_of(NULL));
    for (int64_t i = 0; i + BATCH <= sfp_source_count(s); i += BATCH) {
        sfp_sample samples[BATCH] = {0};
        sfp_timestamp_report report = SFP_TIMESTAMP_REPORT_INIT;
        int n = 0;
        for (int64_t k = i; k < i + BATCH; k++) {
            sfp_record r;
            MUST(sfp_source_read(s, k, &r, &samples[n].image, &err));
            samples[n].label = r.label;
            samples[n].id = (uint64_t)k;
            if (r.label == SFP_UNLABELLED)
                sfp_source_release(s, &samples[n].image);
            else
                n++;
        }
        MUST(sfp_learner_offer(l, n, samples, &report, &err));
        assert_int_equal(report.offered, n);
        for (int k = 0; k < n; k++)
            sfp_source_release(s, &samples[k].image);
    }
    assert_int_equal(sfp_learner_classes(l), 3);
    assert_true(a.loads == COUNT && a.releases == COUNT);
}
