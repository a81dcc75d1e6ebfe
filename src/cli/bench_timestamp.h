/* Whole timestamps of the learner at SPEC section 17's sizes. */
#ifndef SFP_CLI_BENCH_TIMESTAMP_H
#define SFP_CLI_BENCH_TIMESTAMP_H

#include "base/thread_pool.h"
#include "model/vit.h"

enum {
    SFP_BENCH_QUERY,
    SFP_BENCH_SELECT,
    SFP_BENCH_ATTUNE,
    SFP_BENCH_FORWARD,
    SFP_BENCH_BACKWARD,
    SFP_BENCH_UPDATE,
    SFP_BENCH_BUFFER,
    SFP_BENCH_PARTS
};

extern const char *const sfp__bench_part_names[SFP_BENCH_PARTS];

typedef struct sfp_bench_timestamp {
    int rounds, coreset, replay, slots;
    double total;                 /* of the best round */
    double mean;                  /* over all rounds: what a method that works every few timestamps costs */
    double part[SFP_BENCH_PARTS]; /* of the same round */
    size_t rss;
} sfp_bench_timestamp;

/* With this selector and buffer method. */
sfp_status sfp__bench_timestamp_run(sfp_vit *vit, sfp_thread_pool *pool, int b, int rounds, const char *select,
                                    const char *buffer, sfp_bench_timestamp *out, sfp_error *err);

#endif
