/* One row for each number, text and part of a result: where it is stored, which values it may have, and how it is shown. */
#ifndef SFP_RESULTS_RESULT_FIELDS_H
#define SFP_RESULTS_RESULT_FIELDS_H

#include "results/result.h"

#define SFP__FIELD_KEY_SIZE 64

typedef enum sfp__field_kind {
    SFP__FIELD_TEXT,
    SFP__FIELD_FLAG,
    SFP__FIELD_SEED,
    SFP__FIELD_WHOLE, /* int */
    SFP__FIELD_COUNT, /* uint64_t */
    SFP__FIELD_REAL,
    SFP__FIELD_PART,   /* a matrix, list or curve; result_json.c has its functions */
    SFP__FIELD_DERIVED /* follows from other fields; not in result.json */
} sfp__field_kind;

typedef struct sfp__result_field {
    sfp__field_kind kind;
    const char *group; /* the key of the object of result.json that contains it; NULL: the root object */
    const char *key;
    size_t offset, size; /* in sfp_result */
    double low, high;    /* the range of a REAL */
    bool optional;       /* the key may be missing */
    double (*derive)(const sfp_result *r);
    /* for people */
    const char *label;   /* "average accuracy"; NULL: it is not shown in lists of numbers */
    const char *unit;    /* "s"; NULL: none */
    const char *meaning; /* in a few words, for the report; NULL: the label says it */
    int decimals;
    int better;    /* 1: higher values are better, -1: lower ones, 0: neither */
    bool fraction; /* shown in percent in tables */
    bool column;   /* a column of tables that compare runs */
    bool main;     /* also a column of `runs compare` */
    bool rare;     /* only shown if it is not 0 */
} sfp__result_field;

/* All fields in the order of result.json; the key of the last one is NULL. */
extern const sfp__result_field sfp__result_fields[];

/* Finds a field by its key, with the group: "samples.offered". NULL: there is none. */
const sfp__result_field *sfp__result_field_find(const char *key);
/* Returns that key in `buf`. */
const char *sfp__result_field_key(const sfp__result_field *f, char buf[SFP__FIELD_KEY_SIZE]);
/* Returns the value of a field. NAN: not measured, or the field is not a number. */
double sfp__result_field_value(const sfp__result_field *f, const sfp_result *r);
/* Whether this number of the run is shown. */
bool sfp__result_field_shown(const sfp__result_field *f, const sfp_result *r);

#endif
