/* A model has two threads. The first calls sfp_run_step in a loop; no other thread changes what is learned. The second answers: it takes the
 * waiting requests, predicts their images in one run of the predictor, and calls `answer` of each request. Meanwhile the workers of the
 * server wait in sfp__model_predict. */
#include "serve/internal.h"

#include "base/monotonic.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BATCH_IMAGES = 64, REQUESTS_MAX = 1024, WATCHED = 1024, LEARNING_NICE = 5 };

struct sfp__model {
    const sfp__serve_options *opt;
    const char *name, *dir;
    sfp_engine *engine;
    sfp_run *run;
    sfp_predictor *predictor;
    struct {                      /* the state that answers; only the thread that answers uses it */
        sfp_predictor *predictor; /* NULL: none was there yet */
        struct timespec changed;
        double looked_at;
    } sum;
    struct sfp__review *review;
    int dim;
    pthread_t learner, answerer;
    bool learns, answers;
    pthread_mutex_t lock; /* guards the following */
    pthread_cond_t asked, answered;
    sfp__prediction_request *first, *last;
    int waiting; /* requests in the queue */
    bool ending;
    bool ready, ended;
    sfp_error failure;
    sfp__model_status status;
    double changed_at, heartbeat;
    struct {
        double at;
        uint64_t answers;
    } window; /* for answers per second */
    sfp__warnings warnings;
    uint64_t watched[WATCHED];
    int watched_first, watched_count;
};

static void on_progress(void *ctx, const sfp_run_progress *p)
{
    sfp__model *m = ctx;
    pthread_mutex_lock(&m->lock);
    m->status.rate = p->rate;
    m->status.lag = p->lag;
    m->status.accuracy = p->accuracy;
    pthread_mutex_unlock(&m->lock);
}

static void on_log(void *ctx, sfp_log_level level, const char *message)
{
    const sfp__model *m = ctx;
    char text[1024];
    (void)snprintf(text, sizeof text, "%s: %s", m->name, message);
    m->opt->log(NULL, level, text);
}

static void free_model(sfp__model *m)
{
    sfp__review_free(m->review);
    sfp_predictor_free(m->sum.predictor);
    sfp_predictor_free(m->predictor);
    sfp_run_close(m->run);
    pthread_cond_destroy(&m->asked);
    pthread_cond_destroy(&m->answered);
    pthread_mutex_destroy(&m->lock);
    pthread_mutex_destroy(&m->warnings.lock);
    sfp__text_done(&m->warnings.text);
    sfp__free(m);
}

static sfp_status open_run(sfp__model *m, sfp_engine *e, sfp_error *err)
{
    sfp_run_options o = SFP_RUN_OPTIONS_INIT;
    sfp_predictor_options p = SFP_PREDICTOR_OPTIONS_INIT;
    o.progress = on_progress;
    o.log = on_log;
    o.ctx = m;
    p.max_batch = BATCH_IMAGES;
    if (!m->opt->of_log)
        TRY(sfp_settings_set(m->opt->settings, "out", m->dir, err)); /* the run copies the settings */
    TRY(sfp_run_open(e, m->opt->settings, &o, &m->run, err));
    TRY(sfp_run_predictor(m->run, &p, &m->predictor, err));
    sfp_predictor *other = NULL;
    p.threads = 1;
    m->dim = sfp_engine_dim(e);
    TRY(sfp_run_predictor(m->run, &p, &other, err));
    sfp_status status = sfp__review_create(m, other, &m->review, err);
    if (status)
        sfp_predictor_free(other);
    return status;
}

sfp_status sfp__model_open(sfp_engine *e, const sfp__serve_options *opt, int index, sfp__model **out, sfp_error *err)
{
    sfp__model *m = NULL;
    TRY(sfp__alloc(&m, 1, sizeof *m, err));
    m->opt = opt;
    m->engine = e;
    m->status.of_log = opt->of_log;
    m->name = opt->names[index];
    m->dir = opt->dirs[index];
    m->status.rate = m->status.lag = m->status.accuracy = NAN;
    m->heartbeat = m->window.at = m->changed_at = sfp__monotonic_seconds();
    pthread_mutex_init(&m->lock, NULL);
    pthread_mutex_init(&m->warnings.lock, NULL);
    pthread_cond_init(&m->asked, NULL);
    pthread_cond_init(&m->answered, NULL);
    sfp_status status = open_run(m, e, err);
    if (status)
        free_model(m);
    else
        *out = m;
    return status;
}

/* ----------------------------------------------------------------- learning */

static double thread_seconds(void)
{
    struct timespec t;
    return clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0 ? (double)t.tv_sec + (double)t.tv_nsec * 1e-9 : 0;
}

/* Sleeps so long that learning takes only this share of the time. */
static void sleep_share(double busy, double share)
{
    double pause = fmin(busy * (1 / share - 1), 10);
    if (share >= 1 || pause < 0.001)
        return;
    struct timespec t = {.tv_sec = (time_t)pause, .tv_nsec = (long)((pause - floor(pause)) * 1e9)};
    (void)nanosleep(&t, NULL);
}

void sfp__serve_lower_priority(void)
{
    int now = getpriority(PRIO_PROCESS, 0); /* on Linux, that of the calling thread; threads that it creates inherit it */
    (void)setpriority(PRIO_PROCESS, 0, now + LEARNING_NICE);
}

static void *learn(void *arg)
{
    sfp__model *m = arg;
    sfp_error err = {0};
    sfp_status status = SFP_OK;
    sfp__serve_lower_priority();
    for (int more = 1; more && !status;) {
        double before = thread_seconds();
        status = sfp_run_step(m->run, &more, &err);
        double busy = thread_seconds() - before;
        const sfp_result *r = sfp_run_result(m->run);
        double version = sfp_result_number(r, "timestamps");
        pthread_mutex_lock(&m->lock);
        m->heartbeat = sfp__monotonic_seconds();
        m->ready = !status && more;
        if (isfinite(version) && (uint64_t)version != m->status.version) {
            m->status.version = (uint64_t)version;
            m->changed_at = m->heartbeat;
        }
        m->status.classes = sfp_result_classes(r);
        pthread_mutex_unlock(&m->lock);
        sleep_share(busy, m->opt->cpu_share);
    }
    pthread_mutex_lock(&m->lock);
    m->ended = true;
    m->ready = false;
    m->status.failed = status != SFP_OK;
    m->failure = err;
    m->failure.status = status;
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* ---------------------------------------------------------------- answering */

/* Removes the first requests from the queue: at least one, and as many as have BATCH_IMAGES images together. The lock is held. */
static sfp__prediction_request *take_requests(sfp__model *m, int *images)
{
    sfp__prediction_request *taken = m->first, *last = NULL;
    *images = 0;
    for (sfp__prediction_request *q = taken; q && (!last || *images + q->count <= BATCH_IMAGES); q = q->next) {
        *images += q->count;
        m->waiting--;
        last = q;
    }
    m->first = last->next;
    if (!m->first)
        m->last = NULL;
    last->next = NULL;
    return taken;
}

/* Returns the predictor that answers: that of --answer-with, whose file is read again when it has changed, or else that of the model. */
static sfp_predictor *choose_predictor(sfp__model *m)
{
    const char *path = m->opt->answer_with;
    double now = sfp__monotonic_seconds();
    struct stat st;
    if (!path || now < m->sum.looked_at + 1)
        return m->sum.predictor ? m->sum.predictor : m->predictor;
    m->sum.looked_at = now;
    if (stat(path, &st) == 0 && (!m->sum.predictor || memcmp(&st.st_mtim, &m->sum.changed, sizeof st.st_mtim) != 0)) {
        sfp_predictor_options o = SFP_PREDICTOR_OPTIONS_INIT;
        sfp_predictor *p = NULL;
        sfp_error why = {0};
        o.max_batch = BATCH_IMAGES;
        if (sfp_predictor_open(m->engine, path, &o, &p, &why)) {
            on_log(m, SFP_LOG_WARNING, why.message);
        } else {
            sfp_predictor_free(m->sum.predictor);
            m->sum.predictor = p;
            m->sum.changed = st.st_mtim;
        }
    }
    return m->sum.predictor ? m->sum.predictor : m->predictor;
}

static void answer(sfp__model *m, sfp__prediction_request *list, int images)
{
    sfp_predictor *p = choose_predictor(m);
    OWNED sfp_image *all = NULL;
    OWNED sfp_prediction *predictions = NULL;
    sfp_error err = {0};
    int first = 0;
    double begin = sfp__monotonic_seconds();
    sfp_status status = sfp__alloc(&all, (size_t)images, sizeof *all, &err);
    if (!status)
        status = sfp__alloc(&predictions, (size_t)images, sizeof *predictions, &err);
    for (const sfp__prediction_request *q = list; q && !status; first += q->count, q = q->next)
        memcpy(all + first, q->images, (size_t)q->count * sizeof *all);
    if (!status)
        status = sfp_predictor_run(p, images, all, predictions, &err);
    first = 0;
    for (sfp__prediction_request *q = list; q && !status; first += q->count, q = q->next)
        q->answer(q, p, first, predictions + first);
    pthread_mutex_lock(&m->lock);
    m->status.answers += status ? 0 : (uint64_t)images;
    m->status.answer_batches++;
    m->status.answer_seconds += sfp__monotonic_seconds() - begin;
    for (sfp__prediction_request *q = list, *next; q; q = next) {
        next = q->next; /* once q->done is set, its thread may free the request */
        q->status = status;
        q->err = err;
        q->done = true;
    }
    pthread_cond_broadcast(&m->answered);
    pthread_mutex_unlock(&m->lock);
}

static void *answer_all(void *arg)
{
    sfp__model *m = arg;
    pthread_mutex_lock(&m->lock);
    for (;;) {
        while (!m->first && !m->ending)
            pthread_cond_wait(&m->asked, &m->lock);
        if (!m->first)
            break;
        int images;
        sfp__prediction_request *list = take_requests(m, &images);
        pthread_mutex_unlock(&m->lock);
        answer(m, list, images);
        pthread_mutex_lock(&m->lock);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

sfp_status sfp__model_predict(sfp__model *m, sfp__prediction_request *q, sfp_error *err)
{
    pthread_mutex_lock(&m->lock);
    bool full = m->waiting >= REQUESTS_MAX || m->ending;
    if (!full) {
        q->next = NULL;
        q->done = false;
        if (m->last)
            m->last->next = q;
        else
            m->first = q;
        m->last = q;
        m->waiting++;
        pthread_cond_signal(&m->asked);
        while (!q->done)
            pthread_cond_wait(&m->answered, &m->lock);
    }
    pthread_mutex_unlock(&m->lock);
    if (full)
        return sfp__fail(err, SFP_ELIMIT, "too many requests wait for an answer; try again later");
    return q->status ? sfp__fail(err, q->status, "%s", q->err.message) : SFP_OK;
}

/* ------------------------------------------------------------ start and stop */

sfp_status sfp__model_start(sfp__model *m, sfp_error *err)
{
    m->learns = pthread_create(&m->learner, NULL, learn, m) == 0;
    m->answers = m->learns && pthread_create(&m->answerer, NULL, answer_all, m) == 0;
    return m->answers ? SFP_OK : sfp__fail(err, SFP_ELIMIT, "cannot start the threads of model %s", m->name);
}

void sfp__model_stop(sfp__model *m)
{
    sfp_run_cancel(m->run);
}

sfp_status sfp__model_close(sfp__model *m, sfp_error *err)
{
    if (!m)
        return SFP_OK;
    sfp_run_cancel(m->run);
    if (m->learns)
        pthread_join(m->learner, NULL);
    pthread_mutex_lock(&m->lock);
    m->ending = true;
    pthread_cond_broadcast(&m->asked);
    pthread_mutex_unlock(&m->lock);
    if (m->answers)
        pthread_join(m->answerer, NULL);
    sfp_status status = m->failure.status;
    if (status)
        status = sfp__fail(err, status, "%s: %s", m->name, m->failure.message);
    free_model(m);
    return status;
}

/* -------------------------------------------------------------------- status */

const char *sfp__model_name(const sfp__model *m)
{
    return m->name;
}

const char *sfp__model_dir(const sfp__model *m)
{
    return m->dir;
}

int sfp__model_dim(const sfp__model *m)
{
    return m->dim;
}

struct sfp__review *sfp__model_review(sfp__model *m)
{
    return m->review;
}

sfp_run *sfp__model_run(sfp__model *m)
{
    return m->run;
}

sfp__warnings *sfp__model_warnings(sfp__model *m)
{
    return &m->warnings;
}

bool sfp__model_ready(sfp__model *m)
{
    pthread_mutex_lock(&m->lock);
    bool ready = m->ready;
    pthread_mutex_unlock(&m->lock);
    return ready;
}

double sfp__model_heartbeat(sfp__model *m)
{
    pthread_mutex_lock(&m->lock);
    double at = m->ended ? -1 : m->heartbeat;
    pthread_mutex_unlock(&m->lock);
    return at;
}

void sfp__model_get(sfp__model *m, sfp__model_status *out)
{
    enum { WINDOW_SECONDS = 5 };
    uint64_t counts[5] = {0};
    sfp_worker_status worker = SFP_WORKER_STATUS_INIT;
    bool known = !m->opt->of_log && sfp_run_counts(m->run, counts, NULL) == SFP_OK;
    if (m->opt->of_log && sfp_run_worker(m->run, &worker, NULL) == SFP_OK) {
        known = true;
        counts[SFP_WAITING] = worker.pending;
        counts[SFP_LEARNED] = worker.samples;
        counts[SFP_UNREADABLE] = worker.rejected;
    }
    pthread_mutex_lock(&m->lock);
    sfp__model_status *s = &m->status;
    double now = sfp__monotonic_seconds(), took = now - m->window.at;
    if (took >= WINDOW_SECONDS || (took > 0.5 && m->window.answers == 0)) {
        s->answers_per_second = (double)(s->answers - m->window.answers) / took;
        m->window.at = now;
        m->window.answers = s->answers;
    }
    s->age = now - m->changed_at;
    if (known)
        memcpy(s->counts, counts, sizeof counts);
    if (m->opt->of_log) {
        s->worker = worker;
        s->lag = worker.lag;
    }
    *out = *s;
    pthread_mutex_unlock(&m->lock);
}

sfp_status sfp__model_pause(sfp__model *m, bool paused, sfp_error *err)
{
    TRY(sfp_run_pause(m->run, paused, err));
    pthread_mutex_lock(&m->lock);
    m->status.paused = paused;
    pthread_mutex_unlock(&m->lock);
    return SFP_OK;
}

void sfp__model_watch(sfp__model *m, uint64_t id)
{
    pthread_mutex_lock(&m->lock);
    m->watched[(m->watched_first + m->watched_count) % WATCHED] = id;
    if (m->watched_count < WATCHED)
        m->watched_count++;
    else
        m->watched_first = (m->watched_first + 1) % WATCHED;
    pthread_mutex_unlock(&m->lock);
}

bool sfp__model_watched(sfp__model *m, uint64_t *id)
{
    pthread_mutex_lock(&m->lock);
    bool some = m->watched_count > 0;
    if (some) {
        *id = m->watched[m->watched_first];
        m->watched_first = (m->watched_first + 1) % WATCHED;
        m->watched_count--;
    }
    pthread_mutex_unlock(&m->lock);
    return some;
}
