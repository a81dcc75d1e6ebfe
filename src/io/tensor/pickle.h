/* A restricted reader of Python pickles.
 *
 * A pickle is a program for a small stack machine. This reader implements the opcodes of protocols 0 to 5 that build None,
 * booleans, numbers, strings, bytes, lists, tuples and dicts. Opcodes that name, create or change objects (GLOBAL, REDUCE, BUILD,
 * ...) are errors that contain the opcode and its offset, unless the caller supplies a list of allowed names. Then they become
 * values that record the name and the arguments of the call. Nothing is ever executed.
 *
 * A value is one machine word: an integer itself, or the index of a node. Memoised values are shared and not copied, so a value
 * can be reached by several paths. A list can even contain itself. Therefore code that walks values without knowing their shape
 * must limit the depth. */
#ifndef SFP_IO_TENSOR_PICKLE_H
#define SFP_IO_TENSOR_PICKLE_H

#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t sfp__pickle_value; /* belongs to one sfp__pickle; valid until that is freed */

typedef enum sfp__pickle_type {
    SFP__PICKLE_NONE,
    SFP__PICKLE_BOOL,
    SFP__PICKLE_INT,
    SFP__PICKLE_FLOAT,
    SFP__PICKLE_TEXT, /* str of Python 2 or 3, or unicode */
    SFP__PICKLE_BYTES,
    SFP__PICKLE_GLOBAL, /* an allowed class or function; the types below contain values: */
    SFP__PICKLE_LIST,
    SFP__PICKLE_TUPLE,
    SFP__PICKLE_DICT,       /* also OrderedDict */
    SFP__PICKLE_OBJECT,     /* a global, its tuple of arguments and, if it has one, its state: 2 or 3 items */
    SFP__PICKLE_PERSISTENT, /* an object outside of the pickle: 1 item identifies it */
} sfp__pickle_type;

typedef struct sfp__pickle_node {
    uint8_t type;
    uint8_t level; /* nesting depth, as known when the last item was added */
    size_t count;  /* number of items (a dict has two per pair), or bytes of text */
    size_t capacity;
    union {
        int64_t integer; /* also booleans */
        double number;
        char *text;
        sfp__pickle_value *item;
    };
} sfp__pickle_node;

/* Text is stored in chunks that never move. */
typedef struct sfp__pickle_chunk {
    struct sfp__pickle_chunk *next;
    size_t used, size;
    char bytes[];
} sfp__pickle_chunk;

typedef struct sfp__pickle {
    sfp__pickle_node *nodes;
    size_t count, capacity;
    sfp__pickle_chunk *chunks;
    sfp__pickle_value root;
    size_t used; /* bytes up to and including STOP; more may follow */
} sfp__pickle;

/* Nodes that always exist. */
enum { SFP__PICKLE_NODE_NONE, SFP__PICKLE_NODE_FALSE, SFP__PICKLE_NODE_TRUE };

/* An odd value is the integer (v >> 1); an even one is twice the number of a node. */
static inline bool sfp__pickle_is_small(sfp__pickle_value v)
{
    return v & 1;
}

/* For a value that is not small. The pointer becomes invalid when a node is created. */
static inline sfp__pickle_node *sfp__pickle_node_of(const sfp__pickle *p, sfp__pickle_value v)
{
    return &p->nodes[v / 2];
}

typedef struct sfp__pickle_limits {
    size_t bytes;               /* maximum bytes of the file (default 512 MiB) */
    size_t items;               /* maximum number of values created or put into containers (default 100 million) */
    size_t memo;                /* maximum number of memoised values (default 16 million) */
    int depth;                  /* maximum nesting of containers, and of open marks (default 64) */
    const char *const *globals; /* allowed names "module.name" or "prefix.*", terminated by NULL; NULL: none */
} sfp__pickle_limits;

sfp__pickle_limits sfp__pickle_limits_defaults(void);

/* limits NULL: defaults. The bytes are not needed afterwards. Messages begin with `label` (the path). */
sfp_status sfp__pickle_parse(const char *label, const void *bytes, size_t size, const sfp__pickle_limits *limits,
                             sfp__pickle **out, sfp_error *err);
sfp_status sfp__pickle_read(const char *path, const sfp__pickle_limits *limits, sfp__pickle **out, sfp_error *err);
void sfp__pickle_free(sfp__pickle *p);
DEFINE_OWNED_PTR(sfp__pickle, sfp__pickle_free)

/* Finds the next value of this type after *at, in order of creation (*at 0: from the beginning); false: there is none. Only for
 * types that are never small: globals, containers, objects, persistent values. */
bool sfp__pickle_next(const sfp__pickle *p, sfp__pickle_type type, sfp__pickle_value *at);
sfp__pickle_type sfp__pickle_type_of(const sfp__pickle *p, sfp__pickle_value v);
/* Returns the type for messages, such as "a list". */
const char *sfp__pickle_type_name(sfp__pickle_type type);

/* The value of an integer or boolean; 0 for other types. */
int64_t sfp__pickle_int(const sfp__pickle *p, sfp__pickle_value v);
/* The text or bytes, terminated (they may also contain NUL bytes); NULL for other types. length may be NULL. */
const char *sfp__pickle_text(const sfp__pickle *p, sfp__pickle_value v, size_t *length);
/* The "module.name" of a class or function; NULL for other types. */
const char *sfp__pickle_global(const sfp__pickle *p, sfp__pickle_value v);
/* The number of items of a list, tuple, object or persistent value, or of pairs of a dict; 0 for other types. */
size_t sfp__pickle_count(const sfp__pickle *p, sfp__pickle_value v);
/* Item i < count; for a dict its value i, in the order of the file. */
sfp__pickle_value sfp__pickle_item(const sfp__pickle *p, sfp__pickle_value v, size_t i);
sfp__pickle_value sfp__pickle_key(const sfp__pickle *p, sfp__pickle_value dict, size_t i);
/* Finds the value of a dict for a text key or an integer key (the last one, as in Python); false: no such key, or not a dict. */
bool sfp__pickle_get(const sfp__pickle *p, sfp__pickle_value dict, const char *key, sfp__pickle_value *out);
bool sfp__pickle_get_int(const sfp__pickle *p, sfp__pickle_value dict, int64_t key, sfp__pickle_value *out);

/* For pickle_machine.c, which creates the values. */
sfp_status sfp__pickle_create(sfp__pickle **out, sfp_error *err);
sfp_status sfp__pickle_new_node(sfp__pickle *p, sfp__pickle_type type, sfp__pickle_value *out, sfp_error *err);
/* Allocates n bytes of text and sets the terminator; NULL: memory is exhausted. */
char *sfp__pickle_new_text(sfp__pickle *p, size_t n);

#endif
