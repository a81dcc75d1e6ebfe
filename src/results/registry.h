/* The registry is a SQLite file that records every run. Its path is $STREAMFP_REGISTRY, else $XDG_DATA_HOME/streamfp/runs.db,
 * else ~/.local/share/streamfp/runs.db. */
#ifndef SFP_RESULTS_REGISTRY_H
#define SFP_RESULTS_REGISTRY_H

#include "base/mem.h"
#include "io/json_write.h"
#include "results/result.h"

typedef struct sfp__registry sfp__registry;

/* Opens the registry for writing; creates the file and its parent directories if they are missing. */
sfp_status sfp__registry_open(sfp__registry **out, sfp_error *err);
/* Opens the registry for reading; creates nothing. SFP_ENOTFOUND: the file does not exist or is empty. */
sfp_status sfp__registry_open_readonly(sfp__registry **out, sfp_error *err);
void sfp__registry_close(sfp__registry *r);
DEFINE_OWNED_PTR(sfp__registry, sfp__registry_close)
/* Adds a run; if a run with the same directory and start time exists, replaces it. Sets *id (may be NULL) to the run number.
 * Several processes may call this at the same time. */
sfp_status sfp__registry_put(sfp__registry *r, const char *dir, const sfp_result *result, int64_t *id, sfp_error *err);

/* Calls fn for each run, newest first, with a JSON object: id, started, finished, running (a process has locked the directory),
 * method, data, seed, average_accuracy, forgetting, prequential_accuracy, samples_per_second, seconds, dir, gone (the directory does
 * not exist any more). limit: maximum number of runs; 0: all. */
sfp_status sfp__registry_list(sfp__registry *r, int limit, sfp_status (*fn)(void *ctx, const char *run, sfp_error *err),
                              void *ctx, sfp_error *err);
/* Writes these objects as the array "runs" into the open object of `j`. */
sfp_status sfp__registry_write(sfp__registry *r, int limit, sfp__json *j, sfp_error *err);
/* Removes a run by its number, all runs of a directory or, with NULL, all runs whose directory is gone. *count (may be NULL): how
 * many. SFP_ENOTFOUND: there is no such run. */
sfp_status sfp__registry_forget(sfp__registry *r, const char *number_or_dir, int *count, sfp_error *err);
/* Returns the stored text of result.json; the caller frees it with sfp__free. For a directory: the text of its newest run. */
sfp_status sfp__registry_json(sfp__registry *r, const char *number_or_dir, char **out, sfp_error *err);

#endif
