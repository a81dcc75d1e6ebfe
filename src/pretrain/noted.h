/* The options of a training by name: where the program puts their numbers, what a checkpoint notes of them, and which of them is
 * another one when a training cannot go on. */
#ifndef SFP_PRETRAIN_NOTED_H
#define SFP_PRETRAIN_NOTED_H

#include "io/safetensors.h"
#include "pretrain/pretrain.h"

#include <stddef.h>

typedef struct sfp_pretrain_number {
    const char *name; /* as the program's option */
    size_t offset;    /* in sfp_pretrain_options */
    bool real;        /* a double; else an int */
    bool decides;     /* what a step does: a training cannot go on with another one */
} sfp_pretrain_number;

extern const sfp_pretrain_number sfp__pretrain_numbers[];
extern const size_t sfp__pretrain_number_count;

enum { SFP_PRETRAIN_NOTES_MAX = 48 };

typedef struct sfp_pretrain_note {
    char key[32];     /* "option.NAME" */
    const char *text; /* the value: the option's own text ("": none), or NULL: */
    char number[32];
} sfp_pretrain_note;

/* The options that decide what a step does; returns how many. `o` must outlive them. */
size_t sfp__pretrain_notes(const sfp_pretrain_options *o, sfp_pretrain_note *out);
/* SFP_EINVAL: a checkpoint of another training; with its first note that is not as now, and both values. */
sfp_status sfp__pretrain_is_other(const sfp_safetensors *f, const sfp_pretrain_options *o, sfp_error *err);

#endif
