/* Building blocks of an HTML page: its head, escaped text, numbers formatted for people, plots of curves. All functions append to
 * one sfp__text. If memory runs out, sfp__page_write reports it. */
#ifndef SFP_REPORT_HTML_H
#define SFP_REPORT_HTML_H

#include "base/text.h"

#include <stdbool.h>

/* Writes the page up to and including <main>. Its content security policy forbids scripts and external resources. So a class
 * named <script> is harmless even if escaping failed. The title is `title` followed by at most 80 characters of `subject`
 * (NULL: none). */
void sfp__page_begin(sfp__text *t, const char *title, const char *subject);
/* Ends the page and writes it to a file. */
sfp_status sfp__page_write(sfp__text *t, const char *path, sfp_error *err);

/* Writes element text or a quoted attribute. Escapes & < > " '. Replaces bytes that are not UTF-8, control characters and
 * characters that change the writing direction by U+FFFD. */
void sfp__put_html(sfp__text *t, const char *s);
/* Like sfp__put_html, with at most max_chars characters; the last is "…" if the text is longer. */
void sfp__put_html_cut(sfp__text *t, const char *s, int max_chars);

/* Number formats. All functions return buf; NAN and infinity become a dash. */
#define SFP__SHORT 40
const char *sfp__format_percent(double x, char buf[SFP__SHORT]); /* 85.3 % */
const char *sfp__format_count(double x, char buf[SFP__SHORT]);   /* 12,345 */
const char *sfp__format_compact(double x, char buf[SFP__SHORT]); /* 12k, 0.25: for ticks and the last values of curves */
const char *sfp__format_seconds(double x, char buf[SFP__SHORT]); /* 2 min 31 s */
const char *sfp__format_bytes(double x, char buf[SFP__SHORT]);   /* 1.4 GiB */

enum { SFP__PLOT_SERIES = 2 };

typedef struct sfp__series {
    int count;
    const double *x, *y; /* (count) x >= 0 and not decreasing; points that are not finite are skipped */
    const char *color;   /* a CSS variable: "--blue" */
    const char *name;    /* printed before the last value; NULL: the plot has only one series */
} sfp__series;

typedef struct sfp__plot {
    const char *id;     /* unique in the page */
    const char *title;  /* the quantity on the y axis, with its unit */
    const char *across; /* the quantity on the x axis */
    bool fraction;      /* y is 0..1, shown as 0..100 % */
    bool single;        /* a curve of one point is drawn; otherwise a curve needs two points */
    int buckets;        /* maximum number of points; if there are more, they are averaged, and a band shows their range */
    const char *unit;   /* printed after the last value: " s" */
    double line;        /* y of a horizontal reference line; NAN: none */
    const char *line_label;
    int count;
    sfp__series series[SFP__PLOT_SERIES];
} sfp__plot;

/* Writes a heading and the plot as inline SVG. false: there are too few points, and nothing is written. */
bool sfp__plot_write(sfp__text *t, const sfp__plot *p);

#endif
