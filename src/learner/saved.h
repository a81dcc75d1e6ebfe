/* What state files and checkpoints share: metadata, the settings a file was
 * made with, spans and class names. Reading checks everything and changes
 * nothing; what was read is committed when all of it is good. */
#ifndef SFP_LEARNER_SAVED_H
#define SFP_LEARNER_SAVED_H

#include "io/safetensors.h"
#include "learner/learner_internal.h"

/* ------------------------------------------------------------------ writing */

/* Metadata that grows; `failed` (out of memory) is kept until the end. Keys and values are copied. */
typedef struct sfp_saved_meta {
    sfp_meta *list;
    size_t count, room;
    bool failed;
} sfp_saved_meta;

void sfp__saved_put(sfp_saved_meta *m, const char *key, const char *value);
void sfp__saved_put_int(sfp_saved_meta *m, const char *key, long long value);
void sfp__saved_done(sfp_saved_meta *m);

/* task, start, open, timestamps and class_names, a JSON list in which a class without a name is null. */
void sfp__saved_put_common(sfp_saved_meta *m, sfp_learner *l);

/* ----------------------------------------------------------------- settings */

typedef enum sfp_setting_kind {
    SFP_SETTING_STATE, /* gives the values of a state their meaning */
    SFP_SETTING_RUN,   /* decides how a run goes on */
} sfp_setting_kind;

typedef struct sfp_setting {
    sfp_setting_kind kind;
    const char *name; /* as the program's option, where there is one */
    char value[72];
} sfp_setting;

enum { SFP_SETTINGS_MAX = 64 };

/* The learner's settings that bear on what it computes; returns how many. */
int sfp__saved_settings(const sfp_learner *l, sfp_setting *out);

void sfp__saved_put_settings(sfp_saved_meta *m, const sfp_learner *l, bool run);
/* Fails with SFP_EINVAL and both values where the file's differ. `run`: those of SFP_SETTING_RUN too, and none may be missing. */
sfp_status sfp__saved_check_settings(const sfp_learner *l, const sfp_safetensors *st, bool run, sfp_error *err);

/* ------------------------------------------------------------------ reading */

/* SFP_EFORMAT for another format, SFP_EUNSUPPORTED for another version. `wanted`: the file must name its format. */
sfp_status sfp__saved_check_format(const sfp_safetensors *st, const char *format, int version, bool wanted, sfp_error *err);

/* A number of the metadata; SFP_EFORMAT when it is missing or out of range. */
sfp_status sfp__saved_int(const sfp_safetensors *st, const char *key, long long min, long long max, long long *out,
                          sfp_error *err);

typedef struct sfp_saved_names {
    bool given; /* the file has a list */
    int count;
    char **name; /* (count), NULL where a class has none */
} sfp_saved_names;

sfp_status sfp__saved_names_read(const sfp_safetensors *st, int most, sfp_saved_names *out, sfp_error *err);
void sfp__saved_names_done(sfp_saved_names *n);
/* The learner takes the names over, in place of its own; there is room. Cannot fail. */
void sfp__saved_names_commit(sfp_saved_names *n, sfp_learner *l);

/* How many rows the file's classifier has: as many as the learner's, or on a free stream `least` and more. */
sfp_status sfp__saved_classes(sfp_learner *l, const sfp_safetensors *st, int least, int *out, sfp_error *err);

typedef struct sfp_saved_span {
    int task, start, open;
} sfp_saved_span;

/* Everything of a commit that can fail: the span, then rows and room for classes and names. On failure all is as before. The
 * classifier may have more rows than `classes` afterwards. No random number is drawn. */
sfp_status sfp__saved_prepare(sfp_learner *l, const char *path, const sfp_saved_span *span, int classes, int names,
                              sfp_error *err);

#endif
