/* The state of a run, shared by run.c and run_files.c. */
#ifndef SFP_RUN_RUN_INTERNAL_H
#define SFP_RUN_RUN_INTERNAL_H

#include "run/evaluate.h"
#include "run/events.h"
#include "run/feed.h"
#include "run/run.h"
#include "run/system.h"

enum { SFP__RUN_SHOWN = 40 };

typedef struct sfp__run_state {
    const sfp_run_options *opt;
    const sfp_run_hooks *hooks;
    sfp_result *r;
    sfp_source *source, *test;
    sfp_tasks tasks, test_tasks;
    sfp_batches batches;
    sfp_system system;
    sfp_feed *feed;
    sfp_evaluator *evaluator;
    sfp_events *events;
    sfp_clock clock;
    bool clocked;    /* the virtual or the real one */
    int64_t *kept;   /* paper: the batches that are kept, in order; NULL: all */
    int64_t kept_count;
    double *costs;
    int64_t cost_count;
    /* where we are: what a checkpoint's position holds */
    int64_t next;    /* off: batch; paper: index into kept */
    int64_t stamps;  /* timestamps so far */
    int task;        /* the task at hand */
    int64_t arrived; /* samples of the stream up to the last batch learned from */
    uint64_t judged, right;
    uint8_t *trained_class; /* (classes) */
    /* checkpoint pace */
    double since, last_cost; /* training seconds since the last one; what the last one took */
    double began;
    struct {
        double decode, waited, total;
    } before; /* seconds of the processes before this one */
    sfp_sample *pooled; /* (learner.batch) triage: samples of several batches */
    uint64_t *ids;      /* (learner.batch) */
    /* the last batch, for the report: what the coreset took and left */
    int shown;
    uint8_t *shown_rgb; /* (SFP__RUN_SHOWN, S, S, 3) */
    int32_t shown_label[SFP__RUN_SHOWN];
    bool shown_taken[SFP__RUN_SHOWN];
} sfp__run_state;

/* Brings the result's decode, waited and total seconds up to now. */
void sfp__run_times(sfp__run_state *s);
/* Removes the checkpoints of an earlier run in the same directory: --resume must not find them. */
sfp_status sfp__run_forget(const sfp__run_state *s, sfp_error *err);
sfp_status sfp__run_checkpoint(sfp__run_state *s, sfp_error *err);
/* *resumed: there was a checkpoint; *finished: and the run had ended. */
sfp_status sfp__run_resume(sfp__run_state *s, bool *resumed, bool *finished, sfp_error *err);
/* result.json, state, report, registry. */
sfp_status sfp__run_outputs(sfp__run_state *s, sfp_error *err);
/* DIR/NAME into buf. */
sfp_status sfp__run_path(const sfp__run_state *s, const char *name, char *buf, size_t size, sfp_error *err);

#endif
