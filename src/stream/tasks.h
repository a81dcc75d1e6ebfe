/* How a data set becomes a stream: tasks, the order of classes, the order of
 * samples within a task (docs/method.md, sections 15 and 17).
 *
 *   J              classes (in class order) cut into J tasks as evenly as possible, larger ones first
 *   SIZES "3,2,2"  classes (in class order) by these counts; they must add up
 *   domain[:a,b,c] one task a domain, in the order given (default: natural)
 *   time           one task a time value, ascending
 *   free           no boundaries: one task with everything, in stream order
 *   (default)      the tasks the data set itself gives, else free
 *
 * `order` 0: natural class order, else classes are shuffled by that seed. */
#ifndef SFP_STREAM_TASKS_H
#define SFP_STREAM_TASKS_H

#include "stream/source.h"

typedef struct sfp__task {
    char *name; /* "photo", "classes 0-2", "2004" */
    int classes;
    int32_t *class_of; /* (classes) stream labels that occur in it, ascending */
    int64_t count;
    int64_t *sample; /* (count) indices into the source, in stream order */
} sfp__task;

typedef struct sfp__tasks {
    bool free;
    int count;
    sfp__task *task; /* (count) */
    int classes;
    int32_t *label_of; /* (source classes): stream label of a source label. By class order, so that tasks have ascending ranges */
    int32_t *source_label; /* (classes): the other way round */
} sfp__tasks;

/* spec as above, NULL: default. Samples within a task are shuffled by `seed` unless the source keeps its order. Unlabelled
 * records are left out (they are counted in *unlabelled when not NULL). */
sfp_status sfp__tasks_create(const sfp_source *s, const char *spec, int order, uint64_t seed, uint64_t *unlabelled,
                             sfp__tasks *out, sfp_error *err);

/* The test set cut the same way as `train`: by domain, time or classes, with the same labels (by class name). Samples in natural
 * order; `limit` > 0: at most so many a task, evenly spread. A class that training does not have is an error that names it. */
sfp_status sfp__tasks_create_test(const sfp_source *test, const sfp_source *train, const sfp__tasks *like, const char *spec,
                                  int64_t limit, sfp__tasks *out, sfp_error *err);
/* Checks what can be checked of a specification without a source; the key of the message is "tasks". */
sfp_status sfp__task_spec_check(const char *spec, sfp_error *err);
void sfp__tasks_done(sfp__tasks *t);

/* ------------------------------------------------------------- the class filter */

/* A source seen through a list of classes (class_filter.c). */
typedef struct sfp__class_filter {
    sfp_source base; /* classes and class_names are the list's */
    sfp_source *inner;
    int64_t *index;      /* (base.count) into inner */
    int32_t *label_of;   /* (inner->classes) into the list; -1: not there */
    uint64_t *foreign;   /* (inner->classes) images of a class that the list lacks; 0 for the others */
    uint64_t unlabelled; /* images without a label: left out */
} sfp__class_filter;

/* names (classes); one that is NULL is its number. inner is an indexed source; on success it is closed with the new one. */
sfp_status sfp__class_filter_open(sfp_source *inner, int classes, const char *const *names, sfp__class_filter **out,
                                  sfp_error *err);

#endif
