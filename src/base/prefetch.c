#include "base/prefetch.h"

#include "base/mem.h"
#include "base/monotonic.h"

#include <pthread.h>
#include <stdbool.h>

struct sfp__prefetcher {
    sfp__prefetcher_options opt;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t changed;
    int64_t *made;  /* (depth) the item that each slot holds; -1: none */
    int64_t next;   /* the item being made, or the next one to make */
    int64_t lowest; /* items below this one are released */
    bool stop;
};

static void *thread_main(void *arg)
{
    sfp__prefetcher *a = arg;
    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        if (a->next < a->lowest)
            a->next = a->lowest;
        int64_t k = a->next;
        if (k >= a->opt.end || k - a->lowest >= a->opt.depth) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        pthread_mutex_unlock(&a->lock);
        a->opt.make(a->opt.ctx, k);
        pthread_mutex_lock(&a->lock);
        a->made[k % a->opt.depth] = k;
        a->next = k + 1;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

DEFINE_OWNED_PTR(sfp__prefetcher, sfp__prefetcher_free)

sfp_status sfp__prefetcher_create(const sfp__prefetcher_options *o, sfp__prefetcher **out, sfp_error *err)
{
    OWNED_PTR(sfp__prefetcher_free) sfp__prefetcher *a = NULL;
    TRY(sfp__alloc(&a, 1, sizeof *a, err));
    a->opt = *o;
    a->next = a->lowest = o->first;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    TRY(sfp__alloc(&a->made, (size_t)o->depth, sizeof *a->made, err));
    for (int i = 0; i < o->depth; i++)
        a->made[i] = -1;
    a->started = pthread_create(&a->thread, NULL, thread_main, a) == 0;
    if (!a->started)
        return sfp__fail(err, SFP_ELIMIT, "cannot start the thread that prefetches each %s", o->item_name);
    *out = TAKE(a);
    return SFP_OK;
}

void sfp__prefetcher_free(sfp__prefetcher *a)
{
    if (!a)
        return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    if (a->started)
        pthread_join(a->thread, NULL);
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    sfp__free(a->made);
    sfp__free(a);
}

sfp_status sfp__prefetcher_take(sfp__prefetcher *a, int64_t item, double *wait_seconds, sfp_error *err)
{
    pthread_mutex_lock(&a->lock);
    if (item < a->lowest || item - a->lowest >= a->opt.depth || item >= a->opt.end) {
        int64_t lowest = a->lowest;
        pthread_mutex_unlock(&a->lock);
        return sfp__fail(err, SFP_EINVAL, "%s is %lld, expected %lld to %lld", a->opt.item_name, (long long)item,
                         (long long)lowest, (long long)(lowest + a->opt.depth - 1));
    }
    const int64_t *made = &a->made[item % a->opt.depth];
    if (*made != item) {
        double begin = sfp__monotonic_seconds();
        while (*made != item)
            pthread_cond_wait(&a->changed, &a->lock);
        *wait_seconds += sfp__monotonic_seconds() - begin;
    }
    pthread_mutex_unlock(&a->lock);
    return SFP_OK;
}

void sfp__prefetcher_release(sfp__prefetcher *a, int64_t item)
{
    pthread_mutex_lock(&a->lock);
    if (item > a->lowest) {
        a->lowest = item;
        pthread_cond_broadcast(&a->changed);
    }
    pthread_mutex_unlock(&a->lock);
}
