/* Reading JSON from untrusted files (RFC 8259, strictly): text must be UTF-8, keys of an object must differ, numbers must fit into an
 * int64_t or a double, strings have no NUL, and values are nested at most 100 deep. Messages contain the path and the place, or the
 * key of a value that is not as expected.
 *
 *     OWNED sfp__json_value *root = NULL;
 *     TRY(sfp__json_read(path, 1 << 20, &root, err));
 *     TRY(sfp__json_need_uint(&(sfp__json_in){path, err}, root, "offered", &offered)); */
#ifndef SFP_IO_JSON_READ_H
#define SFP_IO_JSON_READ_H

#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum sfp__json_type {
    SFP__JSON_OBJECT,
    SFP__JSON_ARRAY,
    SFP__JSON_STRING,
    SFP__JSON_INTEGER,
    SFP__JSON_REAL,
    SFP__JSON_TRUE,
    SFP__JSON_FALSE,
    SFP__JSON_NULL
} sfp__json_type;

/* A value. The root and all values in it are in one block of memory, which is freed with the root. */
typedef struct sfp__json_value sfp__json_value;
struct sfp__json_value {
    sfp__json_type type;
    size_t count;    /* entries of an object or array, bytes of a string; else 0 */
    const char *key; /* of a member of an object */
    union {
        const char *text;
        int64_t integer;
        double real;
        struct {
            const sfp__json_value *first;   /* (count) in the order of the file */
            const sfp__json_value **by_key; /* (count) of an object: sorted */
        };
    };
};

/* Parses a complete text; the caller frees the root with sfp__free. A syntax error is "LABEL: line 3, column 7: ...". SFP_ENOMEM: there was no memory. */
sfp_status sfp__json_parse(const char *label, const char *text, size_t size, sfp__json_value **out, sfp_error *err);
sfp_status sfp__json_read(const char *path, size_t max_bytes, sfp__json_value **out, sfp_error *err);

/* All of the following accept NULL and any type. */

static inline bool sfp__json_is(const sfp__json_value *v, sfp__json_type type)
{
    return v && v->type == type;
}
static inline bool sfp__json_is_number(const sfp__json_value *v)
{
    return sfp__json_is(v, SFP__JSON_INTEGER) || sfp__json_is(v, SFP__JSON_REAL);
}
/* The number of entries; 0: neither object nor array. */
size_t sfp__json_size(const sfp__json_value *v);
/* Entry i of an object or array; NULL: there is none. */
const sfp__json_value *sfp__json_at(const sfp__json_value *v, size_t i);
/* A member of an object; NULL: there is none. */
const sfp__json_value *sfp__json_get(const sfp__json_value *v, const char *key);
const char *sfp__json_text(const sfp__json_value *v); /* NULL: not a string */
int64_t sfp__json_integer(const sfp__json_value *v);  /* 0: not an integer */
double sfp__json_number(const sfp__json_value *v);    /* 0: not a number */
/* The type for messages, such as "an array"; NULL: "nothing". */
const char *sfp__json_type_name(const sfp__json_value *v);
/* Stores a member if it is an integer of this range, or a number; false: it is not. */
bool sfp__json_whole(const sfp__json_value *from, const char *key, int64_t low, int64_t high, int64_t *out);
bool sfp__json_real_at(const sfp__json_value *from, const char *key, double *out);

/* Members of objects. A missing key is an error, and so is a value of a wrong type or out of range. */
typedef struct sfp__json_in {
    const char *label;
    sfp_error *err;
} sfp__json_in;

/* Fails with "LABEL: 'KEY' is not EXPECTED". */
sfp_status sfp__json_bad(const sfp__json_in *in, const char *key, const char *expected);
/* type: an object, array, string or integer. */
sfp_status sfp__json_need(const sfp__json_in *in, const sfp__json_value *from, const char *key, sfp__json_type type,
                          const sfp__json_value **out);
sfp_status sfp__json_need_int(const sfp__json_in *in, const sfp__json_value *from, const char *key, int64_t low, int64_t high,
                              int64_t *out);
sfp_status sfp__json_need_uint(const sfp__json_in *in, const sfp__json_value *from, const char *key, uint64_t *out);
/* A null is read as NAN. */
sfp_status sfp__json_need_real(const sfp__json_in *in, const sfp__json_value *from, const char *key, double low, double high,
                               double *out);
/* Like sfp__json_need_real, for a value that was already found; `key` names it in messages. */
sfp_status sfp__json_to_real(const sfp__json_in *in, const sfp__json_value *v, const char *key, double low, double high,
                             double *out);
/* Reads a string of less than `size` bytes. */
sfp_status sfp__json_need_text(const sfp__json_in *in, const sfp__json_value *from, const char *key, char *out, size_t size);
/* Reads an array of low to high entries. */
sfp_status sfp__json_need_array(const sfp__json_in *in, const sfp__json_value *from, const char *key, size_t low, size_t high,
                                const sfp__json_value **out);

#endif
