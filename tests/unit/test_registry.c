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

/* Counts the runs of a list; each has its own number, and the newest is the first. */
typedef struct counter {
    int count;
    bool seen[100];
    char started[32]; /* of the run before */
} counter;

static sfp_status count_run(void *ctx, const char *run, sfp_error *why)
{
    counter *c = ctx;
    OWNED sfp__json_value *root = NULL;
    int64_t id;
    char started[32];
    TRY(sfp__json_parse("run", run, strlen(run), &root, why));
    const sfp__json_in in = {"run", why};
    TRY(sfp__json_need_int(&in, root, "id", 1, 99, &id));
    TRY(sfp__json_need_text(&in, root, "started", started, sizeof started));
    assert_false(c->seen[id]);
    assert_true(c->count++ == 0 || strcmp(c->started, started) >= 0);
    c->seen[id] = true;
    memcpy(c->started, started, sizeof started);
    return SFP_OK;
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
    counter all = {0};
    MUST(sfp__registry_list(r, 0, count_run, &all, NULL));
    assert_int_equal(all.count, PROCESSES * RUNS);
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
    counter all = {0};
    sfp_status s = sfp__registry_open(&r, &err);
    if (s == SFP_OK) {
        s = sfp__registry_list(r, 0, count_run, &all, &err);
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
