#include "cli/matrix.h"

#include "base/mem.h"
#include "base/text.h"
#include "io/file.h"
#include "io/tensor/tensor_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 1 << 28, COLUMNS_MAX = 1 << 24 };
#define TEXT_MAX ((size_t)8 << 30)

/* true: the first n bytes of the path end in a suffix of an array or tensor file. */
static bool has_array_suffix(const char *path, size_t n)
{
    static const char *const ends[] = {".npy", ".npz", ".safetensors", ".pth", ".pt", ".bin"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t m = strlen(ends[i]);
        if (n >= m && memcmp(path + n - m, ends[i], m) == 0)
            return true;
    }
    return false;
}

/* Returns NAME of FILE:NAME. NULL: no name, because FILE before the last colon does not have an array suffix, or the whole path
 * has one. */
static const char *tensor_name(const char *path)
{
    const char *colon = strrchr(path, ':');
    return colon && has_array_suffix(path, (size_t)(colon - path)) && !has_array_suffix(path, strlen(path)) ? colon + 1 : NULL;
}

/* -------------------------------------------------------------------- tensors */

static sfp_status convert_tensor(const char *path, const sfp__tensor *t, sfp__table *out, sfp_error *err)
{
    char shape[SFP__SHAPE_MAX];
    int64_t rows = t->ndim > 0 ? t->shape[0] : 0, columns = t->ndim == 2 ? t->shape[1] : 1;
    if ((t->ndim == 1 || t->ndim == 2) && t->count == 0)
        return sfp__fail(err, SFP_ESHAPE, "%s: array has shape %s, expected at least one %s", path,
                         sfp__shape_text(t->shape, t->ndim, shape, sizeof shape), rows == 0 ? "row" : "column");
    if (t->ndim < 1 || t->ndim > 2 || rows > ROWS_MAX || columns > COLUMNS_MAX)
        return sfp__fail(err, SFP_ESHAPE, "%s: array has shape %s, expected (rows, columns) or (rows,)", path,
                         sfp__shape_text(t->shape, t->ndim, shape, sizeof shape));
    OWNED float *x = NULL;
    TRY(sfp__alloc(&x, t->count, sizeof *x, err));
    TRY(sfp__tensor_to_f32(path, t, x, err));
    *out = (sfp__table){(int)rows, (int)columns, TAKE(x)};
    return SFP_OK;
}

/* Finds the tensor `name`; NULL: the only tensor of the file. */
static sfp_status find_tensor(const char *path, const char *name, const sfp__tensor_file *f, const sfp__tensor **out,
                              sfp_error *err)
{
    char shown[SFP__NAME_MAX];
    if (name && (*out = sfp__tensor_file_find(f, name)))
        return SFP_OK;
    if (name)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: file has no tensor '%s'", path, sfp__printable(name, shown, sizeof shown));
    if (f->count != 1)
        return sfp__fail(err, SFP_EINVAL, "%s: file has %zu tensors, expected one; use FILE:NAME to choose a tensor", path,
                         f->count);
    *out = &f->tensors[0];
    return SFP_OK;
}

/* Reads the array of a .npy file or of a tensor file. */
static sfp_status load_array(const char *path, sfp__table *out, sfp_error *err)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *f = NULL;
    const sfp__tensor *t = NULL;
    const char *name = tensor_name(path);
    size_t n = name ? (size_t)(name - path) - 1 : strlen(path);
    if (n >= 4 && memcmp(path + n - 4, ".npy", 4) == 0 && !name) {
        TRY(sfp__npy_open(path, &f, err));
        return convert_tensor(path, &f->tensors[0], out, err);
    }
    OWNED char *file = sfp__strdup(path);
    TRY(sfp__check_memory(file, err));
    file[n] = '\0';
    TRY(sfp__tensor_file_open(file, &f, err));
    TRY(find_tensor(file, name, f, &t, err));
    return convert_tensor(file, t, out, err);
}

/* ----------------------------------------------------------------------- text */

typedef struct reader {
    const char *path, *at; /* at: the unread rest of the text */
    int line;
    float *x;
    size_t used, capacity;
    int rows, columns;
} reader;

/* The contents of a cell, without surrounding blanks and quotes. */
typedef struct cell {
    const char *at;
    size_t n;
} cell;

/* The counts of a line, and its first cell that is not a number. */
typedef struct line {
    int cells, numbers, words; /* words: neither numbers nor empty */
    int bad;                   /* first cell that is not a number, from 1; 0: none */
    cell bad_cell;
} line;

#define BLANKS " \t\r\v\f"

static cell trimmed(cell c)
{
    size_t lead = strspn(c.at, BLANKS);
    lead = lead < c.n ? lead : c.n;
    c = (cell){c.at + lead, c.n - lead};
    while (c.n > 0 && strchr(BLANKS, c.at[c.n - 1]))
        c.n--;
    return c;
}

/* Returns the length of the cell that starts here. Separators in quotes do not count; an unclosed quote ends with the line. */
static size_t cell_length(const char *at, const char *stops)
{
    size_t n = 0;
    while (at[n] == '"') { /* a further round: a doubled quote */
        n += 1 + strcspn(at + n + 1, "\"\n");
        n += at[n] == '"';
    }
    return n + strcspn(at + n, stops);
}

/* Reads the cell at r->at and advances r->at to its separator. */
static cell read_cell(reader *r, const char *stops)
{
    r->at += strspn(r->at, BLANKS);
    size_t n = cell_length(r->at, stops);
    cell c = trimmed((cell){r->at, n});
    r->at += n;
    return c.n >= 2 && c.at[0] == '"' && c.at[c.n - 1] == '"' ? trimmed((cell){c.at + 1, c.n - 2}) : c;
}

/* Finds the characters that end a cell of the current line: commas, semicolons or, on a line with neither, blanks. A line with
 * both is refused, because commas may then be decimal signs. */
static sfp_status find_separators(const reader *r, const char **stops, sfp_error *err)
{
    bool comma = false, semicolon = false;
    for (const char *at = r->at;; at++) {
        at += strspn(at, BLANKS);
        at += cell_length(at, ",;\n");
        if (*at != ',' && *at != ';')
            break;
        comma |= *at == ',';
        semicolon |= *at == ';';
    }
    if (comma && semicolon)
        return sfp__fail(err, SFP_EFORMAT,
                         "%s:%d: line has commas and semicolons, expected one kind of separator and numbers like 1.5", r->path,
                         r->line);
    *stops = comma ? ",\n" : semicolon ? ";\n" : BLANKS "\n";
    return SFP_OK;
}

static sfp_status append_number(reader *r, float value, sfp_error *err)
{
    TRY(sfp__check_memory(sfp__grow(&r->x, sizeof *r->x, r->used, r->used + 1, &r->capacity), err));
    r->x[r->used++] = value;
    return SFP_OK;
}

static sfp_status read_number(reader *r, line *l, cell c, sfp_error *err)
{
    char *end = NULL;
    float value =
        c.n > 0 ? strtof(c.at, &end) : 0; /* a cell does not start with a blank, so strtof cannot read beyond the line */
    if (++l->cells > COLUMNS_MAX)
        return sfp__fail(err, SFP_ELIMIT, "%s:%d: number of columns exceeds %d", r->path, r->line, COLUMNS_MAX);
    if (c.n > 0 && end == c.at + c.n) {
        l->numbers++;
        return append_number(r, value, err);
    }
    l->words += c.n > 0;
    if (!l->bad) {
        l->bad = l->cells;
        l->bad_cell = c;
    }
    return SFP_OK;
}

/* Reads all cells up to the end of the line; a blank line has none. */
static sfp_status read_line(reader *r, line *l, sfp_error *err)
{
    const char *stops = NULL;
    TRY(find_separators(r, &stops, err));
    r->at += strspn(r->at, BLANKS);
    for (bool more = *r->at && *r->at != '\n'; more;) {
        TRY(read_number(r, l, read_cell(r, stops), err));
        r->at += strspn(r->at, BLANKS); /* several blanks are one separator, and none at the end of the line */
        more = *r->at && *r->at != '\n';
        r->at += *r->at == ',' || *r->at == ';'; /* a cell, possibly empty, follows */
    }
    return SFP_OK;
}

static sfp_status fail_bad_cell(const reader *r, const line *l, sfp_error *err)
{
    const char *why = r->line == 1 && l->numbers > 0 ? "; expected a header without numbers, or only numbers" : "";
    char word[24], shown[100];
    if (l->bad_cell.n == 0)
        return sfp__fail(err, SFP_EFORMAT, "%s:%d: cell %d is empty%s", r->path, r->line, l->bad, why);
    (void)snprintf(word, sizeof word, "%.*s", l->bad_cell.n < 20 ? (int)l->bad_cell.n : 20, l->bad_cell.at);
    return sfp__fail(err, SFP_EFORMAT, "%s:%d: '%s' is not a number%s", r->path, r->line,
                     sfp__printable(word, shown, sizeof shown), why);
}

static sfp_status read_rows(reader *r, sfp_error *err)
{
    for (; *r->at; r->line++) {
        line l = {0};
        TRY(read_line(r, &l, err));
        bool header = r->line == 1 && l.numbers == 0 && l.words > 0;
        if (l.bad && !header)
            return fail_bad_cell(r, &l, err);
        if (l.numbers > 0 && r->rows > 0 && l.numbers != r->columns)
            return sfp__fail(err, SFP_EFORMAT, "%s:%d: the row has %d numbers, expected %d", r->path, r->line, l.numbers,
                             r->columns);
        if (l.numbers > 0) {
            if (++r->rows > ROWS_MAX)
                return sfp__fail(err, SFP_ELIMIT, "%s: number of rows exceeds %d", r->path, ROWS_MAX);
            r->columns = l.numbers;
        }
        r->at += *r->at == '\n';
    }
    return r->rows > 0 ? SFP_OK : sfp__fail(err, SFP_EFORMAT, "%s: file has no row of numbers", r->path);
}

static sfp_status load_text(const char *path, sfp__table *out, sfp_error *err)
{
    OWNED uint8_t *bytes = NULL;
    size_t size = 0;
    TRY(sfp__file_read(path, TEXT_MAX, &bytes, &size, err));
    OWNED char *text = sfp__realloc(bytes, size, size + 1);
    TRY(sfp__check_memory(text, err));
    bytes = NULL; /* `text` owns the memory now */
    text[size] = '\0';
    if (memchr(text, '\0', size))
        return sfp__fail(err, SFP_EFORMAT, "%s: not a text file, and its suffix is not that of an array file", path);
    reader r = {.path = path, .at = text + sfp__text_bom_length(text, size), .line = 1};
    sfp_status s = read_rows(&r, err);
    if (s)
        sfp__free(r.x);
    else
        *out = (sfp__table){r.rows, r.columns, r.x};
    return s;
}

/* --------------------------------------------------------------------- public */

sfp_status sfp__table_load(const char *path, sfp__table *out, sfp_error *err)
{
    return tensor_name(path) || has_array_suffix(path, strlen(path)) ? load_array(path, out, err) : load_text(path, out, err);
}

void sfp__table_done(sfp__table *t)
{
    sfp__free(t->x);
    *t = (sfp__table){0};
}

sfp_status sfp__labels_load(const char *path, int *rows, int32_t **label, sfp_error *err)
{
    OWNED_BY(sfp__table_done) sfp__table t = {0};
    OWNED int32_t *y = NULL;
    TRY(sfp__table_load(path, &t, err));
    if (t.columns != 1)
        return sfp__fail(err, SFP_ESHAPE, "%s: number of columns is %d, expected one label per row", path, t.columns);
    TRY(sfp__alloc(&y, (size_t)t.rows, sizeof *y, err));
    for (int i = 0; i < t.rows; i++) {
        float v = t.x[i];
        if (!(v >= 0 && v <= 1 << 24) || v != floorf(v)) /* a float represents these whole numbers exactly */
            return sfp__fail(err, SFP_EFORMAT, "%s: label %d is %g, expected a whole number from 0 to %d", path, i, (double)v,
                             1 << 24);
        y[i] = (int32_t)v;
    }
    *rows = t.rows;
    *label = TAKE(y);
    return SFP_OK;
}
