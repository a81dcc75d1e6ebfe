/* The feature cache (io/feature_cache.h): values survive, damage is detected, and writers do not disturb each
 * other. */
#include "io/feature_cache.h"

#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>

#include "temp_directory.h"
#include "test.h"

enum { WIDTH = 12 };

AROUND_EACH(make_directory, remove_directory)

static sfp__feature_cache *open_limited(uint64_t max_bytes)
{
    sfp__feature_cache *c = NULL;
    MUST(sfp__feature_cache_open(in_directory("cache"), max_bytes, &c, &err));
    return c;
}

static sfp__feature_cache *open_cache(void)
{
    return open_limited(1 << 30);
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
    sfp__feature_cache_put(c, &key, WIDTH, value);
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
    if (!sfp__feature_cache_get(c, &key, WIDTH, value))
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

static void sql(const char *text)
{
    sqlite3 *d = NULL;
    assert_int_equal(sqlite3_open(in_directory("cache/features.db"), &d), SQLITE_OK);
    assert_int_equal(sqlite3_exec(d, text, NULL, NULL, NULL), SQLITE_OK);
    (void)sqlite3_close(d);
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
    for (int round = 0; round < 3; round++) {
        OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *c = open_cache();
        assert_int_equal(count(c, 0, 300), 100 * round);
        put_range(c, 0, 100 * (round + 1));
        assert_int_equal(count(c, 0, 300), 100 * (round + 1));
    }
}

TEST(values_of_another_width_are_not_found)
{
    OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *c = open_cache();
    const sfp__digest key = key_of(1);
    float value[WIDTH] = {7};
    put(c, 1);
    assert_false(sfp__feature_cache_get(c, &key, WIDTH - 1, value));
    assert_true(value[0] == 7);
    assert_true(has(c, 1));
}

TEST(a_damaged_value_is_detected_and_replaced)
{
    OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *c = open_cache();
    put_range(c, 0, 10);
    sql("UPDATE features SET value = zeroblob(48) WHERE rowid = 4");
    sql("UPDATE features SET crc = crc + 1 WHERE rowid = 7");
    sql("UPDATE features SET value = x'00' WHERE rowid = 9");
    assert_int_equal(count(c, 0, 10), 7);
    assert_int_equal(sfp__feature_cache_get_stats(c).damaged, 3);
    put_range(c, 0, 10);
    OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *again = open_cache();
    assert_int_equal(count(again, 0, 10), 10);
    assert_int_equal(sfp__feature_cache_get_stats(again).damaged, 0);
}

TEST(two_writers_see_the_values_of_each_other)
{
    OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *a = open_cache(), *b = open_cache();
    for (int i = 0; i < 100; i++)
        put(i % 2 ? a : b, i);
    assert_int_equal(count(a, 0, 100), 100);
    assert_int_equal(count(b, 0, 100), 100);
}

TEST(a_full_cache_accepts_no_more_and_keeps_what_it_has)
{
    OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *c = open_limited(20 * 4096);
    put_range(c, 0, 2000);
    assert_true(sfp__feature_cache_get_stats(c).full);
    assert_string_equal(sfp__feature_cache_get_stats(c).problem, "");
    int n = count(c, 0, 2000);
    assert_in_range(n, 100, 1000);
    assert_int_equal(count(c, 0, n), n);
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
    assert_int_equal(count(c, 0, 2000), 2000);
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
        assert_in_range(count(c, 0, 100000), 2, 100000);
        assert_int_equal(sfp__feature_cache_get_stats(c).damaged, 0);
    }
}

static void refused(const char *message)
{
    sfp__feature_cache *c = NULL;
    REFUSED(sfp__feature_cache_open(in_directory("cache"), 1 << 20, &c, &err), SFP_EFORMAT, message);
    assert_null(c);
}

TEST(a_file_that_is_not_a_cache_is_refused)
{
    sfp__feature_cache_close(open_cache());
    sql("PRAGMA user_version = 1");
    refused("features.db: not a feature cache of this version; remove the file");
    char garbage[5000];
    memset(garbage, 'x', sizeof garbage);
    put_bytes("cache/features.db", garbage, sizeof garbage);
    refused("features.db: not a feature cache, or damaged (");
}

TEST(a_path_that_is_not_a_directory_is_refused)
{
    sfp__feature_cache *c = NULL;
    put_text("file", "x");
    REFUSED(sfp__feature_cache_open(in_directory("file"), 1, &c, &err), SFP_EINVAL,
            "file: not a directory, expected the directory of a cache");
    assert_null(c);
}
