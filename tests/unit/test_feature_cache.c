/* The directory of the feature cache (io/feature_cache.h): values survive, damage is detected, and writers do not disturb each
 * other. */
#include "io/feature_cache.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "temp_directory.h"
#include "test.h"

enum { WIDTH = 12, HEADER = 40, RECORD = 24 + WIDTH * 4, KIND = 1 };

AROUND_EACH(make_directory, remove_directory)

static const sfp__digest context = {{5, 6}};

static sfp__feature_cache *open_cache_as(sfp__digest of, int width, uint64_t max_bytes)
{
    const sfp__feature_cache_options o = {
        .directory = in_directory("cache"), .max_bytes = max_bytes, .context = of, .width = width};
    sfp__feature_cache *c = NULL;
    MUST(sfp__feature_cache_open(&o, &c, &err));
    return c;
}

static sfp__feature_cache *open_cache(void)
{
    return open_cache_as(context, WIDTH, 1 << 30);
}

static sfp__digest key_of(int i)
{
    return sfp__digest_bytes((sfp__digest){{0}}, &i, sizeof i);
}

static void put(sfp__feature_cache *c, int i)
{
    float value[WIDTH];
    const sfp__digest key = key_of(i);
    for (int k = 0; k < WIDTH; k++)
        value[k] = (float)(i * 100 + k);
    sfp__feature_cache_put(c, KIND, &key, value);
}

static void put_range(sfp__feature_cache *c, int from, int to)
{
    for (int i = from; i < to; i++)
        put(c, i);
}

/* Returns whether value i is found; it must then be correct. */
static bool has(sfp__feature_cache *c, int i)
{
    float value[WIDTH] = {0};
    const sfp__digest key = key_of(i);
    if (!sfp__feature_cache_get(c, KIND, &key, value))
        return false;
    for (int k = 0; k < WIDTH; k++)
        assert_true(value[k] == (float)(i * 100 + k));
    return true;
}

static int count(sfp__feature_cache *c, int from, int to)
{
    int n = 0;
    for (int i = from; i < to; i++)
        n += has(c, i);
    return n;
}

/* Lists the segments; returns their number and writes the path of the last one. */
static int segments(char *last, size_t size)
{
    int n = 0;
    DIR *d = opendir(in_directory("cache"));
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, ".features")) {
            n++;
            if (last)
                (void)snprintf(last, size, "%s/%s", in_directory("cache"), e->d_name);
        }
    (void)closedir(d);
    return n;
}

static long size_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (long)st.st_size;
}

static void flip_bit(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    int byte = getc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    (void)putc(byte ^ 4, f);
    assert_int_equal(fclose(f), 0);
}

TEST(digests_differ_by_each_bit_the_length_and_the_start)
{
    uint8_t bytes[100] = {0};
    const sfp__digest zero = {{0}}, whole = sfp__digest_bytes(zero, bytes, sizeof bytes);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        const sfp__digest other = sfp__digest_bytes(zero, bytes, sizeof bytes);
        assert_true(other.word[0] != whole.word[0] && other.word[1] != whole.word[1]);
        bytes[bit / 8] = 0;
    }
    for (size_t n = 0; n < sizeof bytes; n++) {
        const sfp__digest shorter = sfp__digest_bytes(zero, bytes, n);
        assert_false(sfp__digest_equal(&shorter, &whole));
    }
    const sfp__digest next = sfp__digest_bytes(whole, bytes, sizeof bytes);
    assert_false(sfp__digest_equal(&next, &whole));
    assert_true(whole.word[0] != whole.word[1]);
}

TEST(values_are_found_when_they_are_put_and_after_the_directory_is_opened_again)
{
    float value[WIDTH] = {7};
    const sfp__digest key = key_of(3);
    for (int round = 0; round < 3; round++) {
        OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *c = open_cache();
        assert_int_equal(sfp__feature_cache_get_stats(c).entries, 1000 * (uint64_t)round);
        assert_int_equal(count(c, 0, 3000), 1000 * round);
        assert_false(sfp__feature_cache_get(c, KIND + 1, &key, value)); /* the same key of another kind */
        put_range(c, 0, 1000 * (round + 1));                            /* those that are known are not added again */
        assert_int_equal(sfp__feature_cache_get_stats(c).added, 1000);
        assert_int_equal(count(c, 0, 3000), 1000 * (round + 1));
    }
    char path[512];
    assert_int_equal(segments(path, sizeof path), 1); /* later processes append to the segment of the first */
    assert_int_equal(size_of(path), HEADER + 3000 * RECORD);
}

TEST(values_of_another_context_or_width_are_not_found)
{
    const sfp__digest other = {{5, 7}};
    for (int round = 0; round < 2; round++) {
        OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *a = open_cache();
        OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *b = open_cache_as(other, WIDTH, 1 << 30);
        OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *c = open_cache_as(context, WIDTH + 1, 1 << 30);
        assert_int_equal(count(a, 0, 20), round ? 10 : 0);
        assert_int_equal(count(b, 0, 20), round ? 5 : 0);
        assert_int_equal(sfp__feature_cache_get_stats(c).entries, 0);
        put_range(a, 0, 10);
        put_range(b, 10, 15);
    }
}

TEST(an_incomplete_record_is_ignored_and_overwritten)
{
    char path[512];
    sfp__feature_cache_close(({
        sfp__feature_cache *c = open_cache();
        put_range(c, 0, 10);
        c;
    }));
    assert_int_equal(segments(path, sizeof path), 1);
    for (long cut = 1; cut < RECORD; cut += 7) {
        assert_int_equal(truncate(path, HEADER + 10 * RECORD - cut), 0);
        OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *c = open_cache();
        assert_int_equal(count(c, 0, 10), 9);
        assert_false(has(c, 9));
        put(c, 9);
        assert_int_equal(size_of(path), HEADER + 10 * RECORD);
        OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *again = open_cache();
        assert_int_equal(count(again, 0, 10), 10);
        assert_int_equal(sfp__feature_cache_get_stats(again).damaged, 0);
    }
    assert_int_equal(truncate(path, HEADER - 3), 0); /* killed while the header was written */
    OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *c = open_cache();
    assert_int_equal(sfp__feature_cache_get_stats(c).entries, 0);
}

TEST(a_flipped_bit_is_detected_and_the_value_is_replaced)
{
    char path[512];
    sfp__feature_cache_close(({
        sfp__feature_cache *c = open_cache();
        put_range(c, 0, 10);
        c;
    }));
    assert_int_equal(segments(path, sizeof path), 1);
    for (long at = 20; at < RECORD; at++) { /* the checksum and the value; not the key */
        flip_bit(path, HEADER + 4 * RECORD + at);
        OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *c = open_cache();
        assert_int_equal(count(c, 0, 10), 9);
        assert_int_equal(sfp__feature_cache_get_stats(c).damaged, 1);
        assert_false(has(c, 4));
        put(c, 4);
        assert_true(has(c, 4));
        OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *again = open_cache();
        assert_int_equal(count(again, 0, 10), 10);
        assert_int_equal(size_of(path), HEADER + 10 * RECORD); /* in place */
    }
    flip_bit(path, HEADER + 4 * RECORD); /* a damaged key: the value is missing and is added again */
    OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *c = open_cache();
    assert_int_equal(count(c, 0, 10), 9);
    put(c, 4);
    assert_int_equal(count(c, 0, 10), 10);
    assert_int_equal(size_of(path), HEADER + 11 * RECORD);
}

TEST(a_record_that_is_damaged_while_the_cache_is_open_is_detected)
{
    char path[512];
    OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *c = open_cache();
    put_range(c, 0, 3);
    assert_int_equal(segments(path, sizeof path), 1);
    assert_true(has(c, 1));
    flip_bit(path, HEADER + 2 * RECORD - 1);
    assert_false(has(c, 1));
    assert_int_equal(truncate(path, HEADER + RECORD), 0);
    assert_false(has(c, 2));
    assert_true(has(c, 0));
}

TEST(two_writers_use_two_segments_and_later_ones_see_both)
{
    sfp__feature_cache *a = open_cache(), *b = open_cache();
    for (int i = 0; i < 100; i++)
        put(i % 2 ? a : b, i);
    put(a, 200);
    put(b, 200); /* b does not know that a has it */
    sfp__feature_cache_close(a);
    sfp__feature_cache_close(b);
    assert_int_equal(segments(NULL, 0), 2);
    a = open_cache();
    assert_int_equal(count(a, 0, 201), 101);
    put(a, 300);
    sfp__feature_cache_close(a);
    assert_int_equal(segments(NULL, 0), 2);
}

TEST(a_full_directory_accepts_no_more_and_keeps_what_it_has)
{
    OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *c = open_cache_as(context, WIDTH, HEADER + 50 * RECORD);
    put_range(c, 0, 100);
    assert_true(sfp__feature_cache_get_stats(c).full);
    char path[512];
    assert_int_equal(segments(path, sizeof path), 1);
    assert_in_range(size_of(path), HEADER + 49 * RECORD, HEADER + 50 * RECORD);
    int n = count(c, 0, 100);
    assert_in_range(n, 49, 50);
    assert_int_equal(count(c, 0, n), n);
    /* segments of other contexts count, too */
    OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *d = open_cache_as((sfp__digest){{1, 1}}, WIDTH, HEADER + 50 * RECORD);
    put_range(d, 0, 10);
    assert_int_equal(count(d, 0, 10), 0);
}

static void *put_and_get(void *cache)
{
    for (int i = 0; i < 2000; i++) {
        put(cache, i);
        assert_true(has(cache, i));
        (void)has(cache, 1999 - i);
    }
    return NULL;
}

TEST(threads_may_put_and_get_at_the_same_time)
{
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *c = open_cache();
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, put_and_get, c), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(sfp__feature_cache_get_stats(c).added, 2000);
    assert_int_equal(sfp__feature_cache_get_stats(c).damaged, 0);
}

TEST(processes_that_are_killed_leave_only_correct_values)
{
    for (int round = 0; round < 5; round++) {
        pid_t child[2];
        int ends[2];
        char byte;
        assert_int_equal(pipe(ends), 0);
        for (int k = 0; k < 2; k++)
            if ((child[k] = fork()) == 0) {
                sfp__feature_cache *c = open_cache();
                for (int i = k;; i += 2) {
                    put(c, i % 100000);
                    if (i == k && write(ends[1], "", 1) != 1)
                        _exit(1);
                }
            }
        for (int k = 0; k < 2; k++) /* both have begun */
            assert_int_equal(read(ends[0], &byte, 1), 1);
        (void)usleep(20000);
        (void)close(ends[0]);
        (void)close(ends[1]);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(kill(child[k], SIGKILL), 0);
            assert_int_equal(waitpid(child[k], NULL, 0), child[k]);
        }
        OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *c = open_cache();
        assert_int_equal(count(c, 0, 100000), (int)sfp__feature_cache_get_stats(c).entries);
        assert_int_equal(sfp__feature_cache_get_stats(c).damaged, 0);
    }
    assert_in_range(segments(NULL, 0), 1, 2);
}

TEST(other_files_are_ignored_and_counted)
{
    sfp__feature_cache_close(({
        sfp__feature_cache *c = open_cache();
        put_range(c, 0, 10);
        c;
    }));
    char path[512];
    assert_int_equal(segments(path, sizeof path), 1);
    char *text = file_text(path);
    text[8]++; /* the version */
    put_bytes("cache/later.features", text, HEADER + RECORD);
    put_text("cache/mine.features", "a text that someone else has written to this file");
    put_text("cache/notes.txt", "not a segment");
    OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *c = open_cache();
    assert_int_equal(sfp__feature_cache_get_stats(c).ignored, 2);
    assert_int_equal(count(c, 0, 10), 10);
}

TEST(a_path_that_is_not_a_directory_is_refused)
{
    sfp__feature_cache *c = NULL;
    put_text("file", "x");
    const sfp__feature_cache_options o = {.directory = in_directory("file"), .max_bytes = 1, .width = WIDTH};
    REFUSED(sfp__feature_cache_open(&o, &c, &err), SFP_EINVAL, "file: not a directory, expected the directory of a cache");
    assert_null(c);
}
