/* Charts of results with intervals: lines over a number, and bars per category. They are written as SVG: inline for a page of
 * report/html.h, whose style sheet gives their colours, or as a stand-alone file with a light background. Names come from users'
 * data and are escaped. */
#ifndef SFP_REPORT_CHART_H
#define SFP_REPORT_CHART_H

#include "report/table.h"

enum { SFP__CHART_SERIES = 16 };

typedef struct sfp__chart_series {
    const char *name;    /* NULL: the chart has only one series */
    int count;           /* of a bar chart: the number of categories */
    const double *x;     /* (count) in increasing order; not used by a bar chart */
    const double *y;     /* (count) not finite: no value */
    const double *half;  /* (count) half widths of the intervals; not finite: none. NULL: none */
    const double *paper; /* (count) published figures, shown as diamonds; not finite: none. NULL: none */
} sfp__chart_series;

typedef struct sfp__chart {
    const char *title;           /* heading of the chart; NULL: none */
    const char *x_name, *y_name; /* quantities on the axes, with their units; a bar chart has no x_name */
    bool log_x;                  /* points with x <= 0 are omitted */
    bool fraction;               /* y is 0..1, shown in percent */
    int categories;              /* of a bar chart */
    const char *const *category; /* (categories) */
    int count;                   /* 1..SFP__CHART_SERIES */
    sfp__chart_series series[SFP__CHART_SERIES];
} sfp__chart;

typedef enum sfp__chart_form { SFP__CHART_INLINE, SFP__CHART_FILE } sfp__chart_form;

/* Write a line chart or a bar chart. The name of a line is printed at its end. Bars are horizontal: names of categories may be
 * long. false: there is no value, and nothing is written. */
bool sfp__chart_lines(const sfp__chart *c, sfp__chart_form form, sfp__text *out);
bool sfp__chart_bars(const sfp__chart *c, sfp__chart_form form, sfp__text *out);

/* Writes the columns of a table that are named `column_name` as a bar chart: the rows are the categories, the groups are the
 * series. Columns after the first SFP__CHART_SERIES are omitted. */
bool sfp__chart_table(const sfp__table *t, const char *column_name, sfp__chart_form form, sfp__text *out);

#endif
