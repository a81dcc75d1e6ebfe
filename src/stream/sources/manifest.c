/* A list of images: JSONL if its first character is '{', else CSV.
 *
 *   path,label[,task[,time]]      {"path": "a.jpg", "label": "cat", "task": 0, "time": 2004}
 *
 * A CSV file whose first record has a field "path" begins with a header. A header names the columns in any order, also `domain`;
 * other columns are ignored. A first record without "path" is refused in two cases: it names another column and no image, or its
 * path is not the name of an image while that of the second record is. Labels are names, also if they are numbers; an empty one
 * (or null) is an unlabelled image. Paths are relative to the list. Only the list is read: a missing image is reported when it is
 * loaded, with the line that names it. */
#include "stream/source_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LINE_MAX_BYTES 65536 /* bytes of a record; limits the search for a closing quote */
#define FIELDS_MAX 64
#define TASK_MAX 1000000

enum { PATH, LABEL, TASK, TIME, DOMAIN, COLUMNS };
static const char *const column_name[COLUMNS] = {"path", "label", "task", "time", "domain"};

typedef struct field {
    const char *s;
    size_t n;
} field;

typedef struct reader {
    const char *file; /* for messages */
    const char *at, *end;
    uint64_t line;       /* line of `at`, from 1 */
    int column[COLUMNS]; /* number of the field of a column; -1: none */
    int fields;          /* number of fields per record; 0: not known yet */
    uint64_t doubted;    /* line of the first record if its path is not the name of an image; 0: it is */
    field f[FIELDS_MAX];
    char scratch[LINE_MAX_BYTES + FIELDS_MAX]; /* text of the fields, each terminated by NUL */
    sfp__entries *entries;
    sfp__names classes, domains;
} reader;

/* ------------------------------------------------------------------ values */

static bool parse_task(const char *s, int32_t *out)
{
    char *end;
    long v = s[0] >= '0' && s[0] <= '9' ? strtol(s, &end, 10) : -1;
    if (v < 0 || v > TASK_MAX || *end)
        return false;
    *out = (int32_t)v;
    return true;
}

static bool parse_time(const char *s, double *out)
{
    char *end;
    double v = strtod(s, &end);
    if (end == s || *end || !isfinite(v))
        return false;
    *out = v;
    return true;
}

static sfp_status bad_value(const reader *r, uint64_t line, int column, const char *value, const char *expected, sfp_error *err)
{
    char text[SFP__NAME_MAX];
    return sfp__fail(err, SFP_EFORMAT, "%s:%llu: %s is '%s', expected %s", r->file, (unsigned long long)line, column_name[column],
                     sfp__printable(value, text, sizeof text), expected);
}

/* value[] is empty or NULL for a missing column. */
static sfp_status add_entry(reader *r, uint64_t line, const field value[COLUMNS], sfp_error *err)
{
    sfp__entry e = {.record = sfp__record_none(), .place = line};
    sfp_status status = SFP_OK;
    if (value[PATH].n == 0)
        return sfp__fail(err, SFP_EFORMAT, "%s:%llu: path is missing, expected path,label[,task[,time]]", r->file,
                         (unsigned long long)line);
    if (value[PATH].n > SFP__PATH_BYTES_MAX)
        return sfp__fail(err, SFP_ELIMIT, "%s:%llu: the path has %zu bytes, expected at most %d", r->file,
                         (unsigned long long)line, value[PATH].n, SFP__PATH_BYTES_MAX);
    if (memchr(value[PATH].s, 0, value[PATH].n))
        return sfp__fail(err, SFP_EFORMAT, "%s:%llu: the path has a NUL byte", r->file, (unsigned long long)line);
    if (value[TASK].n && !parse_task(value[TASK].s, &e.record.task))
        return bad_value(r, line, TASK, value[TASK].s, "a whole number from 0", err);
    if (value[TIME].n && !parse_time(value[TIME].s, &e.record.time))
        return bad_value(r, line, TIME, value[TIME].s, "a number", err);
    if (value[LABEL].n)
        status = sfp__names_add(&r->classes, value[LABEL].s, value[LABEL].n, &e.record.label, err);
    if (status == SFP_OK && value[DOMAIN].n)
        status = sfp__names_add(&r->domains, value[DOMAIN].s, value[DOMAIN].n, &e.record.domain, err);
    if (status == SFP_OK)
        status = sfp__entries_add(r->entries, e, value[PATH].s, value[PATH].n, err);
    return status == SFP_OK ? SFP_OK : sfp__fail_prefix(err, status, "%s:%llu", r->file, (unsigned long long)line);
}

/* --------------------------------------------------------------------- CSV */

static sfp_status csv_fail(const reader *r, uint64_t line, const char *what, sfp_error *err)
{
    return sfp__fail(err, SFP_EFORMAT, "%s:%llu: %s", r->file, (unsigned long long)line, what);
}

/* Reads a quoted field after its first quote; r->at is then at the following ',' or end of line. */
static sfp_status quoted_field(reader *r, char **to, const char *limit, sfp_error *err)
{
    size_t n = 0;
    const char *stop = sfp__csv_quoted(r->at, limit, *to, &n);
    if (stop == limit && limit < r->end && *limit == '"') /* half of a doubled quote */
        stop = NULL;
    if (!stop && limit == r->end)
        return csv_fail(r, r->line, "a quoted field does not end, expected '\"'", err);
    if (!stop)
        return csv_fail(r, r->line, "a quoted field does not end within 65536 bytes, expected '\"'", err);
    for (const char *p = *to; (p = memchr(p, '\n', n - (size_t)(p - *to))); p++)
        r->line++;
    *to += n;
    r->at = stop;
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\r'))
        r->at++;
    if (r->at < r->end && *r->at != ',' && *r->at != '\n')
        return csv_fail(r, r->line,
                        "text follows a quoted field, expected ',' or the end of the line (a quote inside is written \"\")", err);
    return SFP_OK;
}

static sfp_status plain_field(reader *r, char **to, const char *limit, sfp_error *err)
{
    const char *from = r->at;
    while (r->at < r->end && *r->at != ',' && *r->at != '\n') {
        if (r->at >= limit)
            return csv_fail(r, r->line, "line is longer than 65536 bytes", err);
        if (*r->at == '"')
            return csv_fail(r, r->line,
                            "a field that does not begin with a quote contains one, expected \"...\" around the field", err);
        r->at++;
    }
    const char *stop = r->at;
    while (stop > from && (stop[-1] == ' ' || stop[-1] == '\t' || stop[-1] == '\r'))
        stop--;
    memcpy(*to, from, (size_t)(stop - from));
    *to += stop - from;
    return SFP_OK;
}

/* Reads the next record into r->f; *n fields, 0 for a blank line. r->at is then behind it. */
static sfp_status csv_record(reader *r, int *n, sfp_error *err)
{
    char *to = r->scratch;
    const char *begin = r->at;
    const char *limit = r->end - begin > LINE_MAX_BYTES ? begin + LINE_MAX_BYTES : r->end;
    int count = 0;
    for (;;) {
        while (r->at < limit && (*r->at == ' ' || *r->at == '\t'))
            r->at++;
        if (count == FIELDS_MAX)
            return csv_fail(r, r->line, "line has more than 64 fields", err);
        field *f = &r->f[count++];
        bool quoted = r->at < limit && *r->at == '"';
        f->s = to;
        r->at += quoted;
        TRY(quoted ? quoted_field(r, &to, limit, err) : plain_field(r, &to, limit, err));
        f->n = (size_t)(to - f->s);
        *to++ = '\0';
        if (r->at == r->end || *r->at == '\n') {
            *n = count == 1 && f->n == 0 && !quoted ? 0 : count;
            r->at += r->at < r->end;
            return SFP_OK;
        }
        r->at++; /* ',' */
    }
}

/* Decides whether the first record is a header, which sets the columns, or an image. A record that names columns but neither
 * 'path' nor an image is refused: it is a header without a path. */
static sfp_status csv_first(reader *r, uint64_t line, int n, bool *header, sfp_error *err)
{
    int column[COLUMNS], named = 0;
    for (int c = 0; c < COLUMNS; c++) {
        column[c] = -1;
        for (int i = 0; i < n && column[c] < 0; i++) {
            if (strcasecmp(r->f[i].s, column_name[c]) == 0)
                column[c] = i;
        }
        named += column[c] >= 0;
    }
    *header = column[PATH] >= 0 || (named > 0 && !sfp__image_name(r->f[0].s));
    for (int c = 0; c <= LABEL && *header; c++)
        if (column[c] < 0)
            return sfp__fail(err, SFP_EFORMAT,
                             "%s:%llu: line has %d field%s and no column '%s', expected path,label[,task[,time]]", r->file,
                             (unsigned long long)line, n, n == 1 ? "" : "s", column_name[c]);
    if (!*header && (n < 2 || n > 4))
        return sfp__fail(err, SFP_EFORMAT, "%s:%llu: line has %d field%s, expected path,label[,task[,time]]", r->file,
                         (unsigned long long)line, n, n == 1 ? "" : "s");
    if (*header)
        memcpy(r->column, column, sizeof column);
    else if (!sfp__image_name(r->f[0].s))
        r->doubted = line;
    r->fields = n;
    return SFP_OK;
}

/* Checks the first record, whose path is not the name of an image, against the second one. */
static sfp_status check_first(const reader *r, const char *second, sfp_error *err)
{
    char text[SFP__NAME_MAX];
    if (!sfp__image_name(second))
        return SFP_OK;
    return sfp__fail(err, SFP_EFORMAT,
                     "%s:%llu: '%s' is not the name of an image, expected one, or the header path,label[,task[,time]]", r->file,
                     (unsigned long long)r->doubted, sfp__printable(sfp__entries_path(r->entries, 0), text, sizeof text));
}

static sfp_status read_csv(reader *r, sfp_error *err)
{
    for (int c = 0; c < COLUMNS; c++)
        r->column[c] = c < DOMAIN ? c : -1;
    while (r->at < r->end) {
        uint64_t line = r->line;
        int n = 0;
        bool header = false;
        TRY(csv_record(r, &n, err));
        r->line++;
        if (n == 0)
            continue;
        if (r->fields == 0)
            TRY(csv_first(r, line, n, &header, err));
        if (header)
            continue;
        if (n != r->fields)
            return sfp__fail(err, SFP_EFORMAT, "%s:%llu: line has %d field%s, expected %d as in the first line", r->file,
                             (unsigned long long)line, n, n == 1 ? "" : "s", r->fields);
        field value[COLUMNS] = {{0}};
        for (int c = 0; c < COLUMNS; c++) {
            if (r->column[c] >= 0 && r->column[c] < n)
                value[c] = r->f[r->column[c]];
        }
        if (r->entries->count == 1 && r->doubted)
            TRY(check_first(r, value[PATH].s, err));
        TRY(add_entry(r, line, value, err));
    }
    return SFP_OK;
}

/* ------------------------------------------------------------------- JSONL */

static const char *type_name(const sfp__json_value *j)
{
    static const char *const name[] = {"an object", "an array", "a string", "a number", "a number", "true", "false", "null"};
    return name[j->type];
}

/* Returns a value as text in `buf`, or the string itself. */
static sfp_status json_field(const reader *r, const sfp__json_value *object, int column, char *buf, size_t size, field *out,
                             sfp_error *err)
{
    const sfp__json_value *j = sfp__json_get(object, column_name[column]);
    if (!j || sfp__json_is(j, SFP__JSON_NULL))
        return SFP_OK;
    bool number = sfp__json_is(j, SFP__JSON_INTEGER) || (column == TIME && sfp__json_is(j, SFP__JSON_REAL));
    bool text = sfp__json_is(j, SFP__JSON_STRING);
    if (column == PATH ? !text : !number && !text) {
        static const char *const expected[COLUMNS] = {"a string", "a name", "a whole number", "a number", "a name"};
        return sfp__fail(err, SFP_EFORMAT, "%s:%llu: key '%s' is %s, expected %s", r->file, (unsigned long long)r->line,
                         column_name[column], type_name(j), expected[column]);
    }
    if (text) {
        *out = (field){sfp__json_text(j), j->count};
        return SFP_OK;
    }
    int n = sfp__json_is(j, SFP__JSON_INTEGER) ? snprintf(buf, size, "%lld", (long long)sfp__json_integer(j))
                                               : snprintf(buf, size, "%.17g", sfp__json_number(j));
    *out = (field){buf, (size_t)n};
    return SFP_OK;
}

static sfp_status json_line(reader *r, size_t n, sfp_error *err)
{
    OWNED sfp__json_value *object = NULL;
    OWNED char *label = NULL;
    TRY(sfp__text_new(&label, err, "%s:%llu", r->file, (unsigned long long)r->line));
    TRY(sfp__json_parse(label, r->at, n, &object, err));
    field value[COLUMNS] = {{0}};
    char buf[COLUMNS][32];
    if (!sfp__json_is(object, SFP__JSON_OBJECT))
        return sfp__fail(err, SFP_EFORMAT, "%s:%llu: line contains %s, expected an object {\"path\": ..., \"label\": ...}",
                         r->file, (unsigned long long)r->line, type_name(object));
    for (int c = 0; c < COLUMNS; c++)
        TRY(json_field(r, object, c, buf[c], sizeof buf[c], &value[c], err));
    return add_entry(r, r->line, value, err);
}

static sfp_status read_jsonl(reader *r, sfp_error *err)
{
    for (; r->at < r->end; r->line++) {
        const char *stop = memchr(r->at, '\n', (size_t)(r->end - r->at));
        const char *next = stop ? stop + 1 : r->end;
        size_t n = (size_t)((stop ? stop : r->end) - r->at);
        if (n > LINE_MAX_BYTES)
            return sfp__fail(err, SFP_ELIMIT, "%s:%llu: line has %zu bytes, expected at most %d", r->file,
                             (unsigned long long)r->line, n, LINE_MAX_BYTES);
        size_t blank = 0;
        while (blank < n && strchr(" \t\r", r->at[blank]) && r->at[blank])
            blank++;
        if (blank < n)
            TRY(json_line(r, n, err));
        r->at = next;
    }
    return SFP_OK;
}

/* ----------------------------------------------------------------- opening */

static unsigned long long line_of(const sfp_source *s, int64_t i)
{
    return (unsigned long long)((const sfp__file_source *)s)->entries.at[i].place;
}

static sfp_status load_line(const sfp_source *s, int64_t i, sfp__raw_image *out, sfp_error *err)
{
    sfp_status status = sfp__file_source_load(s, i, out, err);
    return status == SFP_OK ? SFP_OK : sfp__fail_prefix(err, status, "%s:%llu", s->path, line_of(s, i));
}

static const char *display_line(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    int n = snprintf(buf, size, "%s:%llu: ", s->path, line_of(s, i));
    if (n >= 0 && (size_t)n < size)
        (void)sfp__file_source_display_name(s, i, buf + n, size - (size_t)n);
    return buf;
}

static const sfp__source_ops manifest_ops = {
    .record = sfp__file_source_record,
    .load = load_line,
    .name = sfp__file_source_name,
    .display_name = display_line,
    .close = sfp__file_source_close,
};

static sfp_status read_list(reader *r, const void *bytes, size_t size, sfp_error *err)
{
    r->at = bytes;
    r->end = r->at + size;
    r->line = 1;
    r->at += sfp__text_bom_length(r->at, size);
    const char *first = r->at;
    while (first < r->end && (*first == ' ' || *first == '\t' || *first == '\r' || *first == '\n'))
        first++;
    TRY(first < r->end && *first == '{' ? read_jsonl(r, err) : read_csv(r, err));
    if (r->entries->count == 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: file lists no images, expected lines of path,label[,task[,time]]", r->file);
    return SFP_OK;
}

static void reader_free(reader *r)
{
    if (r) {
        sfp__names_done(&r->classes);
        sfp__names_done(&r->domains);
    }
    sfp__free(r);
}
DEFINE_OWNED_PTR(reader, reader_free)

sfp_status sfp__manifest_open_memory(const char *path, const void *bytes, size_t size, sfp_source **out, sfp_error *err)
{
    OWNED_PTR(sfp__file_source_free) sfp__file_source *s = NULL;
    OWNED_PTR(reader_free) reader *r = NULL;
    OWNED char *dir = NULL;
    TRY(sfp__path_directory(path, &dir, err));
    TRY(sfp__file_source_create(sizeof *s, &sfp__source_manifest, &manifest_ops, path, dir, &s, err));
    TRY(sfp__alloc(&r, 1, sizeof *r, err));
    r->file = path;
    r->entries = &s->entries;
    TRY(read_list(r, bytes, size, err));
    TRY(sfp__entries_sort_names(&s->entries, &r->classes, &r->domains, err));
    s->base.keeps_order = true;
    *out = sfp__file_source_finish(TAKE(s), &r->classes, &r->domains);
    return SFP_OK;
}

static sfp_status open_manifest(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err)
{
    (void)opt;
    OWNED uint8_t *bytes = NULL;
    size_t size = 0;
    TRY(sfp__file_read(path, SFP__LIST_BYTES_MAX, &bytes, &size, err));
    return sfp__manifest_open_memory(path, bytes, size, out, err);
}

const sfp__source_kind sfp__source_manifest = {
    .name = "manifest",
    .summary = "a CSV or JSONL list: path,label[,task[,time]]",
    .open = open_manifest,
};
