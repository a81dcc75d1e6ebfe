/* What the readers of published data sets share: the order of classes, their cut into tasks. */
#ifndef SFP_STREAM_PUBLISHED_H
#define SFP_STREAM_PUBLISHED_H

#include "io/json_read.h"
#include "stream/source_internal.h"

#define SFP_JSON_BYTES_MAX ((size_t)1 << 30) /* of a list in JSON */

/* class_at (classes, sfp__malloc'ed): the class at each place of the order. order 0: natural, else shuffled by that seed. */
sfp_status sfp__class_order(int classes, int order, int64_t **class_at, sfp_error *err);

/* The task of the class at a place of the order, when the first task has `first` classes and every other `each`. */
static inline int32_t sfp__task_of_place(int64_t place, int first, int each)
{
    return place < first ? 0 : (int32_t)(1 + (place - first) / each);
}

#endif
