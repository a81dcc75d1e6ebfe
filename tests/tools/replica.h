/* Miniature replicas of data sets in their published layouts: small rendered images as real files. */
#ifndef TESTS_TOOLS_REPLICA_H
#define TESTS_TOOLS_REPLICA_H

#include <stdint.h>

typedef struct replica_options {
    int each; /* images: of a class; stream51: frames of a video; core50: of an object in a session; clear: of a class in a
                 bucket */
    int size; /* pixels across (idx 28 and cifar 32 whatever this says) */
    uint64_t seed;
} replica_options;

/* Writes it into the folder `path`, over no file; returns how many were written. kind: stream51, core50, clear10, clear100,
 * folder, domain, manifest, idx, cifar, tar. *data (or NULL): how it is opened, "stream51:", "manifest:/manifest.csv": the kind
 * of source, ':' and what follows the path. */
uint64_t replica_make(const char *kind, const char *path, replica_options opt, const char **data);

#endif
