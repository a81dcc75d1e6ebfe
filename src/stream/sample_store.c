/* Samples with their standings (sample_store.h). */
#include "stream/sample_db.h"

#include "base/monotonic.h"
#include "stream/source_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { LIST_PAGE = 500 }; /* samples that are listed at once: other threads use the store between two pages */

#define ROW "id, name, size, modified, changed, digest, label, learned, standing, predicted IS NOT NULL"

static sfp_status copy_row(sqlite3_stmt *st, sfp__stored *out, sfp_error *err)
{
    OWNED_BY(sfp__stored_done) sfp__stored row = {.id = (uint64_t)sqlite3_column_int64(st, 0)};
    TRY(sfp__db_text(st, 1, &row.name, err));
    row.stamp = (sfp__file_stamp){sqlite3_column_int64(st, 2), sqlite3_column_int64(st, 3), sqlite3_column_int64(st, 4)};
    const void *digest = sqlite3_column_blob(st, 5);
    if (digest && sqlite3_column_bytes(st, 5) == (int)sizeof row.digest)
        memcpy(&row.digest, digest, sizeof row.digest);
    TRY(sfp__db_text(st, 6, &row.label, err));
    TRY(sfp__db_text(st, 7, &row.learned, err));
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
static sfp_status find_text(sfp__store *s, const char *sql, const char *key, char **out, sfp_error *err)
{
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    *out = NULL;
    TRY(sfp__db_query(s, &st, err, sql, "t", key));
    return st ? sfp__db_text(st, 0, out, err) : SFP_OK;
}

/* -------------------------------------------------------------------- arrivals */

static sfp_status copy_found(sqlite3_stmt *st, sfp__stored *out, bool *found, sfp_error *err)
{
    *found = st != NULL;
    return st ? copy_row(st, out, err) : SFP_OK;
}

sfp_status sfp__sample_find(sfp__store *s, const char *name, sfp__stored *out, bool *found, sfp_error *err)
{
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    TRY(sfp__db_query(s, &st, err,
                      "SELECT " ROW " FROM sample WHERE id = coalesce((SELECT max(id) FROM sample WHERE name = ?1), (SELECT "
                      "sample FROM other_name WHERE name = ?1))",
                      "t", name));
    return copy_found(st, out, found, err);
}

sfp_status sfp__store_find(sfp__store *s, const char *name, sfp__stored *out, bool *found, sfp_error *err)
{
    LOCK_STORE(s);
    return sfp__sample_find(s, name, out, found, err);
}

sfp_status sfp__sample_get(sfp__store *s, uint64_t id, sfp__stored *out, sfp_error *err)
{
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    bool found;
    TRY(sfp__db_query(s, &st, err, "SELECT " ROW " FROM sample WHERE id = ?1", "i", (int64_t)id));
    TRY(copy_found(st, out, &found, err));
    return found ? SFP_OK : sfp__fail(err, SFP_EFORMAT, "%s: sample %llu is missing", sfp__db_path(s), (unsigned long long)id);
}

sfp_status sfp__store_get(sfp__store *s, uint64_t id, sfp__stored *out, sfp_error *err)
{
    LOCK_STORE(s);
    return sfp__sample_get(s, id, out, err);
}

sfp_status sfp__store_find_bytes(sfp__store *s, const sfp__digest *digest, uint64_t before, sfp__stored *out, bool *found,
                                 sfp_error *err)
{
    LOCK_STORE(s);
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    TRY(sfp__db_query(s, &st, err, "SELECT " ROW " FROM sample WHERE digest = ?1 AND id < ?2 ORDER BY id DESC LIMIT 1", "bi",
                      digest, (int64_t)(before > INT64_MAX ? INT64_MAX : before)));
    return copy_found(st, out, found, err);
}

sfp_status sfp__store_was_forgotten(sfp__store *s, const sfp__digest *digest, bool *out, sfp_error *err)
{
    LOCK_STORE(s);
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    *out = false;
    if (s->counts.standing[SFP__FORGOTTEN] == 0)
        return SFP_OK;
    sfp__digest mark = sfp__digest_bytes(s->salt, digest, sizeof *digest);
    TRY(sfp__db_query(s, &st, err, "SELECT 1 FROM forgotten WHERE mark = ?1", "b", &mark));
    *out = st != NULL;
    return SFP_OK;
}

static const char class_sql[] = "SELECT class FROM renamed WHERE label = ?1";

/* Replaces the name of a renamed class by its present one. This is done in the same transaction as recording the label, because a caller that had
 * looked up the name before might have missed a rename. renamed: owns the new name. */
static sfp_status follow_rename(sfp__store *s, const char **label, char **renamed, sfp_error *err)
{
    if (s->renames && *label)
        TRY(find_text(s, class_sql, *label, renamed, err));
    if (*renamed)
        *label = *renamed;
    return SFP_OK;
}

sfp_status sfp__sample_add(sfp__store *s, const char *name, const sfp__file_stamp *stamp, const sfp__digest *digest,
                           const char *label, sfp_error *err)
{
    OWNED char *renamed = NULL;
    TRY(follow_rename(s, &label, &renamed, err));
    TRY(sfp__db_change(s, err,
                       "INSERT INTO sample(id, name, size, modified, changed, digest, arrived, label, standing) VALUES(?1, ?2, "
                       "?3, ?4, ?5, ?6, ?7, ?8, 0)",
                       "itiiibit", (int64_t)s->next_id, name, stamp->size, stamp->modified, stamp->changed, digest,
                       sfp__time_of_day(), label));
    s->next_id++;
    s->counts.standing[SFP__WAITING]++;
    s->counts.unlabelled += label == NULL;
    return SFP_OK;
}

sfp_status sfp__store_add(sfp__store *s, const char *name, const sfp__file_stamp *stamp, const sfp__digest *digest,
                          const char *label, uint64_t *id, sfp_error *err)
{
    LOCK_STORE(s);
    uint64_t next = s->next_id;
    TRY(sfp__sample_add(s, name, stamp, digest, label, err));
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

sfp_status sfp__sample_label(sfp__store *s, uint64_t id, const char *label, sfp_error *err)
{
    OWNED_BY(sfp__stored_done) sfp__stored was = {0};
    OWNED char *renamed = NULL;
    TRY(follow_rename(s, &label, &renamed, err));
    TRY(sfp__sample_get(s, id, &was, err));
    if (was.standing == SFP__FORGOTTEN || (was.label && strcmp(was.label, label) == 0 && was.standing != SFP__DROPPED))
        return SFP_OK;
    bool first = false; /* is this the first correction of the sample? */
    if (was.label && strcmp(was.label, label) != 0) {
        TRY(sfp__db_begin(s, err));
        OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
        TRY(sfp__db_query(s, &st, err, "SELECT 1 FROM earlier_label WHERE sample = ?1 LIMIT 1", "i", (int64_t)id));
        first = !st;
        TRY(sfp__db_change(s, err, "INSERT INTO earlier_label SELECT id, ?2, label FROM sample WHERE id = ?1", "ii", (int64_t)id,
                           sfp__time_of_day()));
    }
    /* if a correction is revoked before it was learned, the sample is LEARNED again */
    sfp__standing now = was.learned && strcmp(was.learned, label) == 0 ? SFP__LEARNED : SFP__WAITING;
    TRY(sfp__db_change(s, err, "UPDATE sample SET label = ?2, standing = ?3, reason = NULL WHERE id = ?1", "iti", (int64_t)id,
                       label, (int64_t)now));
    count_standing(s, &was, now);
    s->counts.late += was.predicted && !was.label;
    s->counts.corrected += first;
    return SFP_OK;
}

sfp_status sfp__store_label(sfp__store *s, uint64_t id, const char *label, sfp_error *err)
{
    LOCK_STORE(s);
    return sfp__sample_label(s, id, label, err);
}

sfp_status sfp__sample_move(sfp__store *s, uint64_t id, const char *name, const sfp__file_stamp *stamp, sfp_error *err)
{
    OWNED_BY(sfp__stored_done) sfp__stored was = {0};
    TRY(sfp__sample_get(s, id, &was, err));
    if (was.standing == SFP__FORGOTTEN)
        return SFP_OK;
    TRY(sfp__db_change(s, err,
                       "UPDATE sample SET name = ?2, size = ?3, modified = ?4, changed = ?5, standing = CASE WHEN standing IN "
                       "(2, 3) THEN 0 ELSE standing END WHERE id = ?1",
                       "itiii", (int64_t)id, name, stamp->size, stamp->modified, stamp->changed));
    TRY(sfp__db_change(s, err, "UPDATE decision SET moved = 0 WHERE sample = ?1", "i", (int64_t)id));
    if (was.standing == SFP__UNREADABLE || was.standing == SFP__DROPPED) {
        count_standing(s, &was, SFP__WAITING);
        s->counts.unlabelled += !was.label;
    }
    return SFP_OK;
}

sfp_status sfp__store_moved(sfp__store *s, uint64_t id, const char *name, const sfp__file_stamp *stamp, const char *label,
                            sfp_error *err)
{
    LOCK_STORE(s);
    TRY(sfp__sample_move(s, id, name, stamp, err));
    return label ? sfp__sample_label(s, id, label, err) : SFP_OK;
}

sfp_status sfp__store_add_name(sfp__store *s, uint64_t id, const char *name, const char *label, sfp_error *err)
{
    LOCK_STORE(s);
    OWNED_BY(sfp__stored_done) sfp__stored was = {0};
    TRY(sfp__sample_get(s, id, &was, err));
    if (was.standing == SFP__FORGOTTEN)
        return SFP_OK;
    TRY(sfp__db_change(s, err, "INSERT OR REPLACE INTO other_name VALUES(?2, ?1)", "it", (int64_t)id, name));
    return label ? sfp__sample_label(s, id, label, err) : SFP_OK;
}

sfp_status sfp__store_decide(sfp__store *s, uint64_t id, uint64_t lines, bool moved, sfp_error *err)
{
    LOCK_STORE(s);
    return sfp__db_change(s, err, "INSERT OR REPLACE INTO decision VALUES(?1, ?2, ?3)", "iii", (int64_t)id, (int64_t)lines,
                          (int64_t)moved);
}

sfp_status sfp__store_decision(sfp__store *s, uint64_t id, uint64_t *lines, bool *moved, sfp_error *err)
{
    LOCK_STORE(s);
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    TRY(sfp__db_query(s, &st, err, "SELECT lines, moved FROM decision WHERE sample = ?1", "i", (int64_t)id));
    *lines = st ? (uint64_t)sqlite3_column_int64(st, 0) : 0;
    *moved = st && sqlite3_column_int(st, 1);
    return SFP_OK;
}

sfp_status sfp__store_next_pending(sfp__store *s, int64_t after, sfp__stored *out, bool *found, sfp_error *err)
{
    LOCK_STORE(s);
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    TRY(sfp__db_query(s, &st, err,
                      "SELECT " ROW " FROM sample WHERE standing = 0 AND id > ?1 AND id < ?2 AND (label IS NOT NULL OR predicted "
                      "IS NULL) ORDER BY id LIMIT 1",
                      "ii", after, s->redeliveries ? INT64_MAX : (int64_t)s->first_new_id));
    return copy_found(st, out, found, err);
}

/* --------------------------------------------------------------- renamed classes */

/* Makes a sample LEARNED that waits although it is learned with its present label. */
static const char settle_sql[] = "UPDATE sample SET standing = 1 WHERE standing = 0 AND learned IS NOT NULL AND learned IS label";

sfp_status sfp__store_class(sfp__store *s, const char *label, char **out, sfp_error *err)
{
    LOCK_STORE(s);
    *out = NULL;
    return s->renames ? find_text(s, class_sql, label, out, err) : SFP_OK;
}

static sfp_status rename_class(sfp__store *s, const char *from, const char *to, sfp_error *err)
{
    TRY(sfp__db_change(s, err, "DELETE FROM renamed WHERE label = ?1", "t", to));
    TRY(sfp__db_change(s, err, "UPDATE renamed SET class = ?2 WHERE class = ?1", "tt", from, to));
    TRY(sfp__db_change(s, err, "INSERT OR REPLACE INTO renamed VALUES(?1, ?2)", "tt", from, to));
    TRY(sfp__db_change(s, err, "INSERT INTO earlier_label SELECT id, ?2, label FROM sample WHERE label = ?1", "ti", from,
                       sfp__time_of_day()));
    TRY(sfp__db_change(s, err,
                       "UPDATE sample SET label = ?2, standing = CASE standing WHEN 1 THEN 0 ELSE standing END WHERE label = ?1",
                       "tt", from, to));
    TRY(sfp__db_change(s, err, settle_sql, "")); /* those that were learned with the new name before they got the old one */
    TRY(sfp__db_change(s, err, "UPDATE line SET label = ?2 WHERE label = ?1", "tt", from, to));
    return sfp__db_change(s, err, "UPDATE OR REPLACE added_class SET name = ?2 WHERE name = ?1", "tt", from, to);
}

sfp_status sfp__store_rename_class(sfp__store *s, const char *from, const char *to, sfp_error *err)
{
    LOCK_STORE(s);
    sfp__db_mark before;
    TRY(sfp__db_begin_group(s, &before, err));
    TRY(sfp__db_end_group(s, &before, rename_class(s, from, to, err), err));
    TRY(sfp__db_commit(s, err));
    s->renames = true;
    s->redeliveries++;
    return sfp__db_load_counts(s, err);
}

uint64_t sfp__store_redeliveries(sfp__store *s)
{
    LOCK_STORE(s);
    return s->redeliveries;
}

sfp_status sfp__store_each_of_class(sfp__store *s, const char *label,
                                    sfp_status (*fn)(void *ctx, const char *name, sfp_error *err), void *ctx, int64_t *count,
                                    sfp_error *err)
{
    LOCK_STORE(s);
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    *count = 0;
    TRY(sfp__db_query(s, &st, err, "SELECT name FROM sample WHERE label = ?1 AND name IS NOT NULL ORDER BY id", "t", label));
    for (int code = st ? SQLITE_ROW : SQLITE_DONE; code != SQLITE_DONE; code = sqlite3_step(st)) {
        if (code != SQLITE_ROW)
            return sfp__db_fail(s, err);
        if (fn)
            TRY(fn(ctx, (const char *)sqlite3_column_text(st, 0), err));
        ++*count;
    }
    return SFP_OK;
}

/* ------------------------------------------------------------------ labels.csv */

static const char line_sql[] = "SELECT label FROM line WHERE name = ?1";

sfp_status sfp__store_line(sfp__store *s, const char *name, char **label, sfp_error *err)
{
    LOCK_STORE(s);
    return find_text(s, line_sql, name, label, err);
}

sfp_status sfp__store_set_line(sfp__store *s, const char *name, const char *label, bool *changed, sfp_error *err)
{
    LOCK_STORE(s);
    OWNED char *was = NULL;
    TRY(find_text(s, line_sql, name, &was, err));
    *changed = !was || strcmp(was, label) != 0;
    return *changed ? sfp__db_change(s, err, "INSERT OR REPLACE INTO line VALUES(?1, ?2)", "tt", name, label) : SFP_OK;
}

sfp_status sfp__store_labels_position(sfp__store *s, sfp__labels_position *out, sfp_error *err)
{
    LOCK_STORE(s);
    int64_t offset, line, crc;
    TRY(sfp__db_get_meta(s, "labels_offset", &offset, err));
    TRY(sfp__db_get_meta(s, "labels_line", &line, err));
    TRY(sfp__db_get_meta(s, "labels_crc", &crc, err));
    *out = (sfp__labels_position){.offset = (uint64_t)offset, .line = (uint64_t)line, .crc = (uint32_t)crc};
    return SFP_OK;
}

sfp_status sfp__store_set_labels_position(sfp__store *s, const sfp__labels_position *at, bool rewritten, sfp_error *err)
{
    LOCK_STORE(s);
    if (rewritten)
        TRY(sfp__db_change(s, err, "UPDATE decision SET lines = 0", ""));
    TRY(sfp__db_set_meta(s, "labels_offset", (int64_t)at->offset, err));
    TRY(sfp__db_set_meta(s, "labels_line", (int64_t)at->line, err));
    return sfp__db_set_meta(s, "labels_crc", (int64_t)at->crc, err);
}

/* ------------------------------------------------------------------- standings */

sfp_status sfp__store_learned(sfp__store *s, uint64_t id, const char *label, sfp_error *err)
{
    LOCK_STORE(s);
    OWNED_BY(sfp__stored_done) sfp__stored was = {0};
    TRY(sfp__sample_get(s, id, &was, err));
    /* if another label has arrived meanwhile, the sample waits for its correction */
    bool current = !label || !was.label || strcmp(was.label, label) == 0;
    sfp__standing now = !label ? SFP__DROPPED : current ? SFP__LEARNED : SFP__WAITING;
    TRY(sfp__db_change(s, err, "INSERT OR IGNORE INTO undo SELECT ?2, id, learned FROM sample WHERE id = ?1", "ii", (int64_t)id,
                       s->generation));
    TRY(sfp__db_change(s, err, "UPDATE sample SET learned = ?2, standing = ?3, reason = NULL WHERE id = ?1", "iti", (int64_t)id,
                       label, (int64_t)now));
    count_standing(s, &was, now);
    return SFP_OK;
}

sfp_status sfp__sample_refuse(sfp__store *s, uint64_t id, sfp__standing standing, const char *reason, sfp_error *err)
{
    OWNED_BY(sfp__stored_done) sfp__stored was = {0};
    TRY(sfp__sample_get(s, id, &was, err));
    if (was.standing == SFP__FORGOTTEN)
        return SFP_OK;
    sfp__standing now = was.learned ? SFP__LEARNED : standing;
    TRY(sfp__db_change(
        s, err,
        "UPDATE sample SET standing = ?2, reason = ?3, label = CASE WHEN ?2 = 1 THEN learned ELSE label END WHERE id = ?1", "iit",
        (int64_t)id, (int64_t)now, reason));
    count_standing(s, &was, now);
    s->counts.expired += now == SFP__DROPPED && was.predicted && !was.label;
    return SFP_OK;
}

sfp_status sfp__store_refuse(sfp__store *s, uint64_t id, sfp__standing standing, const char *reason, sfp_error *err)
{
    LOCK_STORE(s);
    return sfp__sample_refuse(s, id, standing, reason, err);
}

sfp_status sfp__store_drop_waiting(sfp__store *s, const char *reason, sfp_error *err)
{
    LOCK_STORE(s);
    if (s->counts.standing[SFP__WAITING] == 0)
        return SFP_OK;
    TRY(sfp__db_change(s, err,
                       "UPDATE sample SET standing = CASE WHEN learned IS NULL THEN 2 ELSE 1 END, reason = ?1, label = "
                       "coalesce(learned, label) WHERE standing = 0",
                       "t", reason));
    return sfp__db_load_counts(s, err);
}

sfp_status sfp__sample_predicted(sfp__store *s, uint64_t id, int64_t at, const char *class_name, double probability,
                                 double unknown, int64_t timestamp, sfp_error *err)
{
    OWNED_BY(sfp__stored_done) sfp__stored was = {0};
    TRY(sfp__sample_get(s, id, &was, err));
    if (was.standing == SFP__FORGOTTEN)
        return SFP_OK;
    TRY(sfp__db_change(
        s, err, "UPDATE sample SET predicted = ?2, timestamp = ?3, class = ?4, probability = ?5, unknown = ?6 WHERE id = ?1",
        "iiitdd", (int64_t)id, at, timestamp, class_name, probability, unknown));
    if (was.predicted)
        return SFP_OK;
    s->counts.predicted++;
    s->counts.late += was.label != NULL; /* the label was faster than the answer */
    s->counts.expired += was.standing == SFP__DROPPED && !was.label;
    return SFP_OK;
}

sfp_status sfp__store_predicted(sfp__store *s, uint64_t id, int64_t at, const char *class_name, double probability,
                                double unknown, int64_t timestamp, sfp_error *err)
{
    LOCK_STORE(s);
    return sfp__sample_predicted(s, id, at, class_name, probability, unknown, timestamp, err);
}

static sfp_status erase(sfp__store *s, uint64_t id, int64_t request, sfp_error *err)
{
    OWNED_BY(sfp__stored_done) sfp__stored was = {0};
    TRY(sfp__sample_get(s, id, &was, err));
    if (was.standing == SFP__FORGOTTEN) /* another request has asked for it, too */
        return SFP_OK;
    sfp__digest mark = sfp__digest_bytes(s->salt, &was.digest, sizeof was.digest);
    TRY(sfp__db_change(
        s, err,
        "INSERT OR IGNORE INTO forgotten SELECT ?1 WHERE NOT EXISTS (SELECT 1 FROM request WHERE number = ?2 AND file = '')",
        "bi", &mark, request));
    TRY(sfp__db_change(s, err, "DELETE FROM earlier_label WHERE sample = ?1", "i", (int64_t)id));
    TRY(sfp__db_change(s, err, "DELETE FROM decision WHERE sample = ?1", "i", (int64_t)id));
    TRY(sfp__db_change(s, err, "DELETE FROM undo WHERE sample = ?1", "i", (int64_t)id));
    TRY(sfp__db_change(s, err, "DELETE FROM line WHERE name = ?2 OR name IN (SELECT name FROM other_name WHERE sample = ?1)",
                       "it", (int64_t)id, was.name));
    TRY(sfp__db_change(s, err, "DELETE FROM other_name WHERE sample = ?1", "i", (int64_t)id));
    TRY(sfp__image_remove(s, id, err));
    return sfp__db_change(s, err,
                          "UPDATE sample SET name = NULL, size = NULL, modified = NULL, changed = NULL, digest = NULL, label = "
                          "NULL, learned = NULL, standing = 4, reason = NULL, timestamp = NULL, class = NULL, probability = "
                          "NULL, unknown = NULL, predicted = NULL WHERE id = ?1",
                          "i", (int64_t)id);
}

sfp_status sfp__store_erase(sfp__store *s, int n, const uint64_t *ids, const int64_t *requests, sfp_error *err)
{
    LOCK_STORE(s);
    if (s->salt.word[0] == 0 && s->salt.word[1] == 0) {
        if (getrandom(&s->salt, sizeof s->salt, 0) != (ssize_t)sizeof s->salt)
            return sfp__fail_errno(err, SFP_EIO, "cannot get random bytes");
        TRY(sfp__db_change(s, err, "INSERT OR REPLACE INTO meta VALUES('salt', ?1)", "b", &s->salt));
    }
    TRY(sfp__db_set_meta(s, "erasing", 1, err)); /* a process that is killed leaves it to the next one */
    for (int i = 0; i < n; i++) {
        TRY(erase(s, ids[i], requests ? requests[i] : 0, err));
        TRY(sfp__db_change(s, err, "UPDATE request SET name = '', file = NULL WHERE number = ?1", "i",
                           requests ? requests[i] : 0));
    }
    TRY(sfp__db_scrub(s, err));
    return sfp__db_load_counts(s, err);
}

sfp__store_counts sfp__store_get_counts(sfp__store *s)
{
    LOCK_STORE(s);
    return s->counts;
}

uint64_t sfp__store_next_id(sfp__store *s)
{
    LOCK_STORE(s);
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
    LOCK_STORE(s);
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    TRY(sfp__db_query(s, &st, err,
                      "SELECT id, predicted, timestamp, name, class, probability, unknown FROM sample WHERE predicted IS NOT "
                      "NULL AND id >= ?1 ORDER BY id",
                      "i", (int64_t)(from > INT64_MAX ? INT64_MAX : from)));
    for (int code = st ? SQLITE_ROW : SQLITE_DONE; code != SQLITE_DONE; code = sqlite3_step(st)) {
        if (code != SQLITE_ROW)
            return sfp__db_fail(s, err);
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
    LOCK_STORE(s);
    s->logged = id;
    return sfp__db_set_meta(s, "logged", (int64_t)id, err);
}

uint64_t sfp__store_logged(const sfp__store *s)
{
    return s->logged;
}

/* ------------------------------------------------------------------ checkpoints */

sfp_status sfp__store_prepare_checkpoint(sfp__store *s, int64_t *generation, sfp_error *err)
{
    LOCK_STORE(s);
    TRY(sfp__db_set_meta(s, "generation", s->generation, err));
    TRY(sfp__db_commit(s, err));
    *generation = s->generation;
    if (!s->path)
        return SFP_OK;
    /* PASSIVE does not wait for readers. It syncs the log first, which is what counts. */
    int code = sqlite3_wal_checkpoint_v2(s->db, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    return code == SQLITE_OK || code == SQLITE_BUSY ? SFP_OK : sfp__db_fail(s, err);
}

sfp_status sfp__store_finish_checkpoint(sfp__store *s, bool only, sfp_error *err)
{
    LOCK_STORE(s);
    int64_t oldest = only ? s->generation : s->saved;
    TRY(sfp__db_change(s, err, "DELETE FROM undo WHERE generation <= ?1", "i", oldest));
    TRY(sfp__db_set_meta(s, "oldest", oldest, err));
    s->oldest = oldest;
    s->saved = s->generation++;
    return SFP_OK;
}

sfp_status sfp__store_resume(sfp__store *s, int64_t generation, sfp_error *err)
{
    LOCK_STORE(s);
    if (generation >= s->generation)
        return sfp__fail(err, SFP_EFORMAT,
                         "%s: the store is older than the checkpoint beside it (%lld, expected %lld); restore both together",
                         sfp__db_path(s), (long long)s->generation - 1, (long long)generation);
    if (generation > 0 && generation < s->oldest)
        return sfp__fail(err, SFP_EFORMAT,
                         "%s: the checkpoint beside the store is older (%lld, expected at least %lld); restore both together",
                         sfp__db_path(s), (long long)generation, (long long)s->oldest);
    for (int64_t last;;) {
        TRY(sfp__db_number(s, "SELECT max(generation) FROM undo", &last, err));
        if (last <= generation)
            break;
        TRY(sfp__db_change(s, err,
                           "UPDATE sample SET learned = u.learned, standing = 0 FROM undo u WHERE u.sample = id AND u.generation "
                           "= ?1 AND standing <> 4",
                           "i", last));
        TRY(sfp__db_change(s, err, "DELETE FROM undo WHERE generation = ?1", "i", last));
    }
    if (generation == 0)
        TRY(sfp__db_change(s, err, "UPDATE sample SET learned = NULL, standing = 0 WHERE learned IS NOT NULL", ""));
    s->saved = generation;
    int64_t erasing;
    TRY(sfp__db_change(s, err, settle_sql, ""));
    s->data_version = -1;
    TRY(sfp__db_load_counts(s, err));
    TRY(sfp__db_commit(s, err));
    TRY(sfp__db_get_meta(s, "erasing", &erasing, err));
    return erasing ? sfp__db_scrub(s, err) : SFP_OK;
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
    LOCK_STORE(s);
    *found = false;
    if (!s->path) /* no other process can open it */
        return SFP_OK;
    int64_t version;
    TRY(sfp__db_number(s, "PRAGMA data_version", &version, err));
    if (version == s->data_version)
        return SFP_OK;
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    OWNED_BY(sfp__request_done) sfp__request r = {0};
    TRY(sfp__db_query(
        s, &st, err, "SELECT number, name, file, label FROM request WHERE status IS NULL AND number > ?1 ORDER BY number LIMIT 1",
        "i", after));
    if (!st) {
        s->data_version = after > 0 ? -1 : version;
        return SFP_OK;
    }
    r.number = sqlite3_column_int64(st, 0);
    TRY(sfp__db_text(st, 1, &r.name, err));
    TRY(sfp__db_text(st, 2, &r.file, err));
    TRY(sfp__db_text(st, 3, &r.label, err));
    s->data_version = -1; /* others may follow */
    *out = r;
    r = (sfp__request){0};
    *found = true;
    return SFP_OK;
}

sfp_status sfp__store_answer(sfp__store *s, int64_t number, sfp_status status, const char *text, sfp_error *err)
{
    LOCK_STORE(s);
    return sfp__db_change(s, err,
                          "UPDATE request SET status = ?2, answer = ?3, name = NULL, file = NULL, label = NULL WHERE number = ?1",
                          "iit", number, (int64_t)status, text);
}

sfp_status sfp__store_request(sfp__store *s, const char *name, const char *file, const char *label, int64_t *number,
                              sfp_error *err)
{
    LOCK_STORE(s);
    TRY(sfp__db_change(s, err, "INSERT INTO request(name, file, label) VALUES(?1, ?2, ?3)", "ttt", name, file, label));
    *number = sqlite3_last_insert_rowid(s->db);
    s->data_version = -1; /* the version of the data shows only changes of other processes */
    return sfp__db_commit(s, err);
}

sfp_status sfp__store_read_answer(sfp__store *s, int64_t number, bool *done, sfp_error *err)
{
    LOCK_STORE(s);
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    TRY(sfp__db_query(s, &st, err, "SELECT status, answer FROM request WHERE number = ?1", "i", number));
    *done = st && sqlite3_column_type(st, 0) != SQLITE_NULL;
    sfp_status status = *done ? (sfp_status)sqlite3_column_int(st, 0) : SFP_OK;
    if (!status)
        return SFP_OK;
    const char *text = (const char *)sqlite3_column_text(st, 1);
    return sfp__fail(err, status, "%s", text ? text : "the request was refused");
}

/* ------------------------------------------------------------ lists */

/* Lists samples of q from *from on, LIST_PAGE at most; sets *from for the next page and *count. */
static sfp_status list_page(sfp__store *s, const sfp__sample_query *q, uint64_t *from, int *count,
                            sfp_status (*fn)(void *ctx, const sfp__listed *l, sfp_error *err), void *ctx, sfp_error *err)
{
    int limit = q->limit - *count < LIST_PAGE ? q->limit - *count : LIST_PAGE;
    LOCK_STORE(s);
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    TRY(sfp__db_query(
        s, &st, err,
        "SELECT " ROW
        ", reason, arrived, class, probability, unknown FROM sample WHERE id >= ?1 AND (?2 < 0 OR standing = ?2) AND (?3 IS NULL "
        "OR label = ?3) AND (?4 IS NULL OR class = ?4) AND (?5 = 0 OR label IS NULL) AND name IS NOT NULL ORDER BY id LIMIT ?6",
        "iittii", (int64_t)(*from > INT64_MAX ? INT64_MAX : *from), (int64_t)q->standing, q->label, q->class_name,
        (int64_t)q->unlabelled, (int64_t)limit));
    for (int code = st ? SQLITE_ROW : SQLITE_DONE; code != SQLITE_DONE; code = sqlite3_step(st)) {
        if (code != SQLITE_ROW)
            return sfp__db_fail(s, err);
        OWNED_BY(sfp__stored_done) sfp__stored row = {0};
        int64_t bytes;
        TRY(copy_row(st, &row, err));
        TRY(sfp__image_size(s, row.id, &bytes, err));
        const sfp__listed l = {.row = &row,
                               .reason = (const char *)sqlite3_column_text(st, 10),
                               .arrived = sqlite3_column_int64(st, 11),
                               .class_name = (const char *)sqlite3_column_text(st, 12),
                               .probability = number_or_nan(st, 13),
                               .unknown = number_or_nan(st, 14),
                               .has_image = bytes >= 0};
        *from = row.id + 1;
        ++*count;
        TRY(fn(ctx, &l, err));
    }
    return SFP_OK;
}

sfp_status sfp__store_list(sfp__store *s, const sfp__sample_query *q,
                           sfp_status (*fn)(void *ctx, const sfp__listed *l, sfp_error *err), void *ctx, sfp_error *err)
{
    int count = 0, before;
    uint64_t from = q->from;
    do {
        before = count;
        TRY(list_page(s, q, &from, &count, fn, ctx, err));
    } while (count < q->limit && count - before == LIST_PAGE);
    return SFP_OK;
}

sfp_status sfp__store_add_class(sfp__store *s, const char *name, sfp_error *err)
{
    LOCK_STORE(s);
    return sfp__db_change(s, err, "INSERT OR IGNORE INTO added_class VALUES(?1)", "t", name);
}

sfp_status sfp__store_remove_class(sfp__store *s, const char *name, bool *removed, sfp_error *err)
{
    LOCK_STORE(s);
    TRY(sfp__db_change(s, err, "DELETE FROM added_class WHERE name = ?1", "t", name));
    *removed = sqlite3_changes(s->db) > 0;
    return sfp__db_commit(s, err);
}

sfp_status sfp__store_each_class(sfp__store *s, sfp_status (*fn)(void *ctx, const char *name, int64_t samples, sfp_error *err),
                                 void *ctx, sfp_error *err)
{
    LOCK_STORE(s);
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    TRY(sfp__db_query(s, &st, err,
                      "SELECT name, sum(n) FROM (SELECT learned AS name, count(*) AS n FROM sample WHERE learned IS NOT NULL "
                      "GROUP BY 1 UNION ALL SELECT name, 0 FROM added_class) GROUP BY name ORDER BY name",
                      ""));
    for (int code = st ? SQLITE_ROW : SQLITE_DONE; code != SQLITE_DONE; code = sqlite3_step(st)) {
        if (code != SQLITE_ROW)
            return sfp__db_fail(s, err);
        const char *name = (const char *)sqlite3_column_text(st, 0);
        if (name)
            TRY(fn(ctx, name, sqlite3_column_int64(st, 1), err));
    }
    return SFP_OK;
}
