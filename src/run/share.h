/* The directory that the workers of a message log share (arrivals_log.c describes its files), and the values that they commit. */
#ifndef SFP_RUN_SHARE_H
#define SFP_RUN_SHARE_H

#include "learner/state/saved_sums.h"
#include "run/run.h"
#include "stream/log.h"

#define SFP__SHARE_LOG "log"
#define SFP__SHARE_MODEL "model.safetensors"

/* What a unit commits: "FILE PREVIOUS SEQUENCE SAMPLES DIGEST OFFSET". */
typedef struct sfp__share_value {
    char file[SFP__LOG_NAME_MAX + 64], previous[SFP__LOG_NAME_MAX + 64]; /* "": none */
    int64_t sequence;
    uint64_t samples; /* learned so far */
    uint64_t digest;  /* the sum of their digests */
    int64_t offset;   /* of the next message; -1: none */
} sfp__share_value;

void sfp__share_print(const sfp__share_value *v, char text[SFP__LOG_VALUE_MAX]);
/* text "": nothing was committed. Fails if it is not such a value, or if a file of it is not one of the unit: the log is written by others,
 * and files that are no longer needed are removed. */
sfp_status sfp__share_parse(const char *text, const char *unit, sfp__share_value *out, sfp_error *err);

/* Prepares the directory for a worker: creates its files, or refuses the log and the learner if they are others. Sets the name of the
 * worker. */
sfp_status sfp__share_open(sfp__log *log, sfp__learner *l, const sfp__run_options *o, sfp_error *err);

/* Adds what all units have committed, in their order: sums with the same bytes, however many workers there were (Kafka). */
typedef struct sfp__share_sum {
    sfp__saved_sums sum;
    int units;
    uint64_t digest;
} sfp__share_sum;
void sfp__share_sum_done(sfp__share_sum *s);
sfp_status sfp__share_merge(const char *dir, sfp__thread_pool *threads, sfp__share_sum *out, sfp_error *err);

#endif
