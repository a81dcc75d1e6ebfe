/* The tree that a pickle becomes: pickle.c keeps it, pickle_machine.c and pickle_object.c build it. */
#ifndef SFP_IO_TENSOR_PICKLE_INTERNAL_H
#define SFP_IO_TENSOR_PICKLE_INTERNAL_H

#include "io/tensor/pickle.h"

typedef struct sfp_pickle_node {
    uint8_t type;
    uint8_t level; /* of nesting, as known when the last item was put in */
    size_t count;  /* items; a dict has two a pair; bytes of text */
    size_t room;
    union {
        int64_t integer; /* also booleans */
        double number;
        char *text;
        sfp_pickle_value *item;
    };
} sfp_pickle_node;

/* Text is kept in chunks that never move. */
typedef struct sfp_pickle_chunk {
    struct sfp_pickle_chunk *next;
    size_t used, size;
    char bytes[];
} sfp_pickle_chunk;

struct sfp_pickle {
    sfp_pickle_node *nodes;
    size_t count, room;
    sfp_pickle_chunk *chunks;
    sfp_pickle_value root;
    size_t used; /* bytes of the program */
};

/* Nodes that always exist. */
enum { SFP_PICKLE_NODE_NONE, SFP_PICKLE_NODE_FALSE, SFP_PICKLE_NODE_TRUE };

/* An odd value is the integer (v >> 1); an even one is twice the number of a node. */
static inline bool sfp__pickle_is_small(sfp_pickle_value v)
{
    return v & 1;
}

/* of a value that is not small; moves when a node is made */
static inline sfp_pickle_node *sfp__pickle_node_of(const sfp_pickle *p, sfp_pickle_value v)
{
    return &p->nodes[v / 2];
}

sfp_status sfp__pickle_create(sfp_pickle **out, sfp_error *err);
sfp_status sfp__pickle_new_node(sfp_pickle *p, sfp_pickle_type type, sfp_pickle_value *out, sfp_error *err);
/* n bytes of text and a terminator, which is set; NULL: no memory */
char *sfp__pickle_new_text(sfp_pickle *p, size_t n);

#endif
