/* Makes a stream from a dataset: tasks, the order of the classes, and the order of the samples within a task (docs/method.md,
 * sections 15 and 17).
 *
 *   J              classes (in class order) are split into J tasks as evenly as possible, larger ones first
 *   SIZES "3,2,2"  classes (in class order) are split by these numbers, whose sum must be the number of classes
 *   domain[:a,b,c] one task per domain, in the given order (default: natural)
 *   time           one task per value of time, ascending
 *   free           task-free: one task with all samples, in stream order
 *   (default)      the tasks of the dataset itself, else free
 *
 * Classes have their natural order, are shuffled, or have an order of the paper's authors (sfp__class_order). */
#ifndef SFP_STREAM_TASKS_H
#define SFP_STREAM_TASKS_H

#include "stream/source.h"

typedef struct sfp__task {
    char *name; /* "photo", "classes 0-2", "2004" */
    int classes;
    int32_t *class_of; /* (classes) stream labels that occur in the task, ascending */
    int64_t count;
    int64_t *sample; /* (count) indices into the source, in stream order */
} sfp__task;

/* The order of the samples within a task. */
typedef enum sfp__within {
    SFP__WITHIN_DEFAULT, /* given if the source keeps its order, else shuffle */
    SFP__WITHIN_SHUFFLE, /* shuffled by the seed */
    SFP__WITHIN_CLASS,   /* one class after the other, in class order; within a class as DEFAULT */
    SFP__WITHIN_GIVEN    /* the order of the source */
} sfp__within;

typedef struct sfp__stream_order {
    int classes; /* as in sfp__class_order */
    sfp__within within;
    uint64_t seed;
} sfp__stream_order;

typedef struct sfp__tasks {
    bool free;
    bool in_source_order; /* the samples of each task have the order of the source */
    int count;
    sfp__task *task; /* (count) */
    int classes;
    /* (source classes) stream label of a source label. Labels follow the class order, so that tasks have ascending ranges. */
    int32_t *label_of;
    int32_t *source_label; /* (classes) source label of a stream label */
} sfp__tasks;

/* spec is as above; NULL: default. order NULL: natural class order, DEFAULT within a task, seed 0. Unlabelled records are
 * excluded and counted in *unlabelled, which may be NULL. */
sfp_status sfp__tasks_create(const sfp_source *s, const char *spec, const sfp__stream_order *order, uint64_t *unlabelled,
                             sfp__tasks *out, sfp_error *err);

/* Splits the test set like `train`, by domain, time or classes, with the same labels (matched by class name). Samples have their
 * natural order. If `limit` > 0, a task has at most `limit` samples, evenly spread. A class that is not in the training set is an
 * error that names it. */
sfp_status sfp__tasks_create_test(const sfp_source *test, const sfp_source *train, const sfp__tasks *like, const char *spec,
                                  int64_t limit, sfp__tasks *out, sfp_error *err);
/* Checks the form of a specification, without a source; the key of the message is "tasks". */
sfp_status sfp__task_spec_check(const char *spec, sfp_error *err);
void sfp__tasks_done(sfp__tasks *t);

/* ------------------------------------------------------------- the class filter */

/* A source restricted to a list of classes (class_filter.c). */
typedef struct sfp__class_filter {
    sfp_source base; /* classes and class_names are those of the list */
    sfp_source *inner;
    int64_t *index;      /* (base.count) into inner */
    int32_t *label_of;   /* (inner->classes) number in the list; -1: not in the list */
    uint64_t *foreign;   /* (inner->classes) number of images of a class that is not in the list; 0 for the others */
    uint64_t unlabelled; /* images without a label, which are excluded */
} sfp__class_filter;

/* names (classes); NULL stands for the number of the class. inner is an indexed source; on success the new source owns it. */
sfp_status sfp__class_filter_open(sfp_source *inner, int classes, const char *const *names, sfp__class_filter **out,
                                  sfp_error *err);

#endif
