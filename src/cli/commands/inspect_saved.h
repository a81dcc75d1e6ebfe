/* What `inspect` says of the files of tensors that the program itself writes and that are no weights: states and checkpoints. */
#ifndef SFP_CLI_INSPECT_SAVED_H
#define SFP_CLI_INSPECT_SAVED_H

#include "cli/output.h"

#include "learner/state/state.h"

typedef struct sfp__inspect_saved {
    char what[256];   /* in words, nothing in it that could steer a terminal; "": none of these files */
    const char *kind; /* "state", "checkpoint", "pretrain-checkpoint" */
    const sfp__tensor_file *st;
    const char *method; /* NULL: the learner's own */
    bool damaged;       /* a state that is not what its checksum says */
    bool has_pool;
    sfp__state_pool pool;
    int64_t classes, seen, slots; /* slots: filled ones of the buffer. -1: the file does not tell */
    sfp__saved_names names;
} sfp__inspect_saved;

/* Of a safetensors file, which must outlive it. What it does not tell, or tells wrong, is left out. */
void sfp__inspect_saved_init(const sfp__tensor_file *st, sfp__inspect_saved *s);
void sfp__inspect_saved_done(sfp__inspect_saved *s);

void sfp__inspect_saved_print(sfp__out *o, const sfp__inspect_saved *s);

#endif
