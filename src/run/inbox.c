#include "run/inbox.h"

#include "base/mem.h"
#include "base/monotonic.h"
#include "stream/source_internal.h"

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
    sfp__names renamed; /* keeps the names of renamed classes */
    uint8_t *known;     /* (known_capacity) 1: an image with this label of the source has arrived */
    size_t known_capacity;
    double rate_at; /* of the last complete batch */
    sfp__inbox_stats stats;
};

/* --------------------------------------------------------------------- lists */

void sfp__arrival_free(sfp__arrival *a)
{
    if (!a)
        return;
    sfp__free(a->name);
    sfp__free(a->why);
    sfp__free(a->rgb);
    sfp__free(a);
}

void sfp__arrival_list_put(sfp__arrival_list *l, sfp__arrival *a)
{
    a->next = NULL;
    if (l->last)
        l->last->next = a;
    else
        l->first = a;
    l->last = a;
    l->count++;
}

sfp__arrival *sfp__arrival_list_take(sfp__arrival_list *l)
{
    sfp__arrival *a = l->first;
    if (!a)
        return NULL;
    l->first = a->next;
    if (!l->first)
        l->last = NULL;
    l->count--;
    a->next = NULL;
    return a;
}

void sfp__arrival_list_done(sfp__arrival_list *l)
{
    for (sfp__arrival *a; (a = sfp__arrival_list_take(l));)
        sfp__arrival_free(a);
}

/* ---------------------------------------------------- the queues (lock is held) */

static void discard(sfp__inbox *b, sfp__arrival *a, sfp__discard_reason fate)
{
    sfp__free(a->rgb);
    a->rgb = NULL;
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

/* Discards up to one batch of images, from the image with this number on. Returns whether there was one: urgent images stay. */
static bool drop_batch(sfp__inbox *b, int from)
{
    sfp__arrival_list kept = {0};
    int i = 0, dropped = 0;
    for (sfp__arrival *a; (a = sfp__arrival_list_take(&b->labelled)); i++) {
        if (i >= from && dropped < b->opt.batch && !a->urgent) {
            discard(b, a, SFP__DISCARD_DROPPED);
            dropped++;
        } else {
            sfp__arrival_list_put(&kept, a);
        }
    }
    b->labelled = kept;
    return dropped > 0;
}

/* Called when a batch may have become complete. If there are too many, the policy drops one or blocks the source. */
static void drop_excess_batches(sfp__inbox *b, bool may_wait)
{
    if (!b->opt.pool && b->opt.policy == SFP__QUEUE_BLOCK) {
        while (may_wait && complete(b) > queue_limit(b) && !atomic_load(&b->stop))
            wait_for_change(b, poll_seconds);
        return;
    }
    for (bool some = true; some && complete(b) > queue_limit(b);) {
        bool oldest = b->opt.pool || (b->opt.policy == SFP__QUEUE_DROP_OLDEST && queue_limit(b) > 0);
        some = drop_batch(b, oldest ? 0 : b->labelled.count - b->opt.batch);
    }
}

static void put_labelled(sfp__inbox *b, sfp__arrival *a, bool may_wait)
{
    double took = fmax(a->at - b->rate_at, 1e-9), rate = b->opt.batch / took; /* if the batch is complete now */
    sfp__arrival_list_put(&b->labelled, a);
    pthread_cond_broadcast(&b->changed);
    if (b->labelled.count % b->opt.batch != 0)
        return;
    b->stats.rate = isnan(b->stats.rate) ? rate : 0.7 * b->stats.rate + 0.3 * rate; /* a moving average over the last batches */
    b->rate_at = a->at;
    drop_excess_batches(b, may_wait);
}

static void put_unlabelled(sfp__inbox *b, sfp__arrival *a)
{
    while (b->unlabelled.count >= b->opt.unlabelled && !atomic_load(&b->stop))
        wait_for_change(b, poll_seconds);
    sfp__arrival_list_put(&b->unlabelled, a);
    pthread_cond_broadcast(&b->changed);
}

/* ---------------------------------------------------------------- the reader */

/* Finds the sample of the image in the store, or adds one. A source that can deliver an image again has done this itself. For other sources, an
 * image with the name of a sample that waits for a label or was dropped is this sample, sent again (for example after a kill). */
static sfp_status store_sample(sfp__inbox *b, const sfp__origin *origin, const sfp__raw_image *p, sfp__arrival *a, sfp_error *err)
{
    a->id = origin->id;
    if (origin->stored)
        return SFP_OK;
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    const sfp__file_stamp none = {0};
    sfp__digest digest = sfp__digest_bytes((sfp__digest){0}, p->bytes, p->bytes ? p->size : 0);
    bool found = false;
    if (p->bytes)
        TRY(sfp__store_find(b->opt.store, a->name, &row, &found, err));
    bool again = found && sfp__digest_equal(&row.digest, &digest);
    bool waits = again && row.standing == SFP__WAITING && !row.label && a->class_name;
    if (!waits && !(again && row.standing == SFP__DROPPED))
        return sfp__store_add(b->opt.store, a->name, &none, p->bytes ? &digest : NULL, a->class_name, &a->id, err);
    a->id = row.id;
    a->urgent = waits;
    return sfp__store_moved(b->opt.store, row.id, a->name, &none, a->class_name, err);
}

/* Replaces the name of a renamed class by its present one. */
static sfp_status follow_rename(sfp__inbox *b, const char **name, sfp_error *err)
{
    OWNED char *class = NULL;
    int32_t number;
    if (*name)
        TRY(sfp__store_class(b->opt.store, *name, &class, err));
    if (!class)
        return SFP_OK;
    TRY(sfp__names_add(&b->renamed, class, strlen(class), &number, err));
    *name = b->renamed.name[number];
    return SFP_OK;
}

/* Decodes an image that the source has delivered. An image that cannot be decoded, or that the source could not read, is discarded. Frees *p. */
static sfp_status make_arrival(sfp__inbox *b, const sfp_record *record, sfp__raw_image *p, double at, sfp__arrival **out,
                               sfp_error *err)
{
    sfp__origin origin = {0};
    size_t bytes = 3 * (size_t)b->opt.size * (size_t)b->opt.size;
    bool lost = b->source->live->lost;
    OWNED_PTR(sfp__arrival_free) sfp__arrival *a = NULL;
    b->source->ops->origin(b->source, &origin);
    TRY(sfp__alloc(&a, 1, sizeof *a, err));
    TRY(sfp__check_memory((a->name = sfp__strdup(origin.name)), err));
    a->at = origin.at > 0 ? origin.at : at;
    a->urgent = origin.urgent;
    a->label = record->label;
    a->class_name = record->label >= 0 ? b->source->class_names[record->label] : NULL;
    TRY(follow_rename(b, &a->class_name, err));
    if (lost || p->bytes)
        TRY(store_sample(b, &origin, p, a, err));
    a->lost = lost;
    if (lost)
        a->fate = SFP__DISCARD_SKIPPED;
    if (p->bytes) {
        char where[512];
        TRY(sfp__alloc(&a->rgb, bytes, 1, err));
        sfp_status status = sfp__raw_image_fit(p, sfp__source_display_name(b->source, -1, where, sizeof where), b->opt.size,
                                               b->opt.resize, a->rgb, err);
        if (status == SFP_ENOMEM)
            return status;
        if (status)
            a->fate = SFP__DISCARD_SKIPPED;
    }
    *out = TAKE(a);
    return SFP_OK;
}

/* Is this the first image of its class in this process? */
static bool is_first_of_class(sfp__inbox *b, int32_t label)
{
    size_t before = b->known_capacity;
    if ((size_t)label >= before) {
        if (!sfp__grow(&b->known, 1, before, (size_t)label + 1, &b->known_capacity))
            return true;
        memset(b->known + before, 0, b->known_capacity - before);
    }
    bool first = !b->known[label];
    b->known[label] = 1;
    return first;
}

static void put(sfp__inbox *b, sfp__arrival *a)
{
    if (a->fate != SFP__DISCARD_NONE) {
        discard(b, a, a->fate);
    } else if (a->rgb && a->label >= 0) {
        a->urgent |= is_first_of_class(b, a->label);
        put_labelled(b, a, true);
    } else {
        put_unlabelled(b, a);
    }
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
        if (!status && errors) /* the source has recovered, so its errors become a warning */
            sfp__source_warn_live(b->source, "%s; the stream continues", b->stats.last_error);
        if (status && b->source->live->lost)
            status = SFP_OK; /* make_arrival discards the sample, and err says why */
        bool taken = !status;
        if (taken)
            status = make_arrival(b, &record, &p, arrived, &a, &err);
        if (!status && a->fate == SFP__DISCARD_SKIPPED)
            a->why = sfp__strdup(err.message);
        sfp__raw_image_done(&p);
        double decoded = sfp__monotonic_seconds();
        pthread_mutex_lock(&b->lock);
        b->stats.decode += decoded - arrived;
        if (status)
            memcpy(b->stats.last_error, err.message, sizeof b->stats.last_error);
        else
            put(b, a);
        pthread_mutex_unlock(&b->lock);
        errors = !status ? 0 : taken ? ERRORS_MAX : errors + 1; /* an image that cannot be recorded must not be lost in silence */
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
    if (n > 0 && (!b->opt.pool || n <= b->backlog))
        return b->opt.batch;
    if (n > 0)
        return b->opt.batch * (n < b->opt.pool ? n : b->opt.pool);
    bool last = b->ended && b->unlabelled.count == 0; /* a late label may add an image */
    bool asked = b->opt.max_wait < INFINITY && b->unlabelled.count > 0;
    bool waited = b->labelled.first && sfp__monotonic_seconds() - b->labelled.first->at >= b->opt.max_wait;
    return last || asked || waited ? b->labelled.count : 0;
}

/* The lag of batches, oldest first; the last one may be short. The lag of a batch is that of its first image. */
static sfp__lag lag_of(const sfp__arrival_list *list, int batch)
{
    sfp__lag lag = {0};
    double now = sfp__monotonic_seconds(), oldest = 0;
    int i = 0;
    for (const sfp__arrival *a = list->first; a; a = a->next)
        if (i++ % batch == 0) {
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
    out->batch_first = n > 0 && complete(b) == 0;
    while (n-- > 0)
        sfp__arrival_list_put(&out->batch, sfp__arrival_list_take(&b->labelled));
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
    a->urgent = true;
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
    b->rate_at = sfp__monotonic_seconds();
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
    sfp__free(b->known);
    sfp__names_done(&b->renamed);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    sfp__free(b);
}
