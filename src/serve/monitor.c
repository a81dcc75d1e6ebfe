/* Routes that report the state of the service: status, metrics, health, files, events. */
#include "serve/internal.h"

#include "base/monotonic.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <microhttpd.h>
#include <stdio.h>
#include <unistd.h>

/* ----------------------------------------------------------------------- status */

sfp_status sfp__get_models(sfp__request *r, sfp_error *err)
{
    (void)err;
    sfp__json j = {.text = &r->reply};
    sfp__json_object(&j, NULL);
    sfp__json_array(&j, "models");
    for (int i = 0; i < sfp__server_models(r->server); i++) {
        sfp__json_object(&j, NULL);
        sfp__json_string(&j, "name", sfp__model_name(sfp__server_model(r->server, i)));
        sfp__json_end(&j);
    }
    sfp__json_end_all(&j);
    return SFP_OK;
}

/* Collects warnings about the data: classes with fewer than two samples, and a class with many more samples than another. */
typedef struct class_warnings {
    sfp__json *json;
    int64_t min_samples, max_samples; /* of classes with samples; 0: none yet */
    char smallest[128], largest[128]; /* names of these classes */
} class_warnings;

static void put_warning(sfp__json *j, const char *kind, const char *class, const char *message)
{
    sfp__json_object(j, NULL);
    sfp__json_string(j, "kind", kind);
    sfp__json_string(j, "message", message);
    if (class)
        sfp__json_string(j, "class", class);
    sfp__json_end(j);
}

static sfp_status check_class(void *ctx, const char *name, int64_t samples, sfp_error *err)
{
    class_warnings *w = ctx;
    (void)err;
    if (samples < 2)
        put_warning(w->json, "few_samples", name, samples ? "The class has one sample." : "The class has no sample.");
    if (samples > 0 && (w->min_samples == 0 || samples < w->min_samples)) {
        w->min_samples = samples;
        (void)snprintf(w->smallest, sizeof w->smallest, "%s", name);
    }
    if (samples > w->max_samples) {
        w->max_samples = samples;
        (void)snprintf(w->largest, sizeof w->largest, "%s", name);
    }
    return SFP_OK;
}

static void write_warnings(sfp__json *j, sfp__model *m)
{
    enum { IMBALANCE = 20 };
    class_warnings w = {.json = j};
    char text[400];
    (void)sfp_run_classes(sfp__model_run(m), check_class, &w, NULL);
    if (w.min_samples > 1 && w.max_samples > IMBALANCE * w.min_samples) {
        (void)snprintf(text, sizeof text, "%s has %lld samples, %s only %lld.", w.largest, (long long)w.max_samples, w.smallest,
                       (long long)w.min_samples);
        put_warning(j, "imbalance", w.smallest, text);
    }
}

/* Many samples take long to count. So the warnings are kept for WARNINGS_SHARE times as long. */
static void put_warnings(sfp__json *j, sfp__model *m)
{
    enum { WARNINGS_SHARE = 50 };
    sfp__warnings *w = sfp__model_warnings(m);
    pthread_mutex_lock(&w->lock);
    double now = sfp__monotonic_seconds();
    if (now >= w->until) {
        sfp__json fresh = {.text = &w->text};
        w->text.length = 0;
        sfp__json_array(&fresh, NULL);
        write_warnings(&fresh, m);
        sfp__json_end(&fresh); /* no end of line, which would end an event */
        double end = sfp__monotonic_seconds();
        w->until = end + WARNINGS_SHARE * (end - now);
    }
    sfp__json_raw(j, "warnings", w->text.s && !w->text.failed ? w->text.s : "[]");
    pthread_mutex_unlock(&w->lock);
}

static void put_status(sfp__json *j, sfp__model *m)
{
    sfp__model_status s;
    uint64_t offered = 0;
    sfp__model_get(m, &s);
    sfp__json_object(j, NULL);
    sfp__json_string(j, "model", sfp__model_name(m));
    sfp__json_uint(j, "version", s.version);
    sfp__json_int(j, "classes", s.classes);
    sfp__json_object(j, "samples");
    for (int i = 0; i < 5; i++)
        offered += s.counts[i];
    sfp__json_uint(j, "offered", offered);
    for (int i = 0; i < 5; i++)
        sfp__json_uint(j, sfp__standing_names[i], s.counts[i]);
    sfp__json_end(j);
    sfp__json_real(j, "rate", s.rate);
    sfp__json_real(j, "lag", s.lag);
    sfp__json_real(j, "age", s.age);
    sfp__json_real(j, "answers_per_second", s.answers_per_second);
    sfp__json_real(j, "accuracy", s.accuracy);
    if (s.of_log) {
        sfp__json_object(j, "worker");
        sfp__json_uint(j, "pending", s.worker.pending);
        sfp__json_uint(j, "commits", s.worker.commits);
        sfp__json_uint(j, "fenced", s.worker.fenced);
        sfp__json_uint(j, "rejected", s.worker.rejected);
        sfp__json_uint(j, "answered", s.worker.answered);
        sfp__json_real(j, "sum_age", s.worker.sum_age);
        sfp__json_end(j);
    }
    sfp__json_bool(j, "paused", s.paused);
    put_warnings(j, m);
    sfp__json_end(j);
}

sfp_status sfp__get_status(sfp__request *r, sfp_error *err)
{
    (void)err;
    sfp__json j = {.text = &r->reply};
    put_status(&j, r->model);
    return SFP_OK;
}

/* ------------------------------------------------------------------------ files */

static sfp_status send_file(sfp__request *r, const char *name, const char *type, sfp_error *err)
{
    char path[PATH_MAX];
    TRY(sfp_run_checkpoint(sfp__model_run(r->model), err));
    if (snprintf(path, sizeof path, "%s/%s", sfp__model_dir(r->model), name) >= (int)sizeof path)
        return sfp__fail(err, SFP_EINVAL, "%s: path is too long", sfp__model_dir(r->model));
    r->file = open(path, O_RDONLY | O_CLOEXEC);
    r->type = type;
    return r->file >= 0 ? SFP_OK : sfp__fail_errno(err, SFP_ENOTFOUND, "%s: cannot open", name);
}

sfp_status sfp__get_state(sfp__request *r, sfp_error *err)
{
    sfp__reply_header(r, "Content-Disposition", "attachment; filename=\"state.safetensors\"");
    return send_file(r, "state.safetensors", "application/octet-stream", err);
}

sfp_status sfp__get_report(sfp__request *r, sfp_error *err)
{
    sfp__reply_header(r, "Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src data:");
    return send_file(r, "report.html", "text/html; charset=utf-8", err);
}

sfp_status sfp__post_checkpoint(sfp__request *r, sfp_error *err)
{
    TRY(sfp_run_checkpoint(sfp__model_run(r->model), err));
    return sfp__get_status(r, err);
}

sfp_status sfp__post_pause(sfp__request *r, sfp_error *err)
{
    TRY(sfp__model_pause(r->model, true, err));
    return sfp__get_status(r, err);
}

sfp_status sfp__post_resume(sfp__request *r, sfp_error *err)
{
    TRY(sfp__model_pause(r->model, false, err));
    return sfp__get_status(r, err);
}

/* ----------------------------------------------------------------------- health */

bool sfp__serve_ready(const sfp__server *s)
{
    bool ready = true;
    for (int i = 0; i < sfp__server_models(s); i++)
        ready = ready && sfp__model_ready(sfp__server_model(s, i));
    return ready;
}

static sfp_status reply_health(sfp__request *r, bool good)
{
    sfp__json j = {.text = &r->reply};
    r->status = good ? 200 : 503;
    sfp__json_object(&j, NULL);
    sfp__json_string(&j, "status", good ? "ok" : "not ready");
    sfp__json_end_all(&j);
    return SFP_OK;
}

sfp_status sfp__get_health(sfp__request *r, sfp_error *err)
{
    (void)err;
    return reply_health(r, true);
}

sfp_status sfp__get_ready(sfp__request *r, sfp_error *err)
{
    (void)err;
    return reply_health(r, sfp__serve_ready(r->server));
}

/* ---------------------------------------------------------------------- metrics */

/* A metric with one value per model. type: counter or gauge. */
typedef struct metric {
    const char *name, *type, *help;
    double (*value)(const sfp__model_status *s);
} metric;

static double version_of(const sfp__model_status *s)
{
    return (double)s->version;
}
static double classes_of(const sfp__model_status *s)
{
    return s->classes;
}
static double answers_of(const sfp__model_status *s)
{
    return (double)s->answers;
}
static double batches_of(const sfp__model_status *s)
{
    return (double)s->answer_batches;
}
static double seconds_of(const sfp__model_status *s)
{
    return s->answer_seconds;
}
static double age_of(const sfp__model_status *s)
{
    return s->age;
}
static double lag_of(const sfp__model_status *s)
{
    return s->lag;
}
static double accuracy_of(const sfp__model_status *s)
{
    return s->accuracy;
}
static double paused_of(const sfp__model_status *s)
{
    return s->paused;
}

static double pending_of(const sfp__model_status *s)
{
    return (double)s->worker.pending;
}
static double commits_of(const sfp__model_status *s)
{
    return (double)s->worker.commits;
}
static double fenced_of(const sfp__model_status *s)
{
    return (double)s->worker.fenced;
}
static double rejected_of(const sfp__model_status *s)
{
    return (double)s->worker.rejected;
}
static double answered_of(const sfp__model_status *s)
{
    return (double)s->worker.answered;
}
static double sum_age_of(const sfp__model_status *s)
{
    return s->worker.sum_age;
}

static const metric metrics[] = {
    {"streamfp_batches_learned_total", "counter", "Batches learned.", version_of},
    {"streamfp_classes", "gauge", "Classes learned.", classes_of},
    {"streamfp_answers_total", "counter", "Images predicted for requests.", answers_of},
    {"streamfp_answer_batches_total", "counter", "Runs of the predictor.", batches_of},
    {"streamfp_answer_seconds_total", "counter", "Total time of the runs of the predictor.", seconds_of},
    {"streamfp_model_age_seconds", "gauge", "Time since the model last changed.", age_of},
    {"streamfp_lag_seconds", "gauge", "Time from arrival to learning.", lag_of},
    {"streamfp_prequential_accuracy_ratio", "gauge", "Accuracy on samples before they are learned.", accuracy_of},
    {"streamfp_paused", "gauge", "1 while learning is paused, else 0.", paused_of},
};
/* Of a worker of a message log. */
static const metric worker_metrics[] = {
    {"streamfp_worker_pending_messages", "gauge", "Messages that were read and not committed.", pending_of},
    {"streamfp_worker_commits_total", "counter", "Commits.", commits_of},
    {"streamfp_worker_fenced_commits_total", "counter", "Commits that were refused.", fenced_of},
    {"streamfp_worker_rejected_messages_total", "counter", "Messages that were set aside.", rejected_of},
    {"streamfp_worker_answered_messages_total", "counter", "Messages without a label.", answered_of},
    {"streamfp_worker_sum_age_seconds", "gauge", "Time since the state of --answer-with was written.", sum_age_of},
};

/* Writes the value of a Prometheus label, in which quotes, backslashes and line ends are escaped. */
static void put_label(sfp__text *t, const char *s)
{
    for (; *s; s++) {
        if (*s == '\n')
            sfp__text_put(t, "\\n");
        else
            sfp__text_printf(t, "%s%c", *s == '"' || *s == '\\' ? "\\" : "", *s);
    }
}

static void put_value(sfp__text *t, const char *name, const char *model, const char *key, const char *label, double value)
{
    sfp__text_printf(t, "%s{model=\"", name);
    put_label(t, model);
    if (key)
        sfp__text_printf(t, "\",%s=\"%s", key, label);
    sfp__text_printf(t, "\"} ");
    sfp__text_printf(t, isfinite(value) ? "%.17g\n" : "NaN\n", value);
}

static void put_metrics(sfp__text *t, sfp__server *s, const sfp__model_status *all, const metric *list, size_t count)
{
    for (const metric *m = list; m < list + count; m++) {
        sfp__text_printf(t, "# HELP %s %s\n# TYPE %s %s\n", m->name, m->help, m->name, m->type);
        for (int i = 0; i < sfp__server_models(s); i++)
            put_value(t, m->name, sfp__model_name(sfp__server_model(s, i)), NULL, NULL, m->value(&all[i]));
    }
}

sfp_status sfp__get_metrics(sfp__request *r, sfp_error *err)
{
    int models = sfp__server_models(r->server);
    sfp__text *t = &r->reply;
    sfp__server_stats stats;
    OWNED sfp__model_status *all = NULL;
    TRY(sfp__alloc(&all, (size_t)models, sizeof *all, err));
    for (int i = 0; i < models; i++)
        sfp__model_get(sfp__server_model(r->server, i), &all[i]);
    sfp__server_get(r->server, &stats);
    r->type = "text/plain; version=0.0.4; charset=utf-8";
    sfp__text_printf(
        t, "# HELP streamfp_info The version of the program.\n# TYPE streamfp_info gauge\nstreamfp_info{version=\"%s\"} 1\n",
        sfp_version());
    sfp__text_printf(
        t, "# HELP streamfp_connections Open connections.\n# TYPE streamfp_connections gauge\nstreamfp_connections %d\n",
        stats.connections);
    sfp__text_printf(
        t, "# HELP streamfp_requests_total Requests.\n# TYPE streamfp_requests_total counter\nstreamfp_requests_total %llu\n",
        (unsigned long long)stats.requests);
    sfp__text_printf(t,
                     "# HELP streamfp_requests_refused_total Requests that were refused before they were processed.\n"
                     "# TYPE streamfp_requests_refused_total counter\nstreamfp_requests_refused_total %llu\n",
                     (unsigned long long)stats.refused);
    put_metrics(t, r->server, all, metrics, sizeof metrics / sizeof *metrics);
    if (all[0].of_log)
        put_metrics(t, r->server, all, worker_metrics, sizeof worker_metrics / sizeof *worker_metrics);
    sfp__text_put(t, "# HELP streamfp_samples Samples by standing.\n# TYPE streamfp_samples gauge\n");
    for (int i = 0; i < models; i++)
        for (int k = 0; k < 5; k++)
            put_value(t, "streamfp_samples", sfp__model_name(sfp__server_model(r->server, i)), "standing", sfp__standing_names[k],
                      (double)all[i].counts[k]);
    return SFP_OK;
}

/* ----------------------------------------------------------------------- events */

enum { SUBSCRIBERS_MAX = 64, QUEUE_BYTES_MAX = 1 << 20, BLOCK = 16384, KEEP_ALIVE_TICKS = 30 };

typedef struct subscriber {
    struct sfp__events *events;
    struct subscriber *next;
    struct MHD_Connection *connection;
    sfp__model *model;
    sfp__text text; /* bytes [sent, length) have not been sent yet */
    size_t sent;
    bool suspended, ended;
} subscriber;

struct sfp__events {
    pthread_mutex_t lock;
    subscriber *first;
    int count;
    unsigned ticks;
    bool ended;
};

struct sfp__events *sfp__events_create(void)
{
    struct sfp__events *e = sfp__calloc(1, sizeof *e);
    if (e)
        pthread_mutex_init(&e->lock, NULL);
    return e;
}

void sfp__events_free(struct sfp__events *e)
{
    if (!e)
        return;
    pthread_mutex_destroy(&e->lock);
    sfp__free(e);
}

/* The lock is held. */
static void wake(subscriber *s)
{
    if (s->suspended)
        MHD_resume_connection(s->connection);
    s->suspended = false;
}

/* Called by the web server when it can send more bytes. Without any, suspends the connection until the next event. */
static ssize_t read_events(void *ctx, uint64_t pos, char *buf, size_t max)
{
    subscriber *s = ctx;
    (void)pos;
    pthread_mutex_lock(&s->events->lock);
    size_t n = s->text.length - s->sent;
    ssize_t got = s->ended ? MHD_CONTENT_READER_END_OF_STREAM : 0;
    if (n > 0) {
        n = n < max ? n : max;
        memcpy(buf, s->text.s + s->sent, n);
        s->sent += n;
        if (s->sent == s->text.length)
            s->text.length = s->sent = 0;
        got = (ssize_t)n;
    } else if (!s->ended) {
        s->suspended = true;
        MHD_suspend_connection(s->connection);
    }
    pthread_mutex_unlock(&s->events->lock);
    return got;
}

static void unsubscribe(void *ctx)
{
    subscriber *s = ctx;
    struct sfp__events *e = s->events;
    pthread_mutex_lock(&e->lock);
    for (subscriber **at = &e->first; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            e->count--;
            break;
        }
    pthread_mutex_unlock(&e->lock);
    sfp__text_done(&s->text);
    sfp__free(s);
}

void *sfp__events_subscribe(struct sfp__events *e, sfp__request *r)
{
    subscriber *s = sfp__calloc(1, sizeof *s);
    if (!s)
        return NULL;
    *s = (subscriber){.events = e, .connection = r->connection, .model = r->model};
    sfp__text_put(&s->text, "retry: 2000\n\n");
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_events, s, unsubscribe);
    pthread_mutex_lock(&e->lock);
    bool taken = response && e->count < SUBSCRIBERS_MAX && !e->ended;
    if (taken) {
        s->next = e->first;
        e->first = s;
        e->count++;
    }
    pthread_mutex_unlock(&e->lock);
    if (!response)
        unsubscribe(s);
    else if (!taken)
        MHD_destroy_response(response); /* frees the subscriber */
    return taken ? response : NULL;
}

/* Sends an event to the subscribers of a model. model NULL: to all subscribers. event NULL: data is sent as it is (a comment). */
static void publish(struct sfp__events *e, const sfp__model *model, const char *event, const char *data)
{
    pthread_mutex_lock(&e->lock);
    for (subscriber *s = e->first; s; s = s->next) {
        if ((model && s->model != model) || s->ended)
            continue;
        if (event)
            sfp__text_printf(&s->text, "event: %s\ndata: ", event);
        sfp__text_put(&s->text, data);
        sfp__text_put(&s->text, "\n\n");
        s->ended = s->text.failed || s->text.length > QUEUE_BYTES_MAX;
        wake(s);
    }
    pthread_mutex_unlock(&e->lock);
}

static bool has_subscribers(struct sfp__events *e)
{
    pthread_mutex_lock(&e->lock);
    bool some = e->count > 0;
    pthread_mutex_unlock(&e->lock);
    return some;
}

void sfp__events_sample(struct sfp__events *e, sfp__model *m, uint64_t id)
{
    OWNED_BY(sfp__text_done) sfp__text t = {0};
    sfp__json j = {.text = &t};
    bool found = false;
    if (has_subscribers(e) && sfp__json_sample(m, id, &j, NULL, &found, NULL) == SFP_OK && found && t.s)
        publish(e, m, "sample", t.s);
}

/* Sends events for watched samples that were learned since the last tick. */
static void report_watched(sfp__server *s, sfp__model *m)
{
    enum { PER_TICK = 256 };
    uint64_t id;
    for (int i = 0; i < PER_TICK && sfp__model_watched(m, &id); i++) {
        OWNED_BY(sfp__text_done) sfp__text t = {0};
        sfp__json j = {.text = &t};
        bool found = false;
        if (sfp__json_sample(m, id, &j, NULL, &found, NULL) || !found || !t.s)
            continue;
        if (strstr(t.s, "\"standing\":\"waiting\"")) {
            sfp__model_watch(m, id);
            return; /* samples are learned in order, so the later ones wait, too */
        }
        publish(sfp__server_events(s), m, "sample", t.s);
    }
}

void sfp__events_tick(sfp__server *s)
{
    struct sfp__events *e = sfp__server_events(s);
    uint64_t id;
    bool has_listeners = has_subscribers(e);
    for (int i = 0; i < sfp__server_models(s) && !has_listeners; i++)
        while (sfp__model_watched(sfp__server_model(s, i), &id))
            continue;
    for (int i = 0; i < sfp__server_models(s) && has_listeners; i++) {
        OWNED_BY(sfp__text_done) sfp__text t = {0};
        sfp__json j = {.text = &t};
        put_status(&j, sfp__server_model(s, i));
        if (t.s)
            publish(e, sfp__server_model(s, i), "status", t.s);
        report_watched(s, sfp__server_model(s, i));
    }
    if (++e->ticks % KEEP_ALIVE_TICKS == 0)
        publish(e, NULL, NULL, ":");
}

void sfp__events_end(struct sfp__events *e)
{
    pthread_mutex_lock(&e->lock);
    e->ended = true;
    for (subscriber *s = e->first; s; s = s->next) {
        s->ended = true;
        wake(s);
    }
    pthread_mutex_unlock(&e->lock);
}

sfp_status sfp__get_events(sfp__request *r, sfp_error *err)
{
    (void)err;
    r->events = true;
    r->type = "text/event-stream";
    return SFP_OK;
}
