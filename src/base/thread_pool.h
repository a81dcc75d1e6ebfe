/* The one thread discipline: a pool of worker threads that take whole pieces of
 * work; libraries below run single-threaded inside each worker. Pieces are cut
 * by a fixed grain, never by the number of threads, so results do not depend
 * on it. */
#ifndef SFP_BASE_THREAD_POOL_H
#define SFP_BASE_THREAD_POOL_H

#include "base/mem.h"

typedef struct sfp__thread_pool sfp__thread_pool;

/* threads < 1: as many as the process may run on. The caller is one of them. */
sfp_status sfp__thread_pool_create(int threads, sfp__thread_pool **out, sfp_error *err);
void sfp__thread_pool_free(sfp__thread_pool *p);
DEFINE_OWNED_PTR(sfp__thread_pool, sfp__thread_pool_free)
int sfp__thread_pool_size(const sfp__thread_pool *p);

/* fn(ctx, piece, worker) for every piece in [0, pieces), each once, any order, worker in [0, threads). Returns when all
 * are done. One run at a time a pool: callers that share one wait for each other. */
typedef void (*sfp__thread_pool_fn)(void *ctx, int piece, int worker);
void sfp__thread_pool_run(sfp__thread_pool *p, int pieces, sfp__thread_pool_fn fn, void *ctx);

#endif
