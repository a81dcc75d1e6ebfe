/* The loop over a live stream (run.h). Classes are numbered as they come; names tie them to those of the source, of a test set
 * and of an earlier process.
 *
 * Every picture ends in one of these ways, and its mark is kept then, so that --resume does not take it again: learned from,
 * dropped, not readable, given up without a label. Pictures in queues and those that wait for a label have no such end yet: they
 * come again, and the latter are known by what the checkpoint says of them.
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
        return sfp__fail(err, SFP_EINVAL, "tasks is '%s', expected free: %s is a live stream and has no tasks", o->tasks,
                         o->data);
    if (s->clock_kind == SFP_CLOCK_PAPER || s->clock_kind == SFP_CLOCK_VIRTUAL)
        return sfp__fail(err, SFP_EINVAL, "clock %s needs a stream that is known beforehand, expected real or off: %s is live",
                         sfp__clock_name(s->clock_kind), o->data);
    if (o->costs)
        return sfp__fail(err, SFP_EINVAL, "costs is '%s', expected none: %s is a live stream, which costs what it costs",
                         o->costs, o->data);
    if (o->rate > 0 && !s->source->on_demand)
        return sfp__fail(err, SFP_EINVAL, "rate is %g, expected none: %s: these pictures come at their own rate", o->rate,
                         o->data);
    if (s->clock_kind == SFP_CLOCK_REAL && s->source->on_demand && !(o->rate > 0))
        return sfp__fail(err, SFP_EINVAL, "clock real: this clock needs a rate (--rate samples/s) on %s", o->data);
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
    v->pending.most = s->opt->pending;
    v->unseen = -1;
    if ((status = sfp__done_marks_init(&v->done, s->source->marks, err)))
        return status;
    size_t dim = (size_t)sfp__vit_config(s->opt->vit)->dim;
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
    sfp__arrivals_done(&v->pending.list);
    sfp__waited_done(&v->waited);
    sfp__line_log_close(v->predictions);
    sfp__names_done(&v->classes);
    sfp__free(v->label_of);
    sfp__done_marks_done(&v->done);
    sfp__free(v->joined);
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
    return status || !s->opt->out ? status
                                  : sfp__line_log_open(s->opt->out, SFP__RUN_PREDICTIONS, "id", v->predicted, SFP__RUN_LOG_BYTES,
                                                       SFP__RUN_LOGS, &v->predictions, err);
}

/* -------------------------------------------------------------- what is done with */

/* Its mark is kept, and it is no more. */
static void finish(sfp__live *v, sfp_arrival *a)
{
    if (a->rgb || a->fate != SFP_FATE_NONE)
        v->next_id = a->id + 1 > v->next_id ? a->id + 1 : v->next_id;
    if (a->mark)
        sfp__done_marks_put(&v->done, a->mark, a->changed);
    sfp__arrival_free(a);
}

/* Of those that did not come again yet. */
static void give_up_oldest(sfp__run_state *s)
{
    sfp__live *v = s->live;
    sfp_waited_one *oldest = sfp__waited_oldest(&v->waited);
    sfp__done_marks_put(&v->done, oldest->mark, oldest->changed);
    sfp__waited_over(&v->waited, oldest);
    s->r->labels.expired++;
}

/* Waits for its label, for which the oldest may have to go: first of those that did not come again. */
static void let_wait(sfp__run_state *s, sfp_arrival *a)
{
    sfp__live *v = s->live;
    if (v->waited.missing > 0 && (size_t)v->pending.list.count + v->waited.missing >= (size_t)v->pending.most)
        give_up_oldest(s);
    sfp_arrival *out = sfp__pending_put(&v->pending, a);
    if (out) {
        s->r->labels.expired++;
        finish(v, out);
    }
}

typedef enum came {
    CAME_NEW,
    CAME_AGAIN, /* it waited when the checkpoint was written, and does so here from now on */
    CAME_OVER,  /* it waited then, but had its end since: under another name, or given up */
} came;

/* Of a picture without a label. */
static came came_before(sfp__live *v, const sfp_arrival *a)
{
    sfp_waited_one *one = sfp__waited_find(&v->waited, a->identity);
    if (!one || one->over)
        return one ? CAME_OVER : CAME_NEW;
    sfp__waited_over(&v->waited, one);
    return CAME_AGAIN;
}

static void leave_joined(sfp__live *v, uint64_t id)
{
    for (size_t i = 0; i < v->joined_count; i++)
        if (v->joined[i].id == id) {
            v->joined[i] = v->joined[--v->joined_count];
            return;
        }
}

/* Of a picture with a label: when it came before without one, and got it by a line of labels.csv or was moved into the folder of
 * its class, say, its waiting ends. */
static void end_waiting(sfp__run_state *s, sfp_arrival *a)
{
    sfp__live *v = s->live;
    sfp_arrival *same = a->late ? NULL : sfp__pending_identical(&v->pending, a->identity);
    sfp_waited_one *one = same || a->late ? NULL : sfp__waited_find(&v->waited, a->identity);
    if (a->late) {
        s->r->labels.late++;
        leave_joined(v, a->id);
    } else if (same) {
        s->r->labels.late++;
        a->id = same->id;
        finish(v, same);
    } else if (one && !one->over) {
        s->r->labels.late++;
        sfp__done_marks_put(&v->done, one->mark, one->changed);
        sfp__waited_over(&v->waited, one);
    }
}

sfp_status sfp__live_resumed(sfp__run_state *s, sfp_error *err)
{
    sfp__live *v = s->live;
    size_t most = s->source->leave_out ? (size_t)v->pending.most : 0; /* a source that cannot go back does not give them again */
    while (v->waited.missing > most)
        give_up_oldest(s);
    return sfp__live_take_classes(s, err);
}

static void take_gone(sfp__run_state *s, sfp_arrivals *gone)
{
    sfp_result *r = s->r;
    for (sfp_arrival *a; (a = sfp__arrivals_take(gone));) {
        if (a->fate == SFP_FATE_EXPIRED) {
            came c = came_before(s->live, a);
            r->labels.unlabelled += c == CAME_NEW;
            r->labels.expired += c != CAME_OVER;
        } else {
            r->offered++;
            r->dropped += a->fate == SFP_FATE_DROPPED;
            r->skipped += a->fate == SFP_FATE_SKIPPED;
            if (a->fate == SFP_FATE_DROPPED)
                end_waiting(s, a);
        }
        finish(s->live, a);
    }
}

/* --------------------------------------------------------------- without a label */

/* Predicts what came without a label, then lets it wait. */
static sfp_status predict(sfp__run_state *s, sfp_arrivals *group, sfp_error *err)
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
        status = sfp__system_predict(&s->system, n, rgb, v->query, has_query, label, probability, err);
    for (int i = 0; !status && i < n; i++) {
        sfp_arrival *a = sfp__arrivals_take(group);
        const sfp__prediction p = {.id = a->id, .name = a->name, .label = label[i], .probability = probability[i]};
        status = sfp__run_write_prediction(s, v->predictions, &p, err);
        v->predicted = a->id + 1;
        v->next_id = v->predicted > v->next_id ? v->predicted : v->next_id;
        s->r->labels.unlabelled++;
        let_wait(s, a);
    }
    return status;
}

/* A label that came late: its picture, if it still waits, joins the stream. Until it is learned from a checkpoint holds it as one
 * that waits. */
static sfp_status take_label(sfp__run_state *s, sfp_arrival *a, sfp_error *err)
{
    sfp__live *v = s->live;
    bool room = sfp__grow(&v->joined, sizeof *v->joined, v->joined_count, v->joined_count + 1, &v->joined_room);
    sfp_arrival *p = room ? sfp__pending_named(&v->pending, a->name) : NULL;
    if (p) {
        p->label = a->label;
        p->class_name = a->class_name;
        p->late = true;
        v->joined[v->joined_count++] =
            (sfp_waited_one){.identity = p->identity, .id = p->id, .mark = p->mark, .changed = p->changed};
        sfp__inbox_join(v->inbox, p);
    }
    sfp__arrival_free(a);
    return room ? SFP_OK : sfp__fail_nomem(err);
}

static sfp_status take_others(sfp__run_state *s, sfp_arrivals *others, sfp_error *err)
{
    sfp_arrivals group = {0};
    sfp_status status = SFP_OK;
    for (sfp_arrival *a; !status && (a = sfp__arrivals_take(others));) {
        came c = a->rgb ? came_before(s->live, a) : CAME_NEW;
        if (c == CAME_AGAIN) {
            let_wait(s, a);
        } else if (c == CAME_OVER) {
            finish(s->live, a);
        } else if (a->rgb) {
            sfp__arrivals_put(&group, a);
            if (group.count == GROUP)
                status = predict(s, &group, err);
        } else if (!(status = predict(s, &group, err))) {
            status = take_label(s, a, err);
        } else {
            sfp__arrival_free(a);
        }
    }
    if (!status)
        status = predict(s, &group, err);
    if (!status && s->live->predictions) /* people wait for these */
        status = sfp__line_log_flush(s->live->predictions, err);
    sfp__arrivals_done(&group);
    return status;
}

/* -------------------------------------------------------------------- the loop */

static sfp_status offer(sfp__run_state *s, const sfp_delivery *d, sfp_error *err)
{
    int n = 0;
    sfp_status status = SFP_OK;
    for (sfp_arrival *a = d->batch.first; !status && a; a = a->next) {
        end_waiting(s, a);
        s->pooled[n] = (sfp_sample){.rgb = a->rgb, .id = a->id, .encoded = a->kept.bytes, .encoded_size = a->kept.size};
        status = sfp__live_label(s, a, &s->pooled[n++].label, err);
    }
    sfp_timestamp t;
    if (!status)
        status = sfp__system_offer(&s->system, n, s->pooled, &t, err);
    double rate = sfp__inbox_stats(s->live->inbox).rate;
    if (s->lag)
        s->spacing = s->opt->rate > 0 ? 1 / s->opt->rate : 1 / rate;
    if (!status)
        status = sfp__run_record(s, n, s->pooled, &t, NULL, err);
    return status ? status : sfp__run_evaluate_now_and_then(s, err);
}

static sfp_status learn(sfp__run_state *s, sfp_delivery *d, sfp_error *err)
{
    if (d->batch.count == 0)
        return SFP_OK;
    if (s->lag)
        sfp__lag_join(&s->live->lag, &d->lag);
    sfp_status status = begin(s, err);
    if (!status)
        status = offer(s, d, err);
    for (sfp_arrival *a; !status && (a = sfp__arrivals_take(&d->batch));)
        finish(s->live, a);
    return status;
}

/* A stream may rest for long: what came is saved meanwhile. */
static sfp_status save(sfp__run_state *s, const sfp_delivery *d, bool *unsaved, sfp_error *err)
{
    double before = s->saved_at;
    *unsaved |= d->taken > 0;
    if (!*unsaved || !s->begun)
        return SFP_OK;
    sfp_status status = sfp__run_save_now_and_then(s, err);
    *unsaved = s->saved_at == before;
    return status;
}

/* What is done with does not come again, and what waits does. */
static sfp_status leave_out(const sfp__run_state *s, sfp_error *err)
{
    const sfp__live *v = s->live;
    uint64_t *waiting = sfp__malloc((v->waited.count + 1) * sizeof *waiting);
    sfp_left_out what = {.n = v->done.count, .marks = v->done.mark, .until = v->done.until, .waiting_marks = waiting};
    if (!waiting)
        return sfp__fail_nomem(err);
    for (size_t i = 0; i < v->waited.count; i++)
        if (!v->waited.list[i].over)
            waiting[what.waiting++] = v->waited.list[i].mark;
    sfp_status status = s->source->leave_out(s->source, &what, err);
    sfp__free(waiting);
    return status;
}

static sfp_status start(sfp__run_state *s, sfp_error *err)
{
    const sfp_run_options *o = s->opt;
    sfp__live *v = s->live;
    bool real = s->clock_kind == SFP_CLOCK_REAL;
    sfp_status status = SFP_OK;
    if (v->done.count && s->source->leave_out)
        status = leave_out(s, err);
    s->r->lambda = real && o->rate > 0 ? o->rate : NAN;
    const sfp_inbox_options io = {.size = sfp__vit_config(o->vit)->img_size,
                                  .resize = o->learner.resize,
                                  .keep_encoded = o->learner.keep_compressed,
                                  .batch = o->learner.batch,
                                  .queue = real ? o->queue : SFP__RUN_AHEAD,
                                  .policy = real ? o->policy : SFP_QUEUE_BLOCK,
                                  .pool = real && o->triage ? SFP__RUN_POOL : 0,
                                  .others = o->pending > GROUP ? o->pending : GROUP,
                                  .pace = real ? o->rate : 0,
                                  .first_id = v->next_id,
                                  .waited = &v->waited};
    return status ? status : sfp__inbox_create(s->source, &io, &v->inbox, err);
}

static void delivery_done(sfp_delivery *d)
{
    sfp__arrivals_done(&d->batch);
    sfp__arrivals_done(&d->others);
    sfp__arrivals_done(&d->gone);
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
        sfp_delivery d;
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
    if (!status && s->stamps == 0 && s->r->skipped > 0 && s->r->labels.unlabelled == 0)
        status = sfp__fail(err, SFP_EFORMAT, "%s: none of the %llu pictures could be read; the first: %s", s->opt->data,
                           (unsigned long long)s->r->skipped, sfp__live_stats(s).first_error);
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
    r->labels.waiting = (uint64_t)s->live->pending.list.count + s->live->waited.missing + s->live->joined_count;
    sfp__run_times(s);
    if (s->lag && !(s->opt->rate > 0) && r->seconds.total > 0)
        r->lambda = (double)r->offered / r->seconds.total; /* as it turned out */
}

/* Those in memory, those that did not come again yet, and last, to be given up last, those whose label is there. */
static json_t *waiting_json(const sfp__live *v)
{
    json_t *list = json_array();
    bool all = list != NULL;
    for (const sfp_arrival *a = v->pending.list.first; a && all; a = a->next)
        all = sfp__waited_put_json(
            list, &(sfp_waited_one){.identity = a->identity, .id = a->id, .mark = a->mark, .changed = a->changed});
    for (size_t i = 0; i < v->waited.count && all; i++)
        if (!v->waited.list[i].over)
            all = sfp__waited_put_json(list, &v->waited.list[i]);
    for (size_t i = 0; i < v->joined_count && all; i++)
        all = sfp__waited_put_json(list, &v->joined[i]);
    if (!all) {
        json_decref(list);
        return NULL;
    }
    return list;
}

json_t *sfp__live_position(const sfp__run_state *s)
{
    const sfp__live *v = s->live;
    return json_pack("{s:I,s:I,s:o,s:I,s:o,s:o}", "next_id", (json_int_t)v->next_id, "predicted", (json_int_t)v->predicted,
                     "marks", sfp__done_marks_json(&v->done), "until", (json_int_t)v->done.until, "waiting", waiting_json(v),
                     "lag", sfp__run_lag_json(&v->lag));
}

bool sfp__live_read_position(sfp__run_state *s, json_t *j)
{
    sfp__live *v = s->live;
    int64_t next_id, predicted, until;
    if (!sfp__run_whole(j, "next_id", 0, INT64_MAX, &next_id) || !sfp__run_whole(j, "until", INT64_MIN, INT64_MAX, &until) ||
        !sfp__run_whole(j, "predicted", 0, next_id, &predicted) || !sfp__run_read_lag(json_object_get(j, "lag"), &v->lag) ||
        !sfp__done_marks_read(&v->done, json_object_get(j, "marks"), until) ||
        !sfp__waited_read(&v->waited, json_object_get(j, "waiting"), (uint64_t)next_id))
        return false;
    v->next_id = (uint64_t)next_id;
    v->predicted = (uint64_t)predicted;
    return true;
}
