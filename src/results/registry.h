/* Every run, in one SQLite file: $STREAMFP_REGISTRY, else $XDG_DATA_HOME/streamfp/runs.db, else ~/.local/share/streamfp/runs.db.
 */
#ifndef SFP_RESULTS_REGISTRY_H
#define SFP_RESULTS_REGISTRY_H

#include "base/mem.h"
#include "results/result.h"

typedef struct sfp__registry sfp__registry;

/* To write: makes the file, and the folders it lies in, where they are missing. */
sfp_status sfp__registry_open(sfp__registry **out, sfp_error *err);
/* To read: makes nothing. SFP_ENOTFOUND: there is none yet. */
sfp_status sfp__registry_open_readonly(sfp__registry **out, sfp_error *err);
void sfp__registry_close(sfp__registry *r);
DEFINE_OWNED_PTR(sfp__registry, sfp__registry_close)
/* Adds or, for the same directory and start, replaces; the run's number comes back. Several processes may do so at once. */
sfp_status sfp__registry_put(sfp__registry *r, const char *dir, const sfp_result *result, int64_t *id, sfp_error *err);

typedef struct sfp__registry_row {
    int64_t id;
    char dir[1024], started[32], method[64], data[256];
    uint64_t seed;
    double average_accuracy, forgetting, prequential_accuracy, samples_per_second, seconds;
    bool finished;
} sfp__registry_row;

/* Newest first; fn returns false to stop. */
sfp_status sfp__registry_list(sfp__registry *r, int limit, bool (*fn)(void *ctx, const sfp__registry_row *row), void *ctx,
                              sfp_error *err);
/* The stored result.json text of a run (by number, or by directory); sfp__free. */
sfp_status sfp__registry_json(sfp__registry *r, const char *which, char **out, sfp_error *err);

#endif
