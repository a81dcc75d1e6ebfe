/* Learners (streamfp.h, part 5). To the learner of src/learner this file adds the conversion of images to the input size, the
 * label queue, and a number of classes that any thread may read. */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

typedef struct queued {
    uint64_t id;
    uint8_t *rgb; /* (S, S, 3), owned */
} queued;

struct sfp_learner {
    sfp__learner *core;
    sfp_engine *engine;
    atomic_int classes; /* as after the last call */
    int batch;
    size_t bytes;         /* of an image at the input size */
    void *block;          /* of the arrays below */
    uint8_t *rgb;         /* (batch, S, S, 3) */
    sfp__sample *samples; /* (batch) */
    sfp_error *errors;    /* (batch) */
    int *queue_index;     /* (batch) of sfp_learner_label */
    queued *queue;        /* (queue_max) oldest first */
    int queue_count, queue_max;
    bool has_task_classes; /* those of the current task were given */
};

DEFINE_OWNED_PTR(sfp_learner, sfp_learner_free)

sfp__learner *sfp__api_core(sfp_learner *l)
{
    return l->core;
}

const sfp_engine *sfp__api_engine(const sfp_learner *l)
{
    return l->engine;
}

static sfp_status check_learner(const sfp_learner *l, sfp_error *err)
{
    SFP__REQUIRE(l, "learner");
    return sfp__thread_pool_check(l->engine->pool, "the engine", err);
}

sfp_status sfp_learner_create(sfp_engine *e, const sfp_settings *settings, sfp_learner **out, sfp_error *err)
{
    IN_LIBRARY;
    OWNED_PTR(sfp_learner_free) sfp_learner *l = NULL;
    sfp__learner_options o;
    SFP__REQUIRE(e && out, "engine and out");
    TRY(sfp__thread_pool_check(e->pool, "the engine", err));
    TRY(sfp__alloc(&l, 1, sizeof *l, err));
    TRY(sfp__api_learner_options(e, settings, &o, &l->queue_max, err));
    l->engine = e;
    l->batch = o.batch;
    size_t side = (size_t)sfp_engine_image_size(e);
    l->bytes = 3 * side * side;
    size_t b = (size_t)l->batch;
    const sfp__want list[] = {{&l->rgb, b, l->bytes},
                              {&l->samples, b, sizeof *l->samples},
                              {&l->errors, b, sizeof *l->errors},
                              {&l->queue_index, b, sizeof *l->queue_index},
                              {&l->queue, (size_t)l->queue_max, sizeof *l->queue}};
    TRY(sfp__block(&l->block, SFP__LIST(list), err));
    TRY(sfp__learner_create(e->vit, e->pool, &o, &l->core, err));
    atomic_store(&l->classes, sfp__learner_classes(l->core));
    *out = TAKE(l);
    return SFP_OK;
}

void sfp_learner_free(sfp_learner *l)
{
    if (!l || (l->engine && sfp__thread_pool_is_foreign(l->engine->pool)))
        return;
    for (int i = 0; i < l->queue_count; i++)
        sfp__free(l->queue[i].rgb);
    sfp__learner_free(l->core);
    sfp__free(l->block);
    sfp__free(l);
}

/* ------------------------------------------------------------------------------------------------------------- offering */

static sfp_status check_count(const sfp_learner *l, int count, sfp_error *err)
{
    if (count < 1 || count > l->batch)
        return sfp__fail(err, SFP_EINVAL, "count is %d, expected 1 to %d (the setting batch)", count, l->batch);
    return SFP_OK;
}

/* Fits `count` images to l->rgb; fails with the message of the first one that cannot be read. */
static sfp_status fit(sfp_learner *l, int count, const sfp_sample *samples, sfp_error *err)
{
    sfp__api_fit_all(l->engine->pool, count, &samples->image, sizeof *samples, &l->engine->vit->config,
                     sfp__learner_resize(sfp__learner_get_options(l->core)), l->rgb, l->errors);
    for (int i = 0; i < count; i++)
        if (l->errors[i].status)
            return sfp__fail(err, l->errors[i].status, "sample %d: %s", i, l->errors[i].message);
    return SFP_OK;
}

/* Fills l->samples. */
static sfp_status load(sfp_learner *l, int count, const sfp_sample *samples, sfp_error *err)
{
    TRY(fit(l, count, samples, err));
    for (int i = 0; i < count; i++) {
        l->samples[i] = (sfp__sample){.rgb = l->rgb + (size_t)i * l->bytes, .label = samples[i].label, .id = samples[i].id};
    }
    return SFP_OK;
}

/* Writes as much of the report as the caller has. */
static void write_report(const sfp__timestamp_details *t, sfp_timestamp_report *out)
{
    sfp_timestamp_report r = {.size = out->size, /* stays as the caller set it */
                              .timestamp = t->t,
                              .offered = t->offered,
                              .coreset = t->coreset_count,
                              .steps = t->steps,
                              .trained = t->coreset_count * (t->steps > 0 ? t->steps : 1),
                              .stored = t->buffer.stored,
                              .replaced = t->buffer.nu,
                              .loss = t->loss && t->steps > 0 ? t->loss[t->steps - 1] : NAN,
                              .seconds = t->seconds.total};
    for (int k = 0; t->replay_count && k < t->steps; k++)
        r.replayed += t->replay_count[k];
    memcpy(out, &r, out->size < sizeof r ? out->size : sizeof r);
}

/* Classes that the batch adds are counted before the timestamp, so that no predictor knows more classes than the learner. */
static void count_new_classes(sfp_learner *l, int count)
{
    int classes = atomic_load(&l->classes), end = sfp__learner_label_end(l->core);
    for (int i = 0; i < count; i++)
        if (l->samples[i].label >= classes && l->samples[i].label < end)
            classes = l->samples[i].label + 1;
    atomic_store(&l->classes, classes);
}

/* Offers the first `count` of l->samples. */
static sfp_status offer(sfp_learner *l, int count, sfp_timestamp_report *report, sfp_error *err)
{
    sfp__timestamp_details t = {0};
    if (sfp__learner_masked(l->core) && !l->has_task_classes)
        return sfp__fail(
            err, SFP_EINVAL,
            "the classes of the task are missing: call sfp_learner_set_task_classes before its first batch, since the "
            "learner has no buffer");
    count_new_classes(l, count);
    sfp_status status = sfp__learner_offer(l->core, count, l->samples, &t, err);
    atomic_store(&l->classes, sfp__learner_classes(l->core));
    if (!status && report)
        write_report(&t, report);
    return status;
}

static sfp_status check_report(const sfp_timestamp_report *report, sfp_error *err)
{
    if (report && report->size < sizeof report->size)
        return sfp__fail(err, SFP_EINVAL, "sfp_timestamp_report: size is %zu, expected sizeof(sfp_timestamp_report)",
                         report->size);
    return SFP_OK;
}

sfp_status sfp_learner_offer(sfp_learner *l, int count, const sfp_sample *samples, sfp_timestamp_report *report, sfp_error *err)
{
    IN_LIBRARY;
    TRY(check_learner(l, err));
    TRY(check_count(l, count, err));
    TRY(check_report(report, err));
    SFP__REQUIRE(samples, "samples");
    for (int i = 0; i < count; i++)
        if (samples[i].label < 0)
            return sfp__fail(err, SFP_EINVAL,
                             "sample %d: label is %d, expected 0 or more; sfp_learner_enqueue takes unlabelled samples", i,
                             samples[i].label);
    TRY(load(l, count, samples, err));
    return offer(l, count, report, err);
}

/* ---------------------------------------------------------------------------------------------------------- corrections */

sfp_status sfp_learner_forget(sfp_learner *l, int count, const sfp_sample *samples, sfp_error *err)
{
    IN_LIBRARY;
    TRY(check_learner(l, err));
    TRY(check_count(l, count, err));
    SFP__REQUIRE(samples, "samples");
    TRY(load(l, count, samples, err));
    return sfp__learner_forget(l->core, count, l->samples, err);
}

sfp_status sfp_learner_relabel(sfp_learner *l, const sfp_sample *sample, int32_t label, sfp_error *err)
{
    IN_LIBRARY;
    TRY(check_learner(l, err));
    SFP__REQUIRE(sample, "sample");
    TRY(load(l, 1, sample, err));
    sfp_status status = sfp__learner_relabel(l->core, l->samples, label, err);
    atomic_store(&l->classes, sfp__learner_classes(l->core));
    return status;
}

typedef sfp_status combine_fn(sfp__learner *l, const sfp__saved_file *from, sfp_error *err);

static sfp_status combine(sfp_learner *l, const sfp__saved_file *from, combine_fn *add_or_subtract, sfp_error *err)
{
    TRY(check_learner(l, err));
    SFP__REQUIRE(from->path, "path");
    sfp_status status = add_or_subtract(l->core, from, err);
    atomic_store(&l->classes, sfp__learner_classes(l->core));
    return status;
}

static sfp_status combine_memory(sfp_learner *l, const void *data, size_t size, combine_fn *add_or_subtract, sfp_error *err)
{
    const sfp__saved_file from = {.path = "memory", .data = data, .size = size};
    SFP__REQUIRE(data, "data");
    return combine(l, &from, add_or_subtract, err);
}

sfp_status sfp_learner_merge(sfp_learner *l, const char *path, sfp_error *err)
{
    IN_LIBRARY;
    return combine(l, &(const sfp__saved_file){.path = path}, sfp__learner_merge, err);
}

sfp_status sfp_learner_merge_memory(sfp_learner *l, const void *data, size_t size, sfp_error *err)
{
    IN_LIBRARY;
    return combine_memory(l, data, size, sfp__learner_merge, err);
}

sfp_status sfp_learner_subtract(sfp_learner *l, const char *path, sfp_error *err)
{
    IN_LIBRARY;
    return combine(l, &(const sfp__saved_file){.path = path}, sfp__learner_subtract, err);
}

sfp_status sfp_learner_subtract_memory(sfp_learner *l, const void *data, size_t size, sfp_error *err)
{
    IN_LIBRARY;
    return combine_memory(l, data, size, sfp__learner_subtract, err);
}

/* ---------------------------------------------------------------------------------------------------------- label queue */

static int find_queued(const sfp_learner *l, uint64_t id)
{
    for (int i = l->queue_count - 1; i >= 0; i--)
        if (l->queue[i].id == id)
            return i;
    return -1;
}

static void remove_queued(sfp_learner *l, int i)
{
    sfp__free(l->queue[i].rgb);
    memmove(l->queue + i, l->queue + i + 1, (size_t)(l->queue_count - i - 1) * sizeof *l->queue);
    l->queue_count--;
}

sfp_status sfp_learner_enqueue(sfp_learner *l, int count, const sfp_sample *samples, sfp_error *err)
{
    IN_LIBRARY;
    TRY(check_learner(l, err));
    TRY(check_count(l, count, err));
    SFP__REQUIRE(samples, "samples");
    if (l->queue_max == 0)
        return sfp__fail_key(err, "label-queue", SFP_EINVAL, "label-queue is 0, expected at least 1 to keep unlabelled samples");
    TRY(fit(l, count, samples, err));
    for (int i = 0; i < count; i++) {
        int known = find_queued(l, samples[i].id);
        uint8_t *copy = sfp__malloc(l->bytes);
        TRY(sfp__check_memory(copy, err));
        memcpy(copy, l->rgb + (size_t)i * l->bytes, l->bytes);
        if (known >= 0)
            remove_queued(l, known);
        else if (l->queue_count == l->queue_max)
            remove_queued(l, 0);
        l->queue[l->queue_count++] = (queued){samples[i].id, copy};
    }
    return SFP_OK;
}

sfp_status sfp_learner_label(sfp_learner *l, int count, const uint64_t *ids, const int32_t *labels, sfp_timestamp_report *report,
                             sfp_error *err)
{
    IN_LIBRARY;
    TRY(check_learner(l, err));
    TRY(check_count(l, count, err));
    TRY(check_report(report, err));
    SFP__REQUIRE(ids && labels, "ids and labels");
    for (int i = 0; i < count; i++) {
        int at = l->queue_index[i] = find_queued(l, ids[i]);
        if (at < 0)
            return sfp__fail(err, SFP_ENOTFOUND, "id %llu: not in the label queue; it was never enqueued or has expired",
                             (unsigned long long)ids[i]);
        for (int k = 0; k < i; k++)
            if (l->queue_index[k] == at)
                return sfp__fail(err, SFP_EINVAL, "id %llu: given twice, expected each id once", (unsigned long long)ids[i]);
        l->samples[i] = (sfp__sample){.rgb = l->queue[at].rgb, .label = labels[i], .id = ids[i]};
    }
    TRY(offer(l, count, report, err));
    for (int i = 0; i < count; i++)
        remove_queued(l, find_queued(l, ids[i]));
    return SFP_OK;
}

int sfp_learner_queued(const sfp_learner *l)
{
    return l->queue_count;
}

/* ------------------------------------------------------------------------------------------------------ tasks and classes */

sfp_status sfp_learner_set_task_classes(sfp_learner *l, int count, const int32_t *labels, sfp_error *err)
{
    IN_LIBRARY;
    TRY(check_learner(l, err));
    if (count < 1 || !labels)
        return sfp__fail(err, SFP_EINVAL, "count is %d, expected at least 1 label", count);
    if (!sfp__learner_known_tasks(l->core))
        return sfp__fail_key(err, "tasks", SFP_EINVAL, "tasks is 'free', expected a number of tasks: this learner has none");
    TRY(sfp__learner_set_classes(l->core, count, labels, err));
    l->has_task_classes = true;
    return SFP_OK;
}

sfp_status sfp_learner_next_task(sfp_learner *l, sfp_error *err)
{
    IN_LIBRARY;
    TRY(check_learner(l, err));
    if (!sfp__learner_known_tasks(l->core))
        return sfp__fail_key(err, "tasks", SFP_EINVAL, "tasks is 'free', expected a number of tasks: this learner has none");
    TRY(sfp__learner_next_task(l->core, err));
    l->has_task_classes = false;
    return SFP_OK;
}

int sfp_learner_classes(const sfp_learner *l)
{
    return atomic_load(&l->classes);
}

const char *sfp_learner_class_name(const sfp_learner *l, int32_t label)
{
    return sfp__learner_class_name(l->core, label);
}

sfp_status sfp_learner_set_class_name(sfp_learner *l, int32_t label, const char *name, sfp_error *err)
{
    IN_LIBRARY;
    TRY(check_learner(l, err));
    return sfp__learner_name_class(l->core, label, name, err);
}

sfp_status sfp_learner_add_class(sfp_learner *l, const char *name, int32_t *label, sfp_error *err)
{
    IN_LIBRARY;
    TRY(check_learner(l, err));
    int32_t unused = -1, end = sfp__learner_label_end(l->core);
    if (!name || !*name || !label)
        return sfp__fail(err, SFP_EINVAL, "name must not be empty, label must not be NULL");
    for (int32_t c = 0; c < end && (c < sfp__learner_name_end(l->core) || unused < 0); c++) {
        const char *known = sfp__learner_class_name(l->core, c);
        if (known && strcmp(known, name) == 0) {
            *label = c;
            return SFP_OK;
        }
        if (!known && !sfp__learner_seen(l->core, c) && unused < 0)
            unused = c;
    }
    if (unused < 0)
        return sfp__fail(err, SFP_ELIMIT,
                         "class '%.80s': all %d classes have names or samples; their number is the setting classes", name, end);
    TRY(sfp__learner_name_class(l->core, unused, name, err));
    *label = unused;
    return SFP_OK;
}

/* ------------------------------------------------------------------------------------------------------------------ files */

sfp_status sfp_learner_save(sfp_learner *l, const char *path, sfp_error *err)
{
    IN_LIBRARY;
    TRY(check_learner(l, err));
    return path ? sfp__learner_save(l->core, path, err) : sfp__fail(err, SFP_EINVAL, "path must not be NULL");
}

sfp_status sfp_learner_load(sfp_learner *l, const char *path, sfp_error *err)
{
    IN_LIBRARY;
    TRY(check_learner(l, err));
    SFP__REQUIRE(path, "path");
    TRY(sfp__learner_load(l->core, path, err));
    atomic_store(&l->classes, sfp__learner_classes(l->core));
    return SFP_OK;
}

sfp_status sfp_learner_checkpoint(sfp_learner *l, const char *path, const char *position, sfp_error *err)
{
    IN_LIBRARY;
    TRY(check_learner(l, err));
    SFP__REQUIRE(path, "path");
    return sfp__learner_checkpoint(l->core, path, position ? position : "", err);
}

sfp_status sfp_learner_resume(sfp_learner *l, const char *path, char **position, sfp_error *err)
{
    IN_LIBRARY;
    TRY(check_learner(l, err));
    OWNED char *text = NULL;
    SFP__REQUIRE(path, "path");
    TRY(sfp__learner_resume(l->core, path, &text, NULL, err));
    l->has_task_classes = false;
    atomic_store(&l->classes, sfp__learner_classes(l->core));
    if (position)
        *position = TAKE(text);
    return SFP_OK;
}
