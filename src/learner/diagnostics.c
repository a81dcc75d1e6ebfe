#include "learner/diagnostics.h"

#include "compute/vec.h"
#include "learner/learner_internal.h"

#include <math.h>
#include <string.h>

/* Random numbers of timestamp t are those of stream DIAGNOSTICS_STREAM + t, so there is no generator to save. */
#define DIAGNOSTICS_STREAM ((uint64_t)0x64696167 << 32)

/* ------------------------------------------------------------------ moments */

static double mean_of(int n, const double *value, const int *index)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += value[index ? index[i] : i];
    return sum / n;
}

void sfp__ratio_add(sfp__ratio_moments *m, int b, const double *value, int c, const int *coreset)
{
    double ratio = mean_of(c, value, coreset) / mean_of(b, value, NULL);
    if (!isfinite(ratio))
        return;
    double delta = ratio - m->mean;
    m->count++;
    m->mean += delta / m->count;
    m->m2 += delta * (ratio - m->mean);
    m->within += fabs(ratio - 1) <= 1 / sqrt(c);
}

void sfp__stream_add(sfp__stream_moments *s, const float *embed, double *delta)
{
    size_t D = (size_t)s->dim;
    s->count++;
    for (size_t i = 0; i < D; i++) {
        delta[i] = (double)embed[i] - s->mean[i];
        s->mean[i] += delta[i] / s->count;
    }
    double scale = (s->count - 1) / s->count;
    for (size_t i = 0; i < D; i++) {
        double *row = s->scatter + i * D, by = scale * delta[i];
        for (size_t k = 0; k < D; k++)
            row[k] += by * delta[k];
    }
}

double sfp__stream_deviation(const sfp__stream_moments *s, const float *fingerprint)
{
    size_t D = (size_t)s->dim;
    double sum = 0;
    for (size_t i = 0; i < D; i++) {
        double row = 0;
        for (size_t k = 0; k < D; k++)
            row += s->scatter[i * D + k] * (double)fingerprint[k];
        sum += row * (double)fingerprint[i];
    }
    return s->count > 0 ? sqrt(fmax(sum, 0) / s->count) : NAN;
}

double sfp__stream_mmd(const sfp__stream_moments *s, const sfp__buffer *buffer, const float *fingerprint)
{
    double difference = 0;
    if (!buffer || buffer->filled == 0 || s->count == 0)
        return NAN;
    for (int d = 0; d < s->dim; d++) {
        double sum = 0;
        for (int i = 0; i < buffer->filled; i++)
            sum += (double)buffer->slot[i].mean_embed[d];
        difference += (sum / buffer->filled - s->mean[d]) * (double)fingerprint[d];
    }
    return fabs(difference);
}

double sfp__mean_off_diagonal(int n, const double *cosine)
{
    double sum = 0;
    int count = 0;
    for (int i = 0; i < n; i++)
        for (int k = i + 1; k < n; k++) {
            double x = cosine[(size_t)i * (size_t)n + (size_t)k];
            sum += isnan(x) ? 0 : fabs(x);
            count += !isnan(x);
        }
    return count ? sum / count : NAN;
}

/* ------------------------------------------------------------- create, free */

static sfp_status init(sfp__diagnostics *d, const sfp__learner *l, sfp_error *err)
{
    size_t b = (size_t)l->opt.batch, D = (size_t)l->D;
    d->tasks = l->opt.fp.tasks < SFP__DIAGNOSTICS_TASKS ? l->opt.fp.tasks : SFP__DIAGNOSTICS_TASKS;
    d->rgb_bytes = l->rgb_bytes;
    d->stream.dim = l->D;
    d->frozen_end = -1;
    size_t tasks = (size_t)d->tasks, images = tasks * SFP__DIAGNOSTICS_IMAGES;
    const sfp__want list[] = {{&d->stream.mean, D, sizeof *d->stream.mean},
                              {&d->stream.scatter, D * D, sizeof *d->stream.scatter},
                              {&d->delta, D, sizeof *d->delta},
                              {&d->loss, b, sizeof *d->loss},
                              {&d->angle, b, sizeof *d->angle},
                              {&d->seen, tasks, sizeof *d->seen},
                              {&d->query, b * D, sizeof *d->query},
                              {&d->fingerprint, D, sizeof *d->fingerprint},
                              {&d->random, b, sizeof *d->random},
                              {&d->label, images, sizeof *d->label},
                              {&d->rgb, images, d->rgb_bytes}};
    TRY(sfp__block_cleared(&d->block, SFP__LIST(list), err));
    return sfp__method_inputs_init(&d->inputs, l->vit, l->threads, l->fp, SFP__NEED_LOGITS, l->opt.batch, err);
}

sfp_status sfp__learner_start_diagnostics(sfp__learner *l, sfp_error *err)
{
    OWNED_PTR(sfp__diagnostics_free) sfp__diagnostics *d = NULL;
    if (!l->fp)
        return sfp__fail_key(err, "diagnostics", SFP_EINVAL,
                             "diagnostics need fingerprints, which a closed-form head does not have");
    TRY(sfp__alloc(&d, 1, sizeof *d, err));
    TRY(init(d, l, err));
    sfp__diagnostics_free(l->diagnostics);
    l->diagnostics = TAKE(d);
    return SFP_OK;
}

void sfp__diagnostics_free(sfp__diagnostics *d)
{
    if (!d)
        return;
    sfp__method_inputs_done(&d->inputs);
    sfp__free(d->block);
    sfp__free(d);
}

int sfp__diagnostics_tensors(void *diagnostics, int index, sfp__state_tensor *out)
{
    sfp__diagnostics *d = diagnostics;
    const int64_t D = d->stream.dim, bytes = (int64_t)d->rgb_bytes;
    const sfp__state_tensor list[] = {
        {"sums", SFP__STATE_F64, 1, {sizeof d->sums / sizeof(double)}, &d->sums},
        {"mean", SFP__STATE_F64, 1, {D}, d->stream.mean},
        {"scatter", SFP__STATE_F64, 2, {D, D}, d->stream.scatter},
        {"seen", SFP__STATE_I64, 1, {d->tasks}, d->seen},
        {"label", SFP__STATE_I32, 2, {d->tasks, SFP__DIAGNOSTICS_IMAGES}, d->label},
        {"image", SFP__STATE_U8, 3, {d->tasks, SFP__DIAGNOSTICS_IMAGES, bytes}, d->rgb},
    };
    int count = d->tasks ? sizeof list / sizeof *list : 3; /* without tasks no images are kept */
    if (index < count)
        *out = list[index];
    return count;
}

/* -------------------------------------------------------------- a timestamp */

/* Discards the attuned pool that the pass of diagnostics has computed, because it would make the next step cheaper. The results for frozen components
 * are kept if the last step has computed them, too. */
static void discard_preparation(sfp__learner *l)
{
    sfp__diagnostics *d = l->diagnostics;
    if (d->frozen_end == l->fp->frozen_end)
        sfp__fp_moved(l->fp);
    else
        sfp__fp_changed(l->fp);
    d->frozen_end = l->fp->frozen_end;
}

sfp_status sfp__diagnostics_measure(sfp__learner *l, int b, sfp_error *err)
{
    sfp__diagnostics *d = l->diagnostics;
    bool prepared = l->fp->prepared;
    size_t classes = (size_t)sfp__learner_classes(l);
    sfp_status status = sfp__method_inputs_compute(&d->inputs, b, l->batch.xs, NULL, d->query, err);
    if (!prepared)
        discard_preparation(l);
    TRY(status);
    for (int i = 0; i < b; i++)
        d->loss[i] = (double)sfp__learner_cross_entropy(l, d->inputs.logits + (size_t)i * classes, l->batch.label[i]);
    return SFP_OK;
}

static void add_ratios(sfp__diagnostics *d, sfp__rng *rng, const sfp__timestamp_details *t)
{
    int b = t->offered, c = t->coreset_count;
    for (int i = 0; i < b; i++) {
        d->angle[i] = acos(fmax(-1, fmin(1, (double)t->similarity[i])));
        d->random[i] = i;
    }
    for (int i = 0; i < c; i++) { /* draws c of b */
        int k = i + (int)sfp__rng_below(rng, (uint32_t)(b - i)), drawn = d->random[k];
        d->random[k] = d->random[i];
        d->random[i] = drawn;
    }
    sfp__ratio_add(&d->sums.cost, b, d->loss, c, t->coreset);
    sfp__ratio_add(&d->sums.cost_random, b, d->loss, c, d->random);
    sfp__ratio_add(&d->sums.angle, b, d->angle, c, t->coreset);
    sfp__ratio_add(&d->sums.angle_random, b, d->angle, c, d->random);
}

/* Keeps a uniform sample of the images of a task: a reservoir. */
static void keep_images(sfp__diagnostics *d, sfp__rng *rng, int task, int b, const sfp__sample *samples)
{
    for (int i = 0; i < b && task < d->tasks; i++) {
        int64_t seen = d->seen[task]++, at = seen;
        if (seen >= SFP__DIAGNOSTICS_IMAGES)
            at = sfp__rng_below(rng, seen < UINT32_MAX ? (uint32_t)(seen + 1) : UINT32_MAX);
        if (at < 0 || at >= SFP__DIAGNOSTICS_IMAGES)
            continue;
        size_t place = (size_t)task * SFP__DIAGNOSTICS_IMAGES + (size_t)at;
        d->label[place] = samples[i].label;
        memcpy(d->rgb + place * d->rgb_bytes, samples[i].rgb, d->rgb_bytes);
    }
}

void sfp__diagnostics_add(sfp__learner *l, const sfp__sample *samples, const sfp__timestamp_details *t)
{
    sfp__diagnostics *d = l->diagnostics;
    sfp__rng rng = sfp__rng_init(l->opt.seed, DIAGNOSTICS_STREAM + t->t);
    add_ratios(d, &rng, t);
    keep_images(d, &rng, t->task, t->offered, samples);
    d->stream.count = d->sums.stream_count; /* reading a checkpoint sets only d->sums */
    for (int i = 0; i < t->offered; i++)
        sfp__stream_add(&d->stream, l->batch.mean_embed + (size_t)i * (size_t)l->D, d->delta);
    d->sums.stream_count = d->stream.count;
    if (!l->buffer || d->stream.count <= l->buffer->filled)
        return;
    sfp__fp_mean_unit(l->fp, d->fingerprint);
    double mmd = sfp__stream_mmd(&d->stream, l->buffer, d->fingerprint);
    if (isfinite(mmd)) {
        d->sums.mmd_sum += mmd;
        d->sums.mmd_count++;
    }
}

/* --------------------------------------------------------------- the results */

static sfp__coreset_diagnosis summarise(const sfp__ratio_moments *chosen, const sfp__ratio_moments *random)
{
    if (!(chosen->count > 0) || !(random->count > 0))
        return (sfp__coreset_diagnosis){NAN, NAN, NAN, NAN, NAN};
    return (sfp__coreset_diagnosis){.ratio = chosen->mean,
                                    .deviation = sqrt(chosen->m2 / chosen->count),
                                    .within = chosen->within / chosen->count,
                                    .random_deviation = sqrt(random->m2 / random->count),
                                    .random_within = random->within / random->count};
}

int sfp__learner_diagnosed_tasks(const sfp__learner *l)
{
    return l->diagnostics ? l->diagnostics->tasks : 0;
}

sfp_status sfp__learner_diagnose(sfp__learner *l, sfp__diagnosis *out, double *fingerprints, double *head, sfp_error *err)
{
    sfp__diagnostics *d = l->diagnostics;
    d->stream.count = d->sums.stream_count;
    sfp__fp_mean_unit(l->fp, d->fingerprint);
    TRY(sfp__gradient_cosines(l, d, fingerprints, head, err));
    *out = (sfp__diagnosis){
        .cost = summarise(&d->sums.cost, &d->sums.cost_random),
        .angle = summarise(&d->sums.angle, &d->sums.angle_random),
        .buffer_mmd = sfp__stream_mmd(&d->stream, l->buffer, d->fingerprint),
        .buffer_mmd_mean = d->sums.mmd_count > 0 ? d->sums.mmd_sum / d->sums.mmd_count : NAN,
        .stream_score_deviation = sfp__stream_deviation(&d->stream, d->fingerprint),
        .gradient_cosine_fingerprints = sfp__mean_off_diagonal(d->tasks, fingerprints),
        .gradient_cosine_head = sfp__mean_off_diagonal(d->tasks, head),
    };
    return SFP_OK;
}
