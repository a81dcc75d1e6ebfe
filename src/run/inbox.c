#include "run/inbox.h"

#include "base/mem.h"
#include "base/monotonic.h"
#include "stream/source.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { ERRORS_MAX = 3 };                /* consecutive errors after which the source has failed */
enum { DISCARDED_MAX = 1024 };          /* discarded images after which sfp__inbox_take returns although there is no batch */
static const double poll_seconds = 0.1; /* between checks of stop */

struct sfp__inbox {
    sfp_source *source;
    sfp__inbox_options opt;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    atomic_bool stop;
    bool idle, ended;  /* the learner waits in sfp__inbox_take; the source has ended */
    int backlog;       /* sfp__inbox_set_backlog */
    int warning_count; /* warnings of the source at the last sfp__inbox_take */
    sfp__arrival_list labelled, unlabelled, discarded;
    double last_at; /* of the last arrival */
    double rate_at; /* of the last complete batch */
    sfp__inbox_stats stats;
};

/* --------------------------------------------------------------------- lists */

static void move_first(sfp__arrival_list *from, int n, sfp__arrival_list *to)
{
    for (int i = 0; i < n; i++)
        sfp__arrival_list_put(to, sfp__arrival_list_take(from));
}

/* ---------------------------------------------------- the queues (lock is held) */

static void discard(sfp__inbox *b, sfp__arrival *a, sfp__discard_reason fate)
{
    sfp__free(a->rgb);
    a->rgb = NULL;
    sfp__raw_image_done(&a->kept);
    a->fate = fate;
    sfp__arrival_list_put(&b->discarded, a);
}

static int complete(const sfp__inbox *b)
{
    return b->labelled.count / b->opt.batch;
}

/* Maximum number of complete batches at present. */
static int queue_limit(const sfp__inbox *b)
{
    return b->opt.pool ? b->opt.pool : b->opt.queue + (b->idle ? 1 : 0);
}

static void wait_for_change(sfp__inbox *b, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    double at = (double)until.tv_nsec * 1e-9 + seconds;
    until.tv_sec += (time_t)at;
    until.tv_nsec = (long)((at - floor(at)) * 1e9);
    (void)pthread_cond_timedwait(&b->changed, &b->lock, &until);
}

/* Discards the newest batch. */
static void drop_newest(sfp__inbox *b)
{
    sfp__arrival_list kept = {0};
    move_first(&b->labelled, b->labelled.count - b->opt.batch, &kept);
    for (sfp__arrival *a; (a = sfp__arrival_list_take(&b->labelled));)
        discard(b, a, SFP_DISCARD_DROPPED);
    b->labelled = kept;
}

/* Called when a batch may have become complete. If there are too many, the policy drops one or blocks the source. */
static void drop_excess_batches(sfp__inbox *b, bool may_wait)
{
    if (!b->opt.pool && b->opt.policy == SFP_QUEUE_BLOCK) {
        while (may_wait && complete(b) > queue_limit(b) && !atomic_load(&b->stop))
            wait_for_change(b, poll_seconds);
        return;
    }
    while (complete(b) > queue_limit(b)) {
        if (b->opt.pool || (b->opt.policy == SFP_QUEUE_DROP_OLDEST && queue_limit(b) > 0)) {
            for (int i = 0; i < b->opt.batch; i++)
                discard(b, sfp__arrival_list_take(&b->labelled), SFP_DISCARD_DROPPED);
        } else {
            drop_newest(b);
        }
    }
}

/* Updates the arrival rate, a moving average over the last batches. */
static void update_rate(sfp__inbox *b, double now)
{
    double took = now - b->rate_at, rate = b->opt.batch / (took > 1e-9 ? took : 1e-9);
    b->stats.rate = isnan(b->stats.rate) ? rate : 0.7 * b->stats.rate + 0.3 * rate;
    b->rate_at = now;
}

static void put_labelled(sfp__inbox *b, sfp__arrival *a, bool may_wait)
{
    double at = a->at;
    sfp__arrival_list_put(&b->labelled, a);
    b->last_at = at;
    pthread_cond_broadcast(&b->changed);
    if (b->labelled.count % b->opt.batch == 0) {
        update_rate(b, at);
        drop_excess_batches(b, may_wait);
    }
}

static void put_unlabelled(sfp__inbox *b, sfp__arrival *a)
{
    bool block = !b->opt.pool && b->opt.policy == SFP_QUEUE_BLOCK;
    while (block && b->unlabelled.count >= b->opt.unlabelled && !atomic_load(&b->stop))
        wait_for_change(b, poll_seconds);
    if (!block && b->unlabelled.count >= b->opt.unlabelled) {
        sfp__arrival *oldest = sfp__arrival_list_take(&b->unlabelled);
        if (oldest->rgb)
            discard(b, oldest, SFP_DISCARD_EXPIRED);
        else
            sfp__arrival_free(oldest); /* a late label */
    }
    sfp__arrival_list_put(&b->unlabelled, a);
    pthread_cond_broadcast(&b->changed);
}

/* ---------------------------------------------------------------- the reader */

static void record_error(sfp__inbox *b, const sfp_error *err)
{
    if (!b->stats.first_error[0])
        memcpy(b->stats.first_error, err->message, sizeof b->stats.first_error);
    memcpy(b->stats.last_error, err->message, sizeof b->stats.last_error);
}

/* Decodes the image that next delivered. One that cannot be decoded, or that the source lost, is discarded. Frees *p. */
static sfp__arrival *make_arrival(sfp__inbox *b, const sfp_record *record, sfp__raw_image *p, double at, sfp_error *err)
{
    sfp__origin origin = {0};
    size_t bytes = 3 * (size_t)b->opt.size * (size_t)b->opt.size;
    const char *name = sfp__source_origin(b->source, &origin);
    sfp__arrival *a = sfp__calloc(1, sizeof *a);
    if (!a || !(a->name = sfp__strdup(name)) || (p->bytes && !(a->rgb = sfp__malloc(bytes)))) {
        (void)sfp__fail_nomem(err);
        sfp__raw_image_done(p);
        sfp__arrival_free(a);
        return NULL;
    }
    a->origin = origin;
    a->at = at;
    a->label = record->label;
    a->class_name = record->label >= 0 ? b->source->class_names[record->label] : NULL;
    if (b->source->live->lost)
        a->fate = SFP_DISCARD_SKIPPED;
    if (p->bytes) {
        char where[512];
        sfp_status status = sfp__raw_image_fit(p, sfp__source_display_name(b->source, -1, where, sizeof where), b->opt.size,
                                               b->opt.resize, a->rgb, err);
        if (status == SFP_ENOMEM) {
            sfp__raw_image_done(p);
            sfp__arrival_free(a);
            return NULL;
        }
        if (status)
            a->fate = SFP_DISCARD_SKIPPED;
        else if (b->opt.keep_encoded && p->kind == SFP_RAW_IMAGE_ENCODED && !p->has_box) {
            a->kept = *p;
            *p = (sfp__raw_image){0};
        }
    }
    sfp__raw_image_done(p);
    return a;
}

static void put(sfp__inbox *b, sfp__arrival *a)
{
    bool known = b->opt.ledger && sfp__ledger_id(b->opt.ledger, a->origin.file_key, &a->origin.id);
    if (!known && (a->rgb || a->fate != SFP_DISCARD_NONE))
        a->origin.id = b->stats.next_id++;
    if (a->fate != SFP_DISCARD_NONE)
        discard(b, a, a->fate);
    else if (a->rgb && a->label >= 0)
        put_labelled(b, a, true);
    else
        put_unlabelled(b, a);
}

/* Sleeps until the next image is due. An image that was blocked or took long to make delays the following ones. */
static void wait_until_due(sfp__inbox *b, double *due)
{
    if (!(b->opt.arrival_rate > 0))
        return;
    double now = sfp__monotonic_seconds();
    *due = fmax(*due + 1 / b->opt.arrival_rate, now - 1); /* at most one second is made up for */
    for (; now < *due && !atomic_load(&b->stop); now = sfp__monotonic_seconds()) {
        double wait = fmin(*due - now, poll_seconds);
        struct timespec pause = {.tv_nsec = (long)(wait * 1e9)};
        (void)nanosleep(&pause, NULL);
    }
}

static void *work(void *arg)
{
    sfp__inbox *b = arg;
    double due = sfp__monotonic_seconds();
    sfp_status status = SFP_OK, failed = SFP_OK; /* failed: status of the previous call */
    for (int errors = 0; errors < ERRORS_MAX && status != SFP_ENOMEM && !atomic_load(&b->stop);) {
        sfp_record record = {.label = -1};
        sfp__raw_image p = {0};
        sfp_error err = {0};
        bool end = false;
        sfp__arrival *a = NULL;
        wait_until_due(b, &due);
        status = sfp__source_next(b->source, &record, &p, &end, &err);
        double arrived = sfp__monotonic_seconds();
        if (!status && end) { /* it failed if its last call failed, unless it was stopped */
            status = atomic_load(&b->stop) ? SFP_OK : failed;
            break;
        }
        if (!status && errors) /* errors that passed are only warnings */
            sfp__source_warn_live(b->source, "%s; the stream continues", b->stats.last_error);
        if (status && b->source->live->lost)
            status = SFP_OK; /* err has the reason */
        if (!status && !(a = make_arrival(b, &record, &p, arrived, &err)))
            status = SFP_ENOMEM;
        double decoded = sfp__monotonic_seconds();
        pthread_mutex_lock(&b->lock);
        b->stats.decode += decoded - arrived;
        if (status || a->fate != SFP_DISCARD_NONE)
            record_error(b, &err);
        if (!status)
            put(b, a);
        pthread_mutex_unlock(&b->lock);
        errors = status ? errors + 1 : 0;
        failed = status;
    }
    pthread_mutex_lock(&b->lock);
    b->ended = true;
    b->stats.status = status;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

/* --------------------------------------------------------------------- taking */

/* The number of labelled images that can be taken now; 0: none yet. */
static int ready(const sfp__inbox *b)
{
    int n = complete(b);
    bool paused = b->source->ops->pause > 0 && sfp__monotonic_seconds() - b->last_at >= b->source->ops->pause;
    if (n > 0 && (!b->opt.pool || n <= b->backlog))
        return b->opt.batch;
    if (n > 0)
        return b->opt.batch * (n < b->opt.pool ? n : b->opt.pool);
    bool last = b->ended && b->unlabelled.count == 0; /* a late label may add an image */
    return last || paused ? b->labelled.count : 0;
}

/* The lag of batches, oldest first; the last one may be short. The lag of a batch is that of its last image. */
static sfp__lag lag_of(const sfp__arrival_list *list, int batch)
{
    sfp__lag lag = {0};
    double now = sfp__monotonic_seconds(), oldest = 0;
    int i = 0;
    for (const sfp__arrival *a = list->first; a; a = a->next)
        if (++i % batch == 0 || !a->next) {
            sfp__lag_add(&lag, now - a->at);
            oldest = lag.served == 1 ? lag.last : oldest;
        }
    lag.last = oldest;
    return lag;
}

static bool is_set(const atomic_int *stop)
{
    return stop && atomic_load(stop);
}

void sfp__inbox_take(sfp__inbox *b, const atomic_int *stop, double until, sfp__inbox_output *out)
{
    double begin = sfp__monotonic_seconds();
    int n;
    *out = (sfp__inbox_output){0};
    pthread_mutex_lock(&b->lock);
    b->idle = true;
    pthread_cond_broadcast(&b->changed); /* the queue has space for one more batch */
    while (!(n = ready(b)) && b->unlabelled.count == 0 && b->discarded.count < DISCARDED_MAX && !b->ended && !is_set(stop) &&
           atomic_load(&b->source->live->warning_count) == b->warning_count && sfp__monotonic_seconds() < until)
        wait_for_change(b, poll_seconds);
    b->idle = false;
    b->warning_count = atomic_load(&b->source->live->warning_count);
    if (is_set(stop))
        n = 0;
    move_first(&b->labelled, n, &out->batch);
    out->lag = lag_of(&out->batch, b->opt.batch);
    out->unlabelled = b->unlabelled;
    b->unlabelled = (sfp__arrival_list){0};
    out->discarded = b->discarded;
    b->discarded = (sfp__arrival_list){0};
    out->count = out->batch.count + out->unlabelled.count + out->discarded.count;
    out->waits = complete(b) > 0;
    out->end = b->ended && b->labelled.count == 0;
    b->stats.wait_seconds += sfp__monotonic_seconds() - begin;
    pthread_cond_broadcast(&b->changed); /* wakes a blocked source */
    pthread_mutex_unlock(&b->lock);
}

void sfp__inbox_set_backlog(sfp__inbox *b, int batches)
{
    pthread_mutex_lock(&b->lock);
    b->backlog = batches;
    pthread_mutex_unlock(&b->lock);
}

void sfp__inbox_join(sfp__inbox *b, sfp__arrival *a)
{
    pthread_mutex_lock(&b->lock);
    a->at = sfp__monotonic_seconds();
    b->idle = true; /* the learner calls this, so it has time for a batch */
    put_labelled(b, a, false);
    b->idle = false;
    pthread_mutex_unlock(&b->lock);
}

sfp__inbox_stats sfp__inbox_get_stats(sfp__inbox *b)
{
    pthread_mutex_lock(&b->lock);
    sfp__inbox_stats s = b->stats;
    pthread_mutex_unlock(&b->lock);
    return s;
}

/* -------------------------------------------------------- creating and freeing */

sfp_status sfp__inbox_create(sfp_source *s, const sfp__inbox_options *opt, sfp__inbox **out, sfp_error *err)
{
    sfp__inbox *b = sfp__calloc(1, sizeof *b);
    TRY(sfp__check_memory(b, err));
    pthread_condattr_t monotonic;
    b->source = s;
    b->opt = *opt;
    b->stats.rate = NAN;
    b->stats.next_id = opt->first_id;
    b->last_at = b->rate_at = sfp__monotonic_seconds();
    pthread_mutex_init(&b->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&b->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    s->live->stop = &b->stop;
    b->started = pthread_create(&b->thread, NULL, work, b) == 0;
    if (!b->started) {
        sfp__inbox_free(b);
        return sfp__fail(err, SFP_ELIMIT, "cannot start the reading thread");
    }
    *out = b;
    return SFP_OK;
}

void sfp__inbox_free(sfp__inbox *b)
{
    if (!b)
        return;
    atomic_store(&b->stop, true);
    pthread_mutex_lock(&b->lock);
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    if (b->started)
        pthread_join(b->thread, NULL);
    b->source->live->stop = NULL;
    sfp__arrival_list_done(&b->labelled);
    sfp__arrival_list_done(&b->unlabelled);
    sfp__arrival_list_done(&b->discarded);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    sfp__free(b);
}
