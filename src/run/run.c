/* The order of things in a run, and the loop over an indexed stream. Learning is timed by the learner itself; decoding runs ahead
 * on its own thread; evaluation stops the clock. */
#include "run/run.h"

#include "base/clock.h"
#include "base/mem.h"
#include "compute/cpu.h"
#include "compute/gemm.h"
#include "compute/kernels.h"
#include "io/folder.h"
#include "run/run_internal.h"
#include "stream/picture.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

sfp_run_options sfp__run_options_defaults(sfp_vit *vit, sfp_thread_pool *pool)
{
    return (sfp_run_options){.vit = vit,
                             .pool = pool,
                             .learner = sfp__learner_options_defaults(vit),
                             .clock = SFP_CLOCK_OFF,
                             .calibrate = 20,
                             .pending = 1000,
                             .checkpoint_seconds = 2};
}

void sfp__run_say(const sfp__run_state *s, const char *message)
{
    if (s->hooks->say)
        s->hooks->say(s->hooks->ctx, message);
}

bool sfp__run_stopped(const sfp__run_state *s)
{
    return s->hooks->stop && *s->hooks->stop;
}

/* ------------------------------------------------------------------ preparing */

static sfp_source_options source_options(const sfp__run_state *s)
{
    return (sfp_source_options){.seed = s->opt->learner.seed, .order = s->opt->order};
}

static sfp_status open_source(sfp__run_state *s, sfp_error *err)
{
    const sfp_run_options *o = s->opt;
    sfp_source_options so = source_options(s);
    sfp_status status = sfp__source_open(o->data, &so, &s->source, err);
    if (status)
        return status;
    bool live = s->source->kind->live;
    s->clock_kind = o->clock != SFP_CLOCK_DEFAULT ? o->clock
                    : !(o->rate > 0)              ? SFP_CLOCK_OFF
                    : live                        ? SFP_CLOCK_REAL
                                                  : SFP_CLOCK_VIRTUAL;
    if (s->source->note)
        sfp__run_say(s, s->source->note);
    return SFP_OK;
}

/* --test, else the data set's own test part where it has one. */
static sfp_status open_test(sfp__run_state *s, sfp_error *err)
{
    const sfp_run_options *o = s->opt;
    sfp_source_options so = source_options(s);
    sfp_error none;
    so.test = !o->test || strcmp(o->test, o->data) == 0;
    if (o->test) {
        sfp_status status = sfp__source_open(o->test, &so, &s->test, err);
        if (!status && s->test->kind->live)
            status = sfp__fail_key(err, "test", SFP_EINVAL, "test '%s': a test set has an end, expected no live source", o->test);
        else if (status && err && strcmp(err->key, "data") == 0)
            sfp__fail_rename(err, "test", "test"); /* the source is wrong, but it is not that of --data */
        return status;
    }
    if (s->source->kind->live && !s->source->on_demand)
        return SFP_OK; /* a second reader would take pictures from the first */
    if (sfp__source_open(o->data, &so, &s->test, &none) == SFP_OK && !s->test->test_part) {
        sfp__source_close(s->test);
        s->test = NULL;
    }
    return SFP_OK;
}

/* Those that the stream has: a cut by domain may leave some out. */
static sfp_status count_classes(sfp__run_state *s, sfp_error *err)
{
    uint8_t *has = sfp__calloc((size_t)s->classes + 1, 1);
    if (!has)
        return sfp__fail_nomem(err);
    for (int t = 0; t < s->tasks.count; t++)
        for (int i = 0; i < s->tasks.task[t].classes; i++)
            has[s->tasks.task[t].class_of[i]] = 1;
    s->stream_classes = 0;
    for (int c = 0; c < s->classes; c++)
        s->stream_classes += has[c];
    sfp__free(has);
    return SFP_OK;
}

static sfp_status cut_stream(sfp__run_state *s, sfp_error *err)
{
    const sfp_run_options *o = s->opt;
    uint64_t unlabelled = 0;
    sfp_status status = sfp__tasks_create(s->source, o->tasks, o->order, o->learner.seed, &unlabelled, &s->tasks, err);
    if (!status)
        status = sfp__run_find_unlabelled(s, unlabelled, err);
    if (!status)
        status = open_test(s, err);
    if (!status && s->test)
        status = sfp__tasks_create_test(s->test, s->source, &s->tasks, o->tasks, o->eval_limit, &s->test_tasks, err);
    if (!status)
        status = sfp__batches_create(&s->tasks, o->learner.batch, o->drop_short, &s->batches, err);
    if (!status && s->batches.count == 0)
        status = sfp__fail(err, SFP_EINVAL, "%s: no labelled pictures", o->data);
    s->classes = s->tasks.classes;
    return status ? status : count_classes(s, err);
}

static sfp_learner_options learner_options(const sfp__run_state *s)
{
    sfp_learner_options lo = s->opt->learner;
    lo.fp.tasks = s->tasks.free ? 0 : s->tasks.count;
    lo.fp.classes = s->tasks.free && !s->opt->method ? 0 : s->tasks.classes;
    lo.method = s->opt->method;
    if (s->opt->triage) {
        int c = sfp__coreset_size(lo.batch, lo.coreset.sigma);
        lo.coreset_most = c;
        lo.batch *= SFP__RUN_POOL;
    }
    return lo;
}

static sfp_status set_classes(sfp__run_state *s, int task, sfp_error *err)
{
    if (s->tasks.free)
        return SFP_OK;
    return sfp__learner_set_classes(s->learner, s->tasks.task[task].classes, s->tasks.task[task].class_of, err);
}

sfp_status sfp__run_make_learner(sfp__run_state *s, sfp_learner **out, sfp_error *err)
{
    OWNED_PTR(sfp__learner_free) sfp_learner *l = NULL;
    sfp_learner_options lo = learner_options(s);
    TRY(sfp__learner_create(s->opt->vit, s->opt->pool, &lo, &l, err));
    for (int c = 0; c < s->tasks.classes; c++)
        TRY(sfp__learner_name_class(l, c, s->source->class_names[s->tasks.source_label[c]], err));
    *out = TAKE(l);
    return SFP_OK;
}

static sfp_status make_learner(sfp__run_state *s, sfp_error *err)
{
    TRY(sfp__run_make_learner(s, &s->learner, err));
    TRY(sfp__predictor_create(s->learner, s->opt->pool, 0, &s->predictor, err));
    sfp__predictor_on_demand(s->predictor); /* one thread offers and asks in turn */
    return SFP_OK;
}

static sfp_status start_result(sfp__run_state *s, sfp_error *err)
{
    sfp_result *r = s->r;
    sfp_status status = sfp__result_init(r, s->tasks.count, s->tasks.classes, err);
    if (status)
        return status;
    for (int t = 0; t < s->tasks.count; t++)
        if (!(r->task_names[t] = sfp__strdup(s->tasks.task[t].name)))
            return sfp__fail_nomem(err);
    for (int c = 0; c < s->tasks.classes; c++)
        if (!(r->class_names[c] = sfp__strdup(s->source->class_names[s->tasks.source_label[c]])))
            return sfp__fail_nomem(err);
    r->seed = s->opt->learner.seed;
    r->machine.threads = sfp__thread_pool_size(s->opt->pool);
    (void)snprintf(r->machine.cpu, sizeof r->machine.cpu, "%s", sfp__cpu_name());
    (void)snprintf(r->machine.kernels, sizeof r->machine.kernels, "%s", sfp__kernels()->isa);
    (void)snprintf(r->machine.gemm, sizeof r->machine.gemm, "%s", sfp__gemm_backend());
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc))
        (void)strftime(r->started, sizeof r->started, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return s->hooks->config ? s->hooks->config(s->hooks->config_ctx, r, err) : SFP_OK;
}

static sfp_status make_workspace(sfp__run_state *s, sfp_error *err)
{
    int size = s->opt->vit->config.img_size;
    size_t classes = (size_t)(s->classes ? s->classes : 1), most = (size_t)s->opt->learner.batch * SFP__RUN_POOL;
    s->trained_class = sfp__calloc(classes, 1);
    s->pooled = sfp__calloc(most, sizeof *s->pooled);
    s->ids = sfp__calloc(most, sizeof *s->ids);
    s->taken = sfp__calloc(most, sizeof *s->taken);
    s->shown_rgb = sfp__malloc(SFP__RUN_SHOWN * 3 * (size_t)size * (size_t)size);
    if (!s->trained_class || !s->pooled || !s->ids || !s->taken || !s->shown_rgb)
        return sfp__fail_nomem(err);
    return SFP_OK;
}

/* ------------------------------------------------------------------ one offer */

/* Pictures without a label that arrive with a batch. */
static int64_t unlabelled_in(const sfp__run_state *s, int64_t k)
{
    int64_t until = s->comes[k] - s->batches.arrived[k];
    return k > 0 ? until - (s->comes[k - 1] - s->batches.arrived[k - 1]) : until;
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
        s->r->samples.skipped += (uint64_t)(s->batches.first[batch[i] + 1] - s->batches.first[batch[i]] - m);
        n += m;
    }
    if (!status && count > 1)
        samples = s->pooled;
    double predicting = 0;
    *cost = 0;
    s->arrived = s->batches.arrived[batch[count - 1]];
    if (!status)
        status = sfp__run_predict_before(s, s->batches.order[s->batches.first[batch[count - 1] + 1] - 1], &predicting, err);
    s->beside.seconds = s->cost_count ? 0 : predicting;
    s->beside.count = 0;
    for (int i = 0; s->comes && i < count; i++)
        s->beside.count += unlabelled_in(s, batch[i]);
    if (!status && n > 0) {
        sfp_timestamp t;
        status = sfp__learner_offer(s->learner, n, samples, &t, err);
        if (!status)
            status = sfp__run_record(s, n, samples, &t, cost, err);
    }
    *cost += s->beside.seconds;
    if (!status)
        sfp__feed_release(s->feed, batch[count - 1] + 1);
    return status;
}

/* All of this task has arrived then, also what the clock dropped. */
static int64_t end_of_task(const sfp__run_state *s)
{
    int64_t samples = 0;
    for (int t = 0; t <= s->task; t++)
        samples += s->tasks.task[t].count;
    return samples;
}

static sfp_status end_task(sfp__run_state *s, sfp_error *err)
{
    s->arrived = end_of_task(s);
    sfp_status status = sfp__run_end_task(s, err);
    if (status || s->given_up || s->task + 1 >= s->tasks.count)
        return status;
    s->task++;
    if (!(status = sfp__learner_next_task(s->learner, err)))
        status = set_classes(s, s->task, err);
    return status;
}

static sfp_status reach_task(sfp__run_state *s, int task, sfp_error *err)
{
    while (s->task < task) {
        sfp_status status = end_task(s, err);
        if (status || s->given_up)
            return status;
    }
    return SFP_OK;
}

/* Learns from the batches that are due, cut by task. When the evaluation between two tasks is given up, the rest stays due. */
static sfp_status offer_due(sfp__run_state *s, sfp_error *err)
{
    int64_t *batch = s->due.batch;
    while (s->due.count > 0) {
        int n = 1;
        double cost;
        while (n < s->due.count && s->batches.task[batch[n]] == s->batches.task[batch[0]])
            n++;
        sfp_status status = reach_task(s, s->batches.task[batch[0]], err);
        if (status || s->given_up)
            return status;
        if ((status = offer(s, n, batch, &cost, err)))
            return status;
        s->due.spent += cost;
        s->due.count -= n;
        memmove(batch, batch + n, (size_t)s->due.count * sizeof *batch);
    }
    return SFP_OK;
}

/* The next batches become due; false: the stream has ended. */
static bool take_batches(sfp__run_state *s)
{
    if (s->clocked) {
        int count;
        const int64_t *batch = sfp__clock_next(&s->clock, &count);
        if (batch)
            memcpy(s->due.batch, batch, (size_t)count * sizeof *batch);
        s->due.count = batch ? count : 0;
    } else if (s->next < (s->kept ? s->kept_count : s->batches.count)) {
        s->due.batch[0] = s->kept ? s->kept[s->next] : s->next;
        s->due.count = 1;
        s->next++;
    }
    return s->due.count > 0;
}

static sfp_status loop(sfp__run_state *s, sfp_error *err)
{
    sfp_status status = s->due.evaluation ? sfp__run_evaluate_due(s, err) : SFP_OK;
    while (!status && !sfp__run_stopped(s) && (s->due.count > 0 || take_batches(s))) {
        sfp__feed_release(s->feed, s->due.batch[0]); /* what the clock left out need not be decoded */
        status = offer_due(s, err);
        if (status || s->given_up)
            break;
        if (s->clocked)
            sfp__clock_spent(&s->clock, s->due.spent);
        s->due.spent = 0;
        status = sfp__run_evaluate_now_and_then(s, err);
        if (!status)
            status = sfp__run_save_now_and_then(s, err);
    }
    return status;
}

/* ------------------------------------------------------------------------ run */

static sfp_status none_readable(const sfp__run_state *s, int64_t count, const char *first, sfp_error *err)
{
    return sfp__fail(err, SFP_EFORMAT, "%s: none of the %lld pictures could be read; the first: %s", s->opt->data,
                     (long long)count, first);
}

/* There is a picture that can be read: a stream without one must not cost the folder what is in it. */
static sfp_status find_readable(const sfp__run_state *s, sfp_error *err)
{
    int size = s->opt->vit->config.img_size;
    int64_t count = s->batches.first[s->batches.count];
    sfp_error first = {0}, other;
    for (int64_t i = 0; i < count && !sfp__run_stopped(s); i++)
        if (!sfp__picture_read_fit(s->source, s->batches.order[i], size, s->opt->learner.resize, s->shown_rgb, NULL,
                                   i ? &other : &first))
            return SFP_OK;
    return sfp__run_stopped(s) ? SFP_OK : none_readable(s, count, first.message, err);
}

/* The indexed stream from where it stands; *ended is false when it was stopped. */
static sfp_status learn(sfp__run_state *s, bool *ended, sfp_error *err)
{
    const sfp_run_options *o = s->opt;
    const sfp_feed_options fo = {.size = o->vit->config.img_size,
                                 .resize = o->learner.resize,
                                 .keep_encoded = o->learner.keep_compressed,
                                 .depth = SFP__RUN_AHEAD + (o->triage ? SFP__RUN_POOL : 0),
                                 .only = s->kept,
                                 .only_count = s->kept_count};
    int64_t start = s->due.count ? s->due.batch[0]
                    : s->clocked ? (s->clock.waiting ? s->clock.queue[0].batch : s->clock.next)
                    : s->kept    ? (s->next < s->kept_count ? s->kept[s->next] : s->batches.count)
                                 : s->next;
    sfp_status status = sfp__feed_create(s->source, &s->tasks, &s->batches, &fo, start, &s->feed, err);
    if (!status)
        status = sfp__run_read_unlabelled(s, err);
    if (!status)
        status = loop(s, err);
    if (status)
        return status;
    *ended = !sfp__run_stopped(s);
    if (!*ended)
        return SFP_OK;
    if (s->stamps == 0 && s->r->samples.skipped > s->unlabelled.unread) /* of those that the clock kept */
        return none_readable(s, (int64_t)(s->r->samples.skipped - s->unlabelled.unread), sfp__feed_stats(s->feed).first_error,
                             err);
    double predicting;
    status = sfp__run_predict_before(s, INT64_MAX, &predicting, err);
    while (!status && !s->given_up && s->r->tasks_done < s->tasks.count)
        status = end_task(s, err);
    *ended = !s->given_up;
    return status;
}

static sfp_status load_init_state(sfp__run_state *s, sfp_error *err)
{
    sfp_learner *l = s->learner;
    sfp_status status = sfp__learner_load_state(l, s->opt->init_state, err);
    if (!status && !s->tasks.free && sfp__learner_task(l) > 0) /* its components are frozen: there is no way back */
        status = sfp__fail(err, SFP_EINVAL, "%s: is of task %d of %d, expected one of the first, with which a run begins",
                           s->opt->init_state, sfp__learner_task(l) + 1, s->tasks.count);
    return status ? status : sfp__run_take_names(s, err);
}

static sfp_status prepare(sfp__run_state *s, sfp_error *err)
{
    const sfp_run_options *o = s->opt;
    sfp_status status = open_source(s, err);
    if (!status && o->resume)
        status = sfp__run_may_resume(s, err);
    if (!status && s->source->kind->live) {
        if (!(status = sfp__live_create(s, err)) && !(status = open_test(s, err)) && s->test)
            status = sfp__live_cut_test(s, err);
    } else if (!status) {
        status = cut_stream(s, err);
    }
    if (!status && s->hooks->opened) {
        const sfp_run_stream stream = {.live = s->live != NULL, .tasks = !s->tasks.free};
        status = s->hooks->opened(s->hooks->config_ctx, o, &stream, err);
    }
    if (!status)
        status = start_result(s, err);
    if (!status)
        status = make_learner(s, err);
    if (!status && o->init_state && !o->method)
        status = load_init_state(s, err);
    if (!status)
        status = set_classes(s, 0, err);
    if (!status)
        status = make_workspace(s, err);
    if (!status && s->live)
        status = sfp__live_take_classes(s, err);
    if (!status && !s->live)
        status = sfp__run_start_clock(s, err);
    if (!status && s->test)
        status = sfp__evaluator_create(s->test, &s->test_tasks, o->vit->config.img_size, o->learner.resize,
                                       o->vit->config.dim, SFP_EVALUATOR_MEMORY, &s->evaluator, err);
    if (!status && s->evaluator)
        sfp__run_watch_evaluator(s);
    return status;
}

sfp_status sfp__run_begin(sfp__run_state *s, sfp_error *err)
{
    sfp_status status = s->opt->out && !s->resumed ? sfp__run_clear_folder(s, err) : SFP_OK;
    if (!status && s->opt->out)
        status = sfp__run_sweep_folder(s, err);
    if (!status && s->opt->out)
        status = sfp__run_open_events(s, err);
    s->begun = !status;
    return status;
}

/* A live stream broke off: what was learned is there to go on from. */
static sfp_status break_off(const sfp__run_state *s, sfp_error *err)
{
    char text[PATH_MAX + 128];
    if (s->opt->out) {
        uint64_t n = sfp__learner_counts(s->learner).offered;
        (void)snprintf(text, sizeof text,
                       "the stream broke off; what was learned from %llu picture%s is kept: go on with --resume --out %s",
                       (unsigned long long)n, n == 1 ? "" : "s", s->opt->out);
        sfp__run_say(s, text);
    }
    return sfp__live_failure(s, err);
}

static sfp_status run(sfp__run_state *s, sfp_error *err)
{
    const sfp_run_options *o = s->opt;
    bool finished = false, ended = true;
    sfp_status status = o->out ? sfp__run_take_folder(s, err) : SFP_OK;
    if (!status)
        status = prepare(s, err);
    if (!status && o->resume)
        status = sfp__run_resume(s, &s->resumed, &finished, err);
    if (status || (finished && !s->live))
        return status;
    s->r->finished = false;
    if (!s->test && !s->live) /* a live one is judged by what comes */
        sfp__run_say(s, "no test set: accuracy is not measured; give --test KIND:PATH");
    if (!s->live && !s->resumed)
        status = find_readable(s, err);
    if (!status && s->kept && !s->resumed)
        status = sfp__run_keep_batches(s, err);
    if (status || (!s->resumed && sfp__run_stopped(s)))
        return status; /* nothing was begun: what is in the folder stays */
    if (!s->live)      /* which begins when something comes */
        status = sfp__run_begin(s, err);
    s->from = s->arrived;
    if (!status)
        status = s->live ? sfp__live_learn(s, &ended, err) : learn(s, &ended, err);
    if (status)
        return status;
    s->r->finished = ended;
    sfp__run_finish_numbers(s);
    if (!ended && !s->live) /* before the first timestamp there is nothing to go on from */
        return o->out && s->stamps > 0 ? sfp__run_leave(s, err) : SFP_OK;
    sfp__run_say_skipped(s);
    status = o->out ? sfp__run_outputs(s, err) : SFP_OK;
    return status || ended ? status : break_off(s, err);
}

sfp_status sfp__run(const sfp_run_options *opt, const sfp_run_hooks *hooks, sfp_result *result, sfp_error *err)
{
    sfp__run_state s = {
        .opt = opt, .hooks = hooks, .r = result, .lock = -1, .began = sfp__now(), .spacing = NAN, .evaluated.stamps = -1};
    s.saved_at = s.began;
    memset(result, 0, sizeof *result);
    sfp_status status = run(&s, err);
    sfp__line_log_close(s.events);
    sfp__run_unlabelled_done(&s);
    sfp__feed_free(s.feed);
    sfp__live_free(s.live);
    sfp__evaluator_free(s.evaluator);
    sfp__predictor_free(s.predictor);
    sfp__learner_free(s.learner);
    sfp__clock_done(&s.clock);
    sfp__batches_done(&s.batches);
    sfp__tasks_done(&s.test_tasks);
    sfp__tasks_done(&s.tasks);
    sfp__source_close(s.test);
    sfp__source_close(s.source);
    sfp__free(s.kept);
    sfp__free(s.comes);
    sfp__free(s.costs);
    sfp__free(s.trained_class);
    sfp__free(s.pooled);
    sfp__free(s.ids);
    sfp__free(s.taken);
    sfp__free(s.shown_rgb);
    sfp__folder_unlock(s.lock);
    return status;
}
