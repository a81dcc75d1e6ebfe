/* A watched directory: existing files, new files, skipped files, and how the stream ends. */
#include "base/monotonic.h"

#include "source_files.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>

AROUND_EACH(make_directory, remove_directory)

static sfp_source *open_dir(const char *name)
{
    return open_source(&sfp__source_dir, name);
}

static int warnings_of(const sfp_source *s)
{
    return atomic_load(&s->live->warning_count);
}

static void check_dir_skipped(sfp_source *s, const char *name, sfp_status status, const char *why)
{
    assert_true(check_skipped(s, name, status, why).stored);
}

TEST(existing_files_are_delivered_first_in_natural_order)
{
    PUT_TEXTS({"w/dog/10.jpg", "d10"}, {"w/dog/9.jpg", "d9"}, {"w/cat/1.png", "c1"}, {"w/loose.jpg", "l"},
              {"w/dog/notes.txt", "no image"}, {"w/dog/.hidden.jpg", "not yet"}, {"w/.secret/x.jpg", "no"}, {"w/.end", ""});
    sfp_source *s = open_dir("w");
    assert_int_equal(s->count, -1);
    assert_true(s->kind->live && s->keeps_order);
    CHECK_CLASSES(s, "cat", "dog");
    CHECK_NEXT(s, {"cat", "c1"}, {"dog", "d9"}, {"dog", "d10"}, {"-", "l"});
    check_end(s);
}

TEST(files_are_delivered_when_closed_or_moved_in)
{
    put_text("w/cat/1.jpg", "c1");
    sfp_source *s = open_dir("w");
    check_next(s, "cat", "c1");
    put_text("w/cat/2.jpg", "c2");
    put_text("w/cat/.tmp3", "c3");
    move("w/cat/.tmp3", "w/cat/3.jpg");
    put_text("w/4.jpg", "l4");
    put_text("w/cat/2.jpg", "again"); /* rewritten: a new image; the old contents are not delivered */
    put_text("w/.end", "");
    put_text("w/cat/5.jpg", "too late");
    CHECK_NEXT(s, {"cat", "again"}, {"cat", "c3"}, {"-", "l4"});
    check_end(s);
}

TEST(a_file_being_written_waits_until_it_is_closed)
{
    put_text("w/cat/0.jpg", "x");
    sfp_source *s = open_dir("w");
    check_next(s, "cat", "x");
    FILE *f = fopen(in_directory("w/cat/1.jpg"), "wb");
    assert_non_null(f);
    assert_int_equal(fputs("first", f) >= 0, 1);
    assert_int_equal(fflush(f), 0);
    put_text("w/cat/2.jpg", "second");
    check_next(s, "cat", "second");
    assert_int_equal(fclose(f), 0);
    check_next(s, "cat", "first");
}

/* The number of events for which the kernel has a place; 0: unknown. */
static long most_events(void)
{
    long most = 0;
    FILE *f = fopen("/proc/sys/fs/inotify/max_queued_events", "r");
    if (f && fscanf(f, "%ld", &most) != 1) /* NOLINT(cert-err34-c): a number of the kernel */
        most = 0;
    if (f)
        (void)fclose(f);
    return most;
}

/* Events are lost. Images that arrived before, and those whose events are lost, are delivered once each. */
TEST(after_an_overflow_of_events_each_image_is_delivered_once)
{
    const char *const others[] = {in_directory("w/dog/notes"), in_directory("w/dog/draft")};
    long most = most_events();
    if (most < 1 || most > 1 << 20)
        skip();
    PUT_TEXTS({"w/cat/1.jpg", "c1"}, {"w/cat/2.jpg", "c2"}, {"w/dog/notes", ""}, {"w/dog/draft", ""});
    sfp_source *s = open_dir("w");
    CHECK_NEXT(s, {"cat", "c1"}, {"cat", "c2"});
    put_text("w/cat/3.jpg", "c3");
    check_next(s, "cat", "c3");
    put_text("w/cat/4.jpg", "c4");     /* its event is the first in the queue of the kernel */
    for (long i = 0; i <= most; i++) { /* two files in turn: equal events in a row become one */
        int fd = open(others[i % 2], O_WRONLY);
        assert_true(fd >= 0);
        assert_int_equal(close(fd), 0);
    }
    PUT_TEXTS({"w/cat/5.jpg", "c5"}, {"w/bird/6.jpg", "b6"}, {"w/7.jpg", "l7"});
    CHECK_NEXT(s, {"cat", "c4"}, {"bird", "b6"}, {"cat", "c5"}, {"-", "l7"});
    put_text("w/bird/8.jpg", "b8");
    check_next(s, "bird", "b8");
    put_text("w/.end", "");
    check_end(s);
}

/* Returns whether the kernel reports that a file is open for writing. */
static bool has_leases(void)
{
    put_text("probe", "x");
    int writer = open(in_directory("probe"), O_WRONLY), reader = open(in_directory("probe"), O_RDONLY);
    bool reported = fcntl(reader, F_SETLEASE, F_RDLCK) != 0 && errno == EAGAIN;
    (void)close(writer);
    (void)close(reader);
    return reported;
}

TEST(an_existing_file_being_written_waits_until_it_is_closed)
{
    if (!has_leases())
        skip();
    PUT_TEXTS({"w/cat/1.jpg", "c1"}, {"w/.end", ""}, {"w/cat/2.jpg", ""});
    int writer = open(in_directory("w/cat/2.jpg"), O_WRONLY);
    assert_true(writer >= 0);
    assert_int_equal(write(writer, "in p", 4), 4);
    sfp_source *s = open_dir("w");
    check_next(s, "cat", "c1");
    check_next(s, "cat", "in p"); /* a file that does not change is delivered after a while, although it is still open */
    check_end(s);
    assert_int_equal(remove(in_directory("w/.end")), 0);
    s = open_dir("w");
    check_next(s, "cat", "c1");
    assert_int_equal(write(writer, "arts", 4), 4);
    assert_int_equal(close(writer), 0);
    check_next(s, "cat", "in parts");
    put_text("w/.end", "");
    check_end(s);
}

typedef struct slow_writer {
    int fd;
    atomic_bool stop;
    double pause; /* the longest time between two writes */
} slow_writer;

static void *write_slowly(void *ctx)
{
    slow_writer *w = ctx;
    for (double now, last = sfp__monotonic_seconds(); !atomic_load(&w->stop) && write(w->fd, "x", 1) == 1; last = now) {
        (void)usleep(20000);
        now = sfp__monotonic_seconds();
        w->pause = fmax(w->pause, now - last);
    }
    return NULL;
}

/* Returns false if the writer was so slow that the file seemed to be complete, as on a machine that was suspended. */
static bool skips_what_is_written(void)
{
    PUT_TEXTS({"w/cat/1.jpg", "c1"}, {"w/cat/2.jpg", ""}, {"w/.end", ""});
    slow_writer w = {.fd = open(in_directory("w/cat/2.jpg"), O_WRONLY | O_APPEND)};
    pthread_t thread;
    sfp_record r;
    sfp__raw_image p = {0};
    sfp_error why = {0};
    bool end = false;
    assert_true(w.fd >= 0);
    assert_int_equal(pthread_create(&thread, NULL, write_slowly, &w), 0);
    sfp_source *s = open_dir("w");
    check_next(s, "cat", "c1");
    sfp_status status = sfp__source_next(s, &r, &p, &end, &why);
    sfp__raw_image_done(&p);
    atomic_store(&w.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(close(w.fd), 0);
    if (!status && w.pause > 1)
        return false;
    assert_true(status == SFP_EFORMAT && s->live->lost);
    assert_non_null(strstr(why.message, "cat/2.jpg: file was still open for writing when the stream ended"));
    check_end(s);
    return true;
}

TEST(a_file_still_being_written_at_the_end_is_skipped)
{
    if (!has_leases())
        skip();
    while (!skips_what_is_written())
        ;
}

TEST(a_file_that_changes_while_it_waits_is_delivered_once)
{
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    PUT_TEXTS({"w/cat/1.jpg", "c1"}, {"w/cat/2.jpg", ""}, {"w/cat/3.jpg", "c3"});
    sfp_source *s = open_dir("w");
    put_text("w/cat/2.jpg", "c2");                                                   /* causes an event */
    assert_int_equal(utimensat(AT_FDCWD, in_directory("w/cat/3.jpg"), times, 0), 0); /* causes no event */
    put_text("w/.end", "");
    CHECK_NEXT(s, {"cat", "c1"}, {"cat", "c2"}, {"cat", "c3"});
    check_end(s);
}

TEST(later_directories_are_watched)
{
    put_text("w/classes.txt", "zebra\ncat\n");
    put_text("w/dog/1.jpg", "d1");
    sfp_source *s = open_dir("w");
    CHECK_CLASSES(s, "zebra", "cat", "dog"); /* classes of the list, then those of other directories */
    check_next(s, "dog", "d1");
    put_text("w/zebra/1.jpg", "z1"); /* the image may exist before its directory is watched */
    check_next(s, "zebra", "z1");
    put_text("w/zebra/2.jpg", "z2");
    check_next(s, "zebra", "z2");
    char **names = s->class_names;
    put_text("w/new/1.jpg", "n1"); /* a class that was unknown */
    check_next(s, "new", "n1");
    assert_int_equal(s->classes, 4);
    move("w/new", "w/cat"); /* the same directory under another name */
    check_next(s, "cat", "n1");
    put_text("w/cat/2.jpg", "c2");
    check_next(s, "cat", "c2");
    put_text(".ready/3.jpg", "c3"); /* a directory that is moved in with its files */
    assert_int_equal(remove(in_directory("w/dog/1.jpg")), 0);
    assert_int_equal(rmdir(in_directory("w/dog")), 0);
    move(".ready", "w/dog");
    check_next(s, "dog", "c3");
    assert_int_equal(s->classes, 4);
    assert_ptr_equal(s->class_names, names); /* other threads may read it meanwhile */
    put_text("w/.end", "");
    check_end(s);
}

enum { NOBODY = 65534 };

/* Root may read everything: the test runs as another user, who owns the directory. */
static void make_directory_as_nobody(void)
{
    make_directory();
    assert_true(geteuid() != 0 || (chown(directory, NOBODY, NOBODY) == 0 && seteuid(NOBODY) == 0));
}

static void remove_directory_as_ourselves(void)
{
    assert_int_equal(seteuid(getuid()), 0);
    remove_directory();
}

TEST_AROUND(a_directory_that_cannot_be_watched_causes_a_warning_and_others_continue, make_directory_as_nobody,
            remove_directory_as_ourselves)
{
    put_text("w/cat/1.jpg", "c1");
    put_text("w/dog/1.jpg", "d1");
    sfp_source *s = open_dir("w");
    CHECK_NEXT(s, {"cat", "c1"}, {"dog", "d1"});
    assert_int_equal(mkdir(in_directory("w/secret"), 0), 0);
    assert_int_equal(mkdir(in_directory("w/unreachable"), 0400), 0); /* its files can be listed, but not read */
    put_text("w/cat/2.jpg", "c2");
    put_text("w/dog/2.jpg", "d2");
    CHECK_NEXT(s, {"cat", "c2"}, {"dog", "d2"});
    assert_int_equal(warnings_of(s), 2);
    assert_non_null(
        strstr(s->live->warnings[0], "w/secret: cannot watch the directory: Permission denied; its images are not delivered"));
    assert_non_null(strstr(s->live->warnings[1], "w/unreachable: cannot watch the directory"));
    const sfp_source *other = open_dir("w"); /* the same for directories that exist when the source is opened */
    assert_int_equal(warnings_of(other), 2);
    assert_int_equal(other->classes, 2);
    assert_int_equal(chmod(in_directory("w/secret"), 0755), 0); /* from now on they can be read */
    put_text("w/secret/1.jpg", "s1");
    check_next(s, "secret", "s1");
    assert_int_equal(warnings_of(s), 2);
}

TEST(a_second_name_of_a_watched_directory_is_ignored)
{
    PUT_TEXTS({"w/cat/1.jpg", "c1"}, {"w/2.jpg", "l2"}, {"far/3.jpg", "f3"}, {"farther/7.jpg", "f7"});
    assert_int_equal(symlink(".", in_directory("w/loop")), 0);
    assert_int_equal(symlink("cat", in_directory("w/a")), 0); /* although it precedes cat by name */
    assert_int_equal(symlink("../far", in_directory("w/far")), 0);
    sfp_source *s = open_dir("w");
    CHECK_CLASSES(s, "cat", "far"); /* the last directory is listed once */
    assert_int_equal(warnings_of(s), 2);
    HOLDS(s->live->warnings[0], "w/a: ignored, because it is ", "w/cat under another name");
    assert_non_null(strstr(s->live->warnings[1], "w/loop: ignored"));
    CHECK_NEXT(s, {"-", "l2"}, {"cat", "c1"}, {"far", "f3"});
    put_text("w/cat/4.jpg", "c4");
    put_text("w/5.jpg", "l5");
    CHECK_NEXT(s, {"cat", "c4"}, {"-", "l5"});
    put_text("w/new/6.jpg", "n6"); /* the directory at the top is still watched */
    check_next(s, "new", "n6");
    assert_int_equal(symlink("../farther", in_directory("w/later")), 0);
    check_next(s, "later", "f7");
    move("w/cat", "w/lynx"); /* a directory that has no other name was renamed */
    CHECK_NEXT(s, {"lynx", "c1"}, {"lynx", "c4"});
    put_text("w/.end", "");
    check_end(s);
}

TEST(a_directory_that_cannot_name_a_class_causes_a_warning)
{
    put_text("w/cat/1.jpg", "c1");
    sfp_source *s = open_dir("w");
    check_next(s, "cat", "c1");
    put_text("w/\xff\xfe/1.jpg", "x1");
    put_text("w/\xff\xfe/2.jpg", "x2");
    CHECK_NEXT(s, {"-", "x1"}, {"-", "x2"});
    assert_int_equal(warnings_of(s), 1);
    assert_non_null(strstr(s->live->warnings[0], "are not labelled: the name '\\xff\\xfe' is not UTF-8"));
    s = open_dir("w"); /* the same if it exists when the source is opened */
    assert_int_equal(s->classes, 1);
    CHECK_NEXT(s, {"cat", "c1"}, {"-", "x1"});
    assert_int_equal(warnings_of(s), 1);
}

TEST(an_unreadable_file_is_skipped)
{
    PUT_TEXTS({"w/cat/1.jpg", ""}, {"w/cat/3.jpg", "good"}, {"w/.end", ""});
    sfp_source *s = open_dir("w");
    check_dir_skipped(s, "cat/1.jpg", SFP_EFORMAT, "cat/1.jpg: file is empty");
    check_next(s, "cat", "good");
    assert_false(s->live->lost);
    check_end(s);
}

TEST(a_file_that_is_removed_or_moved_before_it_is_read_is_not_a_sample)
{
    PUT_TEXTS({"w/cat/1.jpg", "1"}, {"w/cat/2.jpg", "gone soon"}, {"w/cat/3.jpg", "3"}, {"w/dog/.keep", ""});
    OWNED_PTR(sfp__store_close) sfp__store *store = NULL;
    MUST(sfp__store_open(NULL, &store, &err));
    sfp_source *s = open_dir("w");
    MUST(s->ops->set_store(s, store, &err));
    move("w/cat/1.jpg", "w/dog/1.jpg");
    assert_int_equal(remove(in_directory("w/cat/2.jpg")), 0);
    put_text("w/.end", "");
    CHECK_NEXT(s, {"cat", "3"}, {"dog", "1"});
    check_end(s);
    assert_int_equal(sfp__store_next_id(store), 2);
    assert_int_equal(warnings_of(s), 1);
    assert_non_null(strstr(s->live->warnings[0], "cat/1.jpg: removed or moved before it was read"));
}

TEST(the_stream_fails_when_the_directory_is_moved)
{
    sfp_record r;
    sfp__raw_image p = {0};
    bool end = false;
    put_text("w/cat/1.jpg", "c1");
    sfp_source *s = open_dir("w");
    check_next(s, "cat", "c1");
    move("w", "v");
    for (int i = 0; i < 2; i++)
        REFUSED(sfp__source_next(s, &r, &p, &end, &err), SFP_ENOTFOUND, "w: the directory was removed, moved or unmounted");
    assert_false(end);
}

/* Checks that the source delivers this image again because its label has arrived or has changed. Returns its id. */
static uint64_t check_again(sfp_source *s, const char *name, const char *label, const char *bytes)
{
    check_next(s, label, bytes);
    sfp__origin o = origin_of(s);
    assert_string_equal(o.name, name);
    assert_true(o.stored && o.urgent);
    return o.id;
}

/* The same for an image that was not delivered before. */
static uint64_t check_new(sfp_source *s, const char *name, const char *label, const char *bytes)
{
    check_next(s, label, bytes);
    sfp__origin o = origin_of(s);
    assert_string_equal(o.name, name);
    assert_true(o.stored && !o.urgent && o.at > 0);
    return o.id;
}

TEST(labels_of_a_list_may_precede_or_follow_their_images)
{
    PUT_TEXTS({"w/labels.csv", "\xef\xbb\xbfname,label\nearly.jpg,cat\n, \nno comma\nlater.jpg,cat\n"}, {"w/1.jpg", "1"},
              {"w/early.jpg", "e"});
    sfp_source *s = open_dir("w");
    CHECK_NEXT(s, {"-", "1"}, {"cat", "e"});
    assert_int_equal(warnings_of(s), 1);
    assert_non_null(strstr(s->live->warnings[0], "w/labels.csv:3: line was skipped, expected NAME,LABEL"));
    put_text("w/later.jpg", "l");
    check_next(s, "cat", "l");
    FILE *f = fopen(in_directory("w/labels.csv"), "ab");
    assert_non_null(f);
    assert_true(fputs("1.jpg , a dog\r\nx,y.jpg,cat\nhalf", f) >= 0);
    assert_int_equal(fflush(f), 0);
    (void)check_again(s, "1.jpg", "a dog", "1");
    put_text("w/x,y.jpg", "xy");
    (void)check_new(s, "x,y.jpg", "cat", "xy");
    put_text("w/half.jpg", "h");
    (void)check_new(s, "half.jpg", "-", "h");
    assert_true(fputs(".jpg,a dog\n", f) >= 0);
    assert_int_equal(fclose(f), 0);
    (void)check_again(s, "half.jpg", "a dog", "h"); /* when its line is complete */
    assert_int_equal(remove(in_directory("w/labels.csv")), 0);
    put_text("w/labels.csv", "1.jpg,cat\n"); /* another file: read from its beginning */
    (void)check_again(s, "1.jpg", "cat", "1");
    put_text("w/.end", "");
    check_end(s);
}

TEST(a_last_label_without_a_line_end_counts_when_the_stream_ends)
{
    PUT_TEXTS({"w/1.jpg", "1"}, {"w/2.jpg", "2"}, {"w/labels.csv", "1.jpg,cat"});
    sfp_source *s = open_dir("w");
    check_next(s, "-", "1"); /* its line may be incomplete */
    append_text("w/labels.csv", "fish\n2.jpg,dog");
    check_next(s, "-", "2");
    (void)check_again(s, "1.jpg", "catfish", "1");
    put_text("w/.end", "");
    (void)check_again(s, "2.jpg", "dog", "2");
    check_end(s);
    assert_int_equal(warnings_of(s), 0);
    put_text("w/labels.csv", "1.jpg,cat\n2.jpg"); /* an incomplete line is ignored */
    s = open_dir("w");
    CHECK_NEXT(s, {"cat", "1"}, {"-", "2"});
    check_end(s);
    assert_int_equal(warnings_of(s), 1);
    assert_non_null(strstr(s->live->warnings[0], "w/labels.csv:2: line was skipped, expected NAME,LABEL"));
}

TEST(labels_and_names_may_be_quoted)
{
    put_text("w/1.jpg", "1");
    put_text("w/labels.csv", "\"name\",\"label\"\r\n\"1.jpg\",cat\n");
    sfp_source *s = open_dir("w");
    check_next(s, "cat", "1");
    append_text("w/labels.csv", "\"un,comma.jpg\",dog\n"
                                " \"say \"\"a\"\".jpg\" , \"a \"\"b\"\", c\" \r\n"
                                "x,y.jpg,\"cat, big\"\n"
                                "x,z.jpg,cat\n"
                                "12\".jpg,cat\n"
                                "3.jpg,12\"\n"
                                "\" .jpg\",\"dog\"\n");
    static const char *const rows[][2] = {{"un,comma.jpg", "dog"}, {"say \"a\".jpg", "a \"b\", c"},
                                          {"x,y.jpg", "cat, big"}, {"x,z.jpg", "cat"},
                                          {"12\".jpg", "cat"}, /* a quote inside a field is an ordinary character */
                                          {"3.jpg", "12\""},       {" .jpg", "dog"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        put_text(kept_print("w/%s", rows[i][0]), rows[i][0]);
        (void)check_new(s, rows[i][0], rows[i][1], rows[i][0]);
    }
    assert_int_equal(warnings_of(s), 0);
}

TEST(a_wrongly_quoted_label_is_skipped_and_reported)
{
    static const char *const wrong[] = {
        "\"1.jpg,cat",
        "\"1.jpg\"x,cat",
        "\"1.jpg\"",
        "\"1.jpg\",\"cat",
        "\"1.jpg\",\"cat\"x",
        "1.jpg,\"cat",
        "1.jpg,\"c\"at",
        "1.jpg,\"a\",cat",
        "\"\",cat",
        "1.jpg,\"\"",
        "\"1.jpg\",",
        "\"1.jpg\",a,b",
        "\"",
        "\"1.jpg\" \",cat",
    };
    PUT_TEXTS({"w/1.jpg", "1"}, {"w/2.jpg", "2"}, {"w/.end", ""});
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put_text("w/labels.csv", wrong[i]);
        append_text("w/labels.csv", "\n2.jpg,dog\n");
        sfp_source *s = open_dir("w");
        CHECK_NEXT(s, {"-", "1"}, {"dog", "2"});
        assert_int_equal(warnings_of(s), 1);
        assert_non_null(strstr(s->live->warnings[0], "w/labels.csv:1: line was skipped, expected NAME,LABEL"));
        check_end(s);
    }
}

TEST(a_label_line_that_is_too_long_is_skipped_to_its_end)
{
    enum { PIECE = 65536 }; /* what is read at a time */
    char *line = kept_calloc(2 * PIECE + 1, 1);
    PUT_TEXTS({"w/1.jpg", "1"}, {"w/2.jpg", "2"}, {"w/.end", ""});
    for (size_t n = PIECE; n <= 2 * PIECE; n += PIECE / 2) {
        memset(line, 'x', n);
        put_text("w/labels.csv", line);
        append_text("w/labels.csv", "1.jpg,cat\n2.jpg,dog\n"); /* the first label belongs to the line */
        sfp_source *s = open_dir("w");
        CHECK_NEXT(s, {"-", "1"}, {"dog", "2"});
        assert_int_equal(warnings_of(s), 1);
        assert_non_null(strstr(s->live->warnings[0], "w/labels.csv:1: line was skipped, expected NAME,LABEL"));
        check_end(s);
    }
}

/* ----------------------------------------------------------------- identity */

TEST(an_image_moved_or_linked_into_a_class_keeps_its_identity)
{
    PUT_TEXTS({"w/cat/.keep", ""}, {"w/1.jpg", "1"}, {"w/2.jpg", "2"});
    sfp_source *s = open_dir("w");
    uint64_t first = check_new(s, "1.jpg", "-", "1"), second = check_new(s, "2.jpg", "-", "2");
    assert_true(first != second);
    move("w/1.jpg", "w/cat/renamed.jpg");
    assert_int_equal(check_again(s, "cat/renamed.jpg", "cat", "1"), first);
    assert_int_equal(link(in_directory("w/2.jpg"), in_directory("w/cat/2.jpg")), 0);
    assert_int_equal(check_again(s, "cat/2.jpg", "cat", "2"), second);
    put_text("w/3.jpg", "3");
    uint64_t third = check_new(s, "3.jpg", "-", "3");
    assert_int_equal(symlink("../3.jpg", in_directory("w/cat/3.jpg")), 0);
    assert_int_equal(check_again(s, "cat/3.jpg", "cat", "3"), third);
}

/* Checks that nothing is delivered but a new image. */
static void check_nothing(sfp_source *s)
{
    static int count;
    const char *name = kept_print("mark/%d.jpg", ++count);
    put_text(kept_print("w/%s", name), name);
    (void)check_new(s, name, "mark", name);
}

/* A temporary store, also of the tests below that look at what it says. */
KEEP_BY(keep_store, sfp__store, sfp__store_close)

static sfp__store *make_store(void)
{
    sfp__store *store = NULL;
    MUST(sfp__store_open(NULL, &store, &err));
    return keep_store(store);
}

static sfp_source *open_stored(const char *name, sfp__store *store)
{
    sfp_source *s = open_dir(name);
    MUST(s->ops->set_store(s, store, &err));
    return s;
}

/* Checks what the store says about a sample: "NAME LABEL". */
static void check_row(sfp__store *store, uint64_t id, const char *expected)
{
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    MUST(sfp__store_get(store, id, &row, &err));
    assert_string_equal(kept_print("%s %s", row.name ? row.name : "-", row.label ? row.label : "-"), expected);
}

TEST(a_moved_file_keeps_its_id_and_is_delivered_with_its_new_label)
{
    PUT_TEXTS({"w/cat/1.jpg", "1"}, {"w/mark/.keep", ""}, {"w/dog/.keep", ""});
    sfp__store *store = make_store();
    sfp_source *s = open_stored("w", store);
    uint64_t id = check_new(s, "cat/1.jpg", "cat", "1");
    move("w/cat/1.jpg", "w/dog/2.jpg");
    assert_int_equal(check_again(s, "dog/2.jpg", "dog", "1"), id);
    check_row(store, id, "dog/2.jpg dog");
    MUST(sfp__store_learned(store, id, "dog", &err));
    move("w/dog/2.jpg", "w/dog/3.jpg"); /* the same label */
    check_nothing(s);
    check_row(store, id, "dog/3.jpg dog");
    move("w/dog/3.jpg", "w/4.jpg"); /* a place without a label does not take it away */
    check_nothing(s);
    check_row(store, id, "4.jpg dog");
    put_text("w/labels.csv", "4.jpg,owl\n");
    assert_int_equal(check_again(s, "4.jpg", "owl", "1"), id);
    assert_int_equal(sfp__store_get_counts(store).corrected, 1); /* one sample, although twice */
}

/* Copies a file with its times, as cp -p does. */
static void copy(const char *from, const char *to)
{
    struct stat st;
    put_text(to, file_text(in_directory(from)));
    assert_int_equal(stat(in_directory(from), &st), 0);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    assert_int_equal(utimensat(AT_FDCWD, in_directory(to), times, 0), 0);
}

TEST(a_copy_whose_original_is_removed_is_the_same_sample)
{
    PUT_TEXTS({"w/cat/1.jpg", "1"}, {"w/mark/.keep", ""}, {"w/dog/.keep", ""});
    sfp__store *store = make_store();
    sfp_source *s = open_stored("w", store);
    uint64_t id = check_new(s, "cat/1.jpg", "cat", "1");
    copy("w/cat/1.jpg", "w/dog/1.jpg");
    assert_int_equal(remove(in_directory("w/cat/1.jpg")), 0);
    assert_int_equal(check_again(s, "dog/1.jpg", "dog", "1"), id);
    MUST(sfp__store_learned(store, id, "dog", &err));
    copy("w/dog/1.jpg", "w/dog/2.jpg");
    assert_int_equal(remove(in_directory("w/dog/1.jpg")), 0);
    check_nothing(s);
    check_row(store, id, "dog/2.jpg dog");
}

/* The file of a new image may get the inode, the size and the times of a removed one. */
TEST(a_new_image_with_the_size_and_times_of_a_removed_one_is_delivered)
{
    const struct timespec times[2] = {{.tv_sec = 5}, {.tv_sec = 5}};
    PUT_TEXTS({"w/cat/.keep", ""}, {"w/mark/.keep", ""});
    sfp_source *s = open_dir("w");
    for (int i = 0; i < 10; i++) {
        const char *text = kept_print("%d", i), *name = kept_print("cat/%d.jpg", i);
        put_text("next", text);
        assert_int_equal(utimensat(AT_FDCWD, in_directory("next"), times, 0), 0);
        move("next", kept_print("w/%s", name));
        (void)check_new(s, name, "cat", text);
        assert_int_equal(remove(in_directory(kept_print("w/%s", name))), 0);
    }
}

TEST(the_same_bytes_under_two_names_are_two_samples)
{
    PUT_TEXTS({"w/cat/1.jpg", "1"}, {"w/cat/2.jpg", "1"}, {"w/dog/.keep", ""});
    sfp_source *s = open_dir("w");
    uint64_t first = check_new(s, "cat/1.jpg", "cat", "1"), second = check_new(s, "cat/2.jpg", "cat", "1");
    assert_true(first != second);
    put_text("w/dog/3.jpg", "1");
    uint64_t third = check_new(s, "dog/3.jpg", "dog", "1");
    assert_true(third != first && third != second);
    move("w/cat/1.jpg", "w/dog/1.jpg"); /* only the one whose file is gone */
    assert_int_equal(check_again(s, "dog/1.jpg", "dog", "1"), first);
    move("w/cat/2.jpg", "w/dog/2.jpg");
    assert_int_equal(check_again(s, "dog/2.jpg", "dog", "1"), second);
}

TEST(a_file_that_is_touched_or_written_again_with_its_bytes_delivers_nothing)
{
    PUT_TEXTS({"w/cat/1.jpg", "1"}, {"w/2.jpg", "2"}, {"w/mark/.keep", ""});
    sfp__store *store = make_store();
    sfp_source *s = open_stored("w", store);
    uint64_t first = check_new(s, "2.jpg", "-", "2"), second = check_new(s, "cat/1.jpg", "cat", "1");
    for (int i = 0; i < 2; i++) { /* the second time nothing of the stored times is left */
        append_text("w/cat/1.jpg", "");
        put_text("w/2.jpg", "2");
        check_nothing(s);
    }
    assert_int_equal(sfp__store_next_id(store), 4);
    check_row(store, first, "2.jpg -");
    check_row(store, second, "cat/1.jpg cat");
}

TEST(a_file_written_again_with_other_bytes_is_a_new_sample)
{
    PUT_TEXTS({"w/cat/1.jpg", "1"}, {"w/dog/.keep", ""});
    sfp__store *store = make_store();
    sfp_source *s = open_stored("w", store);
    uint64_t first = check_new(s, "cat/1.jpg", "cat", "1");
    put_text("w/cat/1.jpg", "2");
    uint64_t second = check_new(s, "cat/1.jpg", "cat", "2");
    assert_true(first != second);
    put_text("w/labels.csv", "cat/1.jpg,dog\n"); /* of the file that is there now */
    assert_int_equal(check_again(s, "cat/1.jpg", "dog", "2"), second);
    check_row(store, first, "cat/1.jpg cat");
}

TEST(forgotten_bytes_are_not_delivered_again)
{
    PUT_TEXTS({"w/cat/1.jpg", "1"}, {"w/mark/.keep", ""}, {"w/dog/.keep", ""});
    sfp__store *store = make_store();
    sfp_source *s = open_stored("w", store);
    uint64_t id = check_new(s, "cat/1.jpg", "cat", "1");
    MUST(sfp__store_erase(store, 1, &(const uint64_t){id}, NULL, &err));
    put_text("w/cat/1.jpg", "1");
    put_text("w/dog/2.jpg", "1");
    put_text("w/labels.csv", "cat/1.jpg,dog\n");
    check_nothing(s);
    check_row(store, id, "- -");
    assert_int_equal(sfp__store_next_id(store), 2);
}

TEST(an_unreadable_file_is_counted_once_and_delivered_when_it_is_complete)
{
    PUT_TEXTS({"w/cat/1.jpg", ""}, {"w/mark/.keep", ""});
    sfp__store *store = make_store();
    sfp_source *s = open_stored("w", store);
    sfp__origin o = check_skipped(s, "cat/1.jpg", SFP_EFORMAT, "cat/1.jpg: file is empty");
    MUST(sfp__store_refuse(store, o.id, SFP__UNREADABLE, NULL, &err)); /* as the inbox does */
    check_nothing(s);
    put_text("w/cat/1.jpg", "1");
    assert_true(check_new(s, "cat/1.jpg", "cat", "1") != o.id);
}

/* -------------------------------------------------------------- corrections by labels.csv */

TEST(a_label_list_may_have_any_number_of_lines)
{
    enum { LINES = 66000 };
    sfp__text t = {0};
    for (int i = 0; i < LINES; i++)
        sfp__text_printf(&t, "%d.jpg,%s\n", i, i % 2 ? "cat" : "dog");
    PUT_TEXTS({"w/0.jpg", "0"}, {"w/1.jpg", "1"}, {"w/65999.jpg", "2"}, {"w/.end", ""});
    put_text("w/labels.csv", t.s);
    sfp__text_done(&t);
    sfp_source *s = open_dir("w");
    CHECK_NEXT(s, {"dog", "0"}, {"cat", "1"}, {"cat", "2"});
    check_end(s);
}

TEST(a_label_list_rewritten_in_place_is_read_from_its_beginning)
{
    PUT_TEXTS({"w/1.jpg", "1"}, {"w/2.jpg", "2"}, {"w/3.jpg", "3"}, {"w/labels.csv", "1.jpg,cat\n2.jpg,cat\n3.jpg,cat\n"},
              {"w/mark/.keep", ""});
    sfp_source *s = open_dir("w");
    CHECK_NEXT(s, {"cat", "1"}, {"cat", "2"}, {"cat", "3"});
    put_bytes_as("r+b", "w/labels.csv", "1.jpg,cat\n2.jpg,dog\n3.jpg,cat\n", 30); /* the same size */
    (void)check_again(s, "2.jpg", "dog", "2");
    check_nothing(s);
    put_bytes_as("r+b", "w/labels.csv", "22.jpg,dog\n3.jpg,owl\n1.jpg,owl\n", 32); /* longer, with other ends of lines */
    (void)check_again(s, "3.jpg", "owl", "3");
    (void)check_again(s, "1.jpg", "owl", "1");
    put_text("w/labels.csv", "2.jpg,owl\n"); /* shorter */
    (void)check_again(s, "2.jpg", "owl", "2");
    check_nothing(s);
    assert_int_equal(warnings_of(s), 0);
}

TEST(a_later_line_for_a_name_corrects_its_label)
{
    PUT_TEXTS({"w/1.jpg", "1"}, {"w/2.jpg", "2"}, {"w/cat/3.jpg", "3"}, {"w/labels.csv", "1.jpg,cat\n1.jpg,dog\n2.jpg,cat\n"},
              {"w/mark/.keep", ""});
    sfp_source *s = open_dir("w");
    CHECK_NEXT(s, {"dog", "1"}, {"cat", "2"}, {"cat", "3"}); /* before the images arrive, the last line wins */
    append_text("w/labels.csv", "2.jpg,dog\n");
    (void)check_again(s, "2.jpg", "dog", "2");
    append_text("w/labels.csv", "2.jpg,dog\n"); /* nothing new */
    check_nothing(s);
    append_text("w/labels.csv", "cat/3.jpg,dog\n"); /* a line has precedence over the directory */
    (void)check_again(s, "cat/3.jpg", "dog", "3");
}

/* ------------------------------------------------------------------- reopening */

static sfp__store *open_out(void)
{
    sfp__store *store = NULL;
    put_text("out/.keep", "");
    MUST(sfp__store_open(in_directory("out"), &store, &err));
    return store;
}

static void save(sfp__store *store)
{
    int64_t generation = 0;
    MUST(sfp__store_prepare_checkpoint(store, &generation, &err));
    MUST(sfp__store_finish_checkpoint(store, false, &err));
}

TEST(a_second_process_delivers_new_files_and_those_that_wait)
{
    uint64_t waiting, asked;
    PUT_TEXTS({"w/cat/1.jpg", "1"}, {"w/cat/2.jpg", "2"}, {"w/3.jpg", "3"}, {"w/4.jpg", "4"}, {"w/cat/5.jpg", ""});
    {
        OWNED_PTR(sfp__store_close) sfp__store *store = open_out();
        sfp_source *s = open_stored("w", store);
        assert_true(s->ops->pauses);
        asked = check_new(s, "3.jpg", "-", "3");
        uint64_t not_asked = check_new(s, "4.jpg", "-", "4");
        uint64_t learned = check_new(s, "cat/1.jpg", "cat", "1");
        waiting = check_new(s, "cat/2.jpg", "cat", "2");
        uint64_t empty = check_skipped(s, "cat/5.jpg", SFP_EFORMAT, "file is empty").id;
        MUST(sfp__store_learned(store, learned, "cat", &err));
        MUST(sfp__store_refuse(store, empty, SFP__UNREADABLE, NULL, &err));
        MUST(sfp__store_predicted(store, asked, 1, "cat", 0.5, 0.5, 1, &err));
        assert_true(not_asked < waiting);
        save(store);
    }
    put_text("w/cat/6.jpg", "6");
    for (int times = 0; times < 2; times++) { /* samples that wait still do so the second time */
        OWNED_PTR(sfp__store_close) sfp__store *store = open_out();
        MUST(sfp__store_resume(store, 1, &err));
        sfp_source *s = open_stored("w", store);
        check_next(s, "-", "4"); /* it was not predicted yet */
        assert_true(origin_of(s).stored && !origin_of(s).urgent);
        check_next(s, "cat", "2");
        assert_int_equal(origin_of(s).id, waiting);
        assert_string_equal(origin_of(s).name, "cat/2.jpg");
        check_next(s, "cat", "6");
        assert_string_equal(origin_of(s).name, "cat/6.jpg");
        put_text("w/labels.csv", times ? "3.jpg,dog\n" : ""); /* an image that waited for its label is read again */
        if (times)
            assert_int_equal(check_again(s, "3.jpg", "dog", "3"), asked);
        put_text("w/.end", "");
        check_end(s);
    }
}

TEST(moves_and_labels_between_two_processes_are_corrections)
{
    uint64_t ids[3];
    PUT_TEXTS({"w/cat/1.jpg", "1"}, {"w/cat/2.jpg", "2"}, {"w/cat/3.jpg", "3"}, {"w/labels.csv", "x.jpg,cat\n"});
    {
        OWNED_PTR(sfp__store_close) sfp__store *store = open_out();
        sfp_source *s = open_stored("w", store);
        for (int i = 0; i < 3; i++) {
            ids[i] = check_new(s, kept_print("cat/%d.jpg", i + 1), "cat", kept_print("%d", i + 1));
            MUST(sfp__store_learned(store, ids[i], "cat", &err));
        }
        save(store);
    }
    put_text("w/dog/.keep", "");
    move("w/cat/1.jpg", "w/dog/1.jpg");
    append_text("w/labels.csv", "cat/2.jpg,dog\n");
    put_text("w/.end", "");
    OWNED_PTR(sfp__store_close) sfp__store *store = open_out();
    MUST(sfp__store_resume(store, 1, &err));
    sfp_source *s = open_stored("w", store);
    assert_int_equal(check_again(s, "cat/2.jpg", "dog", "2"), ids[1]); /* once, although it is also a label that was read now */
    assert_int_equal(check_again(s, "dog/1.jpg", "dog", "1"), ids[0]);
    check_end(s);
    assert_int_equal(sfp__store_get_counts(store).standing[SFP__LEARNED], 1);
    assert_int_equal(sfp__store_get_counts(store).standing[SFP__WAITING], 2);
}

/* As `streamfp correct` does in the process of the run. */
static void command(sfp_source *s, sfp__store *store, uint64_t id, const char *name, const char *label)
{
    MUST(sfp__store_label(store, id, label, &err));
    MUST(s->ops->decided(s, id, name, &err));
    MUST(sfp__store_learned(store, id, label, &err));
}

TEST(a_command_corrects_what_was_said_before_it_and_is_corrected_by_what_follows)
{
    PUT_TEXTS({"w/cat/1.jpg", "1"}, {"w/cat/2.jpg", "2"}, {"w/dog/.keep", ""}, {"w/labels.csv", "cat/1.jpg,dog\n"},
              {"w/mark/.keep", ""});
    OWNED_PTR(sfp__store_close) sfp__store *store = open_out();
    sfp_source *s = open_stored("w", store);
    uint64_t one = check_new(s, "cat/1.jpg", "dog", "1"), two = check_new(s, "cat/2.jpg", "cat", "2");
    append_text("w/labels.csv", "cat/1.jpg,owl\n"); /* the source sees both only after the commands */
    move("w/cat/2.jpg", "w/dog/2.jpg");
    command(s, store, one, "cat/1.jpg", "fox");
    command(s, store, two, "cat/2.jpg", "fox");
    check_nothing(s);
    check_row(store, one, "cat/1.jpg fox");
    check_row(store, two, "dog/2.jpg fox");
    append_text("w/labels.csv", "cat/1.jpg,owl\n"); /* the same line once more */
    assert_int_equal(check_again(s, "cat/1.jpg", "owl", "1"), one);
    move("w/dog/2.jpg", "w/cat/2.jpg");
    assert_int_equal(check_again(s, "cat/2.jpg", "cat", "2"), two);
    command(s, store, one, "cat/1.jpg", "fox");
    put_text("w/labels.csv", "x.jpg,cat\ncat/1.jpg,owl\n"); /* rewritten: what it said before is not new */
    check_nothing(s);
    check_row(store, one, "cat/1.jpg fox");
    append_text("w/labels.csv", "cat/1.jpg,dog\n");
    assert_int_equal(check_again(s, "cat/1.jpg", "dog", "1"), one);
}

TEST(a_label_list_is_continued_by_a_second_process)
{
    enum { LONG = 100000 };
    char *line = kept_calloc(LONG + 1, 1);
    memset(line, 'x', LONG);
    PUT_TEXTS({"w/1.jpg", "1"}, {"w/2.jpg", "2"}, {"w/3.jpg", "3"}, {"w/labels.csv", "1.jpg,cat\n2.jpg,dog"}, {"w/.end", ""});
    {
        OWNED_PTR(sfp__store_close) sfp__store *store = open_out();
        sfp_source *s = open_stored("w", store);
        CHECK_NEXT(s, {"cat", "1"}, {"-", "2"}, {"-", "3"});
        (void)check_again(s, "2.jpg", "dog", "2"); /* the stream has ended: the line counts without its end */
        check_end(s);
        for (uint64_t id = 0; id < 3; id++)
            MUST(sfp__store_predicted(store, id, 1, NULL, 0, 0, 0, &err));
        MUST(sfp__store_learned(store, 0, "cat", &err));
        MUST(sfp__store_learned(store, 1, "dog", &err));
        save(store);
    }
    append_text("w/labels.csv", "fish\n");
    append_text("w/labels.csv", line); /* a line that is too long, and not complete yet */
    {
        OWNED_PTR(sfp__store_close) sfp__store *store = open_out();
        MUST(sfp__store_resume(store, 1, &err));
        sfp_source *s = open_stored("w", store);
        (void)check_again(s, "2.jpg", "dogfish", "2"); /* the whole line */
        check_end(s);
        MUST(sfp__store_learned(store, 1, "dogfish", &err));
        save(store);
    }
    append_text("w/labels.csv", "1.jpg,owl\n3.jpg,owl\n"); /* the first one belongs to the long line */
    OWNED_PTR(sfp__store_close) sfp__store *store = open_out();
    MUST(sfp__store_resume(store, 2, &err));
    sfp_source *s = open_stored("w", store);
    (void)check_again(s, "3.jpg", "owl", "3");
    check_end(s);
    check_row(store, 0, "1.jpg cat");
}

TEST(an_image_that_was_linked_into_a_class_is_not_asked_about_again)
{
    uint64_t id;
    PUT_TEXTS({"w/1.jpg", "1"}, {"w/cat/.keep", ""});
    {
        OWNED_PTR(sfp__store_close) sfp__store *store = open_out();
        sfp_source *s = open_stored("w", store);
        id = check_new(s, "1.jpg", "-", "1");
        assert_int_equal(link(in_directory("w/1.jpg"), in_directory("w/cat/1.jpg")), 0);
        assert_int_equal(check_again(s, "cat/1.jpg", "cat", "1"), id);
        MUST(sfp__store_learned(store, id, "cat", &err));
        save(store);
    }
    put_text("w/.end", "");
    for (int times = 0; times < 2; times++) {
        OWNED_PTR(sfp__store_close) sfp__store *store = open_out();
        MUST(sfp__store_resume(store, 1, &err));
        check_end(open_stored("w", store));
        check_row(store, id, "1.jpg cat");
    }
}

TEST(the_stream_fails_when_its_path_leads_to_another_directory)
{
    sfp_record r;
    sfp__raw_image p = {0};
    bool end = false;
    PUT_TEXTS({"p/w/cat/1.jpg", "1"}, {"v/cat/2.jpg", "2"});
    assert_int_equal(symlink("p/w", in_directory("link")), 0);
    sfp_source *s = open_dir("link"), *below = open_dir("p/w");
    check_next(s, "cat", "1");
    check_next(below, "cat", "1");
    assert_int_equal(symlink("v", in_directory("new")), 0);
    move("new", "link"); /* in one step, as ln -sfT does with mv */
    REFUSED(sfp__source_next(s, &r, &p, &end, &err), SFP_ENOTFOUND, "link: the directory was removed, moved or unmounted");
    move("p", "q"); /* a directory above it */
    REFUSED(sfp__source_next(below, &r, &p, &end, &err), SFP_ENOTFOUND, "p/w: the directory was removed, moved or unmounted");
    assert_false(end);
}

static void *raise_later(void *flag)
{
    (void)usleep(60000);
    atomic_store((atomic_bool *)flag, true);
    return NULL;
}

TEST(stop_ends_the_wait)
{
    static atomic_bool stop;
    pthread_t thread;
    atomic_store(&stop, false);
    put_text("w/cat/1.jpg", "c1");
    sfp_source *s = open_dir("w");
    s->live->stop = &stop;
    check_next(s, "cat", "c1");
    assert_int_equal(pthread_create(&thread, NULL, raise_later, &stop), 0);
    check_end(s);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void *write_many(void *unused)
{
    for (int i = 0; i < 300; i++) {
        put_text(kept_print("w/c%d/%d.jpg", i % 7, i), kept_print("%d", i));
    }
    put_text("w/.end", "");
    return unused;
}

TEST(every_file_is_delivered_exactly_once)
{
    pthread_t thread;
    int seen[300] = {0};
    bool leases = has_leases();
    put_text("w/c0/.keep", "");
    sfp_source *s = open_dir("w");
    assert_int_equal(pthread_create(&thread, NULL, write_many, NULL), 0);
    for (bool end = false;;) {
        sfp_record r = {0};
        OWNED_BY(sfp__raw_image_done) sfp__raw_image p = {0};
        sfp_status status = sfp__source_next(s, &r, &p, &end, NULL);
        if (end)
            break;
        if (status != SFP_OK) { /* created in a directory just found, and still empty */
            assert_true(s->live->lost);
            continue;
        }
        char text[32] = "";
        assert_true(p.size < sizeof text);
        memcpy(text, p.bytes, p.size);
        long i = strtol(text, NULL, 10);
        assert_in_range(i, 0, 299);
        assert_string_equal(s->class_names[r.label], kept_print("c%ld", i % 7));
        seen[i]++;
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (int i = 0; i < 300;
         /* without leases, a file in a directory just found may be delivered twice, if it is found between creation and
          * writing */
         i++)
        assert_true(leases || i % 7 == 0 ? seen[i] == 1 : seen[i] >= 1);
}

TEST(a_path_that_is_not_a_directory_is_refused)
{
    put_text("file", "x");
    put_text("w/classes.txt", "a\na\n");
    check_refused(&sfp__source_dir, "nothing", SFP_ENOTFOUND, "nothing", "No such file or directory");
    check_refused(&sfp__source_dir, "file", SFP_ENOTFOUND, "file", "not a directory");
    check_refused(&sfp__source_dir, "w", SFP_EFORMAT, "classes.txt:2", "twice");
}
