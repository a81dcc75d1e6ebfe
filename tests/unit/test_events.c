#include "run/run_internal.h"

#include "temp_directory.h"
#include "test.h"

#include <jansson.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

DEFINE_OWNED_PTR(json_t, json_decref)

static const char *name(int i)
{
    return in_directory(i ? kept_print("events.jsonl.%d", i) : "events.jsonl");
}

static void drop_dir(void)
{
    for (int i = 0; i < 20; i++)
        (void)unlink(name(i));
    assert_int_equal(rmdir(directory), 0); /* fails if any other file is left */
}

AROUND_EACH(make_directory, drop_dir)

/* Returns the contents of file i, "" if it does not exist. */
static const char *text_of(int i)
{
    return access(name(i), F_OK) == 0 ? file_text(name(i)) : "";
}

static sfp__line_log *open_events(uint64_t from, size_t max_bytes, int keep)
{
    sfp__line_log *e = NULL;
    MUST(sfp__line_log_open(directory, SFP__RUN_EVENTS, "t", from, max_bytes, keep, &e, &err));
    return e;
}

static sfp_status write_one(sfp__line_log *e, uint64_t t, sfp_error *why)
{
    static const uint64_t ids[3] = {10, UINT64_MAX, 12};
    static const float similarity[3] = {0.1f, NAN, -0.25f};
    static const int coreset[2] = {2, 0}, replay_count[2] = {1, 3}, replay[8] = {7, -1, -1, -1, 4, 5, 6, -1};
    static const int retained[1] = {1}, replaced[1] = {99};
    static const double loss[2] = {1.5, 0.1};
    sfp__timestamp_details ts = {.t = t,
                                 .task = 1,
                                 .offered = 3,
                                 .similarity = similarity,
                                 .coreset_count = 2,
                                 .coreset = coreset,
                                 .steps = 2,
                                 .replay_count = replay_count,
                                 .replay = replay,
                                 .loss = loss};
    ts.buffer = (sfp__buffer_change){.stored = 2, .nu = 1, .retained = retained, .replaced = replaced};
    ts.seconds.total = 0.125;
    return sfp__journal_event(e, &ts, 4, ids, NULL, NULL, why);
}

static void write_range(sfp__line_log *e, uint64_t from, uint64_t to)
{
    for (uint64_t t = from; t < to; t++)
        MUST(write_one(e, t, NULL));
    MUST(sfp__line_log_flush(e, NULL));
}

static void write_file(uint64_t from, uint64_t to, size_t max_bytes, int keep)
{
    OWNED_PTR(sfp__line_log_close) sfp__line_log *e = open_events(from, max_bytes, keep);
    write_range(e, from, to);
}

/* Checks that after opening, the log ends with the line of timestamp t; -1: it is empty. */
static void check_last(uint64_t from, size_t max_bytes, int64_t t)
{
    uint64_t last = 99;
    OWNED_PTR(sfp__line_log_close) sfp__line_log *e = open_events(from, max_bytes, 3);
    assert_int_equal(sfp__line_log_last(e, &last), t >= 0);
    assert_int_equal(last, t >= 0 ? (uint64_t)t : 99);
}

TEST(opening_returns_the_last_remaining_line)
{
    check_last(4, 0, -1); /* no file */
    sfp__line_log *e = open_events(0, 0, 0);
    write_range(e, 0, 6);
    MUST(sfp__line_log_sync(e, NULL));
    sfp__line_log_close(e);
    check_last(9, 0, 5); /* the log ends before the timestamp of the checkpoint */
    check_last(4, 0, 3);
    assert_int_equal(truncate(name(0), (off_t)strlen(text_of(0)) - 5), 0); /* a torn last line */
    check_last(4, 0, 2);
    check_last(0, 0, -1);
    write_file(0, 6, 700, 3); /* at most two lines per file */
    assert_true(strlen(text_of(1)) > 0);
    check_last(6, 700, 5);
    assert_int_equal(unlink(name(0)), 0); /* the previous file is read */
    check_last(6, 700, strstr(text_of(1), "{\"t\":4,") ? 4 : 3);
}

TEST(a_line_has_the_documented_fields)
{
    OWNED_PTR(sfp__line_log_close) sfp__line_log *e = open_events(0, 0, 0);
    write_range(e, 5, 6);
    const char *text = text_of(0);
    assert_true(strchr(text, '\n') == text + strlen(text) - 1);
    static const char expected[] =
        "{\"t\":5,\"task\":1,\"offered\":[10,18446744073709551615,12],\"similarity\":[0.1,null,-0.25],\"coreset\":[2,0],"
        "\"replay\":[[7],[4,5,6]],\"loss\":[1.5,0.1],\"stored\":2,\"nu\":1,\"retained\":[1],\"replaced\":[99],\"seconds\"";
    assert_int_equal(strncmp(text, expected, sizeof expected - 1), 0);
    HOLDS(text, "\"total\":0.125000}}\n");
}

TEST(without_scores_similarity_is_null)
{
    sfp__line_log *e = open_events(0, 0, 0);
    sfp__timestamp_details ts = {.t = 0};
    MUST(sfp__journal_event(e, &ts, 0, NULL, NULL, NULL, NULL));
    sfp__line_log_close(e);
    json_error_t why;
    OWNED_PTR(json_decref) json_t *line = json_loads(text_of(0), 0, &why);
    assert_non_null(line);
    assert_true(json_is_null(json_object_get(line, "similarity")));
    assert_int_equal(json_array_size(json_object_get(line, "replay")), 0);
}

TEST(without_a_selector_the_coreset_is_the_batch)
{
    static const uint64_t ids[2] = {7, 8};
    sfp__line_log *e = open_events(0, 0, 0);
    sfp__timestamp_details ts = {.t = 3, .task = 2, .offered = 2, .coreset_count = 2};
    MUST(sfp__journal_event(e, &ts, 1, ids, NULL, NULL, NULL));
    sfp__line_log_close(e);
    assert_non_null(
        strstr(text_of(0), "{\"t\":3,\"task\":2,\"offered\":[7,8],\"similarity\":null,\"coreset\":[0,1],\"replay\":[],"));
}

TEST(a_line_of_a_live_stream_has_the_time_and_the_names_and_labels_of_its_samples)
{
    static const uint64_t ids[2] = {7, 8};
    static char cat[] = "cat", dog[] = "dog";
    char *const classes[] = {cat, dog};
    const sfp__sample samples[2] = {{.id = 7, .label = 1, .name = "in/a \"b\".png"}, {.id = 8, .label = 0}};
    sfp__line_log *e = open_events(0, 0, 0);
    sfp__timestamp_details ts = {.t = 3, .offered = 2, .coreset_count = 2};
    MUST(sfp__journal_event(e, &ts, 1, ids, samples, classes, NULL));
    sfp__line_log_close(e);
    json_error_t why;
    OWNED_PTR(json_decref) json_t *line = json_loads(text_of(0), 0, &why);
    const char *name, *first, *second, *time = json_string_value(json_object_get(line, "time"));
    json_t *none = NULL;
    assert_int_equal(json_unpack(line, "{s:[s,o],s:[s,s]}", "names", &name, &none, "labels", &first, &second), 0);
    assert_string_equal(name, "in/a \"b\".png");
    assert_true(json_is_null(none));
    assert_string_equal(first, "dog");
    assert_string_equal(second, "cat");
    assert_int_equal(strlen(time), strlen("2026-01-02T03:04:05.678Z"));
    assert_true(time[10] == 'T' && time[19] == '.' && time[23] == 'Z');
}

TEST(a_resumed_run_writes_the_same_file)
{
    write_file(0, 30, 0, 0);
    const char *whole = text_of(0);
    for (uint64_t from = 1; from <= 30; from += 7) {
        append_text("events.jsonl", "{\"t\":30,\"task\":1,\"off"); /* torn when the process was killed */
        write_file(from, 30, 0, 0);
        assert_string_equal(text_of(0), whole);
    }
    write_file(0, 0, 0, 0); /* a new run in an old directory */
    assert_string_equal(text_of(0), "");
}

TEST(a_resumed_run_continues_rotated_files)
{
    enum { LARGEST = 2000 };
    const char *whole[4];
    for (int keep = 0; keep <= 3; keep += 3) {
        write_file(0, 23, LARGEST, keep);
        for (int i = 0; i < 4; i++) {
            whole[i] = text_of(i);
            assert_true(strlen(whole[i]) <= LARGEST);
            assert_int_equal(*whole[i] != '\0', i <= keep);
        }
        /* lines from 16 on are in two files; files that rotation deleted are not recreated */
        write_file(keep ? 16 : 22, 23, LARGEST, keep);
        for (int i = 0; i < 3; i++)
            assert_string_equal(text_of(i), whole[i]);
        write_file(0, 0, LARGEST, keep);
        assert_true(access(name(1), F_OK) != 0 && access(name(0), F_OK) == 0);
    }
}

TEST(an_interrupted_rotation_is_completed)
{
    write_file(0, 6, 1 << 20, 2);
    move("events.jsonl", "events.jsonl.1"); /* killed between the rename and the creation of the new file */
    write_file(4, 5, 1 << 20, 2);
    HOLDS(text_of(0), "{\"t\":0,", "\n{\"t\":4,");
    assert_null(strstr(text_of(0), "{\"t\":5,"));
    assert_true(access(name(1), F_OK) != 0);
}

static int count_lines(int i)
{
    int lines = 0;
    for (const char *p = text_of(i); *p; p++)
        lines += *p == '\n';
    return lines;
}

/* As logrotate does: with copytruncate, by moving the file away, and by creating an empty one after that. */
TEST(a_log_that_another_program_cuts_moves_or_removes_is_continued)
{
    sfp__line_log *e = open_events(0, 1 << 20, 2);
    write_range(e, 0, 3);
    assert_int_equal(truncate(name(0), 0), 0);
    write_range(e, 3, 5);
    assert_int_equal(count_lines(0), 2);
    assert_int_equal(strncmp(text_of(0), "{\"t\":3,", 7), 0); /* no hole before it */
    move("events.jsonl", "events.jsonl.7");
    write_range(e, 5, 6);
    assert_int_equal(count_lines(0), 1);
    assert_int_equal(count_lines(7), 2);
    move("events.jsonl", "events.jsonl.8");
    put_text("events.jsonl", "");
    write_range(e, 6, 8);
    assert_int_equal(count_lines(0), 2);
    assert_int_equal(unlink(name(0)), 0);
    write_range(e, 8, 9);
    MUST(sfp__line_log_sync(e, &err));
    sfp__line_log_close(e);
    assert_int_equal(count_lines(0), 1);
    put_text("events.jsonl.1", "not a log\n"); /* of another program */
    write_file(8, 10, 1 << 20, 2);
    assert_int_equal(count_lines(0), 2);
}

TEST(a_file_that_is_not_a_log_is_refused)
{
    static const char *const bad[] = {
        "hello\n", "{\"t\":}\n", "{\"t\":1\n", "{\"t\":-1,}\n", "{\"t\":99999999999999999999999,}\n", "\n"};
    sfp__line_log *e = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        (void)unlink(name(0));
        append_text("events.jsonl", "{\"t\":0,\"x\":{}}\n");
        append_text("events.jsonl", bad[i]);
        REFUSED(sfp__line_log_open(directory, SFP__RUN_EVENTS, "t", 5, 0, 0, &e, &err), SFP_EFORMAT,
                "events.jsonl:2: not a line");
    }
    (void)unlink(name(0));
    assert_int_equal(mkdir(name(0), 0777), 0);
    assert_int_not_equal(sfp__line_log_open(directory, SFP__RUN_EVENTS, "t", 5, 0, 0, &e, &err), SFP_OK);
    assert_int_not_equal(sfp__line_log_open(directory, SFP__RUN_EVENTS, "t", 0, 0, 0, &e, &err), SFP_OK);
    assert_int_equal(rmdir(name(0)), 0);
    assert_int_equal(mkfifo(name(0), 0666), 0); /* opening it must not wait for a writer */
    assert_int_equal(sfp__line_log_open(directory, SFP__RUN_EVENTS, "t", 5, 0, 0, &e, &err), SFP_EINVAL);
    assert_int_equal(sfp__line_log_open("/tmp/sfp_no_such_directory", SFP__RUN_EVENTS, "t", 0, 0, 0, &e, &err), SFP_ENOTFOUND);
    assert_int_equal(sfp__line_log_open(directory, SFP__RUN_EVENTS, "t", 0, 0, -1, &e, &err), SFP_EINVAL);
    assert_null(e);
}

TEST(a_full_disk_is_reported_and_leaves_whole_lines)
{
    struct rlimit old, tight = {3000, 3000};
    sfp__line_log *e = open_events(0, 0, 0);
    write_range(e, 0, 3);
    size_t before = strlen(text_of(0));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    tight.rlim_max = old.rlim_max;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    for (uint64_t t = 3; t < 20; t++)
        MUST(write_one(e, t, &err)); /* only buffered */
    assert_int_equal(sfp__line_log_flush(e, &err), SFP_EIO);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_non_null(strstr(err.message, "cannot write: File too large"));
    assert_int_equal(strlen(text_of(0)), before);
    MUST(sfp__line_log_flush(e, &err)); /* there is space again: no line was lost */
    sfp__line_log_close(e);
    assert_int_equal(count_lines(0), 20);
    assert_non_null(strstr(text_of(0), "\n{\"t\":19,"));
}

TEST(long_runs_need_neither_flush_nor_allocation)
{
    sfp__line_log *e = open_events(0, 100000, 2);
    for (uint64_t t = 0; t < 1000; t++)
        MUST(write_one(e, t, NULL));
    unsigned long allocations = sfp__mem_count();
    for (uint64_t t = 1000; t < 3000; t++)
        MUST(write_one(e, t, NULL));
    assert_true(sfp__mem_count() == allocations);
    sfp__line_log_close(e);
    struct stat st;
    for (int i = 0; i <= 2; i++)
        assert_true(stat(name(i), &st) == 0 && st.st_size <= 100000);
    assert_true(stat(name(3), &st) != 0);
}
