/* What state files and checkpoints share: metadata, the settings a file was
 * made with, the backbone it belongs to, spans and class names. Reading checks everything and changes
 * nothing; what was read is committed when all of it is good. */
#ifndef SFP_LEARNER_SAVED_H
#define SFP_LEARNER_SAVED_H

#include "io/tensor/safetensors.h"
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

/* task, start, open (or the method), timestamps and class_names, a JSON list in which a class without a name is null. */
void sfp__saved_put_common(sfp_saved_meta *m, sfp_learner *l);

/* ----------------------------------------------------------------- settings */

typedef enum sfp_saved_kind {
    SFP_SAVED_STATE,  /* gives the values of a state their meaning */
    SFP_SAVED_ANSWER, /* what answering from a state needs besides; going on from it may differ */
    SFP_SAVED_RUN,    /* decides how a run goes on */
} sfp_saved_kind;

typedef struct sfp_saved_setting {
    sfp_saved_kind kind;
    const char *name; /* as the program's option, where there is one */
    char value[72];
} sfp_saved_setting;

enum { SFP_SAVED_SETTINGS_MAX = 64 };

/* The learner's settings that bear on what it computes; returns how many. */
int sfp__saved_settings(const sfp_learner *l, sfp_saved_setting *out);
/* Those of SFP_SAVED_ANSWER, which need no learner: how pictures become input, head, batch, seed. */
int sfp__saved_answer_settings(const sfp_learner_options *o, sfp_saved_setting *out);

/* A state's (all but SFP_SAVED_RUN), or with `run` a checkpoint's. */
void sfp__saved_put_settings(sfp_saved_meta *m, const sfp_learner *l, bool run);
/* Fails with SFP_EINVAL and both values where the file's differ. `run`: those of SFP_SAVED_RUN too, of which
 * none may be missing. */
sfp_status sfp__saved_check_settings(const sfp_learner *l, const sfp_tensor_file *st, bool run, sfp_error *err);

/* ----------------------------------------------------------------- backbone */

/* Tells backbones of the same sizes apart: the small tensors that every training moves. */
unsigned long sfp__saved_backbone_sum(const sfp_vit *vit);

/* backbone-file, backbone-sizes, backbone: whose queries and features the values were learned on. */
void sfp__saved_put_backbone(sfp_saved_meta *m, const sfp_vit *vit);
/* The input size at which the values were learned; 0: the file does not tell. */
int sfp__saved_img_size(const sfp_tensor_file *st);
/* SFP_EINVAL and both by name when it is another one. A file that does not tell is taken. */
sfp_status sfp__saved_check_backbone(const sfp_tensor_file *st, const sfp_vit *vit, sfp_error *err);

/* ------------------------------------------------------------------ reading */

#define SFP_SAVED_EARLIER \
    "written by an earlier version: start again without --resume in another --out, or finish it with that version"

/* SFP_EFORMAT for another format, SFP_EUNSUPPORTED for another version. `wanted`: the file must name its format. */
sfp_status sfp__saved_check_format(const sfp_tensor_file *st, const char *format, int version, bool wanted, sfp_error *err);

/* A number of the metadata; SFP_EFORMAT when it is missing or out of range. */
sfp_status sfp__saved_int(const sfp_tensor_file *st, const char *key, long long min, long long max, long long *out,
                          sfp_error *err);

typedef struct sfp_saved_names {
    bool given; /* the file has a list */
    int count;
    char **name; /* (count), NULL where a class has none */
} sfp_saved_names;

sfp_status sfp__saved_names_read(const sfp_tensor_file *st, int most, sfp_saved_names *out, sfp_error *err);
void sfp__saved_names_done(sfp_saved_names *n);
/* The learner takes the names over, in place of its own; there is room. Cannot fail. */
void sfp__saved_names_commit(sfp_saved_names *n, sfp_learner *l);

/* How many rows the file's classifier has, or classes its method: as many as the learner's, or where they appear `least` and
 * more. */
sfp_status sfp__saved_classes(sfp_learner *l, const sfp_tensor_file *st, int least, int *out, sfp_error *err);

typedef struct sfp_saved_span {
    int task, start, open;
} sfp_saved_span;

/* Everything of a commit that can fail: the span, then rows and room for classes and names. On failure all is as before. The
 * classifier may have more rows than `classes` afterwards. No random number is drawn. */
sfp_status sfp__saved_prepare(sfp_learner *l, const char *path, const sfp_saved_span *span, int classes, int names,
                              sfp_error *err);

#endif
