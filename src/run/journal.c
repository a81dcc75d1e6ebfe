/* The record of a run. Every timestamp adds counts, points of curves, a line of DIR/events.jsonl (docs/method.md, section 17) and
 * a progress report. The journal also writes predictions, computes the numbers of the result and keeps images for the report:
 * some of the last timestamp, inside and outside the coreset, and those of the buffer. */
#include "base/mem.h"
#include "base/monotonic.h"
#include "compute/gemm.h"
#include "compute/kernels.h"
#include "io/json_write.h"
#include "learner/diagnostics.h"
#include "report/report.h"
#include "run/options.h"
#include "run/run_internal.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { WARM_UP = 3 };                /* timestamps that the mean processing time does not include */
enum { CURVE_MAX = 4000 };           /* maximum number of points in a curve of a live stream */
enum { LOGS = 8 };                   /* datasets: rotated files of a log */
#define LOG_BYTES ((size_t)64 << 20) /* datasets: size at which a log is rotated */

/* ------------------------------------------------------------------- beginning */

sfp_status sfp__journal_init(sfp__journal *j, const sfp__plan *p, sfp_error *err)
{
    size_t max_samples = (size_t)p->opt->learner.batch;
    sfp_result *r = j->r;
    TRY(sfp__alloc(&j->ids, max_samples, sizeof *j->ids, err));
    TRY(sfp__alloc(&j->shown.in_coreset, max_samples, sizeof *j->shown.in_coreset, err));
    TRY(sfp__alloc(&j->shown.rgb, SFP__RUN_SHOWN, 3 * (size_t)p->size * (size_t)p->size, err));
    TRY(sfp__result_init(r, p->tasks.count, p->tasks.classes, err));
    for (int t = 0; t < p->tasks.count; t++)
        TRY(sfp__check_memory((r->task_names[t] = sfp__strdup(p->tasks.task[t].name)), err));
    for (int c = 0; c < p->tasks.classes; c++)
        TRY(sfp__check_memory((r->class_names[c] = sfp__strdup(p->source->class_names[p->tasks.source_label[c]])), err));
    r->seed = p->opt->learner.seed;
    r->lambda = p->opt->rate > 0 ? p->opt->rate : NAN;
    r->machine.threads = sfp__thread_pool_size(p->opt->pool);
    (void)snprintf(r->machine.cpu, sizeof r->machine.cpu, "%s", sfp__cpu_name());
    (void)snprintf(r->machine.kernels, sizeof r->machine.kernels, "%s", sfp__kernels_get()->isa);
    (void)snprintf(r->machine.gemm, sizeof r->machine.gemm, "%s", sfp__gemm_backend());
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc))
        (void)strftime(r->started, sizeof r->started, "%Y-%m-%dT%H:%M:%SZ", &utc);
    TRY(sfp__settings_record(p->opt->given, r, err));
    TRY(sfp__run_record_preset(p->opt->given, r, err));
    if (!p->opt->clock_of_preset)
        return SFP_OK;
    TRY(sfp__result_config(r, "clock", sfp__clock_name(p->clock), err));
    return sfp__result_preset(r, "clock", sfp__clock_name(p->clock), err);
}

void sfp__journal_restore(sfp__journal *j, const sfp__plan *p, sfp_result *then, bool ended)
{
    sfp_result *r = j->r;
    sfp__result_done(r);
    *r = TAKE(*then);
    j->earlier.decode = r->seconds.decode;
    j->earlier.wait_seconds = r->seconds.wait_seconds;
    j->earlier.total = r->seconds.total;
    if (ended)
        return;
    (void)snprintf(r->version, sizeof r->version, "%s", sfp_version());
    r->finished = false;
    if (p->live) { /* an evaluation of an earlier process does not describe the present state */
        r->tasks_done = 0;
        r->average_accuracy = r->forgetting = r->backward_transfer = NAN;
    }
}

/* --------------------------------------------------------------------- files */

static sfp_status complete_predictions(sfp__journal *j, sfp__store *store, sfp_error *err);

sfp_status sfp__journal_open(sfp__journal *j, const sfp__plan *p, int64_t timestamps, sfp__arrivals *a, sfp_error *err)
{
    const char *out = p->opt->out;
    uint64_t from, last = 0;
    size_t bytes = p->live ? (size_t)p->opt->log_bytes : LOG_BYTES;
    int keep = p->live ? p->opt->log_files : LOGS;
    TRY(sfp__line_log_open(out, SFP__RUN_EVENTS, "t", (uint64_t)timestamps, bytes, keep, &j->events, err));
    uint64_t next = timestamps && sfp__line_log_last(j->events, &last) ? last + 1 : 0;
    if (next < (uint64_t)timestamps && !p->live) /* the log of a live stream may have been moved away, and continues */
        sfp__plan_warn(p, "%s/%s: the last %llu timestamps before the checkpoint are missing", out, SFP__RUN_EVENTS,
                       (unsigned long long)((uint64_t)timestamps - next));
    if (!a->kind->predicts(a, &from))
        return SFP_OK;
    TRY(sfp__line_log_open(out, SFP__RUN_PREDICTIONS, "id", from, bytes, keep, &j->predictions, err));
    return a->store ? complete_predictions(j, a->store, err) : SFP_OK;
}

sfp_status sfp__journal_sync(sfp__journal *j, sfp_error *err)
{
    if (j->events)
        TRY(sfp__line_log_sync(j->events, err));
    return j->predictions ? sfp__line_log_sync(j->predictions, err) : SFP_OK;
}

void sfp__journal_done(sfp__journal *j)
{
    sfp__line_log_close(j->events);
    sfp__line_log_close(j->predictions);
    sfp__free(j->ids);
    sfp__free(j->shown.in_coreset);
    sfp__free(j->shown.rgb);
}

/* -------------------------------------------------------------- a prediction */

/* Writes a time of day (ms since 1970): UTC, with milliseconds. */
static void put_time(sfp__json *j, int64_t at)
{
    char text[40] = "";
    time_t seconds = (time_t)(at / 1000);
    struct tm utc;
    size_t n = gmtime_r(&seconds, &utc) ? strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc) : 0;
    if (n)
        (void)snprintf(text + n, sizeof text - n, ".%03dZ", (int)(at % 1000));
    sfp__json_string(j, "time", n ? text : NULL);
}

/* Writes a line of predictions.jsonl. live: the line also contains the score "unknown" and the time. */
static sfp_status put_prediction(sfp__journal *j, const sfp__stored_prediction *p, bool live, sfp_error *err)
{
    sfp__json line = {.text = sfp__line_log_begin(j->predictions)};
    sfp__json_object(&line, NULL);
    sfp__json_uint(&line, "id", p->id);
    sfp__json_int(&line, "t", p->timestamp);
    sfp__json_string(&line, "name", p->name);
    sfp__json_string(&line, "class", p->class_name);
    sfp__json_exact_float(&line, "probability", (float)p->probability);
    if (live) {
        sfp__json_exact_float(&line, "unknown", (float)p->unknown);
        put_time(&line, p->at);
    }
    sfp__json_end_all(&line);
    return sfp__line_log_add(j->predictions, err);
}

sfp_status sfp__journal_predict(sfp__journal *j, int64_t timestamps, const sfp__delivery *d, const int32_t *label,
                                const float *probability, const float *unknown, sfp__arrivals *a, sfp_error *err)
{
    const char *names[SFP__GROUP];
    int64_t at = sfp__time_of_day();
    for (int i = 0; i < d->predict_count; i++)
        names[i] = label[i] >= 0 && label[i] < j->r->classes ? j->r->class_names[label[i]] : NULL;
    if (a->kind->predicted)
        TRY(a->kind->predicted(a, d, at, timestamps, names, probability, unknown, err));
    if (!j->predictions)
        return SFP_OK;
    for (int i = 0; i < d->predict_count; i++) {
        const sfp__stored_prediction p = {.id = d->predict[i].id,
                                          .at = at,
                                          .timestamp = timestamps,
                                          .name = d->predict[i].name,
                                          .class_name = names[i],
                                          .probability = (double)probability[i],
                                          .unknown = unknown ? (double)unknown[i] : (double)NAN};
        TRY(put_prediction(j, &p, a->store != NULL, err));
    }
    TRY(sfp__line_log_flush(j->predictions, err));
    return a->store && d->predict_count ? sfp__store_set_logged(a->store, d->predict[d->predict_count - 1].id + 1, err) : SFP_OK;
}

static sfp_status put_missing(void *ctx, const sfp__stored_prediction *p, sfp_error *err)
{
    return put_prediction(ctx, p, true, err);
}

/* Writes the lines of predictions that are in the store but not in the log, because a process was killed before it wrote them. */
static sfp_status complete_predictions(sfp__journal *j, sfp__store *store, sfp_error *err)
{
    uint64_t last = 0;
    uint64_t from = sfp__line_log_last(j->predictions, &last) ? last + 1 : sfp__store_logged(store);
    TRY(sfp__store_each_prediction(store, from, put_missing, j, err));
    return sfp__line_log_flush(j->predictions, err);
}

/* -------------------------------------------------------------------- an event */

static void put_ints(sfp__json *j, const char *key, int n, const int *v)
{
    sfp__json_array(j, key);
    for (int i = 0; i < n; i++)
        sfp__json_int(j, NULL, v ? v[i] : i);
    sfp__json_end(j);
}

static void put_arrays(sfp__json *j, const sfp__timestamp_details *t, int replay, const uint64_t *ids)
{
    sfp__json_array(j, "offered");
    for (int i = 0; i < t->offered; i++)
        sfp__json_uint(j, NULL, ids[i]);
    sfp__json_end(j);
    if (t->similarity) {
        sfp__json_array(j, "similarity");
        for (int i = 0; i < t->offered; i++)
            sfp__json_exact_float(j, NULL, t->similarity[i]);
        sfp__json_end(j);
    } else {
        sfp__json_string(j, "similarity", NULL);
    }
    put_ints(j, "coreset", t->coreset_count, t->coreset);
    sfp__json_array(j, "replay");
    for (int k = 0; k < t->steps; k++)
        put_ints(j, NULL, t->replay_count[k], t->replay + (size_t)k * (size_t)replay);
    sfp__json_end(j);
    sfp__json_array(j, "loss");
    for (int k = 0; k < t->steps; k++)
        sfp__json_exact(j, NULL, t->loss[k]);
    sfp__json_end(j);
}

/* Parts of a line of a live stream, in the order of "offered". */
static void put_samples(sfp__json *j, int n, const sfp__sample *samples, char *const *class_names)
{
    put_time(j, sfp__time_of_day());
    sfp__json_array(j, "names");
    for (int i = 0; i < n; i++)
        sfp__json_string(j, NULL, samples[i].name);
    sfp__json_end(j);
    sfp__json_array(j, "labels");
    for (int i = 0; i < n; i++)
        sfp__json_string(j, NULL, class_names[samples[i].label]);
    sfp__json_end(j);
}

sfp_status sfp__journal_event(sfp__line_log *log, const sfp__timestamp_details *t, int replay, const uint64_t *ids,
                              const sfp__sample *samples, char *const *class_names, sfp_error *err)
{
    const struct {
        const char *key;
        double x;
    } seconds[] = {{"query", t->seconds.query},     {"select", t->seconds.select},     {"attune", t->seconds.attune},
                   {"forward", t->seconds.forward}, {"backward", t->seconds.backward}, {"update", t->seconds.update},
                   {"buffer", t->seconds.buffer},   {"head", t->seconds.head},         {"total", t->seconds.total}};
    sfp__json j = {.text = sfp__line_log_begin(log)};
    sfp__json_object(&j, NULL);
    sfp__json_uint(&j, "t", t->t);
    sfp__json_int(&j, "task", t->task);
    put_arrays(&j, t, replay, ids);
    sfp__json_int(&j, "stored", t->buffer.stored);
    sfp__json_int(&j, "nu", t->buffer.nu);
    put_ints(&j, "retained", t->buffer.nu, t->buffer.retained);
    put_ints(&j, "replaced", t->buffer.nu, t->buffer.replaced);
    if (t->buffer.moved > 0)
        sfp__json_printf(&j, "moved", "%.6g", t->buffer.moved);
    if (t->grew)
        sfp__json_bool(&j, "grew", true);
    sfp__json_object(&j, "seconds");
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++)
        sfp__json_printf(&j, seconds[i].key, "%.6f", seconds[i].x); /* microseconds: clocks are not more exact */
    sfp__json_end(&j);
    if (samples)
        put_samples(&j, t->offered, samples, class_names);
    sfp__json_end_all(&j);
    return sfp__line_log_add(log, err);
}

/* --------------------------------------------------------------- a timestamp */

static double prequential_accuracy(const sfp__position *at)
{
    return at->prequential_total ? (double)at->prequential_correct / (double)at->prequential_total : NAN;
}

void sfp__journal_progress(const sfp__run *run, const sfp__timestamp_details *t, uint64_t done, uint64_t total)
{
    const sfp__plan *p = &run->plan;
    const sfp__position *at = &run->at;
    if (!p->hooks->progress || (!t && total == 0))
        return;
    const sfp_run_progress progress = {.size = sizeof progress,
                                       .task = at->task,
                                       .tasks = p->tasks.count,
                                       .task_name = p->tasks.task[at->task].name,
                                       .offered_before = (uint64_t)run->journal.from,
                                       .offered = (uint64_t)at->arrived,
                                       .total = p->live ? 0 : (uint64_t)p->batches.samples,
                                       .rate = t && t->seconds.total > 0 ? t->offered / t->seconds.total : NAN,
                                       .lag = run->arrivals->lag ? run->arrivals->lag->last : NAN,
                                       .loss = t && t->loss && t->steps > 0 ? t->loss[t->steps - 1] : NAN,
                                       .accuracy = prequential_accuracy(at),
                                       .seconds = sfp__monotonic_seconds() - run->journal.began,
                                       .evaluated = done,
                                       .to_evaluate = total};
    p->hooks->progress(p->hooks->ctx, &progress);
}

/* Adds a point to a curve. A curve of a live stream with too many points loses every second one. */
static sfp_status add_point(const sfp__run *run, sfp__curve *c, double y, sfp_error *err)
{
    if (run->plan.live && c->count >= CURVE_MAX)
        sfp__curve_thin(c);
    return sfp__curve_add(c, (double)run->at.arrived, y, err);
}

static sfp_status add_points(const sfp__run *run, int n, const sfp__timestamp_details *t, sfp_error *err)
{
    sfp__curve *curve = run->journal.r->curve;
    const sfp__lag *lag = run->arrivals->lag;
    TRY(add_point(run, &curve[SFP__CURVE_PREQUENTIAL], prequential_accuracy(&run->at), err));
    if (t->loss && t->steps > 0)
        TRY(add_point(run, &curve[SFP__CURVE_LOSS], t->loss[t->steps - 1], err));
    TRY(add_point(run, &curve[SFP__CURVE_RATE], n / t->seconds.total, err));
    return lag ? add_point(run, &curve[SFP__CURVE_LAG], lag->last, err) : SFP_OK;
}

/* Counts a timestamp and its times. The mean leaves out the first timestamps, in which memory is allocated. */
static void count_timestamp(sfp_result *r, int64_t timestamps, const sfp__timestamp_details *t)
{
    double n = (double)(timestamps - WARM_UP), seconds = t->seconds.total;
    r->timestamps = (uint64_t)timestamps;
    if (n >= 1)
        r->batch_seconds = n > 1 ? r->batch_seconds + (seconds - r->batch_seconds) / n : seconds;
    r->seconds.select += t->seconds.select;
    r->seconds.train +=
        t->seconds.query + t->seconds.attune + t->seconds.forward + t->seconds.backward + t->seconds.update + t->seconds.head;
    r->seconds.buffer += t->seconds.buffer;
}

/* The samples inside or outside the coreset, of which the report shows at most max_shown. */
typedef struct side {
    int all, max_shown, seen, shown;
} side;

/* Whether the next sample of a side is shown. The shown samples are evenly spread. */
static bool is_shown(side *a)
{
    bool yes = a->shown < a->max_shown && a->seen == (int)((int64_t)a->shown * a->all / a->max_shown);
    a->seen++;
    a->shown += yes;
    return yes;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Keeps images of a timestamp for the report. */
static void keep_shown(sfp__journal *j, const sfp__plan *p, const sfp__delivery *d, const sfp__timestamp_details *t)
{
    size_t bytes = 3 * (size_t)p->size * (size_t)p->size;
    if (p->opt->vit->config.rows) /* rows of features cannot be shown as images */
        return;
    side inside = {.all = t->coreset_count}, outside = {.all = d->count - t->coreset_count};
    /* half of the images for each side; more if the other side has fewer */
    inside.max_shown = smaller(inside.all, SFP__RUN_SHOWN - smaller(outside.all, SFP__RUN_SHOWN / 2));
    outside.max_shown = smaller(outside.all, SFP__RUN_SHOWN - inside.max_shown);
    memset(j->shown.in_coreset, 0, (size_t)d->count * sizeof *j->shown.in_coreset);
    for (int i = 0; i < t->coreset_count; i++)
        j->shown.in_coreset[t->coreset[i]] = true;
    j->shown.count = 0;
    j->shown.coreset_count = inside.all;
    j->shown.rest_count = outside.all;
    for (int i = 0; i < d->count; i++) {
        if (!is_shown(j->shown.in_coreset[i] ? &inside : &outside))
            continue;
        memcpy(j->shown.rgb + (size_t)j->shown.count * bytes, d->samples[i].rgb, bytes);
        j->shown.label[j->shown.count] = d->samples[i].label;
        j->shown.chosen[j->shown.count++] = j->shown.in_coreset[i];
    }
}

sfp_status sfp__journal_write(sfp__run *run, const sfp__delivery *d, const sfp__timestamp_details *t, sfp_error *err)
{
    sfp__journal *j = &run->journal;
    const sfp__plan *p = &run->plan;
    bool learner = !p->opt->method;
    for (int i = 0; i < d->count; i++)
        j->ids[i] = d->samples[i].id;
    for (int i = 0; i < (learner ? t->coreset_count : d->count); i++)
        sfp__classes_trained(&run->classes, d->samples[learner ? t->coreset[i] : i].label);
    j->r->samples.closed_form += learner ? 0 : (uint64_t)d->count;
    if (learner && p->opt->out)
        keep_shown(j, p, d, t);
    count_timestamp(j->r, run->at.timestamps + 1, t);
    if (run->at.timestamps % p->curve_every == 0)
        TRY(add_points(run, d->count, t, err));
    if (j->events) {
        sfp__timestamp_details line = *t;
        if (!learner)
            line.task = run->at.task; /* a closed-form head has no tasks */
        TRY(sfp__journal_event(j->events, &line, p->opt->learner.replay ? p->opt->learner.replay : 1, j->ids,
                               p->live ? d->samples : NULL, j->r->class_names, err));
        if (p->live) /* its checkpoints are rare, and the log is read meanwhile */
            TRY(sfp__line_log_flush(j->events, err));
    }
    sfp__journal_progress(run, t, 0, 0);
    return SFP_OK;
}

/* -------------------------------------------------------------- an evaluation */

sfp_status sfp__journal_add_class(sfp__journal *j, const char *name, sfp_error *err)
{
    return sfp__result_add_class(j->r, name, err);
}

sfp_status sfp__journal_evaluated(sfp__run *run, double seconds, sfp_error *err)
{
    sfp_result *r = run->journal.r;
    const sfp__evaluator *e = run->evaluator;
    int row = run->at.task;
    double *accuracy = r->accuracy + (size_t)row * (size_t)r->tasks;
    TRY(sfp__result_confusion(r, err));
    if (r->confusion)
        memcpy(r->confusion, e->confusion, (size_t)e->classes * (size_t)e->classes * sizeof *r->confusion);
    memcpy(accuracy, e->accuracy, (size_t)(row + 1) * sizeof *accuracy);
    r->calibration.bins = e->calibration[0];
    r->calibration.error = sfp__reliability_error(&e->calibration[0]);
    r->calibration.before = sfp__reliability_error(&e->calibration[1]);
    r->seconds.evaluate += seconds;
    return sfp__result_evaluated(r, (uint64_t)run->at.arrived, row, accuracy, err);
}

void sfp__journal_end_task(sfp__run *run)
{
    run->journal.r->tasks_done = run->at.task + 1;
    sfp__result_summarise(run->journal.r);
}

/* ----------------------------------------------------------------- the result */

void sfp__journal_count(sfp__journal *j, const sfp__arrivals *a)
{
    const sfp__arrivals_counts *c = &a->counts;
    j->r->samples.skipped = c->skipped.count;
    j->r->labels = c->labels;
    if (a->store) {
        j->r->samples.offered = c->offered;
        j->r->samples.dropped = c->dropped;
        j->r->standings = c->standings;
    }
}

void sfp__journal_times(sfp__journal *j, sfp__arrivals *a)
{
    sfp__arrivals_stats stats = a->kind->stats(a);
    j->r->seconds.decode = j->earlier.decode + stats.decode;
    j->r->seconds.wait_seconds = j->earlier.wait_seconds + stats.wait_seconds;
    j->r->seconds.total = j->earlier.total + sfp__monotonic_seconds() - j->began;
}

void sfp__journal_finish(sfp__run *run, bool finished)
{
    sfp_result *r = run->journal.r;
    const sfp__plan *p = &run->plan;
    const sfp__lag *lag = run->arrivals->lag;
    sfp__learner_counts counts = sfp__learner_get_counts(run->learner);
    int trained = 0, classes = p->live ? run->classes.count : p->stream_classes;
    for (int c = 0; c < run->classes.count; c++)
        trained += run->classes.trained[c];
    r->samples.scored = counts.scored;
    r->samples.trained = counts.trained;
    r->samples.replayed = counts.replayed;
    r->finished = finished;
    r->cs = run->at.cs;
    r->starved_tasks = p->starved_tasks;
    sfp__journal_count(&run->journal, run->arrivals);
    sfp__journal_times(&run->journal, run->arrivals);
    if (p->live) { /* without a rate, the measured one */
        double measured = lag && r->seconds.total > 0 ? (double)r->samples.offered / r->seconds.total : NAN;
        r->lambda = lag && p->opt->rate > 0 ? p->opt->rate : measured;
    } else {
        r->samples.offered = (uint64_t)(finished ? p->batches.samples : run->at.arrived) + run->arrivals->counts.unread;
        r->samples.dropped = r->samples.offered - counts.offered - r->samples.skipped;
        if (p->opt->drop_short)
            r->samples.excluded =
                (uint64_t)sfp__batches_excluded(&p->tasks, p->opt->learner.batch, finished ? p->tasks.count : run->at.task);
    }
    r->coverage = classes ? (double)trained / classes : NAN;
    r->prequential_accuracy = prequential_accuracy(&run->at);
    bool has_lag = lag && lag->served;
    r->lag.mean = has_lag ? lag->sum / (double)lag->served : NAN;
    r->lag.max = has_lag ? lag->max : NAN;
    r->lag.last = has_lag ? lag->last : NAN;
    double work = r->seconds.select + r->seconds.train + r->seconds.buffer;
    r->samples_per_second = work > 0 ? (double)counts.offered / work : NAN;
    const sfp__vit_memo_stats cache = sfp__vit_memo_get_stats(p->memo);
    r->cache.hits = cache.hits;
    r->cache.misses = cache.misses;
    struct rusage u;
    r->peak_rss_bytes = getrusage(RUSAGE_SELF, &u) == 0 ? (uint64_t)u.ru_maxrss * 1024 : 0;
}

static sfp__coreset_ratios ratios_of(const sfp__coreset_diagnosis *d)
{
    return (sfp__coreset_ratios){d->ratio, d->deviation, d->within, d->random_deviation, d->random_within};
}

sfp_status sfp__journal_diagnose(sfp__run *run, sfp_error *err)
{
    sfp_result *r = run->journal.r;
    int n = sfp__learner_diagnosed_tasks(run->learner);
    size_t square = (size_t)n * (size_t)n, tasks = (size_t)r->tasks;
    OWNED double *cosines = NULL;
    sfp__diagnosis d;
    if (!run->plan.opt->diagnostics || run->plan.opt->method)
        return SFP_OK;
    TRY(sfp__alloc(&cosines, 2 * square, sizeof *cosines, err));
    TRY(sfp__learner_diagnose(run->learner, &d, cosines, cosines + square, err));
    r->diagnostics.measured = true;
    r->diagnostics.coreset_cost = ratios_of(&d.cost);
    r->diagnostics.coreset_angle = ratios_of(&d.angle);
    r->diagnostics.buffer_mmd = d.buffer_mmd;
    r->diagnostics.buffer_mmd_mean = d.buffer_mmd_mean;
    r->diagnostics.stream_score_deviation = d.stream_score_deviation;
    r->diagnostics.gradient_cosine_fingerprints = d.gradient_cosine_fingerprints;
    r->diagnostics.gradient_cosine_head = d.gradient_cosine_head;
    for (int k = 0; k < 2 && n; k++) {
        double *to = sfp__result_gradient_cosines(r, k);
        TRY(sfp__check_memory(to, err));
        for (int i = 0; i < n; i++)
            memcpy(to + (size_t)i * tasks, cosines + (size_t)k * square + (size_t)i * (size_t)n, (size_t)n * sizeof *to);
    }
    return SFP_OK;
}

/* ----------------------------------------------------------------- the report */

sfp_status sfp__journal_report(const sfp__run *run, const char *path, sfp_error *err)
{
    const sfp__journal *j = &run->journal;
    sfp__buffer *buffer = sfp__learner_buffer(run->learner);
    int n = buffer ? buffer->filled : 0, size = run->plan.size;
    uint64_t now = sfp__learner_get_counts(run->learner).timestamps;
    sfp__thumb batch[SFP__RUN_SHOWN];
    OWNED sfp__thumb *kept = NULL;
    TRY(sfp__alloc(&kept, (size_t)n, sizeof *kept, err));
    for (int i = 0; i < j->shown.count; i++)
        batch[i] = (sfp__thumb){.width = size,
                                .height = size,
                                .rgb = j->shown.rgb + (size_t)i * 3 * (size_t)size * (size_t)size,
                                .label = j->r->class_names[j->shown.label[i]],
                                .in_coreset = j->shown.chosen[i]};
    for (int i = 0; i < n; i++)
        kept[i] = (sfp__thumb){.width = size,
                               .height = size,
                               .rgb = buffer->slot[i].image,
                               .label = j->r->class_names[buffer->slot[i].label],
                               .age = now - buffer->slot[i].stored_at};
    const sfp__report_images images = {.selects = !run->plan.opt->method,
                                       .batch_count = j->shown.count,
                                       .batch = batch,
                                       .coreset_count = j->shown.coreset_count,
                                       .rest_count = j->shown.rest_count,
                                       .buffer_count = n,
                                       .buffer = kept};
    return sfp__report_write(j->r, &images, path, err);
}
