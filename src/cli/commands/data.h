/* The parts of `streamfp data`, one file a verb that needs more than a page. */
#ifndef SFP_CLI_DATA_H
#define SFP_CLI_DATA_H

#include "cli/command.h"
#include "stream/source.h"

/* A data set that a registry has. */
typedef struct sfp__data_set {
    const char *name;
    const char *kind; /* of its source */
    const char *dir;  /* where it is, or is put */
    const char *mark; /* a file in it that says it is there; without .gz */
    const char *from; /* "Debian package dataset-fashion-mnist" */
    const char *package;
} sfp__data_set;

extern const sfp__data_set sfp__data_sets[]; /* ends with a NULL name */
/* Is it there? dir NULL: where it usually is. */
bool sfp__data_set_there(const sfp__data_set *d, const char *dir);

sfp__command_fn sfp__data_fetch, sfp__data_describe;

#endif
