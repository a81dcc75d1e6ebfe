/* What a run notes of a timestamp, for all kinds of streams: counts, curves, events, progress; how the controller follows; and
 * evaluation. */
#include "base/clock.h"
#include "run/run_internal.h"

#include <math.h>
#include <stdio.h>
#include <sys/resource.h>

enum { CURVE_POINTS = 2000, CHECKPOINT_PART = 50 }; /* the time between checkpoints is at least so many times what one takes */
_Static_assert((int)SFP_RESULT_HEADS == (int)SFP_HEAD_EXPERTS, "a result has the accuracy of every expert of a mixed head");

/* ----------------------------------------------------------------- evaluation */

/* What each head of a mixed one would have said alone. */
static sfp_status record_heads(sfp__run_state *s, int row, sfp_error *err)
{
    sfp_result *r = s->r;
    for (int h = 0; h < SFP_RESULT_HEADS; h++)
        for (int j = 0; j <= row; j++) {
            double alone = sfp__evaluator_alone(s->evaluator, h, j);
            double *a =
                isnan(alone) ? NULL : sfp__result_head(r, h); /* NAN: not mixed, or no picture of this task could be read */
            if (a)
                a[(size_t)row * (size_t)r->tasks + (size_t)j] = alone;
            else if (!isnan(alone))
                return sfp__fail_nomem(err);
        }
    return SFP_OK;
}

static void tell_evaluation(void *ctx, uint64_t done)
{
    const sfp__run_state *s = ctx;
    if (s->hooks->evaluating)
        s->hooks->evaluating(s->hooks->ctx, s->task, done, sfp__evaluator_pictures(s->evaluator, s->task));
}

void sfp__run_watch_evaluator(sfp__run_state *s)
{
    sfp__evaluator_tell(s->evaluator, tell_evaluation, s);
    if (!s->live) /* which ends by being stopped, and is judged then */
        sfp__evaluator_stop(s->evaluator, s->hooks->stop);
}

static sfp_status note_evaluation(sfp__run_state *s, int row, const double *accuracy, sfp_error *err)
{
    sfp_status status = record_heads(s, row, err);
    if (!status)
        status = sfp__result_evaluated(s->r, (uint64_t)s->arrived, row, accuracy, err);
    s->evaluated.stamps = status ? -1 : s->stamps;
    s->evaluated.task = row;
    return status;
}

static sfp_status evaluate(sfp__run_state *s, sfp_error *err)
{
    if (!s->evaluator)
        return SFP_OK;
    double begin = sfp__now();
    int row = s->task;
    tell_evaluation(s, 0);
    sfp_result *r = s->r;
    double *accuracy = r->accuracy + (size_t)row * (size_t)r->tasks;
    sfp_status status = s->live ? sfp__live_match(s, err) : SFP_OK;
    if (!status)
        status = sfp__evaluator_run(s->evaluator, s->predictor, row, accuracy, r->classes, r->confusion, err);
    s->given_up = !status && sfp__evaluator_given_up(s->evaluator);
    if (!status && !s->given_up)
        status = note_evaluation(s, row, accuracy, err);
    double took = sfp__now() - begin;
    r->seconds.evaluate += took;
    if (s->clocked)
        s->clock.began += took; /* the real one: what arrives meanwhile is not lost to a test */
    return status;
}

sfp_status sfp__run_end_task(sfp__run_state *s, sfp_error *err)
{
    bool again = s->evaluated.stamps == s->stamps && s->evaluated.task == s->task; /* --eval-every fell on its last timestamp */
    sfp_status status = again ? SFP_OK : evaluate(s, err);
    if (status || s->given_up)
        return status;
    s->r->tasks_done = s->task + 1;
    sfp__result_summarise(s->r);
    if (s->opt->out) {
        char name[64], path[4096];
        (void)snprintf(name, sizeof name, "state-task-%d.safetensors", s->task + 1);
        if (!(status = sfp__run_path(s, name, path, sizeof path, err)))
            status = sfp__learner_save_state(s->learner, path, err);
    }
    return status;
}

/* Pictures come when they come: training seconds may be few and far between. */
static bool takes_its_time(const sfp__run_state *s)
{
    return s->live || s->clock_kind == SFP_CLOCK_REAL;
}

double sfp__run_checkpoint_at(const sfp__run_state *s)
{
    return s->saved_at + fmax(s->opt->checkpoint_seconds, CHECKPOINT_PART * s->last_cost);
}

static void say_pace(sfp__run_state *s)
{
    char text[160];
    if (s->pace_said)
        return;
    s->pace_said = true;
    (void)snprintf(text, sizeof text, "a checkpoint takes %.2g s: one is written every %.0f s%s, to cost no more than 2 %%",
                   s->last_cost, CHECKPOINT_PART * s->last_cost, takes_its_time(s) ? "" : " of training");
    sfp__run_say(s, text);
}

sfp_status sfp__run_evaluate_due(sfp__run_state *s, sfp_error *err)
{
    sfp_status status = evaluate(s, err);
    s->due.evaluation = s->given_up;
    return status;
}

sfp_status sfp__run_evaluate_now_and_then(sfp__run_state *s, sfp_error *err)
{
    bool fresh = s->stamps > 0 && s->evaluated.stamps != s->stamps; /* a batch that could not be read is no timestamp */
    return s->opt->eval_every > 0 && s->stamps % s->opt->eval_every == 0 && fresh ? sfp__run_evaluate_due(s, err) : SFP_OK;
}

sfp_status sfp__run_save_now_and_then(sfp__run_state *s, sfp_error *err)
{
    double since = takes_its_time(s) ? sfp__now() - s->saved_at : s->since;
    bool something = s->live || s->stamps > 0; /* to go on from */
    if (s->given_up || !s->opt->out || !something || since < s->opt->checkpoint_seconds)
        return SFP_OK;
    if (since >= CHECKPOINT_PART * s->last_cost) {
        sfp__run_times(s);
        return sfp__run_checkpoint(s, err);
    }
    say_pace(s);
    return SFP_OK;
}

/* ---------------------------------------------------------------- a timestamp */

static double accuracy_so_far(const sfp__run_state *s)
{
    return s->judged ? (double)s->right / (double)s->judged : NAN;
}

static void tell(sfp__run_state *s, const sfp_timestamp *t)
{
    if (!s->hooks->progress)
        return;
    const sfp_run_progress p = {.task = s->task,
                                .tasks = s->tasks.count,
                                .task_name = s->tasks.task[s->task].name,
                                .from = (uint64_t)s->from,
                                .offered = (uint64_t)s->arrived,
                                .total = s->live ? 0 : (uint64_t)s->batches.samples,
                                .rate = t->seconds.total > 0 ? t->offered / t->seconds.total : NAN,
                                .lag = s->lag ? s->lag->last : NAN,
                                .loss = t->loss ? t->loss[t->steps - 1] : NAN,
                                .accuracy = accuracy_so_far(s),
                                .seconds = sfp__now() - s->began};
    s->hooks->progress(s->hooks->ctx, &p);
}

/* A point of a curve; one over a stream whose end is not known is thinned out when it has too many. */
static sfp_status draw(const sfp__run_state *s, sfp_curve *c, double x, double y, sfp_error *err)
{
    if (s->live && c->count >= 2 * CURVE_POINTS)
        sfp__curve_thin(c);
    return sfp__curve_add(c, x, y, err);
}

static sfp_status draw_all(sfp__run_state *s, int n, const sfp_timestamp *t, sfp_error *err)
{
    sfp_result *r = s->r;
    double x = (double)s->arrived;
    sfp_status status = draw(s, &r->curve[SFP_CURVE_PREQUENTIAL], x, accuracy_so_far(s), err);
    if (!status && t->loss)
        status = draw(s, &r->curve[SFP_CURVE_LOSS], x, t->loss[t->steps - 1], err);
    if (!status)
        status = draw(s, &r->curve[SFP_CURVE_RATE], x, n / t->seconds.total, err);
    if (!status && s->lag)
        status = draw(s, &r->curve[SFP_CURVE_LAG], x, s->lag->last, err);
    return status;
}

static void count_times(sfp__run_state *s, const sfp_timestamp *t)
{
    sfp_result *r = s->r;
    r->seconds.select += t->seconds.select;
    r->seconds.train +=
        t->seconds.query + t->seconds.attune + t->seconds.forward + t->seconds.backward + t->seconds.update + t->seconds.head;
    r->seconds.buffer += t->seconds.buffer;
    s->since += t->seconds.total;
}

static sfp_status log_event(sfp__run_state *s, const sfp_timestamp *t, sfp_error *err)
{
    sfp_timestamp line = *t;
    if (s->opt->method)
        line.task = s->task; /* which a head does not know */
    return sfp__events_write(s->events, &line, s->opt->learner.replay ? s->opt->learner.replay : 1, s->ids, err);
}

/* The controller (ours): what a batch may cost is the time in which it arrives, less what the pictures without a label that came
 * with it took; how many samples that buys follows from what they cost lately. Given costs are taken whole: they do not say what
 * part scoring has. */
static void control(sfp__run_state *s, double time, const sfp_timestamp *t, double cost)
{
    const sfp_learner_options *o = &s->opt->learner;
    int trained = 0;
    for (int k = 0; k < t->steps; k++)
        trained += t->coreset_count + t->replay_count[k];
    if (trained == 0)
        return;
    double fixed = s->cost_count ? 0 : t->seconds.select + t->seconds.buffer, each = (cost - fixed) / trained;
    double budget = time - fixed - 0.5 * s->lag->last; /* a part of the lag is worked off with every batch */
    int rehearsed = sfp__learner_buffer(s->learner) ? o->replay : 0;
    int full = sfp__coreset_size(o->batch, o->coreset.sigma), most = (full + rehearsed) * o->steps;
    int samples = each > 0 && budget / each < most ? (int)fmax(budget / each, 0) : most;
    samples = samples < 2 ? 2 : samples;
    int replay = samples / 2 < rehearsed ? samples / 2 : rehearsed, coreset = samples - replay;
    int steps = coreset > full && o->steps > 1 ? coreset / full : 1;
    sfp__learner_limit(s->learner, coreset < full ? coreset : full, replay < 1 ? 1 : replay, steps < o->steps ? steps : o->steps);
}

void sfp__run_tell_slack(sfp_learner *l, double time, double spent)
{
    if (isfinite(time)) /* half the time that a batch gives must be left over */
        sfp__learner_slack(l, spent < 0.5 * time);
}

sfp_status sfp__run_record(sfp__run_state *s, int n, const sfp_sample *samples, const sfp_timestamp *t, double *cost,
                           sfp_error *err)
{
    bool learner = !s->opt->method;
    if (s->live) {
        s->r->samples.offered += (uint64_t)n;
        s->arrived = (int64_t)s->r->samples.offered;
    }
    s->judged += (uint64_t)t->judged;
    s->right += (uint64_t)t->right;
    for (int i = 0; i < n; i++) {
        s->ids[i] = samples[i].id;
        if (!learner)
            s->trained_class[samples[i].label] = 1;
    }
    if (learner && s->opt->out)
        sfp__run_show(s, n, samples, t);
    for (int i = 0; learner && i < t->coreset_count; i++)
        s->trained_class[samples[t->coreset[i]].label] = 1;
    count_times(s, t);
    sfp_status status = s->stamps % (s->batches.count / CURVE_POINTS + 1) == 0 ? draw_all(s, n, t, err) : SFP_OK;
    if (!status && s->events)
        status = log_event(s, t, err);
    double spent = s->cost_count ? s->costs[s->stamps % s->cost_count] : t->seconds.total;
    double time = (n + (double)s->beside.count) * s->spacing - s->beside.seconds;
    s->stamps++;
    if (!status && learner && s->opt->controller && s->lag && isfinite(time))
        control(s, time, t, spent);
    if (!status)
        sfp__run_tell_slack(s->learner, time, spent);
    if (cost)
        *cost = spent;
    tell(s, t);
    return status;
}

/* -------------------------------------------------------------------- the end */

void sfp__run_times(sfp__run_state *s)
{
    sfp_feed_stats stats = s->live ? sfp__live_stats(s) : sfp__feed_stats(s->feed);
    s->r->seconds.decode = s->before.decode + stats.decode + s->unlabelled.decode;
    s->r->seconds.waited = s->before.waited + stats.waited + s->unlabelled.waited;
    s->r->seconds.total = s->before.total + sfp__now() - s->began;
}

void sfp__run_say_skipped(const sfp__run_state *s)
{
    char text[SFP_ERROR_MAX + 96];
    sfp_feed_stats stats = s->live ? sfp__live_stats(s) : sfp__feed_stats(s->feed);
    uint64_t tests = s->evaluator ? sfp__evaluator_skipped(s->evaluator) : 0;
    const char *first = stats.first_error[0] ? stats.first_error : s->unlabelled.first_error;
    if (s->r->samples.skipped) {
        (void)snprintf(text, sizeof text, "%llu picture%s could not be read and %s left out%s%s",
                       (unsigned long long)s->r->samples.skipped, s->r->samples.skipped == 1 ? "" : "s",
                       s->r->samples.skipped == 1 ? "was" : "were", *first ? "; the first: " : "", first);
        sfp__run_say(s, text);
    }
    if (tests) {
        (void)snprintf(text, sizeof text, "%llu test picture%s could not be read and %s left out; the first: %s",
                       (unsigned long long)tests, tests == 1 ? "" : "s", tests == 1 ? "was" : "were",
                       sfp__evaluator_first_error(s->evaluator));
        sfp__run_say(s, text);
    }
}

void sfp__run_finish_numbers(sfp__run_state *s)
{
    sfp_result *r = s->r;
    sfp_learner_counts counts = sfp__learner_counts(s->learner);
    int trained = 0;
    for (int c = 0; c < s->classes; c++)
        trained += s->trained_class[c];
    r->samples.scored = counts.scored;
    r->samples.trained = counts.trained;
    r->samples.replayed = counts.replayed;
    if (s->live) {
        sfp__live_numbers(s);
    } else {
        r->samples.offered = (uint64_t)(r->finished ? s->batches.samples : s->arrived) + s->unlabelled.unread;
        r->samples.dropped = r->samples.offered - counts.offered - r->samples.skipped;
    }
    int classes = s->live ? s->classes : s->stream_classes;
    r->coverage = classes ? (double)trained / classes : NAN;
    r->prequential_accuracy = accuracy_so_far(s);
    bool late = s->lag && s->lag->served;
    r->lag.mean = late ? s->lag->sum / (double)s->lag->served : NAN;
    r->lag.max = late ? s->lag->max : NAN;
    r->lag.last = late ? s->lag->last : NAN;
    sfp__run_times(s);
    double work = r->seconds.select + r->seconds.train + r->seconds.buffer;
    r->samples_per_second = work > 0 ? (double)counts.offered / work : NAN;
    struct rusage u;
    r->peak_rss_bytes = getrusage(RUSAGE_SELF, &u) == 0 ? (uint64_t)u.ru_maxrss * 1024 : 0;
}
