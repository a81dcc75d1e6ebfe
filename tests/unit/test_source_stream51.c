/* Stream-51: counts, crops, order, tasks, and errors in its lists. */
#include "io/image/image.h"
#include "source_files.h"
#include "test.h"
#include "tools/replica.h"

AROUND_EACH(make_directory, remove_directory)

#define TRAIN "s/Stream-51_meta_train.json"
#define TEST_JSON "s/Stream-51_meta_test.json"

static const sfp__source_kind *const kind = &sfp__source_stream51;

static sfp_source *open_with(bool test, uint64_t seed, int order)
{
    return open_as(kind, in_directory("s"), (sfp__source_options){.test = test, .seed = seed, .order = order});
}

static void make_replica(int each)
{
    (void)replica_make("stream51", in_directory("s"), (replica_options){.each = each, .size = 32, .seed = 1}, NULL);
}

TEST(a_miniature_has_the_published_counts_and_tasks)
{
    make_replica(3);
    sfp_source *s = open_with(false, 1, 0), *t = open_with(true, 1, 0);
    assert_int_equal(s->count, 51 * 2 * 3);
    assert_int_equal(t->count, 51);
    assert_int_equal(s->classes, 51);
    check_same_classes(s, t);
    assert_true(s->keeps_order);
    assert_null(s->warning);
    assert_non_null(strstr(t->warning, "3 images of novelty classes"));
    int of_task[6] = {0};
    assert_string_equal(s->class_names[3], "star");
    assert_string_equal(s->class_names[50], "disc-6");
    for (int64_t i = 0; i < s->count; i++) {
        sfp_record r = record_of(s, i);
        assert_int_equal(r.label, i / 6); /* natural order: class by class */
        assert_int_equal(r.task, r.label < 11 ? 0 : 1 + (r.label - 11) / 10);
        of_task[r.task]++;
    }
    assert_int_equal(of_task[0], 66);
    for (int k = 1; k < 5; k++)
        assert_int_equal(of_task[k], 60);
    for (int64_t i = 0; i < t->count; i++)
        assert_int_equal(record_of(t, i).task, record_of(s, 6 * i).task);
    sfp__raw_image p = {0};
    sfp__image im = {0};
    MUST(sfp__source_load(s, 100, &p, &err));
    MUST(sfp__image_decode("x", p.bytes, p.size, NULL, &im, &err));
    assert_int_equal(im.width, 32);
    assert_int_equal(im.height, 24);
    assert_true(p.has_box && p.box[0] >= 0 && p.box[1] >= 0 && p.box[0] < p.box[2] && p.box[1] < p.box[3] && p.box[2] <= 32 &&
                p.box[3] <= 24);
    sfp__image_done(&im);
    sfp__raw_image_done(&p);
    check_bounds(s);
}

TEST(videos_are_shuffled_and_frames_are_not)
{
    char name[128];
    make_replica(3);
    int swapped = 0, different = 0;
    sfp_source *a = open_with(false, 1, 0), *b = open_with(false, 2, 0), *again = open_with(false, 1, 0);
    for (int64_t i = 0; i < a->count; i += 3) {
        char first[128], second[128];
        (void)sfp__source_name(a, i, first, sizeof first);
        assert_string_equal(sfp__source_name(again, i, name, sizeof name), first);
        for (int f = 0; f < 3; f++) { /* frames 0, 1, 2 of one video stay together */
            (void)sfp__source_name(a, i + f, second, sizeof second);
            assert_int_equal(strncmp(first, second, strlen(first) - 5), 0);
            assert_int_equal(second[strlen(second) - 5], '0' + f);
        }
        swapped += i % 6 == 0 && strstr(first, "_0001_") != NULL;
        different += strcmp(first, sfp__source_name(b, i, name, sizeof name)) != 0;
    }
    assert_in_range(swapped, 10, 41); /* about half of 51 */
    assert_true(different > 10);
}

TEST(an_order_shuffles_classes_and_cuts_tasks_along_it)
{
    make_replica(1);
    sfp_source *s = open_with(false, 1, 5), *t = open_with(true, 1, 5), *natural = open_with(false, 1, 0);
    int32_t task_of[51], moved = 0;
    bool seen[51] = {false};
    for (int64_t i = 0; i < s->count; i++) {
        sfp_record r = record_of(s, i);
        int64_t place = i / 2;
        assert_int_equal(seen[r.label], i % 2 == 1); /* both videos are consecutive */
        seen[r.label] = true;
        assert_int_equal(r.task, place < 11 ? 0 : 1 + (place - 11) / 10);
        task_of[r.label] = r.task;
        moved += r.label != place;
    }
    assert_true(moved > 40);
    for (int64_t i = 0; i < t->count; i++)
        assert_int_equal(record_of(t, i).task, task_of[record_of(t, i).label]);
    check_same_classes(s, natural);
}

static void check_box(const sfp_source *s, int64_t i, int left, int top, int right, int bottom)
{
    OWNED_BY(sfp__raw_image_done) sfp__raw_image p = {0};
    MUST(sfp__source_load(s, i, &p, NULL));
    assert_true(p.has_box);
    assert_int_equal(p.box[0], left);
    assert_int_equal(p.box[1], top);
    assert_int_equal(p.box[2], right);
    assert_int_equal(p.box[3], bottom);
}

/* The expected numbers are those of the dataset's own Python code. */
TEST(boxes_grow_truncate_and_clip)
{
    put_text("s/a.jpg", "x");
    put_text(TEST_JSON, "[[0, [200, 100], [60, 20, 80, 40], \"a.jpg\"]," /* 40 x 40 around (40, 60): 44 x 44 */
                        " [1, [200, 100], [61, 20, 81, 40], \"a.jpg\"]," /* 41 x 41: centre (40.5, 60.5) -> (40, 60), +- 22.55 */
                        " [2, [200, 100], [200, 0, 100, 0], \"a.jpg\"]," /* clipped on all sides */
                        " [3, [200, 100], [33.7, 10.2, 50, 20.9], \"a.jpg\"]," /* fractions */
                        " [4, [200, 100], [30, 30, 50, 20], \"a.jpg\"],"       /* no width: excluded */
                        " [77, [200, 100], [30, 20, 50, 20], \"a.jpg\"]]");
    sfp_source *s = open_with(true, 0, 0);
    assert_int_equal(s->count, 4);
    check_box(s, 0, 18, 38, 62, 82);
    check_box(s, 1, 17, 37, 62, 82);
    check_box(s, 2, 0, 0, 200, 100);
    check_box(s, 3, 8, 18, 33, 51);
    assert_int_equal(s->skipped, 1);
    assert_non_null(strstr(s->warning, "1 images of novelty classes, 1 with an empty box"));
    assert_string_equal(s->class_names[4], "4"); /* there is no training list with their names */
}

TEST(a_video_begins_at_frame_0_or_where_clip_or_video_change)
{
    put_text("s/x", "x");
    put_text(TRAIN, "[[0,0,0,0,[9,9],[5,1,5,1],\"a0\"],[0,0,0,1,[9,9],[5,1,5,1],\"a1\"],"
                    "[1,0,0,0,[9,9],[5,1,5,1],\"other class between\"],"
                    "[0,0,0,2,[9,9],[5,1,5,1],\"a2\"],[0,0,0,0,[9,9],[5,1,5,1],\"b0\"],"
                    "[0,1,0,1,[9,9],[5,1,5,1],\"c1\"],[0,1,2,2,[9,9],[5,1,5,1],\"d2\"],[0,1,2,3,[9,9],[5,1,5,1],\"d3\"]]");
    for (uint64_t seed = 0; seed < 8; seed++) {
        sfp_source *s = open_with(false, seed, 0);
        char all[64] = "", name[16];
        assert_int_equal(s->count, 8);
        for (int64_t i = 0; i < 7; i++)
            (void)strncat(all, sfp__source_name(s, i, name, sizeof name), sizeof all - strlen(all) - 1);
        if (!strstr(all, "a0a1a2") || !strstr(all, "b0") || !strstr(all, "c1") || !strstr(all, "d2d3"))
            fail_msg("frames of a video are apart: %s", all);
    }
}

TEST(images_that_are_missing_or_empty_are_named)
{
    put_text("s/x", "");
    put_text(TRAIN, "[[0,0,0,0,[9,9],[5,1,5,1],\"gone.jpg\"]]");
    sfp_source *s = open_with(false, 0, 0);
    assert_string_equal(s->warning, "classes are named after their numbers: the paths do not name all 51 in the same way");
    check_not_loaded(s, 0, SFP_ENOTFOUND, "s/gone.jpg", "");
    put_text("s/gone.jpg", "");
    check_not_loaded(s, 0, SFP_EFORMAT, "s/gone.jpg", "empty");
}
