#include "stream/sample_store.h"

#include "base/monotonic.h"
#include "io/file.h"
#include "stream/source_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { APPLICATION = 0x53465053, LAYOUT = 2 }; /* numbers in the header of the file: "SFPS", and the version of the tables */
enum { BUSY_MILLISECONDS = 10000 };
static const double commit_seconds = 1;

/* Pages are small, because a sample changes one page in each of several trees. */
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

/* Their images are in a file of their own: it is not rewritten when a sample is erased. */
static const char images_sql[] = "PRAGMA images.page_size = 4096; PRAGMA images.secure_delete = ON;"
                                 "CREATE TABLE IF NOT EXISTS images.image(id INTEGER PRIMARY KEY, bytes BLOB NOT NULL);";

#define ROW "id, name, size, modified, changed, digest, label, learned, standing, predicted IS NOT NULL"

/* name, SQL */
#define STATEMENTS(X)                                                                                                           \
    X(FIND, "SELECT " ROW " FROM sample WHERE id = coalesce((SELECT max(id) FROM sample WHERE name = ?1), (SELECT sample FROM " \
            "other_name WHERE name = ?1))")                                                                                     \
    X(ADD_NAME, "INSERT OR REPLACE INTO other_name VALUES(?2, ?1)")                                                             \
    X(ERASE_NAMES, "DELETE FROM other_name WHERE sample = ?1")                                                                  \
    X(FIND_ID, "SELECT " ROW " FROM sample WHERE id = ?1")                                                                      \
    X(FIND_BYTES, "SELECT " ROW " FROM sample WHERE digest = ?1 AND id < ?2 ORDER BY id DESC LIMIT 1")                          \
    X(ADD, "INSERT INTO sample(id, name, size, modified, changed, digest, arrived, label, standing)"                            \
           " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0)")                                                                        \
    X(MOVED, "UPDATE sample SET name = ?2, size = ?3, modified = ?4, changed = ?5,"                                             \
             " standing = CASE WHEN standing IN (2, 3) THEN 0 ELSE standing END WHERE id = ?1")                                 \
    X(LABEL, "UPDATE sample SET label = ?2, standing = ?3, reason = NULL WHERE id = ?1")                                        \
    X(KEEP_LABEL, "INSERT INTO earlier_label SELECT id, ?2, label FROM sample WHERE id = ?1")                                   \
    X(HAS_EARLIER, "SELECT 1 FROM earlier_label WHERE sample = ?1 LIMIT 1")                                                     \
    X(PENDING, "SELECT " ROW " FROM sample WHERE standing = 0 AND id > ?1 AND id < ?2"                                          \
               " AND (label IS NOT NULL OR predicted IS NULL) ORDER BY id LIMIT 1")                                             \
    X(LINE, "SELECT label FROM line WHERE name = ?1")                                                                           \
    X(SET_LINE, "INSERT OR REPLACE INTO line VALUES(?1, ?2)")                                                                   \
    X(LEARNED, "UPDATE sample SET learned = ?2, standing = ?3, reason = NULL WHERE id = ?1")                                    \
    X(UNDO, "INSERT OR IGNORE INTO undo SELECT ?2, id, learned FROM sample WHERE id = ?1")                                      \
    X(REFUSE,                                                                                                                   \
      "UPDATE sample SET standing = ?2, reason = ?3, label = CASE WHEN ?2 = 1 THEN learned ELSE label END WHERE id = ?1")       \
    X(DROP_WAITING, "UPDATE sample SET standing = CASE WHEN learned IS NULL THEN 2 ELSE 1 END, reason = ?1,"                    \
                    " label = coalesce(learned, label) WHERE standing = 0")                                                     \
    X(PREDICTED, "UPDATE sample SET predicted = ?2, timestamp = ?3, class = ?4, probability = ?5, unknown = ?6 WHERE id = ?1")  \
    X(MARK, "INSERT OR IGNORE INTO forgotten SELECT ?1 WHERE NOT EXISTS"                                                        \
            " (SELECT 1 FROM request WHERE number = ?2 AND file = '')")                                                         \
    X(IS_MARKED, "SELECT 1 FROM forgotten WHERE mark = ?1")                                                                     \
    X(ERASE, "UPDATE sample SET name = NULL, size = NULL, modified = NULL, changed = NULL, digest = NULL, label = NULL,"        \
             " learned = NULL, standing = 4, reason = NULL, timestamp = NULL, class = NULL, probability = NULL,"                \
             " unknown = NULL, predicted = NULL WHERE id = ?1")                                                                 \
    X(ERASE_LABELS, "DELETE FROM earlier_label WHERE sample = ?1")                                                              \
    X(ERASE_DECISION, "DELETE FROM decision WHERE sample = ?1")                                                                 \
    X(DECIDE, "INSERT OR REPLACE INTO decision VALUES(?1, ?2, ?3)")                                                             \
    X(DECISION, "SELECT lines, moved FROM decision WHERE sample = ?1")                                                          \
    X(DECISION_MOVED, "UPDATE decision SET moved = 0 WHERE sample = ?1")                                                        \
    X(DECISIONS_REWRITTEN, "UPDATE decision SET lines = 0")                                                                     \
    X(ERASE_UNDO, "DELETE FROM undo WHERE sample = ?1")                                                                         \
    X(ERASE_LINES, "DELETE FROM line WHERE name = ?2 OR name IN (SELECT name FROM other_name WHERE sample = ?1)")               \
    X(COUNTS,                                                                                                                   \
      "SELECT standing, count(*), sum(label IS NULL), count(predicted), sum(predicted IS NOT NULL AND label IS NOT NULL)"       \
      " FROM sample GROUP BY standing")                                                                                         \
    X(CORRECTED, "SELECT count(DISTINCT sample) FROM earlier_label")                                                            \
    X(NEXT_ID, "SELECT max(id) + 1 FROM sample")                                                                                \
    X(PREDICTIONS, "SELECT id, predicted, timestamp, name, class, probability, unknown FROM sample"                             \
                   " WHERE predicted IS NOT NULL AND id >= ?1 ORDER BY id")                                                     \
    X(GET, "SELECT value FROM meta WHERE key = ?1")                                                                             \
    X(SET, "INSERT OR REPLACE INTO meta VALUES(?1, ?2)")                                                                        \
    X(FORGET_UNDO, "DELETE FROM undo WHERE generation <= ?1")                                                                   \
    X(UNDO_MAX, "SELECT max(generation) FROM undo")                                                                             \
    X(UNDO_ALL, "UPDATE sample SET learned = u.learned, standing = 0 FROM undo u WHERE u.sample = id AND u.generation = ?1"     \
                " AND standing <> 4")                                                                                           \
    X(USER_VERSION, "PRAGMA user_version")                                                                                      \
    X(APPLICATION_ID, "PRAGMA application_id")                                                                                  \
    X(TABLES, "SELECT count(*) FROM sqlite_master")                                                                             \
    X(UNDO_DONE, "DELETE FROM undo WHERE generation = ?1")                                                                      \
    X(RESTART, "UPDATE sample SET learned = NULL, standing = 0 WHERE learned IS NOT NULL")                                      \
    X(SETTLE, "UPDATE sample SET standing = 1 WHERE standing = 0 AND learned IS NOT NULL AND learned IS label")                 \
    X(CLASS, "SELECT class FROM renamed WHERE label = ?1")                                                                      \
    X(RENAMES, "SELECT count(*) FROM renamed")                                                                                  \
    X(RENAME, "INSERT OR REPLACE INTO renamed VALUES(?1, ?2)")                                                                  \
    X(RENAME_AGAIN, "UPDATE renamed SET class = ?2 WHERE class = ?1")                                                           \
    X(UNRENAME, "DELETE FROM renamed WHERE label = ?1")                                                                         \
    X(KEEP_LABELS, "INSERT INTO earlier_label SELECT id, ?2, label FROM sample WHERE label = ?1")                               \
    X(RELABEL, "UPDATE sample SET label = ?2, standing = CASE standing WHEN 1 THEN 0 ELSE standing END WHERE label = ?1")       \
    X(RELABEL_LINES, "UPDATE line SET label = ?2 WHERE label = ?1")                                                             \
    X(OF_CLASS, "SELECT name FROM sample WHERE label = ?1 AND name IS NOT NULL ORDER BY id")                                    \
    X(REQUESTS, "SELECT number, name, file, label FROM request WHERE status IS NULL AND number > ?1 ORDER BY number LIMIT 1")   \
    X(ANSWER, "UPDATE request SET status = ?2, answer = ?3, name = NULL, file = NULL, label = NULL WHERE number = ?1")          \
    X(REQUEST_DONE, "UPDATE request SET name = '', file = NULL WHERE number = ?1")                                              \
    X(REQUEST, "INSERT INTO request(name, file, label) VALUES(?1, ?2, ?3)")                                                     \
    X(READ_ANSWER, "SELECT status, answer FROM request WHERE number = ?1")                                                      \
    X(DATA_VERSION, "PRAGMA data_version")                                                                                      \
    X(FIND_KEY, "SELECT sample FROM submission WHERE key = ?1")                                                                 \
    X(ADD_KEY, "INSERT OR REPLACE INTO submission VALUES(?1, ?2)")                                                              \
    X(ADD_CLASS, "INSERT OR IGNORE INTO added_class VALUES(?1)")                                                                \
    X(REMOVE_CLASS, "DELETE FROM added_class WHERE name = ?1")                                                                  \
    X(RENAME_ADDED, "UPDATE OR REPLACE added_class SET name = ?2 WHERE name = ?1")                                              \
    X(CLASSES,                                                                                                                  \
      "SELECT name, sum(n) FROM (SELECT learned AS name, count(*) AS n FROM sample WHERE learned IS NOT NULL GROUP BY 1"        \
      " UNION ALL SELECT name, 0 FROM added_class) GROUP BY name ORDER BY name")                                                \
    X(LIST,                                                                                                                     \
      "SELECT " ROW ", reason, arrived, class, probability, unknown FROM sample WHERE id >= ?1 AND (?2 < 0 OR standing = ?2)"   \
      " AND (?3 IS NULL OR label = ?3) AND (?4 IS NULL OR class = ?4) AND (?5 = 0 OR label IS NULL) AND name IS NOT NULL"       \
      " ORDER BY id LIMIT ?6")                                                                                                  \
    X(PUT_IMAGE, "INSERT OR REPLACE INTO images.image VALUES(?1, ?2)")                                                          \
    X(GET_IMAGE, "SELECT bytes FROM images.image WHERE id = ?1")                                                                \
    X(HAS_IMAGE, "SELECT length(bytes) FROM images.image WHERE id = ?1")                                                        \
    X(NEXT_IMAGE, "SELECT id, length(bytes) FROM images.image WHERE id > ?1 ORDER BY id LIMIT 1")                               \
    X(REMOVE_IMAGE, "DELETE FROM images.image WHERE id = ?1")                                                                   \
    X(IMAGE_BYTES, "SELECT coalesce(sum(length(bytes)), 0), count(*) FROM images.image")

enum {
#define X(name, sql) name,
    STATEMENTS(X)
#undef X
        STATEMENT_COUNT
};

static const char *const statements[] = {
#define X(name, sql) sql,
    STATEMENTS(X)
#undef X
};

struct sfp__store {
    pthread_mutex_t lock; /* guards everything below */
    sqlite3 *db;
    char *path; /* NULL: a temporary store */
    sqlite3_stmt *statement[STATEMENT_COUNT];
    bool open;                      /* a transaction has begun */
    double committed_at;            /* sfp__monotonic_seconds() */
    uint64_t next_id, first_new_id; /* first_new_id: ids below it are of earlier processes */
    uint64_t logged;
    int64_t generation; /* of the next checkpoint */
    int64_t saved;      /* of the last one that exists; 0: there is none */
    int64_t oldest;     /* what older ones contain is not known any more */
    sfp__store_counts counts;
    sfp__digest salt;
    int64_t data_version;  /* of the last look for requests; -1: there may be one */
    bool renames;          /* a class was renamed */
    uint64_t redeliveries; /* number of times that samples must be delivered again */
    bool created, discard;
    /* group commit: the changes that have reached the disk */
    pthread_cond_t synced_more;
    uint64_t changes, synced;
    bool syncing, failed; /* failed: the disk has lost a change, perhaps */
    struct {
        char *path;
        bool open;
        int64_t max_bytes, bytes, count;
    } images;
};

static void unlock(sfp__store **s)
{
    pthread_mutex_unlock(&(*s)->lock);
}

/* Holds the lock until the end of the function. */
#define LOCK(s)                                                      \
    __attribute__((cleanup(unlock))) sfp__store *locked_store = (s); \
    pthread_mutex_lock(&locked_store->lock)

/* ------------------------------------------------------------------ statements */

static const char *path_of(const sfp__store *s)
{
    return s->path ? s->path : "the store of samples";
}

static sfp_status fail_db(const sfp__store *s, sfp_error *err)
{
    int code = s->db ? sqlite3_errcode(s->db) : SQLITE_NOMEM;
    const char *why = s->db ? sqlite3_errmsg(s->db) : "out of memory";
    switch (code & 0xff) {
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
        return sfp__fail(err, SFP_EFORMAT, "%s: not a store of samples, or damaged (%s); choose another --out", path_of(s), why);
    case SQLITE_NOMEM:
        return sfp__fail(err, SFP_ENOMEM, "%s: out of memory", path_of(s));
    default:
        return sfp__fail(err, SFP_EIO, "%s: %s", path_of(s), why);
    }
}

/* Binds the arguments of a statement, one per letter: i int64_t, d double (NAN: NULL), t text (NULL allowed), b sfp__digest *,
 * B an int64_t n and then n bytes. */
static sfp_status bind(sfp__store *s, int which, const char *types, va_list args, sqlite3_stmt **out, sfp_error *err)
{
    if (!s->statement[which] &&
        sqlite3_prepare_v3(s->db, statements[which], -1, SQLITE_PREPARE_PERSISTENT, &s->statement[which], NULL) != SQLITE_OK)
        return fail_db(s, err);
    sqlite3_stmt *st = s->statement[which];
    int code = SQLITE_OK;
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
    return code == SQLITE_OK ? SFP_OK : fail_db(s, err);
}

/* Ends a statement; its texts are no longer valid. */
static void reset(sqlite3_stmt **st)
{
    if (*st) {
        (void)sqlite3_reset(*st);
        (void)sqlite3_clear_bindings(*st);
    }
}

/* Runs a statement up to its first row; *st NULL: there is none. The caller declares *st as OWNED_BY(reset). */
static sfp_status query(sfp__store *s, sqlite3_stmt **st, sfp_error *err, int which, const char *types, ...)
{
    va_list args;
    va_start(args, types);
    sfp_status status = bind(s, which, types, args, st, err);
    va_end(args);
    TRY(status);
    int code = sqlite3_step(*st);
    if (code == SQLITE_ROW)
        return SFP_OK;
    status = code == SQLITE_DONE ? SFP_OK : fail_db(s, err);
    reset(st);
    *st = NULL;
    return status;
}

/* Is no question open? */
__attribute__((unused)) static bool is_quiet(const sfp__store *s)
{
    for (sqlite3_stmt *st = sqlite3_next_stmt(s->db, NULL); st; st = sqlite3_next_stmt(s->db, st))
        if (sqlite3_stmt_busy(st))
            return false;
    return true;
}

/* Begins a transaction, unless one is open. No question may be open: SQLite lets only one wait for another process that writes who does
 * not read yet. */
static sfp_status begin(sfp__store *s, sfp_error *err)
{
    if (s->open)
        return SFP_OK;
    assert(is_quiet(s));
    if (sqlite3_exec(s->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
        return fail_db(s, err);
    s->open = true;
    return SFP_OK;
}

/* Runs a statement that changes rows. */
static sfp_status change(sfp__store *s, sfp_error *err, int which, const char *types, ...)
{
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    va_list args;
    TRY(begin(s, err));
    va_start(args, types);
    sfp_status status = bind(s, which, types, args, &st, err);
    va_end(args);
    TRY(status);
    s->changes++;
    return sqlite3_step(st) == SQLITE_DONE ? SFP_OK : fail_db(s, err);
}

static sfp_status commit(sfp__store *s, sfp_error *err)
{
    if (!s->open)
        return SFP_OK;
    if (sqlite3_exec(s->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
        return fail_db(s, err);
    s->open = false;
    s->committed_at = sfp__monotonic_seconds();
    return SFP_OK;
}

static sfp_status copy_text(sqlite3_stmt *st, int column, char **out, sfp_error *err)
{
    const char *text = (const char *)sqlite3_column_text(st, column);
    return sfp__check_memory(!text || (*out = sfp__strdup(text)), err);
}

static sfp_status copy_row(sqlite3_stmt *st, sfp__stored *out, sfp_error *err)
{
    OWNED_BY(sfp__stored_done) sfp__stored row = {.id = (uint64_t)sqlite3_column_int64(st, 0)};
    TRY(copy_text(st, 1, &row.name, err));
    row.stamp = (sfp__file_stamp){sqlite3_column_int64(st, 2), sqlite3_column_int64(st, 3), sqlite3_column_int64(st, 4)};
    const void *digest = sqlite3_column_blob(st, 5);
    if (digest && sqlite3_column_bytes(st, 5) == (int)sizeof row.digest)
        memcpy(&row.digest, digest, sizeof row.digest);
    TRY(copy_text(st, 6, &row.label, err));
    TRY(copy_text(st, 7, &row.learned, err));
    int standing = sqlite3_column_int(st, 8);
    row.standing = standing >= 0 && standing < SFP__STANDINGS ? (sfp__standing)standing : SFP__FORGOTTEN;
    row.predicted = sqlite3_column_int(st, 9) != 0;
    *out = row;
    row = (sfp__stored){0};
    return SFP_OK;
}

void sfp__stored_done(sfp__stored *s)
{
    sfp__free(s->name);
    sfp__free(s->label);
    sfp__free(s->learned);
    *s = (sfp__stored){0};
}

/* Finds the text that a statement returns for a key; *out NULL: none. */
static sfp_status find_text(sfp__store *s, int which, const char *key, char **out, sfp_error *err)
{
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    *out = NULL;
    TRY(query(s, &st, err, which, "t", key));
    return st ? copy_text(st, 0, out, err) : SFP_OK;
}

static sfp_status get_number(sfp__store *s, const char *key, int64_t *out, sfp_error *err)
{
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    TRY(query(s, &st, err, GET, "t", key));
    *out = st ? sqlite3_column_int64(st, 0) : 0;
    return SFP_OK;
}

/* Reads the number that a statement without parameters returns; 0: no row, or NULL. */
static sfp_status read_number(sfp__store *s, int which, int64_t *out, sfp_error *err)
{
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    TRY(query(s, &st, err, which, ""));
    *out = st ? sqlite3_column_int64(st, 0) : 0;
    return SFP_OK;
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

static sfp_status fail_foreign(const sfp__store *s, sfp_error *err)
{
    return sfp__fail(err, SFP_EFORMAT, "%s: not a store of samples, but a database of another program; choose another --out",
                     path_of(s));
}

/* Creates the tables of a new file, or checks that the file has them. */
static sfp_status create_tables(sfp__store *s, sfp_error *err)
{
    char pragmas[128];
    int64_t layout, application, tables;
    TRY(read_number(s, USER_VERSION, &layout, err));
    if (layout == 0) { /* another process may create them at the same time */
        TRY(begin(s, err));
        TRY(read_number(s, USER_VERSION, &layout, err));
        TRY(read_number(s, TABLES, &tables, err));
        if (layout == 0 && tables > 0)
            return fail_foreign(s, err);
        (void)snprintf(pragmas, sizeof pragmas, "PRAGMA application_id = %d; PRAGMA user_version = %d", APPLICATION, LAYOUT);
        if (layout == 0 && (sqlite3_exec(s->db, create_sql, NULL, NULL, NULL) != SQLITE_OK ||
                            sqlite3_exec(s->db, pragmas, NULL, NULL, NULL) != SQLITE_OK))
            return fail_db(s, err);
        s->created = layout == 0;
        TRY(commit(s, err));
        TRY(read_number(s, USER_VERSION, &layout, err));
    }
    TRY(read_number(s, APPLICATION_ID, &application, err));
    if (application != APPLICATION)
        return fail_foreign(s, err);
    if (layout != LAYOUT)
        return sfp__fail(err, SFP_EFORMAT, "%s: the layout has version %d, expected %d; choose another --out", path_of(s),
                         (int)layout, LAYOUT);
    return SFP_OK;
}

static sfp_status load_counts(sfp__store *s, sfp_error *err)
{
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    sfp__store_counts c = {0};
    int64_t corrected;
    TRY(query(s, &st, err, COUNTS, ""));
    for (int code = st ? SQLITE_ROW : SQLITE_DONE; code != SQLITE_DONE; code = sqlite3_step(st)) {
        if (code != SQLITE_ROW)
            return fail_db(s, err);
        int standing = sqlite3_column_int(st, 0);
        if (standing < 0 || standing >= SFP__STANDINGS)
            return sfp__fail(err, SFP_EFORMAT, "%s: a sample has standing %d; the file is damaged", path_of(s), standing);
        uint64_t n = (uint64_t)sqlite3_column_int64(st, 1), unlabelled = (uint64_t)sqlite3_column_int64(st, 2);
        uint64_t predicted = (uint64_t)sqlite3_column_int64(st, 3), late = (uint64_t)sqlite3_column_int64(st, 4);
        c.standing[standing] = n;
        c.unlabelled += standing == SFP__WAITING ? unlabelled : 0;
        c.predicted += predicted;
        c.late += late;
        c.expired += standing == SFP__DROPPED ? predicted - late : 0;
    }
    TRY(read_number(s, CORRECTED, &corrected, err));
    c.corrected = (uint64_t)corrected;
    s->counts = c;
    return SFP_OK;
}

static sfp_status load_numbers(sfp__store *s, sfp_error *err)
{
    int64_t next, logged, generation, renames;
    OWNED_BY(reset) sqlite3_stmt *salt = NULL;
    TRY(read_number(s, NEXT_ID, &next, err));
    TRY(read_number(s, RENAMES, &renames, err));
    TRY(get_number(s, "logged", &logged, err));
    TRY(get_number(s, "generation", &generation, err));
    TRY(get_number(s, "oldest", &s->oldest, err));
    TRY(query(s, &salt, err, GET, "t", "salt"));
    const void *value = salt ? sqlite3_column_blob(salt, 0) : NULL;
    if (value && sqlite3_column_bytes(salt, 0) == (int)sizeof s->salt)
        memcpy(&s->salt, value, sizeof s->salt);
    s->renames = renames > 0;
    s->next_id = s->first_new_id = (uint64_t)next;
    s->logged = (uint64_t)logged;
    s->generation = generation + 1;
    return load_counts(s, err);
}

/* file: the path without links, because SQLite would refuse one above the file, too. */
static sfp_status open_file(sfp__store *s, const char *file, sfp_error *err)
{
    if (sqlite3_open_v2(file, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW,
                        NULL) != SQLITE_OK)
        return fail_db(s, err);
    (void)sqlite3_busy_timeout(s->db, BUSY_MILLISECONDS);
    if (sqlite3_exec(s->db, "PRAGMA page_size = 1024; PRAGMA secure_delete = ON; PRAGMA temp_store = MEMORY", NULL, NULL, NULL) !=
        SQLITE_OK)
        return fail_db(s, err);
    TRY(create_tables(s, err));
    /* A commit in the write-ahead log does not wait for the disk; sfp__store_prepare_checkpoint does. Between checkpoints the log keeps up
     * to 8 MB, because pages that change again, or are neighbours, are then written once to the file. */
    static const char log[] = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 8000";
    double until = sfp__monotonic_seconds() + BUSY_MILLISECONDS * 1e-3;
    for (int code; s->path && (code = sqlite3_exec(s->db, log, NULL, NULL, NULL)) != SQLITE_OK;) {
        if (code != SQLITE_BUSY || sfp__monotonic_seconds() > until) /* SQLite does not wait for this lock by itself */
            return fail_db(s, err);
        (void)nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    if (!s->path && sqlite3_exec(s->db, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF", NULL, NULL, NULL) != SQLITE_OK)
        return fail_db(s, err);
    if (sqlite3_exec(s->db, submitted_sql, NULL, NULL, NULL) != SQLITE_OK)
        return fail_db(s, err);
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
    for (int i = 0; i < STATEMENT_COUNT; i++)
        (void)sqlite3_finalize(s->statement[i]);
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

/* -------------------------------------------------------------------- arrivals */

static sfp_status copy_found(sqlite3_stmt *st, sfp__stored *out, bool *found, sfp_error *err)
{
    *found = st != NULL;
    return st ? copy_row(st, out, err) : SFP_OK;
}

sfp_status sfp__store_find(sfp__store *s, const char *name, sfp__stored *out, bool *found, sfp_error *err)
{
    LOCK(s);
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    TRY(query(s, &st, err, FIND, "t", name));
    return copy_found(st, out, found, err);
}

static sfp_status find_id(sfp__store *s, uint64_t id, sfp__stored *out, sfp_error *err)
{
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    bool found;
    TRY(query(s, &st, err, FIND_ID, "i", (int64_t)id));
    TRY(copy_found(st, out, &found, err));
    return found ? SFP_OK : sfp__fail(err, SFP_EFORMAT, "%s: sample %llu is missing", path_of(s), (unsigned long long)id);
}

sfp_status sfp__store_get(sfp__store *s, uint64_t id, sfp__stored *out, sfp_error *err)
{
    LOCK(s);
    return find_id(s, id, out, err);
}

sfp_status sfp__store_find_bytes(sfp__store *s, const sfp__digest *digest, uint64_t before, sfp__stored *out, bool *found,
                                 sfp_error *err)
{
    LOCK(s);
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    TRY(query(s, &st, err, FIND_BYTES, "bi", digest, (int64_t)(before > INT64_MAX ? INT64_MAX : before)));
    return copy_found(st, out, found, err);
}

sfp_status sfp__store_was_forgotten(sfp__store *s, const sfp__digest *digest, bool *out, sfp_error *err)
{
    LOCK(s);
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    *out = false;
    if (s->counts.standing[SFP__FORGOTTEN] == 0)
        return SFP_OK;
    sfp__digest mark = sfp__digest_bytes(s->salt, digest, sizeof *digest);
    TRY(query(s, &st, err, IS_MARKED, "b", &mark));
    *out = st != NULL;
    return SFP_OK;
}

/* Adds a sample with the next id. */
/* Replaces the name of a class that was renamed. A caller that asked before it gave the label may have asked too early. renamed: owns the
 * new name. */
static sfp_status follow_rename(sfp__store *s, const char **label, char **renamed, sfp_error *err)
{
    if (s->renames && *label)
        TRY(find_text(s, CLASS, *label, renamed, err));
    if (*renamed)
        *label = *renamed;
    return SFP_OK;
}

static sfp_status add_row(sfp__store *s, const char *name, const sfp__file_stamp *stamp, const sfp__digest *digest,
                          const char *label, sfp_error *err)
{
    OWNED char *renamed = NULL;
    TRY(follow_rename(s, &label, &renamed, err));
    TRY(change(s, err, ADD, "itiiibit", (int64_t)s->next_id, name, stamp->size, stamp->modified, stamp->changed, digest,
               sfp__time_of_day(), label));
    s->next_id++;
    s->counts.standing[SFP__WAITING]++;
    s->counts.unlabelled += label == NULL;
    return SFP_OK;
}

sfp_status sfp__store_add(sfp__store *s, const char *name, const sfp__file_stamp *stamp, const sfp__digest *digest,
                          const char *label, uint64_t *id, sfp_error *err)
{
    LOCK(s);
    uint64_t next = s->next_id;
    TRY(add_row(s, name, stamp, digest, label, err));
    *id = next;
    return SFP_OK;
}

/* Updates the counts: a sample leaves the standing of `was` and gets `standing`. */
static void count_standing(sfp__store *s, const sfp__stored *was, sfp__standing standing)
{
    sfp__store_counts *c = &s->counts;
    c->standing[was->standing]--;
    c->standing[standing]++;
    c->unlabelled -= was->standing == SFP__WAITING && !was->label;
    c->expired -= was->standing == SFP__DROPPED && was->predicted && !was->label;
}

static sfp_status set_label(sfp__store *s, uint64_t id, const char *label, sfp_error *err)
{
    OWNED_BY(sfp__stored_done) sfp__stored was = {0};
    OWNED char *renamed = NULL;
    TRY(follow_rename(s, &label, &renamed, err));
    TRY(find_id(s, id, &was, err));
    if (was.label && strcmp(was.label, label) == 0 && was.standing != SFP__DROPPED)
        return SFP_OK;
    bool first = false; /* is this the first correction of the sample? */
    if (was.label && strcmp(was.label, label) != 0) {
        TRY(begin(s, err));
        OWNED_BY(reset) sqlite3_stmt *st = NULL;
        TRY(query(s, &st, err, HAS_EARLIER, "i", (int64_t)id));
        first = !st;
        TRY(change(s, err, KEEP_LABEL, "ii", (int64_t)id, sfp__time_of_day()));
    }
    /* a correction that was taken back before it was learned leaves nothing to do */
    sfp__standing now = was.learned && strcmp(was.learned, label) == 0 ? SFP__LEARNED : SFP__WAITING;
    TRY(change(s, err, LABEL, "iti", (int64_t)id, label, (int64_t)now));
    count_standing(s, &was, now);
    s->counts.late += was.predicted && !was.label;
    s->counts.corrected += first;
    return SFP_OK;
}

sfp_status sfp__store_label(sfp__store *s, uint64_t id, const char *label, sfp_error *err)
{
    LOCK(s);
    return set_label(s, id, label, err);
}

sfp_status sfp__store_moved(sfp__store *s, uint64_t id, const char *name, const sfp__file_stamp *stamp, const char *label,
                            sfp_error *err)
{
    LOCK(s);
    OWNED_BY(sfp__stored_done) sfp__stored was = {0};
    TRY(find_id(s, id, &was, err));
    TRY(change(s, err, MOVED, "itiii", (int64_t)id, name, stamp->size, stamp->modified, stamp->changed));
    TRY(change(s, err, DECISION_MOVED, "i", (int64_t)id));
    if (was.standing == SFP__UNREADABLE || was.standing == SFP__DROPPED) {
        count_standing(s, &was, SFP__WAITING);
        s->counts.unlabelled += !was.label;
    }
    return label ? set_label(s, id, label, err) : SFP_OK;
}

sfp_status sfp__store_add_name(sfp__store *s, uint64_t id, const char *name, const char *label, sfp_error *err)
{
    LOCK(s);
    TRY(change(s, err, ADD_NAME, "it", (int64_t)id, name));
    return label ? set_label(s, id, label, err) : SFP_OK;
}

sfp_status sfp__store_decide(sfp__store *s, uint64_t id, uint64_t lines, bool moved, sfp_error *err)
{
    LOCK(s);
    return change(s, err, DECIDE, "iii", (int64_t)id, (int64_t)lines, (int64_t)moved);
}

sfp_status sfp__store_decision(sfp__store *s, uint64_t id, uint64_t *lines, bool *moved, sfp_error *err)
{
    LOCK(s);
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    TRY(query(s, &st, err, DECISION, "i", (int64_t)id));
    *lines = st ? (uint64_t)sqlite3_column_int64(st, 0) : 0;
    *moved = st && sqlite3_column_int(st, 1);
    return SFP_OK;
}

sfp_status sfp__store_next_pending(sfp__store *s, int64_t after, sfp__stored *out, bool *found, sfp_error *err)
{
    LOCK(s);
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    TRY(query(s, &st, err, PENDING, "ii", after, s->redeliveries ? INT64_MAX : (int64_t)s->first_new_id));
    return copy_found(st, out, found, err);
}

/* --------------------------------------------------------------- renamed classes */

sfp_status sfp__store_class(sfp__store *s, const char *label, char **out, sfp_error *err)
{
    LOCK(s);
    *out = NULL;
    return s->renames ? find_text(s, CLASS, label, out, err) : SFP_OK;
}

sfp_status sfp__store_rename_class(sfp__store *s, const char *from, const char *to, sfp_error *err)
{
    LOCK(s);
    TRY(change(s, err, UNRENAME, "t", to));
    TRY(change(s, err, RENAME_AGAIN, "tt", from, to));
    TRY(change(s, err, RENAME, "tt", from, to));
    TRY(change(s, err, KEEP_LABELS, "ti", from, sfp__time_of_day()));
    TRY(change(s, err, RELABEL, "tt", from, to));
    TRY(change(s, err, SETTLE, "")); /* those that were learned with the new name before they got the old one */
    TRY(change(s, err, RELABEL_LINES, "tt", from, to));
    TRY(change(s, err, RENAME_ADDED, "tt", from, to));
    TRY(commit(s, err));
    s->renames = true;
    s->redeliveries++;
    return load_counts(s, err);
}

uint64_t sfp__store_redeliveries(sfp__store *s)
{
    LOCK(s);
    return s->redeliveries;
}

sfp_status sfp__store_each_of_class(sfp__store *s, const char *label,
                                    sfp_status (*fn)(void *ctx, const char *name, sfp_error *err), void *ctx, int64_t *count,
                                    sfp_error *err)
{
    LOCK(s);
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    *count = 0;
    TRY(query(s, &st, err, OF_CLASS, "t", label));
    for (int code = st ? SQLITE_ROW : SQLITE_DONE; code != SQLITE_DONE; code = sqlite3_step(st)) {
        if (code != SQLITE_ROW)
            return fail_db(s, err);
        if (fn)
            TRY(fn(ctx, (const char *)sqlite3_column_text(st, 0), err));
        ++*count;
    }
    return SFP_OK;
}

/* ------------------------------------------------------------------ labels.csv */

sfp_status sfp__store_line(sfp__store *s, const char *name, char **label, sfp_error *err)
{
    LOCK(s);
    return find_text(s, LINE, name, label, err);
}

sfp_status sfp__store_set_line(sfp__store *s, const char *name, const char *label, bool *changed, sfp_error *err)
{
    LOCK(s);
    OWNED char *was = NULL;
    TRY(find_text(s, LINE, name, &was, err));
    *changed = !was || strcmp(was, label) != 0;
    return *changed ? change(s, err, SET_LINE, "tt", name, label) : SFP_OK;
}

sfp_status sfp__store_labels_position(sfp__store *s, sfp__labels_position *out, sfp_error *err)
{
    LOCK(s);
    int64_t offset, line, crc;
    TRY(get_number(s, "labels_offset", &offset, err));
    TRY(get_number(s, "labels_line", &line, err));
    TRY(get_number(s, "labels_crc", &crc, err));
    *out = (sfp__labels_position){.offset = (uint64_t)offset, .line = (uint64_t)line, .crc = (uint32_t)crc};
    return SFP_OK;
}

sfp_status sfp__store_set_labels_position(sfp__store *s, const sfp__labels_position *at, bool rewritten, sfp_error *err)
{
    LOCK(s);
    if (rewritten)
        TRY(change(s, err, DECISIONS_REWRITTEN, ""));
    TRY(change(s, err, SET, "ti", "labels_offset", (int64_t)at->offset));
    TRY(change(s, err, SET, "ti", "labels_line", (int64_t)at->line));
    return change(s, err, SET, "ti", "labels_crc", (int64_t)at->crc);
}

/* ------------------------------------------------------------------- standings */

sfp_status sfp__store_learned(sfp__store *s, uint64_t id, const char *label, sfp_error *err)
{
    LOCK(s);
    OWNED_BY(sfp__stored_done) sfp__stored was = {0};
    TRY(find_id(s, id, &was, err));
    /* another label may have arrived since: then the sample waits for its correction */
    bool current = !label || !was.label || strcmp(was.label, label) == 0;
    sfp__standing now = !label ? SFP__DROPPED : current ? SFP__LEARNED : SFP__WAITING;
    TRY(change(s, err, UNDO, "ii", (int64_t)id, s->generation));
    TRY(change(s, err, LEARNED, "iti", (int64_t)id, label, (int64_t)now));
    count_standing(s, &was, now);
    return SFP_OK;
}

static sfp_status refuse(sfp__store *s, uint64_t id, sfp__standing standing, const char *reason, sfp_error *err)
{
    OWNED_BY(sfp__stored_done) sfp__stored was = {0};
    TRY(find_id(s, id, &was, err));
    sfp__standing now = was.learned ? SFP__LEARNED : standing;
    TRY(change(s, err, REFUSE, "iit", (int64_t)id, (int64_t)now, reason));
    count_standing(s, &was, now);
    s->counts.expired += now == SFP__DROPPED && was.predicted && !was.label;
    return SFP_OK;
}

sfp_status sfp__store_refuse(sfp__store *s, uint64_t id, sfp__standing standing, const char *reason, sfp_error *err)
{
    LOCK(s);
    return refuse(s, id, standing, reason, err);
}

sfp_status sfp__store_drop_waiting(sfp__store *s, const char *reason, sfp_error *err)
{
    LOCK(s);
    if (s->counts.standing[SFP__WAITING] == 0)
        return SFP_OK;
    TRY(change(s, err, DROP_WAITING, "t", reason));
    return load_counts(s, err);
}

sfp_status sfp__store_predicted(sfp__store *s, uint64_t id, int64_t at, const char *class_name, double probability,
                                double unknown, int64_t timestamp, sfp_error *err)
{
    LOCK(s);
    OWNED_BY(sfp__stored_done) sfp__stored was = {0};
    TRY(find_id(s, id, &was, err));
    TRY(change(s, err, PREDICTED, "iiitdd", (int64_t)id, at, timestamp, class_name, probability, unknown));
    if (was.predicted)
        return SFP_OK;
    s->counts.predicted++;
    s->counts.late += was.label != NULL; /* the label was faster than the answer */
    s->counts.expired += was.standing == SFP__DROPPED && !was.label;
    return SFP_OK;
}

static sfp_status image_size(sfp__store *s, uint64_t id, int64_t *bytes, sfp_error *err)
{
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    *bytes = -1;
    if (s->images.open)
        TRY(query(s, &st, err, HAS_IMAGE, "i", (int64_t)id));
    if (st)
        *bytes = sqlite3_column_int64(st, 0);
    return SFP_OK;
}

static sfp_status remove_image(sfp__store *s, uint64_t id, sfp_error *err)
{
    int64_t bytes;
    TRY(image_size(s, id, &bytes, err));
    if (bytes < 0)
        return SFP_OK;
    TRY(change(s, err, REMOVE_IMAGE, "i", (int64_t)id));
    s->images.bytes -= bytes;
    s->images.count--;
    return SFP_OK;
}

static sfp_status erase(sfp__store *s, uint64_t id, int64_t request, sfp_error *err)
{
    OWNED_BY(sfp__stored_done) sfp__stored was = {0};
    TRY(find_id(s, id, &was, err));
    if (was.standing == SFP__FORGOTTEN) /* another request has asked for it, too */
        return SFP_OK;
    sfp__digest mark = sfp__digest_bytes(s->salt, &was.digest, sizeof was.digest);
    TRY(change(s, err, MARK, "bi", &mark, request));
    TRY(change(s, err, ERASE_LABELS, "i", (int64_t)id));
    TRY(change(s, err, ERASE_DECISION, "i", (int64_t)id));
    TRY(change(s, err, ERASE_UNDO, "i", (int64_t)id));
    TRY(change(s, err, ERASE_LINES, "it", (int64_t)id, was.name));
    TRY(change(s, err, ERASE_NAMES, "i", (int64_t)id));
    TRY(remove_image(s, id, err));
    return change(s, err, ERASE, "i", (int64_t)id);
}

/* Removes what erased rows have left in the file. */
static sfp_status scrub(sfp__store *s, sfp_error *err)
{
    if (!s->path)
        return SFP_OK;
    TRY(commit(s, err));
    /* Pages that were split keep copies of their rows where nothing is stored any more, in spite of secure_delete. */
    if (sqlite3_exec(s->db, "PRAGMA temp_store = FILE; VACUUM; PRAGMA temp_store = MEMORY", NULL, NULL, NULL) != SQLITE_OK)
        return fail_db(s, err);
    /* the log must not keep the rows either */
    int code = sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    if (code == SQLITE_NOMEM)
        return fail_db(s, err);
    return code == SQLITE_OK ? change(s, err, SET, "ti", "erasing", (int64_t)0) : SFP_OK;
}

sfp_status sfp__store_erase(sfp__store *s, int n, const uint64_t *ids, const int64_t *requests, sfp_error *err)
{
    LOCK(s);
    if (s->salt.word[0] == 0 && s->salt.word[1] == 0) {
        if (getrandom(&s->salt, sizeof s->salt, 0) != (ssize_t)sizeof s->salt)
            return sfp__fail_errno(err, SFP_EIO, "cannot get random bytes");
        TRY(change(s, err, SET, "tb", "salt", &s->salt));
    }
    TRY(change(s, err, SET, "ti", "erasing", (int64_t)1)); /* a process that is killed leaves it to the next one */
    for (int i = 0; i < n; i++) {
        TRY(erase(s, ids[i], requests ? requests[i] : 0, err));
        TRY(change(s, err, REQUEST_DONE, "i", requests ? requests[i] : 0));
    }
    TRY(scrub(s, err));
    return load_counts(s, err);
}

sfp__store_counts sfp__store_get_counts(sfp__store *s)
{
    LOCK(s);
    return s->counts;
}

uint64_t sfp__store_next_id(sfp__store *s)
{
    LOCK(s);
    return s->next_id;
}

uint64_t sfp__store_first_new_id(const sfp__store *s)
{
    return s->first_new_id;
}

static double number_or_nan(sqlite3_stmt *st, int column)
{
    return sqlite3_column_type(st, column) == SQLITE_NULL ? (double)NAN : sqlite3_column_double(st, column);
}

sfp_status sfp__store_each_prediction(sfp__store *s, uint64_t from,
                                      sfp_status (*fn)(void *ctx, const sfp__stored_prediction *p, sfp_error *err), void *ctx,
                                      sfp_error *err)
{
    LOCK(s);
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    TRY(query(s, &st, err, PREDICTIONS, "i", (int64_t)(from > INT64_MAX ? INT64_MAX : from)));
    for (int code = st ? SQLITE_ROW : SQLITE_DONE; code != SQLITE_DONE; code = sqlite3_step(st)) {
        if (code != SQLITE_ROW)
            return fail_db(s, err);
        const char *name = (const char *)sqlite3_column_text(st, 3);
        const sfp__stored_prediction p = {.id = (uint64_t)sqlite3_column_int64(st, 0),
                                          .at = sqlite3_column_int64(st, 1),
                                          .timestamp = sqlite3_column_int64(st, 2),
                                          .name = name ? name : "",
                                          .class_name = (const char *)sqlite3_column_text(st, 4),
                                          .probability = number_or_nan(st, 5),
                                          .unknown = number_or_nan(st, 6)};
        TRY(fn(ctx, &p, err));
    }
    return SFP_OK;
}

sfp_status sfp__store_set_logged(sfp__store *s, uint64_t id, sfp_error *err)
{
    LOCK(s);
    s->logged = id;
    return change(s, err, SET, "ti", "logged", (int64_t)id);
}

uint64_t sfp__store_logged(const sfp__store *s)
{
    return s->logged;
}

/* ----------------------------------------------------------------- transactions */

sfp_status sfp__store_commit(sfp__store *s, sfp_error *err)
{
    LOCK(s);
    return commit(s, err);
}

sfp_status sfp__store_commit_if_due(sfp__store *s, sfp_error *err)
{
    LOCK(s);
    return sfp__monotonic_seconds() - s->committed_at >= commit_seconds ? commit(s, err) : SFP_OK;
}

sfp_status sfp__store_prepare_checkpoint(sfp__store *s, int64_t *generation, sfp_error *err)
{
    LOCK(s);
    TRY(change(s, err, SET, "ti", "generation", s->generation));
    TRY(commit(s, err));
    *generation = s->generation;
    if (!s->path)
        return SFP_OK;
    /* PASSIVE does not wait for readers. It syncs the log first, which is what counts. */
    int code = sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    return code == SQLITE_OK || code == SQLITE_BUSY ? SFP_OK : fail_db(s, err);
}

sfp_status sfp__store_finish_checkpoint(sfp__store *s, bool only, sfp_error *err)
{
    LOCK(s);
    int64_t oldest = only ? s->generation : s->saved;
    TRY(change(s, err, FORGET_UNDO, "i", oldest));
    TRY(change(s, err, SET, "ti", "oldest", oldest));
    s->oldest = oldest;
    s->saved = s->generation++;
    return SFP_OK;
}

sfp_status sfp__store_resume(sfp__store *s, int64_t generation, sfp_error *err)
{
    LOCK(s);
    if (generation >= s->generation)
        return sfp__fail(err, SFP_EFORMAT,
                         "%s: the store is older than the checkpoint beside it (%lld, expected %lld); restore both together",
                         path_of(s), (long long)s->generation - 1, (long long)generation);
    if (generation > 0 && generation < s->oldest)
        return sfp__fail(err, SFP_EFORMAT,
                         "%s: the checkpoint beside the store is older (%lld, expected at least %lld); restore both together",
                         path_of(s), (long long)generation, (long long)s->oldest);
    for (int64_t last;;) {
        TRY(read_number(s, UNDO_MAX, &last, err));
        if (last <= generation)
            break;
        TRY(change(s, err, UNDO_ALL, "i", last));
        TRY(change(s, err, UNDO_DONE, "i", last));
    }
    if (generation == 0)
        TRY(change(s, err, RESTART, ""));
    s->saved = generation;
    int64_t erasing;
    TRY(change(s, err, SETTLE, ""));
    s->data_version = -1;
    TRY(load_counts(s, err));
    TRY(commit(s, err));
    TRY(get_number(s, "erasing", &erasing, err));
    return erasing ? scrub(s, err) : SFP_OK;
}

/* --------------------------------------------------------------------- requests */

void sfp__request_done(sfp__request *r)
{
    sfp__free(r->name);
    sfp__free(r->file);
    sfp__free(r->label);
    *r = (sfp__request){0};
}

sfp_status sfp__store_next_request(sfp__store *s, int64_t after, sfp__request *out, bool *found, sfp_error *err)
{
    LOCK(s);
    *found = false;
    if (!s->path) /* no other process can open it */
        return SFP_OK;
    int64_t version;
    TRY(read_number(s, DATA_VERSION, &version, err));
    if (version == s->data_version)
        return SFP_OK;
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    OWNED_BY(sfp__request_done) sfp__request r = {0};
    TRY(query(s, &st, err, REQUESTS, "i", after));
    if (!st) {
        s->data_version = after > 0 ? -1 : version;
        return SFP_OK;
    }
    r.number = sqlite3_column_int64(st, 0);
    TRY(copy_text(st, 1, &r.name, err));
    TRY(copy_text(st, 2, &r.file, err));
    TRY(copy_text(st, 3, &r.label, err));
    s->data_version = -1; /* others may follow */
    *out = r;
    r = (sfp__request){0};
    *found = true;
    return SFP_OK;
}

sfp_status sfp__store_answer(sfp__store *s, int64_t number, sfp_status status, const char *text, sfp_error *err)
{
    LOCK(s);
    return change(s, err, ANSWER, "iit", number, (int64_t)status, text);
}

sfp_status sfp__store_request(sfp__store *s, const char *name, const char *file, const char *label, int64_t *number,
                              sfp_error *err)
{
    LOCK(s);
    TRY(change(s, err, REQUEST, "ttt", name, file, label));
    *number = sqlite3_last_insert_rowid(s->db);
    s->data_version = -1; /* the version of the data shows only changes of other processes */
    return commit(s, err);
}

sfp_status sfp__store_read_answer(sfp__store *s, int64_t number, bool *done, sfp_error *err)
{
    LOCK(s);
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    TRY(query(s, &st, err, READ_ANSWER, "i", number));
    *done = st && sqlite3_column_type(st, 0) != SQLITE_NULL;
    sfp_status status = *done ? (sfp_status)sqlite3_column_int(st, 0) : SFP_OK;
    if (!status)
        return SFP_OK;
    const char *text = (const char *)sqlite3_column_text(st, 1);
    return sfp__fail(err, status, "%s", text ? text : "the request was refused");
}

/* --------------------------------------------------------------------- submissions */

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
    LOCK(s);
    uint64_t wanted = s->changes;
    while (s->synced < wanted && !s->failed) {
        if (s->syncing) { /* what this thread has changed is perhaps part of it, else of the next one */
            pthread_cond_wait(&s->synced_more, &s->lock);
            continue;
        }
        const char *images = s->path && s->images.open ? s->images.path : NULL;
        uint64_t reached = s->changes;
        TRY(commit(s, err));
        s->syncing = true;
        pthread_mutex_unlock(&s->lock);
        bool done = (!images || sync_log(images) == 0) && (!s->path || sync_log(s->path) == 0);
        pthread_mutex_lock(&s->lock);
        s->syncing = false;
        s->failed |= !done;
        s->synced = done ? reached : s->synced;
        pthread_cond_broadcast(&s->synced_more);
    }
    return s->failed ? sfp__fail(err, SFP_EIO,
                                 "%s: the disk does not keep what is written; samples are refused until the run is started again",
                                 path_of(s))
                     : SFP_OK;
}

sfp_status sfp__store_open_images(sfp__store *s, int64_t max_bytes, sfp_error *err)
{
    LOCK(s);
    char sql[96];
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    s->images.max_bytes = max_bytes;
    if (s->images.open)
        return SFP_OK;
    char *attach = sqlite3_mprintf("ATTACH %Q AS images", s->path ? s->images.path : "");
    TRY(sfp__check_memory(attach, err));
    TRY(commit(s, err));
    int code = sqlite3_exec(s->db, attach, NULL, NULL, NULL);
    sqlite3_free(attach);
    (void)snprintf(sql, sizeof sql, "PRAGMA images.journal_mode = %s; PRAGMA images.synchronous = %s", s->path ? "WAL" : "OFF",
                   s->path ? "NORMAL" : "OFF");
    if (code != SQLITE_OK || sqlite3_exec(s->db, images_sql, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(s->db, sql, NULL, NULL, NULL) != SQLITE_OK)
        return fail_db(s, err);
    s->images.open = true;
    TRY(query(s, &st, err, IMAGE_BYTES, ""));
    s->images.bytes = st ? sqlite3_column_int64(st, 0) : 0;
    s->images.count = st ? sqlite3_column_int64(st, 1) : 0;
    return SFP_OK;
}

/* Does the sample still have to be delivered with its image? */
static bool needs_image(const sfp__stored *row)
{
    return row->standing == SFP__WAITING && (row->label || !row->predicted);
}

/* Removes the oldest images until `more` bytes fit; but no image that is still to be learned. A sample that waits for a label without its
 * image is DROPPED. */
static sfp_status make_space(sfp__store *s, int64_t more, sfp_error *err)
{
    for (int64_t after = -1; s->images.bytes + more > s->images.max_bytes;) {
        OWNED_BY(sfp__stored_done) sfp__stored row = {0};
        {
            OWNED_BY(reset) sqlite3_stmt *st = NULL;
            TRY(query(s, &st, err, NEXT_IMAGE, "i", after));
            if (!st)
                return sfp__fail(err, SFP_ELIMIT,
                                 "the images of samples that wait to be learned have %lld bytes, expected at most %lld "
                                 "(--keep-images); send the sample again later",
                                 (long long)s->images.bytes, (long long)s->images.max_bytes);
            after = sqlite3_column_int64(st, 0);
        }
        TRY(find_id(s, (uint64_t)after, &row, err));
        if (needs_image(&row))
            continue;
        TRY(remove_image(s, row.id, err));
        if (row.standing == SFP__WAITING)
            TRY(refuse(s, row.id, SFP__DROPPED, "its image was removed to make space (--keep-images)", err));
    }
    return SFP_OK;
}

/* kept: the bytes of an image that it replaces; -1: none. */
static sfp_status put_image(sfp__store *s, uint64_t id, const void *bytes, size_t size, int64_t kept, sfp_error *err)
{
    TRY(change(s, err, PUT_IMAGE, "iB", (int64_t)id, (int64_t)size, bytes));
    s->images.bytes += (int64_t)size - (kept > 0 ? kept : 0);
    s->images.count += kept < 0;
    return SFP_OK;
}

/* The sample that an earlier submission with this key has made. */
static sfp_status find_submission(sfp__store *s, const char *key, sfp__stored *out, bool *found, sfp_error *err)
{
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    *found = false;
    if (key)
        TRY(query(s, &st, err, FIND_KEY, "t", key));
    if (!st)
        return SFP_OK;
    *found = true;
    return find_id(s, (uint64_t)sqlite3_column_int64(st, 0), out, err);
}

sfp_status sfp__store_submit(sfp__store *s, const sfp__submission *in, uint64_t *id, bool *repeated, sfp_error *err)
{
    LOCK(s);
    OWNED_BY(sfp__stored_done) sfp__stored row = {0}, same = {0};
    OWNED char *name = NULL;
    const sfp__digest digest = sfp__digest_bytes((sfp__digest){0}, in->bytes, in->size), none = {0};
    int64_t kept;
    bool taken = false;
    TRY(find_submission(s, in->key, &row, repeated, err));
    if (*repeated && !sfp__digest_equal(&row.digest, &none) && !sfp__digest_equal(&row.digest, &digest))
        return sfp__fail(err, SFP_EINVAL, "the key was used for another image, expected a new key for each sample");
    *id = *repeated ? row.id : s->next_id;
    TRY(image_size(s, *id, &kept, err));
    /* a process that was killed may have kept the row without the image, as both files are not written at once */
    bool lost =
        *repeated && kept < 0 && !row.learned && row.name && (row.standing == SFP__UNREADABLE || row.standing == SFP__WAITING);
    if (*repeated && !lost)
        return SFP_OK;
    if (s->images.bytes + (int64_t)in->size > s->images.max_bytes)
        TRY(make_space(s, (int64_t)in->size, err));
    TRY(put_image(s, *id, in->bytes, in->size, kept, err));
    if (lost) {
        TRY(change(s, err, MOVED, "itiii", (int64_t)*id, row.name, INT64_C(0), INT64_C(0), INT64_C(0)));
        if (row.standing == SFP__UNREADABLE) {
            count_standing(s, &row, SFP__WAITING);
            s->counts.unlabelled += !row.label;
        }
        return SFP_OK;
    }
    for (const char *wanted = in->name ? in->name : ""; !name || taken; wanted = name) { /* requests find a sample by its name */
        OWNED_BY(reset) sqlite3_stmt *st = NULL;
        char *next = NULL;
        TRY(in->name && !name ? sfp__text_new(&next, err, "%s", wanted)
                              : sfp__text_new(&next, err, "%s#%llu", wanted, (unsigned long long)*id));
        sfp__free(name);
        name = next;
        TRY(query(s, &st, err, FIND, "t", name));
        taken = st != NULL;
    }
    TRY(add_row(s, name, &(sfp__file_stamp){0}, &digest, in->label, err));
    if (in->predicted) {
        TRY(change(s, err, PREDICTED, "iiitdd", (int64_t)*id, sfp__time_of_day(), in->timestamp, in->class_name, in->probability,
                   in->unknown));
        s->counts.predicted++;
    }
    return in->key ? change(s, err, ADD_KEY, "ti", in->key, (int64_t)*id) : SFP_OK;
}

sfp_status sfp__store_keep_image(sfp__store *s, uint64_t id, const void *bytes, size_t size, sfp_error *err)
{
    LOCK(s);
    int64_t kept;
    TRY(image_size(s, id, &kept, err));
    if (kept >= 0 || (int64_t)size > s->images.max_bytes)
        return SFP_OK;
    sfp_status status = s->images.bytes + (int64_t)size > s->images.max_bytes ? make_space(s, (int64_t)size, err) : SFP_OK;
    return status == SFP_ELIMIT ? SFP_OK : status ? status : put_image(s, id, bytes, size, -1, err);
}

sfp_status sfp__store_image(sfp__store *s, uint64_t id, uint8_t **bytes, size_t *size, sfp_error *err)
{
    LOCK(s);
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    if (s->images.open)
        TRY(query(s, &st, err, GET_IMAGE, "i", (int64_t)id));
    if (!st)
        return sfp__fail(err, SFP_ENOTFOUND, "the image of sample %llu is not kept any more (--keep-images)",
                         (unsigned long long)id);
    size_t n = (size_t)sqlite3_column_bytes(st, 0);
    const void *from = sqlite3_column_blob(st, 0);
    TRY(sfp__check_memory(from && (*bytes = sfp__malloc(n)), err));
    memcpy(*bytes, from, n);
    *size = n;
    return SFP_OK;
}

sfp_status sfp__store_relabel(sfp__store *s, uint64_t id, const char *label, sfp_error *err)
{
    LOCK(s);
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    int64_t bytes;
    if (id >= s->next_id)
        return sfp__fail(err, SFP_ENOTFOUND, "there is no sample %llu", (unsigned long long)id);
    TRY(find_id(s, id, &row, err));
    if (row.standing == SFP__FORGOTTEN || row.standing == SFP__UNREADABLE)
        return sfp__fail(err, SFP_ENOTFOUND, "sample %llu %s", (unsigned long long)id,
                         row.standing == SFP__FORGOTTEN ? "was forgotten" : "has no readable image");
    if (row.label && strcmp(row.label, label) == 0 && row.standing != SFP__DROPPED)
        return SFP_OK;
    TRY(image_size(s, id, &bytes, err));
    if (bytes < 0)
        return sfp__fail(
            err, SFP_ELIMIT,
            "the image of sample %llu is not kept any more (--keep-images), expected one from which the label can be learned",
            (unsigned long long)id);
    return set_label(s, id, label, err);
}

sfp_status sfp__store_list(sfp__store *s, const sfp__sample_query *q,
                           sfp_status (*fn)(void *ctx, const sfp__listed *l, sfp_error *err), void *ctx, sfp_error *err)
{
    LOCK(s);
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    TRY(query(s, &st, err, LIST, "iittii", (int64_t)(q->from > INT64_MAX ? INT64_MAX : q->from), (int64_t)q->standing, q->label,
              q->class_name, (int64_t)q->unlabelled, (int64_t)q->limit));
    for (int code = st ? SQLITE_ROW : SQLITE_DONE; code != SQLITE_DONE; code = sqlite3_step(st)) {
        if (code != SQLITE_ROW)
            return fail_db(s, err);
        OWNED_BY(sfp__stored_done) sfp__stored row = {0};
        int64_t bytes;
        TRY(copy_row(st, &row, err));
        TRY(image_size(s, row.id, &bytes, err));
        const sfp__listed l = {.row = &row,
                               .reason = (const char *)sqlite3_column_text(st, 10),
                               .arrived = sqlite3_column_int64(st, 11),
                               .class_name = (const char *)sqlite3_column_text(st, 12),
                               .probability = number_or_nan(st, 13),
                               .unknown = number_or_nan(st, 14),
                               .has_image = bytes >= 0};
        TRY(fn(ctx, &l, err));
    }
    return SFP_OK;
}

sfp_status sfp__store_add_class(sfp__store *s, const char *name, sfp_error *err)
{
    LOCK(s);
    return change(s, err, ADD_CLASS, "t", name);
}

sfp_status sfp__store_remove_class(sfp__store *s, const char *name, bool *removed, sfp_error *err)
{
    LOCK(s);
    TRY(change(s, err, REMOVE_CLASS, "t", name));
    *removed = sqlite3_changes(s->db) > 0;
    return commit(s, err);
}

sfp_status sfp__store_each_class(sfp__store *s, sfp_status (*fn)(void *ctx, const char *name, int64_t samples, sfp_error *err),
                                 void *ctx, sfp_error *err)
{
    LOCK(s);
    OWNED_BY(reset) sqlite3_stmt *st = NULL;
    TRY(query(s, &st, err, CLASSES, ""));
    for (int code = st ? SQLITE_ROW : SQLITE_DONE; code != SQLITE_DONE; code = sqlite3_step(st)) {
        if (code != SQLITE_ROW)
            return fail_db(s, err);
        const char *name = (const char *)sqlite3_column_text(st, 0);
        if (name)
            TRY(fn(ctx, name, sqlite3_column_int64(st, 1), err));
    }
    return SFP_OK;
}
