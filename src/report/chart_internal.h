/* Parts of charts that lines and bars share. */
#ifndef SFP_REPORT_CHART_INTERNAL_H
#define SFP_REPORT_CHART_INTERNAL_H

#include "report/chart.h"
#include "report/drawing.h"

enum {
    SFP__CHART_WIDTH = 720,
    SFP__CHART_CHAR = SFP__CHAR_WIDTH,
    SFP__CHART_LEGEND = 20 /* height of a row of the legend */
};

/* Value i of an array that may be NULL; NAN: none. */
double sfp__chart_value(const double *x, int i);

/* The range of the values, published figures and intervals. A very wide interval does not widen it much, because it would hide
 * the differences between the means. It is never empty; that of fractions is within 0..1, unless a mean is not. false: there is
 * no value. */
typedef struct sfp__chart_range {
    double low, high;
} sfp__chart_range;
bool sfp__chart_find_range(const sfp__chart *c, sfp__chart_range *out);
/* true: point i of a series is drawn. */
bool sfp__chart_has_point(const sfp__chart *c, const sfp__chart_series *s, int i);

/* Writes the legend from `left` on, in rows that end before `right`: the series (if `series`), the interval and the published
 * figure. Returns the number of rows. d NULL: nothing is written. */
int sfp__chart_legend(const sfp__drawing *d, const sfp__chart *c, bool series, int left, int right, int y);
/* Writes "NAME, PLACE: 73.1 % ± 0.9, published 74.0 %" as the tooltip of the current element. */
void sfp__chart_tooltip(const sfp__drawing *d, const sfp__chart *c, const sfp__chart_series *s, int i, const char *place);
/* "73.1 ± 0.9": the value that is printed next to a bar. */
void sfp__chart_put_value(const sfp__drawing *d, const sfp__chart *c, const sfp__chart_series *s, int i);
/* Continues a path that has arrived at an end of an interval: with a cap, or with an arrow if the interval does not end there. (x, y)
 * is the end, (dx, dy) the unit vector that points outwards. */
void sfp__chart_put_end(const sfp__drawing *d, double x, double y, int dx, int dy, bool clipped);
void sfp__chart_diamond(const sfp__drawing *d, double x, double y);

#endif
