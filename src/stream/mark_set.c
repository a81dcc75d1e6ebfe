#include "stream/mark_set.h"

#include "base/mem.h"

#include <string.h>

static size_t find(const sfp_mark_set *s, uint64_t mark)
{
    size_t at = (size_t)mark & (s->room - 1);
    while (s->slot[at] && s->slot[at] != mark)
        at = (at + 1) & (s->room - 1);
    return at;
}

static bool grow(sfp_mark_set *s)
{
    size_t room = s->room ? 2 * s->room : 1024, had = s->room;
    uint64_t *old = s->slot, *fresh = sfp__calloc(room, sizeof *fresh);
    if (!fresh)
        return false;
    s->slot = fresh;
    s->room = room;
    for (size_t i = 0; i < had; i++)
        if (old[i])
            s->slot[find(s, old[i])] = old[i];
    sfp__free(old);
    return true;
}

sfp_status sfp__mark_set_add(sfp_mark_set *s, uint64_t mark, bool *fresh, sfp_error *err)
{
    if (s->count >= SFP_MARK_SET_MAX) {
        memset(s->slot, 0, s->room * sizeof *s->slot);
        s->count = 0;
    }
    if (2 * (s->count + 1) > s->room && !grow(s))
        return sfp__fail_nomem(err);
    size_t at = find(s, mark);
    *fresh = s->slot[at] == 0;
    s->slot[at] = mark;
    s->count += *fresh;
    return SFP_OK;
}

void sfp__mark_set_done(sfp_mark_set *s)
{
    sfp__free(s->slot);
    *s = (sfp_mark_set){0};
}
