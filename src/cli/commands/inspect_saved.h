/* Recognises and prints the tensor files that this program writes other than weights: states and checkpoints. */
#ifndef SFP_CLI_INSPECT_SAVED_H
#define SFP_CLI_INSPECT_SAVED_H

#include "cli/output.h"

#include "learner/state/state.h"

typedef struct sfp__inspect_saved {
    char what[256];   /* description without control characters; "": not a state or checkpoint */
    const char *kind; /* "state", "checkpoint", "pretrain-checkpoint" */
    const sfp__tensor_file *st;
    const char *method; /* of a closed-form head; NULL: a learner */
    bool damaged;       /* the checksum does not match the contents */
    bool has_pool;
    sfp__state_pool pool;
    int64_t classes, seen, slots; /* slots: filled slots of the buffer. -1: not in the file */
    sfp__saved_names names;
} sfp__inspect_saved;

/* Reads the metadata of a safetensors file, which must outlive s. Missing and invalid values are omitted. */
sfp_status sfp__inspect_saved_init(const sfp__tensor_file *st, sfp__inspect_saved *s, sfp_error *err);
void sfp__inspect_saved_done(sfp__inspect_saved *s);

void sfp__inspect_saved_print(sfp__out *o, const sfp__inspect_saved *s);

#endif
