/* Live sources of a program (streamfp.h, part 7), read as the inbox of a run reads them. */
#include "streamfp.h"

#include "stream/source.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "test.h"

enum { ITEMS_MAX = 8 };

static const uint8_t black[12];

typedef struct camera {
    int count, next, closes;
    atomic_int calls;
    sfp_live_item items[ITEMS_MAX]; /* no image, key and class: nothing has arrived */
    int fail_at;                    /* this call fails; 0: none */
    bool ends_with_last;            /* the end is reported together with the last item */
    bool never_ends;
    int releases;
} camera;

static sfp_status camera_next(void *ctx, sfp_live_item *item, int *got, int *end, sfp_error *why)
{
    camera *c = ctx;
    assert_true(*got == 0 && *end == 0 && !item->image.data && !item->key && !item->class_name);
    if (atomic_fetch_add(&c->calls, 1) + 1 == c->fail_at)
        return sfp_error_set(why, SFP_EIO, "cable unplugged");
    if (c->next == c->count) {
        *end = !c->never_ends;
        return SFP_OK;
    }
    *item = c->items[c->next++];
    *got = item->image.data || item->key || item->class_name;
    *end = c->ends_with_last && c->next == c->count;
    return SFP_OK;
}

static void camera_close(void *ctx)
{
    camera *c = ctx;
    c->closes++;
}

static sfp_live_item item_of(const char *class_name, const char *key)
{
    return (sfp_live_item){
        .image = {.format = SFP_IMAGE_BGR, .width = 2, .height = 2, .data = black}, .class_name = class_name, .key = key};
}

static sfp_source *open_camera(camera *c)
{
    sfp_source_definition d = SFP_SOURCE_DEFINITION_INIT;
    sfp_source *s = NULL;
    d.name = "camera";
    d.ctx = c;
    d.next = camera_next;
    d.close = camera_close;
    MUST(sfp_source_create(&d, &s, &err));
    assert_true(s->kind->live && s->live);
    return s;
}

/* Reads the next item, which has this label and key. */
static void read_item(sfp_source *s, int label, const char *key, bool has_image)
{
    sfp_record r = {0};
    sfp__raw_image p = {0};
    sfp__origin origin = {0};
    bool end = true;
    MUST(sfp__source_next(s, &r, &p, &end, &err));
    assert_false(end);
    assert_int_equal(r.label, label);
    s->ops->origin(s, &origin);
    assert_string_equal(origin.name, key);
    assert_false(origin.stored || origin.urgent);
    assert_int_equal(p.bytes != NULL, has_image);
    if (has_image)
        assert_true(p.kind == SFP__RAW_IMAGE_RGB && p.width == 2 && p.size == 12);
    sfp__raw_image_done(&p);
}

static void read_end(sfp_source *s)
{
    sfp_record r;
    sfp__raw_image p = {0};
    bool end = false;
    MUST(sfp__source_next(s, &r, &p, &end, &err));
    assert_true(end);
}

static sfp_status try_next(sfp_source *s, sfp_error *why)
{
    sfp_record r;
    sfp__raw_image p = {0};
    bool end = false;
    sfp_status status = sfp__source_next(s, &r, &p, &end, why);
    assert_true(status || end);
    return status;
}

TEST(a_live_source_delivers_images_and_late_labels_and_discovers_classes)
{
    camera c = {.count = 6};
    c.items[0] = item_of("cat", "a");
    c.items[1] = item_of(NULL, "b");
    c.items[3] = item_of("dog", NULL); /* behind one that has nothing */
    c.items[4] = (sfp_live_item){.class_name = "owl", .key = "b"};
    c.items[5] = item_of("cat", "");
    sfp_source *s = open_camera(&c);
    assert_int_equal(sfp_source_classes(s), 0);
    read_item(s, 0, "a", true);
    read_item(s, -1, "b", true);
    read_item(s, 1, "camera[2]", true);
    read_item(s, 2, "b", false);
    assert_int_equal(sfp_source_classes(s), 3);
    assert_string_equal(sfp_source_class_name(s, 2), "owl");
    read_item(s, 0, "camera[4]", true);
    read_end(s);
    read_end(s);
    sfp_source_close(s);
    assert_int_equal(c.closes, 1);
}

TEST(the_end_may_arrive_with_the_last_item)
{
    camera c = {.count = 1, .ends_with_last = true};
    c.items[0] = item_of("cat", "a");
    sfp_source *s = open_camera(&c);
    read_item(s, 0, "a", true);
    read_end(s);
    assert_int_equal(c.calls, 1);
    sfp_source_close(s);
}

TEST(a_callback_that_fails_ends_the_live_source)
{
    camera c = {.count = 2, .fail_at = 2};
    c.items[0] = c.items[1] = item_of("cat", "a");
    sfp_source *s = open_camera(&c);
    read_item(s, 0, "a", true);
    for (int i = 0; i < 3; i++) {
        REFUSED(try_next(s, &err), SFP_EIO, "camera: cable unplugged");
        assert_false(s->live->lost);
    }
    assert_int_equal(c.calls, 2); /* it is not called again */
    sfp_source_close(s);
}

TEST(an_image_that_cannot_be_used_is_lost_alone)
{
    camera c = {.count = 4};
    c.items[0] = item_of("cat", "a");
    c.items[0].image.width = -1;
    c.items[1] = item_of("", "b");
    c.items[2] = item_of("cat", "c");
    c.items[2].image = (sfp_image){.format = SFP_IMAGE_ENCODED, .data = black};
    c.items[3] = item_of("cat", "d");
    sfp_source *s = open_camera(&c);
    REFUSED(try_next(s, &err), SFP_EINVAL, "camera: a: size is -1 x 2");
    assert_true(s->live->lost);
    REFUSED(try_next(s, &err), SFP_EFORMAT, "camera: b: class name: a name is empty");
    assert_true(s->live->lost);
    REFUSED(try_next(s, &err), SFP_EFORMAT, "camera: c: image has 0 bytes");
    assert_true(s->live->lost);
    read_item(s, 0, "d", true);
    assert_false(s->live->lost);
    sfp_source_close(s);
}

TEST(a_label_without_a_key_or_class_fails_the_live_source)
{
    const sfp_live_item list[] = {{.class_name = "cat"}, {.key = "a"}, {.class_name = "cat", .key = ""}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        camera c = {.count = 2, .items = {list[i], item_of("cat", "b")}};
        sfp_source *s = open_camera(&c);
        REFUSED(try_next(s, &err), SFP_EINVAL, "item has no image, expected a key and a class name");
        REFUSED(try_next(s, &err), SFP_EINVAL, "item has no image, expected a key and a class name");
        assert_false(s->live->lost);
        sfp_source_close(s);
    }
}

TEST(a_key_that_is_too_long_loses_its_image)
{
    char *key = kept_malloc(5001);
    memset(key, 'k', 5000);
    key[5000] = '\0';
    camera c = {.count = 1, .items = {item_of("cat", key)}};
    sfp_source *s = open_camera(&c);
    REFUSED(try_next(s, &err), SFP_ELIMIT, "camera[0]: key has more than");
    assert_true(s->live->lost);
    sfp_source_close(s);
}

typedef struct waiter {
    sfp_source *source;
    bool ended;
} waiter;

static void *wait_for_end(void *ctx)
{
    waiter *w = ctx;
    sfp_record r;
    sfp__raw_image p = {0};
    w->ended = sfp__source_next(w->source, &r, &p, &(bool){false}, NULL) == SFP_OK && !p.bytes;
    return NULL;
}

TEST(a_live_source_that_waits_is_stopped)
{
    atomic_bool stop = false;
    camera c = {.never_ends = true};
    waiter w = {.source = open_camera(&c)};
    pthread_t thread;
    w.source->live->stop = &stop;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_end, &w), 0);
    while (atomic_load(&c.calls) < 2) /* nothing has arrived, and it is asked again */
        (void)sched_yield();
    atomic_store(&stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(w.ended);
    sfp_source_close(w.source);
}
