/* The checksum of a state: of a text that has a line for each entry of the
 * metadata and for each tensor, with its type, shape and the checksum of its
 * bytes. The lines are in order of name, so that another program may write the
 * same state with its parts in another order. */
#include "io/json_write.h"
#include "learner/state.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct part {
    const char *name;
    const char *value;        /* an entry's */
    const sfp_tensor *tensor; /* NULL: an entry of the metadata */
} part;

static int compare_parts(const void *pa, const void *pb)
{
    const part *a = pa, *b = pb;
    if (!a->tensor != !b->tensor)
        return a->tensor ? 1 : -1;
    return strcmp(a->name, b->name);
}

static void put_part(sfp_text *to, const part *p)
{
    char shape[SFP_SHAPE_MAX], sum[SFP_CHECKSUM_MAX];
    sfp__text_json(to, p->name);
    sfp__text_put(to, ":");
    if (p->tensor) {
        sfp__safetensors_sum(NULL, 1, p->tensor, sum);
        sfp__text_printf(to, "%s %s %s", sfp__dtype_name(p->tensor->dtype),
                         sfp__shape_text(p->tensor->shape, p->tensor->ndim, shape, sizeof shape), sum);
    } else {
        sfp__text_json(to, p->value);
    }
    sfp__text_put(to, "\n");
}

/* Sorts them. */
static sfp_status sum_parts(part *list, size_t count, char out[SFP_CHECKSUM_MAX], sfp_error *err)
{
    sfp_text text = {0};
    qsort(list, count, sizeof *list, compare_parts);
    for (size_t i = 0; i < count; i++)
        put_part(&text, &list[i]);
    sfp_status s = text.failed ? sfp__fail_nomem(err) : SFP_OK;
    if (!s)
        sfp__safetensors_sum(text.s, 0, NULL, out);
    sfp__text_done(&text);
    return s;
}

sfp_status sfp__state_sum(const sfp_kept_parts *tensors, const sfp_saved_meta *meta, char out[SFP_CHECKSUM_MAX], sfp_error *err)
{
    size_t count = 0, room = tensors->count + meta->count;
    part *list = sfp__calloc(room + 1, sizeof *list);
    if (!list)
        return sfp__fail_nomem(err);
    for (size_t i = 0; i < meta->count; i++)
        list[count++] = (part){meta->list[i].key, meta->list[i].value, NULL};
    for (size_t i = 0; i < tensors->count; i++)
        list[count++] = (part){tensors->list[i].name, NULL, &tensors->list[i]};
    sfp_status s = sum_parts(list, count, out, err);
    sfp__free(list);
    return s;
}

sfp_status sfp__state_check_sum(const sfp_tensor_file *st, sfp_error *err)
{
    const char *format = sfp__tensor_file_meta(st, "format"), *version = sfp__tensor_file_meta(st, "version");
    char now[16];
    (void)snprintf(now, sizeof now, "%d", SFP_STATE_VERSION);
    bool ours = format && strcmp(format, SFP_STATE_FORMAT) == 0 && version && strcmp(version, now) == 0;
    if (!ours || !sfp__tensor_file_meta(st, SFP_CHECKSUM_KEY)) /* another version may sum in another way */
        return SFP_OK;
    char sum[SFP_CHECKSUM_MAX];
    size_t count = 0, room = st->count + st->meta_count;
    part *list = sfp__calloc(room, sizeof *list);
    if (!list)
        return sfp__fail_nomem(err);
    for (size_t i = 0; i < st->meta_count; i++) {
        part *p = &list[count];
        p->name = st->meta[i].key;
        p->value = st->meta[i].value;
        count += strcmp(p->name, SFP_CHECKSUM_KEY) != 0;
    }
    for (size_t i = 0; i < st->count; i++) {
        const sfp_tensor *t = &st->tensors[i];
        list[count++] = (part){t->name, NULL, t};
    }
    sfp_status s = sum_parts(list, count, sum, err);
    sfp__free(list);
    return s ? s : sfp__safetensors_expect_sum(st, sum, err);
}
