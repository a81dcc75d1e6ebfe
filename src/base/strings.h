/* A list of strings that owns them. */
#ifndef SFP_BASE_STRINGS_H
#define SFP_BASE_STRINGS_H

#include "base/error.h"

typedef struct sfp_strings {
    char **s; /* (count); entries may be NULL where sfp__strings_resize made them */
    int count;
    size_t capacity;
} sfp_strings;

/* A copy of `text` (NULL: an entry without one) at the end. */
sfp_status sfp__strings_add(sfp_strings *list, const char *text, sfp_error *err);
/* Entry i becomes a copy of `text` (NULL: none); i is below count. */
sfp_status sfp__strings_set(sfp_strings *list, int i, const char *text, sfp_error *err);
/* At least `count` entries; new ones are NULL. */
sfp_status sfp__strings_resize(sfp_strings *list, int count, sfp_error *err);
/* `to`, which is empty, becomes a copy. */
sfp_status sfp__strings_copy(const sfp_strings *from, sfp_strings *to, sfp_error *err);
/* The first entry that is `text`; -1: none. */
int sfp__strings_find(const sfp_strings *list, const char *text);
void sfp__strings_done(sfp_strings *list);

#endif
