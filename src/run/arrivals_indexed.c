/* Arrivals of an indexed stream. The clock decides which batches are next. Background threads prefetch the batches and, in a
 * task-free stream, the unlabelled images, which are predicted in turn: those before the last image of a batch precede the
 * batch. */
#include "base/monotonic.h"
#include "base/rank.h"
#include "io/json_read.h"
#include "run/run_internal.h"

enum { NAME_BYTES = 4096 };

typedef struct indexed {
    sfp__arrivals base;
    sfp__batch_loader *loader, *unlabelled;
    sfp__clock clock;
    int64_t *arrived;           /* (batches) as in the plan, plus unlabelled images; NULL: there are none */
    sfp__sample *samples;       /* (batch * max_batches) of several batches */
    sfp__candidate *candidates; /* (batch * max_batches) allocate adaptive: scratch */
    int *order;                 /* (batch * max_batches) likewise */
    int max_batches;            /* maximum number of batches delivered at once: allocate adaptive more than 1 */
    char (*name)[NAME_BYTES];   /* (SFP__GROUP) */
    int64_t next;               /* the first unlabelled image that was not predicted yet */
    struct {
        const int64_t *batch;
        int batches;          /* to train on; 0: unlabelled images, or nothing */
        int64_t unlabelled;   /* images that were predicted or could not be read */
        sfp__skipped skipped; /* images of these batches, or unlabelled ones */
    } delivered;              /* by next, for commit */
} indexed;

/* -------------------------------------------------------------------- creating */

static int64_t last_image(const sfp__plan *p, int64_t batch)
{
    return p->batches.order[p->batches.first[batch + 1] - 1];
}

static void free_indexed(sfp__arrivals *base)
{
    indexed *a = (indexed *)base;
    sfp__batch_loader_free(a->loader);
    sfp__batch_loader_free(a->unlabelled);
    sfp__clock_done(&a->clock);
    sfp__free(a->arrived);
    sfp__free(a->samples);
    sfp__free(a->candidates);
    sfp__free(a->order);
    sfp__free(a->name);
    sfp__free(a);
}

static sfp_status make(indexed *a, const sfp__plan *p, sfp_error *err)
{
    const sfp__run_options *o = p->opt;
    bool timed = p->clock == SFP__CLOCK_VIRTUAL || p->clock == SFP__CLOCK_REAL;
    bool allocates = o->allocate != SFP__ALLOCATE_FIXED && timed;
    a->max_batches = allocates ? SFP__RUN_POOL_BATCHES : 1;
    const sfp__clock_options co = {.kind = p->clock,
                                   .lambda = o->rate,
                                   .queue = o->queue,
                                   .policy = o->policy,
                                   .pool = allocates ? a->max_batches : 0,
                                   .stop = p->hooks->stop};
    size_t samples = (size_t)o->learner.batch * (size_t)a->max_batches;
    TRY(sfp__alloc(&a->samples, samples, sizeof *a->samples, err));
    TRY(sfp__alloc(&a->candidates, samples, sizeof *a->candidates, err));
    TRY(sfp__alloc(&a->order, samples, sizeof *a->order, err));
    if (p->unlabelled.count)
        TRY(sfp__alloc(&a->name, SFP__GROUP, sizeof *a->name, err));
    if (timed && p->unlabelled.count) {
        TRY(sfp__alloc(&a->arrived, (size_t)p->batches.count, sizeof *a->arrived, err));
        for (int64_t k = 0; k < p->batches.count; k++)
            a->arrived[k] = p->batches.arrived[k] + sfp__lower_bound(p->unlabelled.order, p->unlabelled.count, last_image(p, k));
    }
    a->base.clock = &a->clock;
    a->base.lag = timed ? &a->clock.lag : NULL;
    return sfp__clock_init(&a->clock, &co, p->batches.count, a->arrived ? a->arrived : p->batches.arrived, err);
}

/* ------------------------------------------------------------------- deliveries */

static sfp_status start(sfp__arrivals *base, sfp_error *err)
{
    indexed *a = (indexed *)base;
    const sfp__plan *p = base->plan;
    a->clock.batches = p->batches.count;                      /* clock paper keeps some of the batches */
    a->clock.began = sfp__monotonic_seconds() - a->clock.now; /* clock real: no time has passed since the run was opened */
    sfp__batch_loader_options fo = {
        .size = p->size, .resize = sfp__learner_resize(&p->opt->learner), .depth = SFP__RUN_PREFETCH + a->clock.opt.pool};
    TRY(sfp__batch_loader_create(p->source, &p->tasks, &p->batches, &fo, sfp__clock_first(&a->clock), &a->loader, err));
    if (a->next >= p->unlabelled.count)
        return SFP_OK;
    fo.depth = 2 * SFP__GROUP;
    return sfp__batch_loader_create(p->source, &p->tasks, &p->unlabelled, &fo, a->next, &a->unlabelled, err);
}

/* Takes up to SFP__GROUP unlabelled images before `index`. */
static sfp_status take_unlabelled(indexed *a, int64_t index, sfp__delivery *d, sfp_error *err)
{
    const sfp__batches *u = &a->base.plan->unlabelled;
    const sfp_source *s = a->base.plan->source;
    int64_t k = a->next;
    d->more = d->changed = true;
    for (; k < u->count && k < a->next + SFP__GROUP && u->order[k] < index; k++) {
        const sfp__loaded_batch *image;
        int i = d->predict_count;
        TRY(sfp__batch_loader_take(a->unlabelled, k, &image, err));
        sfp__skipped_join(&a->delivered.skipped, &image->skipped);
        if (!image->count)
            continue;
        d->predict[i].id = image->samples->id;
        d->predict[i].rgb = image->samples->rgb;
        d->predict[i].name = sfp__source_name(s, u->order[k], a->name[i], sizeof a->name[i]);
        d->predict_count++;
    }
    a->delivered.unlabelled = k - a->next;
    return SFP_OK;
}

/* Takes the first n batches of the clock as one delivery. */
static sfp_status take_batches(indexed *a, const int64_t *batch, int n, sfp__delivery *d, sfp_error *err)
{
    const sfp__plan *p = a->base.plan;
    const sfp__batches *b = &p->batches;
    sfp__batch_loader_release(a->loader, batch[0]); /* batches that the clock dropped need not be decoded */
    for (int i = 0; i < n; i++) {
        const sfp__loaded_batch *one;
        TRY(sfp__batch_loader_take(a->loader, batch[i], &one, err));
        if (n > 1)
            memcpy(a->samples + d->count, one->samples, (size_t)one->count * sizeof *a->samples);
        d->samples = n > 1 ? a->samples : one->samples;
        d->count += one->count;
        sfp__skipped_join(&a->delivered.skipped, &one->skipped);
    }
    d->batch = batch[n - 1];
    d->arrived = b->arrived[d->batch];
    d->changed = true;
    int arrived = d->count;
    if (n > 1) {
        for (int i = 0; i < arrived; i++)
            a->candidates[i].learned = sfp__learner_class_samples(a->base.learner, a->samples[i].label);
        d->count = sfp__allocate_samples(arrived, a->samples, p->opt->learner.batch, a->candidates, a->order);
    }
    a->delivered.batch = batch;
    a->delivered.batches = n;
    return SFP_OK;
}

static sfp_status next(sfp__arrivals *base, double until, sfp__delivery *d, sfp_error *err)
{
    (void)until;
    indexed *a = (indexed *)base;
    const sfp__plan *p = base->plan;
    int count, n = 1;
    const int64_t *batch = sfp__clock_next(&a->clock, &count);
    *d = (sfp__delivery){.arrived = -1, .task = p->tasks.count - 1};
    if (!batch && a->next < p->unlabelled.count && !sfp__plan_stopped(p))
        return take_unlabelled(a, INT64_MAX, d, err); /* after the last batch */
    d->end = !batch;
    if (d->end)
        return SFP_OK;
    d->task = p->batches.task[batch[0]];
    while (n < count && p->batches.task[batch[n]] == d->task)
        n++;
    bool overload = base->at->query_seconds * p->opt->rate > 1;
    if (count <= SFP__RUN_BACKLOG && !overload)
        n = 1; /* if only few batches wait, they are processed in turn */
    if (a->next < p->unlabelled.count && p->unlabelled.order[a->next] < last_image(p, batch[n - 1]))
        return take_unlabelled(a, last_image(p, batch[n - 1]), d, err);
    d->more = n < count;
    return take_batches(a, batch, n, d, err);
}

static sfp_status commit(sfp__arrivals *base, double seconds, sfp_error *err)
{
    (void)err;
    indexed *a = (indexed *)base;
    sfp__arrivals_counts *c = &base->counts;
    int n = a->delivered.batches;
    sfp__skipped_join(&c->skipped, &a->delivered.skipped);
    if (a->delivered.unlabelled) {
        a->next += a->delivered.unlabelled;
        sfp__batch_loader_release(a->unlabelled, a->next);
        c->unread += a->delivered.skipped.count;
        c->labels.unlabelled = (uint64_t)a->next - c->unread;
    } else if (n) {
        sfp__batch_loader_release(a->loader, a->delivered.batch[n - 1] + 1);
    }
    if (a->clock.delivered_count) /* after the last batch there is no lag */
        sfp__clock_advance(&a->clock, n, seconds);
    memset(&a->delivered, 0, sizeof a->delivered);
    return SFP_OK;
}

/* ------------------------------------------------------ statistics, checkpoints */

static bool predicts(const sfp__arrivals *base, uint64_t *from)
{
    const indexed *a = (const indexed *)base;
    if (a->next >= base->plan->unlabelled.count)
        return false;
    *from = a->next ? (uint64_t)base->plan->unlabelled.order[a->next] : 0; /* a new run keeps no earlier line */
    return true;
}

static sfp__arrivals_stats stats(const sfp__arrivals *base)
{
    const indexed *a = (const indexed *)base;
    sfp__arrivals_stats out = {0};
    sfp__batch_loader *const loaders[] = {a->loader, a->unlabelled};
    for (int i = 0; i < 2; i++) {
        sfp__batch_loader_stats s = loaders[i] ? sfp__batch_loader_get_stats(loaders[i]) : (sfp__batch_loader_stats){0};
        out.decode += s.decode;
        out.wait_seconds += s.wait_seconds;
    }
    return out;
}

static void write_json(const sfp__arrivals *base, sfp__json *j)
{
    const indexed *a = (const indexed *)base;
    sfp__clock_write(&a->clock, j);
    sfp__json_int(j, "predicted", a->next);
    sfp__json_uint(j, "skipped", base->counts.skipped.count);
    sfp__json_uint(j, "unread", base->counts.unread);
}

static bool read_json(sfp__arrivals *base, const sfp__json_value *j, int task)
{
    indexed *a = (indexed *)base;
    const sfp__plan *p = base->plan;
    int64_t skipped, unread;
    a->clock.batches = p->batches.count; /* as in start */
    if (!sfp__json_whole(j, "predicted", 0, p->unlabelled.count, &a->next) ||
        !sfp__json_whole(j, "skipped", 0, p->source->count, &skipped) ||
        !sfp__json_whole(j, "unread", 0, a->next < skipped ? a->next : skipped, &unread) ||
        !sfp__clock_read(&a->clock, sfp__json_get(j, "clock")) ||
        (a->clock.delivered_count && p->batches.task[a->clock.delivered[0]] < task))
        return false;
    base->counts.skipped.count = (uint64_t)skipped;
    base->counts.unread = (uint64_t)unread;
    base->counts.labels.unlabelled = (uint64_t)(a->next - unread);
    return true;
}

sfp_status sfp__arrivals_indexed(const sfp__plan *p, const sfp__position *at, const sfp__learner *l, sfp__arrivals **out,
                                 sfp_error *err)
{
    static const sfp__arrivals_kind kind = {.name = "indexed",
                                            .start = start,
                                            .next = next,
                                            .commit = commit,
                                            .predicts = predicts,
                                            .stats = stats,
                                            .write = write_json,
                                            .read = read_json,
                                            .free = free_indexed};
    indexed *a = NULL;
    TRY(sfp__alloc(&a, 1, sizeof *a, err));
    a->base = (sfp__arrivals){.kind = &kind, .plan = p, .at = at, .learner = l};
    OWNED_PTR(sfp__arrivals_free) sfp__arrivals *made = &a->base;
    TRY(make(a, p, err));
    *out = TAKE(made);
    return SFP_OK;
}
