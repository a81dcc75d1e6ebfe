/* Internals of the store of samples (sample_store.h). sample_db.c: the file, its statements and transactions. sample_store.c: samples and their
 * standings. sample_images.c: submissions, and stored images. Unless stated otherwise, the caller of these functions holds the lock. */
#ifndef SFP_STREAM_SAMPLE_DB_H
#define SFP_STREAM_SAMPLE_DB_H

#include "stream/sample_store.h"

#include <pthread.h>
#include <sqlite3.h>

enum { SFP__STATEMENTS_MAX = 128 };

struct sfp__store {
    pthread_mutex_t lock; /* guards everything below */
    sqlite3 *db;
    char *path; /* NULL: a temporary store */
    struct {
        const char *sql; /* by its address: each statement is written once, where it is used */
        sqlite3_stmt *st;
    } statement[SFP__STATEMENTS_MAX];
    int statement_count;
    bool open;                      /* a transaction has begun */
    double committed_at;            /* sfp__monotonic_seconds() */
    uint64_t next_id, first_new_id; /* first_new_id: ids below it are of earlier processes */
    uint64_t logged;
    int64_t generation; /* of the next checkpoint */
    int64_t saved;      /* generation of the last checkpoint; 0: there is none */
    int64_t oldest;     /* the oldest generation to which changes can be undone */
    sfp__store_counts counts;
    sfp__digest salt;
    int64_t data_version;  /* of the file when requests were last searched; -1: there may be a new request */
    bool renames;          /* at least one class was renamed */
    uint64_t redeliveries; /* number of times that samples must be delivered again */
    bool created, discard;
    /* group commit: the changes that have reached the disk */
    pthread_cond_t synced_more;
    uint64_t changes, synced;
    bool syncing, failed; /* failed: the disk may have lost a change */
    struct {
        char *path;
        bool open;
        int64_t max_bytes, bytes, count;
    } images;
};

static inline void sfp__store_unlock(sfp__store **s)
{
    pthread_mutex_unlock(&(*s)->lock);
}

/* Holds the lock until the end of the function. */
#define LOCK_STORE(s)                                                           \
    __attribute__((cleanup(sfp__store_unlock))) sfp__store *locked_store = (s); \
    pthread_mutex_lock(&locked_store->lock)

/* ------------------------------------------------------------------ statements: sample_db.c */

/* Returns the path of the store for messages. */
const char *sfp__db_path(const sfp__store *s);
/* Fails with the last error of SQLite. */
sfp_status sfp__db_fail(const sfp__store *s, sfp_error *err);
/* Runs a statement up to its first row; *st NULL: there is none. The caller declares *st as OWNED_BY(sfp__db_reset). The arguments follow,
 * one per letter of `types`: i int64_t, d double (NAN: NULL), t text (NULL allowed), b sfp__digest *, B an int64_t n and then n bytes. */
sfp_status sfp__db_query(sfp__store *s, sqlite3_stmt **st, sfp_error *err, const char *sql, const char *types, ...);
/* Ends a statement; its texts are no longer valid. */
void sfp__db_reset(sqlite3_stmt **st);
/* Runs a statement that changes rows, in the transaction. */
sfp_status sfp__db_change(sfp__store *s, sfp_error *err, const char *sql, const char *types, ...);
/* Reads the number that a statement without parameters returns; 0: no row, or NULL. */
sfp_status sfp__db_number(sfp__store *s, const char *sql, int64_t *out, sfp_error *err);
sfp_status sfp__db_get_meta(sfp__store *s, const char *key, int64_t *out, sfp_error *err);
sfp_status sfp__db_set_meta(sfp__store *s, const char *key, int64_t value, sfp_error *err);
sfp_status sfp__db_text(sqlite3_stmt *st, int column, char **out, sfp_error *err);

/* Begins a transaction, unless one is open. No query may be open, because SQLite waits for another writing process only if the connection is not
 * reading. */
sfp_status sfp__db_begin(sfp__store *s, sfp_error *err);
sfp_status sfp__db_commit(sfp__store *s, sfp_error *err);
/* Fails because a change was lost; after it, store and learner would not agree. */
sfp_status sfp__db_fail_lost(const sfp__store *s, sfp_error *err);
/* Counts the rows again. */
sfp_status sfp__db_load_counts(sfp__store *s, sfp_error *err);
/* Removes remains of erased rows from the files. */
sfp_status sfp__db_scrub(sfp__store *s, sfp_error *err);

/* The start of a group of changes. If one of them fails, all of them are undone. */
typedef struct sfp__db_mark {
    sfp__store_counts counts;
    uint64_t next_id;
    int64_t image_bytes, image_count;
} sfp__db_mark;
sfp_status sfp__db_begin_group(sfp__store *s, sfp__db_mark *out, sfp_error *err);
/* Ends the group. status: the result of its changes; if it is a failure, the changes are undone and it is returned. */
sfp_status sfp__db_end_group(sfp__store *s, const sfp__db_mark *mark, sfp_status status, sfp_error *err);

/* --------------------------------------------------------------------- samples: sample_store.c */

sfp_status sfp__sample_get(sfp__store *s, uint64_t id, sfp__stored *out, sfp_error *err);
sfp_status sfp__sample_find(sfp__store *s, const char *name, sfp__stored *out, bool *found, sfp_error *err);
/* Adds a sample with the next id. */
sfp_status sfp__sample_add(sfp__store *s, const char *name, const sfp__file_stamp *stamp, const sfp__digest *digest,
                           const char *label, sfp_error *err);
sfp_status sfp__sample_move(sfp__store *s, uint64_t id, const char *name, const sfp__file_stamp *stamp, sfp_error *err);
sfp_status sfp__sample_label(sfp__store *s, uint64_t id, const char *label, sfp_error *err);
sfp_status sfp__sample_refuse(sfp__store *s, uint64_t id, sfp__standing standing, const char *reason, sfp_error *err);
sfp_status sfp__sample_predicted(sfp__store *s, uint64_t id, int64_t at, const char *class_name, double probability,
                                 double unknown, int64_t timestamp, sfp_error *err);

/* ---------------------------------------------------------------------- images: sample_images.c */

/* Finds the size of the image that is kept for a sample; -1: none. */
sfp_status sfp__image_size(sfp__store *s, uint64_t id, int64_t *bytes, sfp_error *err);
sfp_status sfp__image_remove(sfp__store *s, uint64_t id, sfp_error *err);

#endif
