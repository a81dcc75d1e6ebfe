/* A source seen through a list of classes: pictures of these alone, with their
 * numbers in the list. What a state learned and what a data set holds are
 * joined by the names of classes, whatever order either has them in. */
#ifndef SFP_STREAM_KNOWN_H
#define SFP_STREAM_KNOWN_H

#include "stream/source.h"

typedef struct sfp_known_source {
    sfp_source base; /* classes and class_names are the list's */
    sfp_source *inner;
    int64_t *index;       /* (base.count) into inner */
    int32_t *label_of;    /* (inner->classes) into the list; -1: not there */
    uint64_t *foreign;    /* (inner->classes) pictures of a class that the list lacks; 0 for the others */
    uint64_t unlabelled;  /* pictures without a label: left out */
} sfp_known_source;

/* names (classes); one that is NULL is its number. inner is an indexed source; on success it is closed with the new one. */
sfp_status sfp__known_open(sfp_source *inner, int classes, const char *const *names, sfp_known_source **out, sfp_error *err);

#endif
