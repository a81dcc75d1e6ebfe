/* JSON that anybody may have written, by jansson: bounded, without keys that come twice, and told by path and key where it is not
 * what is needed.
 *
 *     OWNED_PTR(json_decref) json_t *root = NULL;
 *     TRY(sfp__json_read(path, 1 << 20, &root, err));
 *     TRY(sfp__json_need_uint(&(sfp__json_in){path, err}, root, "offered", &offered)); */
#ifndef SFP_IO_JSON_READ_H
#define SFP_IO_JSON_READ_H

#include "base/mem.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

DEFINE_OWNED_PTR(json_t, json_decref)

/* The whole of a text; a mistake is told as "LABEL: line 3, column 7: ...". */
sfp_status sfp__json_parse(const char *label, const char *text, size_t size, json_t **out, sfp_error *err);
sfp_status sfp__json_read(const char *path, size_t max_bytes, json_t **out, sfp_error *err);

/* "an array", for messages; NULL: "nothing" */
const char *sfp__json_type_name(const json_t *v);

/* Members of objects. A key that is not there is an error, and so is a value of another type or out of its range. */
typedef struct sfp__json_in {
    const char *label;
    sfp_error *err;
} sfp__json_in;

/* "LABEL: 'KEY' is not EXPECTED" */
sfp_status sfp__json_bad(const sfp__json_in *in, const char *key, const char *expected);
/* type: JSON_OBJECT, JSON_ARRAY, JSON_STRING or JSON_INTEGER */
sfp_status sfp__json_need(const sfp__json_in *in, const json_t *from, const char *key, json_type type, json_t **out);
sfp_status sfp__json_need_int(const sfp__json_in *in, const json_t *from, const char *key, int64_t low, int64_t high,
                              int64_t *out);
sfp_status sfp__json_need_uint(const sfp__json_in *in, const json_t *from, const char *key, uint64_t *out);
/* null: NAN */
sfp_status sfp__json_need_real(const sfp__json_in *in, const json_t *from, const char *key, double low, double high, double *out);
/* ... of a value that is there already */
sfp_status sfp__json_to_real(const sfp__json_in *in, const json_t *v, const char *key, double low, double high, double *out);
/* A string of less than `size` bytes. */
sfp_status sfp__json_need_text(const sfp__json_in *in, const json_t *from, const char *key, char *out, size_t size);
/* An array of low to high entries. */
sfp_status sfp__json_need_array(const sfp__json_in *in, const json_t *from, const char *key, size_t low, size_t high,
                                json_t **out);

#endif
