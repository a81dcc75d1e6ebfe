/* The state of RanPAC: head_ranpac.c has the learned part, head_ranpac_solve.c computes the derived part. */
#ifndef SFP_LEARNER_HEAD_RANPAC_H
#define SFP_LEARNER_HEAD_RANPAC_H

#include "learner/heads/head_kind.h"

#define SFP__RANPAC_GRAIN 32 /* number of recent samples that are added to the small factor at a time */
#define SFP__RANPAC_HELD 128 /* maximum number of held-out samples */

enum { SFP__RANPAC_SEED, SFP__RANPAC_WIDTH }; /* indices of `setup` */
/* indices of `counter`: samples in the base; number of samples at which lambda is chosen next */
enum { SFP__RANPAC_FOLDED, SFP__RANPAC_NEXT_CHOICE };
/* indices of `strength`: lambda (0: not chosen yet); scale of the log-probabilities */
enum { SFP__RANPAC_LAMBDA, SFP__RANPAC_SCALE };

typedef struct sfp__ranpac {
    sfp__head base;
    int width;        /* M */
    int first, later; /* maximum number of recent samples before a fold, while the base is empty and later */
    int cap, side;    /* max(first, later); max(cap, M) */
    int recent;       /* p */
    int64_t setup[2], counter[2];
    float *project; /* R (D, M) */
    float *normed;  /* (SFP__HEAD_GRAIN, D) normalised taps; NULL: there is one tap */
    double strength[2];
    float *query;  /* (cap, D) queries of recent samples */
    int64_t *row;  /* (cap) classes of recent samples */
    int64_t *slot; /* (cap) positions in the reservoir; -1: not held out */
    float *gram;   /* (M, M) G, lower triangle; memory for (side, side) */
    float *target; /* (capacity, M) C */
    /* Derived data. */
    int64_t solved;    /* number of samples that `weight` is computed from */
    bool factored;     /* `factor` is valid for gram and lambda */
    int start_rows;    /* number of computed rows of `start` */
    int done;          /* number of final rows of z and small: a multiple of the grain */
    float *factor;     /* (M, M) L; memory for (side, side) */
    float *start;      /* (capacity, M) U */
    float *z;          /* (cap, M) */
    float *small;      /* (cap, cap) F */
    float *dual;       /* (capacity, cap) */
    float *weight;     /* (capacity, side) W */
    float *piece;      /* (SFP__HEAD_GRAIN, max(M, D)) projections or queries of a group of samples */
    float *scored;     /* (SFP__HEAD_GRAIN, capacity) */
    float *contiguous; /* (rows, M) W with contiguous rows, as it is saved; NULL: not used yet */
} sfp__ranpac;

static inline bool sfp__ranpac_has_base(const sfp__ranpac *m)
{
    return m->counter[SFP__RANPAC_FOLDED] > 0;
}

/* Computes phi (n, M) = relu(q R). */
void sfp__ranpac_project(const sfp__ranpac *m, int n, const float *q, float *phi);
/* Computes phi of the recent samples that are held out, or of the others, in order. Returns their number. Uses m->piece. */
int sfp__ranpac_project_recent(sfp__ranpac *m, bool held, float *phi);
/* Moves the recent samples that are not held out into the base. Uses m->z. */
void sfp__ranpac_fold(sfp__ranpac *m);
/* Computes m->weight from all samples; chooses lambda if this is due. */
sfp_status sfp__ranpac_solve(sfp__ranpac *m, sfp_error *err);

#endif
