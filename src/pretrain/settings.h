/* The options of a training: the table of `streamfp pretrain`, what a checkpoint notes of them, and which of them is another one
 * when a training cannot go on. */
#ifndef SFP_PRETRAIN_SETTINGS_H
#define SFP_PRETRAIN_SETTINGS_H

#include "base/settings.h"
#include "io/tensor/safetensors.h"
#include "pretrain/pretrain.h"

enum { SFP_PRETRAIN_ROWS = 41 };
extern const sfp_opt sfp__pretrain_rows[SFP_PRETRAIN_ROWS];

/* A number (the seed apart) that decides what a step does: a training cannot go on with another one. */
bool sfp__pretrain_decides(const sfp_opt *row);

enum { SFP_PRETRAIN_NOTES_MAX = SFP_PRETRAIN_ROWS };

typedef struct sfp_pretrain_note {
    char key[32];     /* "option.NAME" */
    const char *text; /* the value: the option's own text ("": none), or NULL: */
    char number[32];
} sfp_pretrain_note;

/* The options that decide what a step does; returns how many. `o` must outlive them. */
size_t sfp__pretrain_notes(const sfp_pretrain_options *o, sfp_pretrain_note *out);
/* SFP_EINVAL: a checkpoint of another training; with its first note that is not as now, and both values. */
sfp_status sfp__pretrain_is_other(const sfp_tensor_file *f, const sfp_pretrain_options *o, sfp_error *err);

#endif
