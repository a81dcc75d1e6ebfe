/* Exponential weights over experts (Hedge).
 *
 *     p_mix(c) ~ prod_e p_e(c)^w_e,  w = softmax(-rate * loss),
 *     loss_e <- 2^(-1/500) loss_e - log p_e(label)
 *
 * "Adds their log-probabilities with weights" is read as written: a log-linear
 * (geometric) mixture. It has the property that matters here: by Hoelder's
 * inequality sum_c prod_e p_e(c)^w_e <= 1, so normalising can only help and
 *     -log p_mix(y) <= sum_e w_e (-log p_e(y)):
 * the mixture loses no more than the weighted mean of the experts' losses, which
 * exponential weights hold, over every window of the discount, below
 *     min_e loss_e + log(K)/rate + rate/2 * (discounted sum of sum_e w_e loss^2).
 * Losses are discounted with a half-life of 500 samples, so that the weights
 * follow a stream that drifts.
 *
 * What enters as p_e is (1 - 1e-4) p_e + 1e-4 / classes, over the classes that any
 * expert knows: a class that an expert has never seen, or wrongly rules out, is
 * not vetoed, and a loss is at most log(classes / 1e-4). An expert that knows
 * nothing yet is uniform.
 *
 * The rate is small (0.01 by default): experts that are about as good are mixed,
 * which is often better than each, and only a lasting difference of a few tenths
 * of a nat a sample decides for one.
 *
 * What the weights cannot see is forgetting: samples of old classes do not come
 * back in the stream. A caller that replays old samples should let the mixture
 * observe them too, before they are trained on again.
 *
 * NaN counts as "never seen". Nothing here allocates or fails. */
#include "learner/heads/head.h"

#include <math.h>

static const double FLOOR = 1e-4;
static const double DISCOUNT = 0.9986146661010289; /* 2^(-1/500) */

void sfp__mix_weights(const sfp__mix *m, double *weight)
{
    double least = INFINITY, sum = 0;
    for (int e = 0; e < SFP_HEAD_MEMBERS; e++)
        least = fmin(least, m->loss[e]);
    for (int e = 0; e < SFP_HEAD_MEMBERS; e++)
        sum += weight[e] = exp(-m->rate * (m->loss[e] - least));
    for (int e = 0; e < SFP_HEAD_MEMBERS; e++)
        weight[e] /= sum;
}

/* Does any expert know class c of sample i? */
static bool known(int classes, const float *const *logp, int i, int c)
{
    for (int e = 0; e < SFP_HEAD_MEMBERS; e++)
        if (isfinite(logp[e][(size_t)i * (size_t)classes + (size_t)c]))
            return true;
    return false;
}

static int count_known(int classes, const float *const *logp, int i)
{
    int n = 0;
    for (int c = 0; c < classes; c++)
        n += known(classes, logp, i, c);
    return n;
}

/* One expert's answer for one sample: p(c) = exp(x[c] - shift) where x is finite. */
typedef struct opinion {
    const float *x; /* (classes) */
    double shift;
    bool none; /* nothing is finite */
    int known; /* classes that any expert knows */
} opinion;

static opinion listen(const float *x, int classes, int known_classes)
{
    opinion o = {.x = x, .none = true, .known = known_classes};
    double top = -INFINITY, sum = 0;
    for (int c = 0; c < classes; c++)
        if (isfinite(x[c]) && (double)x[c] > top)
            top = (double)x[c];
    for (int c = 0; c < classes; c++)
        if (isfinite(x[c])) {
            sum += exp((double)x[c] - top);
            o.none = false;
        }
    o.shift = o.none ? 0 : top + log(sum);
    return o;
}

static double log_probability(const opinion *o, int c)
{
    double uniform = 1.0 / o->known, p = isfinite(o->x[c]) ? exp((double)o->x[c] - o->shift) : 0;
    return log((1 - FLOOR) * (o->none ? uniform : p) + FLOOR * uniform);
}

void sfp__mix_observe(sfp__mix *m, int n, int classes, const float *const *logp, const int32_t *label)
{
    for (int i = 0; i < n; i++) {
        int y = label[i];
        if (y < 0 || y >= classes || !known(classes, logp, i, y))
            continue; /* new to all of them: says nothing about any */
        int all = count_known(classes, logp, i);
        for (int e = 0; e < SFP_HEAD_MEMBERS; e++) {
            opinion o = listen(logp[e] + (size_t)i * (size_t)classes, classes, all);
            m->loss[e] = DISCOUNT * m->loss[e] - log_probability(&o, y);
        }
        m->count = DISCOUNT * m->count + 1;
    }
}

void sfp__mix_combine(const sfp__mix *m, int n, int classes, const float *const *logp, float *out)
{
    double weight[SFP_HEAD_MEMBERS];
    sfp__mix_weights(m, weight);
    for (int i = 0; i < n; i++) {
        float *y = out + (size_t)i * (size_t)classes;
        int all = count_known(classes, logp, i);
        for (int c = 0; c < classes; c++)
            y[c] = known(classes, logp, i, c) ? 0 : -INFINITY;
        for (int e = 0; e < SFP_HEAD_MEMBERS; e++) {
            opinion o = listen(logp[e] + (size_t)i * (size_t)classes, classes, all);
            for (int c = 0; c < classes; c++)
                if (isfinite(y[c]))
                    y[c] += (float)(weight[e] * log_probability(&o, c));
        }
        double top = -INFINITY, sum = 0;
        for (int c = 0; c < classes; c++)
            top = fmax(top, (double)y[c]);
        for (int c = 0; c < classes; c++)
            sum += isfinite(y[c]) ? exp((double)y[c] - top) : 0;
        for (int c = 0; c < classes; c++)
            if (isfinite(y[c]))
                y[c] = (float)((double)y[c] - top - log(sum));
    }
}
