#include "stream/published.h"

#include "base/mem.h"

#define CLASS_STREAM (UINT64_C(0x636c6173) << 32) /* shuffles of different purpose draw from different sequences of a seed */

sfp_status sfp__class_order(int classes, int order, int64_t **class_at, sfp_error *err)
{
    int64_t *list = sfp__malloc(((size_t)classes + 1) * sizeof *list);
    if (!list)
        return sfp__fail_nomem(err);
    for (int i = 0; i < classes; i++)
        list[i] = i;
    if (order != 0)
        sfp__shuffle(list, classes, (uint64_t)(int64_t)order, CLASS_STREAM);
    *class_at = list;
    return SFP_OK;
}
