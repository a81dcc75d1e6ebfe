/* The loop over a live stream (run.h). Classes are numbered as they come; names tie them to those of the source, of a test set
 * and of an earlier process. What becomes of every image is in the ledger (ledger.h).
 *
 * The folder is left alone until there is something to learn from or to predict: a stream that is broken from the start changes
 * nothing. */
#include "base/mem.h"
#include "run/live.h"

#include <math.h>
#include <string.h>

enum { GROUP = 32 }; /* pictures predicted at once */

/* ---------------------------------------------------------------------- making */

static sfp_status refuse(const sfp__run_state *s, sfp_error *err)
{
    const sfp_run_options *o = s->opt;
    if (o->tasks && strcmp(o->tasks, "free") != 0)
        return sfp__fail_key(err, "tasks", SFP_EINVAL, "tasks is '%s', expected free: %s is a live stream and has no tasks",
                             o->tasks, o->data);
    if (s->clock_kind == SFP_CLOCK_PAPER || s->clock_kind == SFP_CLOCK_VIRTUAL)
        return sfp__fail_key(err, "clock", SFP_EINVAL,
                             "clock %s needs a stream that is known beforehand, expected real or off: %s is live",
                             sfp__clock_name(s->clock_kind), o->data);
    if (o->costs)
        return sfp__fail_key(err, "costs", SFP_EINVAL,
                             "costs is '%s', expected none: %s is a live stream, which costs what it costs", o->costs, o->data);
    if (o->rate > 0 && !s->source->on_demand)
        return sfp__fail_key(err, "rate", SFP_EINVAL, "rate is %g, expected none: %s: these pictures come at their own rate",
                             o->rate, o->data);
    if (s->clock_kind == SFP_CLOCK_REAL && s->source->on_demand && !(o->rate > 0))
        return sfp__fail_key(err, "clock", SFP_EINVAL, "clock real: this clock needs a rate (--rate samples/s) on %s", o->data);
    if (o->pending < 0 || o->pending > 1000000)
        return sfp__fail(err, SFP_EINVAL, "%d pictures may wait for a label, expected 0 to 1000000", o->pending);
    return SFP_OK;
}

sfp_status sfp__live_create(sfp__run_state *s, sfp_error *err)
{
    sfp_status status = refuse(s, err);
    if (status)
        return status;
    sfp__live *v = s->live = sfp__calloc(1, sizeof *v);
    if (!v)
        return sfp__fail_nomem(err);
    v->unseen = -1;
    TRY(sfp__ledger_create(s->opt->pending, s->source->marks, &v->ledger, err));
    size_t dim = (size_t)s->opt->vit->config.dim;
    v->query = sfp__malloc(GROUP * dim * sizeof *v->query);
    s->tasks.task = sfp__calloc(1, sizeof *s->tasks.task);
    if (!v->query || !s->tasks.task)
        return sfp__fail_nomem(err);
    s->tasks.count = 1;
    s->tasks.free = true;
    if (!(s->tasks.task[0].name = sfp__strdup("all")))
        return sfp__fail_nomem(err);
    if (s->clock_kind == SFP_CLOCK_REAL)
        s->lag = &v->lag;
    return SFP_OK;
}

void sfp__live_free(sfp__live *v)
{
    if (!v)
        return;
    sfp__inbox_free(v->inbox);
    sfp__ledger_free(v->ledger); /* behind the inbox, which asks it */
    sfp__line_log_close(v->predictions);
    sfp__names_done(&v->classes);
    sfp__free(v->label_of);
    sfp__free(v->query);
    sfp__free(v);
}

/* ------------------------------------------------------------------- the folder */

/* The first time that there is something to do with the folder. */
static sfp_status begin(sfp__run_state *s, sfp_error *err)
{
    sfp__live *v = s->live;
    if (s->begun)
        return SFP_OK;
    sfp_status status = sfp__run_begin(s, err);
    return status || !s->opt->out
               ? status
               : sfp__line_log_open(s->opt->out, SFP__RUN_PREDICTIONS, "id", sfp__ledger_predicted_end(v->ledger),
                                    SFP__RUN_LOG_BYTES, SFP__RUN_LOGS, &v->predictions, err);
}

/* -------------------------------------------------------------- what is done with */

sfp_status sfp__live_resumed(sfp__run_state *s, sfp_error *err)
{
    bool again = s->source->leave_out != NULL; /* a source that cannot go back does not give them again */
    s->r->labels.expired += sfp__ledger_give_up(s->live->ledger, again ? (size_t)s->opt->pending : 0);
    return sfp__live_take_classes(s, err);
}

static void take_gone(sfp__run_state *s, sfp_arrival_list *gone)
{
    sfp_result *r = s->r;
    for (sfp_arrival *a; (a = sfp__arrival_list_take(gone));) {
        if (a->fate == SFP_FATE_EXPIRED) {
            sfp_standing before = sfp__ledger_meet(s->live->ledger, a);
            r->labels.unlabelled += before == SFP_STANDING_NEW;
            r->labels.expired += before != SFP_STANDING_OVER;
        } else {
            r->samples.offered++;
            r->samples.dropped += a->fate == SFP_FATE_DROPPED;
            r->samples.skipped += a->fate == SFP_FATE_SKIPPED;
            if (a->fate == SFP_FATE_DROPPED)
                r->labels.late += sfp__ledger_end_waiting(s->live->ledger, a);
        }
        sfp__ledger_finish(s->live->ledger, a);
    }
}

/* --------------------------------------------------------------- without a label */

/* Predicts what came without a label, then lets it wait. */
static sfp_status predict(sfp__run_state *s, sfp_arrival_list *group, sfp_error *err)
{
    sfp__live *v = s->live;
    const uint8_t *rgb[GROUP] = {NULL};
    bool has_query[GROUP] = {false};
    int32_t label[GROUP];
    float probability[GROUP];
    int n = 0;
    if (group->count == 0)
        return SFP_OK;
    for (const sfp_arrival *a = group->first; a; a = a->next)
        rgb[n++] = a->rgb;
    sfp_status status = begin(s, err);
    if (!status)
        status = sfp__predictor_ask(s->predictor, n, rgb, v->query, has_query, label, probability, err);
    for (int i = 0; !status && i < n; i++) {
        sfp_arrival *a = sfp__arrival_list_take(group);
        const sfp__prediction p = {.id = a->id, .name = a->name, .label = label[i], .probability = probability[i]};
        status = sfp__run_write_prediction(s, v->predictions, &p, err);
        sfp__ledger_predicted(v->ledger, a->id);
        s->r->labels.unlabelled++;
        s->r->labels.expired += sfp__ledger_wait(v->ledger, a);
    }
    return status;
}

/* A label that came late: its picture, if it still waits, joins the stream. */
static void take_label(sfp__live *v, sfp_arrival *a)
{
    sfp_arrival *p = sfp__ledger_label(v->ledger, a->name);
    if (p) {
        p->label = a->label;
        p->class_name = a->class_name;
        sfp__inbox_join(v->inbox, p);
    }
    sfp__arrival_free(a);
}

static sfp_status take_others(sfp__run_state *s, sfp_arrival_list *others, sfp_error *err)
{
    sfp_arrival_list group = {0};
    sfp_status status = SFP_OK;
    for (sfp_arrival *a; !status && (a = sfp__arrival_list_take(others));) {
        sfp_standing before = a->rgb ? sfp__ledger_meet(s->live->ledger, a) : SFP_STANDING_NEW;
        if (before == SFP_STANDING_ABSENT) {
            s->r->labels.expired += sfp__ledger_wait(s->live->ledger, a);
        } else if (before == SFP_STANDING_OVER) {
            sfp__ledger_finish(s->live->ledger, a);
        } else if (a->rgb) {
            sfp__arrival_list_put(&group, a);
            if (group.count == GROUP)
                status = predict(s, &group, err);
        } else if (!(status = predict(s, &group, err))) {
            take_label(s->live, a);
        } else {
            sfp__arrival_free(a);
        }
    }
    if (!status)
        status = predict(s, &group, err);
    if (!status && s->live->predictions) /* people wait for these */
        status = sfp__line_log_flush(s->live->predictions, err);
    sfp__arrival_list_done(&group);
    return status;
}

/* -------------------------------------------------------------------- the loop */

static sfp_status offer(sfp__run_state *s, const sfp_inbox_output *d, sfp_error *err)
{
    int n = 0;
    sfp_status status = SFP_OK;
    for (sfp_arrival *a = d->batch.first; !status && a; a = a->next) {
        s->r->labels.late += sfp__ledger_end_waiting(s->live->ledger, a);
        s->pooled[n] = (sfp_sample){.rgb = a->rgb, .id = a->id, .encoded = a->kept.bytes, .encoded_size = a->kept.size};
        status = sfp__live_label(s, a, &s->pooled[n++].label, err);
    }
    sfp_timestamp t;
    if (!status)
        status = sfp__learner_offer(s->learner, n, s->pooled, &t, err);
    double rate = sfp__inbox_stats(s->live->inbox).rate;
    if (s->lag)
        s->spacing = s->opt->rate > 0 ? 1 / s->opt->rate : 1 / rate;
    if (!status)
        status = sfp__run_record(s, n, s->pooled, &t, NULL, err);
    return status ? status : sfp__run_evaluate_now_and_then(s, err);
}

static sfp_status learn(sfp__run_state *s, sfp_inbox_output *d, sfp_error *err)
{
    if (d->batch.count == 0)
        return SFP_OK;
    if (s->lag)
        sfp__lag_join(&s->live->lag, &d->lag);
    sfp_status status = begin(s, err);
    if (!status)
        status = offer(s, d, err);
    for (sfp_arrival *a; !status && (a = sfp__arrival_list_take(&d->batch));)
        sfp__ledger_finish(s->live->ledger, a);
    return status;
}

/* A stream may rest for long: what came is saved meanwhile. */
static sfp_status save(sfp__run_state *s, const sfp_inbox_output *d, bool *unsaved, sfp_error *err)
{
    double before = s->saved_at;
    *unsaved |= d->taken > 0;
    if (!*unsaved || !s->begun)
        return SFP_OK;
    sfp_status status = sfp__run_save_now_and_then(s, err);
    *unsaved = s->saved_at == before;
    return status;
}

static sfp_status start(sfp__run_state *s, sfp_error *err)
{
    const sfp_run_options *o = s->opt;
    sfp__live *v = s->live;
    bool real = s->clock_kind == SFP_CLOCK_REAL;
    TRY(sfp__ledger_leave_out(v->ledger, s->source, err));
    s->r->lambda = real && o->rate > 0 ? o->rate : NAN;
    const sfp_inbox_options io = {.size = o->vit->config.img_size,
                                  .resize = o->learner.resize,
                                  .keep_encoded = o->learner.keep_compressed,
                                  .batch = o->learner.batch,
                                  .queue = real ? o->queue : SFP__RUN_AHEAD,
                                  .policy = real ? o->policy : SFP_QUEUE_BLOCK,
                                  .pool = real && o->triage ? SFP__RUN_POOL : 0,
                                  .others = o->pending > GROUP ? o->pending : GROUP,
                                  .pace = real ? o->rate : 0,
                                  .first_id = sfp__ledger_next_id(v->ledger),
                                  .ledger = v->ledger};
    return sfp__inbox_create(s->source, &io, &v->inbox, err);
}

static void delivery_done(sfp_inbox_output *d)
{
    sfp__arrival_list_done(&d->batch);
    sfp__arrival_list_done(&d->others);
    sfp__arrival_list_done(&d->gone);
}

/* Each once, as soon as there is one. */
static void tell_remarks(const sfp__run_state *s, int *told)
{
    for (int n = atomic_load(&s->source->remarks); *told < n; (*told)++)
        sfp__run_say(s, s->source->remark[*told]);
}

sfp_status sfp__live_learn(sfp__run_state *s, bool *ended, sfp_error *err)
{
    int told = 0;
    bool unsaved = false;
    sfp_status status = start(s, err);
    for (bool end = false; !status && !end && !sfp__run_stopped(s);) {
        sfp_inbox_output d;
        bool saves = unsaved && s->begun && s->opt->out;
        sfp__inbox_take(s->live->inbox, s->hooks->stop, saves ? sfp__run_checkpoint_at(s) : INFINITY, &d);
        end = d.end && d.others.count == 0; /* a label among the others may bring a picture back */
        tell_remarks(s, &told);
        take_gone(s, &d.gone);
        status = take_others(s, &d.others, err);
        if (!status)
            status = learn(s, &d, err);
        if (!status)
            status = save(s, &d, &unsaved, err);
        delivery_done(&d);
    }
    if (!status && s->stamps == 0 && s->r->samples.skipped > 0 && s->r->labels.unlabelled == 0)
        status = sfp__fail(err, SFP_EFORMAT, "%s: none of the %llu pictures could be read; the first: %s", s->opt->data,
                           (unsigned long long)s->r->samples.skipped, sfp__live_stats(s).first_error);
    if (status)
        return status;
    *ended = sfp__inbox_stats(s->live->inbox).status == SFP_OK;
    if (!*ended) { /* what an earlier process evaluated is not what is there now */
        s->r->tasks_done = 0;
        s->r->average_accuracy = s->r->forgetting = s->r->backward_transfer = NAN;
        return s->begun ? SFP_OK : sfp__live_failure(s, err);
    }
    if (!s->begun && !s->resumed && !sfp__run_stopped(s))
        return sfp__fail(err, SFP_EFORMAT, "%s: ended before a picture came", s->opt->data);
    status = begin(s, err);
    return status ? status : sfp__run_end_task(s, err);
}

sfp_status sfp__live_failure(const sfp__run_state *s, sfp_error *err)
{
    sfp_inbox_stats stats = sfp__inbox_stats(s->live->inbox);
    return stats.status ? sfp__fail(err, stats.status, "%s", stats.last_error) : SFP_OK;
}

sfp_status sfp__live_sync(const sfp__run_state *s, sfp_error *err)
{
    return s->live->predictions ? sfp__line_log_sync(s->live->predictions, err) : SFP_OK;
}

/* -------------------------------------------------------------- numbers, position */

sfp_feed_stats sfp__live_stats(const sfp__run_state *s)
{
    sfp_feed_stats out = {0};
    if (!s->live->inbox)
        return out;
    sfp_inbox_stats stats = sfp__inbox_stats(s->live->inbox);
    out.decode = stats.decode;
    out.waited = stats.waited;
    memcpy(out.first_error, stats.first_error, sizeof out.first_error);
    return out;
}

void sfp__live_numbers(sfp__run_state *s)
{
    sfp_result *r = s->r;
    r->labels.waiting = sfp__ledger_waiting(s->live->ledger);
    sfp__run_times(s);
    if (s->lag && !(s->opt->rate > 0) && r->seconds.total > 0)
        r->lambda = (double)r->samples.offered / r->seconds.total; /* as it turned out */
}

json_t *sfp__live_position(const sfp__run_state *s)
{
    json_t *j = sfp__ledger_json(s->live->ledger);
    if (j && json_object_set_new(j, "lag", sfp__run_lag_json(&s->live->lag)) == 0)
        return j;
    json_decref(j);
    return NULL;
}

bool sfp__live_read_position(sfp__run_state *s, json_t *j)
{
    return sfp__run_read_lag(json_object_get(j, "lag"), &s->live->lag) && sfp__ledger_read(s->live->ledger, j);
}
