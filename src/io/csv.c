#include "io/csv.h"

const char *sfp__csv_quoted(const char *at, const char *end, char *to, size_t *n)
{
    char *begin = to;
    for (; at < end; at++) {
        if (*at == '"' && (++at == end || *at != '"')) {
            *n = (size_t)(to - begin);
            return at;
        }
        *to++ = *at;
    }
    return NULL;
}
