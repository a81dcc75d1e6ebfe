/* The parts of `streamfp data`, one file a verb that needs more than a page. */
#ifndef SFP_CLI_DATA_H
#define SFP_CLI_DATA_H

#include "base/settings.h"
#include "stream/source.h"

/* A data set that a registry has. */
typedef struct sfp_data_set {
    const char *name;
    const char *kind; /* of its source */
    const char *dir;  /* where it is, or is put */
    const char *mark; /* a file in it that says it is there; without .gz */
    const char *from; /* "Debian package dataset-fashion-mnist" */
    const char *package;
} sfp_data_set;

extern const sfp_data_set sfp__data_sets[]; /* ends with a NULL name */
/* Is it there? dir NULL: where it usually is. */
bool sfp__data_set_there(const sfp_data_set *d, const char *dir);

/* Verbs: exit codes. */
int sfp__data_fetch(const sfp_args *args);
int sfp__data_describe(const sfp_args *args);

/* A contact sheet: a row a class, `across` pictures in it evenly spread over the class; rows stand in blocks side by side,
 * with a wider gap after every fifth row to count by. */
#define SFP_SHEET_CLASSES_MAX 1000

typedef struct sfp_sheet {
    int rows;   /* classes shown; the last one stands for unlabelled pictures when there are any */
    int across; /* pictures a class */
    int broken; /* places that stay red */
} sfp_sheet;

/* Where row r begins, in pixels. */
void sfp__sheet_place(const sfp_sheet *sheet, int r, int *x, int *y);
/* "row 3", "block 2 row 3"; both from 1; returns buf. */
const char *sfp__sheet_where(const sfp_sheet *sheet, int r, char *buf, size_t size);
/* count_of (classes + 1): pictures of each class, the last one unlabelled. */
sfp_status sfp__sheet_write(const sfp_source *s, const int64_t *count_of, const char *path, sfp_sheet *out, sfp_error *err);

#endif
