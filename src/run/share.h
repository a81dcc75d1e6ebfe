/* The directory that the workers of a message log share (arrivals_log.c describes its files), and the values that they commit. */
#ifndef SFP_RUN_SHARE_H
#define SFP_RUN_SHARE_H

#include "learner/state/saved_sums.h"
#include "run/run.h"
#include "stream/log.h"

#define SFP__SHARE_LOG "log"
#define SFP__SHARE_MODEL "model.safetensors"

/* The value that is committed for a unit: "FILE PREVIOUS SEQUENCE SAMPLES DIGEST OFFSET". */
typedef struct sfp__share_value {
    char file[SFP__LOG_NAME_MAX + 64], previous[SFP__LOG_NAME_MAX + 64]; /* "": none */
    int64_t sequence;
    uint64_t samples; /* number of samples learned so far */
    uint64_t digest;  /* sum of the digests of these samples */
    int64_t offset;   /* of the next message; -1: the log has no offsets */
} sfp__share_value;

void sfp__share_print(const sfp__share_value *v, char text[SFP__LOG_VALUE_MAX]);
/* Parses a committed value; text "": nothing was committed. Fails if the text is malformed or names a file that does not belong to the unit. The
 * check is needed because other programs can write to the log, and named files are removed when they are no longer needed. */
sfp_status sfp__share_parse(const char *text, const char *unit, sfp__share_value *out, sfp_error *err);

/* Prepares the directory for a worker: creates its files or, if they exist, checks that log and learner are the same. Sets the name of the
 * worker. */
sfp_status sfp__share_open(sfp__log *log, sfp__learner *l, const sfp__run_options *o, sfp_error *err);

/* Adds up what all units have committed, in the order of the units. With Kafka, the sum has the same bytes for any number of workers. */
typedef struct sfp__share_sum {
    sfp__saved_sums sum;
    int units;
    uint64_t digest;
} sfp__share_sum;
void sfp__share_sum_done(sfp__share_sum *s);
sfp_status sfp__share_merge(const char *dir, sfp__thread_pool *threads, sfp__share_sum *out, sfp_error *err);

#endif
