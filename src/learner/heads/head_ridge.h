/* What the files of ridge and slda share. head_ridge.c has the head itself and the learner's own solution; head_ridge_solve.c solves from the
 * sums; head_ridge_judge.c leaves samples out, to choose the strengths and for sfp_head_judge. */
#ifndef SFP_LEARNER_HEAD_RIDGE_H
#define SFP_LEARNER_HEAD_RIDGE_H

#include "learner/heads/head_kind.h"
#include "learner/heads/novelty.h"
#include "learner/heads/sums.h"
#include "learner/heads/triangle.h"

enum { SFP__RIDGE_STANDARD, SFP__RIDGE_SOFT, SFP__RIDGE_SOFTER, SFP__RIDGE_SCALINGS }; /* values of strength[SFP__SCALING] */
enum { SFP__RIDGE_COUNTERS = 5 }; /* numbers that files have of the own solution */

static const double sfp__ridge_never = -1e30; /* bias of a class without samples */

typedef struct sfp__ridge_solution {
    int64_t n;      /* number of samples; 0: none */
    int64_t chosen; /* number of samples when the strengths were chosen; 0: not yet */
    int rows;
    double strength[SFP__STRENGTHS];
    double *weight; /* (D, rows) memory for (capacity, D) */
    double *gain;   /* (capacity) factor of the weights of a class */
    double *bias;   /* (capacity) */
    double *centre; /* (D) */
} sfp__ridge_solution;

/* What the own solution needs to take in further samples: with K = n A in the coordinates of x (slda: n times the shrunk S), weight =
 * K^-1 M, where M_c is n_c (mu_c - m) for ridge, and mu_c - centre for slda. A sample changes K by kappa s u u^T and M by u c^T. */
typedef struct sfp__ridge_follow {
    int64_t solved;  /* number of samples when it was solved */
    double weight;   /* sfp__sums.weight at that time */
    double kappa;    /* 1 (ridge), 1 - shrinkage (slda) */
    double *inverse; /* triangle: K^-1 */
    int pending;     /* samples that are in the sums but not in the solution yet: */
    double *u;       /* (PENDING, D), 0 after those pending */
    double *s;       /* (PENDING), likewise */
    double *c;       /* (capacity, PENDING) */
} sfp__ridge_follow;

typedef struct sfp__ridge {
    sfp__head base;
    sfp__sums sums;
    int64_t counter[SFP__RIDGE_COUNTERS];
    sfp__ridge_solution own, exact;
    sfp__ridge_follow follow;
    sfp__novelty novelty; /* of the exact solution */
    double lambda, share; /* of the solve in progress; share: that of the shrinkage of slda */
    int64_t factored;     /* number of samples whose exact solution `matrix` factors; 0: it has no factor */
    /* Workspace of a solve. */
    double *matrix;          /* triangle */
    double *z, *norm;        /* (D), (SFP__SUMS_KEPT) */
    double *prior, *scores;  /* (capacity), (SFP__SUMS_KEPT, capacity) */
    double *block, *product; /* (SFP__TRIANGLE_BLOCK, D) each */
    /* Workspace of a solve if all samples are kept: `matrix` then contains T = Z (x - m), (n, D). */
    bool few;
    int gram_scaling;     /* scaling of T and `gram`; -1: they are not computed */
    double *gram;         /* triangle: T T^t / n */
    double *gram_factor;  /* triangle: of gram + lambda I */
    double *gram_inverse; /* (n, n): its inverse */
} sfp__ridge;

static inline bool sfp__ridge_is_slda(const sfp__ridge *m)
{
    return m->base.kind == &sfp__head_slda;
}

static inline bool sfp__ridge_is_balanced(const sfp__ridge *m)
{
    return !sfp__ridge_is_slda(m) && m->base.opt.ridge_balanced;
}

/* ------------------------------------------------------------- head_ridge_solve.c */

/* Writes the mean (NULL: not) and the shares of the classes. */
void sfp__ridge_summarise(sfp__ridge *m, double *mean);
/* Returns whether all samples are kept, and too few to need a matrix of the size of x. Their products with each other then take the place of
 * those of the values, so that solving is fast where it happens often. */
bool sfp__ridge_keeps_all(const sfp__ridge *m);
/* The kept samples must be those of the sums: sums without single samples may have been added and others been subtracted. */
bool sfp__ridge_is_few(const sfp__ridge *m);
/* Inverts T T^t / n + lambda I. Returns false if it is singular within rounding. */
bool sfp__ridge_invert_gram(sfp__ridge *m, const sfp__ridge_solution *s);
/* Writes row i of the inverse times the targets (1(y = c) - pi_c) to out (rows). */
void sfp__ridge_invert_targets(const sfp__ridge *m, int i, double *out);
/* Solves from the sums with the strengths of s. A matrix that is singular within rounding gets a larger diagonal. */
void sfp__ridge_solve(sfp__ridge *m, sfp__ridge_solution *s);
/* Sets gains and biases from the shares of the classes (m->prior) and the weights; `factor` multiplies the weights of slda. */
void sfp__ridge_finish(const sfp__ridge *m, sfp__ridge_solution *s, double factor);
/* Writes A^-1 in the coordinates of x, divided by n, to the inverse of the own solution, which was just solved. */
void sfp__ridge_invert_solved(sfp__ridge *m);
/* Returns x - centre, in the workspace. */
const double *sfp__ridge_centred(const sfp__ridge *m, const sfp__ridge_solution *s, const float *x);
/* Writes the products x^T w_c of a centred sample, without gain and bias. */
void sfp__ridge_project(const sfp__ridge *m, const sfp__ridge_solution *s, const double *x, double *out);

/* ------------------------------------------------------------- head_ridge_judge.c */

/* Sets the strengths before there are samples to leave out: those of samples that were dropped, or fixed ones. */
void sfp__ridge_reset_strength(const sfp__ridge *m, sfp__ridge_solution *s);
/* Chooses the strengths of a solution and solves it. The own solution continues with those it has; the exact one always starts with the same, so
 * that it is a function of the sums. */
void sfp__ridge_choose_and_solve(sfp__ridge *m, sfp__ridge_solution *s);
sfp_status sfp__ridge_judge(sfp__head *h, int n, const float *x, const int *row, double *out, float *unknown, sfp_error *err);

#endif
