/* The registry: one table in one SQLite file. A row is a run's directory, its method in a few words and its result.json; the
 * other columns are taken out of that text by SQLite when the row is written.
 *
 * The rollback journal (SQLite's default) and not WAL: home folders lie on network file systems, and a run writes here once a
 * minute at most. A writer waits up to BUSY_MILLISECONDS for another one. The layout's number is the file's user_version, 0 a
 * file that was just made. Layout 1 had the same columns, filled by hand: a reader takes it as it is, a writer brings it up to
 * date. */
#include "results/registry.h"

#include "base/mem.h"
#include "io/directory.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCHEMA 2
#define BUSY_MILLISECONDS 5000

struct sfp__registry {
    sqlite3 *db;
    char *path;
};

#define FROM_JSON(path) " AS (json_extract(json, '$." path "')) STORED,"

/* clang-format off */
static const char create_sql[] =
    "CREATE TABLE runs("
    " id INTEGER PRIMARY KEY AUTOINCREMENT,"
    " dir TEXT NOT NULL,"
    " method TEXT NOT NULL,"
    " started TEXT" FROM_JSON("started") /* ISO 8601, UTC: sorts as text */
    " data TEXT" FROM_JSON("config.data")
    " seed" FROM_JSON("seed") /* an integer, or from 2^63 on the digits as text */
    " average_accuracy REAL" FROM_JSON("average_accuracy")
    " forgetting REAL" FROM_JSON("forgetting")
    " prequential_accuracy REAL" FROM_JSON("prequential_accuracy")
    " samples_per_second REAL" FROM_JSON("samples_per_second")
    " seconds REAL" FROM_JSON("seconds.total")
    " finished INTEGER" FROM_JSON("finished")
    " json TEXT NOT NULL,"
    " UNIQUE(dir, started));";
/* clang-format on */

/* Numbers stay with their runs. */
static const char from_1_sql[] = "INSERT INTO runs(id, dir, method, json) SELECT id, dir, method, json FROM runs_1;"
                                 "DROP TABLE runs_1;";

static const char put_sql[] = "INSERT INTO runs(dir, method, json) VALUES(?1, ?2, ?3)"
                              " ON CONFLICT(dir, started) DO UPDATE SET method = ?2, json = ?3 RETURNING id";

static const char list_sql[] = "SELECT id, dir, started, method, data, seed, average_accuracy, forgetting, prequential_accuracy, "
                               "samples_per_second, seconds,"
                               " finished FROM runs ORDER BY started DESC, id DESC LIMIT ?1";

static void finalize(sqlite3_stmt **st)
{
    (void)sqlite3_finalize(*st);
}

/* ---------------------------------------------------------------------- open */

static sfp_status fail_db(const sfp__registry *r, const char *what, sfp_error *err)
{
    int code = r->db ? sqlite3_errcode(r->db) : SQLITE_NOMEM;
    const char *why = r->db ? sqlite3_errmsg(r->db) : "out of memory";
    switch (code & 0xff) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
        return sfp__fail(err, SFP_EFORMAT, "%s: is not a registry of runs, or is damaged (%s); move it away to begin a new one",
                         r->path, why);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return sfp__fail(err, SFP_EIO, "%s: %s: another process holds it", r->path, what);
    case SQLITE_NOMEM:
        return sfp__fail(err, SFP_ENOMEM, "%s: %s: out of memory", r->path, what);
    default:
        return sfp__fail(err, SFP_EIO, "%s: %s: %s", r->path, what, why);
    }
}

/* The file's name, newly allocated. */
static sfp_status find_path(char **out, sfp_error *err)
{
    const char *given = getenv("STREAMFP_REGISTRY"), *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    const char *base = data && data[0] == '/' ? data : home; /* a relative XDG_DATA_HOME does not count */
    const char *rest = base == home ? "/.local/share/streamfp/runs.db" : "/streamfp/runs.db";
    if (given && *given) {
        base = given;
        rest = "";
    }
    if (!base || !*base)
        return sfp__fail(err, SFP_EINVAL,
                         "no place for the registry of runs: none of STREAMFP_REGISTRY, XDG_DATA_HOME and HOME is set");
    size_t size = strlen(base) + strlen(rest) + 1;
    TRY(sfp__alloc(out, size, 1, err));
    (void)snprintf(*out, size, "%s%s", base, rest);
    return SFP_OK;
}

static sfp_status execute(const sfp__registry *r, const char *sql, const char *what, sfp_error *err)
{
    return sqlite3_exec(r->db, sql, NULL, NULL, NULL) == SQLITE_OK ? SFP_OK : fail_db(r, what, err);
}

static sfp_status prepare(const sfp__registry *r, const char *sql, sqlite3_stmt **st, const char *what, sfp_error *err)
{
    return sqlite3_prepare_v2(r->db, sql, -1, st, NULL) == SQLITE_OK ? SFP_OK : fail_db(r, what, err);
}

/* The one integer a statement gives. */
static sfp_status query_int(const sfp__registry *r, const char *sql, int *out, sfp_error *err)
{
    OWNED_BY(finalize) sqlite3_stmt *st = NULL;
    TRY(prepare(r, sql, &st, "cannot read", err));
    if (sqlite3_step(st) != SQLITE_ROW)
        return fail_db(r, "cannot read", err);
    *out = sqlite3_column_int(st, 0);
    return SFP_OK;
}

/* The layout of the file, 0 when there is nothing in it yet; within a transaction. */
static sfp_status find_layout(const sfp__registry *r, int *version, sfp_error *err)
{
    int others = 0;
    TRY(query_int(r, "PRAGMA user_version", version, err));
    if (*version == 0)
        TRY(query_int(r, "SELECT count(*) FROM sqlite_master", &others, err));
    if (*version > SCHEMA || *version < 0)
        return sfp__fail(err, SFP_EUNSUPPORTED, "%s: has layout %d, this program knows %d: it was written by a newer one",
                         r->path, *version, SCHEMA);
    if (others > 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: is a database of something else, expected a registry of runs", r->path);
    return SFP_OK;
}

/* In a transaction: the table may be in the making. */
static sfp_status look_at_layout(const sfp__registry *r, int *version, sfp_error *err)
{
    TRY(execute(r, "BEGIN", "cannot read", err));
    sfp_status s = find_layout(r, version, err);
    (void)sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL);
    return s;
}

static sfp_status lay_out(const sfp__registry *r, sfp_error *err)
{
    char pragma[48];
    int version = 0;
    TRY(find_layout(r, &version, err));
    if (version == SCHEMA)
        return SFP_OK; /* another process was faster */
    if (version == 1)
        TRY(execute(r, "ALTER TABLE runs RENAME TO runs_1", "cannot bring it up to date", err));
    TRY(execute(r, create_sql, "cannot make the table", err));
    if (version == 1)
        TRY(execute(r, from_1_sql, "cannot bring it up to date", err));
    (void)snprintf(pragma, sizeof pragma, "PRAGMA user_version = %d", SCHEMA);
    return execute(r, pragma, "cannot write", err);
}

/* Within a transaction of its own, so that of two processes that find an empty file one makes the table. */
static sfp_status make_tables(const sfp__registry *r, sfp_error *err)
{
    TRY(execute(r, "BEGIN IMMEDIATE", "cannot write", err));
    sfp_status s = lay_out(r, err);
    if (s == SFP_OK)
        s = execute(r, "COMMIT", "cannot write", err);
    if (s != SFP_OK)
        (void)sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL);
    return s;
}

static sfp_status fail_none(const sfp__registry *r, sfp_error *err)
{
    return sfp__fail(err, SFP_ENOTFOUND, "%s: there is no registry yet", r->path);
}

/* A reader too may write, if the file lets it: what a killed writer left half done is taken back by whoever comes next. */
static sfp_status open_file(sfp__registry *r, bool make, sfp_error *err)
{
    int version = 0;
    if (make)
        TRY(sfp__directory_create_for(r->path, err));
    else if (access(r->path, F_OK) != 0 && errno == ENOENT)
        return fail_none(r, err);
    if (sqlite3_open_v2(r->path, &r->db, SQLITE_OPEN_READWRITE | (make ? SQLITE_OPEN_CREATE : 0), NULL) != SQLITE_OK)
        return fail_db(r, "cannot open", err);
    (void)sqlite3_busy_timeout(r->db, BUSY_MILLISECONDS);
    TRY(look_at_layout(r, &version, err));
    if (make && version < SCHEMA)
        return make_tables(r, err);
    return version ? SFP_OK : fail_none(r, err);
}

static sfp_status open_registry(bool make, sfp__registry **out, sfp_error *err)
{
    OWNED_PTR(sfp__registry_close) sfp__registry *r = NULL;
    TRY(sfp__alloc(&r, 1, sizeof *r, err));
    TRY(find_path(&r->path, err));
    TRY(open_file(r, make, err));
    *out = TAKE(r);
    return SFP_OK;
}

sfp_status sfp__registry_open(sfp__registry **out, sfp_error *err)
{
    return open_registry(true, out, err);
}

sfp_status sfp__registry_open_readonly(sfp__registry **out, sfp_error *err)
{
    return open_registry(false, out, err);
}

void sfp__registry_close(sfp__registry *r)
{
    if (!r)
        return;
    (void)sqlite3_close(r->db);
    sfp__free(r->path);
    sfp__free(r);
}

/* ----------------------------------------------------------------------- put */

static void bind_text(sqlite3_stmt *st, int at, const char *text)
{
    (void)sqlite3_bind_text(st, at, text, -1, SQLITE_TRANSIENT);
}

/* The directory's one true name; of one that is gone the name as given. */
static void true_name(const char *dir, char *buf, size_t size)
{
    char resolved[PATH_MAX];
    (void)snprintf(buf, size, "%s", realpath(dir, resolved) ? resolved : dir);
}

sfp_status sfp__registry_put(sfp__registry *r, const char *dir, const sfp_result *result, int64_t *id, sfp_error *err)
{
    char name[PATH_MAX], method[64];
    OWNED char *json = NULL;
    OWNED_BY(finalize) sqlite3_stmt *st = NULL;
    true_name(dir, name, sizeof name);
    sfp__result_method(result, method, sizeof method);
    TRY(sfp__result_text(result, true, &json, err));
    TRY(prepare(r, put_sql, &st, "cannot write", err));
    bind_text(st, 1, name);
    bind_text(st, 2, method);
    bind_text(st, 3, json);
    int64_t number = 0;
    int code;
    while ((code = sqlite3_step(st)) == SQLITE_ROW) /* once; it is committed with the step that says that there are no more */
        number = sqlite3_column_int64(st, 0);
    if (code != SQLITE_DONE)
        return fail_db(r, "cannot write", err);
    if (id)
        *id = number;
    return SFP_OK;
}

/* ---------------------------------------------------------------------- read */

static void column_text(sqlite3_stmt *st, int at, char *buf, size_t size)
{
    const unsigned char *text = sqlite3_column_text(st, at);
    (void)snprintf(buf, size, "%s", text ? (const char *)text : "");
}

static double column_real(sqlite3_stmt *st, int at)
{
    return sqlite3_column_type(st, at) == SQLITE_NULL ? NAN : sqlite3_column_double(st, at);
}

/* Layout 1 has 64 bits that are read as signed. */
static uint64_t column_seed(sqlite3_stmt *st, int at)
{
    if (sqlite3_column_type(st, at) == SQLITE_TEXT)
        return strtoull((const char *)sqlite3_column_text(st, at), NULL, 10);
    return (uint64_t)sqlite3_column_int64(st, at);
}

sfp_status sfp__registry_list(sfp__registry *r, int limit, bool (*fn)(void *ctx, const sfp__registry_row *row), void *ctx,
                              sfp_error *err)
{
    OWNED_BY(finalize) sqlite3_stmt *st = NULL;
    TRY(prepare(r, list_sql, &st, "cannot read", err));
    (void)sqlite3_bind_int(st, 1, limit > 0 ? limit : -1);
    int code;
    bool more = true;
    while (more && (code = sqlite3_step(st)) == SQLITE_ROW) {
        sfp__registry_row row = {.id = sqlite3_column_int64(st, 0),
                                 .seed = column_seed(st, 5),
                                 .average_accuracy = column_real(st, 6),
                                 .forgetting = column_real(st, 7),
                                 .prequential_accuracy = column_real(st, 8),
                                 .samples_per_second = column_real(st, 9),
                                 .seconds = column_real(st, 10),
                                 .finished = sqlite3_column_int(st, 11) != 0};
        column_text(st, 1, row.dir, sizeof row.dir);
        column_text(st, 2, row.started, sizeof row.started);
        column_text(st, 3, row.method, sizeof row.method);
        column_text(st, 4, row.data, sizeof row.data);
        more = fn(ctx, &row);
    }
    return !more || code == SQLITE_DONE ? SFP_OK : fail_db(r, "cannot read", err);
}

/* The json of the one row `sql` finds; *out stays NULL when there is none. */
static sfp_status fetch(const sfp__registry *r, const char *sql, int64_t id, const char *dir, char **out, sfp_error *err)
{
    OWNED_BY(finalize) sqlite3_stmt *st = NULL;
    TRY(prepare(r, sql, &st, "cannot read", err));
    if (dir)
        bind_text(st, 1, dir);
    else
        (void)sqlite3_bind_int64(st, 1, id);
    int code = sqlite3_step(st);
    if (code == SQLITE_DONE)
        return SFP_OK;
    if (code != SQLITE_ROW)
        return fail_db(r, "cannot read", err);
    const unsigned char *text = sqlite3_column_text(st, 0);
    *out = sfp__strdup(text ? (const char *)text : "");
    return *out ? SFP_OK : sfp__fail_nomem(err);
}

sfp_status sfp__registry_json(sfp__registry *r, const char *which, char **out, sfp_error *err)
{
    char *end, name[PATH_MAX];
    OWNED char *json = NULL;
    errno = 0;
    long long id = strtoll(which, &end, 10);
    if (which[0] >= '0' && which[0] <= '9' && *end == '\0' && errno == 0)
        TRY(fetch(r, "SELECT json FROM runs WHERE id = ?1", id, NULL, &json, err));
    if (!json) {
        true_name(which, name, sizeof name);
        TRY(fetch(r, "SELECT json FROM runs WHERE dir = ?1 ORDER BY started DESC, id DESC LIMIT 1", 0, name, &json, err));
    }
    if (!json)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: no run has this number or directory (registry %s)", which, r->path);
    *out = TAKE(json);
    return SFP_OK;
}
