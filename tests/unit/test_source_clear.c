/* CLEAR-10 and CLEAR-100: counts, buckets, order, tasks; errors in their lists. */
#include "source_files.h"
#include "test.h"
#include "tools/replica.h"

AROUND_EACH(make_directory, remove_directory)

static sfp_source *open_with(const sfp__source_kind *kind, bool test, uint64_t seed, int order)
{
    return open_as(kind, in_directory("c"), (sfp__source_options){.test = test, .seed = seed, .order = order});
}

static void make_replica(const char *name, int each)
{
    (void)replica_make(name, in_directory("c"), (replica_options){.each = each, .size = 16, .seed = 1}, NULL);
}

TEST(clear10_excludes_bucket_0_and_has_five_tasks)
{
    make_replica("clear10", 2);
    for (int test = 0; test < 2; test++) {
        sfp_source *s = open_with(&sfp__source_clear10, test, 1, 0);
        assert_int_equal(s->count, 11 * 10 * 2);
        assert_int_equal(s->classes, 11);
        assert_string_equal(s->class_names[10], "disc-2");
        assert_true(s->keeps_order);
        assert_non_null(strstr(s->warning, "bucket 0"));
        for (int64_t i = 0; i < s->count; i++) {
            sfp_record r = record_of(s, i);
            assert_int_equal(r.label, i / 20); /* ordered by class, then by bucket */
            assert_true(r.time == (double)(i / 2 % 10 + 1));
            assert_int_equal(r.task, r.label < 3 ? 0 : 1 + (r.label - 3) / 2);
            char name[128];
            const char *part = kept_print("labeled_images/%d/%s/", (int)r.time, s->class_names[r.label]);
            assert_non_null(strstr(sfp__source_name(s, i, name, sizeof name), part));
        }
        sfp__raw_image p = {0};
        MUST(sfp__source_load(s, 219, &p, NULL));
        assert_memory_equal(p.bytes, "\xff\xd8", 2);
        sfp__raw_image_done(&p);
        check_bounds(s);
    }
}

TEST(clear100_has_ten_tasks_of_ten)
{
    make_replica("clear100", 1);
    sfp_source *s = open_with(&sfp__source_clear100, false, 1, 0), *t = open_with(&sfp__source_clear100, true, 1, 0);
    assert_int_equal(s->count, 1000);
    assert_int_equal(t->count, 1000);
    assert_int_equal(s->classes, 100);
    assert_null(s->warning);
    for (int64_t i = 0; i < s->count; i++)
        assert_int_equal(record_of(s, i).task, i / 100);
}

TEST(a_bucket_is_shuffled_by_the_seed)
{
    make_replica("clear10", 5);
    sfp_source *a = open_with(&sfp__source_clear10, false, 1, 0), *same = open_with(&sfp__source_clear10, false, 1, 0),
               *b = open_with(&sfp__source_clear10, false, 2, 0), *test = open_with(&sfp__source_clear10, true, 1, 0);
    int differ = 0, unsorted = 0;
    for (int64_t i = 0; i < a->count; i += 5) {
        int seen = 0;
        for (int k = 0; k < 5; k++) {
            char x[128], y[128];
            (void)sfp__source_name(a, i + k, x, sizeof x);
            assert_string_equal(x, sfp__source_name(same, i + k, y, sizeof y));
            differ += strcmp(x, sfp__source_name(b, i + k, y, sizeof y)) != 0;
            int number = x[strlen(x) - 5] - '0';
            unsorted += number != k;
            seen |= 1 << number;
            (void)sfp__source_name(test, i + k, y, sizeof y); /* the test part keeps the order of its list */
            assert_int_equal(y[strlen(y) - 5] - '0', k);
        }
        assert_int_equal(seen, 31); /* all five images of this bucket */
    }
    assert_true(differ > 200 && unsorted > 200);
}

TEST(an_order_shuffles_classes)
{
    make_replica("clear10", 1);
    sfp_source *s = open_with(&sfp__source_clear10, false, 1, 3);
    int moved = 0;
    for (int64_t i = 0; i < s->count; i++) {
        sfp_record r = record_of(s, i);
        int64_t place = i / 10;
        assert_int_equal(r.task, place < 3 ? 0 : 1 + (place - 3) / 2);
        moved += r.label != place;
    }
    assert_true(moved > 30);
    assert_string_equal(s->class_names[0], "disc");
}

#define META "c/train/labeled_metadata.json"

TEST(buckets_are_sorted_by_number_and_names_may_be_one_level_up)
{
    PUT_TEXTS({"c/class_names.txt", "\xef\xbb\xbf"
                                    "cat\r\ndog\r\n"},
              {META, "{\"10\": {\"cat\": \"a.json\"}, \"9\": {\"cat\": \"b.json\", \"dog\": \"c.json\"}}"},
              {"c/train/a.json", "{\"x\": {\"IMG_PATH\": \"ten.jpg\", \"other\": 1}}"},
              {"c/train/b.json", "{\"x\": {\"IMG_PATH\": \"nine.jpg\"}}"},
              {"c/train/c.json", "{\"x\": {\"IMG_PATH\": \"dog.jpg\"}}"}, {"c/train/nine.jpg", "9"});
    sfp_source *s = open_with(&sfp__source_clear10, false, 1, 0);
    assert_int_equal(s->count, 3);
    check_bytes(s, 0, "9", 1);
    assert_true(record_of(s, 1).time == 10);
    assert_string_equal(label_text(s, 2), "dog");
    assert_non_null(strstr(s->warning, "1 lists of images do not exist (one per bucket and class)"));
    check_not_loaded(s, 1, SFP_ENOTFOUND, "train/ten.jpg", "");
}
