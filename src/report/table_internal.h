/* Functions that the files of the table formats share. */
#ifndef SFP_REPORT_TABLE_INTERNAL_H
#define SFP_REPORT_TABLE_INTERNAL_H

#include "report/table.h"

/* Returns the text that stands for the ASCII character at s; NULL: the character itself. */
typedef const char *sfp__escape_fn(const char *s);
/* Writes untrusted text. Control characters and bytes that are not UTF-8 become '?', as everywhere on the terminal. `escape` may
 * be NULL. */
void sfp__put_escaped(sfp__text *out, const char *s, sfp__escape_fn *escape);

/* The symbols in which the formats for people differ. */
typedef struct sfp__cell_style {
    const char *missing;           /* a cell without a value */
    const char *before, *after;    /* around a mean that is the best */
    const char *pm, *end;          /* before and after the half width or the spread */
    const char *paper, *paper_end; /* before and after the published figure */
    const char *with_paper;        /* at the beginning of a cell with a published figure; NULL: nothing */
    sfp__escape_fn *escape;        /* of the cell's text; NULL: as for a terminal */
    bool html;                     /* texts are escaped by sfp__put_html */
} sfp__cell_style;

void sfp__table_put_cell(const sfp__table *t, int row, int column, const sfp__cell_style *style, sfp__text *out);
/* Writes the sentences below a table that explain its signs. `pm` is the sign +-, `percent` follows "95", `star` marks the best
 * values (NULL: they are bold). */
void sfp__table_put_notes(const sfp__table *t, const char *pm, const char *percent, const char *star, sfp__text *out);

const char *sfp__table_row_heading(const sfp__table *t);
bool sfp__table_has_groups(const sfp__table *t);
bool sfp__table_same_group(const sfp__table *t, int a, int b);
/* Returns the end of the group that begins at column `begin`, at most `end`. */
int sfp__table_group_end(const sfp__table *t, int begin, int end);

static inline const char *sfp__text_or_empty(const char *s)
{
    return s ? s : "";
}

void sfp__table_write_text(const sfp__table *t, sfp__text *out);

#endif
