/* Arrivals of a live stream (run.h): the output of the inbox, in the order that the ledger requires (ledger.h). One output of the
 * inbox becomes several deliveries: groups of unlabelled images, then the batch. Late labels are processed between the images in
 * order of arrival; they move images from the label queue to the stream. */
#include "results/result.h"
#include "run/run_internal.h"

#include <math.h>

typedef struct live {
    sfp__arrivals base;
    sfp__classes *classes;
    sfp__ledger *ledger;
    sfp__inbox *inbox;
    sfp__lag lag;
    int warnings_reported;      /* warnings of the source */
    sfp__inbox_output in;       /* the part of the last output that is not delivered yet */
    bool busy;                  /* `in` is not delivered completely */
    bool last;                  /* `in` is the last output */
    sfp__arrival_list group;    /* delivered for prediction */
    int pool;                   /* maximum number of batches that are taken at once; 0: they are taken in turn */
    sfp__sample *samples;       /* (batch * pool) delivered for training; their images are in in.batch */
    bool behind;                /* more than SFP__RUN_BACKLOG batches waited, and the queue was not empty since */
    sfp__candidate *candidates; /* (batch * pool) allocate adaptive: scratch */
    int *order;                 /* (batch * pool) likewise */
} live;

static void free_live(sfp__arrivals *base)
{
    live *a = (live *)base;
    sfp__inbox_free(a->inbox);
    sfp__ledger_free(a->ledger); /* after the inbox, which uses it */
    sfp__arrival_list_done(&a->in.batch);
    sfp__arrival_list_done(&a->in.unlabelled);
    sfp__arrival_list_done(&a->in.discarded);
    sfp__arrival_list_done(&a->group);
    sfp__free(a->samples);
    sfp__free(a->candidates);
    sfp__free(a->order);
    sfp__free(a);
}

static sfp_status start(sfp__arrivals *base, sfp_error *err)
{
    live *a = (live *)base;
    const sfp__plan *p = base->plan;
    const sfp__run_options *o = p->opt;
    bool real = p->clock == SFP_CLOCK_REAL;
    size_t redelivered =
        p->source->ops->set_resume_filter ? (size_t)o->pending : 0; /* other sources cannot deliver an image again */
    base->r->labels.expired += sfp__ledger_expire(a->ledger, redelivered);
    TRY(sfp__ledger_set_resume_filter(a->ledger, p->source, err));
    base->r->lambda = real && o->rate > 0 ? o->rate : NAN;
    const sfp__inbox_options io = {.size = p->size,
                                   .resize = o->learner.resize,
                                   .keep_encoded = o->learner.keep_compressed,
                                   .batch = o->learner.batch,
                                   .queue = real ? o->queue : SFP__RUN_PREFETCH,
                                   .policy = real ? o->policy : SFP_QUEUE_BLOCK,
                                   .pool = a->pool,
                                   .unlabelled = o->pending > SFP__GROUP ? o->pending : SFP__GROUP,
                                   .arrival_rate = real ? o->rate : 0,
                                   .first_id = sfp__ledger_next_id(a->ledger),
                                   .ledger = a->ledger};
    return sfp__inbox_create(p->source, &io, &a->inbox, err);
}

/* ------------------------------------------------------------------- deliveries */

static void count_discarded(live *a)
{
    sfp_result *r = a->base.r;
    for (sfp__arrival *i; (i = sfp__arrival_list_take(&a->in.discarded));) {
        if (i->fate == SFP_DISCARD_EXPIRED) {
            sfp__arrival_status status = sfp__ledger_meet(a->ledger, i);
            r->labels.unlabelled += status == SFP_ARRIVAL_NEW;
            r->labels.expired += status != SFP_ARRIVAL_ENDED;
        } else {
            r->samples.offered++;
            r->samples.dropped += i->fate == SFP_DISCARD_DROPPED;
            r->samples.skipped += i->fate == SFP_DISCARD_SKIPPED;
            if (i->fate == SFP_DISCARD_DROPPED)
                r->labels.late += sfp__ledger_end_waiting(a->ledger, i);
        }
        sfp__ledger_finish(a->ledger, i);
    }
}

static bool allocates(const live *a)
{
    return a->pool && a->base.plan->opt->allocate != SFP_ALLOCATE_FIXED;
}

/* Labelled images per second. */
static double arrival_rate(const live *a)
{
    double rate = a->base.plan->opt->rate;
    return rate > 0 ? rate : sfp__inbox_get_stats(a->inbox).rate;
}

/* Do samples arrive faster than they can be queried? A short burst of a stream with its own arrival times is not overload. */
static bool is_overloaded(const live *a)
{
    bool lasts = a->behind || a->base.plan->opt->rate > 0;
    return lasts && *a->base.query_seconds * arrival_rate(a) > 1;
}

/* Classes strict: an image whose label is not a known class is skipped. */
static void skip_refused(live *a)
{
    for (int n = a->in.batch.count; n > 0; n--) {
        sfp__arrival *i = sfp__arrival_list_take(&a->in.batch);
        bool allowed = sfp__classes_allowed(a->classes, i->class_name);
        if (!allowed) {
            sfp__classes_refuse(a->classes, i->class_name, i->name);
            a->base.r->labels.late += sfp__ledger_end_waiting(a->ledger, i);
            i->fate = SFP_DISCARD_SKIPPED;
        }
        sfp__arrival_list_put(allowed ? &a->in.batch : &a->in.discarded, i);
    }
}

/* Takes the next output of the inbox, which may be empty. */
static void take_inbox(live *a, double until)
{
    const sfp__plan *p = a->base.plan;
    if (allocates(a)) /* a short backlog: the batches are processed in turn */
        sfp__inbox_set_backlog(a->inbox, is_overloaded(a) ? 0 : SFP__RUN_BACKLOG);
    sfp__inbox_take(a->inbox, p->hooks->stop, until, &a->in);
    int batch = p->opt->learner.batch;
    a->behind = a->in.batch.count > SFP__RUN_BACKLOG * batch || (a->behind && (a->in.waits || a->in.batch.count > batch));
    a->busy = true;
    a->last = a->in.end && a->in.unlabelled.count == 0; /* a late label may add an image */
    for (int n = atomic_load(&p->source->live->warning_count); a->warnings_reported < n;
         a->warnings_reported++) /* each warning is reported once */
        sfp__plan_warn(p, "%s", p->source->live->warnings[a->warnings_reported]);
    skip_refused(a);
    count_discarded(a);
}

/* A late label: its image, if it is still in the label queue, joins the stream. */
static void take_label(live *a, sfp__arrival *label)
{
    bool allowed = sfp__classes_allowed(a->classes, label->class_name);
    if (!allowed) /* the image waits for another label */
        sfp__classes_refuse(a->classes, label->class_name, label->name);
    sfp__arrival *image = allowed ? sfp__ledger_label(a->ledger, label->name) : NULL;
    if (image) {
        image->label = label->label;
        image->class_name = label->class_name;
        sfp__inbox_join(a->inbox, image);
    }
    sfp__arrival_free(label);
}

/* Takes the next group of images to predict. A late label belongs to an earlier image, so the images before it are predicted and
 * enter the label queue first. */
static void take_group(live *a, sfp__delivery *d)
{
    sfp_result *r = a->base.r;
    sfp__arrival_list *unlabelled = &a->in.unlabelled;
    while (a->group.count < SFP__GROUP && unlabelled->first && (unlabelled->first->rgb || a->group.count == 0)) {
        sfp__arrival *i = sfp__arrival_list_take(unlabelled);
        sfp__arrival_status status = i->rgb ? sfp__ledger_meet(a->ledger, i) : SFP_ARRIVAL_NEW;
        if (status == SFP_ARRIVAL_ABSENT)
            r->labels.expired += sfp__ledger_wait(a->ledger, i);
        else if (status == SFP_ARRIVAL_ENDED)
            sfp__ledger_finish(a->ledger, i);
        else if (i->rgb)
            sfp__arrival_list_put(&a->group, i);
        else
            take_label(a, i);
    }
    for (const sfp__arrival *i = a->group.first; i; i = i->next) {
        int k = d->predict_count++;
        d->predict[k].id = i->origin.id;
        d->predict[k].name = i->name;
        d->predict[k].rgb = i->rgb;
    }
}

/* Adaptive allocation: chooses samples among all that were taken; the others are dropped. Until then a sample has the label of the
 * source, because a class of which all samples are dropped does not become one of the stream. */
static void choose_samples(live *a, sfp__delivery *d)
{
    int batch = a->base.plan->opt->learner.batch, arrived = d->count, n = 0;
    for (const sfp__arrival *i = a->in.batch.first; i; i = i->next) {
        int32_t label = sfp__classes_find(a->classes, i);
        a->candidates[n++].learned = label < 0 ? 0 : sfp__learner_class_samples(a->base.learner, label);
    }
    d->count = sfp__allocate_samples(arrived, a->samples, batch, a->candidates, a->order);
    a->base.r->samples.dropped += (uint64_t)(arrived - d->count);
}

/* Gives the samples, which are in the order of their images, the labels of the stream. */
static sfp_status label_samples(live *a, const sfp__delivery *d, sfp_error *err)
{
    int n = 0;
    for (const sfp__arrival *i = a->in.batch.first; i && n < d->count; i = i->next)
        if (a->samples[n].rgb == i->rgb)
            TRY(sfp__classes_label(a->classes, i, &a->samples[n++].label, err));
    return SFP_OK;
}

static sfp_status take_batch(live *a, sfp__delivery *d, sfp_error *err)
{
    for (sfp__arrival *i = a->in.batch.first; i; i = i->next) {
        a->base.r->labels.late += sfp__ledger_end_waiting(a->ledger, i);
        a->samples[d->count++] = (sfp__sample){
            .rgb = i->rgb, .id = i->origin.id, .label = i->label, .encoded = i->kept.bytes, .encoded_size = i->kept.size};
    }
    if (d->count == 0)
        return SFP_OK;
    d->samples = a->samples;
    a->base.r->samples.offered += (uint64_t)d->count;
    d->arrived = (int64_t)a->base.r->samples.offered;
    if (a->base.lag) {
        sfp__lag_join(&a->lag, &a->in.lag);
        d->time = d->count * (1 / arrival_rate(a));
    }
    if (allocates(a))
        choose_samples(a, d);
    return label_samples(a, d, err);
}

static sfp_status next(sfp__arrivals *base, double until, sfp__delivery *d, sfp_error *err)
{
    live *a = (live *)base;
    *d = (sfp__delivery){.arrived = -1, .time = NAN, .end = a->last && !a->busy};
    if (d->end)
        return SFP_OK;
    if (!a->busy)
        take_inbox(a, until);
    d->changed = a->in.count > 0;
    take_group(a, d);
    d->more = a->busy = d->predict_count > 0;
    return d->more ? SFP_OK : take_batch(a, d, err);
}

static void commit(sfp__arrivals *base, double seconds)
{
    (void)seconds; /* a live stream has no simulated time */
    live *a = (live *)base;
    sfp_result *r = base->r;
    bool predicted = a->group.count > 0;
    for (sfp__arrival *i; (i = sfp__arrival_list_take(&a->group));) {
        sfp__ledger_predicted(a->ledger, i->origin.id);
        r->labels.unlabelled++;
        r->labels.expired += sfp__ledger_wait(a->ledger, i);
    }
    for (sfp__arrival *i; !predicted && (i = sfp__arrival_list_take(&a->in.batch));)
        sfp__ledger_finish(a->ledger, i);
}

/* ------------------------------------------------------ statistics, checkpoints */

static bool predicts(const sfp__arrivals *base, uint64_t *from)
{
    *from = sfp__ledger_predicted_end(((const live *)base)->ledger);
    return true;
}

static sfp__arrivals_stats stats(const sfp__arrivals *base)
{
    const live *a = (const live *)base;
    sfp__arrivals_stats out = {.waiting = sfp__ledger_waiting(a->ledger)};
    if (!a->inbox)
        return out;
    sfp__inbox_stats s = sfp__inbox_get_stats(a->inbox);
    out.decode = s.decode;
    out.wait_seconds = s.wait_seconds;
    out.status = s.status;
    memcpy(out.first_error, s.first_error, sizeof out.first_error);
    memcpy(out.last_error, s.last_error, sizeof out.last_error);
    return out;
}

static json_t *json(const sfp__arrivals *base)
{
    const live *a = (const live *)base;
    return json_pack("{s:o,s:o}", "ledger", sfp__ledger_json(a->ledger), "lag", sfp__lag_json(&a->lag));
}

static bool read_json(sfp__arrivals *base, json_t *j, int task)
{
    (void)task;
    live *a = (live *)base;
    return sfp__lag_read(&a->lag, json_object_get(j, "lag")) && sfp__ledger_read(a->ledger, json_object_get(j, "ledger"));
}

static sfp_status make_pool(live *a, const sfp__run_options *o, sfp_error *err)
{
    bool allocates = o->allocate != SFP_ALLOCATE_FIXED;
    if (a->base.plan->clock == SFP_CLOCK_REAL && (allocates || o->triage))
        a->pool = allocates ? SFP__RUN_POOL_BATCHES : SFP__RUN_TRIAGE_BATCHES;
    size_t count = (size_t)o->learner.batch * (size_t)(a->pool ? a->pool : 1);
    TRY(sfp__alloc(&a->samples, count, sizeof *a->samples, err));
    TRY(sfp__alloc(&a->candidates, count, sizeof *a->candidates, err));
    return sfp__alloc(&a->order, count, sizeof *a->order, err);
}

sfp_status sfp__arrivals_live(const sfp__plan *p, sfp_result *r, sfp__classes *classes, sfp__arrivals **out, sfp_error *err)
{
    static const sfp__arrivals_kind kind = {.name = "live",
                                            .start = start,
                                            .next = next,
                                            .commit = commit,
                                            .predicts = predicts,
                                            .stats = stats,
                                            .json = json,
                                            .read = read_json,
                                            .free = free_live};
    live *a = NULL;
    TRY(sfp__alloc(&a, 1, sizeof *a, err));
    a->base = (sfp__arrivals){.kind = &kind, .plan = p, .r = r, .lag = p->clock == SFP_CLOCK_REAL ? &a->lag : NULL};
    a->classes = classes;
    OWNED_PTR(sfp__arrivals_free) sfp__arrivals *made = &a->base;
    TRY(sfp__ledger_create(p->opt->pending, p->source->ops->labelled_keys, &a->ledger, err));
    TRY(make_pool(a, p->opt, err));
    *out = TAKE(made);
    return SFP_OK;
}
