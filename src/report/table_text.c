/* The table for a terminal: columns are aligned, and a table that is too wide is split into parts below each other. */
#include "report/table_internal.h"

#include <string.h>

#define PM "\xc2\xb1" /* the sign +- */

static const sfp__cell_style text_style = {
    .missing = "-", .before = "*", .after = "", .pm = " " PM " ", .end = "", .paper = " (", .paper_end = ")"};

/* Writes a text padded to `width`; `right`: the padding is before it. */
static void put_padded(const char *s, int width, bool right, sfp__text *out)
{
    int blanks = width - sfp__text_width(s);
    if (right && blanks > 0)
        sfp__text_fill(out, ' ', (size_t)blanks);
    sfp__put_escaped(out, s, NULL);
    if (!right && blanks > 0)
        sfp__text_fill(out, ' ', (size_t)blanks);
}

/* Removes the blanks at the end of the line, and ends it. */
static void end_line(sfp__text *out)
{
    while (out->length > 0 && out->s[out->length - 1] == ' ')
        out->length--;
    sfp__text_put(out, "\n");
}

/* Returns the text of a cell in `scratch`. */
static const char *cell_text(const sfp__table *t, int row, int column, sfp__text *scratch)
{
    scratch->length = 0;
    sfp__table_put_cell(t, row, column, &text_style, scratch);
    return sfp__text_or_empty(scratch->s);
}

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

/* Sets the widths of the columns, with the two blanks before them. A long heading of a group widens its last column. */
static void measure(const sfp__table *t, int *width, sfp__text *scratch)
{
    for (int k = 0; k < t->columns; k++) {
        int w = sfp__text_width(sfp__text_or_empty(t->column_name[k]));
        for (int i = 0; i < t->rows; i++)
            w = max_int(w, sfp__text_width(cell_text(t, i, k, scratch)));
        width[k] = w + 2;
    }
    for (int k = 0, end; k < t->columns; k = end) {
        int sum = 0;
        end = sfp__table_group_end(t, k, t->columns);
        for (int i = k; i < end; i++)
            sum += width[i];
        width[end - 1] += max_int(0, sfp__text_width(sfp__text_or_empty(t->group_name[k])) + 2 - sum);
    }
}

/* Returns the end of the part of the table that begins at column `begin`. A part ends between two groups if possible. */
static int part_end(const sfp__table *t, int begin, int names, const int *width)
{
    int end = begin, used = names, group = begin;
    while (end < t->columns && (end == begin || used + width[end] <= t->width)) {
        if (end > begin && !sfp__table_same_group(t, end - 1, end))
            group = end;
        used += width[end++];
    }
    bool splits = end < t->columns && sfp__table_same_group(t, end - 1, end);
    return splits && group > begin ? group : end;
}

static void put_text_headings(const sfp__table *t, int begin, int end, int names, const int *width, sfp__text *out)
{
    if (sfp__table_has_groups(t)) {
        sfp__text_fill(out, ' ', (size_t)names);
        for (int k = begin, next; k < end; k = next) {
            int sum = 0;
            next = sfp__table_group_end(t, k, end);
            for (int i = k; i < next; i++)
                sum += width[i];
            sfp__text_put(out, "  ");
            put_padded(sfp__text_or_empty(t->group_name[k]), sum - 2, false, out);
        }
        end_line(out);
    }
    put_padded(sfp__table_row_heading(t), names, false, out);
    for (int k = begin; k < end; k++)
        put_padded(sfp__text_or_empty(t->column_name[k]), width[k], true, out);
    end_line(out);
}

static void put_text_part(const sfp__table *t, int begin, int end, int names, const int *width, sfp__text *scratch,
                          sfp__text *out)
{
    int total = names;
    for (int k = begin; k < end; k++)
        total += width[k];
    put_text_headings(t, begin, end, names, width, out);
    sfp__text_fill(out, '-', (size_t)total);
    sfp__text_put(out, "\n");
    for (int i = 0; i < t->rows; i++) {
        put_padded(sfp__text_or_empty(t->row_name[i]), names, false, out);
        for (int k = begin; k < end; k++)
            put_padded(cell_text(t, i, k, scratch), width[k], true, out);
        end_line(out);
    }
}

/* Writes a text in lines of at most `width` characters, if its words are not longer. */
static void put_wrapped(const char *s, int width, sfp__text *out)
{
    for (int used = 0; *s; s += strspn(s, " ")) {
        OWNED_BY(sfp__text_done) sfp__text word = {0};
        size_t length = strcspn(s, " ");
        sfp__text_putn(&word, s, length);
        int w = word.failed ? 0 : sfp__text_width(word.s);
        out->failed = out->failed || word.failed;
        if (used > 0 && used + 1 + w > width) {
            sfp__text_put(out, "\n");
            used = 0;
        }
        sfp__text_put(out, used ? " " : "");
        sfp__put_escaped(out, sfp__text_or_empty(word.s), NULL);
        used += w + (used > 0);
        s += length;
    }
}

void sfp__table_write_text(const sfp__table *t, sfp__text *out)
{
    OWNED_BY(sfp__text_done) sfp__text scratch = {0};
    OWNED int *width = sfp__calloc((size_t)t->columns + 1, sizeof *width);
    int names = sfp__text_width(sfp__table_row_heading(t));
    out->failed = out->failed || !width;
    if (out->failed)
        return;
    measure(t, width, &scratch);
    for (int i = 0; i < t->rows; i++)
        names = max_int(names, sfp__text_width(sfp__text_or_empty(t->row_name[i])));
    if (t->title) {
        sfp__put_escaped(out, t->title, NULL);
        sfp__text_put(out, "\n\n");
    }
    for (int k = 0, end; k < t->columns; k = end) {
        end = part_end(t, k, names, width);
        put_text_part(t, k, end, names, width, &scratch, out);
        sfp__text_put(out, "\n");
    }
    scratch.length = 0;
    sfp__text_put(&scratch, sfp__text_or_empty(t->caption));
    sfp__table_put_notes(t, PM, " %", "*", &scratch);
    put_wrapped(sfp__text_or_empty(scratch.s), t->width, out);
    end_line(out);
    out->failed = out->failed || scratch.failed;
}
