/* State of a selector or a buffer method as named tensors: one list says what is saved, loaded and of which shape.
 *
 * A method with state lists its parts; whoever writes checkpoints walks the list. Shapes depend on the options alone, never on
 * what was learned, so that a file is checked before the first value is changed. */
#ifndef SFP_SELECT_PARTS_H
#define SFP_SELECT_PARTS_H

#include <stdint.h>

typedef enum sfp_part_type { SFP_PART_F32, SFP_PART_F64, SFP_PART_I32, SFP_PART_I64, SFP_PART_U8 } sfp_part_type;

typedef struct sfp_part {
    char name[48]; /* without the method's own: "w0" */
    sfp_part_type type;
    int ndim;
    int64_t shape[4];
    void *data; /* where it lives; written by loading */
} sfp_part;

/* The part of this index into *out; returns how many there are. */
typedef int (*sfp_parts_fn)(void *state, int index, sfp_part *out);

#endif
