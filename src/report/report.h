/* DIR/report.html: self-contained, with plots; no script from elsewhere, readable without any. */
#ifndef SFP_REPORT_REPORT_H
#define SFP_REPORT_REPORT_H

#include "io/image/image.h"
#include "results/result.h"

typedef struct sfp__thumb {
    int width, height;
    const uint8_t *rgb;     /* NULL: encoded, or not there */
    const uint8_t *encoded; /* (encoded_size) a file's bytes, brought to a square as `resize` says */
    size_t encoded_size;
    sfp__resize resize;
    const char *label; /* class name */
    uint64_t age;      /* timestamps since stored; 0 for batch images */
    bool chosen;       /* coreset: taken or left */
} sfp__thumb;

typedef struct sfp__report_images {
    bool selects; /* there is a coreset to show, even when no batch is left to show it by */
    int batch_count;
    const sfp__thumb *batch; /* of the last timestamp: some of what the coreset took and left */
    int took, left;          /* all of it */
    int buffer_count;
    const sfp__thumb *buffer; /* by class and age */
} sfp__report_images;

/* Accuracy-matrix heat map, prequential curve, rate and lag, loss, time split, confusion matrix, thumbnails as data: PNGs. */
sfp_status sfp__report_write(const sfp_result *r, const sfp__report_images *images, const char *path, sfp_error *err);

#endif
