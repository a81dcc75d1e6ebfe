/* Arrivals of a message log (stream/log.h): many workers learn from one log together, each message exactly once (docs/scale.md).
 *
 *     read -> learn -> write everything learned in the unit to a new file of the share -> commit {messages, name of the file}
 *
 * A unit has its own sums: it is a worker (Redis) or a partition (Kafka). The file of a unit contains everything learned in it so far, and a
 * commit is one atomic operation of the log. If a worker crashes before the commit, its new file is not used and the messages are delivered
 * again; after the commit nothing is missing. A run on a log has no store of samples: the log and the share contain everything that a worker
 * needs to resume. The log refuses a commit (it fences the worker) if another worker has taken over one of the messages. The worker then discards
 * what it has not committed, and loads the committed file.
 *
 *     DIR/log                          the log, as KIND:STREAM@ADDRESS/GROUP
 *     DIR/model.safetensors            a learner without samples: its backbone and settings are those of all workers
 *     DIR/UNIT.SEQUENCE.N.safetensors  what a unit has learned: the committed file, the one before, and files that were not committed */
#include "base/monotonic.h"
#include "base/rng.h"
#include "io/directory.h"
#include "io/file.h"
#include "learner/state/saved_sums.h"
#include "run/run_internal.h"
#include "run/share.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* After this many deliveries without a commit, a message may be what stops workers: it is learned in a batch of its own, then set aside. */
enum { TRIES_ALONE = 3, TRIES_MAX = 10 };
static const double poll_seconds = 0.2; /* maximum time of a read, so that a stop is noticed */
static const double pause_max = 5;      /* maximum time between two attempts to reach the log or the share */

typedef struct shared {
    sfp__arrivals base;
    sfp__classes *classes;
    sfp__learner *learner;
    sfp__log *log;
    bool connected, reported;
    double retry_at, pause; /* the next attempt to reach the log or the share, and the pause before it */
    /* the unit */
    char unit[SFP__LOG_NAME_MAX];       /* "": none */
    bool loaded;                        /* false: its messages were read, but what is committed of it is not known yet */
    sfp__share_value at;                /* committed */
    char committed[SFP__LOG_VALUE_MAX]; /* its value in the log */
    char attempted[SFP__LOG_VALUE_MAX]; /* a commit without a reply; "": none */
    uint64_t samples, digest;           /* learned, committed or not */
    /* messages: read -> taken (delivered) -> held (learned or set aside, not committed) */
    sfp__messages read, taken, held;
    double read_at, held_at; /* when the first message of `read` and of `held` was read */
    double save_seconds;
    char sought_unit[SFP__LOG_NAME_MAX]; /* the last unit that was read again, from the offset `sought` on */
    int64_t sought;
    bool unanswered;  /* partitions: a message before those in `held` has no answer yet, so all are read again */
    bool alone;       /* the delivery must be committed at once */
    unsigned process; /* a random number that identifies this process */
    uint64_t offered;
    pthread_mutex_t lock;                  /* guards `shown` */
    sfp__worker_numbers now, shown;        /* shown: a copy of `now` for other threads */
    sfp__sample *samples_out;              /* (batch) */
    uint8_t *rgb;                          /* (batch + SFP__GROUP, S, S, 3) */
    const sfp__message *asked[SFP__GROUP]; /* of the delivery, to be answered */
    struct {                               /* the state that answers (--answer-with); learner NULL: none */
        sfp__learner *learner;
        sfp_predictor *predictor;
        struct timespec changed; /* of its file */
        double looked_at;
    } sum;
} shared;

static void free_shared(sfp__arrivals *base)
{
    shared *a = (shared *)base;
    sfp__messages_done(&a->read);
    sfp__messages_done(&a->taken);
    sfp__messages_done(&a->held);
    sfp__predictor_free(a->sum.predictor);
    pthread_mutex_destroy(&a->lock);
    sfp__free(a->samples_out);
    sfp__free(a->rgb);
    sfp__free(a);
}

/* Schedules another attempt, because the log or the share cannot be reached. Until it succeeds nothing is learned, and nothing is lost. */
static void schedule_retry(shared *a, const char *why)
{
    a->pause = fmin(pause_max, a->pause > 0 ? 2 * a->pause : 0.1);
    a->retry_at = sfp__monotonic_seconds() + a->pause;
    if (!a->reported)
        sfp__plan_warn(a->base.plan, "%s; nothing is learned until this works again", why);
    a->reported = true;
}

static void lose_connection(shared *a, const sfp_error *why)
{
    a->connected = false;
    sfp__messages_done(&a->read); /* they are delivered again */
    schedule_retry(a, why->message);
}

static void report_recovery(shared *a)
{
    if (a->reported)
        sfp__plan_info(a->base.plan, "%s: learning continues", a->base.plan->data);
    a->reported = false;
    a->pause = 0;
}

/* --------------------------------------------------------------------- the unit */

/* Loads the sums of a file. All its classes have labels of the run before, so that those of the learner are not changed. */
static sfp_status load_file(shared *a, const char *name, sfp_error *err)
{
    char path[PATH_MAX];
    OWNED_BY(sfp__saved_sums_done) sfp__saved_sums s = {0};
    int32_t label;
    TRY(sfp__path_print(path, sizeof path, err, "%s/%s", a->base.plan->opt->share, name));
    TRY(sfp__saved_sums_read(&(const sfp__saved_file){.path = path}, NULL, NULL, NULL, &s, err));
    for (int c = 0; c < s.names.count; c++)
        if (s.names.name[c])
            TRY(sfp__classes_number(a->classes, s.names.name[c], &label, err));
    return sfp__learner_load(a->learner, path, err);
}

/* Loads the file before the committed one, which is damaged. A log with offsets delivers the missing messages again; otherwise a warning tells
 * how many samples are missing. */
static sfp_status load_previous(shared *a, const char *unit, const sfp_error *why, sfp_error *err)
{
    char path[PATH_MAX], method[SFP__NAME_MAX];
    OWNED char *text = NULL;
    sfp__share_value now = a->at;
    if (!*now.previous)
        return sfp__fail(err, SFP_EFORMAT, "%s; there is no file before it", why->message);
    TRY(sfp__path_print(path, sizeof path, err, "%s/%s", a->base.plan->opt->share, now.previous));
    sfp_status status = sfp__checkpoint_peek(path, method, sizeof method, &text, err);
    if (!status)
        status = sfp__share_parse(text, unit, &a->at, err);
    if (!status)
        status = load_file(a, a->at.file, err);
    if (status)
        return sfp__fail_prefix(err, status, "%s; the file before it cannot be used either", why->message);
    sfp__plan_warn(a->base.plan, "%s; the file before it is used: %llu samples are missing%s", why->message,
                   (unsigned long long)(now.samples - a->at.samples), a->at.offset >= 0 ? " and are read again" : "");
    return SFP_OK;
}

/* Loads the committed file of the unit, and discards everything that was learned and not committed. */
static sfp_status load_unit(shared *a, const char *unit, sfp_error *err)
{
    const char *dir = a->base.plan->opt->share;
    char *value = a->committed, mine[SFP__LOG_NAME_MAX + 32];
    sfp_error why = {0};
    a->loaded = false;
    a->attempted[0] = '\0';
    a->unanswered = false;
    sfp__messages_done(&a->held);
    (void)snprintf(a->unit, sizeof a->unit, "%s", unit);
    TRY(a->log->ops->committed(a->log, unit, value, err));
    TRY(sfp__share_parse(value, unit, &a->at, err));
    if (!*a->at.file) {
        TRY(load_file(a, SFP__SHARE_MODEL, err));
    } else {
        sfp_status status = load_file(a, a->at.file, &why);
        if (status == SFP_EFORMAT || status == SFP_EIO || status == SFP_ENOTFOUND)
            status = load_previous(a, unit, &why, &why);
        if (status)
            return sfp__fail(err, status, "%s", why.message);
    }
    char kept[2][PATH_MAX] = {"", ""};
    const char *const names[] = {mine}, *const keep[] = {kept[0], kept[1]};
    (void)snprintf(mine, sizeof mine, "%s.#.#.safetensors", unit);
    if (*a->at.file)
        TRY(sfp__path_print(kept[0], sizeof kept[0], err, "%s/%s", dir, a->at.file));
    if (*a->at.previous)
        TRY(sfp__path_print(kept[1], sizeof kept[1], err, "%s/%s", dir, a->at.previous));
    TRY(sfp__directory_remove_files(dir, 1, names, 2, keep, err));
    a->samples = a->at.samples;
    a->digest = a->at.digest;
    a->loaded = true;
    return SFP_OK;
}

/* Loads the unit and makes the log deliver its messages again from the commit on. */
static sfp_status reload(shared *a, sfp_error *err)
{
    char unit[SFP__LOG_NAME_MAX];
    memcpy(unit, a->unit, sizeof unit);
    sfp__messages_done(&a->read);
    TRY(load_unit(a, unit, err));
    return a->log->ops->seek(a->log, unit, a->at.offset, err);
}

/* ------------------------------------------------------------------- committing */

static void remove_file(const shared *a, const char *name)
{
    char path[PATH_MAX];
    if (*name && !sfp__path_print(path, sizeof path, NULL, "%s/%s", a->base.plan->opt->share, name))
        (void)unlink(path);
}

/* Called when the commit of this value has succeeded. */
static void record_commit(shared *a, const sfp__share_value *value)
{
    remove_file(a, a->at.previous);
    a->at = *value;
    sfp__share_print(value, a->committed);
    a->attempted[0] = '\0';
    a->now.commits++;
    sfp__messages_done(&a->held);
    report_recovery(a);
}

static sfp_status next_value(const shared *a, sfp__share_value *v, sfp_error *err)
{
    uint32_t number = 0;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        return sfp__fail_errno(err, SFP_EIO, "random numbers");
    *v = (sfp__share_value){
        .samples = a->samples, .digest = a->digest, .sequence = a->at.sequence + 1, .offset = a->held.last->offset};
    v->offset += v->offset >= 0; /* that of the next message */
    (void)snprintf(v->file, sizeof v->file, "%s.%lld.%u.safetensors", a->unit, (long long)v->sequence, number);
    memcpy(v->previous, a->at.file, sizeof v->previous);
    return SFP_OK;
}

/* Called when the log has refused a commit, because another worker has taken over the messages that were learned since the last commit. said: the
 * message of the log; "": none. */
static sfp_status handle_fencing(shared *a, const char *file, const char *said, sfp_error *err)
{
    if (a->log->unit_taken[0])
        return sfp__fail(err, SFP_EINVAL, "%s: %s", a->base.plan->data, a->log->unit_taken);
    a->now.fenced++;
    sfp__plan_warn(a->base.plan, "%d messages were taken over by another worker, because %s has not committed them in time%s%s",
                   a->held.count, a->unit, *said ? ": " : "", said);
    remove_file(a, file);
    return reload(a, err);
}

/* Writes the sums to a new file and commits it. If the log or the share cannot be reached, this is tried again later. */
static sfp_status commit_held(shared *a, sfp_error *err)
{
    sfp__share_value v;
    sfp_error why = {0};
    char path[PATH_MAX], value[SFP__LOG_VALUE_MAX];
    bool fenced = false;
    double begin = sfp__monotonic_seconds();
    if (begin < a->retry_at)
        return SFP_OK;
    TRY(next_value(a, &v, err));
    sfp__share_print(&v, value);
    TRY(sfp__path_print(path, sizeof path, err, "%s/%s", a->base.plan->opt->share, v.file));
    sfp_status status = sfp__learner_checkpoint(a->learner, path, value, &why);
    if (status == SFP_ENOMEM)
        return sfp__fail(err, status, "%s", why.message);
    if (status) {
        schedule_retry(a, why.message);
        return SFP_OK;
    }
    a->save_seconds = sfp__monotonic_seconds() - begin;
    memcpy(a->attempted, value, sizeof value);
    status = a->log->ops->commit(a->log, a->unit, a->committed, value, &a->held, &fenced, &why);
    if (status == SFP_EIO) {
        lose_connection(a, &why);
        return SFP_OK;
    }
    if (status)
        return sfp__fail(err, status, "%s", why.message);
    if (fenced) {
        char said[SFP_ERROR_MAX];
        memcpy(said, why.message, sizeof said);
        status = handle_fencing(a, v.file, said, &why);
        if (status == SFP_EIO)
            lose_connection(a, &why);
        return status && status != SFP_EIO ? sfp__fail(err, status, "%s", why.message) : SFP_OK;
    }
    record_commit(a, &v);
    return SFP_OK;
}

/* After a lost connection: finds out whether the commit without a reply has succeeded. */
static sfp_status resolve_attempt(shared *a, sfp_error *err)
{
    char value[SFP__LOG_VALUE_MAX];
    sfp__share_value v;
    if (!*a->unit)
        return a->log->ops->seek(a->log, a->unit, -1, err);
    if (!a->loaded)
        return reload(a, err);
    TRY(a->log->ops->committed(a->log, a->unit, value, err));
    TRY(sfp__share_parse(a->attempted, a->unit, &v, err));
    if (*a->attempted && strcmp(value, a->attempted) == 0) {
        record_commit(a, &v);
    } else if (strcmp(value, a->committed) != 0) { /* the log has lost a commit, or another worker has made one */
        sfp__plan_warn(a->base.plan, "%s: the log does not have the last commit of %s; what it has is used", a->base.plan->data,
                       a->unit);
        return reload(a, err);
    } else if (a->unanswered) {
        return reload(a, err);
    } /* the file that was attempted stays: its commit may still arrive */
    a->attempted[0] = '\0';
    return a->log->ops->seek(a->log, a->unit, a->held.last ? a->held.last->offset + 1 : a->at.offset, err);
}

static sfp_status reconnect(shared *a, sfp_error *err)
{
    sfp_error why = {0};
    sfp_status status = a->log->ops->connect(a->log, &why);
    if (!status)
        status = resolve_attempt(a, &why);
    if (status == SFP_EIO)
        lose_connection(a, &why);
    else if (status)
        return sfp__fail(err, status, "%s", why.message);
    a->connected = status == SFP_OK;
    if (a->connected && !a->held.first) /* otherwise the next commit shows whether the connection works */
        report_recovery(a);
    return SFP_OK;
}

/* The maximum time for which learned messages are held before they are committed: longer if commits are slow, but shorter than the time after
 * which another worker takes them over. */
static double commit_seconds(const shared *a)
{
    double wish = a->base.plan->opt->checkpoint_seconds;
    return fmin(fmax(isnan(wish) ? 2 : wish, 20 * a->save_seconds), a->log->claim_seconds / 3);
}

/* --------------------------------------------------------------------- reading */

static bool same_block(const shared *a, const sfp__message *x, const sfp__message *y)
{
    int batch = a->base.plan->opt->learner.batch;
    return x->offset < 0 || x->offset / batch == y->offset / batch;
}

/* Whether `read` contains a complete batch. Batches of a partition end at multiples of the batch size in its offsets, so that they are the same
 * for every worker. */
static bool is_full(const shared *a)
{
    int batch = a->base.plan->opt->learner.batch;
    const sfp__message *first = a->read.first, *last = a->read.last;
    double wait = isnan(a->base.plan->opt->max_wait) ? 1 : a->base.plan->opt->max_wait;
    return first &&
           (a->read.count >= batch || !same_block(a, first, last) || (last->offset >= 0 && last->offset % batch == batch - 1) ||
            last->tries >= TRIES_ALONE || sfp__monotonic_seconds() - a->read_at >= wait);
}

/* A log with offsets does not count deliveries, so the share does. DIR/UNIT.tries contains the offset from which the unit was last read, how many
 * times in a row a worker has read from it and stopped without a commit, and the process that reads now. From the third time on messages are
 * learned one by one, so that the message that stops workers becomes the first one and can be set aside. */
typedef struct tries {
    char path[PATH_MAX];
    long long offset, count;
    unsigned process;
} tries;

static sfp_status read_tries(const shared *a, tries *t, sfp_error *err)
{
    OWNED uint8_t *bytes = NULL;
    char text[64];
    size_t size = 0;
    *t = (tries){.offset = -1};
    TRY(sfp__path_print(t->path, sizeof t->path, err, "%s/%s.tries", a->base.plan->opt->share, a->unit));
    if (sfp__file_read(t->path, sizeof text - 1, &bytes, &size, NULL) == SFP_OK) {
        (void)snprintf(text, sizeof text, "%.*s", (int)size, (const char *)bytes);
        if (sscanf(text, "%lld %lld %u", &t->offset, &t->count, &t->process) != 3)
            t->offset = -1;
    }
    return SFP_OK;
}

static sfp_status write_tries(const tries *t, sfp_error *err)
{
    char text[64];
    (void)snprintf(text, sizeof text, "%lld %lld %u\n", t->offset, t->count, t->process);
    return sfp__file_write(t->path, text, strlen(text), err);
}

static sfp_status count_tries(const shared *a, sfp__messages *list, sfp_error *err)
{
    tries t;
    if (!list->first || list->first->offset < 0)
        return SFP_OK;
    TRY(read_tries(a, &t, err));
    if (t.offset != list->first->offset)
        t.count = 0;
    if (t.count == 0 || t.process != a->process) {
        t.offset = list->first->offset;
        t.count++;
        t.process = a->process;
        TRY(write_tries(&t, err));
    }
    for (sfp__message *m = list->first; m; m = m->next)
        m->tries = m == list->first || t.count <= TRIES_MAX ? t.count : TRIES_MAX;
    return SFP_OK;
}

/* Called when the unit goes to another worker while this one still runs: its reading is then not counted as an attempt that failed. */
static void release_unit(shared *a)
{
    tries t;
    if (*a->unit && !read_tries(a, &t, NULL) && t.offset >= 0 && t.process == a->process && t.count > 0) {
        t.count--;
        (void)write_tries(&t, NULL);
    }
    a->unit[0] = '\0';
    a->attempted[0] = '\0';
}

/* Checks that the messages of a partition begin with the first one that is not committed. If there is a gap, for example because an earlier file
 * is used, they are read again. If the gap remains, the log has deleted these messages. */
static sfp_status begin_at_commit(shared *a, sfp__messages *list, sfp_error *err)
{
    int64_t want = a->at.offset > 0 ? a->at.offset : 0;
    if (!list->first || list->first->offset < 0)
        return SFP_OK;
    while (list->first && list->first->offset < want)
        sfp__message_free(sfp__messages_take(list));
    bool gap = list->first && list->first->offset > want;
    bool sought = strcmp(a->sought_unit, a->unit) == 0 && a->sought == want;
    if (gap && sought && a->at.offset >= 0)
        sfp__plan_warn(a->base.plan, "%s: the log no longer has the %lld messages of %s before %s", a->base.plan->data,
                       (long long)(list->first->offset - want), a->unit, list->first->id);
    if (!gap || sought) {
        a->sought_unit[0] = '\0';
        return SFP_OK;
    }
    sfp__messages_done(list);
    memcpy(a->sought_unit, a->unit, sizeof a->unit);
    a->sought = want;
    return a->log->ops->seek(a->log, a->unit, a->at.offset, err);
}

static sfp_status read_log(shared *a, double until, sfp_error *err)
{
    char unit[SFP__LOG_NAME_MAX] = "";
    sfp_error why = {0};
    sfp__messages had = {0};
    int batch = a->base.plan->opt->learner.batch;
    bool empty = !a->read.first;
    if (a->held.first || !empty)
        memcpy(unit, a->unit, sizeof unit);
    double wait = fmax(0, fmin(poll_seconds, until - sfp__monotonic_seconds()));
    sfp_status status = a->log->ops->read(a->log, batch - a->read.count, wait, &a->held, unit, &had, &why);
    if (status == SFP_EIO) {
        lose_connection(a, &why);
    } else if (!status && *unit && strcmp(unit, a->unit) != 0) {
        status = load_unit(a, unit, &why);
        if (!status)
            status = begin_at_commit(a, &had, &why);
        if (!status)
            status = count_tries(a, &had, &why);
        if (status == SFP_EIO)
            lose_connection(a, &why);
    }
    if (status) {
        sfp__messages_done(&had);
        return status == SFP_EIO ? SFP_OK : sfp__fail(err, status, "%s", why.message);
    }
    if (empty && had.first)
        a->read_at = sfp__monotonic_seconds();
    for (sfp__message *m; (m = sfp__messages_take(&had));) {
        if (sfp__messages_have(&a->read, m->id))
            sfp__message_free(m);
        else
            sfp__messages_put(&a->read, m);
    }
    return SFP_OK;
}

/* ------------------------------------------------------------------ deliveries */

/* Converts a row of float32 or float16 to the bytes of an image (vit_rows.c), or decodes an image. */
static sfp_status decode(const shared *a, sfp__message *m, uint8_t *rgb, sfp_error *err)
{
    const sfp__plan *p = a->base.plan;
    size_t dim = (size_t)p->source->row_dim;
    sfp__raw_image image = {.kind = m->row ? SFP__RAW_IMAGE_ROW : SFP__RAW_IMAGE_ENCODED, .bytes = m->data, .size = m->size};
    OWNED float *row = NULL;
    if (!m->data || m->size == 0)
        return sfp__fail(err, SFP_EFORMAT, "neither an image nor features");
    if (m->row != (dim > 0))
        return sfp__fail(err, SFP_EFORMAT, "field '%s', expected '%s' with this backbone", m->row ? "features" : "image",
                         dim ? "features" : "image");
    if (m->row && m->size != dim * 4 && m->size != dim * 2)
        return sfp__fail(err, SFP_EFORMAT, "features have %zu bytes, expected %zu values of float32 or float16", m->size, dim);
    if (m->row && m->size == dim * 2) {
        TRY(sfp__alloc(&row, dim, sizeof *row, err));
        for (size_t i = 0; i < dim; i++) {
            uint16_t half;
            memcpy(&half, m->data + 2 * i, sizeof half);
            row[i] = sfp__f16_to_f32(half);
        }
        image.bytes = (uint8_t *)row;
        image.size = dim * sizeof *row;
    }
    return sfp__raw_image_fit(&image, m->id, p->size, p->opt->learner.resize, rgb, err);
}

/* Checks a message and decodes it; a failure other than SFP_ENOMEM sets it aside. */
static sfp_status prepare(shared *a, sfp__message *m, uint8_t *rgb, sfp_error *err)
{
    char shown[SFP__NAME_MAX];
    if (m->tries > TRIES_MAX)
        return sfp__fail(err, SFP_ELIMIT, "was delivered %lld times and never committed, so it may be what stops workers",
                         (long long)m->tries);
    if (m->label && (!*m->label || strlen(m->label) > SFP__CLASS_NAME_MAX || !sfp__utf8_valid(m->label)))
        return sfp__fail(err, SFP_EFORMAT, "the label is empty, too long or not UTF-8");
    if (m->label && !sfp__classes_allowed(a->classes, m->label))
        return sfp__fail(err, SFP_EINVAL, "label is '%s', expected a known class with --classes strict",
                         sfp__printable(m->label, shown, sizeof shown));
    return decode(a, m, rgb, err);
}

/* Appends the id, the label and the reason of a message that cannot be learned to STREAM:rejected. */
static sfp_status reject_message(shared *a, const sfp__message *m, const char *why, sfp_error *err)
{
    const sfp__log_field fields[] = {{"message", m->id}, {"id", m->name ? m->name : ""}, {"label", m->label ? m->label : ""},
                                     {"reason", why},    {"worker", a->log->worker},     {0}};
    a->now.rejected++;
    sfp__skipped_add(&a->base.counts.skipped, why);
    return a->log->ops->append(a->log, "rejected", fields, m, err);
}

/* Delivers a batch of `read`. */
static sfp_status deliver(shared *a, sfp__delivery *d, sfp_error *err)
{
    const sfp__plan *p = a->base.plan;
    size_t bytes = 3 * (size_t)p->size * (size_t)p->size;
    const sfp__message *first = a->read.first;
    int batch = p->opt->learner.batch;
    for (const sfp__message *m; (m = a->read.first) && d->count < batch && d->predict_count < SFP__GROUP;) {
        bool alone = m->tries >= TRIES_ALONE;
        sfp_error why = {0};
        if (!same_block(a, first, m) || (alone && a->taken.first))
            break;
        uint8_t *rgb = a->rgb + (size_t)(m->label ? d->count : batch + d->predict_count) * bytes;
        sfp__message *took = sfp__messages_take(&a->read);
        sfp__messages_put(&a->taken, took);
        a->offered++;
        sfp_status status = prepare(a, took, rgb, &why);
        int32_t label = -1;
        if (!status && took->label)
            status = sfp__classes_number(a->classes, took->label, &label, &why);
        if (status == SFP_ENOMEM)
            return sfp__fail(err, status, "%s", why.message);
        if (status) {
            TRY(reject_message(a, took, why.message, err));
        } else if (took->label) {
            sfp__sample *s = &a->samples_out[d->count++];
            *s = (sfp__sample){.rgb = rgb, .id = a->offered, .name = took->name};
            took->learned = true;
            s->label = label;
        } else {
            a->asked[d->predict_count] = took;
            d->predict[d->predict_count].id = a->offered;
            d->predict[d->predict_count].name = took->name;
            d->predict[d->predict_count++].rgb = rgb;
        }
        a->alone |= alone;
        if (alone)
            break;
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (a->taken.first->time > 0)
        a->now.lag = fmax(0, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - 1e-3 * (double)a->taken.first->time);
    a->read_at = sfp__monotonic_seconds();
    d->samples = a->samples_out;
    d->changed = true;
    if (d->count)
        d->arrived = a->base.at->arrived + d->count;
    return SFP_OK;
}

/* Appends an answer to the log; after a failure it may appear twice. age: seconds since the state that answered was written; NAN: the learner
 * answered. */
static sfp_status answer(shared *a, const sfp__message *m, const char *class_name, float probability, float unknown, double age,
                         sfp_error *err)
{
    char p[32], u[32], seconds[32];
    (void)snprintf(p, sizeof p, "%.6g", (double)probability);
    (void)snprintf(u, sizeof u, "%.6g", (double)unknown);
    (void)snprintf(seconds, sizeof seconds, "%.0f", age);
    const sfp__log_field fields[] = {
        {"message", m->id}, {"id", m->name ? m->name : ""}, {"label", class_name ? class_name : ""}, {"probability", p},
        {"unknown", u},     {"worker", a->log->worker},     {isnan(age) ? NULL : "age", seconds},    {0}};
    TRY(a->log->ops->append(a->log, "answers", fields, NULL, err));
    a->now.answered++;
    return SFP_OK;
}

/* Reads the state of --answer-with if its file has changed. */
static sfp_status refresh_sum(shared *a, sfp_error *err)
{
    const sfp__run_options *o = a->base.plan->opt;
    sfp_predictor *p = NULL;
    struct stat st;
    double now = sfp__monotonic_seconds();
    if (!o->answer_with || now < a->sum.looked_at + 1)
        return SFP_OK;
    a->sum.looked_at = now;
    if (stat(o->answer_with, &st) != 0 || (a->sum.predictor && memcmp(&st.st_mtim, &a->sum.changed, sizeof st.st_mtim) == 0))
        return SFP_OK; /* the learner answers until there is a file */
    TRY(sfp__predictor_open(o->vit, o->pool, o->answer_with, SFP__GROUP, &p, err));
    sfp__predictor_free(a->sum.predictor);
    a->sum.predictor = p;
    a->sum.changed = st.st_mtim;
    a->now.sum_changed = (double)st.st_mtim.tv_sec + 1e-9 * (double)st.st_mtim.tv_nsec;
    return SFP_OK;
}

/* Answers the unlabelled messages of the delivery with that state. */
static sfp_status answer_with_sum(shared *a, sfp__delivery *d, sfp_error *err)
{
    const uint8_t *rgb[SFP__GROUP];
    sfp__predictions found;
    sfp_error why = {0};
    struct timespec now;
    int n = d->predict_count;
    if (n == 0)
        return SFP_OK;
    if (refresh_sum(a, &why))
        sfp__plan_warn(a->base.plan, "%s; %s answers", why.message, a->sum.predictor ? "the state before it" : "the learner");
    if (!a->sum.predictor)
        return SFP_OK;
    for (int i = 0; i < n; i++)
        rgb[i] = d->predict[i].rgb;
    TRY(sfp__predictor_run(a->sum.predictor, n, rgb, NULL, SFP__WANT_UNKNOWN, &found, err));
    clock_gettime(CLOCK_REALTIME, &now);
    double age = (double)(now.tv_sec - a->sum.changed.tv_sec) + 1e-9 * (double)(now.tv_nsec - a->sum.changed.tv_nsec);
    d->predict_count = 0;
    for (int i = 0; i < n; i++)
        TRY(answer(a, a->asked[i], found.label[i] >= 0 ? sfp__predictor_class_name(a->sum.predictor, found.label[i]) : NULL,
                   found.probability[i], found.unknown ? found.unknown[i] : 0, fmax(0, age), err));
    return SFP_OK;
}

/* Called when a partition goes to another worker: commits what was learned from it, unless the partition is lost already. */
static void on_revoke(void *ctx, const char *unit, bool lost)
{
    shared *a = ctx;
    if (strcmp(unit, a->unit) != 0)
        return;
    if (a->held.first && !lost && a->connected)
        (void)commit_held(a, &(sfp_error){0});
    sfp__messages_done(&a->read);
    sfp__messages_done(&a->held);
    release_unit(a);
}

static sfp_status start(sfp__arrivals *base, sfp_error *err)
{
    shared *a = (shared *)base;
    TRY(refresh_sum(a, err)); /* another backbone is refused */
    TRY(reconnect(a, err));
    sfp__plan_info(base->plan, "worker %s of %s", a->log->worker, base->plan->data);
    return SFP_OK;
}

/* Makes the numbers of this moment known to other threads. */
static void show_numbers(shared *a)
{
    a->now.samples = a->samples;
    a->now.pending = (uint64_t)a->read.count + (uint64_t)a->taken.count + (uint64_t)a->held.count;
    pthread_mutex_lock(&a->lock);
    a->shown = a->now;
    pthread_mutex_unlock(&a->lock);
}

static void worker(sfp__arrivals *base, sfp__worker_numbers *out)
{
    shared *a = (shared *)base;
    pthread_mutex_lock(&a->lock);
    *out = a->shown;
    pthread_mutex_unlock(&a->lock);
}

static sfp_status ask_to_commit(shared *a, bool *ready, sfp_error *err)
{
    sfp_error why = {0};
    sfp_status status = a->log->ops->can_commit(a->log, ready, &why);
    if (status == SFP_EIO)
        lose_connection(a, &why);
    return status && status != SFP_EIO ? sfp__fail(err, status, "%s", why.message) : SFP_OK;
}

static sfp_status next(sfp__arrivals *base, double until, sfp__delivery *d, sfp_error *err)
{
    shared *a = (shared *)base;
    bool stopped = sfp__plan_stopped(base->plan);
    *d = (sfp__delivery){.arrived = -1};
    a->retry_at = stopped ? 0 : a->retry_at;
    if (!a->connected && (stopped || sfp__monotonic_seconds() >= a->retry_at))
        TRY(reconnect(a, err));
    bool ready = true;
    bool due = a->held.first &&
               (stopped || a->alone || a->held.count >= 10000 || sfp__monotonic_seconds() - a->held_at >= commit_seconds(a));
    if (a->connected && due && !stopped && a->log->ops->can_commit)
        TRY(ask_to_commit(a, &ready, err));
    if (a->connected && due && ready && a->held.first)
        TRY(commit_held(a, err));
    show_numbers(a);
    if (stopped) { /* the log delivers messages that were not committed to other workers */
        release_unit(a);
        d->end = true;
        return SFP_OK;
    }
    if (!a->connected || (due && a->held.first)) { /* not now: the log or the share cannot be reached, or the group rebalances */
        const struct timespec pause = {.tv_nsec = 100000000};
        (void)nanosleep(&pause, NULL);
        return SFP_OK;
    }
    a->alone = false;
    if (!is_full(a))
        TRY(read_log(a, until, err));
    if (!is_full(a))
        return SFP_OK;
    sfp_error why = {0};
    sfp_status status = deliver(a, d, &why);
    if (!status)
        status = answer_with_sum(a, d, &why);
    if (status == SFP_EIO) { /* a message could not be set aside: the log delivers all of them again */
        lose_connection(a, &why);
        sfp__messages_done(&a->taken);
        *d = (sfp__delivery){.arrived = -1};
        return SFP_OK;
    }
    return status ? sfp__fail(err, status, "%s", why.message) : SFP_OK;
}

/* Answers unlabelled messages with the predictions of the learner. */
static sfp_status predicted(sfp__arrivals *base, const sfp__delivery *d, int64_t at, int64_t timestamp,
                            const char *const *class_names, const float *probability, const float *unknown, sfp_error *err)
{
    shared *a = (shared *)base;
    (void)at, (void)timestamp;
    for (int i = 0; i < d->predict_count && a->connected; i++) {
        sfp_error why = {0};
        sfp_status status = answer(a, a->asked[i], class_names[i], probability[i], unknown ? unknown[i] : 0, (double)NAN, &why);
        if (status == SFP_EIO)
            lose_connection(a, &why);
        else if (status)
            return sfp__fail(err, status, "%s", why.message);
    }
    return SFP_OK;
}

/* Called when the delivery has been learned. Messages whose answer could not be written, because the log could not be reached, are delivered
 * again. */
static sfp_status commit(sfp__arrivals *base, double seconds, sfp_error *err)
{
    shared *a = (shared *)base;
    (void)seconds, (void)err;
    for (sfp__message *m; (m = sfp__messages_take(&a->taken));) {
        if (!m->label && !a->connected) {
            a->unanswered |= m->offset >= 0;
            sfp__message_free(m);
            continue;
        }
        if (m->learned) {
            a->samples++;
            a->digest += m->digest;
        }
        sfp__free(m->data);
        m->data = NULL;
        if (!a->held.first)
            a->held_at = sfp__monotonic_seconds();
        sfp__messages_put(&a->held, m);
    }
    base->counts.labels.unlabelled = a->now.answered;
    return SFP_OK;
}

static bool has_work(sfp__arrivals *base)
{
    return ((shared *)base)->held.first != NULL;
}

static bool predicts(const sfp__arrivals *base, uint64_t *from)
{
    (void)base;
    *from = 0;
    return false; /* the answers are in the log */
}

static sfp__arrivals_stats stats(const sfp__arrivals *base)
{
    (void)base;
    return (sfp__arrivals_stats){0};
}

static void write_json(const sfp__arrivals *base, sfp__json *j)
{
    (void)base, (void)j; /* the files in the share replace checkpoints */
}

static bool read_json(sfp__arrivals *base, const sfp__json_value *j, int task)
{
    (void)base, (void)j, (void)task;
    return false;
}

sfp_status sfp__arrivals_log(const sfp__plan *p, const sfp__position *at, sfp__learner *l, sfp__classes *classes,
                             sfp__arrivals **out, sfp_error *err)
{
    static const sfp__arrivals_kind kind = {.name = "log",
                                            .start = start,
                                            .next = next,
                                            .commit = commit,
                                            .predicted = predicted,
                                            .has_work = has_work,
                                            .predicts = predicts,
                                            .stats = stats,
                                            .worker = worker,
                                            .write = write_json,
                                            .read = read_json,
                                            .free = free_shared};
    const sfp__run_options *o = p->opt;
    size_t images = (size_t)o->learner.batch + SFP__GROUP;
    shared *a = NULL;
    TRY(sfp__alloc(&a, 1, sizeof *a, err));
    a->base = (sfp__arrivals){.kind = &kind, .plan = p, .at = at, .learner = l};
    a->classes = classes;
    a->learner = l;
    a->log = sfp__source_log(p->source);
    pthread_mutex_init(&a->lock, NULL);
    a->now.lag = a->now.sum_changed = NAN;
    a->shown = a->now;
    a->log->revoke = on_revoke;
    a->log->revoke_ctx = a;
    OWNED_PTR(sfp__arrivals_free) sfp__arrivals *made = &a->base;
    TRY(sfp__alloc(&a->samples_out, (size_t)o->learner.batch, sizeof *a->samples_out, err));
    TRY(sfp__alloc(&a->rgb, images, 3 * (size_t)p->size * (size_t)p->size, err));
    if (getrandom(&a->process, sizeof a->process, 0) != sizeof a->process)
        return sfp__fail_errno(err, SFP_EIO, "random numbers");
    TRY(sfp__share_open(a->log, l, o, err));
    *out = TAKE(made);
    return SFP_OK;
}
