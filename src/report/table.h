/* Tables of results: rows are methods, columns are settings and metrics, values have intervals and may be compared with published
 * figures. One table is written as text for a terminal, Markdown, CSV, LaTeX (package booktabs) or HTML. Names come from users'
 * data, so every format escapes them. */
#ifndef SFP_REPORT_TABLE_H
#define SFP_REPORT_TABLE_H

#include "base/mem.h"
#include "base/text.h"

#include <stdbool.h>

#define SFP__TABLE_WIDTH 100

/* One value of a table: the mean over repetitions, and the figure it is compared with. */
typedef struct sfp__table_cell {
    int n;                  /* repetitions; 0: not run */
    double mean, half;      /* mean and half width of the 95 % Student-t interval; NAN: not defined (n < 2). People see half if
                               n >= SFP__INTERVAL_RUNS */
    double paper, paper_pm; /* published figure and its spread; NAN: none */
    const char *text;       /* shown instead of the number, not owned: "-" (no batch in a task); NULL: the number */
    const char *verdict;    /* not owned: "same", "above", "below", "not comparable", "not run"; NULL: none */
    bool best;              /* printed bold */
} sfp__table_cell;

typedef struct sfp__table {
    char *title;   /* "E3: accuracy at three arrival rates"; NULL: none */
    char *caption; /* sentences below the table: data, backbone, seeds, orders, command; NULL: none */
    char *label;   /* of LaTeX, not escaped: "tab:e3"; NULL: none */
    int rows, columns;
    int width;             /* columns of the terminal for SFP__TABLE_TEXT; initially SFP__TABLE_WIDTH */
    char *row_heading;     /* heading of the row names; NULL: "method" */
    char **row_name;       /* (rows) */
    char **group_name;     /* (columns) heading over neighbouring columns with the same text: "lambda 30140"; NULL: none */
    char **column_name;    /* (columns) "Acc", "Fgt", "Runtime" */
    int *decimals;         /* (columns) initially 2 */
    bool *percent;         /* (columns) values are fractions and shown x 100 */
    bool *unranked;        /* (rows) values of the row are never the best */
    bool *lower_is_better; /* (columns) for sfp__table_mark_best: "Fgt", "Runtime" */
    sfp__table_cell *cell; /* (rows, columns) initially not run, without a published figure */
    void *block;           /* the arrays */
} sfp__table;

/* All texts are NULL at first; set them with sfp__table_set_text. */
sfp_status sfp__table_create(int rows, int columns, sfp__table **out, sfp_error *err);
void sfp__table_free(sfp__table *t);
DEFINE_OWNED_PTR(sfp__table, sfp__table_free)

/* Replaces a text of the table by a copy of `text` (NULL: none). */
sfp_status sfp__table_set_text(char **place, const char *text, sfp_error *err);
sfp__table_cell *sfp__table_at(const sfp__table *t, int row, int column);
/* Sets n, mean and half of a cell from its repetitions; values that are not finite are excluded. Reorders x. */
void sfp__table_set_values(sfp__table *t, int row, int column, int n, double *x);
/* Sets the published figure and the verdict of a cell, which already has its values. */
void sfp__table_set_paper(sfp__table *t, int row, int column, double paper, double paper_pm);
/* Marks the best mean of each column, as it is printed. A column without different values has no best one. */
void sfp__table_mark_best(sfp__table *t);

typedef enum sfp__table_format {
    SFP__TABLE_TEXT,
    SFP__TABLE_MARKDOWN,
    SFP__TABLE_CSV,
    SFP__TABLE_LATEX,
    SFP__TABLE_HTML
} sfp__table_format;

/* Appends the table in a format to `out`.
 *
 * TEXT fits a terminal: a table wider than `width` is split into parts with some of the columns.
 * CSV has one line per row. A column of the table becomes several fields: mean, half and n, and the published figure, its spread
 * and the verdict if a cell of the column has a figure. Values are not multiplied by 100 and not rounded.
 * LATEX is a table environment with \caption; its first line names the packages that it needs.
 * HTML is a section for a page of report/html.h. */
void sfp__table_write(const sfp__table *t, sfp__table_format format, sfp__text *out);

#endif
