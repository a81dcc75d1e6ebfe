/* A teacher's outputs for fixed views, computed once and kept in a file.
 *
 * An entry is what the student is asked to reproduce: the teacher's class token and its patch tokens, both after the final
 * norm, the latter averaged from its grid to the student's (or a finer one, averaged on when read); F16. The file names what it
 * depends on (teacher, pictures, views, sizes): one made for anything else is made again, but not while another process reads it.
 * It is filled in order and can be gone on with. */
#ifndef SFP_PRETRAIN_TEACHER_H
#define SFP_PRETRAIN_TEACHER_H

#include "io/file.h"
#include "model/vit.h"
#include "pretrain/image_set.h"

typedef struct sfp_teacher {
    sfp_vit *vit;
    int dim;     /* Dt */
    int classes; /* of its head; 0: none */
    int side;    /* patches along the student's side: L = side^2 */
    int grid;    /* of the entries: a multiple of side */
    int views;
    int64_t pictures;
    sfp_map map;
    int lock;                /* on the cache, as long as it is read; -1: none */
    const uint16_t *entries; /* (views, pictures, 1 + grid^2, Dt), F16 */
    float *mean, *scale;     /* (2, Dt) of class token and patch tokens: standardised = (x - mean) * scale */
} sfp_teacher;

/* o: its teacher, views, seed, and the student's size. */
sfp_status sfp__teacher_open(const sfp_pretrain_options *o, const sfp_image_set *p, sfp_thread_pool *pool,
                             const sfp_pretrain_hooks *hooks, sfp_teacher *out, sfp_error *err);
void sfp__teacher_done(sfp_teacher *t);

/* Adds f times the standardised outputs for a view of a picture: (1 + L, Dt). Mirrored: what the teacher would say of the
 * mirrored view, very nearly - the same class token, the patch tokens of a row the other way round. */
void sfp__teacher_add(const sfp_teacher *t, int view, int64_t picture, bool mirrored, float f, float *out);
/* The class token as the teacher gives it (Dt), for its head. */
void sfp__teacher_class(const sfp_teacher *t, int view, int64_t picture, float *out);

#endif
