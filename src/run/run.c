/* The loop. Learning is timed by the learner itself; decoding runs ahead on its
 * own thread; evaluation stops the clock. */
#include "run/run.h"

#include "base/clock.h"
#include "base/mem.h"
#include "compute/cpu.h"
#include "compute/gemm.h"
#include "compute/kernels.h"
#include "run/run_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { FEED_AHEAD = 4, POOL_MOST = 16, CURVE_POINTS = 2000 };

sfp_run_options sfp__run_options_defaults(sfp_vit *vit, sfp_pool *pool)
{
    return (sfp_run_options){.vit = vit, .pool = pool, .learner = sfp__learner_options_defaults(vit), .clock = SFP_CLOCK_OFF,
                             .calibrate = 20, .checkpoint_seconds = 2};
}

static void say(const sfp__run_state *s, const char *message)
{
    if (s->hooks->say)
        s->hooks->say(s->hooks->ctx, message);
}

static bool stopped(const sfp__run_state *s)
{
    return s->hooks->stop && *s->hooks->stop;
}

/* ------------------------------------------------------------------ preparing */

static sfp_status open_data(sfp__run_state *s, sfp_error *err)
{
    const sfp_run_options *o = s->opt;
    sfp_source_options so = {.seed = o->learner.seed, .order = o->order};
    uint64_t unlabelled = 0;
    sfp_status status = sfp__source_open(o->data, &so, &s->source, err);
    if (status)
        return status;
    if (s->source->kind->live)
        return sfp__fail(err, SFP_EUNSUPPORTED, "%s: live sources are not for this command yet", o->data);
    if (s->source->note)
        say(s, s->source->note);
    if ((status = sfp__tasks_create(s->source, o->tasks, o->order, o->learner.seed, &unlabelled, &s->tasks, err)))
        return status;
    so.test = true;
    sfp_error none;
    if (o->test) {
        so.test = strcmp(o->test, o->data) == 0;
        status = sfp__source_open(o->test, &so, &s->test, err);
    } else if (sfp__source_open(o->data, &so, &s->test, &none) == SFP_OK && s->test->count == s->source->count &&
               strcmp(s->source->kind->name, "synthetic") != 0) {
        /* a kind without a test part of its own gives the same again */
        sfp__source_close(s->test);
        s->test = NULL;
    }
    if (!status && s->test)
        status = sfp__tasks_create_test(s->test, s->source, &s->tasks, o->tasks, o->eval_limit, &s->test_tasks, err);
    if (!status)
        status = sfp__batches_create(&s->tasks, o->learner.batch, o->drop_short, &s->batches, err);
    if (!status && s->batches.count == 0)
        status = sfp__fail(err, SFP_EINVAL, "%s: no labelled pictures", o->data);
    return status;
}

static sfp_learner_options learner_options(const sfp__run_state *s)
{
    sfp_learner_options lo = s->opt->learner;
    lo.fp.tasks = s->tasks.free ? 0 : s->tasks.count;
    lo.fp.classes = s->tasks.free ? 0 : s->tasks.classes;
    int depth = sfp__vit_config(s->opt->vit)->depth;
    if (lo.fp.last_layer >= depth)
        lo.fp.last_layer = depth - 1;
    if (s->opt->triage) {
        int c = sfp__coreset_size(lo.batch, lo.coreset.sigma);
        lo.coreset_most = c;
        lo.batch *= POOL_MOST;
    }
    return lo;
}

static sfp_status set_classes(sfp__run_state *s, int task, sfp_error *err)
{
    if (!s->system.learner || s->tasks.free)
        return SFP_OK;
    return sfp__learner_set_classes(s->system.learner, s->tasks.task[task].classes, s->tasks.task[task].class_of, err);
}

static sfp_status make_system(sfp__run_state *s, sfp_system *out, sfp_error *err)
{
    sfp_learner_options lo = learner_options(s);
    sfp_status status = sfp__system_init(out, s->opt->vit, s->opt->pool, &lo, s->opt->method, s->tasks.classes, err);
    for (int c = 0; !status && out->learner && c < s->tasks.classes; c++)
        status = sfp__learner_name_class(out->learner, c, s->source->class_names[s->tasks.source_label[c]], err);
    if (status)
        sfp__system_done(out);
    return status;
}

static char **copy_names(int n, sfp_error *err)
{
    char **names = sfp__calloc((size_t)(n ? n : 1), sizeof *names);
    if (!names)
        (void)sfp__fail_nomem(err, (size_t)n * sizeof *names);
    return names;
}

static sfp_status start_result(sfp__run_state *s, sfp_error *err)
{
    sfp_result *r = s->r;
    sfp_status status = sfp__result_init(r, s->tasks.count, s->tasks.classes, err);
    if (status)
        return status;
    if ((!r->task_names && !(r->task_names = copy_names(s->tasks.count, err))) ||
        (!r->class_names && !(r->class_names = copy_names(s->tasks.classes, err))))
        return SFP_ENOMEM;
    for (int t = 0; t < s->tasks.count; t++)
        if (!(r->task_names[t] = sfp__strdup(s->tasks.task[t].name)))
            return sfp__fail_nomem(err, strlen(s->tasks.task[t].name) + 1);
    for (int c = 0; c < s->tasks.classes; c++)
        if (!(r->class_names[c] = sfp__strdup(s->source->class_names[s->tasks.source_label[c]])))
            return sfp__fail_nomem(err, 1);
    r->seed = s->opt->learner.seed;
    r->threads = sfp__pool_threads(s->opt->pool);
    (void)snprintf(r->cpu, sizeof r->cpu, "%s", sfp__cpu_name());
    (void)snprintf(r->kernels, sizeof r->kernels, "%s", sfp__kernels()->isa);
    (void)snprintf(r->gemm, sizeof r->gemm, "%s", sfp__gemm_backend());
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc))
        (void)strftime(r->started, sizeof r->started, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return s->hooks->config ? s->hooks->config(s->hooks->config_ctx, r, err) : SFP_OK;
}

/* ---------------------------------------------------------------------- costs */

static sfp_status read_costs(sfp__run_state *s, sfp_error *err)
{
    FILE *f = fopen(s->opt->costs, "re");
    if (!f)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot open", s->opt->costs);
    char line[128];
    int64_t number = 0, room = 0;
    sfp_status status = SFP_OK;
    while (!status && fgets(line, sizeof line, f)) {
        char *end;
        double x = strtod(line, &end);
        number++;
        if (line[0] == '#' || line[0] == '\n')
            continue;
        if (end == line || (*end != '\n' && *end) || !isfinite(x) || x < 0) {
            status = sfp__fail(err, SFP_EFORMAT, "%s:%lld: expected seconds from 0", s->opt->costs, (long long)number);
            break;
        }
        if (s->cost_count == room) {
            int64_t more = room ? 2 * room : 64;
            double *costs = sfp__realloc(s->costs, (size_t)room * sizeof *costs, (size_t)more * sizeof *costs);
            if (!costs) {
                status = sfp__fail_nomem(err, (size_t)more * sizeof *costs);
                break;
            }
            s->costs = costs;
            room = more;
        }
        s->costs[s->cost_count++] = x;
    }
    (void)fclose(f);
    if (!status && s->cost_count == 0)
        status = sfp__fail(err, SFP_EFORMAT, "%s: no costs, expected seconds, one a line", s->opt->costs);
    return status;
}

/* Cost of a batch on a copy of the learner that is thrown away: the mean of `calibrate` batches after 3. */
static sfp_status calibrate(sfp__run_state *s, double *cost, sfp_error *err)
{
    if (s->cost_count) {
        *cost = 0;
        for (int64_t i = 0; i < s->cost_count; i++)
            *cost += s->costs[i] / (double)s->cost_count;
        return SFP_OK;
    }
    sfp_system copy;
    sfp_feed *feed = NULL;
    const sfp_feed_options fo = {.size = sfp__vit_config(s->opt->vit)->img_size, .resize = s->opt->learner.resize,
                                 .keep_encoded = s->opt->learner.keep_compressed, .depth = FEED_AHEAD};
    sfp_status status = make_system(s, &copy, err);
    if (status)
        return status;
    status = sfp__feed_create(s->source, &s->tasks, &s->batches, &fo, 0, &feed, err);
    double sum = 0;
    int measured = 0;
    int64_t count = 0;
    while (count < s->batches.count && count < 3 + s->opt->calibrate && s->batches.task[count] == s->batches.task[0])
        count++;
    for (int64_t k = 0; !status && k < count && !stopped(s); k++) {
        int n;
        const sfp_sample *samples;
        sfp_timestamp t;
        status = sfp__feed_take(feed, k, &n, &samples, err);
        if (!status && n > 0)
            status = sfp__system_offer(&copy, n, samples, &t, err);
        if (!status && n > 0 && (k >= 3 || count <= 3)) {
            sum += t.seconds.total;
            measured++;
        }
        sfp__feed_release(feed, k + 1);
    }
    sfp__feed_free(feed);
    sfp__system_done(&copy);
    *cost = measured ? sum / measured : 0;
    return status;
}

/* Which batches of each task the paper's clock keeps. */
static sfp_status keep_batches(sfp__run_state *s, sfp_error *err)
{
    double cost;
    sfp_status status = calibrate(s, &cost, err);
    if (status)
        return status;
    int64_t samples = s->batches.arrived[s->batches.count - 1];
    s->r->cs = sfp__clock_cs(cost, s->batches.count, samples, s->opt->rate);
    if (!(s->kept = sfp__calloc((size_t)s->batches.count, sizeof *s->kept)))
        return sfp__fail_nomem(err, (size_t)s->batches.count * sizeof *s->kept);
    for (int64_t first = 0; first < s->batches.count;) {
        int64_t n = 1;
        while (first + n < s->batches.count && s->batches.task[first + n] == s->batches.task[first])
            n++;
        int64_t keep = sfp__clock_keep(n, s->r->cs);
        for (int64_t i = 0; i < keep; i++)
            s->kept[s->kept_count++] = first + sfp__clock_kept_at(i, n, keep);
        first += n;
    }
    char text[160];
    (void)snprintf(text, sizeof text, "clock paper: %.4f s a batch, C_S %.2f: %lld of %lld batches are kept", cost, s->r->cs,
                   (long long)s->kept_count, (long long)s->batches.count);
    say(s, text);
    return SFP_OK;
}

static sfp_status start_clock(sfp__run_state *s, sfp_error *err)
{
    const sfp_run_options *o = s->opt;
    s->r->lambda = o->rate > 0 ? o->rate : NAN;
    sfp_status status = o->costs ? read_costs(s, err) : SFP_OK;
    if (status || o->clock == SFP_CLOCK_OFF)
        return status;
    if (!(o->rate > 0))
        return sfp__fail(err, SFP_EINVAL, "this clock needs a rate (--rate samples/s)");
    if (o->clock == SFP_CLOCK_PAPER)
        return keep_batches(s, err);
    const sfp_clock_options co = {.kind = o->clock, .lambda = o->rate, .queue = o->queue, .policy = o->policy, .pool = o->triage,
                                  .pool_most = POOL_MOST};
    s->clocked = true;
    return sfp__clock_init(&s->clock, &co, s->batches.count, s->batches.arrived, err);
}

/* ----------------------------------------------------------------- evaluation */

static sfp_status evaluate(sfp__run_state *s, int row, sfp_error *err)
{
    if (!s->evaluator)
        return SFP_OK;
    double begin = sfp__now();
    sfp_result *r = s->r;
    sfp_status status = sfp__evaluator_run(s->evaluator, &s->system, row, r->accuracy + (size_t)row * (size_t)r->tasks, r->classes,
                                           r->confusion, err);
    double took = sfp__now() - begin;
    r->seconds.evaluate += took;
    if (s->clocked)
        s->clock.began += took; /* the real one: what arrives meanwhile is not lost to a test */
    return status;
}

/* Task `s->task` has ended. */
static sfp_status end_task(sfp__run_state *s, sfp_error *err)
{
    sfp_status status = evaluate(s, s->task, err);
    if (status)
        return status;
    s->r->tasks_done = s->task + 1;
    sfp__result_summarise(s->r);
    if (s->opt->out) {
        char name[64], path[4096];
        (void)snprintf(name, sizeof name, "state-task-%d.safetensors", s->task + 1);
        if ((status = sfp__run_path(s, name, path, sizeof path, err)) || (status = sfp__system_save(&s->system, path, err)))
            return status;
    }
    if (s->task + 1 < s->tasks.count) {
        s->task++;
        if (!(status = sfp__system_next_task(&s->system, err)))
            status = set_classes(s, s->task, err);
    }
    return status;
}

/* ------------------------------------------------------------------ one offer */

static void tell(sfp__run_state *s, const sfp_timestamp *t)
{
    if (!s->hooks->progress)
        return;
    const sfp_run_progress p = {.task = s->task,
                                .tasks = s->tasks.count,
                                .task_name = s->tasks.task[s->task].name,
                                .offered = (uint64_t)s->arrived,
                                .total = (uint64_t)s->batches.arrived[s->batches.count - 1],
                                .rate = t->seconds.total > 0 ? t->offered / t->seconds.total : NAN,
                                .lag = s->clocked ? s->clock.lag_last : NAN,
                                .loss = t->loss ? t->loss[t->steps - 1] : NAN,
                                .accuracy = s->judged ? (double)s->right / (double)s->judged : NAN,
                                .seconds = sfp__now() - s->began};
    s->hooks->progress(s->hooks->ctx, &p);
}

/* Keeps the pictures of a batch for the report. */
static void show(sfp__run_state *s, int n, const sfp_sample *samples, const sfp_timestamp *t)
{
    size_t size = (size_t)sfp__vit_config(s->opt->vit)->img_size, bytes = 3 * size * size;
    s->shown = n < SFP__RUN_SHOWN ? n : SFP__RUN_SHOWN;
    for (int i = 0; i < s->shown; i++) {
        memcpy(s->shown_rgb + (size_t)i * bytes, samples[i].rgb, bytes);
        s->shown_label[i] = samples[i].label;
        s->shown_taken[i] = false;
    }
    for (int i = 0; i < t->coreset_count; i++)
        if (t->coreset[i] < s->shown)
            s->shown_taken[t->coreset[i]] = true;
}

static sfp_status record(sfp__run_state *s, int n, const sfp_sample *samples, const sfp_timestamp *t, sfp_error *err)
{
    sfp_result *r = s->r;
    double x = (double)s->arrived;
    bool learner = s->system.learner != NULL;
    r->offered += (uint64_t)n;
    s->judged += (uint64_t)t->judged;
    s->right += (uint64_t)t->right;
    for (int i = 0; i < n; i++) {
        s->ids[i] = samples[i].id;
        if (!learner)
            s->trained_class[samples[i].label] = 1;
    }
    if (learner && s->opt->out)
        show(s, n, samples, t);
    for (int i = 0; learner && i < t->coreset_count; i++)
        s->trained_class[samples[t->coreset[i]].label] = 1;
    double train = t->seconds.query + t->seconds.attune + t->seconds.forward + t->seconds.backward + t->seconds.update + t->seconds.head;
    r->seconds.select += t->seconds.select;
    r->seconds.train += train;
    r->seconds.buffer += t->seconds.buffer;
    s->since += t->seconds.total;
    int64_t every = s->batches.count / CURVE_POINTS + 1;
    sfp_status status = SFP_OK;
    if (s->stamps % every == 0) {
        status = sfp__curve_add(&r->prequential, x, s->judged ? (double)s->right / (double)s->judged : NAN, err);
        if (!status && t->loss)
            status = sfp__curve_add(&r->loss, x, t->loss[t->steps - 1], err);
        if (!status)
            status = sfp__curve_add(&r->rate, x, n / t->seconds.total, err);
        if (!status && s->clocked)
            status = sfp__curve_add(&r->lag, x, s->clock.lag_last, err);
    }
    if (!status && s->events && learner)
        status = sfp__events_write(s->events, t, s->opt->learner.replay ? s->opt->learner.replay : 1, s->ids, err);
    s->stamps++;
    tell(s, t);
    return status;
}

/* The controller (ours): what a batch may cost is b / lambda; how many samples that buys follows from what they cost lately. */
static void control(sfp__run_state *s, int n, const sfp_timestamp *t)
{
    const sfp_learner_options *o = &s->opt->learner;
    if (!s->opt->controller || !s->system.learner || !s->clocked)
        return;
    int trained = 0;
    for (int k = 0; k < t->steps; k++)
        trained += t->coreset_count + t->replay_count[k];
    if (trained == 0)
        return;
    double fixed = t->seconds.select + t->seconds.buffer, each = (t->seconds.total - fixed) / trained;
    double budget = n / s->opt->rate - fixed - 0.5 * s->clock.lag_last; /* a part of the lag is worked off with every batch */
    int samples = each > 0 ? (int)floor(budget / each) : 2, full = sfp__coreset_size(o->batch, o->coreset.sigma);
    samples = samples < 2 ? 2 : samples;
    int replay = samples / 2 < o->replay ? samples / 2 : o->replay, coreset = samples - replay;
    int steps = coreset > full && o->steps > 1 ? coreset / full : 1;
    sfp__learner_limit(s->system.learner, coreset < full ? coreset : full, replay < 1 ? 1 : replay, steps < o->steps ? steps : o->steps);
}

/* Learns from the given batches (all of one task), taken together. */
static sfp_status offer(sfp__run_state *s, int count, const int64_t *batch, double *cost, sfp_error *err)
{
    int n = 0;
    const sfp_sample *samples = NULL;
    sfp_status status = SFP_OK;
    for (int i = 0; !status && i < count; i++) {
        int m;
        status = sfp__feed_take(s->feed, batch[i], &m, &samples, err);
        if (status)
            break;
        if (count > 1)
            memcpy(s->pooled + n, samples, (size_t)m * sizeof *samples);
        s->r->skipped += (uint64_t)(s->batches.first[batch[i] + 1] - s->batches.first[batch[i]] - m);
        n += m;
    }
    if (!status && count > 1)
        samples = s->pooled;
    *cost = 0;
    s->arrived = s->batches.arrived[batch[count - 1]];
    if (!status && n > 0) {
        sfp_timestamp t;
        status = sfp__system_offer(&s->system, n, samples, &t, err);
        if (!status)
            status = record(s, n, samples, &t, err);
        if (!status) {
            *cost = s->cost_count ? s->costs[(s->stamps - 1) % s->cost_count] : t.seconds.total;
            control(s, n, &t);
            if (s->system.learner && s->opt->clock != SFP_CLOCK_OFF) /* half the time that a batch gives must be left over */
                sfp__learner_slack(s->system.learner, *cost < 0.5 * n / s->opt->rate);
        }
    }
    if (!status)
        sfp__feed_release(s->feed, batch[count - 1] + 1);
    return status;
}

static sfp_status reach_task(sfp__run_state *s, int task, sfp_error *err)
{
    while (s->task < task) {
        sfp_status status = end_task(s, err);
        if (status)
            return status;
    }
    return SFP_OK;
}

static sfp_status offer_cut_by_task(sfp__run_state *s, int count, const int64_t *batch, double *cost, sfp_error *err)
{
    *cost = 0;
    for (int i = 0; i < count;) {
        int n = 1;
        double one;
        while (i + n < count && s->batches.task[batch[i + n]] == s->batches.task[batch[i]])
            n++;
        sfp_status status = reach_task(s, s->batches.task[batch[i]], err);
        if (!status)
            status = offer(s, n, batch + i, &one, err);
        if (status)
            return status;
        *cost += one;
        i += n;
    }
    return SFP_OK;
}

/* The next batches; NULL: the stream has ended. */
static const int64_t *next_batches(sfp__run_state *s, int64_t *one, int *count)
{
    *count = 1;
    if (s->clocked)
        return sfp__clock_next(&s->clock, count);
    int64_t total = s->kept ? s->kept_count : s->batches.count;
    if (s->next >= total)
        return NULL;
    *one = s->kept ? s->kept[s->next] : s->next;
    s->next++;
    return one;
}

static sfp_status loop(sfp__run_state *s, sfp_error *err)
{
    const int64_t *batch;
    int64_t one;
    int count;
    sfp_status status = SFP_OK;
    while (!status && !stopped(s) && (batch = next_batches(s, &one, &count))) {
        double cost;
        sfp__feed_release(s->feed, batch[0]); /* what the clock left out need not be decoded */
        status = offer_cut_by_task(s, count, batch, &cost, err);
        if (!status && s->clocked)
            sfp__clock_spent(&s->clock, cost);
        if (!status && s->opt->eval_every > 0 && s->stamps % s->opt->eval_every == 0)
            status = evaluate(s, s->task, err);
        if (!status && s->opt->out && s->since >= s->opt->checkpoint_seconds && s->since >= 50 * s->last_cost)
            status = sfp__run_checkpoint(s, err);
    }
    return status;
}

/* ------------------------------------------------------------------------ run */

/* So many pictures were left out; the first of them, where this process saw it. */
static void say_skipped(const sfp__run_state *s)
{
    char text[SFP_ERROR_MAX + 96];
    sfp_feed_stats feed = sfp__feed_stats(s->feed);
    uint64_t tests = s->evaluator ? sfp__evaluator_skipped(s->evaluator) : 0;
    if (s->r->skipped) {
        (void)snprintf(text, sizeof text, "%llu pictures could not be read and were left out%s%s", (unsigned long long)s->r->skipped,
                       feed.first_error[0] ? "; the first: " : "", feed.first_error);
        say(s, text);
    }
    if (tests) {
        (void)snprintf(text, sizeof text, "%llu test pictures could not be read and were left out", (unsigned long long)tests);
        say(s, text);
    }
}

static void finish_numbers(sfp__run_state *s)
{
    sfp_result *r = s->r;
    sfp_learner_counts counts = sfp__system_counts(&s->system);
    int trained = 0;
    for (int c = 0; c < s->tasks.classes; c++)
        trained += s->trained_class[c];
    uint64_t all = (uint64_t)s->batches.first[s->batches.count];
    r->scored = counts.scored;
    r->trained = counts.trained;
    r->replayed = counts.replayed;
    if (r->finished) {
        r->dropped = all - r->offered - r->skipped;
        r->offered = all;
    }
    r->coverage = s->tasks.classes ? (double)trained / s->tasks.classes : NAN;
    r->prequential_accuracy = s->judged ? (double)s->right / (double)s->judged : NAN;
    if (s->clocked && s->clock.served) {
        r->lag_mean = s->clock.lag_sum / (double)s->clock.served;
        r->lag_max = s->clock.lag_max;
        r->lag_last = s->clock.lag_last;
    }
    sfp__run_times(s);
    double work = r->seconds.select + r->seconds.train + r->seconds.buffer;
    r->samples_per_second = work > 0 ? (double)(r->offered - r->dropped) / work : NAN;
    struct rusage u;
    r->peak_rss_bytes = getrusage(RUSAGE_SELF, &u) == 0 ? (uint64_t)u.ru_maxrss * 1024 : 0;
}

static sfp_status run(sfp__run_state *s, sfp_error *err)
{
    const sfp_run_options *o = s->opt;
    int size = sfp__vit_config(o->vit)->img_size;
    bool resumed = false, finished = false;
    sfp_status status = open_data(s, err);
    if (!status)
        status = start_result(s, err);
    if (!status)
        status = make_system(s, &s->system, err);
    if (!status && o->init_state && s->system.learner)
        status = sfp__learner_load_state(s->system.learner, o->init_state, err);
    if (!status)
        status = set_classes(s, 0, err);
    size_t classes = (size_t)(s->tasks.classes ? s->tasks.classes : 1), most = (size_t)o->learner.batch * POOL_MOST;
    s->trained_class = sfp__calloc(classes, 1);
    s->pooled = sfp__calloc(most, sizeof *s->pooled);
    s->ids = sfp__calloc(most, sizeof *s->ids);
    s->shown_rgb = sfp__malloc(SFP__RUN_SHOWN * 3 * (size_t)size * (size_t)size);
    if (!status && (!s->trained_class || !s->pooled || !s->ids || !s->shown_rgb))
        status = sfp__fail_nomem(err, most * sizeof *s->pooled);
    if (!status)
        status = start_clock(s, err);
    if (!status && s->test)
        status = sfp__evaluator_create(s->test, &s->test_tasks, size, o->learner.resize, s->system.D, &s->evaluator, err);
    if (!status && o->resume)
        status = sfp__run_resume(s, &resumed, &finished, err);
    if (status || finished)
        return status;
    if (o->out && !resumed)
        status = sfp__run_forget(s, err);
    if (!status && o->out && s->system.learner)
        status = sfp__events_open(o->out, (uint64_t)s->stamps, 64u << 20, 8, &s->events, err);
    const sfp_feed_options fo = {.size = size, .resize = o->learner.resize, .keep_encoded = o->learner.keep_compressed,
                                 .depth = FEED_AHEAD + (o->triage ? POOL_MOST : o->queue)};
    int64_t start = s->clocked ? (s->clock.waiting ? s->clock.queue[0] : s->clock.next)
                               : s->kept ? (s->next < s->kept_count ? s->kept[s->next] : s->batches.count) : s->next;
    if (!status)
        status = sfp__feed_create(s->source, &s->tasks, &s->batches, &fo, start, &s->feed, err);
    if (!status)
        status = loop(s, err);
    if (status)
        return status;
    if (stopped(s)) {
        finish_numbers(s);
        return o->out && s->stamps > 0 ? sfp__run_checkpoint(s, err) : SFP_OK; /* before the first there is nothing to go on from */
    }
    if (s->stamps == 0 && s->r->skipped > 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: none of the %llu pictures could be read; the first: %s", o->data,
                         (unsigned long long)s->r->skipped, sfp__feed_stats(s->feed).first_error);
    while (!status && s->r->tasks_done < s->tasks.count)
        status = end_task(s, err);
    s->r->finished = true;
    finish_numbers(s);
    say_skipped(s);
    return status || !o->out ? status : sfp__run_outputs(s, err);
}

sfp_status sfp__run(const sfp_run_options *opt, const sfp_run_hooks *hooks, sfp_result *result, sfp_error *err)
{
    sfp__run_state s = {.opt = opt, .hooks = hooks, .r = result, .began = sfp__now()};
    memset(result, 0, sizeof *result);
    sfp_status status = run(&s, err);
    sfp__events_close(s.events);
    sfp__feed_free(s.feed);
    sfp__evaluator_free(s.evaluator);
    if (s.system.vit)
        sfp__system_done(&s.system);
    sfp__clock_done(&s.clock);
    sfp__batches_done(&s.batches);
    sfp__tasks_done(&s.test_tasks);
    sfp__tasks_done(&s.tasks);
    sfp__source_close(s.test);
    sfp__source_close(s.source);
    sfp__free(s.kept);
    sfp__free(s.costs);
    sfp__free(s.trained_class);
    sfp__free(s.pooled);
    sfp__free(s.ids);
    sfp__free(s.shown_rgb);
    return status;
}
