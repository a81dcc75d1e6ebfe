/* The values of a pickle: storage and access. An integer is stored in the value itself, so that a list of a million integers
 * needs eight million bytes. */
#include "io/tensor/pickle.h"

#include "io/file.h"

#include <string.h>

#define CHUNK ((size_t)64 << 10)

sfp_status sfp__pickle_new_node(sfp__pickle *p, sfp__pickle_type type, sfp__pickle_value *out, sfp_error *err)
{
    TRY(sfp__check_memory(sfp__grow(&p->nodes, sizeof *p->nodes, p->count, p->count + 1, &p->capacity), err));
    p->nodes[p->count] = (sfp__pickle_node){.type = (uint8_t)type};
    *out = 2 * (uint64_t)p->count++;
    return SFP_OK;
}

char *sfp__pickle_new_text(sfp__pickle *p, size_t n)
{
    sfp__pickle_chunk *c = p->chunks;
    size_t wanted, bytes;
    if (!sfp__add_size(n, 1, &wanted))
        return NULL;
    if (!c || c->size - c->used < wanted) {
        size_t size = wanted > CHUNK ? wanted : CHUNK;
        if (!sfp__add_size(sizeof *c, size, &bytes) || !(c = sfp__malloc(bytes)))
            return NULL;
        *c = (sfp__pickle_chunk){.next = p->chunks, .size = size};
        p->chunks = c;
    }
    char *s = c->bytes + c->used;
    c->used += wanted;
    s[n] = '\0';
    return s;
}

sfp__pickle_limits sfp__pickle_limits_defaults(void)
{
    return (sfp__pickle_limits){.bytes = (size_t)512 << 20, .items = 100000000, .memo = 16000000, .depth = 64};
}

sfp_status sfp__pickle_create(sfp__pickle **out, sfp_error *err)
{
    static const uint8_t constants[] = {SFP__PICKLE_NONE, SFP__PICKLE_BOOL, SFP__PICKLE_BOOL};
    OWNED_PTR(sfp__pickle_free) sfp__pickle *p = NULL;
    sfp__pickle_value v = 0;
    TRY(sfp__alloc(&p, 1, sizeof *p, err));
    for (size_t i = 0; i < sizeof constants; i++) {
        TRY(sfp__pickle_new_node(p, (sfp__pickle_type)constants[i], &v, err));
        p->nodes[i].integer = i == SFP__PICKLE_NODE_TRUE;
    }
    *out = TAKE(p);
    return SFP_OK;
}

void sfp__pickle_free(sfp__pickle *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->count; i++)
        if (p->nodes[i].type >= SFP__PICKLE_LIST)
            sfp__free(p->nodes[i].item);
    sfp__free(p->nodes);
    for (sfp__pickle_chunk *c = p->chunks, *next; c; c = next) {
        next = c->next;
        sfp__free(c);
    }
    sfp__free(p);
}

sfp_status sfp__pickle_read(const char *path, const sfp__pickle_limits *limits, sfp__pickle **out, sfp_error *err)
{
    OWNED uint8_t *bytes = NULL;
    size_t size = 0;
    TRY(sfp__file_read(path, limits ? limits->bytes : sfp__pickle_limits_defaults().bytes, &bytes, &size, err));
    return sfp__pickle_parse(path, bytes, size, limits, out, err);
}

bool sfp__pickle_next(const sfp__pickle *p, sfp__pickle_type type, sfp__pickle_value *at)
{
    for (size_t i = *at / 2 + 1; i < p->count; i++) /* node 0 is None */
        if (p->nodes[i].type == type) {
            *at = 2 * (uint64_t)i;
            return true;
        }
    return false;
}

sfp__pickle_type sfp__pickle_type_of(const sfp__pickle *p, sfp__pickle_value v)
{
    return sfp__pickle_is_small(v) ? SFP__PICKLE_INT : (sfp__pickle_type)sfp__pickle_node_of(p, v)->type;
}

const char *sfp__pickle_type_name(sfp__pickle_type type)
{
    static const char *const names[] = {"None",     "a boolean", "an integer",          "a float",
                                        "a string", "bytes",     "a class or function", "a list",
                                        "a tuple",  "a dict",    "an object",           "a persistent value"};
    return names[type];
}

int64_t sfp__pickle_int(const sfp__pickle *p, sfp__pickle_value v)
{
    if (sfp__pickle_is_small(v))
        return (int64_t)v >> 1;
    sfp__pickle_type type = sfp__pickle_type_of(p, v);
    return type == SFP__PICKLE_INT || type == SFP__PICKLE_BOOL ? sfp__pickle_node_of(p, v)->integer : 0;
}

const char *sfp__pickle_text(const sfp__pickle *p, sfp__pickle_value v, size_t *length)
{
    sfp__pickle_type type = sfp__pickle_type_of(p, v);
    if (type != SFP__PICKLE_TEXT && type != SFP__PICKLE_BYTES)
        return NULL;
    if (length)
        *length = sfp__pickle_node_of(p, v)->count;
    return sfp__pickle_node_of(p, v)->text;
}

const char *sfp__pickle_global(const sfp__pickle *p, sfp__pickle_value v)
{
    return sfp__pickle_type_of(p, v) == SFP__PICKLE_GLOBAL ? sfp__pickle_node_of(p, v)->text : NULL;
}

size_t sfp__pickle_count(const sfp__pickle *p, sfp__pickle_value v)
{
    switch (sfp__pickle_type_of(p, v)) {
    case SFP__PICKLE_LIST:
    case SFP__PICKLE_TUPLE:
    case SFP__PICKLE_OBJECT:
    case SFP__PICKLE_PERSISTENT:
        return sfp__pickle_node_of(p, v)->count;
    case SFP__PICKLE_DICT:
        return sfp__pickle_node_of(p, v)->count / 2;
    default:
        return 0;
    }
}

sfp__pickle_value sfp__pickle_item(const sfp__pickle *p, sfp__pickle_value v, size_t i)
{
    const sfp__pickle_node *n = sfp__pickle_node_of(p, v);
    return n->type == SFP__PICKLE_DICT ? n->item[2 * i + 1] : n->item[i];
}

sfp__pickle_value sfp__pickle_key(const sfp__pickle *p, sfp__pickle_value dict, size_t i)
{
    return sfp__pickle_node_of(p, dict)->item[2 * i];
}

bool sfp__pickle_get(const sfp__pickle *p, sfp__pickle_value dict, const char *key, sfp__pickle_value *out)
{
    if (sfp__pickle_type_of(p, dict) != SFP__PICKLE_DICT)
        return false;
    for (size_t i = sfp__pickle_count(p, dict), length; i-- > 0;) {
        const char *text = sfp__pickle_text(p, sfp__pickle_key(p, dict, i), &length);
        if (text && length == strlen(key) && memcmp(text, key, length) == 0) {
            *out = sfp__pickle_item(p, dict, i);
            return true;
        }
    }
    return false;
}

bool sfp__pickle_get_int(const sfp__pickle *p, sfp__pickle_value dict, int64_t key, sfp__pickle_value *out)
{
    if (sfp__pickle_type_of(p, dict) != SFP__PICKLE_DICT)
        return false;
    for (size_t i = sfp__pickle_count(p, dict); i-- > 0;) {
        sfp__pickle_value k = sfp__pickle_key(p, dict, i);
        if (sfp__pickle_type_of(p, k) == SFP__PICKLE_INT && sfp__pickle_int(p, k) == key) {
            *out = sfp__pickle_item(p, dict, i);
            return true;
        }
    }
    return false;
}
