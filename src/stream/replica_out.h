/* Writing a replica's files. The first failure is kept and all later calls do nothing, so that a layout reads as a list of
 * what is in it. */
#ifndef SFP_STREAM_REPLICA_OUT_H
#define SFP_STREAM_REPLICA_OUT_H

#include "io/image.h"
#include "io/text.h"

typedef struct sfp_replica_out {
    const char *root;
    sfp_status status;
    sfp_error *err;
    uint64_t files;
} sfp_replica_out;

/* Writes ROOT/name, with the folders on the way. */
void sfp__out_bytes(sfp_replica_out *o, const char *name, const void *bytes, size_t size);
/* The same of a text, which is emptied. */
void sfp__out_text(sfp_replica_out *o, const char *name, sfp_text *t);
/* A picture as its name says: JPEG or PNG. */
void sfp__out_picture(sfp_replica_out *o, const char *name, const sfp_image *im);
/* A picture in memory, appended to a text. */
void sfp__out_jpeg(sfp_replica_out *o, const sfp_image *im, sfp_text *to);

/* Pickles of protocol 2, as Python 2 wrote them. */
void sfp__out_pickle_int(sfp_text *t, int v);
void sfp__out_pickle_string(sfp_text *t, const char *s);

#endif
