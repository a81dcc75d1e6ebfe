/* The file of the store of samples: its tables, statements and transactions. */
#include "stream/sample_db.h"

#include "base/monotonic.h"
#include "io/file.h"
#include "stream/source_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { APPLICATION = 0x53465053, LAYOUT = 2 }; /* numbers in the header of the file: "SFPS", and the version of the tables */
enum { BUSY_MILLISECONDS = 10000 };
static const double commit_seconds = 1;

/* The tables. The file has small pages, because each change of a sample writes one page in each of several trees. */
static const char create_sql[] =
    "CREATE TABLE sample(id INTEGER PRIMARY KEY, name TEXT, size INTEGER, modified INTEGER, changed INTEGER, digest BLOB,"
    " arrived INTEGER, label TEXT, learned TEXT, standing INTEGER NOT NULL, reason TEXT,"
    " predicted INTEGER, timestamp INTEGER, class TEXT, probability REAL, unknown REAL);"
    "CREATE INDEX sample_name ON sample(name);"
    "CREATE INDEX sample_digest ON sample(digest);"
    "CREATE INDEX sample_waiting ON sample(id) WHERE standing = 0;"
    "CREATE TABLE other_name(name TEXT PRIMARY KEY, sample INTEGER) WITHOUT ROWID;"
    /* labels that were given before the present one */
    "CREATE TABLE earlier_label(sample INTEGER, until INTEGER, label TEXT);"
    "CREATE INDEX earlier_label_sample ON earlier_label(sample);"
    /* labels that a command gave: the lines of labels.csv before an offset, and a move that is not seen yet, are older */
    "CREATE TABLE decision(sample INTEGER PRIMARY KEY, lines INTEGER, moved INTEGER);"
    "CREATE TABLE renamed(label TEXT PRIMARY KEY, class TEXT) WITHOUT ROWID;"
    "CREATE TABLE line(name TEXT PRIMARY KEY, label TEXT) WITHOUT ROWID;"
    "CREATE TABLE undo(generation INTEGER, sample INTEGER, learned TEXT, PRIMARY KEY(generation, sample)) WITHOUT ROWID;"
    "CREATE TABLE forgotten(mark BLOB PRIMARY KEY) WITHOUT ROWID;"
    "CREATE TABLE request(number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, file TEXT, label TEXT, status INTEGER, answer "
    "TEXT);"
    "CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;";

/* Submitted samples: keys by which a submission is recognised, and classes that were added before they had a sample. */
static const char submitted_sql[] = "CREATE TABLE IF NOT EXISTS submission(key TEXT PRIMARY KEY, sample INTEGER) WITHOUT ROWID;"
                                    "CREATE TABLE IF NOT EXISTS added_class(name TEXT PRIMARY KEY) WITHOUT ROWID;";

/* ------------------------------------------------------------------ statements */

const char *sfp__db_path(const sfp__store *s)
{
    return s->path ? s->path : "the store of samples";
}

sfp_status sfp__db_fail(const sfp__store *s, sfp_error *err)
{
    int code = s->db ? sqlite3_errcode(s->db) : SQLITE_NOMEM;
    const char *why = s->db ? sqlite3_errmsg(s->db) : "out of memory";
    switch (code & 0xff) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
        return sfp__fail(err, SFP_EFORMAT, "%s: not a store of samples, or damaged (%s); choose another --out", sfp__db_path(s),
                         why);
    case SQLITE_NOMEM:
        return sfp__fail(err, SFP_ENOMEM, "%s: out of memory", sfp__db_path(s));
    default:
        return sfp__fail(err, SFP_EIO, "%s: %s", sfp__db_path(s), why);
    }
}

/* Returns the prepared statement; NULL: failed. */
static sqlite3_stmt *find_statement(sfp__store *s, const char *sql)
{
    int i = 0;
    while (i < s->statement_count && s->statement[i].sql != sql)
        i++;
    if (i < s->statement_count)
        return s->statement[i].st;
    assert(i < SFP__STATEMENTS_MAX);
    if (sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &s->statement[i].st, NULL) != SQLITE_OK)
        return NULL;
    s->statement[i].sql = sql;
    s->statement_count++;
    return s->statement[i].st;
}

/* Binds the arguments of a statement, one per letter of `types` (sfp__db_query). */
static sfp_status bind(sfp__store *s, const char *sql, const char *types, va_list args, sqlite3_stmt **out, sfp_error *err)
{
    sqlite3_stmt *st = find_statement(s, sql);
    int code = st ? SQLITE_OK : SQLITE_ERROR;
    for (int i = 1; *types && code == SQLITE_OK; i++, types++) {
        if (*types == 'i') {
            code = sqlite3_bind_int64(st, i, va_arg(args, int64_t));
        } else if (*types == 'd') {
            double x = va_arg(args, double);
            code = isnan(x) ? sqlite3_bind_null(st, i) : sqlite3_bind_double(st, i, x);
        } else if (*types == 't') {
            code = sqlite3_bind_text(st, i, va_arg(args, const char *), -1, SQLITE_STATIC);
        } else if (*types == 'B') {
            sqlite3_uint64 size = (sqlite3_uint64)va_arg(args, int64_t);
            code = sqlite3_bind_blob64(st, i, va_arg(args, const void *), size, SQLITE_STATIC);
        } else {
            const sfp__digest *d = va_arg(args, const sfp__digest *);
            code = d ? sqlite3_bind_blob(st, i, d, sizeof *d, SQLITE_STATIC) : sqlite3_bind_null(st, i);
        }
    }
    *out = st;
    return code == SQLITE_OK ? SFP_OK : sfp__db_fail(s, err);
}

void sfp__db_reset(sqlite3_stmt **st)
{
    if (*st) {
        (void)sqlite3_reset(*st);
        (void)sqlite3_clear_bindings(*st);
    }
}

sfp_status sfp__db_query(sfp__store *s, sqlite3_stmt **st, sfp_error *err, const char *sql, const char *types, ...)
{
    va_list args;
    va_start(args, types);
    sfp_status status = bind(s, sql, types, args, st, err);
    va_end(args);
    TRY(status);
    int code = sqlite3_step(*st);
    if (code == SQLITE_ROW)
        return SFP_OK;
    status = code == SQLITE_DONE ? SFP_OK : sfp__db_fail(s, err);
    sfp__db_reset(st);
    *st = NULL;
    return status;
}

/* Whether no query is open. */
__attribute__((unused)) static bool is_quiet(const sfp__store *s)
{
    for (sqlite3_stmt *st = sqlite3_next_stmt(s->db, NULL); st; st = sqlite3_next_stmt(s->db, st))
        if (sqlite3_stmt_busy(st))
            return false;
    return true;
}

sfp_status sfp__db_fail_lost(const sfp__store *s, sfp_error *err)
{
    return sfp__fail(err, SFP_EIO,
                     "%s: the disk does not keep what is written; samples are refused until the run is started again",
                     sfp__db_path(s));
}

sfp_status sfp__db_begin(sfp__store *s, sfp_error *err)
{
    if (s->open) /* after some errors SQLite undoes the whole transaction */
        return sqlite3_get_autocommit(s->db) ? sfp__db_fail_lost(s, err) : SFP_OK;
    assert(is_quiet(s));
    if (sqlite3_exec(s->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
        return sfp__db_fail(s, err);
    s->open = true;
    return SFP_OK;
}

sfp_status sfp__db_change(sfp__store *s, sfp_error *err, const char *sql, const char *types, ...)
{
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    va_list args;
    TRY(sfp__db_begin(s, err));
    va_start(args, types);
    sfp_status status = bind(s, sql, types, args, &st, err);
    va_end(args);
    TRY(status);
    s->changes++;
    return sqlite3_step(st) == SQLITE_DONE ? SFP_OK : sfp__db_fail(s, err);
}

sfp_status sfp__db_commit(sfp__store *s, sfp_error *err)
{
    if (!s->open)
        return SFP_OK;
    TRY(sfp__db_begin(s, err));
    if (sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
        return sfp__db_fail(s, err);
    s->open = false;
    s->committed_at = sfp__monotonic_seconds();
    return SFP_OK;
}

sfp_status sfp__db_begin_group(sfp__store *s, sfp__db_mark *out, sfp_error *err)
{
    *out = (sfp__db_mark){
        .counts = s->counts, .next_id = s->next_id, .image_bytes = s->images.bytes, .image_count = s->images.count};
    return sfp__db_change(s, err, "SAVEPOINT changes", "");
}

sfp_status sfp__db_end_group(sfp__store *s, const sfp__db_mark *mark, sfp_status status, sfp_error *err)
{
    if (!status)
        return sfp__db_change(s, err, "RELEASE changes", "");
    s->counts = mark->counts;
    s->next_id = mark->next_id;
    s->images.bytes = mark->image_bytes;
    s->images.count = mark->image_count;
    if (sqlite3_exec(s->db, "ROLLBACK TO changes; RELEASE changes", NULL, NULL, NULL) != SQLITE_OK)
        (void)sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL); /* then all that follows fails (sfp__db_begin) */
    return status;
}

sfp_status sfp__db_text(sqlite3_stmt *st, int column, char **out, sfp_error *err)
{
    const char *text = (const char *)sqlite3_column_text(st, column);
    return sfp__check_memory(!text || (*out = sfp__strdup(text)), err);
}

static const char meta_sql[] = "SELECT value FROM meta WHERE key = ?1";

sfp_status sfp__db_get_meta(sfp__store *s, const char *key, int64_t *out, sfp_error *err)
{
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    TRY(sfp__db_query(s, &st, err, meta_sql, "t", key));
    *out = st ? sqlite3_column_int64(st, 0) : 0;
    return SFP_OK;
}

sfp_status sfp__db_number(sfp__store *s, const char *sql, int64_t *out, sfp_error *err)
{
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    TRY(sfp__db_query(s, &st, err, sql, ""));
    *out = st ? sqlite3_column_int64(st, 0) : 0;
    return SFP_OK;
}

sfp_status sfp__db_set_meta(sfp__store *s, const char *key, int64_t value, sfp_error *err)
{
    return sfp__db_change(s, err, "INSERT OR REPLACE INTO meta VALUES(?1, ?2)", "ti", key, value);
}

/* -------------------------------------------------------------------- opening */

bool sfp__store_is_one(const char *path)
{
    char head[72];
    struct stat st;
    OWNED_BY(sfp__fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return false;
    static const uint8_t number[4] = {APPLICATION >> 24, APPLICATION >> 16 & 0xff, APPLICATION >> 8 & 0xff, APPLICATION & 0xff};
    return st.st_size == 0 || (pread(fd, head, sizeof head, 0) == (ssize_t)sizeof head && memcmp(head + 68, number, 4) == 0);
}

static const char version_sql[] = "PRAGMA user_version";

static sfp_status fail_foreign(const sfp__store *s, sfp_error *err)
{
    return sfp__fail(err, SFP_EFORMAT, "%s: not a store of samples, but a database of another program; choose another --out",
                     sfp__db_path(s));
}

/* Creates the tables of a new file, or checks that the file has them. */
static sfp_status create_tables(sfp__store *s, sfp_error *err)
{
    char pragmas[128];
    int64_t layout, application, tables;
    TRY(sfp__db_number(s, version_sql, &layout, err));
    if (layout == 0) { /* another process may create them at the same time */
        TRY(sfp__db_begin(s, err));
        TRY(sfp__db_number(s, version_sql, &layout, err));
        TRY(sfp__db_number(s, "SELECT count(*) FROM sqlite_master", &tables, err));
        if (layout == 0 && tables > 0)
            return fail_foreign(s, err);
        (void)snprintf(pragmas, sizeof pragmas, "PRAGMA application_id = %d; PRAGMA user_version = %d", APPLICATION, LAYOUT);
        if (layout == 0 && (sqlite3_exec(s->db, create_sql, NULL, NULL, NULL) != SQLITE_OK ||
                            sqlite3_exec(s->db, pragmas, NULL, NULL, NULL) != SQLITE_OK))
            return sfp__db_fail(s, err);
        s->created = layout == 0;
        TRY(sfp__db_commit(s, err));
        TRY(sfp__db_number(s, version_sql, &layout, err));
    }
    TRY(sfp__db_number(s, "PRAGMA application_id", &application, err));
    if (application != APPLICATION)
        return fail_foreign(s, err);
    if (layout != LAYOUT)
        return sfp__fail(err, SFP_EFORMAT, "%s: the layout has version %d, expected %d; choose another --out", sfp__db_path(s),
                         (int)layout, LAYOUT);
    return SFP_OK;
}

sfp_status sfp__db_load_counts(sfp__store *s, sfp_error *err)
{
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    sfp__store_counts c = {0};
    int64_t corrected;
    TRY(sfp__db_query(s, &st, err,
                      "SELECT standing, count(*), sum(label IS NULL), count(predicted), sum(predicted IS NOT NULL AND label IS "
                      "NOT NULL) FROM sample GROUP BY standing",
                      ""));
    for (int code = st ? SQLITE_ROW : SQLITE_DONE; code != SQLITE_DONE; code = sqlite3_step(st)) {
        if (code != SQLITE_ROW)
            return sfp__db_fail(s, err);
        int standing = sqlite3_column_int(st, 0);
        if (standing < 0 || standing >= SFP__STANDINGS)
            return sfp__fail(err, SFP_EFORMAT, "%s: a sample has standing %d; the file is damaged", sfp__db_path(s), standing);
        uint64_t n = (uint64_t)sqlite3_column_int64(st, 1), unlabelled = (uint64_t)sqlite3_column_int64(st, 2);
        uint64_t predicted = (uint64_t)sqlite3_column_int64(st, 3), late = (uint64_t)sqlite3_column_int64(st, 4);
        c.standing[standing] = n;
        c.unlabelled += standing == SFP__WAITING ? unlabelled : 0;
        c.predicted += predicted;
        c.late += late;
        c.expired += standing == SFP__DROPPED ? predicted - late : 0;
    }
    TRY(sfp__db_number(s, "SELECT count(DISTINCT sample) FROM earlier_label", &corrected, err));
    c.corrected = (uint64_t)corrected;
    s->counts = c;
    return SFP_OK;
}

static sfp_status load_numbers(sfp__store *s, sfp_error *err)
{
    int64_t next, logged, generation, renames;
    OWNED_BY(sfp__db_reset) sqlite3_stmt *salt = NULL;
    TRY(sfp__db_number(s, "SELECT max(id) + 1 FROM sample", &next, err));
    TRY(sfp__db_number(s, "SELECT count(*) FROM renamed", &renames, err));
    TRY(sfp__db_get_meta(s, "logged", &logged, err));
    TRY(sfp__db_get_meta(s, "generation", &generation, err));
    TRY(sfp__db_get_meta(s, "oldest", &s->oldest, err));
    TRY(sfp__db_query(s, &salt, err, meta_sql, "t", "salt"));
    const void *value = salt ? sqlite3_column_blob(salt, 0) : NULL;
    if (value && sqlite3_column_bytes(salt, 0) == (int)sizeof s->salt)
        memcpy(&s->salt, value, sizeof s->salt);
    s->renames = renames > 0;
    s->next_id = s->first_new_id = (uint64_t)next;
    s->logged = (uint64_t)logged;
    s->generation = generation + 1;
    return sfp__db_load_counts(s, err);
}

/* Opens the database. file: the path without symbolic links, because SQLite would also refuse a link in a directory above the file. */
static sfp_status open_file(sfp__store *s, const char *file, sfp_error *err)
{
    if (sqlite3_open_v2(file, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW,
                        NULL) != SQLITE_OK)
        return sfp__db_fail(s, err);
    (void)sqlite3_busy_timeout(s->db, BUSY_MILLISECONDS);
    if (sqlite3_exec(s->db, "PRAGMA page_size = 1024; PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY", NULL, NULL, NULL) !=
        SQLITE_OK)
        return sfp__db_fail(s, err);
    TRY(create_tables(s, err));
    /* A commit in the write-ahead log does not wait for the disk; sfp__store_prepare_checkpoint does. Between checkpoints the log keeps up
     * to 8 MB, because pages that change again, or are neighbours, are then written once to the file. */
    static const char log[] = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 8000";
    double until = sfp__monotonic_seconds() + BUSY_MILLISECONDS * 1e-3;
    for (int code; s->path && (code = sqlite3_exec(s->db, log, NULL, NULL, NULL)) != SQLITE_OK;) {
        if (code != SQLITE_BUSY || sfp__monotonic_seconds() > until) /* SQLite does not wait for this lock by itself */
            return sfp__db_fail(s, err);
        (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    if (!s->path && sqlite3_exec(s->db, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF", NULL, NULL, NULL) != SQLITE_OK)
        return sfp__db_fail(s, err);
    if (sqlite3_exec(s->db, submitted_sql, NULL, NULL, NULL) != SQLITE_OK)
        return sfp__db_fail(s, err);
    return load_numbers(s, err);
}

sfp_status sfp__store_open(const char *dir, sfp__store **out, sfp_error *err)
{
    OWNED_PTR(sfp__store_close) sfp__store *s = NULL;
    TRY(sfp__alloc(&s, 1, sizeof *s, err));
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->synced_more, NULL);
    s->data_version = -1;
    OWNED char *file = NULL;
    char real[PATH_MAX];
    if (dir) {
        TRY(sfp__path_make(dir, SFP__STORE_NAME, &s->path, err));
        const char *where = realpath(*dir ? dir : ".", real) ? real : dir;
        TRY(sfp__path_make(where, SFP__STORE_NAME, &file, err));
        TRY(sfp__path_make(where, SFP__IMAGES_NAME, &s->images.path, err));
    }
    sfp_status status = open_file(s, file ? file : "", err);
    if (status)
        s->open = false; /* closing undoes what it has begun */
    else
        *out = TAKE(s);
    return status;
}

static sfp_status remove_files(const char *path, sfp_error *err)
{
    static const char *const ends[] = {"-wal", "-shm", "-journal", ""};
    char file[PATH_MAX];
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (snprintf(file, sizeof file, "%s%s", path, ends[i]) < (int)sizeof file && unlink(file) != 0 && errno != ENOENT)
            return sfp__fail_errno(err, SFP_EIO, "%s: cannot remove", file);
    return SFP_OK;
}

sfp_status sfp__store_remove(const char *dir, sfp_error *err)
{
    OWNED char *path = NULL, *images = NULL;
    TRY(sfp__path_make(dir, SFP__STORE_NAME, &path, err));
    TRY(sfp__path_make(dir, SFP__IMAGES_NAME, &images, err));
    TRY(remove_files(images, err));
    return remove_files(path, err);
}

void sfp__store_close(sfp__store *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->statement_count; i++)
        (void)sqlite3_finalize(s->statement[i].st);
    if (s->db && s->open)
        (void)sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL);
    (void)sqlite3_close(s->db);
    if (s->discard && s->path)
        (void)remove_files(s->path, NULL);
    pthread_cond_destroy(&s->synced_more);
    pthread_mutex_destroy(&s->lock);
    sfp__free(s->images.path);
    sfp__free(s->path);
    sfp__free(s);
}

void sfp__store_discard(sfp__store *s)
{
    s->discard = s->created;
}

sfp_status sfp__db_scrub(sfp__store *s, sfp_error *err)
{
    if (!s->path)
        return SFP_OK;
    TRY(sfp__db_commit(s, err));
    /* Pages that were split keep copies of their rows where nothing is stored any more, in spite of secure_delete. */
    if (sqlite3_exec(s->db, "PRAGMA temp_store = FILE; VACUUM; PRAGMA temp_store = MEMORY", NULL, NULL, NULL) != SQLITE_OK)
        return sfp__db_fail(s, err);
    /* the log must not keep the rows either */
    int code = sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    if (code == SQLITE_NOMEM)
        return sfp__db_fail(s, err);
    return code == SQLITE_OK ? sfp__db_set_meta(s, "erasing", 0, err) : SFP_OK;
}

/* ----------------------------------------------------------------- transactions */

sfp_status sfp__store_commit(sfp__store *s, sfp_error *err)
{
    LOCK_STORE(s);
    return sfp__db_commit(s, err);
}

sfp_status sfp__store_commit_if_due(sfp__store *s, sfp_error *err)
{
    LOCK_STORE(s);
    return sfp__monotonic_seconds() - s->committed_at >= commit_seconds ? sfp__db_commit(s, err) : SFP_OK;
}

/* ------------------------------------------------------------------ group commit */

/* Waits until the log of a database is on the disk. */
static int sync_log(const char *database)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s-wal", database) >= (int)sizeof path)
        return -1;
    OWNED_BY(sfp__fd_close) int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -1 : fdatasync(fd);
}

sfp_status sfp__store_sync(sfp__store *s, sfp_error *err)
{
    LOCK_STORE(s);
    uint64_t wanted = s->changes;
    while (s->synced < wanted && !s->failed) {
        if (s->syncing) { /* what this thread has changed is perhaps part of it, else of the next one */
            pthread_cond_wait(&s->synced_more, &s->lock);
            continue;
        }
        const char *images = s->path && s->images.open ? s->images.path : NULL;
        uint64_t reached = s->changes;
        TRY(sfp__db_commit(s, err));
        s->syncing = true;
        pthread_mutex_unlock(&s->lock);
        bool done = (!images || sync_log(images) == 0) && (!s->path || sync_log(s->path) == 0);
        pthread_mutex_lock(&s->lock);
        s->syncing = false;
        s->failed |= !done;
        s->synced = done ? reached : s->synced;
        pthread_cond_broadcast(&s->synced_more);
    }
    return s->failed ? sfp__db_fail_lost(s, err) : SFP_OK;
}
