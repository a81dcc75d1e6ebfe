#include "run/evaluate.h"

#include "base/mem.h"
#include "stream/source.h"

#include <math.h>
#include <string.h>

enum { CHUNK = SFP__PREDICT_BATCH_MAX }; /* maximum number of images per prediction */

sfp_status sfp__evaluator_create(const sfp_source *test, const sfp__tasks *tasks, int size, sfp__resize resize, int dim,
                                 size_t memory, sfp__evaluator **out, sfp_error *err)
{
    OWNED_PTR(sfp__evaluator_free) sfp__evaluator *e = NULL;
    size_t rows = (size_t)tasks->count;
    TRY(sfp__alloc(&e, 1, sizeof *e, err));
    *e = (sfp__evaluator){.test = test, .tasks = tasks, .size = size, .dim = dim, .resize = resize, .max_skipped = UINT64_MAX};
    e->bytes = 3 * (size_t)size * (size_t)size;
    TRY(sfp__alloc(&e->at, rows + 1, sizeof *e->at, err));
    for (int t = 0; t < tasks->count; t++)
        e->at[t + 1] = e->total += tasks->task[t].count;
    size_t n = (size_t)e->total;
    e->all = n * e->bytes <= memory;
    const sfp__want list[] = {{&e->answered, rows, sizeof *e->answered},     {&e->correct, rows, sizeof *e->correct},
                              {&e->accuracy, rows, sizeof *e->accuracy},     {&e->state, n, sizeof *e->state},
                              {&e->has_query, n, sizeof *e->has_query},      {&e->rgb, e->all ? n : CHUNK, e->bytes},
                              {&e->query, n, (size_t)dim * sizeof *e->query}};
    TRY(sfp__block(&e->block, SFP__LIST(list), err));
    memset(e->state, 0, n);
    memset(e->has_query, 0, n * sizeof *e->has_query);
    *out = TAKE(e);
    return SFP_OK;
}

void sfp__evaluator_free(sfp__evaluator *e)
{
    if (!e)
        return;
    sfp__free(e->at);
    sfp__free(e->block);
    sfp__free(e->confusion);
    sfp__free(e);
}

uint64_t sfp__evaluator_images(const sfp__evaluator *e, int upto)
{
    return (uint64_t)e->at[upto < e->tasks->count ? upto + 1 : e->tasks->count];
}

/* Reads image `k` of the whole test set, which is image i of the source. *out NULL: it cannot be read. */
static sfp_status read_image(sfp__evaluator *e, int64_t k, int64_t i, int place, const uint8_t **out, sfp_error *err)
{
    uint8_t *rgb = e->rgb + (e->all ? (size_t)k : (size_t)place) * e->bytes;
    sfp_error why = {0};
    *out = NULL;
    if (e->state[k] == 2)
        return SFP_OK;
    if (e->state[k] == 0 || !e->all) {
        sfp_status status = sfp__raw_image_read_fit(e->test, i, e->size, e->resize, rgb, &why);
        if (sfp__is_machine_error(status))
            return sfp__fail(err, status, "%s", why.message);
        if (status) {
            e->state[k] = 2;
            sfp__skipped_add(&e->skipped, why.message);
            return sfp__skipped_check(&e->skipped, e->test->path, e->max_skipped, (uint64_t)e->total, err);
        }
    }
    e->state[k] = 1;
    *out = rgb;
    return SFP_OK;
}

/* Consecutive images of the test set. Their queries are consecutive in the array of queries. */
typedef struct stretch {
    int64_t first; /* in the whole test set */
    int count;
    const uint8_t *rgb[CHUNK]; /* NULL: the query is known and sufficient */
    int32_t truth[CHUNK];
} stretch;

static sfp_status predict(sfp__evaluator *e, sfp_predictor *p, stretch *part, int task, sfp_error *err)
{
    int n = part->count, classes = e->classes;
    const sfp__known_queries known = {.query = e->query + (size_t)part->first * (size_t)e->dim,
                                      .known = e->has_query + part->first};
    sfp__predictions found;
    if (n == 0)
        return SFP_OK;
    TRY(sfp__predictor_run(p, n, part->rgb, &known, SFP__WANT_UNSCALED, &found, err));
    for (int k = 0; k < n; k++) {
        int32_t truth = part->truth[k];
        int32_t label = found.label[k];
        bool correct = truth >= 0 && label == truth; /* truth < 0: a class that is not in the stream counts as wrong */
        e->correct[task] += correct;
        sfp__reliability_add(&e->calibration[0], (double)found.probability[k], correct);
        sfp__reliability_add(&e->calibration[1], (double)found.unscaled[k], correct);
        if (label >= 0 && label < classes && truth >= 0 && truth < classes)
            e->confusion[(size_t)truth * (size_t)classes + (size_t)label]++;
    }
    e->answered[task] += (uint64_t)n;
    e->done += (uint64_t)n;
    part->count = 0;
    if (e->on_progress)
        e->on_progress(e->progress_ctx, e->done);
    return SFP_OK;
}

static sfp_status run_task(sfp__evaluator *e, sfp_predictor *p, int t, sfp_error *err)
{
    const sfp__task *task = &e->tasks->task[t];
    int chunk = sfp__predictor_batch(p);
    stretch part = {0};
    e->answered[t] = e->correct[t] = 0;
    for (int64_t i = 0; i < task->count; i++) {
        sfp_record record;
        if (e->stop && atomic_load(e->stop))
            return SFP__STOPPED;
        TRY(sfp__source_record(e->test, task->sample[i], &record, err));
        int64_t k = e->at[t] + i;
        bool known = sfp__predictor_needs_queries_only(p) && e->has_query[k];
        const uint8_t *rgb = NULL;
        if (!known)
            TRY(read_image(e, k, task->sample[i], part.count, &rgb, err));
        if (known || rgb) {
            part.first = part.count ? part.first : k;
            part.truth[part.count] = e->tasks->label_of[record.label];
            part.rgb[part.count++] = rgb;
        }
        if ((!known && !rgb) || part.count == chunk) /* an unreadable image ends the stretch, so that queries stay aligned */
            TRY(predict(e, p, &part, t, err));
    }
    TRY(predict(e, p, &part, t, err));
    e->accuracy[t] = e->answered[t] ? (double)e->correct[t] / (double)e->answered[t] : NAN;
    return SFP_OK;
}

sfp_status sfp__evaluator_run(sfp__evaluator *e, sfp_predictor *p, int upto, int classes, sfp_error *err)
{
    int tasks = upto < e->tasks->count ? upto + 1 : e->tasks->count;
    e->classes = classes <= SFP__CONFUSION_MAX ? classes : 0;
    size_t cells = (size_t)e->classes * (size_t)e->classes;
    e->done = 0;
    memset(e->calibration, 0, sizeof e->calibration);
    if (cells) {
        TRY(sfp__check_memory(sfp__grow(&e->confusion, sizeof *e->confusion, 0, cells, &e->confusion_capacity), err));
        memset(e->confusion, 0, cells * sizeof *e->confusion);
    }
    for (int t = 0; t < tasks; t++)
        TRY(run_task(e, p, t, err));
    return SFP_OK;
}
