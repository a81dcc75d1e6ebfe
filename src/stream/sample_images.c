/* Submitted samples, and the images that the store of samples keeps. */
#include "stream/sample_db.h"

#include "base/monotonic.h"
#include "stream/source_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Images are in a separate file, so that they are not rewritten when the file of the samples is (sfp__db_scrub). */
static const char images_sql[] = "PRAGMA images.page_size = 4096; PRAGMA images.secure_delete = ON;"
                                 "CREATE TABLE IF NOT EXISTS images.image(id INTEGER PRIMARY KEY, bytes BLOB NOT NULL);";

sfp_status sfp__image_size(sfp__store *s, uint64_t id, int64_t *bytes, sfp_error *err)
{
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    *bytes = -1;
    if (s->images.open)
        TRY(sfp__db_query(s, &st, err, "SELECT length(bytes) FROM images.image WHERE id = ?1", "i", (int64_t)id));
    if (st)
        *bytes = sqlite3_column_int64(st, 0);
    return SFP_OK;
}

sfp_status sfp__image_remove(sfp__store *s, uint64_t id, sfp_error *err)
{
    int64_t bytes;
    TRY(sfp__image_size(s, id, &bytes, err));
    if (bytes < 0)
        return SFP_OK;
    TRY(sfp__db_change(s, err, "DELETE FROM images.image WHERE id = ?1", "i", (int64_t)id));
    s->images.bytes -= bytes;
    s->images.count--;
    return SFP_OK;
}

sfp_status sfp__store_open_images(sfp__store *s, int64_t max_bytes, sfp_error *err)
{
    LOCK_STORE(s);
    char sql[96];
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    s->images.max_bytes = max_bytes;
    if (s->images.open)
        return SFP_OK;
    char *attach = sqlite3_mprintf("ATTACH %Q AS images", s->path ? s->images.path : "");
    TRY(sfp__check_memory(attach, err));
    TRY(sfp__db_commit(s, err));
    int code = sqlite3_exec(s->db, attach, NULL, NULL, NULL);
    sqlite3_free(attach);
    (void)snprintf(sql, sizeof sql, "PRAGMA images.journal_mode = %s; PRAGMA images.synchronous = %s", s->path ? "WAL" : "OFF",
                   s->path ? "NORMAL" : "OFF");
    if (code != SQLITE_OK || sqlite3_exec(s->db, images_sql, NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(s->db, sql, NULL, NULL, NULL) != SQLITE_OK)
        return sfp__db_fail(s, err);
    s->images.open = true;
    /* after a power failure there may be an image without a sample, or of a sample that was forgotten */
    TRY(sfp__db_change(s, err,
                       "DELETE FROM images.image WHERE NOT EXISTS"
                       " (SELECT 1 FROM sample WHERE sample.id = image.id AND standing <> 4)",
                       ""));
    TRY(sqlite3_changes(s->db) > 0 ? sfp__db_scrub(s, err) : sfp__db_commit(s, err));
    TRY(sfp__db_query(s, &st, err, "SELECT coalesce(sum(length(bytes)), 0), count(*) FROM images.image", ""));
    s->images.bytes = st ? sqlite3_column_int64(st, 0) : 0;
    s->images.count = st ? sqlite3_column_int64(st, 1) : 0;
    return SFP_OK;
}

/* Whether the sample waits and must be delivered with its image. */
static bool needs_image(const sfp__stored *row)
{
    return row->standing == SFP__WAITING && (row->label || !row->predicted);
}

/* Removes the oldest images until `more` bytes fit, but no image that waits to be learned. A sample that waits for a label and loses its image becomes
 * DROPPED. */
static sfp_status make_space(sfp__store *s, int64_t more, sfp_error *err)
{
    for (int64_t after = -1; s->images.bytes + more > s->images.max_bytes;) {
        OWNED_BY(sfp__stored_done) sfp__stored row = {0};
        {
            OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
            TRY(sfp__db_query(s, &st, err, "SELECT id, length(bytes) FROM images.image WHERE id > ?1 ORDER BY id LIMIT 1", "i",
                              after));
            if (!st)
                return sfp__fail(err, SFP_ELIMIT,
                                 "the images of samples that wait to be learned have %lld bytes, expected at most %lld "
                                 "(--keep-images); send the sample again later",
                                 (long long)s->images.bytes, (long long)s->images.max_bytes);
            after = sqlite3_column_int64(st, 0);
        }
        TRY(sfp__sample_get(s, (uint64_t)after, &row, err));
        if (needs_image(&row))
            continue;
        TRY(sfp__image_remove(s, row.id, err));
        if (row.standing == SFP__WAITING)
            TRY(sfp__sample_refuse(s, row.id, SFP__DROPPED, "its image was removed to make space (--keep-images)", err));
    }
    return SFP_OK;
}

/* Finds the sample of an earlier submission with this key. */
static sfp_status find_submission(sfp__store *s, const char *key, sfp__stored *out, bool *found, sfp_error *err)
{
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    *found = false;
    if (key)
        TRY(sfp__db_query(s, &st, err, "SELECT sample FROM submission WHERE key = ?1", "t", key));
    if (!st)
        return SFP_OK;
    *found = true;
    return sfp__sample_get(s, (uint64_t)sqlite3_column_int64(st, 0), out, err);
}

/* Stores an image; make_space must have been called. kept: the size of the image that it replaces; -1: none. */
static sfp_status put_image(sfp__store *s, uint64_t id, const void *bytes, size_t size, int64_t kept, sfp_error *err)
{
    TRY(make_space(s, (int64_t)size, err));
    TRY(sfp__db_change(s, err, "INSERT OR REPLACE INTO images.image VALUES(?1, ?2)", "iB", (int64_t)id, (int64_t)size, bytes));
    s->images.bytes += (int64_t)size - (kept > 0 ? kept : 0);
    s->images.count += kept < 0;
    return SFP_OK;
}

/* Makes a name that no other sample has, because requests find a sample by its name. */
static sfp_status make_name(sfp__store *s, const char *wanted, uint64_t id, char **out, sfp_error *err)
{
    OWNED char *name = NULL;
    TRY(wanted ? sfp__text_new(&name, err, "%s", wanted) : sfp__text_new(&name, err, "#%llu", (unsigned long long)id));
    for (;;) {
        OWNED_BY(sfp__stored_done) sfp__stored other = {0};
        OWNED char *before = NULL;
        bool taken;
        TRY(sfp__sample_find(s, name, &other, &taken, err));
        if (!taken)
            break;
        before = TAKE(name);
        TRY(sfp__text_new(&name, err, "%s#%llu", before, (unsigned long long)id));
    }
    *out = TAKE(name);
    return SFP_OK;
}

static sfp_status add_submission(sfp__store *s, const sfp__submission *in, uint64_t id, const sfp__digest *digest, sfp_error *err)
{
    OWNED char *name = NULL;
    TRY(make_name(s, in->name, id, &name, err));
    TRY(sfp__sample_add(s, name, &(sfp__file_stamp){0}, digest, in->label, err));
    if (in->predicted)
        TRY(sfp__sample_predicted(s, id, sfp__time_of_day(), in->class_name, in->probability, in->unknown, in->timestamp, err));
    return in->key ? sfp__db_change(s, err, "INSERT OR REPLACE INTO submission VALUES(?1, ?2)", "ti", in->key, (int64_t)id)
                   : SFP_OK;
}

sfp_status sfp__store_submit(sfp__store *s, const sfp__submission *in, uint64_t *id, bool *repeated, sfp_error *err)
{
    LOCK_STORE(s);
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    const sfp__digest digest = sfp__digest_bytes((sfp__digest){0}, in->bytes, in->size), none = {0};
    sfp__db_mark before;
    int64_t kept;
    bool found;
    if (s->failed)
        return sfp__db_fail_lost(s, err);
    TRY(find_submission(s, in->key, &row, &found, err));
    if (found && !sfp__digest_equal(&row.digest, &none) && !sfp__digest_equal(&row.digest, &digest))
        return sfp__fail(err, SFP_EINVAL, "the key was used for another image, expected a new key for each sample");
    uint64_t made = found ? row.id : s->next_id;
    TRY(sfp__image_size(s, made, &kept, err));
    /* a killed process may have left the row without the image, because the two files are not written at once */
    bool lost =
        found && kept < 0 && !row.learned && row.name && (row.standing == SFP__UNREADABLE || row.standing == SFP__WAITING);
    if (!found || lost) {
        TRY(sfp__db_begin_group(s, &before, err));
        sfp_status status = put_image(s, made, in->bytes, in->size, kept, err);
        if (!status)
            status = lost ? sfp__sample_move(s, made, row.name, &(sfp__file_stamp){0}, err)
                          : add_submission(s, in, made, &digest, err);
        TRY(sfp__db_end_group(s, &before, status, err));
    }
    *id = made;
    *repeated = found;
    return SFP_OK;
}

sfp_status sfp__store_keep_image(sfp__store *s, uint64_t id, const void *bytes, size_t size, sfp_error *err)
{
    LOCK_STORE(s);
    sfp__db_mark before;
    int64_t kept;
    TRY(sfp__image_size(s, id, &kept, err));
    if (kept >= 0 || (int64_t)size > s->images.max_bytes)
        return SFP_OK;
    TRY(sfp__db_begin_group(s, &before, err));
    sfp_status status = sfp__db_end_group(s, &before, put_image(s, id, bytes, size, -1, err), err);
    return status == SFP_ELIMIT ? SFP_OK : status;
}

sfp_status sfp__store_has_image(sfp__store *s, uint64_t id, bool *out, sfp_error *err)
{
    LOCK_STORE(s);
    int64_t bytes;
    TRY(sfp__image_size(s, id, &bytes, err));
    *out = bytes >= 0;
    return SFP_OK;
}

sfp_status sfp__store_image(sfp__store *s, uint64_t id, uint8_t **bytes, size_t *size, sfp_error *err)
{
    LOCK_STORE(s);
    OWNED_BY(sfp__db_reset) sqlite3_stmt *st = NULL;
    if (s->images.open)
        TRY(sfp__db_query(s, &st, err, "SELECT bytes FROM images.image WHERE id = ?1", "i", (int64_t)id));
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
    LOCK_STORE(s);
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    int64_t bytes;
    if (id >= s->next_id)
        return sfp__fail(err, SFP_ENOTFOUND, "there is no sample %llu", (unsigned long long)id);
    TRY(sfp__sample_get(s, id, &row, err));
    if (row.standing == SFP__FORGOTTEN || row.standing == SFP__UNREADABLE)
        return sfp__fail(err, SFP_ENOTFOUND, "sample %llu %s", (unsigned long long)id,
                         row.standing == SFP__FORGOTTEN ? "was forgotten" : "has no readable image");
    if (row.label && strcmp(row.label, label) == 0 && row.standing != SFP__DROPPED)
        return SFP_OK;
    TRY(sfp__image_size(s, id, &bytes, err));
    if (bytes < 0)
        return sfp__fail(
            err, SFP_ELIMIT,
            "the image of sample %llu is not kept any more (--keep-images), expected one from which the label can be learned",
            (unsigned long long)id);
    return sfp__sample_label(s, id, label, err);
}
