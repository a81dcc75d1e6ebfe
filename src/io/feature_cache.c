#include "io/feature_cache.h"

#include "io/directory.h"
#include "io/file.h"

#include <limits.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#define FILE_NAME "features.db"

enum { VERSION = 2, PAGE = 4096, BUSY_MILLISECONDS = 5000 };

struct sfp__feature_cache {
    char path[PATH_MAX];
    pthread_mutex_t lock; /* protects everything below */
    sqlite3 *db;
    sqlite3_stmt *get, *put;
    sfp__feature_cache_stats stats;
};

static uint32_t checksum(const sfp__digest *key, const void *value, size_t bytes)
{
    unsigned long sum = crc32_z(crc32_z(0, NULL, 0), (const unsigned char *)key, sizeof *key);
    return (uint32_t)crc32_z(sum, value, bytes);
}

/* ------------------------------------------------------------------- opening */

static sfp_status fail_db(const sfp__feature_cache *c, sfp_error *err)
{
    int code = c->db ? sqlite3_errcode(c->db) : SQLITE_NOMEM;
    if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT)
        return sfp__fail(err, SFP_EFORMAT, "%s: not a feature cache, or damaged (%s); remove the file to start a new cache",
                         c->path, sqlite3_errmsg(c->db));
    return sfp__fail(err, code == SQLITE_NOMEM ? SFP_ENOMEM : SFP_EIO, "%s: cannot open the feature cache: %s", c->path,
                     c->db ? sqlite3_errmsg(c->db) : "out of memory");
}

static int store_version(void *version, int columns, char **texts, char **names)
{
    (void)names;
    *(int *)version = columns > 0 && texts[0] ? (int)strtol(texts[0], NULL, 10) : -1;
    return 0;
}

/* Opens the file; creates the table if there is none. All of this is one transaction, because several processes may open a new file. */
static sfp_status open_file(sfp__feature_cache *c, uint64_t max_bytes, sfp_error *err)
{
    char settings[256], create[256];
    int version = -1, tables = -1;
    uint64_t pages = max_bytes / PAGE;
    (void)snprintf(settings, sizeof settings, "PRAGMA page_size = %d; PRAGMA synchronous = OFF; PRAGMA max_page_count = %llu;",
                   PAGE,
                   (unsigned long long)(pages < 8         ? 8
                                        : pages < INT_MAX ? pages
                                                          : INT_MAX));
    (void)snprintf(create, sizeof create,
                   "CREATE TABLE IF NOT EXISTS features(key BLOB PRIMARY KEY, crc INTEGER NOT NULL, value BLOB NOT NULL);"
                   "PRAGMA user_version = %d;",
                   VERSION);
    if (sqlite3_open_v2(c->path, &c->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        return fail_db(c, err);
    (void)sqlite3_busy_timeout(c->db, BUSY_MILLISECONDS);
    (void)sqlite3_exec(c->db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL); /* busy: another process does this */
    if (sqlite3_exec(c->db, settings, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(c->db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(c->db, "PRAGMA user_version", store_version, &version, NULL) != SQLITE_OK ||
        sqlite3_exec(c->db, "SELECT count(*) FROM sqlite_master", store_version, &tables, NULL) != SQLITE_OK)
        return fail_db(c, err);
    if (version != VERSION && tables != 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: not a feature cache of this version; remove the file to start a new cache",
                         c->path);
    if (sqlite3_exec(c->db, create, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(c->db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(c->db, "SELECT crc, value FROM features WHERE key = ?1", -1, &c->get, NULL) != SQLITE_OK ||
        sqlite3_prepare_v2(c->db, "INSERT OR REPLACE INTO features VALUES(?1, ?2, ?3)", -1, &c->put, NULL) != SQLITE_OK)
        return fail_db(c, err);
    return SFP_OK;
}

sfp_status sfp__feature_cache_open(const char *directory, uint64_t max_bytes, sfp__feature_cache **out, sfp_error *err)
{
    OWNED_PTR(sfp__feature_cache_close) sfp__feature_cache *c = NULL;
    int made;
    struct stat st;
    if (stat(directory, &st) == 0 && !S_ISDIR(st.st_mode))
        return sfp__fail(err, SFP_EINVAL, "%s: not a directory, expected the directory of a cache", directory);
    TRY(sfp__directory_create(directory, &made, err));
    TRY(sfp__alloc(&c, 1, sizeof *c, err));
    pthread_mutex_init(&c->lock, NULL);
    TRY(sfp__path_print(c->path, sizeof c->path, err, "%s/" FILE_NAME, directory));
    TRY(open_file(c, max_bytes, err));
    *out = TAKE(c);
    return SFP_OK;
}

void sfp__feature_cache_close(sfp__feature_cache *c)
{
    if (!c)
        return;
    (void)sqlite3_finalize(c->get);
    (void)sqlite3_finalize(c->put);
    (void)sqlite3_close(c->db);
    pthread_mutex_destroy(&c->lock);
    sfp__free(c);
}

/* -------------------------------------------------------------------- values */

/* Records why a statement failed, so that nothing is added any more. If the file was only busy, later values are still added. */
static void note_failure(sfp__feature_cache *c, int code)
{
    if (code == SQLITE_FULL)
        c->stats.full = true;
    else if (code != SQLITE_BUSY && !c->stats.problem[0])
        (void)snprintf(c->stats.problem, sizeof c->stats.problem, "%.400s: cannot use the feature cache: %.100s", c->path,
                       sqlite3_errmsg(c->db));
}

bool sfp__feature_cache_get(sfp__feature_cache *c, const sfp__digest *key, size_t n, float *value)
{
    size_t bytes = n * sizeof *value;
    bool found = false;
    pthread_mutex_lock(&c->lock);
    (void)sqlite3_bind_blob(c->get, 1, key, sizeof *key, SQLITE_STATIC);
    int code = sqlite3_step(c->get);
    if (code == SQLITE_ROW) {
        const void *blob = sqlite3_column_blob(c->get, 1);
        found = blob && (size_t)sqlite3_column_bytes(c->get, 1) == bytes &&
                (uint32_t)sqlite3_column_int64(c->get, 0) == checksum(key, blob, bytes);
        if (found)
            memcpy(value, blob, bytes);
        else
            c->stats.damaged++;
    } else if (code != SQLITE_DONE) {
        note_failure(c, code);
    }
    (void)sqlite3_reset(c->get);
    pthread_mutex_unlock(&c->lock);
    return found;
}

void sfp__feature_cache_put(sfp__feature_cache *c, const sfp__digest *key, size_t n, const float *value)
{
    size_t bytes = n * sizeof *value;
    uint32_t crc = checksum(key, value, bytes);
    pthread_mutex_lock(&c->lock);
    if (!c->stats.full && !c->stats.problem[0]) {
        (void)sqlite3_bind_blob(c->put, 1, key, sizeof *key, SQLITE_STATIC);
        (void)sqlite3_bind_int64(c->put, 2, crc);
        (void)sqlite3_bind_blob64(c->put, 3, value, bytes, SQLITE_STATIC);
        int code = sqlite3_step(c->put);
        if (code != SQLITE_DONE)
            note_failure(c, code);
        (void)sqlite3_reset(c->put);
    }
    pthread_mutex_unlock(&c->lock);
}

sfp__feature_cache_stats sfp__feature_cache_get_stats(sfp__feature_cache *c)
{
    pthread_mutex_lock(&c->lock);
    sfp__feature_cache_stats stats = c->stats;
    pthread_mutex_unlock(&c->lock);
    return stats;
}
