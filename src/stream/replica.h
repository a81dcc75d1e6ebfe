/* Miniature replicas of data sets in their published layouts: small rendered
 * pictures as real files, for tests and for trying a command before a download
 * of gigabytes. Every kind opens with the source of its `data`. */
#ifndef SFP_STREAM_REPLICA_H
#define SFP_STREAM_REPLICA_H

#include "base/error.h"

#include <stdint.h>

typedef struct sfp_replica_options {
    int each; /* pictures: of a class; stream51: frames of a video; core50: of an object in a session; clear: of a class in a
                 bucket */
    int size; /* pixels across (idx 28 and cifar 32 whatever this says) */
    uint64_t seed;
} sfp_replica_options;

sfp_replica_options sfp__replica_options_defaults(void); /* 2, 48, 1 */

typedef struct sfp_replica_kind {
    const char *name;    /* "stream51" */
    const char *data;    /* how it is opened: "stream51:", "manifest:/manifest.csv": KIND, ':' and what follows the path */
    const char *summary; /* one line */
} sfp_replica_kind;

/* stream51, core50, clear10, clear100, folder, domain, manifest, idx, cifar, tar; NULL past the last. */
const sfp_replica_kind *sfp__replica_kind(int i);

/* Writes it into the folder `path`, which must be empty or not there yet. *files: how many were written; may be NULL. */
sfp_status sfp__replica_make(const char *kind, const char *path, const sfp_replica_options *opt, uint64_t *files, sfp_error *err);

#endif
