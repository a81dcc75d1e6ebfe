/* Directories of classes: layouts, order, links, and files that are not images. */
#include "source_files.h"
#include "test.h"

#include <sys/stat.h>

AROUND_EACH(make_directory, remove_directory)

static const sfp__source_kind *const kind = &sfp__source_folder;

TEST(directories_are_classes)
{
    PUT_TEXTS({"d/dog/b.jpg", "D"}, {"d/cat/img10.png", "C10"}, {"d/cat/img9.PNG", "C9"}, {"d/cat/more/deep/x.webp", "CX"},
              {"d/10/a.jpeg", "T"}, {"d/9/a.jpg", "N"});
    sfp_source *s = open_source(kind, "d");
    CHECK_CLASSES(s, "9", "10", "cat", "dog"); /* numbers by value, then bytes */
    assert_int_equal(s->domains, 0);
    assert_false(s->keeps_order);
    assert_null(s->warning);
    CHECK_LABELS(s, "9", "10", "cat", "cat", "cat", "dog");
    check_bytes(s, 2, "C9", 2); /* 9 before 10 */
    check_bytes(s, 3, "C10", 3);
    check_bytes(s, 4, "CX", 2);
    check_name(s, 4, "cat/more/deep/x.webp");
    sfp_record r = record_of(s, 0);
    assert_int_equal(r.task, -1);
    assert_true(isnan(r.time));
    check_bounds(s);
}

TEST(directories_of_directories_are_domains)
{
    PUT_TEXTS({"d/sketch/dog/1.jpg", "a"}, {"d/photo/dog/1.jpg", "b"}, {"d/photo/cat/2.jpg", "c"},
              {"d/photo/readme.txt", "not an image"});
    sfp_source *s = open_source(kind, "d");
    assert_int_equal(s->classes, 2);
    assert_int_equal(s->domains, 2);
    CHECK_LABELS(s, "photo/cat", "photo/dog", "sketch/dog");
    assert_int_equal(s->skipped, 1);
    assert_string_equal(s->warning, "excluded: 1 files that are not JPEG, PNG or WebP (first: photo/readme.txt)");
}

TEST(images_on_both_levels_follow_the_majority)
{
    PUT_TEXTS({"d/sketch/dog/1.jpg", "a"}, {"d/photo/dog/1.jpg", "b"}, {"d/photo/cat/2.jpg", "c"}, {"d/photo/preview10.jpg", "x"},
              {"d/photo/preview9.jpg", "x"});
    sfp_source *s = open_source(kind, "d");
    assert_int_equal(s->count, 3);
    assert_int_equal(s->domains, 2);
    assert_string_equal(label_text(s, 0), "photo/cat");
    check_bytes(s, 2, "a", 1);
    assert_int_equal(s->skipped, 2);
    assert_string_equal(s->warning, "excluded: 2 images outside a class directory (first: photo/preview9.jpg)");
    put_text("d/photo/3.jpg", "x"); /* as many images: photo is a class, and the images below it belong to it */
    s = open_source(kind, "d");
    assert_int_equal(s->domains, 0);
    assert_int_equal(s->count, 6);
    assert_string_equal(label_text(s, 0), "photo");
    assert_null(s->warning);
}

TEST(a_directory_name_common_to_all_classes_is_ignored)
{
    PUT_TEXTS({"d/n01/images/1.JPEG", "1"}, {"d/n01/n01_boxes.txt", "boxes"}, {"d/n02/images/1.JPEG", "2"},
              {"d/n02/images/2.JPEG", "3"});
    sfp_source *s = open_source(kind, "d");
    assert_int_equal(s->count, 3);
    assert_int_equal(s->domains, 0);
    assert_int_equal(s->classes, 2);
    CHECK_FIRST_LABELS(s, "n01", "n02");
    assert_non_null(strstr(
        s->warning, "every directory has its images in 'images': the directories above are the classes; excluded: 1 files"));
    put_text("d/n02/image/3.JPEG", "3"); /* where the names differ, they are classes */
    s = open_source(kind, "d");
    assert_int_equal(s->domains, 2);
    assert_int_equal(s->classes, 2);
    put_text("e/photo/apple/1.jpg", "1"); /* a single directory in a single one: no ambiguity */
    s = open_source(kind, "e");
    assert_string_equal(label_text(s, 0), "photo/apple");
    assert_null(s->warning);
}

TEST(parts_taken_as_domains_cause_a_warning)
{
    PUT_TEXTS({"d/Train/cat/1.jpg", "1"}, {"d/Train/dog/1.jpg", "2"}, {"d/val/cat/1.jpg", "3"});
    sfp_source *s = open_source(kind, "d/");
    assert_int_equal(s->domains, 2);
    assert_non_null(
        strstr(s->warning, kept_print("--data folder:%s --test folder:%s", in_directory("d/Train"), in_directory("d/val"))));
    move("d/val", "d/photo");
    assert_null(open_source(kind, "d")->warning);
}

TEST(other_files_and_empty_directories_are_counted)
{
    put_text("d/a/1.jpg", "1");
    put_text("d/b/notes/x.txt", "no image");
    assert_int_equal(mkdir(in_directory("d/c"), 0777), 0);
    assert_int_equal(mkdir(in_directory("d/a/inside"), 0777), 0); /* not a class of its own */
    assert_int_equal(symlink("nowhere.png", in_directory("d/a/broken.png")), 0);
    assert_int_equal(mkfifo(in_directory("d/a/fifo.jpg"), 0666), 0);
    assert_int_equal(mkfifo(in_directory("d/a/fifo"), 0666), 0); /* not the name of an image */
    sfp_source *s = open_source(kind, "d");
    assert_int_equal(s->count, 1);
    assert_int_equal(s->classes, 1);
    assert_int_equal(s->skipped, 3);
    assert_string_equal(s->warning, "excluded: 1 files that are not JPEG, PNG or WebP (first: b/notes/x.txt); "
                                    "excluded: 2 entries that are not regular files, or broken links (first: a/broken.png); "
                                    "excluded: 2 directories without images (first: b/)");
    put_text("e/photo/cat/1.jpg", "1");
    put_text("e/sketch/dog/1.jpg", "1");
    assert_int_equal(mkdir(in_directory("e/sketch/cat"), 0777), 0);
    assert_int_equal(symlink("/nowhere/horse", in_directory("e/sketch/horse")), 0); /* may have been a class */
    s = open_source(kind, "e");
    assert_string_equal(s->warning, "excluded: 1 entries that are not regular files, or broken links (first: sketch/horse); "
                                    "excluded: 1 directories without images (first: sketch/cat/)");
}

TEST(links_are_followed_but_not_in_circles)
{
    put_text("d/a/1.jpg", "1");
    put_text("far/2.jpg", "2");
    assert_int_equal(symlink("../../far", in_directory("d/a/linked")), 0);
    assert_int_equal(symlink("..", in_directory("d/a/up")), 0);
    assert_int_equal(symlink("..", in_directory("far/top")), 0);
    assert_int_equal(symlink("nowhere.jpg", in_directory("d/a/broken.jpg")), 0);
    assert_int_equal(symlink("1.jpg", in_directory("d/a/3.jpg")), 0);
    sfp_source *s = open_source(kind, "d");
    assert_int_equal(s->count, 3);
    check_bytes(s, 0, "1", 1);
    check_bytes(s, 1, "1", 1); /* the link to a file */
    check_bytes(s, 2, "2", 1); /* through the link to a directory */
}

TEST(an_image_that_cannot_be_read_is_named)
{
    PUT_TEXTS({"d/a/1.jpg", ""}, {"d/a/2.jpg", "x"}, {"d/a/3.jpg", "x"});
    sfp_source *s = open_source(kind, "d");
    check_not_loaded(s, 0, SFP_EFORMAT, "d/a/1.jpg", "is empty");
    assert_int_equal(unlink(in_directory("d/a/2.jpg")), 0);
    check_not_loaded(s, 1, SFP_ENOTFOUND, "d/a/2.jpg", "No such file");
    check_bytes(s, 2, "x", 1);
}

TEST(numbers_in_names_compare_as_numbers)
{
    static const char *const sorted[] = {"",  "1",    "01",    "2",   "10", "99999999999999999999", "100000000000000000000",
                                         "a", "a1b2", "a1b10", "a10", "b"};
    int n = (int)(sizeof sorted / sizeof *sorted);
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            int order = sfp__natural_compare(sorted[i], sorted[j]);
            if (strcmp(sorted[i], "1") == 0 && strcmp(sorted[j], "01") == 0)
                assert_int_not_equal(order, 0);
            else if (!(strcmp(sorted[i], "01") == 0 && strcmp(sorted[j], "1") == 0))
                assert_int_equal((order > 0) - (order < 0), (i > j) - (i < j));
            assert_int_equal(sfp__natural_compare(sorted[j], sorted[i]) > 0, order < 0);
        }
    }
    assert_true(sfp__name_compare("2", "10") < 0);
    assert_true(sfp__name_compare("a2", "a10") > 0); /* bytes */
    assert_true(sfp__name_compare("10", "1a") < 0);
}

TEST(many_names_keep_their_numbers)
{
    OWNED_BY(sfp__names_done) sfp__names t = {0};
    int32_t id, *new_of = NULL;
    char name[16];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 5000; i++) {
            (void)snprintf(name, sizeof name, "n%d", i * 7919 % 5000);
            MUST(sfp__names_add(&t, name, strlen(name), &id, &err));
            assert_int_equal(id, i);
        }
    }
    MUST(sfp__names_sort(&t, &new_of, &err));
    for (int i = 0; i < 5000; i++) {
        (void)snprintf(name, sizeof name, "n%d", i * 7919 % 5000);
        assert_int_equal(sfp__names_find(&t, name, strlen(name)), new_of[i]);
        if (i > 0)
            assert_true(strcmp(t.name[i - 1], t.name[i]) < 0);
    }
    assert_int_equal(sfp__names_find(&t, "n", 1), -1);
    assert_int_equal(sfp__names_add(&t, "", 0, &id, &err), SFP_EFORMAT);
    assert_int_equal(sfp__names_add(&t, "a\0b", 3, &id, &err), SFP_EFORMAT);
    for (int i = 5000; i < SFP__CLASSES_MAX; i++) {
        (void)snprintf(name, sizeof name, "m%d", i);
        MUST(sfp__names_add(&t, name, strlen(name), &id, &err));
    }
    assert_int_equal(sfp__names_add(&t, "one more", 8, &id, &err), SFP_ELIMIT);
    sfp__free(new_of);
}
