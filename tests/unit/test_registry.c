#include "results/registry.h"

#include "io/json_read.h"
#include "run_result.h"
#include "temp_directory.h"
#include "test.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char db[128];

static void make_dir(void)
{
    make_directory();
    (void)snprintf(db, sizeof db, "%s/a/b/runs.db", directory);
    assert_int_equal(setenv("STREAMFP_REGISTRY", db, 1), 0);
}

AROUND_EACH(make_dir, remove_directory)

static sfp__registry *open_registry(void)
{
    sfp__registry *r = NULL;
    MUST(sfp__registry_open(&r, &err));
    return r;
}

static int64_t put(sfp__registry *r, const char *where, const sfp_result *result)
{
    int64_t id = -1;
    MUST(sfp__registry_put(r, where, result, &id, &err));
    return id;
}

/* Checks that the run with this number or directory has this result. */
static void check_json(sfp__registry *r, const char *run, const sfp_result *result)
{
    OWNED char *json = NULL;
    MUST(sfp__registry_json(r, run, &json, &err));
    assert_string_equal(json, result_text(result));
}

typedef struct run_row {
    int64_t id;
    char started[32], method[64], data[64], dir[256];
    double average_accuracy, seconds;
    uint64_t seed;
    bool finished, running, gone;
} run_row;

typedef struct rows {
    int count;
    run_row row[100];
} rows;

static sfp_status gather(void *ctx, const char *run, sfp_error *why)
{
    rows *r = ctx;
    OWNED sfp__json_value *root = NULL;
    assert_true(r->count < 100);
    run_row *row = &r->row[r->count++];
    TRY(sfp__json_parse("run", run, strlen(run), &root, why));
    const sfp__json_in in = {"run", why};
    TRY(sfp__json_need_int(&in, root, "id", 1, 1000, &row->id));
    TRY(sfp__json_need_text(&in, root, "started", row->started, sizeof row->started));
    TRY(sfp__json_need_text(&in, root, "method", row->method, sizeof row->method));
    TRY(sfp__json_need_text(&in, root, "data", row->data, sizeof row->data));
    TRY(sfp__json_need_text(&in, root, "dir", row->dir, sizeof row->dir));
    TRY(sfp__json_need_uint(&in, root, "seed", &row->seed));
    TRY(sfp__json_need_real(&in, root, "average_accuracy", 0, 1, &row->average_accuracy));
    TRY(sfp__json_need_real(&in, root, "seconds", 0, 1e9, &row->seconds));
    row->finished = sfp__json_is(sfp__json_get(root, "finished"), SFP__JSON_TRUE);
    row->running = sfp__json_is(sfp__json_get(root, "running"), SFP__JSON_TRUE);
    row->gone = sfp__json_is(sfp__json_get(root, "gone"), SFP__JSON_TRUE);
    return SFP_OK;
}

TEST(a_run_is_found_by_number_and_directory)
{
    OWNED_BY(sfp__result_done) sfp_result result = result_make(2, 2);
    result.seed = UINT64_MAX;
    OWNED_PTR(sfp__registry_close) sfp__registry *r = open_registry();
    int64_t id = put(r, directory, &result);
    const char *names[] = {kept_print("%d", (int)id), directory, in_directory("a/..")};
    for (int i = 0; i < 3; i++)
        check_json(r, names[i], &result);
    char *json = NULL;
    REFUSED(sfp__registry_json(r, "999", &json, &err), SFP_ENOTFOUND, "999");
    assert_int_equal(sfp__registry_json(r, "/nowhere", &json, &err), SFP_ENOTFOUND);
    assert_null(json);
}

TEST(runs_are_listed_newest_first)
{
    OWNED_BY(sfp__result_done) sfp_result result = result_make(2, 2);
    OWNED_PTR(sfp__registry_close) sfp__registry *r = open_registry();
    for (int i = 0; i < 5; i++) {
        (void)snprintf(result.started, sizeof result.started, "2025-01-0%dT00:00:00Z", 1 + (i * 3) % 5);
        (void)put(r, directory, &result);
    }
    rows all = {0}, two = {0};
    MUST(sfp__registry_list(r, 0, gather, &all, NULL));
    assert_int_equal(all.count, 5);
    for (int i = 1; i < 5; i++)
        assert_true(strcmp(all.row[i - 1].started, all.row[i].started) > 0);
    MUST(sfp__registry_list(r, 2, gather, &two, NULL));
    assert_int_equal(two.count, 2);
    const run_row *row = &all.row[0];
    assert_string_equal(row->method, "random+er");
    assert_string_equal(row->data, "synthetic:1000");
    assert_true(row->seed == 7 && row->finished && fabs(row->average_accuracy - result.average_accuracy) < 1e-14 &&
                row->seconds == 8);
}

TEST(a_run_with_the_same_start_is_replaced)
{
    OWNED_BY(sfp__result_done) sfp_result result = result_make(2, 2);
    result.finished = false;
    result.average_accuracy = NAN;
    sfp__registry *r = open_registry();
    int64_t first = put(r, directory, &result);
    rows now = {0};
    MUST(sfp__registry_list(r, 0, gather, &now, NULL));
    assert_true(isnan(now.row[0].average_accuracy) && !now.row[0].finished);
    sfp__registry_close(r);
    r = open_registry(); /* as another process would read it */
    result.finished = true;
    result.average_accuracy = 0.5;
    assert_true(put(r, directory, &result) == first);
    now.count = 0;
    MUST(sfp__registry_list(r, 0, gather, &now, NULL));
    assert_true(now.count == 1 && now.row[0].finished && now.row[0].average_accuracy == 0.5);
    sfp__registry_close(r);
}

TEST(processes_write_at_the_same_time)
{
    enum { PROCESSES = 4, RUNS = 15 };
    pid_t child[PROCESSES];
    for (int p = 0; p < PROCESSES; p++) {
        child[p] = fork();
        assert_true(child[p] >= 0);
        if (child[p] == 0) { /* the processes also race to create the file */
            int bad = 0;
            sfp__registry *r = NULL;
            sfp_result result = result_make(2, 2);
            bad += sfp__registry_open(&r, NULL) != SFP_OK;
            for (int i = 0; i < RUNS && !bad; i++) {
                int64_t id;
                (void)snprintf(result.started, sizeof result.started, "%d-%d", p, i);
                bad += sfp__registry_put(r, directory, &result, &id, NULL) != SFP_OK;
            }
            sfp__registry_close(r);
            sfp__result_done(&result);
            _exit(bad != 0);
        }
    }
    for (int p = 0; p < PROCESSES; p++) {
        int status = -1;
        assert_true(waitpid(child[p], &status, 0) == child[p]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    OWNED_PTR(sfp__registry_close) sfp__registry *r = open_registry();
    rows all = {0};
    MUST(sfp__registry_list(r, 0, gather, &all, NULL));
    assert_int_equal(all.count, PROCESSES * RUNS);
    for (int i = 0; i < all.count; i++)
        for (int k = 0; k < i; k++)
            assert_true(all.row[i].id != all.row[k].id);
}

typedef sfp_status opener(sfp__registry **out, sfp_error *why);

static void refused_by(opener *open, sfp_status status, const char *message)
{
    sfp__registry *r = NULL;
    sfp_status s = open(&r, &err);
    if (s != status || !strstr(err.message, message) || !strstr(err.message, status == SFP_EINVAL ? "" : "runs.db"))
        fail_msg("got %s, '%s', expected '%s'", sfp_status_text(s), err.message, message);
    assert_null(r);
}

static void refused(sfp_status status, const char *message)
{
    refused_by(sfp__registry_open, status, message);
    refused_by(sfp__registry_open_readonly, status, message);
}

static void sql(const char *text)
{
    sqlite3 *d = NULL;
    assert_int_equal(sqlite3_open(db, &d), SQLITE_OK);
    assert_int_equal(sqlite3_exec(d, text, NULL, NULL, NULL), SQLITE_OK);
    (void)sqlite3_close(d);
}

TEST(a_file_that_is_not_a_registry_is_refused)
{
    sfp__registry_close(open_registry());
    sql("PRAGMA user_version = 7");
    refused(SFP_EUNSUPPORTED, "layout is 7, expected 2");
    assert_int_equal(unlink(db), 0);
    sql("CREATE TABLE songs(name)");
    refused(SFP_EFORMAT, "another SQLite database");
    char garbage[5000];
    memset(garbage, 'x', sizeof garbage);
    put_bytes("a/b/runs.db", garbage, sizeof garbage);
    refused(SFP_EFORMAT, "not a registry of runs, or damaged");
    assert_int_equal(unlink(db), 0);
    assert_int_equal(mkdir(db, 0777), 0);
    refused(SFP_EIO, "cannot open");
}

TEST(a_damaged_registry_is_reported)
{
    OWNED_BY(sfp__result_done) sfp_result result = result_make(2, 2);
    sfp__registry *r = open_registry();
    for (int i = 0; i < 40; i++) {
        (void)snprintf(result.started, sizeof result.started, "%d", i);
        (void)put(r, directory, &result);
    }
    sfp__registry_close(r);
    FILE *f = fopen(db, "r+");
    assert_non_null(f);
    for (long at = 4096; at < 40960; at += 64) { /* all pages except the first */
        assert_int_equal(fseek(f, at, SEEK_SET), 0);
        (void)fputs("damage damage damage damage", f);
    }
    (void)fclose(f);
    rows all = {0};
    sfp_status s = sfp__registry_open(&r, &err);
    if (s == SFP_OK) {
        s = sfp__registry_list(r, 0, gather, &all, &err);
        sfp__registry_close(r);
    }
    assert_int_equal(s, SFP_EFORMAT);
    assert_non_null(strstr(err.message, "damaged"));
}

TEST(the_path_depends_on_the_environment)
{
    assert_int_equal(unsetenv("STREAMFP_REGISTRY") | setenv("XDG_DATA_HOME", directory, 1) | setenv("HOME", directory, 1), 0);
    sfp__registry_close(open_registry());
    assert_true(file_exists("streamfp/runs.db"));
    assert_int_equal(setenv("XDG_DATA_HOME", "relative", 1), 0); /* is ignored */
    sfp__registry_close(open_registry());
    assert_true(file_exists(".local/share/streamfp/runs.db"));
    assert_int_equal(unsetenv("XDG_DATA_HOME") | unsetenv("HOME"), 0);
    refused(SFP_EINVAL, "STREAMFP_REGISTRY");
    assert_int_equal(setenv("STREAMFP_REGISTRY", "/dev/null/runs.db", 1), 0);
    refused(SFP_EIO, "cannot open");
}

TEST(a_reader_creates_nothing)
{
    struct stat st;
    refused_by(sfp__registry_open_readonly, SFP_ENOTFOUND, "runs.db: the registry does not exist yet");
    assert_false(file_exists("a"));
    sfp__registry_close(open_registry());
    assert_int_equal(unlink(db), 0);
    put_text("a/b/runs.db", ""); /* as after a writer has created it */
    refused_by(sfp__registry_open_readonly, SFP_ENOTFOUND, "runs.db: the registry does not exist yet");
    assert_true(stat(db, &st) == 0 && st.st_size == 0);
}

TEST(a_reader_finds_recorded_runs)
{
    OWNED_BY(sfp__result_done) sfp_result result = result_make(2, 2);
    sfp__registry *r = open_registry();
    int64_t id = put(r, directory, &result);
    sfp__registry_close(r);
    assert_int_equal(chmod(db, 0444), 0);
    rows all = {0};
    MUST(sfp__registry_open_readonly(&r, &err));
    MUST(sfp__registry_list(r, 0, gather, &all, &err));
    assert_true(all.count == 1 && all.row[0].id == id);
    sfp__registry_close(r);
}
