/* Inputs that are several files: a line "@@ NAME" begins a file, and its contents follow up to the next such line. Bytes before the
 * first of these lines belong to the file "". */
#ifndef SFP_TESTS_FUZZ_FILES_H
#define SFP_TESTS_FUZZ_FILES_H

#include "fuzz.h"

#include <string.h>

typedef struct file_part {
    const char *name;
    size_t name_length;
    const char *bytes;
    size_t size;
} file_part;

/* Returns the next "@@ " that begins a line; `end` if there is none. */
static inline const char *find_part(const char *at, const char *begin, const char *end)
{
    for (; at + 3 <= end; at++)
        if (memcmp(at, "@@ ", 3) == 0 && (at == begin || at[-1] == '\n'))
            return at;
    return end;
}

/* Reads the part at *at and moves *at to the next one; false: there is none. The newline before the next part is not part of it. */
static inline bool next_part(const char **at, const char *begin, const char *end, file_part *out)
{
    const char *s = *at;
    if (s >= end)
        return false;
    *out = (file_part){.name = s, .bytes = s};
    if (find_part(s, begin, end) == s) {
        const char *stop = memchr(s, '\n', (size_t)(end - s));
        out->name = s + 3;
        out->name_length = (size_t)((stop ? stop : end) - out->name);
        out->bytes = stop ? stop + 1 : end;
    }
    *at = find_part(out->bytes, begin, end);
    out->size = (size_t)(*at - out->bytes);
    if (*at < end && out->size > 0)
        out->size--;
    return true;
}

#endif
