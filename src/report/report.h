/* Writes DIR/report.html: one self-contained page with plots, which has no scripts and loads nothing. */
#ifndef SFP_REPORT_REPORT_H
#define SFP_REPORT_REPORT_H

#include "io/image/image.h"
#include "results/result.h"

typedef struct sfp__thumb {
    int width, height;
    const uint8_t *rgb; /* NULL: no pixels */
    const char *label;  /* class name */
    uint64_t age;       /* timestamps since it was stored; 0 for batch images */
    bool in_coreset;    /* of a batch image: whether it was trained on */
} sfp__thumb;

typedef struct sfp__report_images {
    bool selects; /* the run has a selector; the report then has a section on the coreset even if batch_count is 0 */
    int batch_count;
    const sfp__thumb *batch;       /* (batch_count) some images of the last timestamp */
    int coreset_count, rest_count; /* all images of the last timestamp: trained on, not trained on */
    int buffer_count;
    const sfp__thumb *buffer; /* (buffer_count) */
} sfp__report_images;

/* The page has the accuracy matrix as a heat map, the confusion matrix, and the time per activity. It has curves of prequential
 * accuracy, rate, lag and loss, and thumbnails as data: PNGs. */
sfp_status sfp__report_write(const sfp_result *r, const sfp__report_images *images, const char *path, sfp_error *err);

#endif
