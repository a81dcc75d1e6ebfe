/* Functions that the files of a run's report share. */
#ifndef SFP_REPORT_REPORT_INTERNAL_H
#define SFP_REPORT_REPORT_INTERNAL_H

#include "report/html.h"
#include "report/report.h"

/* The name of class c or task i; if it has none, "class C" or "task I + 1", written to buf. A task of classes has their names, as many
 * as fit `width` characters. */
const char *sfp__class_name(const sfp_result *r, int c, char buf[SFP__SHORT]);
const char *sfp__task_name(const sfp_result *r, int i, int width, char buf[SFP__TITLE_SIZE]);

void sfp__plot_matrix(sfp__text *t, const sfp_result *r);
void sfp__plot_time(sfp__text *t, const sfp_result *r);

/* false: there are no test results, and nothing is written */
bool sfp__plot_confusion(sfp__text *t, const sfp_result *r);
bool sfp__plot_classes(sfp__text *t, const sfp_result *r);
bool sfp__plot_calibration(sfp__text *t, const sfp_result *r);

/* Contact sheets of thumbnails. Each sheet is one image, a data: PNG in a style rule. */
sfp_status sfp__sheet_batch(sfp__text *t, const sfp__report_images *p, sfp_error *err);
sfp_status sfp__sheet_buffer(sfp__text *t, int count, const sfp__thumb *thumbs, sfp_error *err);

#endif
