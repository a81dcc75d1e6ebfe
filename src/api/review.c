/* Samples that a person should review (streamfp.h, part 6): learned samples whose label is in doubt, because the learner without the sample
 * answers differently; and samples without a label whose labels would help most. Both are chosen by features that a run of a predictor has
 * computed. */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"
#include "learner/learner_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 1 << 24 };

/* Checks the arguments, and runs the predictor on features instead of images. labels: those to leave out (sfp_predictor_judge); NULL: none. */
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
                                        labels}; /* all are known, so the predictor does not write to `query` */
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

/* Returns the probability of the answer minus that of the label; 0: they are the same, so the label is not in doubt. */
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
    int32_t index, reason, label; /* label: its answer; -1: nothing was learned yet */
    float doubt;                  /* 1 - the difference of its highest probabilities */
    int64_t known;                /* samples of this class that were learned, and candidates with this answer and more doubt */
} candidate;

static candidate make_candidate(const sfp__predictions *found, int i)
{
    candidate c = {.index = i, .label = found->label[i], .reason = SFP_REASON_DIVERSE};
    float best[2] = {0};
    for (int k = 0; k < found->classes; k++) {
        float p = expf(found->scores[(size_t)i * (size_t)found->classes + (size_t)k]);
        best[1] = fmaxf(best[1], fminf(p, best[0]));
        best[0] = fmaxf(best[0], p);
    }
    c.doubt = 1 - (best[0] - best[1]);
    if (found->unknown[i] >= unlike)
        c.reason = SFP_REASON_UNLIKE;
    else if (c.label >= 0 && c.doubt >= uncertain)
        c.reason = SFP_REASON_UNCERTAIN;
    return c;
}

static int by_doubt(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return x->doubt != y->doubt ? (x->doubt < y->doubt) - (x->doubt > y->doubt) : x->index - y->index;
}

static int by_known(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    return x->known != y->known ? (x->known > y->known) - (x->known < y->known) : by_doubt(a, b);
}

/* Sorts the candidates, those first whose answers have the fewest samples. */
static sfp_status rank_by_classes(sfp_predictor *p, int classes, int count, candidate *list, sfp_error *err)
{
    OWNED int64_t *known = NULL;
    TRY(sfp__alloc(&known, (size_t)classes, sizeof *known, err));
    pthread_mutex_lock(&p->learner->head_lock);
    for (int c = 0; c < classes; c++)
        known[c] = sfp__head_label_samples(p->learner->head, c);
    pthread_mutex_unlock(&p->learner->head_lock);
    qsort(list, (size_t)count, sizeof *list, by_doubt);
    for (int i = 0; i < count; i++)
        list[i].known = known[list[i].label]++;
    qsort(list, (size_t)count, sizeof *list, by_known);
    return SFP_OK;
}

static float cosine(int dim, const float *a, const float *b)
{
    double ab = 0, aa = 0, bb = 0;
    for (int k = 0; k < dim; k++) {
        ab += (double)a[k] * (double)b[k];
        aa += (double)a[k] * (double)a[k];
        bb += (double)b[k] * (double)b[k];
    }
    return aa > 0 && bb > 0 ? (float)(ab / sqrt(aa * bb)) : 1;
}

/* For a learner without samples: sorts the first `limit` candidates so that each is the farthest one from those before it. */
static sfp_status rank_by_distance(const sfp_predictor *p, const float *features, int limit, int count, candidate *list,
                                   sfp_error *err)
{
    OWNED float *nearest = NULL; /* similarity to the nearest sample chosen before */
    size_t width = (size_t)p->tap_dim, last = width - (size_t)p->D;
    TRY(sfp__alloc(&nearest, (size_t)count + 1, sizeof *nearest, err));
    for (int i = 0; i < count; i++)
        nearest[i] = -2;
    for (int n = 0; n < limit && n < count; n++) {
        int best = n;
        for (int i = n + 1; i < count; i++)
            best = nearest[list[i].index] < nearest[list[best].index] ? i : best;
        const candidate chosen = list[best];
        list[best] = list[n];
        list[n] = chosen;
        for (int i = n + 1; i < count; i++) {
            float *near = &nearest[list[i].index];
            *near = fmaxf(*near, cosine(p->D, features + (size_t)list[i].index * width + last,
                                        features + (size_t)chosen.index * width + last));
        }
        list[n].known = n;
    }
    return SFP_OK;
}

sfp_status sfp_predictor_queue(sfp_predictor *p, int count, const float *features, int limit, sfp_queued *out, int *found,
                               sfp_error *err)
{
    IN_LIBRARY;
    OWNED candidate *list = NULL;
    sfp__predictions answers;
    bool knows = true;
    SFP__REQUIRE((out || limit == 0) && found, "out and found");
    if (limit < 0)
        return sfp__fail(err, SFP_EINVAL, "limit is %d, expected at least 0", limit);
    TRY(run(p, count, features, NULL, &answers, err));
    TRY(sfp__alloc(&list, (size_t)count + 1, sizeof *list, err));
    for (int i = 0; i < count; i++) {
        list[i] = make_candidate(&answers, i);
        knows = knows && list[i].label >= 0;
    }
    TRY(knows ? rank_by_classes(p, answers.classes, count, list, err) : rank_by_distance(p, features, limit, count, list, err));
    *found = limit < count ? limit : count;
    for (int n = 0; n < *found; n++)
        out[n] = (sfp_queued){.index = list[n].index,
                              .reason = list[n].reason,
                              .score = 1 / (2 + (float)list[n].known - list[n].doubt),
                              .label = list[n].label,
                              .probability = answers.probability[list[n].index]};
    return SFP_OK;
}
