/* A restricted reader of Python pickles.
 *
 * A pickle is a program for a small stack machine. This one knows the opcodes
 * that build None, booleans, numbers, strings, bytes, lists, tuples and dicts,
 * of protocols 0 to 5. Those that name, make or change objects (GLOBAL, REDUCE,
 * BUILD, ...) are refused by name with their offset, unless the caller gives a
 * list of names that may occur; then they become values that tell which name
 * was to be called with what. Nothing is ever executed.
 *
 * A value is one machine word: an integer itself, or the number of a node. What
 * a pickle memoised is shared, not copied, so a value can be reached by several
 * ways, and a list can even hold itself: whoever walks without knowing the
 * shape must bound the depth. */
#ifndef SFP_IO_TENSOR_PICKLE_H
#define SFP_IO_TENSOR_PICKLE_H

#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t sfp__pickle_value; /* of one sfp__pickle; valid until it is freed */

typedef enum sfp__pickle_type {
    SFP_PICKLE_NONE,
    SFP_PICKLE_BOOL,
    SFP_PICKLE_INT,
    SFP_PICKLE_FLOAT,
    SFP_PICKLE_TEXT, /* str of Python 2 or 3, unicode */
    SFP_PICKLE_BYTES,
    SFP_PICKLE_GLOBAL, /* a class or function of the list; from here on those that hold values: */
    SFP_PICKLE_LIST,
    SFP_PICKLE_TUPLE,
    SFP_PICKLE_DICT,       /* also OrderedDict */
    SFP_PICKLE_OBJECT,     /* a global, its tuple of arguments and, when it was given one, its state: 2 or 3 items */
    SFP_PICKLE_PERSISTENT, /* something outside of the pickle: 1 item tells what */
} sfp__pickle_type;

typedef struct sfp__pickle_node {
    uint8_t type;
    uint8_t level; /* of nesting, as known when the last item was put in */
    size_t count;  /* items; a dict has two a pair; bytes of text */
    size_t capacity;
    union {
        int64_t integer; /* also booleans */
        double number;
        char *text;
        sfp__pickle_value *item;
    };
} sfp__pickle_node;

/* Text is kept in chunks that never move. */
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
    size_t used; /* bytes up to and with the STOP: more may follow */
} sfp__pickle;

/* Nodes that always exist. */
enum { SFP_PICKLE_NODE_NONE, SFP_PICKLE_NODE_FALSE, SFP_PICKLE_NODE_TRUE };

/* An odd value is the integer (v >> 1); an even one is twice the number of a node. */
static inline bool sfp__pickle_is_small(sfp__pickle_value v)
{
    return v & 1;
}

/* of a value that is not small; moves when a node is made */
static inline sfp__pickle_node *sfp__pickle_node_of(const sfp__pickle *p, sfp__pickle_value v)
{
    return &p->nodes[v / 2];
}

typedef struct sfp__pickle_limits {
    size_t bytes;               /* of the file (default 512 MiB) */
    size_t items;               /* values made or put into containers (default 100 million) */
    size_t memo;                /* memoised values (default 16 million) */
    int depth;                  /* nesting of containers, and marks open at once (default 64) */
    const char *const *globals; /* names "module.name" that may occur, "prefix.*" for many; NULL at the end; NULL: none at all */
} sfp__pickle_limits;

sfp__pickle_limits sfp__pickle_limits_defaults(void);

/* limits NULL: defaults. The bytes are not needed afterwards. A message begins with `label` (the path). */
sfp_status sfp__pickle_parse(const char *label, const void *bytes, size_t size, const sfp__pickle_limits *limits,
                             sfp__pickle **out, sfp_error *err);
sfp_status sfp__pickle_read(const char *path, const sfp__pickle_limits *limits, sfp__pickle **out, sfp_error *err);
void sfp__pickle_free(sfp__pickle *p);
DEFINE_OWNED_PTR(sfp__pickle, sfp__pickle_free)

/* The next value of that type after *at, in the order they were made (*at 0: from the beginning); false: there is none. Only for
 * types that are never small: globals, containers, objects, persistent values. */
bool sfp__pickle_next(const sfp__pickle *p, sfp__pickle_type type, sfp__pickle_value *at);
sfp__pickle_type sfp__pickle_type_of(const sfp__pickle *p, sfp__pickle_value v);
/* "a list", for messages */
const char *sfp__pickle_type_name(sfp__pickle_type type);

/* Integers and booleans; 0 for anything else. */
int64_t sfp__pickle_int(const sfp__pickle *p, sfp__pickle_value v);
/* Text and bytes, terminated (NUL bytes may come before); NULL for anything else. length may be NULL. */
const char *sfp__pickle_text(const sfp__pickle *p, sfp__pickle_value v, size_t *length);
/* "module.name" of a class or function; NULL for anything else. */
const char *sfp__pickle_global(const sfp__pickle *p, sfp__pickle_value v);
/* Items of a list, tuple, object or persistent value, pairs of a dict; 0 for anything else. */
size_t sfp__pickle_count(const sfp__pickle *p, sfp__pickle_value v);
/* Item i < count; value i of a dict, in the order of the file. */
sfp__pickle_value sfp__pickle_item(const sfp__pickle *p, sfp__pickle_value v, size_t i);
sfp__pickle_value sfp__pickle_key(const sfp__pickle *p, sfp__pickle_value dict, size_t i);
/* The value of a dict under a text key or an integer key (the last one, as in Python); false: not there, or no dict. */
bool sfp__pickle_get(const sfp__pickle *p, sfp__pickle_value dict, const char *key, sfp__pickle_value *out);
bool sfp__pickle_get_int(const sfp__pickle *p, sfp__pickle_value dict, int64_t key, sfp__pickle_value *out);

/* What the machine fills (pickle_machine.c). */
sfp_status sfp__pickle_create(sfp__pickle **out, sfp_error *err);
sfp_status sfp__pickle_new_node(sfp__pickle *p, sfp__pickle_type type, sfp__pickle_value *out, sfp_error *err);
/* n bytes of text and a terminator, which is set; NULL: no memory */
char *sfp__pickle_new_text(sfp__pickle *p, size_t n);

#endif
