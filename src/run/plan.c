/* The plan of a run: its sources, tasks, batches and test set, and the processing times of its clock. */
#include "base/mem.h"
#include "base/text.h"
#include "io/file.h"
#include "io/lines.h"
#include "run/run_internal.h"
#include "stream/source.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CURVE_POINTS = 2000 };

void sfp__plan_log(const sfp__plan *p, sfp_log_level level, const char *fmt, ...)
{
    char text[2 * PATH_MAX];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (p->hooks->log)
        p->hooks->log(p->hooks->log_ctx, level, text);
}

bool sfp__plan_stopped(const sfp__plan *p)
{
    return p->hooks->stop && atomic_load(p->hooks->stop);
}

sfp_status sfp__plan_path(const sfp__plan *p, const char *name, char *buf, size_t size, sfp_error *err)
{
    return sfp__path_print(buf, size, err, "%s/%s", p->opt->out, name);
}

void sfp__plan_done(sfp__plan *p)
{
    sfp__batches_done(&p->batches);
    sfp__batches_done(&p->unlabelled);
    sfp__tasks_done(&p->test_tasks);
    sfp__tasks_done(&p->tasks);
    sfp__source_close(p->test);
    sfp__source_close(p->source);
    sfp__vit_memo_free(p->memo);
    sfp__free(p->costs.seconds);
}

/* --------------------------------------------------------------------- sources */

sfp_status sfp__plan_open_source(sfp__plan *p, sfp_error *err)
{
    const sfp__run_options *o = p->opt;
    const sfp__source_options so = {.seed = o->learner.seed, .order = o->order};
    if (!p->source)
        TRY(sfp__source_open(o->data, &so, &p->source, err));
    TRY(sfp__shard_open(&p->source, o->shard, err));
    p->data = o->source ? o->source->path : o->data;
    p->live = p->source->kind->live;
    p->size = o->vit->config.img_size;
    p->dim = o->vit->config.dim;
    p->clock = sfp__run_clock(o, p->live);
    TRY(sfp__check_input(p->source, &o->vit->config, "data", p->data, err));
    if (p->source->warning)
        sfp__plan_warn(p, "%s", p->source->warning);
    return SFP_OK;
}

static sfp_status check_test(const sfp__plan *p, const char *name, sfp_error *err)
{
    if (p->test->kind->live)
        return sfp__fail_key(err, "test", SFP_EINVAL, "test %s: a live source cannot be a test set, expected a dataset", name);
    return sfp__check_input(p->test, &p->opt->vit->config, "test", name, err);
}

/* Opens --test, else the test part of the dataset if it has one. */
static sfp_status open_test(sfp__plan *p, sfp_error *err)
{
    const sfp__run_options *o = p->opt;
    const sfp__source_options so = {
        .seed = o->learner.seed, .order = o->order, .test = !o->test || (o->data && strcmp(o->test, o->data) == 0)};
    sfp_error why = {0};
    if (p->test)
        return check_test(p, p->test->path, err);
    if (o->test) {
        sfp_status status = sfp__source_open(o->test, &so, &p->test, err);
        if (status && err && strcmp(err->key, "data") == 0)
            sfp__fail_rename(err, "test", "test"); /* a source names itself "data" in messages */
        return status ? status : check_test(p, o->test, err);
    }
    if (o->source || (p->live && !p->source->ops->on_demand))
        return SFP_OK; /* a second reader of a live source would take images away from the first one */
    sfp_status status = sfp__source_open(o->data, &so, &p->test, &why);
    if (status && status != SFP_ENOTFOUND) /* a damaged test part is not the same as none */
        return sfp__fail(err, status, "test part of %s: %s; repair it, or use --test KIND:PATH", p->data, why.message);
    if (!status && !p->test->test_part) {
        sfp__source_close(p->test);
        p->test = NULL;
    }
    return SFP_OK;
}

sfp_status sfp__plan_digest_sources(sfp__plan *p, sfp_error *err)
{
    if (!p->live && !p->source_digest)
        TRY(sfp__source_digest(p->source, &p->source_digest, err));
    if (!p->live && p->test && !p->test_digest) /* a live run may resume with another test set */
        TRY(sfp__source_digest(p->test, &p->test_digest, err));
    return SFP_OK;
}

/* --------------------------------------------------------------- a live stream */

static sfp_status refuse_live(const sfp__plan *p, sfp_error *err)
{
    const sfp__run_options *o = p->opt;
    if (o->tasks && strcmp(o->tasks, "free") != 0)
        return sfp__fail_key(err, "tasks", SFP_EINVAL, "tasks is '%s', expected free: %s is a live stream and has no tasks",
                             o->tasks, p->data);
    if (p->clock == SFP__CLOCK_PAPER || p->clock == SFP__CLOCK_VIRTUAL)
        return sfp__fail_key(err, "clock", SFP_EINVAL,
                             "clock is %s, expected real or off: %s is a live stream, whose length is unknown",
                             sfp__clock_name(p->clock), p->data);
    if (o->costs)
        return sfp__fail_key(err, "costs", SFP_EINVAL,
                             "costs %s: not allowed with live source %s, where processing time is measured; remove --costs",
                             o->costs, p->data);
    if (o->rate > 0 && !p->source->ops->on_demand)
        return sfp__fail_key(err, "rate", SFP_EINVAL, "rate is %g, expected max: the images of %s have their own arrival rate",
                             o->rate, p->data);
    if (p->clock == SFP__CLOCK_REAL && p->source->ops->on_demand && !(o->rate > 0))
        return sfp__fail_key(err, "clock", SFP_EINVAL,
                             "clock real: this clock needs an arrival rate with %s; use --rate LAMBDA (samples per second)",
                             p->data);
    if (o->pending < 0 || o->pending > 1000000)
        return sfp__fail(err, SFP_EINVAL, "the label queue has a capacity of %d images, expected 0 to 1000000", o->pending);
    return SFP_OK;
}

/* A live stream is one task. The classes of the test set get labels when they appear in the stream. */
static sfp_status split_live(sfp__plan *p, sfp_error *err)
{
    OWNED_BY(sfp__tasks_done) sfp__tasks like = {0};
    TRY(refuse_live(p, err));
    TRY(sfp__alloc(&p->tasks.task, 1, sizeof *p->tasks.task, err));
    p->tasks.count = 1;
    p->tasks.free = true;
    TRY(sfp__check_memory((p->tasks.task[0].name = sfp__strdup("all")), err));
    TRY(open_test(p, err));
    if (!p->test)
        return SFP_OK;
    TRY(sfp__tasks_create(p->test, "free", NULL, NULL, &like, err));
    return sfp__tasks_create_test(p->test, p->test, &like, "free", p->opt->eval_limit, &p->test_tasks, err);
}

/* ----------------------------------------------------------- an indexed stream */

/* Counts the classes in the stream: with tasks by domain, some classes of the dataset may not be in it. */
static sfp_status count_classes(sfp__plan *p, sfp_error *err)
{
    OWNED uint8_t *has = NULL;
    TRY(sfp__alloc(&has, (size_t)p->tasks.classes, 1, err));
    for (int t = 0; t < p->tasks.count; t++)
        for (int i = 0; i < p->tasks.task[t].classes; i++)
            has[p->tasks.task[t].class_of[i]] = 1;
    p->stream_classes = 0;
    for (int c = 0; c < p->tasks.classes; c++)
        p->stream_classes += has[c];
    return SFP_OK;
}

/* Reports whether the `count` unlabelled images are excluded or predicted, and lists those that are predicted. In a dataset no
 * label arrives later. In a task-free stream that keeps its order each image is predicted in its turn; otherwise it is
 * excluded. */
static sfp_status find_unlabelled(sfp__plan *p, uint64_t count, sfp_error *err)
{
    bool predicted = p->tasks.free && p->tasks.in_source_order;
    int64_t n = 0;
    OWNED int64_t *order = NULL;
    if (count == 0)
        return SFP_OK;
    const char *have = count == 1 ? "image has" : "images have", *are = count == 1 ? "is" : "are";
    if (!predicted) {
        sfp__plan_warn(p, "%llu %s no label and %s excluded", (unsigned long long)count, have, are);
        return SFP_OK;
    }
    sfp__plan_info(p, "%llu %s no label and %s predicted, not trained on", (unsigned long long)count, have, are);
    TRY(sfp__alloc(&order, (size_t)count, sizeof *order, err));
    for (int64_t i = 0; i < p->source->count; i++) {
        sfp_record record;
        TRY(sfp__source_record(p->source, i, &record, err));
        if (record.label < 0 && (uint64_t)n < count)
            order[n++] = i;
    }
    return sfp__batches_single(TAKE(order), n, &p->unlabelled, err);
}

static sfp_status split_indexed(sfp__plan *p, sfp_error *err)
{
    const sfp__run_options *o = p->opt;
    uint64_t unlabelled = 0;
    const sfp__stream_order order = {.classes = o->order, .within = o->within, .seed = o->learner.seed};
    TRY(sfp__tasks_create(p->source, o->tasks, &order, &unlabelled, &p->tasks, err));
    TRY(find_unlabelled(p, unlabelled, err));
    TRY(open_test(p, err));
    if (p->test)
        TRY(sfp__tasks_create_test(p->test, p->source, &p->tasks, o->tasks, o->eval_limit, &p->test_tasks, err));
    TRY(sfp__batches_create(&p->tasks, o->learner.batch, o->drop_short, &p->batches, err));
    if (p->batches.count == 0)
        return sfp__fail(err, SFP_EINVAL, "%s: the stream has no labelled images", p->data);
    return count_classes(p, err);
}

sfp_status sfp__plan_split_tasks(sfp__plan *p, sfp_error *err)
{
    TRY(p->live ? split_live(p, err) : split_indexed(p, err));
    p->curve_every = p->batches.count / CURVE_POINTS + 1;
    return SFP_OK;
}

uint64_t sfp__plan_max_skipped(const sfp__plan *p, uint64_t count)
{
    return (uint64_t)ceil(p->opt->max_skipped * (double)count);
}

sfp_status sfp__plan_find_readable(const sfp__plan *p, uint8_t *rgb, sfp_error *err)
{
    int64_t count = p->batches.first[p->batches.count];
    sfp__skipped skipped = {0};
    for (int64_t i = 0; i < count && !sfp__plan_stopped(p); i++) {
        sfp_error why = {0};
        sfp_status status =
            sfp__raw_image_read_fit(p->source, p->batches.order[i], p->size, sfp__learner_resize(&p->opt->learner), rgb, &why);
        if (!status || sfp__is_machine_error(status))
            return status ? sfp__fail(err, status, "%s", why.message) : SFP_OK;
        sfp__skipped_add(&skipped, why.message);
    }
    return sfp__plan_stopped(p) ? SFP_OK : sfp__skipped_all(&skipped, p->data, err);
}

/* --------------------------------------------------------------- the feature cache */

sfp_status sfp__plan_open_cache(sfp__plan *p, sfp_error *err)
{
    const sfp__run_options *o = p->opt;
    int taps = o->learner.taps, depth = o->vit->config.depth; /* of the memo and the learner; 0: half of the blocks */
    const sfp__vit_memo_options mo = {.directory = o->cache,
                                      .max_bytes = (uint64_t)o->cache_mebibytes << 20,
                                      .merge_tokens = o->learner.method ? o->learner.merge_tokens : 0,
                                      .taps = taps < depth ? taps : depth, /* the learner refuses more */
                                      .time = &p->time};
    if (!o->cache)
        return SFP_OK;
    return sfp__vit_memo_create(o->vit, &mo, &p->memo, err);
}

void sfp__plan_warn_cache(const sfp__plan *p)
{
    const sfp__feature_cache_stats cache = sfp__vit_memo_get_stats(p->memo).cache;
    if (cache.damaged)
        sfp__plan_warn(p, "cache %s: %llu damaged entr%s computed again", p->opt->cache, (unsigned long long)cache.damaged,
                       cache.damaged == 1 ? "y was" : "ies were");
    if (cache.full)
        sfp__plan_warn(p,
                       "cache %s: the limit of %lld MiB is reached and nothing is added; use --cache-size, or delete the cache",
                       p->opt->cache, (long long)p->opt->cache_mebibytes);
    if (cache.problem[0])
        sfp__plan_warn(p, "%s", cache.problem);
}

/* ------------------------------------------------------------------- the learner */

sfp_status sfp__plan_make_learner(const sfp__plan *p, sfp__learner **out, sfp_error *err)
{
    OWNED_PTR(sfp__learner_free) sfp__learner *l = NULL;
    sfp__learner_options lo = p->opt->learner;
    lo.fp.tasks = p->tasks.free ? 0 : p->tasks.count;
    lo.fp.classes = p->tasks.free && !p->opt->method ? 0 : p->tasks.classes;
    lo.method = p->opt->method;
    lo.memo = p->memo;
    lo.time = &p->time;
    TRY(sfp__learner_create(p->opt->vit, p->opt->pool, &lo, &l, err));
    for (int c = 0; c < p->tasks.classes; c++)
        TRY(sfp__learner_name_class(l, c, p->source->class_names[p->tasks.source_label[c]], err));
    *out = TAKE(l);
    return SFP_OK;
}

/* ------------------------------------------------------------- processing times */

/* Reads --costs: the seconds of each timestamp in turn, one number per line; or "query S", the seconds per sample. Empty lines and lines
 * that begin with # are ignored. */
static sfp_status read_costs(const char *path, sfp__costs *out, sfp_error *err)
{
    static const char word[] = "query ";
    OWNED_BY(sfp__lines_done) sfp__lines lines = {0};
    OWNED double *list = NULL;
    size_t capacity = 0, count = 0;
    double query = NAN;
    TRY(sfp__lines_open(path, "seconds, one number per line", &lines, err));
    for (char *line;;) {
        char *end, shown[SFP__NAME_MAX];
        TRY(sfp__lines_next(&lines, &line, err));
        if (!line)
            break;
        if (line[0] == '#' || line[0] == '\0')
            continue;
        bool of_query = strncmp(line, word, strlen(word)) == 0;
        const char *number = line + (of_query ? strlen(word) : 0);
        double seconds = strtod(number, &end);
        if (end == number || *end || !isfinite(seconds) || seconds < 0)
            return sfp__fail(err, SFP_EFORMAT, "%s:%llu: processing time is '%s', expected a number of seconds from 0",
                             lines.path, (unsigned long long)lines.number, sfp__printable(line, shown, sizeof shown));
        if (of_query) {
            query = seconds;
            continue;
        }
        TRY(sfp__check_memory(sfp__grow(&list, sizeof *list, count, count + 1, &capacity), err));
        list[count++] = seconds;
    }
    if (count == 0 && isnan(query))
        return sfp__fail(err, SFP_EFORMAT, "%s: the file has no processing times, expected seconds, one number per line",
                         lines.path);
    *out = (sfp__costs){.seconds = TAKE(list), .count = (int64_t)count, .query = query};
    return SFP_OK;
}

sfp_status sfp__run_query_seconds(const char *path, double *seconds, sfp_error *err)
{
    sfp__costs costs;
    TRY(read_costs(path, &costs, err));
    sfp__free(costs.seconds);
    *seconds = isnan(costs.query) ? 0 : costs.query;
    return SFP_OK;
}

sfp_status sfp__plan_clock(sfp__plan *p, sfp_error *err)
{
    const sfp__args *a = p->opt->given;
    p->costs.query = NAN;
    if (p->opt->costs)
        TRY(read_costs(p->opt->costs, &p->costs, err));
    /* the preset was chosen, but neither its clock nor another one, because there is no arrival rate */
    if (a && p->opt->drop_short && sfp__args_rank(a, "rate") <= SFP__RANK_DEFAULT && !sfp__args_text(a, "clock"))
        sfp__plan_info(p, "preset %s: there is no arrival rate, so the clock is off and no batch is dropped; use --rate LAMBDA",
                       sfp__args_text(a, "preset"));
    if (!p->live && p->clock != SFP__CLOCK_OFF && !(p->opt->rate > 0))
        return sfp__fail_key(err, "clock", SFP_EINVAL,
                             "clock %s: this clock needs an arrival rate; use --rate LAMBDA (samples per second)",
                             sfp__clock_name(p->clock));
    /* without a clock nothing else is dropped, so the user is told why not all samples are processed */
    bool excludes = !p->live && p->opt->drop_short && p->clock == SFP__CLOCK_OFF;
    int64_t n = excludes ? sfp__batches_excluded(&p->tasks, p->opt->learner.batch, p->tasks.count) : 0;
    if (n > 0)
        sfp__plan_info(p, "%lld sample%s in short last batches of tasks %s excluded, as in the paper", (long long)n,
                       n == 1 ? "" : "s", n == 1 ? "is" : "are");
    return SFP_OK;
}
