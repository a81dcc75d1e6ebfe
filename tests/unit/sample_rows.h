/* A store of samples in the temporary directory, and checks of its rows. Include after temp_directory.h. */
#ifndef SFP_TESTS_SAMPLE_ROWS_H
#define SFP_TESTS_SAMPLE_ROWS_H

#include "stream/sample_store.h"

#include <sqlite3.h>

#include "temp_directory.h"

static const char *const standing_names[] = {"waiting", "learned", "dropped", "unreadable", "forgotten"};

static inline sfp__store *open_store(void)
{
    sfp__store *s = NULL;
    MUST(sfp__store_open(directory, &s, &err));
    return s;
}

static inline void reopen(sfp__store **s)
{
    sfp__store_close(*s);
    *s = NULL;
    *s = open_store();
}

static inline sfp__digest digest_of(const char *text)
{
    return sfp__digest_bytes((sfp__digest){0}, text, strlen(text));
}

/* The bytes of a sample are those of its first name. */
static inline uint64_t add(sfp__store *s, const char *name, const char *label)
{
    const sfp__file_stamp stamp = {.size = 1, .modified = 2, .changed = 3};
    sfp__digest digest = digest_of(name);
    uint64_t id = UINT64_MAX;
    MUST(sfp__store_add(s, name, &stamp, &digest, label, &id, &err));
    return id;
}

static inline void label(sfp__store *s, uint64_t id, const char *text)
{
    MUST(sfp__store_label(s, id, text, &err));
}

static inline void learn(sfp__store *s, uint64_t id, const char *text)
{
    MUST(sfp__store_learned(s, id, text, &err));
}

static inline void refuse(sfp__store *s, uint64_t id, sfp__standing standing)
{
    MUST(sfp__store_refuse(s, id, standing, "a reason", &err));
}

static inline void predict(sfp__store *s, uint64_t id)
{
    MUST(sfp__store_predicted(s, id, 5, "owl", 0.5, 0.25, 7, &err));
}

static inline int64_t save(sfp__store *s)
{
    int64_t generation = 0;
    MUST(sfp__store_prepare_checkpoint(s, &generation, &err));
    MUST(sfp__store_finish_checkpoint(s, false, &err));
    return generation;
}

/* Checks a row: "STANDING NAME LABEL LEARNED". */
static inline void check_row(sfp__store *s, uint64_t id, const char *expected)
{
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    MUST(sfp__store_get(s, id, &row, &err));
    assert_int_equal(row.id, id);
    assert_string_equal(kept_print("%s %s %s %s", standing_names[row.standing], row.name ? row.name : "-",
                                   row.label ? row.label : "-", row.learned ? row.learned : "-"),
                        expected);
}

/* Counts rows of the file with another connection. */
static inline uint64_t count_rows(sqlite3 *db, const char *condition)
{
    sqlite3_stmt *st = NULL;
    const char *sql = kept_print("SELECT count(*) FROM %s", condition);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    uint64_t n = (uint64_t)sqlite3_column_int64(st, 0);
    assert_int_equal(sqlite3_finalize(st), SQLITE_OK);
    return n;
}

static inline sqlite3 *open_database(void)
{
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(in_directory(SFP__STORE_NAME), &db), SQLITE_OK);
    return db;
}

static inline void run_sql(const char *sql)
{
    sqlite3 *db = open_database();
    char *why = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
        fail_msg("%s: %s", sql, why);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

/* Checks that the counts are those of the rows, and that each row has the standing that follows from its labels. */
static inline void check_counts(sfp__store *s)
{
    KEPT_IN_BLOCK;
    MUST(sfp__store_commit(s, &err));
    sfp__store_counts c = sfp__store_get_counts(s);
    sqlite3 *db = open_database();
    uint64_t offered = 0;
    for (int i = 0; i < SFP__STANDINGS; i++) {
        assert_int_equal(c.standing[i], count_rows(db, kept_print("sample WHERE standing = %d", i)));
        offered += c.standing[i];
    }
    assert_int_equal(offered, count_rows(db, "sample"));
    assert_int_equal(c.unlabelled, count_rows(db, "sample WHERE standing = 0 AND label IS NULL"));
    assert_int_equal(c.predicted, count_rows(db, "sample WHERE predicted IS NOT NULL"));
    assert_int_equal(c.late, count_rows(db, "sample WHERE predicted IS NOT NULL AND label IS NOT NULL"));
    assert_int_equal(c.expired, count_rows(db, "sample WHERE predicted IS NOT NULL AND label IS NULL AND standing = 2"));
    assert_int_equal(c.corrected, count_rows(db, "(SELECT DISTINCT sample FROM earlier_label)"));
    assert_int_equal(count_rows(db, "sample WHERE (standing = 1) <> (learned IS NOT NULL AND learned IS label)"), 0);
    assert_int_equal(count_rows(db, "sample WHERE standing > 1 AND learned IS NOT NULL"), 0);
    assert_int_equal(count_rows(db, "sample WHERE standing = 4 AND coalesce(name, label, digest, class, size) IS NOT NULL"), 0);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static inline void close_checked(sfp__store *s)
{
    check_counts(s);
    sfp__store_close(s);
}

#endif
