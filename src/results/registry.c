/* The registry: one table in one SQLite file.
 *
 * The rollback journal (SQLite's default) and not WAL: home folders lie on network file systems, and a run writes here once a
 * minute at most. A writer waits up to BUSY_MILLISECONDS for another one. The layout's number is the file's user_version, 0 a
 * file that was just made. */
#include "results/registry.h"

#include "base/mem.h"
#include "io/folder.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCHEMA 1
#define BUSY_MILLISECONDS 5000

struct sfp_registry {
    sqlite3 *db;
    char *path;
};

static const char create_sql[] = "CREATE TABLE runs("
                                 " id INTEGER PRIMARY KEY AUTOINCREMENT,"
                                 " dir TEXT NOT NULL,"
                                 " started TEXT NOT NULL," /* ISO 8601, UTC: sorts as text */
                                 " method TEXT NOT NULL,"
                                 " data TEXT NOT NULL,"
                                 " seed INTEGER NOT NULL," /* the 64 bits, read as signed */
                                 " average_accuracy REAL, forgetting REAL, prequential_accuracy REAL,"
                                 " samples_per_second REAL, seconds REAL,"
                                 " finished INTEGER NOT NULL,"
                                 " json TEXT NOT NULL,"
                                 " UNIQUE(dir, started))";

static const char put_sql[] =
    "INSERT INTO runs(dir, started, method, data, seed, average_accuracy, forgetting, prequential_accuracy, samples_per_second,"
    " seconds, finished, json) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"
    " ON CONFLICT(dir, started) DO UPDATE SET method = ?3, data = ?4, seed = ?5, average_accuracy = ?6, forgetting = ?7,"
    " prequential_accuracy = ?8, samples_per_second = ?9, seconds = ?10, finished = ?11, json = ?12";

static const char list_sql[] = "SELECT id, dir, started, method, data, seed, average_accuracy, forgetting, prequential_accuracy, "
                               "samples_per_second, seconds,"
                               " finished FROM runs ORDER BY started DESC, id DESC LIMIT ?1";

/* ---------------------------------------------------------------------- open */

static sfp_status fail_db(const sfp_registry *r, const char *what, sfp_error *err)
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
    size_t room = strlen(base) + strlen(rest) + 1;
    char *path = sfp__malloc(room);
    if (!path)
        return sfp__fail_nomem(err);
    (void)snprintf(path, room, "%s%s", base, rest);
    *out = path;
    return SFP_OK;
}

static sfp_status execute(const sfp_registry *r, const char *sql, const char *what, sfp_error *err)
{
    return sqlite3_exec(r->db, sql, NULL, NULL, NULL) == SQLITE_OK ? SFP_OK : fail_db(r, what, err);
}

/* The one integer a statement gives. */
static sfp_status query_int(const sfp_registry *r, const char *sql, int *out, sfp_error *err)
{
    sqlite3_stmt *st = NULL;
    bool ok = sqlite3_prepare_v2(r->db, sql, -1, &st, NULL) == SQLITE_OK && sqlite3_step(st) == SQLITE_ROW;
    sfp_status s = SFP_OK;
    if (ok)
        *out = sqlite3_column_int(st, 0);
    else
        s = fail_db(r, "cannot read", err);
    (void)sqlite3_finalize(st);
    return s;
}

/* Whether the file is a registry, or has nothing in it yet; within a transaction. */
static sfp_status check_layout(const sfp_registry *r, bool *empty, sfp_error *err)
{
    int version = 0, others = 0;
    sfp_status s = query_int(r, "PRAGMA user_version", &version, err);
    if (s == SFP_OK && version == 0)
        s = query_int(r, "SELECT count(*) FROM sqlite_master", &others, err);
    if (s != SFP_OK)
        return s;
    if (version > SCHEMA || version < 0)
        return sfp__fail(err, SFP_EUNSUPPORTED, "%s: has layout %d, this program knows %d: it was written by a newer one",
                         r->path, version, SCHEMA);
    if (others > 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: is a database of something else, expected a registry of runs", r->path);
    *empty = version == 0;
    return SFP_OK;
}

/* The same in one transaction: the table may be in the making. */
static sfp_status look_at_layout(const sfp_registry *r, bool *empty, sfp_error *err)
{
    sfp_status s = execute(r, "BEGIN", "cannot read", err);
    if (s != SFP_OK)
        return s;
    s = check_layout(r, empty, err);
    (void)sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL);
    return s;
}

/* Within a transaction of its own, so that of two processes that find an empty file one makes the table. */
static sfp_status make_tables(const sfp_registry *r, sfp_error *err)
{
    bool empty = false;
    char pragma[48];
    sfp_status s = execute(r, "BEGIN IMMEDIATE", "cannot write", err);
    if (s != SFP_OK)
        return s;
    s = check_layout(r, &empty, err);
    if (s == SFP_OK && empty) {
        (void)snprintf(pragma, sizeof pragma, "PRAGMA user_version = %d", SCHEMA);
        s = execute(r, create_sql, "cannot make the table", err);
        if (s == SFP_OK)
            s = execute(r, pragma, "cannot write", err);
    }
    if (s == SFP_OK)
        s = execute(r, "COMMIT", "cannot write", err);
    if (s != SFP_OK)
        (void)sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL);
    return s;
}

static sfp_status fail_none(const sfp_registry *r, sfp_error *err)
{
    return sfp__fail(err, SFP_ENOTFOUND, "%s: there is no registry yet", r->path);
}

/* A reader too may write, if the file lets it: what a killed writer left half done is taken back by whoever comes next. */
static sfp_status open_file(sfp_registry *r, bool make, sfp_error *err)
{
    bool empty = false;
    sfp_status s = SFP_OK;
    if (make)
        s = sfp__folder_make_for(r->path, err);
    else if (access(r->path, F_OK) != 0 && errno == ENOENT)
        s = fail_none(r, err);
    if (s != SFP_OK)
        return s;
    if (sqlite3_open_v2(r->path, &r->db, SQLITE_OPEN_READWRITE | (make ? SQLITE_OPEN_CREATE : 0), NULL) != SQLITE_OK)
        return fail_db(r, "cannot open", err);
    (void)sqlite3_busy_timeout(r->db, BUSY_MILLISECONDS);
    s = look_at_layout(r, &empty, err);
    if (s != SFP_OK || !empty)
        return s;
    return make ? make_tables(r, err) : fail_none(r, err);
}

static sfp_status open_registry(bool make, sfp_registry **out, sfp_error *err)
{
    sfp_registry *r = sfp__calloc(1, sizeof *r);
    if (!r)
        return sfp__fail_nomem(err);
    sfp_status s = find_path(&r->path, err);
    if (s == SFP_OK)
        s = open_file(r, make, err);
    if (s == SFP_OK)
        *out = r;
    else
        sfp__registry_close(r);
    return s;
}

sfp_status sfp__registry_open(sfp_registry **out, sfp_error *err)
{
    return open_registry(true, out, err);
}

sfp_status sfp__registry_look(sfp_registry **out, sfp_error *err)
{
    return open_registry(false, out, err);
}

void sfp__registry_close(sfp_registry *r)
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

static void bind_real(sqlite3_stmt *st, int at, double x)
{
    if (isfinite(x))
        (void)sqlite3_bind_double(st, at, x);
    else
        (void)sqlite3_bind_null(st, at);
}

/* The directory's one true name; of one that is gone the name as given. */
static void true_name(const char *dir, char *buf, size_t size)
{
    char resolved[PATH_MAX];
    (void)snprintf(buf, size, "%s", realpath(dir, resolved) ? resolved : dir);
}

static sfp_status put_row(const sfp_registry *r, const char *dir, const sfp_result *result, const char *json, sfp_error *err)
{
    sqlite3_stmt *st = NULL;
    char method[64];
    const char *data = sfp__result_value(result, "data");
    if (sqlite3_prepare_v2(r->db, put_sql, -1, &st, NULL) != SQLITE_OK)
        return fail_db(r, "cannot write", err);
    sfp__result_method(result, method, sizeof method);
    bind_text(st, 1, dir);
    bind_text(st, 2, result->started);
    bind_text(st, 3, method);
    bind_text(st, 4, data ? data : "");
    (void)sqlite3_bind_int64(st, 5, (sqlite3_int64)result->seed);
    bind_real(st, 6, result->average_accuracy);
    bind_real(st, 7, result->forgetting);
    bind_real(st, 8, result->prequential_accuracy);
    bind_real(st, 9, result->samples_per_second);
    bind_real(st, 10, result->seconds.total);
    (void)sqlite3_bind_int(st, 11, result->finished);
    bind_text(st, 12, json);
    sfp_status s = sqlite3_step(st) == SQLITE_DONE ? SFP_OK : fail_db(r, "cannot write", err);
    (void)sqlite3_finalize(st);
    return s;
}

static sfp_status find_id(const sfp_registry *r, const char *dir, const char *started, int64_t *id, sfp_error *err)
{
    sqlite3_stmt *st = NULL;
    if (sqlite3_prepare_v2(r->db, "SELECT id FROM runs WHERE dir = ?1 AND started = ?2", -1, &st, NULL) != SQLITE_OK)
        return fail_db(r, "cannot read", err);
    bind_text(st, 1, dir);
    bind_text(st, 2, started);
    sfp_status s = SFP_OK;
    if (sqlite3_step(st) == SQLITE_ROW)
        *id = sqlite3_column_int64(st, 0);
    else
        s = fail_db(r, "cannot read", err);
    (void)sqlite3_finalize(st);
    return s;
}

sfp_status sfp__registry_put(sfp_registry *r, const char *dir, const sfp_result *result, int64_t *id, sfp_error *err)
{
    char name[PATH_MAX], *json = NULL;
    int64_t number = 0;
    true_name(dir, name, sizeof name);
    sfp_status s = sfp__result_text(result, true, &json, err);
    if (s == SFP_OK)
        s = execute(r, "BEGIN IMMEDIATE", "cannot write", err); /* takes the write lock at once: no deadlock of two readers */
    if (s != SFP_OK) {
        sfp__free(json);
        return s;
    }
    s = put_row(r, name, result, json, err);
    if (s == SFP_OK)
        s = find_id(r, name, result->started, &number, err);
    if (s == SFP_OK)
        s = execute(r, "COMMIT", "cannot write", err);
    if (s != SFP_OK)
        (void)sqlite3_exec(r->db, "ROLLBACK", NULL, NULL, NULL);
    else if (id)
        *id = number;
    sfp__free(json);
    return s;
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

sfp_status sfp__registry_list(sfp_registry *r, int limit, bool (*fn)(void *ctx, const sfp_registry_row *row), void *ctx,
                              sfp_error *err)
{
    sqlite3_stmt *st = NULL;
    if (sqlite3_prepare_v2(r->db, list_sql, -1, &st, NULL) != SQLITE_OK)
        return fail_db(r, "cannot read", err);
    (void)sqlite3_bind_int(st, 1, limit > 0 ? limit : -1);
    int code;
    bool more = true;
    while (more && (code = sqlite3_step(st)) == SQLITE_ROW) {
        sfp_registry_row row = {.id = sqlite3_column_int64(st, 0),
                                .seed = (uint64_t)sqlite3_column_int64(st, 5),
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
    sfp_status s = !more || code == SQLITE_DONE ? SFP_OK : fail_db(r, "cannot read", err);
    (void)sqlite3_finalize(st);
    return s;
}

/* The json of the one row `sql` finds; *out stays NULL when there is none. */
static sfp_status fetch(const sfp_registry *r, const char *sql, int64_t id, const char *dir, char **out, sfp_error *err)
{
    sqlite3_stmt *st = NULL;
    if (sqlite3_prepare_v2(r->db, sql, -1, &st, NULL) != SQLITE_OK)
        return fail_db(r, "cannot read", err);
    if (dir)
        bind_text(st, 1, dir);
    else
        (void)sqlite3_bind_int64(st, 1, id);
    int code = sqlite3_step(st);
    sfp_status s = code == SQLITE_DONE ? SFP_OK : code == SQLITE_ROW ? SFP_OK : fail_db(r, "cannot read", err);
    if (code == SQLITE_ROW) {
        const unsigned char *text = sqlite3_column_text(st, 0);
        *out = sfp__strdup(text ? (const char *)text : "");
        if (!*out)
            s = sfp__fail_nomem(err);
    }
    (void)sqlite3_finalize(st);
    return s;
}

sfp_status sfp__registry_json(sfp_registry *r, const char *which, char **out, sfp_error *err)
{
    char *end, *json = NULL, name[PATH_MAX];
    errno = 0;
    long long id = strtoll(which, &end, 10);
    sfp_status s = SFP_OK;
    if (which[0] >= '0' && which[0] <= '9' && *end == '\0' && errno == 0)
        s = fetch(r, "SELECT json FROM runs WHERE id = ?1", id, NULL, &json, err);
    if (s == SFP_OK && !json) {
        true_name(which, name, sizeof name);
        s = fetch(r, "SELECT json FROM runs WHERE dir = ?1 ORDER BY started DESC, id DESC LIMIT 1", 0, name, &json, err);
    }
    if (s != SFP_OK)
        return s;
    if (!json)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: no run has this number or directory (registry %s)", which, r->path);
    *out = json;
    return SFP_OK;
}
