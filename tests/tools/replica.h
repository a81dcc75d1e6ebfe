/* Miniature replicas of datasets in their published layouts: small rendered images as real files. */
#ifndef TESTS_TOOLS_REPLICA_H
#define TESTS_TOOLS_REPLICA_H

#include <stdint.h>

typedef struct replica_options {
    int each; /* images per class; stream51: frames per video; core50: per object and session; clear: per class and bucket */
    int size; /* side in pixels (always 28 for idx and 32 for cifar) */
    uint64_t seed;
} replica_options;

/* Writes a replica into directory `path`, without overwriting files, and returns the number of files. kind: stream51, core50,
 * clear10, clear100, folder, domain, manifest, idx, cifar, tar. *data (or NULL) is set to the way to open it, "stream51:" or
 * "manifest:/manifest.csv": the kind of source, ':' and the text after the path. */
uint64_t replica_make(const char *kind, const char *path, replica_options opt, const char **data);

#endif
