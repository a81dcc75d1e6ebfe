#include "io/tensor/metadata.h"

#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *copy_text(sfp__file_metadata *m, const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = sfp__arena_take(&m->arena, size, 1);
    return copy ? memcpy(copy, text, size) : NULL;
}

void sfp__metadata_put(sfp__file_metadata *m, const char *key, const char *value)
{
    const sfp__meta entry = {copy_text(m, key), copy_text(m, value)};
    m->failed =
        m->failed || !entry.key || !entry.value || !sfp__grow(&m->list, sizeof *m->list, m->count, m->count + 1, &m->capacity);
    if (!m->failed)
        m->list[m->count++] = entry;
}

void sfp__metadata_put_int(sfp__file_metadata *m, const char *key, long long value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%lld", value);
    sfp__metadata_put(m, key, text);
}

void sfp__metadata_done(sfp__file_metadata *m)
{
    sfp__arena_done(&m->arena);
    sfp__free(m->list);
    *m = (sfp__file_metadata){0};
}

sfp_status sfp__metadata_int(const sfp__tensor_file *st, const char *key, long long min, long long max, long long *out,
                             sfp_error *err)
{
    const char *text = sfp__tensor_file_meta(st, key), *path = st->path;
    char shown[SFP__NAME_MAX], *end = NULL;
    if (!text)
        return sfp__fail(err, SFP_EFORMAT, "%s: metadata '%s' is missing", path, key);
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || *end || errno || v < min || v > max)
        return sfp__fail(err, SFP_EFORMAT, "%s: metadata '%s' is '%s', expected a number from %lld to %lld", path, key,
                         sfp__printable(text, shown, sizeof shown), min, max);
    *out = v;
    return SFP_OK;
}
