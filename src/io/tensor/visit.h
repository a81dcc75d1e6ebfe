/* One mechanism for saving and loading: an object lists its tensors once, and a visitor writes, checks or reads them. */
#ifndef SFP_IO_TENSOR_VISIT_H
#define SFP_IO_TENSOR_VISIT_H

#include "io/backed_file.h"

typedef struct sfp__visitor {
    const char *prefix; /* tensors are named PREFIX.NAME; NULL: NAME */
    void *ctx;          /* context of put or find */
    /* Writes a tensor. Its name is valid during the call, its data until the object changes. NULL: the visitor reads. */
    sfp_status (*put)(void *ctx, const sfp__tensor *t, sfp_error *err);
    const sfp__tensor *(*find)(void *ctx, const char *name); /* NULL: no such tensor */
    const char *file;                                        /* the file that is read, for messages */
    bool check_only;     /* only checks that every tensor exists with the right type and shape; changes nothing */
    bool finite;         /* floating-point values must be finite */
    bool converts;       /* a tensor of F32 may have any type in the file; its values must be finite */
    bool inference_only; /* a head: only the data for scores; a head that was read this way cannot learn (head.h) */
    bool sums;           /* a head: its sums, as head.h describes */
} sfp__visitor;

/* Visitors that write to a list of tensors and that read from a file. */
sfp__visitor sfp__visit_writing(sfp__tensor_list *tensors);
sfp__visitor sfp__visit_reading(sfp__tensor_file *file, bool check_only);

/* Visits one tensor, whose values are at `data`. */
sfp_status sfp__visit(const sfp__visitor *v, const char *name, sfp__dtype dtype, int ndim, const int64_t *shape, void *data,
                      sfp_error *err);
/* Visits numbers that were packed for the visit. When writing, a copy of them is kept; when reading or checking, `data` receives
 * them. */
sfp_status sfp__visit_values(const sfp__visitor *v, const char *name, sfp__dtype dtype, int64_t count, void *data,
                             sfp_error *err);
/* Visits a tensor whose bytes are in several pieces; only with sfp__visit_writing and sfp__visit_reading. */
sfp_status sfp__visit_pieces(const sfp__visitor *v, const char *name, sfp__dtype dtype, int ndim, const int64_t *shape,
                             const sfp__pieces *pieces, sfp_error *err);
/* Finds a tensor with a reading visitor; SFP_ENOTFOUND, or SFP_EFORMAT if it is not of type `dtype`. */
sfp_status sfp__visit_find(const sfp__visitor *v, const char *name, sfp__dtype dtype, const sfp__tensor **out, sfp_error *err);

#endif
