#include "run/pending.h"

#include <string.h>

sfp_arrival *sfp__pending_put(sfp_pending *p, sfp_arrival *a)
{
    sfp__arrivals_put(&p->list, a);
    return p->list.count > p->most ? sfp__arrivals_take(&p->list) : NULL;
}

/* name NULL: by identity. */
static sfp_arrival *take(sfp_pending *p, const char *name, uint64_t identity)
{
    sfp_arrival *before = NULL, *a = p->list.first;
    while (a && (name ? strcmp(a->name, name) != 0 : a->identity != identity)) {
        before = a;
        a = a->next;
    }
    if (!a || !before)
        return a ? sfp__arrivals_take(&p->list) : NULL;
    before->next = a->next;
    if (!a->next)
        p->list.last = before;
    p->list.count--;
    a->next = NULL;
    return a;
}

sfp_arrival *sfp__pending_named(sfp_pending *p, const char *name)
{
    return take(p, name, 0);
}

sfp_arrival *sfp__pending_identical(sfp_pending *p, uint64_t identity)
{
    return identity ? take(p, NULL, identity) : NULL;
}
