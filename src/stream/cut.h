/* Which task a record belongs to: made from a specification (--tasks) and the training set alone, asked for the test set too. */
#ifndef SFP_STREAM_CUT_H
#define SFP_STREAM_CUT_H

#include "stream/source_internal.h"

typedef enum sfp_cut_kind { SFP_CUT_FREE, SFP_CUT_CLASSES, SFP_CUT_DOMAIN, SFP_CUT_TIME, SFP_CUT_GIVEN } sfp_cut_kind;

typedef struct sfp_cut {
    sfp_cut_kind kind;
    int tasks;
    int *end;        /* SFP_CUT_CLASSES (tasks): first stream label behind the task */
    int32_t *domain; /* SFP_CUT_DOMAIN (tasks): of the training set */
    double *value;   /* SFP_CUT_TIME, SFP_CUT_GIVEN (tasks): ascending */
} sfp_cut;

/* r: the records of s. spec NULL: the tasks that the data set gives, else free. */
sfp_status sfp__cut_make(const sfp_source *s, const sfp_record *r, const char *spec, sfp_cut *c, sfp_error *err);
void sfp__cut_done(sfp_cut *c);

/* The task of a record (its domain by number of the training set), -1: none. */
int sfp__cut_task(const sfp_cut *c, const sfp_record *r, int32_t stream_label, int32_t domain);
/* What task t is called; s is the training set. sfp__malloc'ed, NULL: no memory. */
char *sfp__cut_name(const sfp_source *s, const sfp_cut *c, int t);

/* Does any labelled picture have a task? */
bool sfp__gives_tasks(const sfp_source *s, const sfp_record *r);

#endif
