/* RanPAC's state, shared by head_ranpac.c (what it learns) and head_ranpac_solve.c (what it derives). */
#ifndef SFP_LEARNER_HEAD_RANPAC_H
#define SFP_LEARNER_HEAD_RANPAC_H

#include "learner/heads/head_kind.h"

#define SFP_RANPAC_GRAIN 32 /* recent samples added to the small factor at a time */
#define SFP_RANPAC_HELD 128 /* samples held out at most */

enum { SFP_RANPAC_SEED, SFP_RANPAC_WIDTH };         /* setup */
enum { SFP_RANPAC_FOLDED, SFP_RANPAC_NEXT_CHOICE }; /* counter: samples in the base; next choice of lambda at this many samples */
enum { SFP_RANPAC_LAMBDA, SFP_RANPAC_SCALE };       /* strength: lambda (0: not chosen yet); of the log-probabilities */

typedef struct sfp__ranpac {
    sfp__head base;
    int width;        /* M */
    int first, later; /* recent samples before a fold, while the base is empty and after */
    int cap, side;    /* the larger of both; the larger of cap and M */
    int recent;       /* p */
    int64_t setup[2], counter[2];
    sfp__projection *project; /* R (D, M) */
    double strength[2];
    float *query;  /* (cap, D) of recent samples */
    int64_t *row;  /* (cap): their classes */
    int64_t *slot; /* (cap): their places in the reservoir, -1: not held out */
    float *gram;   /* (M, M): G, lower triangle; space for (side, side) */
    float *target; /* (capacity, M): C */
    /* derived */
    int64_t solved; /* samples in `weight` */
    bool factored;  /* `factor` is of gram and lambda */
    int with_rows;  /* rows of `start` that are computed */
    int done;       /* rows of z and small that are final: whole grains */
    float *factor;  /* (M, M): L; space for (side, side) */
    float *start;   /* (capacity, M): U */
    float *z;       /* (cap, M) */
    float *small;   /* (cap, cap): F */
    float *dual;    /* (capacity, cap) */
    float *weight;  /* (capacity, side): W */
    float *piece;   /* (SFP_HEAD_GRAIN, max(M, D)): projections of a piece, or its queries */
    float *scored;  /* (SFP_HEAD_GRAIN, capacity) */
    float *plain;   /* (rows, M): W without gaps, as it is saved; NULL before */
} sfp__ranpac;

static inline bool sfp__ranpac_has_base(const sfp__ranpac *m)
{
    return m->counter[SFP_RANPAC_FOLDED] > 0;
}

/* phi (n, M) = relu(q R) */
void sfp__ranpac_project(const sfp__ranpac *m, int n, const float *q, float *phi);
/* phi of the recent samples that are held out, or of the others, in order; returns their number. Uses m->piece. */
int sfp__ranpac_project_recent(sfp__ranpac *m, bool held, float *phi);
/* Moves the recent samples that are not held out into the base. Uses m->z. */
void sfp__ranpac_fold(sfp__ranpac *m);
/* m->weight from all samples; chooses lambda when that is due. */
sfp_status sfp__ranpac_solve(sfp__ranpac *m, sfp_error *err);

#endif
