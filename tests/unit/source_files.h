/* Helpers of the source tests: open a source in the test's directory and check the images that it delivers. */
#ifndef TEST_SOURCE_FILES_H
#define TEST_SOURCE_FILES_H

#include "stream/source_internal.h"

#include <sys/stat.h>

#include "temp_directory.h"
#include "test.h"

KEEP_BY(keep_source, sfp_source, sfp__source_close)

/* Opens a source that is closed when the test ends. */
static inline sfp_source *open_as(const sfp__source_kind *kind, const char *path, sfp__source_options opt)
{
    sfp_source *s = NULL;
    if (kind->open(path, &opt, &s, &err) != SFP_OK)
        fail_msg("%s: %s", path, err.message);
    return keep_source(s);
}

static inline sfp_source *open_part(const sfp__source_kind *kind, const char *name, bool test)
{
    sfp_source *s = open_as(kind, in_directory(name), (sfp__source_options){.test = test});
    assert_ptr_equal(s->kind, kind);
    return s;
}

static inline sfp_source *open_source(const sfp__source_kind *kind, const char *name)
{
    return open_part(kind, name, false);
}

/* Checks that opening fails with this status and a message that contains both texts. */
static inline void check_refused_part(const sfp__source_kind *kind, const char *name, bool test, sfp_status status, const char *a,
                                      const char *b)
{
    sfp_source *s = NULL;
    sfp__source_options opt = {.test = test};
    sfp_status got = kind->open(in_directory(name), &opt, &s, &err);
    if (got != status || !strstr(err.message, a) || !strstr(err.message, b))
        fail_msg("%s:\n  got %s, '%s'\n  expected %s, '%s', '%s'", name, sfp_status_text(got), err.message,
                 sfp_status_text(status), a, b);
    assert_null(s);
}

static inline void check_refused(const sfp__source_kind *kind, const char *name, sfp_status status, const char *a, const char *b)
{
    check_refused_part(kind, name, false, status, a, b);
}

/* One step of CHECK_REFUSALS: writes a file (NULL: none), then checks the error of opening `name`. */
typedef struct refusal {
    const char *file, *text;
    sfp_status status;
    const char *a, *b;
} refusal;

#define CHECK_REFUSALS(kind, name, ...)                                               \
    do {                                                                              \
        static const refusal steps_[] = {__VA_ARGS__};                                \
        for (size_t i_ = 0; i_ < sizeof steps_ / sizeof *steps_; i_++) {              \
            if (steps_[i_].file)                                                      \
                put_text(steps_[i_].file, steps_[i_].text);                           \
            check_refused(kind, name, steps_[i_].status, steps_[i_].a, steps_[i_].b); \
        }                                                                             \
    } while (0)

static inline sfp_record record_of(const sfp_source *s, int64_t i)
{
    sfp_record r = {0};
    if (sfp__source_record(s, i, &r, &err) != SFP_OK)
        fail_msg("record %lld: %s", (long long)i, err.message);
    return r;
}

/* Returns "class", "domain/class" or "-". */
static inline const char *label_text(const sfp_source *s, int64_t i)
{
    static char text[2100];
    sfp_record r = record_of(s, i);
    (void)snprintf(text, sizeof text, "%s%s%s", r.domain < 0 ? "" : s->domain_names[r.domain], r.domain < 0 ? "" : "/",
                   r.label < 0 ? "-" : s->class_names[r.label]);
    return text;
}

/* Checks the labels of all images (CHECK_LABELS) or of the first ones (CHECK_FIRST_LABELS). */
#define CHECK_LABELS(s, ...) check_labels_of(s, true, STRINGS(__VA_ARGS__))
#define CHECK_FIRST_LABELS(s, ...) check_labels_of(s, false, STRINGS(__VA_ARGS__))

static inline void check_labels_of(const sfp_source *s, bool all, const char *const *labels)
{
    int64_t n = 0;
    for (; labels[n]; n++) {
        assert_true(n < s->count);
        assert_string_equal(label_text(s, n), labels[n]);
    }
    assert_true(!all || s->count == n);
}

/* Checks the names of the classes. */
#define CHECK_CLASSES(s, ...) check_classes_of(s, STRINGS(__VA_ARGS__))

static inline void check_classes_of(const sfp_source *s, const char *const *names)
{
    for (int k = 0; k < s->classes || names[k]; k++) {
        assert_true(k < s->classes && names[k]);
        assert_string_equal(s->class_names[k], names[k]);
    }
}

static inline void check_same_classes(const sfp_source *a, const sfp_source *b)
{
    assert_int_equal(a->classes, b->classes);
    for (int k = 0; k < a->classes; k++)
        assert_string_equal(a->class_names[k], b->class_names[k]);
}

static inline void check_record(const sfp_source *s, int64_t i, int32_t label, int32_t task)
{
    assert_int_equal(record_of(s, i).label, label);
    assert_int_equal(record_of(s, i).task, task);
}

static inline void check_name(const sfp_source *s, int64_t i, const char *name)
{
    char text[400];
    assert_string_equal(sfp__source_name(s, i, text, sizeof text), name);
}

/* Checks that image i is encoded and has these bytes. */
static inline void check_bytes(const sfp_source *s, int64_t i, const void *bytes, size_t size)
{
    OWNED_BY(sfp__raw_image_done) sfp__raw_image p = {0};
    if (sfp__source_load(s, i, &p, &err) != SFP_OK)
        fail_msg("image %lld: %s", (long long)i, err.message);
    assert_int_equal(p.kind, SFP__RAW_IMAGE_ENCODED);
    assert_int_equal(p.size, size);
    assert_memory_equal(p.bytes, bytes, size);
}

static inline void check_not_loaded(const sfp_source *s, int64_t i, sfp_status status, const char *a, const char *b)
{
    sfp__raw_image p = {0};
    sfp_status got = sfp__source_load(s, i, &p, &err);
    if (got != status || !strstr(err.message, a) || !strstr(err.message, b))
        fail_msg("image %lld: got %s, '%s', expected %s, '%s', '%s'", (long long)i, sfp_status_text(got), err.message,
                 sfp_status_text(status), a, b);
    assert_null(p.bytes);
}

/* Checks that an index beyond the last image is refused. */
static inline void check_bounds(const sfp_source *s)
{
    sfp_record r;
    sfp__raw_image p;
    char name[32];
    int64_t outside[] = {-1, s->count, INT64_MAX};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(sfp__source_record(s, outside[i], &r, &err), SFP_EINVAL);
        assert_int_equal(sfp__source_load(s, outside[i], &p, &err), SFP_EINVAL);
    }
    assert_ptr_equal(sfp__source_name(s, 0, name, sizeof name), name);
}

/* What a live source knows about the last image. */
static inline sfp__origin origin_of(const sfp_source *s)
{
    sfp__origin origin = {0};
    s->ops->origin(s, &origin);
    return origin;
}

/* Checks the next image of a live source: its label (a class name or "-") and its bytes. */
static inline void check_next(sfp_source *s, const char *label, const char *bytes)
{
    sfp_record r = {0};
    OWNED_BY(sfp__raw_image_done) sfp__raw_image p = {0};
    bool end = true;
    MUST(sfp__source_next(s, &r, &p, &end, &err));
    assert_false(end);
    assert_int_equal(p.kind, SFP__RAW_IMAGE_ENCODED);
    assert_int_equal(p.size, strlen(bytes));
    assert_memory_equal(p.bytes, bytes, p.size);
    assert_true(r.label < s->classes);
    assert_string_equal(r.label < 0 ? "-" : s->class_names[r.label], label);
}

/* Checks the next images: rows {label, bytes}. */
#define CHECK_NEXT(s, ...)                                           \
    do {                                                             \
        const char *const rows_[][2] = {__VA_ARGS__};                \
        for (size_t i_ = 0; i_ < sizeof rows_ / sizeof *rows_; i_++) \
            check_next(s, rows_[i_][0], rows_[i_][1]);               \
    } while (0)

/* Checks that the next image of a live source is skipped, and why. */
static inline sfp__origin check_skipped(sfp_source *s, const char *name, sfp_status status, const char *why)
{
    sfp_record r = {0};
    sfp__raw_image p = {0};
    bool end = false;
    REFUSED(sfp__source_next(s, &r, &p, &end, &err), status, why);
    assert_true(s->live->lost);
    assert_false(end);
    assert_null(p.bytes);
    sfp__origin origin = origin_of(s);
    assert_string_equal(origin.name, name);
    return origin;
}

static inline void check_end(sfp_source *s)
{
    sfp_record r;
    sfp__raw_image p = {0};
    for (int i = 0; i < 2; i++) { /* the source stays at its end */
        bool end = false;
        MUST(sfp__source_next(s, &r, &p, &end, &err));
        assert_true(end);
        assert_null(p.bytes);
    }
}

#endif
