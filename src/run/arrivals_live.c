/* Arrivals of a live stream (arrivals.h): the output of the inbox. When it is the turn of a sample, the store of samples
 * (stream/sample_store.h) tells its present label and standing. One output of the inbox becomes several deliveries: groups of unlabelled images,
 * then the batch; or the batch first, if it is small and arrived before them. Late labels of sources that cannot deliver an image again are
 * processed in order of arrival between the images.
 *
 * A sample that was learned with another label than its present one is a correction, which is delivered apart from the batch. Requests of other
 * processes become such deliveries, too. */
#include "base/monotonic.h"
#include "run/run_internal.h"
#include "stream/submitted.h"

#include <math.h>
#include <string.h>

static const double request_seconds = 0.25; /* time between two checks for requests while nothing arrives */

enum { ERASED_MAX = 256 }; /* requests that one checkpoint serves */

typedef struct live {
    sfp__arrivals base;
    sfp__classes *classes;
    sfp__inbox *inbox;
    sfp__lag lag;
    int warnings_reported;      /* warnings of the source */
    sfp__inbox_output in;       /* the part of the last inbox output that is not delivered yet */
    bool busy;                  /* `in` is not delivered completely */
    bool last;                  /* `in` is the last output */
    sfp__arrival_list group;    /* delivered for prediction */
    sfp__arrival_list taken;    /* delivered for training */
    sfp__arrival_list held;     /* urgent samples for which the batch had no place: they are the next batch */
    sfp__arrival_list waiting;  /* unlabelled images of a source that cannot deliver them again, until their label arrives */
    int pool;                   /* maximum number of batches that are taken at once; 0: they are taken in turn */
    sfp__sample *samples;       /* (batch * pool) delivered for training; their images are in `taken` */
    bool behind;                /* more than SFP__RUN_BACKLOG batches waited, and the queue has not been empty since then */
    sfp__candidate *candidates; /* (batch * pool) allocate adaptive: scratch */
    int *order;                 /* (batch * pool) likewise */
    bool revises;               /* the learner can subtract samples from its sums */
    sfp__arrival_list revised;  /* delivered for correction */
    sfp__revision *revisions;   /* (revision_capacity) of them */
    size_t revision_capacity;
    /* samples that must be erased after the next checkpoint, and the requests for it */
    int erase_count;
    bool renames; /* a class was renamed, so the run corrects its samples before it stops, unless the store keeps their images */
    bool served;  /* the last delivery was for requests */
    uint64_t erased[ERASED_MAX];
    int64_t erase_request[ERASED_MAX];
    uint64_t unmatched; /* late labels without an image */
    int dropped;        /* labelled images that the inbox has dropped since the last batch */
} live;

static void free_live(sfp__arrivals *base)
{
    live *a = (live *)base;
    sfp__inbox_free(a->inbox);
    sfp__arrival_list *const lists[] = {&a->in.batch, &a->in.unlabelled, &a->in.discarded, &a->group,
                                        &a->taken,    &a->held,          &a->waiting,      &a->revised};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        sfp__arrival_list_done(lists[i]);
    sfp__store_close(base->store); /* after the inbox, which uses it */
    sfp__free(a->samples);
    sfp__free(a->candidates);
    sfp__free(a->order);
    sfp__free(a->revisions);
    sfp__free(a);
}

/* Sets the counts to those of the store, which are always up to date. */
static void update_counts(live *a)
{
    sfp__store_counts c = sfp__store_get_counts(a->base.store);
    sfp__arrivals_counts *to = &a->base.counts;
    to->offered = 0;
    for (int i = 0; i < SFP__STANDINGS; i++)
        to->offered += c.standing[i];
    to->dropped = c.standing[SFP__DROPPED];
    to->skipped.count = c.standing[SFP__UNREADABLE];
    to->standings = (sfp__result_standings){.learned = c.standing[SFP__LEARNED],
                                            .waiting = c.standing[SFP__WAITING],
                                            .forgotten = c.standing[SFP__FORGOTTEN],
                                            .corrected = c.corrected};
    to->labels = (sfp__result_labels){.unlabelled = c.predicted, .late = c.late, .expired = c.expired, .waiting = c.unlabelled};
}

static bool redelivers(const live *a)
{
    return a->base.plan->source->ops->set_store != NULL;
}

/* Whether the samples of this source are kept in its store until they are learned, so that none is dropped. */
static bool keeps(const sfp__plan *p)
{
    return p->source->ops->image != NULL;
}

static sfp_status take_requests(live *a, sfp_error *err);

static sfp_status start(sfp__arrivals *base, sfp_error *err)
{
    live *a = (live *)base;
    const sfp__plan *p = base->plan;
    const sfp__run_options *o = p->opt;
    bool real = p->clock == SFP__CLOCK_REAL;
    TRY(sfp__store_resume(base->store, base->generation, err));
    uint64_t before = sfp__store_get_counts(base->store).standing[SFP__DROPPED];
    if (keeps(p))
        TRY(sfp__store_open_images(base->store, o->image_mebibytes << 20, err));
    if (redelivers(a))
        TRY(p->source->ops->set_store(p->source, base->store, err));
    else
        TRY(sfp__store_drop_waiting(base->store, "the source cannot deliver it again", err));
    update_counts(a);
    if (base->counts.dropped > before)
        sfp__plan_warn(
            p, "%llu samples that were read but not learned before the run resumed are dropped, unless they are sent again",
            (unsigned long long)(base->counts.dropped - before));
    a->revises = sfp__learner_check_sums(base->learner, NULL) == SFP_OK && !(o->learner.half_life > 0);
    bool waits = !isnan(o->max_wait) || real || p->source->ops->pauses;
    const sfp__inbox_options io = {.size = p->size,
                                   .resize = sfp__learner_resize(&o->learner),
                                   .batch = o->learner.batch,
                                   .queue = real ? o->queue : SFP__RUN_PREFETCH,
                                   .policy = real && !keeps(p) ? o->policy : SFP__QUEUE_BLOCK,
                                   .pool = a->pool,
                                   .unlabelled = o->pending > SFP__GROUP ? o->pending : SFP__GROUP,
                                   .max_wait = !waits               ? (double)INFINITY
                                               : isnan(o->max_wait) ? 1
                                                                    : o->max_wait,
                                   .arrival_rate = real ? o->rate : 0,
                                   .store = base->store};
    TRY(take_requests(
        a, err)); /* before the source begins: it may end at once, and then it does not deliver renamed samples again */
    return sfp__inbox_create(p->source, &io, &a->inbox, err);
}

/* ------------------------------------------------------------------- requests */

/* Reads the image of a sample for a request. */
static sfp_status read_image(const live *a, const sfp__stored *row, const char *file, uint8_t *rgb, sfp_error *err)
{
    const sfp__plan *p = a->base.plan;
    OWNED_BY(sfp__raw_image_done) sfp__raw_image image = {0};
    OWNED char *path = NULL;
    if (keeps(p)) {
        TRY(p->source->ops->image(p->source, row, &image, err));
        return sfp__raw_image_fit(&image, row->name, p->size, p->opt->learner.resize, rgb, err);
    }
    if (!file && !(p->source->kind && p->source->kind->walks))
        return sfp__fail(err, SFP_ENOTFOUND, "%s: the stream does not keep its images, expected the path of the image file",
                         row->name);
    TRY(file ? sfp__check_memory((path = sfp__strdup(file)), err) : sfp__path_make(p->source->path, row->name, &path, err));
    TRY(sfp__raw_image_read(path, &image, err));
    sfp__digest digest = sfp__digest_bytes((sfp__digest){0}, image.bytes, image.size);
    if (!sfp__digest_equal(&digest, &row->digest))
        return sfp__fail(err, SFP_EINVAL, "%s: the file has other bytes than the sample, expected the same image", path);
    return sfp__raw_image_fit(&image, path, p->size, sfp__learner_resize(&p->opt->learner), rgb, err);
}

/* Adds a revision of the sample to the delivery: from the label with which it is learned to another one; NULL: it is forgotten. */
static sfp_status add_revision(live *a, sfp__arrival *i, const char *from, const char *to, sfp_error *err)
{
    size_t n = (size_t)a->revised.count;
    int32_t before = sfp__names_find(&a->classes->names, from, strlen(from)), after = -1;
    TRY(sfp__check_memory(sfp__grow(&a->revisions, sizeof *a->revisions, n, n + 1, &a->revision_capacity), err));
    if (before < 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: the sample is learned as '%s', which is not a class of the run", i->name, from);
    if (to)
        TRY(sfp__classes_number(a->classes, to, &after, err));
    a->revisions[n] = (sfp__revision){.sample = {.rgb = i->rgb, .id = i->id, .label = before, .name = i->name}, .label = after};
    i->class_name = to ? a->classes->names.name[after] : NULL; /* not `to`, which a request may own */
    sfp__arrival_list_put(&a->revised, i);
    return SFP_OK;
}

static void erase_later(live *a, uint64_t id, int64_t request)
{
    a->erased[a->erase_count] = id;
    a->erase_request[a->erase_count++] = request;
}

static bool is_erased(const live *a, uint64_t id)
{
    for (int i = 0; i < a->erase_count; i++)
        if (a->erased[i] == id)
            return true;
    return false;
}

/* Corrects or forgets the sample of a request; the delivery has the revision of the learner that this needs. */
static sfp_status serve(live *a, const sfp__request *r, sfp_error *err)
{
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    OWNED_PTR(sfp__arrival_free) sfp__arrival *i = NULL;
    bool found;
    int32_t number;
    if (!a->revises)
        return sfp__fail(
            err, SFP_EUNSUPPORTED,
            "the learner of this run cannot take a sample out: only the heads ncm, slda and ridge can, without --half-life");
    if (!r->name && !redelivers(a))
        return sfp__fail(err, SFP_EUNSUPPORTED, "the stream does not keep its images, so that its classes cannot be renamed");
    if (r->name && !*r->name) /* by a process that was killed before it answered */
        return SFP_OK;
    a->renames |= !r->name && !keeps(a->base.plan);
    if (!r->name)
        return sfp__store_rename_class(a->base.store, r->file, r->label, err);
    TRY(sfp__store_find(a->base.store, r->name, &row, &found, err));
    if (!found)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: not a sample of the run", r->name);
    if (r->label && is_erased(a, row.id))
        return sfp__fail(err, SFP_ENOTFOUND, "%s: the sample is being forgotten", r->name);
    const sfp__source_ops *ops = a->base.plan->source->ops;
    if (r->label && row.label && strcmp(row.label, r->label) == 0 && row.standing != SFP__DROPPED)
        return ops->decided ? ops->decided(a->base.plan->source, row.id, row.name, err) : SFP_OK;
    if (r->label && !sfp__classes_allowed(a->classes, r->label))
        return sfp__fail(err, SFP_EINVAL, "label is '%s', expected a known class, because the run has --classes strict",
                         r->label);
    if (!r->label && (!row.learned || is_erased(a, row.id))) { /* it was perhaps asked for twice */
        erase_later(a, row.id, r->number);
        return SFP_OK;
    }
    TRY(sfp__alloc(&i, 1, sizeof *i, err));
    TRY(sfp__alloc(&i->rgb, 3 * (size_t)a->base.plan->size * (size_t)a->base.plan->size, 1, err));
    TRY(read_image(a, &row, r->file, i->rgb, err));
    i->name = TAKE(row.name);
    i->id = row.id;
    if (r->label) { /* the store has the label once nothing can refuse it */
        TRY(sfp__classes_number(a->classes, r->label, &number, err));
        i->class_name = a->classes->names.name[number];
        TRY(ops->decided ? ops->decided(a->base.plan->source, row.id, i->name, err) : SFP_OK);
        TRY(sfp__store_label(a->base.store, row.id, r->label, err));
    }
    if (row.learned) {
        TRY(add_revision(a, i, row.learned, r->label, err));
        if (!r->label)
            erase_later(a, i->id, r->number);
    } else { /* it waited for its label, or was dropped */
        i->label = -1;
        i->urgent = true;
        sfp__arrival_list_put(&a->held, i);
    }
    i = NULL;
    return SFP_OK;
}

/* Serves requests of other processes: one, or several that only forget samples. */
static sfp_status take_requests(live *a, sfp_error *err)
{
    for (int64_t after = 0; a->erase_count < ERASED_MAX && a->revised.count == a->erase_count;) {
        OWNED_BY(sfp__request_done) sfp__request r = {0};
        sfp_error why = {0};
        bool found = false;
        TRY(sfp__store_next_request(a->base.store, after, &r, &found, err));
        if (!found)
            return SFP_OK;
        int erases = a->erase_count;
        sfp_status status = serve(a, &r, &why);
        after = r.number;
        if (status == SFP_OK && a->erase_count > erases)
            continue; /* answered after the next checkpoint */
        TRY(sfp__store_answer(a->base.store, r.number, status, status ? why.message : NULL, err));
        TRY(sfp__store_commit(a->base.store, err));
        if (status == SFP_ENOMEM)
            return sfp__fail(err, status, "%s", why.message);
    }
    return SFP_OK;
}

/* ------------------------------------------------------------------- deliveries */

/* Records the label with which a sample was learned. If a submitted sample has got another label meanwhile, the source delivers it again. */
static sfp_status record_learned(live *a, const sfp__arrival *i, sfp_error *err)
{
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    TRY(sfp__store_learned(a->base.store, i->id, i->class_name, err));
    if (!keeps(a->base.plan))
        return SFP_OK;
    TRY(sfp__store_get(a->base.store, i->id, &row, err));
    return row.standing == SFP__WAITING && row.label ? sfp__submitted_offer(a->base.plan->source, i->id, err) : SFP_OK;
}

static sfp_status count_discarded(live *a, sfp_error *err)
{
    for (sfp__arrival *i; (i = sfp__arrival_list_take(&a->in.discarded));) {
        OWNED_PTR(sfp__arrival_free) sfp__arrival *owned = i;
        OWNED_BY(sfp__stored_done) sfp__stored row = {0};
        bool dropped = i->fate == SFP__DISCARD_DROPPED, submitted = false;
        if (i->lost && keeps(a->base.plan))
            TRY(sfp__store_has_image(a->base.store, i->id, &submitted, err));
        if (submitted) { /* since the source looked for it */
            TRY(sfp__submitted_offer(a->base.plan->source, i->id, err));
            continue;
        }
        a->dropped += dropped;
        if (i->why)
            sfp__skipped_add(&a->base.counts.skipped, i->why);
        TRY(sfp__store_get(a->base.store, i->id, &row, err));
        if (row.name && strcmp(row.name, i->name) == 0) /* else its file was moved since, and it is delivered again */
            TRY(sfp__store_refuse(a->base.store, i->id, dropped ? SFP__DROPPED : SFP__UNREADABLE,
                                  dropped ? "the learner was busy" : NULL, err));
    }
    return SFP_OK;
}

/* Whether samples arrive faster than they can be queried. A short burst of a stream with its own arrival times is not overload. */
static bool is_overloaded(const live *a)
{
    double given = a->base.plan->opt->rate, rate = given > 0 ? given : sfp__inbox_get_stats(a->inbox).rate;
    return (a->behind || given > 0) && a->base.at->query_seconds * rate > 1;
}

/* Classes strict: an image whose label is not a known class is skipped. */
static void skip_refused(live *a)
{
    sfp__skipped *skipped = &a->base.counts.skipped;
    char why[SFP_ERROR_MAX];
    for (int n = a->in.batch.count; n > 0; n--) {
        sfp__arrival *i = sfp__arrival_list_take(&a->in.batch);
        bool allowed = sfp__classes_allowed(a->classes, i->class_name);
        if (!allowed) {
            sfp__classes_refuse(a->classes, i->class_name, i->name, why);
            sfp__skipped_add(skipped, why);
            skipped->refused = true;
            i->fate = SFP__DISCARD_SKIPPED;
        }
        sfp__arrival_list_put(allowed ? &a->in.batch : &a->in.discarded, i);
    }
}

/* Takes the next output of the inbox, which may be empty. */
static sfp_status take_inbox(live *a, double until, sfp_error *err)
{
    const sfp__plan *p = a->base.plan;
    if (a->pool) /* a short backlog: the batches are processed in turn */
        sfp__inbox_set_backlog(a->inbox, is_overloaded(a) ? 0 : SFP__RUN_BACKLOG);
    sfp__inbox_take(a->inbox, a->renames ? NULL : p->hooks->stop, until, &a->in);
    int batch = p->opt->learner.batch;
    a->behind = a->in.batch.count > SFP__RUN_BACKLOG * batch || (a->behind && (a->in.waits || a->in.batch.count > batch));
    a->busy = true;
    a->last = a->in.end && a->in.unlabelled.count == 0; /* a late label may add an image */
    for (int n = atomic_load(&p->source->live->warning_count); a->warnings_reported < n;
         a->warnings_reported++) /* each warning is reported once */
        sfp__plan_warn(p, "%s", p->source->live->warnings[a->warnings_reported]);
    skip_refused(a);
    return count_discarded(a, err);
}

/* Processes a late label: if its image still waits, the image becomes a sample of the stream. */
static sfp_status take_label(live *a, const sfp__arrival *label, sfp_error *err)
{
    if (!sfp__classes_allowed(a->classes, label->class_name)) { /* the image waits for another label */
        char why[SFP_ERROR_MAX];
        sfp__classes_refuse(a->classes, label->class_name, label->name, why);
        return SFP_OK;
    }
    sfp__arrival_list kept = {0};
    sfp__arrival *image = NULL;
    for (sfp__arrival *i; (i = sfp__arrival_list_take(&a->waiting));) {
        if (!image && strcmp(i->name, label->name) == 0)
            image = i;
        else
            sfp__arrival_list_put(&kept, i);
    }
    a->waiting = kept;
    if (!image) {
        if (a->unmatched++ == 0)
            sfp__plan_warn(a->base.plan,
                           "the label of %s has no image: it was never sent, or is labelled already, or no longer waits",
                           label->name);
        return SFP_OK;
    }
    image->label = label->label;
    image->class_name = label->class_name;
    sfp_status status = sfp__store_label(a->base.store, image->id, label->class_name, err);
    sfp__inbox_join(a->inbox, image);
    return status;
}

/* Keeps a predicted image until its label arrives, if the source cannot deliver it again. */
static sfp_status keep_waiting(live *a, sfp__arrival *i, sfp_error *err)
{
    if (redelivers(a)) {
        sfp__arrival_free(i);
        return SFP_OK;
    }
    sfp__arrival_list_put(&a->waiting, i);
    while (a->waiting.count > a->base.plan->opt->pending) {
        sfp__arrival *oldest = sfp__arrival_list_take(&a->waiting);
        sfp_status status =
            sfp__store_refuse(a->base.store, oldest->id, SFP__DROPPED, "no label arrived in time (--label-queue)", err);
        sfp__arrival_free(oldest);
        TRY(status);
    }
    return SFP_OK;
}

static bool has_id(const sfp__arrival_list *list, uint64_t id)
{
    const sfp__arrival *i = list->first;
    while (i && i->id != id)
        i = i->next;
    return i != NULL;
}

/* Takes the next group of images to predict. A late label ends the group, because its image may be in the group and must be predicted before it
 * can get a label. */
static sfp_status take_group(live *a, sfp__delivery *d, sfp_error *err)
{
    sfp__arrival_list *unlabelled = &a->in.unlabelled;
    while (a->group.count < SFP__GROUP && unlabelled->first && (unlabelled->first->rgb || a->group.count == 0)) {
        sfp__arrival *i = sfp__arrival_list_take(unlabelled);
        if (i->rgb) {
            OWNED_BY(sfp__stored_done) sfp__stored row = {0};
            sfp_status status = sfp__store_get(a->base.store, i->id, &row, err);
            if (!status && row.predicted && row.standing == SFP__WAITING) /* it was sent again */
                status = keep_waiting(a, i, err);
            else if (status || row.standing == SFP__FORGOTTEN || has_id(&a->group, i->id))
                sfp__arrival_free(i);
            else
                sfp__arrival_list_put(&a->group, i);
            TRY(status);
            continue;
        }
        sfp_status status = take_label(a, i, err);
        sfp__arrival_free(i);
        TRY(status);
    }
    for (const sfp__arrival *i = a->group.first; i; i = i->next) {
        int k = d->predict_count++;
        d->predict[k].id = i->id;
        d->predict[k].name = i->name;
        d->predict[k].rgb = i->rgb;
    }
    return SFP_OK;
}

/* Adds a labelled image to the batch or to the corrections, as its row in the store demands. It is freed if its label has changed again, or
 * if it was or is being forgotten. Takes ownership of the image. */
static sfp_status sort_arrival(live *a, sfp__arrival *i, sfp__arrival_list *batch, sfp_error *err)
{
    OWNED_PTR(sfp__arrival_free) sfp__arrival *owned = i;
    OWNED_BY(sfp__stored_done) sfp__stored row = {0};
    TRY(sfp__store_get(a->base.store, i->id, &row, err));
    bool current = row.standing != SFP__FORGOTTEN && !is_erased(a, i->id) && row.label && strcmp(row.label, i->class_name) == 0;
    bool done = row.learned && row.label && strcmp(row.learned, row.label) == 0;
    if (!current || done || has_id(batch, i->id) || has_id(&a->revised, i->id))
        return SFP_OK;
    if (row.learned && a->revises)
        TRY(add_revision(a, i, row.learned, i->class_name, err));
    else /* a learner that cannot take a sample out learns it again, with its new label */
        sfp__arrival_list_put(batch, i);
    owned = NULL;
    return SFP_OK;
}

/* Adaptive allocation: chooses samples among all that were taken. The others are dropped; urgent ones are always chosen. Up to here samples have
 * labels of the source: a class whose samples are all dropped must not become a class of the stream. */
static void choose_samples(live *a)
{
    int batch = a->base.plan->opt->learner.batch, urgent = 0, n = 0, next = 0;
    for (const sfp__arrival *i = a->taken.first; i; i = i->next)
        urgent += i->urgent;
    if (a->taken.count <= batch)
        return;
    for (const sfp__arrival *i = a->taken.first; i; i = i->next) {
        if (i->urgent)
            continue;
        int32_t label = sfp__names_find(&a->classes->names, i->class_name, strlen(i->class_name));
        a->candidates[n].learned = label < 0 ? 0 : sfp__learner_class_samples(a->base.learner, label);
        a->samples[n++] = (sfp__sample){.rgb = i->rgb, .label = i->label};
    }
    int kept = sfp__allocate_samples(n, a->samples, urgent < batch ? batch - urgent : 0, a->candidates, a->order);
    for (sfp__arrival *i = a->taken.first; i; i = i->next) {
        if (i->urgent)
            continue;
        if (next < kept && a->samples[next].rgb == i->rgb)
            next++;
        else
            i->fate = SFP__DISCARD_DROPPED;
    }
}

/* Delivers the samples of `taken`. Those for which a batch has no place are held back. */
static sfp_status take_batch(live *a, sfp__delivery *d, sfp_error *err)
{
    sfp__arrival_list all = a->in.batch, held = {0};
    int batch = a->base.plan->opt->learner.batch, most = a->pool ? batch * a->pool : batch;
    a->in.batch = (sfp__arrival_list){0};
    for (sfp__arrival *i; (i = sfp__arrival_list_take(a->held.first ? &a->held : &all));) {
        sfp_status status = SFP_OK;
        if (a->taken.count < most)
            status = sort_arrival(a, i, &a->taken, err);
        else
            sfp__arrival_list_put(&held, i);
        if (status) {
            sfp__arrival_list_done(&all);
            sfp__arrival_list_done(&held);
            return status;
        }
    }
    if (a->pool)
        choose_samples(a);
    for (sfp__arrival *i = a->taken.first; i; i = i->next) {
        if (i->fate != SFP__DISCARD_NONE)
            continue;
        if (d->count == batch) { /* the batch is full: the samples that are left are urgent, so they are kept for the next one */
            i->fate = SFP__DISCARD_SKIPPED;
            continue;
        }
        sfp__sample *s = &a->samples[d->count++];
        *s = (sfp__sample){.rgb = i->rgb, .id = i->id, .name = i->name};
        TRY(sfp__classes_number(a->classes, i->class_name, &s->label, err));
    }
    sfp__arrival_list kept = {0};
    for (sfp__arrival *i; (i = sfp__arrival_list_take(&a->taken));) {
        bool later = i->fate == SFP__DISCARD_SKIPPED;
        i->fate = later ? SFP__DISCARD_NONE : i->fate;
        sfp__arrival_list_put(later ? &a->held : &kept, i);
    }
    a->taken = kept;
    for (sfp__arrival *i; (i = sfp__arrival_list_take(&held));)
        sfp__arrival_list_put(&a->held, i);
    d->revision_count = a->revised.count;
    d->revisions = a->revisions;
    d->samples = a->samples;
    if (d->count == 0)
        return SFP_OK;
    d->arrived = a->base.at->arrived + a->taken.count + a->dropped;
    a->dropped = 0;
    if (a->base.lag)
        sfp__lag_join(&a->lag, &a->in.lag);
    return SFP_OK;
}

static sfp_status next(sfp__arrivals *base, double until, sfp__delivery *d, sfp_error *err)
{
    live *a = (live *)base;
    bool turn = a->served && !a->last; /* of samples: many requests must not keep them from being learned */
    if (!a->busy && a->revised.count == 0 && a->erase_count == 0 && !turn) /* else those of the start are not delivered yet */
        TRY(take_requests(a, err));
    bool served = a->revised.count > 0 || a->erase_count > 0;
    a->served = served;
    bool held = a->held.first != NULL;
    *d = (sfp__delivery){.arrived = -1, .end = a->last && !a->busy && !served && !held};
    if (d->end)
        return SFP_OK;
    if (!a->busy && !served && !held)
        TRY(take_inbox(a, fmin(until, sfp__monotonic_seconds() + (turn ? 0 : request_seconds)), err));
    d->changed = a->in.count > 0 || served || held;
    bool batch_first = served || held || (a->in.batch_first && a->in.batch.count > 0);
    if (!batch_first)
        TRY(take_group(a, d, err));
    if (d->predict_count == 0)
        TRY(take_batch(a, d, err));
    d->save = a->erase_count > 0;
    d->asked = atomic_load(&base->checkpoints_asked) != atomic_load(&base->checkpoints_done);
    a->busy = a->in.unlabelled.first != NULL || a->in.batch.first != NULL;
    d->more = a->busy && !d->save && !d->asked;
    return SFP_OK;
}

static sfp_status commit(sfp__arrivals *base, double seconds, sfp_error *err)
{
    (void)seconds; /* a live stream has no simulated time */
    live *a = (live *)base;
    for (sfp__arrival *i; (i = sfp__arrival_list_take(&a->group));)
        TRY(keep_waiting(a, i, err));
    for (sfp__arrival *i; (i = sfp__arrival_list_take(&a->revised));) {
        sfp_status status = record_learned(a, i, err);
        sfp__arrival_free(i);
        TRY(status);
    }
    for (sfp__arrival *i; (i = sfp__arrival_list_take(&a->taken));) {
        sfp_status status = i->fate == SFP__DISCARD_NONE
                                ? record_learned(a, i, err)
                                : sfp__store_refuse(base->store, i->id, SFP__DROPPED, "the learner was busy", err);
        sfp__arrival_free(i);
        TRY(status);
    }
    update_counts(a);
    return sfp__store_commit_if_due(base->store, err);
}

/* An image that waits for its label is not kept after its sample was forgotten. */
static void free_erased(live *a)
{
    for (int n = a->waiting.count; n > 0; n--) {
        sfp__arrival *i = sfp__arrival_list_take(&a->waiting);
        if (is_erased(a, i->id))
            sfp__arrival_free(i);
        else
            sfp__arrival_list_put(&a->waiting, i);
    }
}

static sfp_status saved(sfp__arrivals *base, sfp_error *err)
{
    live *a = (live *)base;
    if (a->erase_count == 0)
        return SFP_OK;
    TRY(sfp__store_erase(base->store, a->erase_count, a->erased, a->erase_request, err));
    free_erased(a);
    for (; a->erase_count > 0; a->erase_count--)
        TRY(sfp__store_answer(base->store, a->erase_request[a->erase_count - 1], SFP_OK, NULL, err));
    update_counts(a);
    return sfp__store_commit(base->store, err);
}

static sfp_status predicted(sfp__arrivals *base, const sfp__delivery *d, int64_t at, int64_t timestamp,
                            const char *const *class_names, const float *probability, const float *unknown, sfp_error *err)
{
    for (int i = 0; i < d->predict_count; i++)
        TRY(sfp__store_predicted(base->store, d->predict[i].id, at, class_names[i], (double)probability[i],
                                 unknown ? (double)unknown[i] : (double)NAN, timestamp, err));
    return sfp__store_commit(base->store, err);
}

/* ------------------------------------------------------ statistics, checkpoints */

static bool predicts(const sfp__arrivals *base, uint64_t *from)
{
    *from = base->plan->opt->resume ? sfp__store_first_new_id(base->store) : 0; /* lines that the store does not know */
    return true;
}

static bool has_work(sfp__arrivals *base)
{
    live *a = (live *)base;
    OWNED_BY(sfp__request_done) sfp__request r = {0};
    bool found = false;
    sfp__store_counts c = sfp__store_get_counts(base->store);
    a->renames = a->renames && c.standing[SFP__WAITING] > c.unlabelled;
    return a->renames || a->erase_count > 0 || a->revised.count > 0 || a->held.first ||
           (sfp__store_next_request(base->store, 0, &r, &found, NULL) == SFP_OK && found);
}

static sfp__arrivals_stats stats(const sfp__arrivals *base)
{
    const live *a = (const live *)base;
    sfp__arrivals_stats out = {0};
    if (!a->inbox)
        return out;
    sfp__inbox_stats s = sfp__inbox_get_stats(a->inbox);
    out.decode = s.decode;
    out.wait_seconds = s.wait_seconds;
    out.status = s.status;
    memcpy(out.last_error, s.last_error, sizeof out.last_error);
    return out;
}

static void write_json(const sfp__arrivals *base, sfp__json *j)
{
    const live *a = (const live *)base;
    sfp__json_int(j, "generation", base->generation);
    sfp__lag_write(&a->lag, j);
}

static bool read_json(sfp__arrivals *base, const sfp__json_value *j, int task)
{
    (void)task;
    live *a = (live *)base;
    if (!sfp__json_whole(j, "generation", 0, INT64_MAX, &base->generation))
        return false;
    return sfp__lag_read(&a->lag, sfp__json_get(j, "lag"));
}

static sfp_status make_pool(live *a, const sfp__run_options *o, sfp_error *err)
{
    if (a->base.plan->clock == SFP__CLOCK_REAL && !keeps(a->base.plan) && o->allocate != SFP__ALLOCATE_FIXED)
        a->pool = SFP__RUN_POOL_BATCHES;
    size_t count = (size_t)o->learner.batch * (size_t)(a->pool ? a->pool : 1);
    TRY(sfp__alloc(&a->samples, count, sizeof *a->samples, err));
    TRY(sfp__alloc(&a->candidates, count, sizeof *a->candidates, err));
    return sfp__alloc(&a->order, count, sizeof *a->order, err);
}

sfp_status sfp__arrivals_live(const sfp__plan *p, const sfp__position *at, const sfp__learner *l, sfp__classes *classes,
                              sfp__arrivals **out, sfp_error *err)
{
    static const sfp__arrivals_kind kind = {.name = "live",
                                            .start = start,
                                            .next = next,
                                            .commit = commit,
                                            .predicted = predicted,
                                            .saved = saved,
                                            .has_work = has_work,
                                            .predicts = predicts,
                                            .stats = stats,
                                            .write = write_json,
                                            .read = read_json,
                                            .free = free_live};
    live *a = NULL;
    if (keeps(p) && p->source->kind->walks && !p->opt->out)
        return sfp__fail_key(err, "out", SFP_EINVAL,
                             "out is missing, expected a directory: with sync, the images and samples of %s are kept there",
                             p->source->path);
    TRY(sfp__alloc(&a, 1, sizeof *a, err));
    a->base =
        (sfp__arrivals){.kind = &kind, .plan = p, .at = at, .learner = l, .lag = p->clock == SFP__CLOCK_REAL ? &a->lag : NULL};
    a->classes = classes;
    OWNED_PTR(sfp__arrivals_free) sfp__arrivals *made = &a->base;
    if (p->opt->out && !p->opt->resume) /* of a run that was killed before its first checkpoint */
        TRY(sfp__store_remove(p->opt->out, err));
    TRY(sfp__store_open(p->opt->out, &a->base.store, err));
    TRY(make_pool(a, p->opt, err));
    *out = TAKE(made);
    return SFP_OK;
}
