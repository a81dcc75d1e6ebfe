/* A queue of ids of samples in the store that a live source must deliver (submitted.h). Any thread adds ids, the source takes them. */
#include "base/mem.h"
#include "stream/submitted.h"

#include <string.h>
#include <time.h>

static const long wait_ns = 50000000; /* maximum wait, so that the source checks its `stop` */

void sfp__offers_init(sfp__offers *o)
{
    pthread_condattr_t monotonic;
    pthread_mutex_init(&o->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&o->more, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void sfp__offers_done(sfp__offers *o)
{
    sfp__free(o->ids);
    pthread_cond_destroy(&o->more);
    pthread_mutex_destroy(&o->lock);
}

bool sfp__offers_take(sfp__offers *o, bool wait, uint64_t *id)
{
    pthread_mutex_lock(&o->lock);
    bool some = o->first < o->after_last && !o->paused;
    if (some) {
        *id = o->ids[o->first++];
    } else if (wait) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += wait_ns;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        (void)pthread_cond_timedwait(&o->more, &o->lock, &until);
    }
    pthread_mutex_unlock(&o->lock);
    return some;
}

bool sfp__offers_paused(sfp__offers *o)
{
    pthread_mutex_lock(&o->lock);
    bool paused = o->paused;
    pthread_mutex_unlock(&o->lock);
    return paused;
}

bool sfp__is_submitted(const sfp_source *s)
{
    return s->live && s->live->offers;
}

sfp_status sfp__submitted_offer(sfp_source *source, uint64_t id, sfp_error *err)
{
    sfp__offers *o = source->live->offers;
    pthread_mutex_lock(&o->lock);
    if (o->first == o->after_last)
        o->first = o->after_last = 0;
    if (o->first > 1024 && o->first > o->after_last / 2) {
        memmove(o->ids, o->ids + o->first, (o->after_last - o->first) * sizeof *o->ids);
        o->after_last -= o->first;
        o->first = 0;
    }
    bool fits = sfp__grow(&o->ids, sizeof *o->ids, o->after_last, o->after_last + 1, &o->capacity);
    if (fits)
        o->ids[o->after_last++] = id;
    pthread_cond_signal(&o->more);
    pthread_mutex_unlock(&o->lock);
    return sfp__check_memory(fits, err);
}

void sfp__submitted_pause(sfp_source *source, bool paused)
{
    sfp__offers *o = source->live->offers;
    pthread_mutex_lock(&o->lock);
    o->paused = paused;
    pthread_cond_signal(&o->more);
    pthread_mutex_unlock(&o->lock);
}
