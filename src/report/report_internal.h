/* What the files of the report share. All of them append HTML to one text; a failure to grow it shows at the end. */
#ifndef SFP_REPORT_REPORT_INTERNAL_H
#define SFP_REPORT_REPORT_INTERNAL_H

#include "report/report.h"
#include "results/text_out.h"

/* report_say.c: numbers as people read them; all return buf, and a dash for NAN. */
#define SFP_SHORT 40
const char *sfp__say_percent(double x, char buf[SFP_SHORT]); /* 85.3 % */
const char *sfp__say_count(double x, char buf[SFP_SHORT]);   /* 12,345 */
const char *sfp__say_compact(double x, char buf[SFP_SHORT]); /* 12k, 0.25: for ticks and ends of curves */
const char *sfp__say_seconds(double x, char buf[SFP_SHORT]); /* 2 min 31 s */
const char *sfp__say_bytes(double x, char buf[SFP_SHORT]);   /* 1.4 GiB */

/* The name of class c or task i; one without is called by its number. */
const char *sfp__class_name(const sfp_result *r, int c, char buf[SFP_SHORT]);
const char *sfp__task_name(const sfp_result *r, int i, char buf[SFP_SHORT]);

typedef struct sfp_plot {
    const char *id;    /* unique in the page */
    const char *title; /* what is drawn up the axis, with its unit */
    const char *color; /* a CSS variable: "--blue" */
    bool fraction;     /* 0..1, shown as 0..100 % */
    int buckets;       /* at most so many points; more are averaged, with their range as a band */
    const char *unit;  /* behind the last value: " s" */
    double line;       /* a level to compare with; NAN: none */
    const char *line_label;
} sfp_plot;

/* false, and nothing drawn: fewer than two points. */
bool sfp__plot_curve(sfp_text *t, const sfp_curve *c, const sfp_plot *p);
void sfp__plot_matrix(sfp_text *t, const sfp_result *r);
void sfp__plot_time(sfp_text *t, const sfp_result *r);

/* report_classes.c; false: nothing was tested */
bool sfp__plot_confusion(sfp_text *t, const sfp_result *r);
bool sfp__plot_classes(sfp_text *t, const sfp_result *r, sfp_error *err, sfp_status *status);

/* Thumbnails: one sprite a sheet, as a data: PNG in a style rule. */
sfp_status sfp__sheet_batch(sfp_text *t, const sfp_report_pictures *p, sfp_error *err);
sfp_status sfp__sheet_buffer(sfp_text *t, int count, const sfp_thumb *thumbs, sfp_error *err);

#endif
