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
    int warnings_reported;   /* warnings of the source */
    sfp__inbox_output in;    /* the part of the last output that is not delivered yet */
    bool busy;               /* `in` is not delivered completely */
    bool last;               /* `in` is the last output */
    sfp__arrival_list group; /* delivered for prediction */
    sfp__sample *samples;    /* (batch * SFP__RUN_TRIAGE_BATCHES) delivered for training; their images are in in.batch */
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
                                   .pool = real && o->triage ? SFP__RUN_TRIAGE_BATCHES : 0,
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

/* Takes the next output of the inbox, which may be empty. */
static void take_inbox(live *a, double until)
{
    const sfp__plan *p = a->base.plan;
    sfp__inbox_take(a->inbox, p->hooks->stop, until, &a->in);
    a->busy = true;
    a->last = a->in.end && a->in.unlabelled.count == 0; /* a late label may add an image */
    for (int n = atomic_load(&p->source->live->warning_count); a->warnings_reported < n;
         a->warnings_reported++) /* each warning is reported once */
        sfp__plan_warn(p, "%s", p->source->live->warnings[a->warnings_reported]);
    count_discarded(a);
}

/* A late label: its image, if it is still in the label queue, joins the stream. */
static void take_label(live *a, sfp__arrival *label)
{
    sfp__arrival *image = sfp__ledger_label(a->ledger, label->name);
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

static sfp_status take_batch(live *a, sfp__delivery *d, sfp_error *err)
{
    const sfp__run_options *o = a->base.plan->opt;
    for (sfp__arrival *i = a->in.batch.first; i; i = i->next) {
        sfp__sample *s = &a->samples[d->count++];
        a->base.r->labels.late += sfp__ledger_end_waiting(a->ledger, i);
        *s = (sfp__sample){.rgb = i->rgb, .id = i->origin.id, .encoded = i->kept.bytes, .encoded_size = i->kept.size};
        TRY(sfp__classes_label(a->classes, i, &s->label, err));
    }
    if (d->count == 0)
        return SFP_OK;
    d->samples = a->samples;
    a->base.r->samples.offered += (uint64_t)d->count;
    d->arrived = (int64_t)a->base.r->samples.offered;
    if (a->base.lag) {
        sfp__lag_join(&a->lag, &a->in.lag);
        d->time = d->count * (1 / (o->rate > 0 ? o->rate : sfp__inbox_get_stats(a->inbox).rate));
    }
    return SFP_OK;
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
    TRY(sfp__alloc(&a->samples, (size_t)p->opt->learner.batch * SFP__RUN_TRIAGE_BATCHES, sizeof *a->samples, err));
    *out = TAKE(made);
    return SFP_OK;
}
