/* A JSON writer that streams: a result of a million images is written as it comes and never held in memory. Commas, quoting
 * and nesting are its job; `sfp__json_end_all` closes what is open, so that even a failed command prints a whole object. */
#ifndef SFP_CLI_JSON_OUT_H
#define SFP_CLI_JSON_OUT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define SFP_JSON_DEPTH 16

typedef struct sfp_json_out {
    FILE *to;
    int depth;
    bool in_array[SFP_JSON_DEPTH], any[SFP_JSON_DEPTH];
} sfp_json_out;

/* Opens the one object. */
void sfp__json_begin(sfp_json_out *j, FILE *to);
/* Closes everything and ends the line. */
void sfp__json_end_all(sfp_json_out *j);

/* `key` is NULL inside an array. */
void sfp__json_object(sfp_json_out *j, const char *key);
void sfp__json_array(sfp_json_out *j, const char *key);
void sfp__json_end(sfp_json_out *j); /* of the innermost object or array */

void sfp__json_string(sfp_json_out *j, const char *key, const char *value); /* NULL: null */
void sfp__json_int(sfp_json_out *j, const char *key, int64_t value);
void sfp__json_real(sfp_json_out *j, const char *key, double value); /* NaN and infinities: null */
/* The shortest digits that read back as the same number. */
void sfp__json_exact(sfp_json_out *j, const char *key, double value);
void sfp__json_float(sfp_json_out *j, const char *key, float value); /* with the digits a float has: 0.485, not 0.485000014 */
void sfp__json_bool(sfp_json_out *j, const char *key, bool value);

#endif
