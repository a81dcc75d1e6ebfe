/* What a page of HTML is made of, whatever it reports: its head, text made safe, numbers as people read them, plots of curves.
 * Everything appends to one text; a failure to grow it shows at the end. */
#ifndef SFP_REPORT_HTML_H
#define SFP_REPORT_HTML_H

#include "base/text.h"

#include <stdbool.h>

/* Up to and with <main>. The page is one file without scripts, and its head forbids them and anything from elsewhere: a class
 * called <script> is only a strange name even if the escaping failed. */
void sfp__page_begin(sfp__text *t, const char *title,
                     const char *what /* of which at most 80 characters are shown; NULL: nothing */);
/* Ends the page and writes it. */
sfp_status sfp__page_write(sfp__text *t, const char *path, sfp_error *err);

/* For element text and quoted attributes: & < > " ' escaped; bytes that are no UTF-8, control bytes and marks that turn the
 * writing direction become U+FFFD. */
void sfp__put_html(sfp__text *t, const char *s);
/* ... at most `most` characters, the last a "…" when there are more. */
void sfp__put_html_cut(sfp__text *t, const char *s, int most);

/* Numbers: all return buf, and a dash for NAN. */
#define SFP_SHORT 40
const char *sfp__format_percent(double x, char buf[SFP_SHORT]); /* 85.3 % */
const char *sfp__format_count(double x, char buf[SFP_SHORT]);   /* 12,345 */
const char *sfp__format_compact(double x, char buf[SFP_SHORT]); /* 12k, 0.25: for ticks and ends of curves */
const char *sfp__format_seconds(double x, char buf[SFP_SHORT]); /* 2 min 31 s */
const char *sfp__format_bytes(double x, char buf[SFP_SHORT]);   /* 1.4 GiB */

enum { SFP_PLOT_SERIES = 2 };

typedef struct sfp__series {
    int count;
    const double *x, *y; /* (count) x from 0 on, not falling; points that are not finite are left out */
    const char *color;   /* a CSS variable: "--blue" */
    const char *name;    /* before its last value; NULL: the plot has but one */
} sfp__series;

typedef struct sfp__plot {
    const char *id;     /* unique in the page */
    const char *title;  /* what is drawn up the axis, with its unit */
    const char *across; /* what is along the other */
    bool fraction;      /* 0..1, shown as 0..100 % */
    bool single;        /* one point is drawn too; else two are needed */
    int buckets;        /* at most so many points; more are averaged, with their range as a band */
    const char *unit;   /* behind the last value: " s" */
    double line;        /* a level to compare with; NAN: none */
    const char *line_label;
    int count;
    sfp__series series[SFP_PLOT_SERIES];
} sfp__plot;

/* false, and nothing drawn: too few points. */
bool sfp__plot_write(sfp__text *t, const sfp__plot *p);

#endif
