/* One way to persist: an object names its parts once, as tensors, and what visits them writes, checks or reads them. */
#ifndef SFP_LEARNER_VISIT_H
#define SFP_LEARNER_VISIT_H

#include "io/backed_file.h"
#include "select/select.h"

typedef struct sfp__visitor {
    const char *prefix; /* names are PREFIX.NAME; NULL: NAME */
    void *ctx;          /* of put or find */
    /* A tensor's name holds during the call, its data until the object changes. NULL: it reads. */
    sfp_status (*put)(void *ctx, const sfp__tensor *t, sfp_error *err);
    const sfp__tensor *(*find)(void *ctx, const char *name); /* NULL: there is none */
    const char *file;                                        /* that it reads, for messages */
    bool checks;         /* it reads without changing anything: all is there, of the right type and shape */
    bool finite;         /* and floating-point values must be finite */
    bool inference_only; /* a head: only what scores need, so that it learns nothing more when it is read (head.h) */
} sfp__visitor;

/* Writes to parts, reads from a file. */
sfp__visitor sfp__visit_writing(sfp__tensor_list *parts);
sfp__visitor sfp__visit_reading(sfp__tensor_file *file, bool checks);

/* One part, which lies at `data`. */
sfp_status sfp__visit(const sfp__visitor *v, const char *name, sfp__dtype dtype, int ndim, const int64_t *shape, void *data,
                      sfp_error *err);
/* Numbers that were packed for the visit: written, a copy of them is kept; read or checked, they are in `data` afterwards. */
sfp_status sfp__visit_values(const sfp__visitor *v, const char *name, sfp__dtype dtype, int64_t count, void *data,
                             sfp_error *err);
/* One whose bytes lie in pieces; only with sfp__visit_writing and sfp__visit_reading. */
sfp_status sfp__visit_pieces(const sfp__visitor *v, const char *name, sfp__dtype dtype, int ndim, const int64_t *shape,
                             const sfp__pieces *pieces, sfp_error *err);
/* The tensor that a reading visitor finds; SFP_ENOTFOUND, or SFP_EFORMAT when it is not of `dtype`. */
sfp_status sfp__visit_find(const sfp__visitor *v, const char *name, sfp__dtype dtype, const sfp__tensor **out, sfp_error *err);

/* The state of a selector or a buffer method; `list` may be NULL. */
sfp_status sfp__visit_state_tensors(const sfp__visitor *v, sfp__state_tensors_fn list, void *state, sfp_error *err);

#endif
