#include "base/strings.h"

#include "base/mem.h"

#include <string.h>

sfp_status sfp__strings_resize(sfp_strings *list, int count, sfp_error *err)
{
    if (count <= list->count)
        return SFP_OK;
    if (!sfp__grow(&list->s, sizeof *list->s, (size_t)list->count, (size_t)count, &list->capacity))
        return sfp__fail_nomem(err);
    for (; list->count < count; list->count++)
        list->s[list->count] = NULL;
    return SFP_OK;
}

sfp_status sfp__strings_set(sfp_strings *list, int i, const char *text, sfp_error *err)
{
    char *copy = text ? sfp__strdup(text) : NULL;
    if (text && !copy)
        return sfp__fail_nomem(err);
    sfp__free(list->s[i]);
    list->s[i] = copy;
    return SFP_OK;
}

sfp_status sfp__strings_add(sfp_strings *list, const char *text, sfp_error *err)
{
    OWNED char *copy = text ? sfp__strdup(text) : NULL;
    if (text && !copy)
        return sfp__fail_nomem(err);
    TRY(sfp__strings_resize(list, list->count + 1, err));
    list->s[list->count - 1] = TAKE(copy);
    return SFP_OK;
}

sfp_status sfp__strings_copy(const sfp_strings *from, sfp_strings *to, sfp_error *err)
{
    OWNED_BY(sfp__strings_done) sfp_strings copy = {0};
    for (int i = 0; i < from->count; i++)
        TRY(sfp__strings_add(&copy, from->s[i], err));
    *to = copy;
    copy = (sfp_strings){0};
    return SFP_OK;
}

int sfp__strings_find(const sfp_strings *list, const char *text)
{
    for (int i = 0; i < list->count; i++)
        if (list->s[i] && strcmp(list->s[i], text) == 0)
            return i;
    return -1;
}

void sfp__strings_done(sfp_strings *list)
{
    for (int i = 0; i < list->count; i++)
        sfp__free(list->s[i]);
    sfp__free(list->s);
    *list = (sfp_strings){0};
}
