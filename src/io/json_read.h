/* Reading JSON from untrusted files, with jansson. The size is limited, and duplicate keys are errors. Messages contain the path
 * and the key of a value that is not as expected.
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

/* Calls json_loadb. SFP_ENOMEM: there was no memory. SFP_OK with *out NULL: the text is malformed, and *why says where. jansson itself
 * does not tell these apart. */
sfp_status sfp__json_load(const char *label, const char *text, size_t size, size_t flags, json_t **out, json_error_t *why,
                          sfp_error *err);
/* Parses a complete text. A syntax error is reported as "LABEL: line 3, column 7: ...". */
sfp_status sfp__json_parse(const char *label, const char *text, size_t size, json_t **out, sfp_error *err);
sfp_status sfp__json_read(const char *path, size_t max_bytes, json_t **out, sfp_error *err);

/* Returns the type for messages, such as "an array"; NULL: "nothing". */
const char *sfp__json_type_name(const json_t *v);

/* Members of objects. A missing key is an error, and so is a value of a wrong type or out of range. */
typedef struct sfp__json_in {
    const char *label;
    sfp_error *err;
} sfp__json_in;

/* Fails with "LABEL: 'KEY' is not EXPECTED". */
sfp_status sfp__json_bad(const sfp__json_in *in, const char *key, const char *expected);
/* type: JSON_OBJECT, JSON_ARRAY, JSON_STRING or JSON_INTEGER. */
sfp_status sfp__json_need(const sfp__json_in *in, const json_t *from, const char *key, json_type type, json_t **out);
sfp_status sfp__json_need_int(const sfp__json_in *in, const json_t *from, const char *key, int64_t low, int64_t high,
                              int64_t *out);
sfp_status sfp__json_need_uint(const sfp__json_in *in, const json_t *from, const char *key, uint64_t *out);
/* A null is read as NAN. */
sfp_status sfp__json_need_real(const sfp__json_in *in, const json_t *from, const char *key, double low, double high, double *out);
/* Like sfp__json_need_real, for a value that was already found; `key` names it in messages. */
sfp_status sfp__json_to_real(const sfp__json_in *in, const json_t *v, const char *key, double low, double high, double *out);
/* Reads a string of less than `size` bytes. */
sfp_status sfp__json_need_text(const sfp__json_in *in, const json_t *from, const char *key, char *out, size_t size);
/* Reads an array of low to high entries. */
sfp_status sfp__json_need_array(const sfp__json_in *in, const json_t *from, const char *key, size_t low, size_t high,
                                json_t **out);

/* Reads an integer member of an object, without a message; false: it is missing or out of range. */
bool sfp__json_whole(json_t *root, const char *key, int64_t min, int64_t max, int64_t *out);

#endif
