/* What a person should look at (streamfp.h, part 6): learned samples, each judged by the learner without it, and samples without a label
 * whose labels would teach most. Both work on features that a run of a predictor has computed. */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

enum { ROWS_MAX = 1 << 24 };

/* Checks the arguments, and runs the predictor on features instead of images. */
static sfp_status run(sfp_predictor *p, int count, const float *features, const int32_t *labels, sfp__predictions *out,
                      sfp_error *err)
{
    OWNED const uint8_t **images = NULL; /* none */
    OWNED bool *known = NULL;
    SFP__REQUIRE(p && (features || count == 0), "predictor and features");
    TRY(sfp__thread_pool_check(p->threads, "the predictor", err));
    if (count < 0 || count > ROWS_MAX)
        return sfp__fail(err, SFP_EINVAL, "count is %d, expected 0 to %d", count, ROWS_MAX);
    if (!p->learner || p->rows)
        return sfp__fail(err, SFP_EUNSUPPORTED,
                         "the predictor is not one of a closed-form head, expected ncm, slda, ridge or ranpac");
    TRY(sfp__alloc(&images, (size_t)count + 1, sizeof *images, err));
    TRY(sfp__alloc(&known, (size_t)count + 1, sizeof *known, err));
    memset(known, 1, (size_t)count * sizeof *known);
    TRY(sfp__predictor_reserve_input(p, 1, err)); /* for sfp_predictor_image_error */
    const sfp__known_queries queries = {(float *)(uintptr_t)features, known,
                                        labels}; /* which are known, so they are not written */
    return sfp__predictor_run(p, count, images, &queries, SFP__WANT_SCORES | SFP__WANT_UNKNOWN, out, err);
}

sfp_status sfp_predictor_judge(sfp_predictor *p, int count, const float *features, const int32_t *labels,
                               sfp_prediction *predictions, sfp_error *err)
{
    IN_LIBRARY;
    sfp__predictions found;
    SFP__REQUIRE((labels && predictions) || count == 0, "labels and predictions");
    TRY(run(p, count, features, labels, &found, err));
    for (int i = 0; i < count; i++) {
        bool has = labels[i] >= 0 && labels[i] < found.classes;
        predictions[i] = (sfp_prediction){.label = found.label[i], .probability = found.probability[i]};
        predictions[i].own = has ? expf(found.scores[(size_t)i * (size_t)found.classes + (size_t)labels[i]]) : 0;
    }
    return SFP_OK;
}

/* The difference of both probabilities; 0: the label is not in doubt. */
static float doubt(int32_t label, const sfp_prediction *p)
{
    return p->status || p->label < 0 || p->label == label ? 0 : p->probability - p->own;
}

int sfp_suspects(int count, const int32_t *labels, const sfp_prediction *predictions, int limit, int32_t *indices)
{
    int n = 0;
    for (int i = 0; i < count; i++) {
        int at = n;
        float own = doubt(labels[i], &predictions[i]);
        while (at > 0 && own > doubt(labels[indices[at - 1]], &predictions[indices[at - 1]]))
            at--;
        if (!(own > 0) || at >= limit)
            continue;
        n += n < limit;
        memmove(indices + at + 1, indices + at, (size_t)(n - at - 1) * sizeof *indices);
        indices[at] = i;
    }
    return n;
}

/* ------------------------------------------------------------------------------------------------------------- the queue */

static const float unlike = 0.95F, uncertain = 0.5F;

/* A sample without a label. */
typedef struct candidate {
    float weight, norm, distance; /* norm: of its feature; distance: to the nearest chosen sample */
    int32_t reason;
} candidate;

static candidate weigh(const sfp__predictions *found, int i, const float *feature, int dim)
{
    float best[2] = {0}, unknown = isnan(found->unknown[i]) ? 0.5F : found->unknown[i];
    double square = 0;
    for (int c = 0; c < found->classes; c++) {
        float p = expf(found->scores[(size_t)i * (size_t)found->classes + (size_t)c]);
        best[1] = fmaxf(best[1], fminf(p, best[0]));
        best[0] = fmaxf(best[0], p);
    }
    for (int k = 0; k < dim; k++)
        square += (double)feature[k] * (double)feature[k];
    float doubts = 1 - (best[0] - best[1]);
    return (candidate){.weight = doubts * (0.5F + unknown),
                       .norm = (float)sqrt(square),
                       .distance = 2, /* as far as possible */
                       .reason = found->unknown[i] >= unlike ? SFP_REASON_UNLIKE
                                 : doubts >= uncertain       ? SFP_REASON_UNCERTAIN
                                                             : SFP_REASON_DIVERSE};
}

static float cosine_distance(int dim, const float *a, float norm_a, const float *b, float norm_b)
{
    double sum = 0;
    for (int k = 0; k < dim; k++)
        sum += (double)a[k] * (double)b[k];
    double norms = (double)norm_a * (double)norm_b;
    return norms > 0 ? (float)fmax(0, 1 - sum / norms) : 0;
}

sfp_status sfp_predictor_queue(sfp_predictor *p, int count, const float *features, int limit, sfp_queued *out, int *found,
                               sfp_error *err)
{
    IN_LIBRARY;
    OWNED candidate *list = NULL;
    sfp__predictions answers;
    SFP__REQUIRE((out || limit == 0) && found, "out and found");
    if (limit < 0)
        return sfp__fail(err, SFP_EINVAL, "limit is %d, expected at least 0", limit);
    TRY(run(p, count, features, NULL, &answers, err));
    TRY(sfp__alloc(&list, (size_t)count + 1, sizeof *list, err));
    size_t width = (size_t)p->tap_dim;
    const float *last = features + width - (size_t)p->D; /* the feature of row 0 */
    for (int i = 0; i < count; i++)
        list[i] = weigh(&answers, i, last + (size_t)i * width, p->D);
    int n = 0;
    for (; n < limit && n < count; n++) {
        int best = -1;
        for (int i = 0; i < count; i++)
            if (list[i].distance >= 0 &&
                (best < 0 || list[i].weight * list[i].distance > list[best].weight * list[best].distance))
                best = i;
        candidate *chosen = &list[best];
        out[n] = (sfp_queued){.index = best, .reason = chosen->reason, .score = chosen->weight * chosen->distance};
        chosen->distance = -1;
        for (int i = 0; i < count; i++)
            list[i].distance = fminf(list[i].distance, cosine_distance(p->D, last + (size_t)i * width, list[i].norm,
                                                                       last + (size_t)best * width, chosen->norm));
    }
    *found = n;
    return SFP_OK;
}
