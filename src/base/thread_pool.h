/* A pool of worker threads, each of which runs whole pieces of work; libraries run single-threaded inside each worker. The size
 * of a piece is fixed and never depends on the number of threads, so results do not depend on it either. */
#ifndef SFP_BASE_THREAD_POOL_H
#define SFP_BASE_THREAD_POOL_H

#include "base/mem.h"

typedef struct sfp__thread_pool sfp__thread_pool;

/* threads < 1: one per processor that the process may use. The calling thread is one of them. */
sfp_status sfp__thread_pool_create(int threads, sfp__thread_pool **out, sfp_error *err);
/* Frees nothing in a child process if the pool has threads. */
void sfp__thread_pool_free(sfp__thread_pool *p);
DEFINE_OWNED_PTR(sfp__thread_pool, sfp__thread_pool_free)
/* fork copies no threads: in a child process, a run of a pool with more than one thread would never end. sfp__thread_pool_check refuses
 * such a pool in the words of the public interface. `what`: the object that has the pool. */
bool sfp__thread_pool_is_foreign(const sfp__thread_pool *p);
sfp_status sfp__thread_pool_check(const sfp__thread_pool *p, const char *what, sfp_error *err);
int sfp__thread_pool_size(const sfp__thread_pool *p);

/* Calls fn(ctx, piece, worker) once for every piece in [0, pieces), in any order, with worker in [0, threads). Returns when all
 * pieces are done. A pool does one run at a time: callers that share it wait for each other. */
typedef void (*sfp__thread_pool_fn)(void *ctx, int piece, int worker);
void sfp__thread_pool_run(sfp__thread_pool *p, int pieces, sfp__thread_pool_fn fn, void *ctx);
/* Runs phases * pieces pieces. The pieces of a phase begin when all pieces of the phases before it are done. This is for phases that take less
 * time than waking a thread: a worker that waits for a phase spins for a moment before it sleeps. */
void sfp__thread_pool_run_phases(sfp__thread_pool *p, int phases, int pieces, sfp__thread_pool_fn fn, void *ctx);

#endif
