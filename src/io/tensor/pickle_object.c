/* The opcodes of a pickle that name and make objects.
 *
 * Nothing is ever called. A class or function becomes a node with its name, if
 * the reader's allow-list has that name; "calling" it becomes a node with the
 * name, the arguments and, later, the state, for the reader to make sense of.
 * Without a list all of it is refused. */
#include "io/tensor/pickle_machine.h"

#include "base/text.h"

#include <string.h>

#define GLOBAL_MAX 200 /* bytes of a name that could be on a list */

/* Classes whose instances are filled by SETITEMS: as good as a dict. */
static const char *const dicts[] = {"collections.OrderedDict", "collections.defaultdict"};

sfp_status sfp__pickle_refuse(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    (void)op;
    (void)a;
    return FAIL(m, SFP_EUNSUPPORTED, "is not allowed: the pickle makes or calls Python objects, expected plain data only");
}

/* An entry that ends in '*' stands for all names that begin so. */
static bool allowed(const sfp__pickle_machine *m, const char *name)
{
    for (const char *const *g = m->limits.globals; *g; g++) {
        size_t n = strlen(*g);
        if (n && (*g)[n - 1] == '*' ? strncmp(name, *g, n - 1) == 0 : strcmp(name, *g) == 0)
            return true;
    }
    return false;
}

static sfp_status push_global(sfp__pickle_machine *m, const void *module, size_t module_size, const void *name, size_t name_size)
{
    char full[GLOBAL_MAX + 1], shown[SFP_NAME_MAX];
    size_t room = sizeof full - 1, n = module_size < room ? module_size : room;
    memcpy(full, module, n);
    if (n < room)
        full[n++] = '.';
    size_t more = name_size < room - n ? name_size : room - n;
    memcpy(full + n, name, more);
    n += more;
    full[n] = '\0';
    if (module_size + 1 + name_size > room || strlen(full) != n || !allowed(m, full))
        return FAIL(m, SFP_EUNSUPPORTED,
                    "'%s' is not allowed: it is not among the names that weights need, and nothing of a pickle is run",
                    sfp__printable(full, shown, sizeof shown));
    sfp_pickle_value v = 0;
    char *text = sfp__pickle_new_text(m->p, n);
    if (!text)
        return sfp__fail_nomem(m->err);
    sfp_status status = sfp__pickle_new_node(m->p, SFP_PICKLE_GLOBAL, &v, m->err);
    if (status != SFP_OK)
        return status;
    memcpy(text, full, n);
    sfp__pickle_node_of(m->p, v)->text = text;
    sfp__pickle_node_of(m->p, v)->count = n;
    return sfp__pickle_push(m, v);
}

/* variant: 1 when module and name lie on the stack */
sfp_status sfp__pickle_do_global(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    if (!m->limits.globals)
        return sfp__pickle_refuse(m, op, a);
    if (op->variant == 0)
        return push_global(m, a->data, a->size, a->second, a->second_size);
    sfp_status status = sfp__pickle_need(m, 2);
    if (status != SFP_OK)
        return status;
    size_t module_size = 0, name_size = 0;
    const char *module = sfp__pickle_text(m->p, m->stack[m->depth - 2], &module_size);
    const char *name = sfp__pickle_text(m->p, m->stack[m->depth - 1], &name_size);
    if (!module || !name)
        return FAIL(m, SFP_EFORMAT, "needs the texts of a module and a name");
    m->depth -= 2;
    return push_global(m, module, module_size, name, name_size);
}

/* A new node of `n` values from the top of the stack, in their place. */
static sfp_status wrap(sfp__pickle_machine *m, sfp_pickle_type type, size_t n)
{
    sfp_pickle_value v = 0;
    sfp_status status = sfp__pickle_new_node(m->p, type, &v, m->err);
    if (status == SFP_OK)
        status = sfp__pickle_put_items(m, v, m->depth - n, n);
    if (status != SFP_OK)
        return status;
    m->depth -= n;
    return sfp__pickle_push(m, v);
}

static bool is_dict(const char *name)
{
    for (size_t i = 0; i < sizeof dicts / sizeof *dicts; i++)
        if (strcmp(name, dicts[i]) == 0)
            return true;
    return false;
}

/* REDUCE and NEWOBJ: a name and its arguments. */
sfp_status sfp__pickle_do_object(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    if (!m->limits.globals)
        return sfp__pickle_refuse(m, op, a);
    sfp_status status = sfp__pickle_need(m, 2);
    if (status != SFP_OK)
        return status;
    sfp_pickle_value callee = m->stack[m->depth - 2], args = m->stack[m->depth - 1];
    const char *name = sfp__pickle_global(m->p, callee);
    if (!name)
        return FAIL(m, SFP_EUNSUPPORTED, "calls %s, expected a class or function",
                    sfp__pickle_type_name(sfp__pickle_type(m->p, callee)));
    if (sfp__pickle_type(m->p, args) != SFP_PICKLE_TUPLE)
        return FAIL(m, SFP_EFORMAT, "has %s as arguments of '%s', expected a tuple",
                    sfp__pickle_type_name(sfp__pickle_type(m->p, args)), name);
    if (!is_dict(name))
        return wrap(m, SFP_PICKLE_OBJECT, 2);
    for (size_t i = 0; i < sfp__pickle_count(m->p, args);
         i++) /* a defaultdict's function tells nothing, Python 2's pairs would */
        if (sfp__pickle_type(m->p, sfp__pickle_item(m->p, args, i)) >= SFP_PICKLE_LIST)
            return FAIL(m, SFP_EUNSUPPORTED, "makes '%s' from %s, expected one that is filled afterwards", name,
                        sfp__pickle_type_name(sfp__pickle_type(m->p, sfp__pickle_item(m->p, args, i))));
    m->depth -= 2;
    return wrap(m, SFP_PICKLE_DICT, 0);
}

/* The state of the object below it. A dict's own attributes (torch's _metadata) are dropped. */
sfp_status sfp__pickle_do_build(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    if (!m->limits.globals)
        return sfp__pickle_refuse(m, op, a);
    sfp_status status = sfp__pickle_need(m, 2);
    if (status != SFP_OK)
        return status;
    sfp_pickle_value object = m->stack[m->depth - 2];
    sfp_pickle_type type = sfp__pickle_type(m->p, object);
    if (type != SFP_PICKLE_DICT && type != SFP_PICKLE_OBJECT)
        return FAIL(m, SFP_EFORMAT, "gives a state to %s, expected an object", sfp__pickle_type_name(type));
    if (type == SFP_PICKLE_OBJECT && sfp__pickle_count(m->p, object) == 2)
        status = sfp__pickle_put_items(m, object, m->depth - 1, 1);
    if (status == SFP_OK)
        m->depth--;
    return status;
}

/* What the file keeps outside of the pickle, by an identification of its own. */
sfp_status sfp__pickle_do_persistent(sfp__pickle_machine *m, const sfp__pickle_opcode *op, const sfp__pickle_argument *a)
{
    if (!m->limits.globals)
        return sfp__pickle_refuse(m, op, a);
    sfp_status status = sfp__pickle_need(m, 1);
    return status == SFP_OK ? wrap(m, SFP_PICKLE_PERSISTENT, 1) : status;
}
