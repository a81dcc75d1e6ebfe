/* Exponential weights over members (Hedge).
 *
 *     p_mix(c) ~ prod_e p_e(c)^w_e,  w = softmax(-rate * loss),
 *     loss_e <- 2^(-1/500) loss_e - log p_e(label)
 *
 * This is a log-linear (geometric) mixture. By Hoelder's inequality sum_c prod_e p_e(c)^w_e <= 1, so normalising can only
 * increase probabilities, and
 *     -log p_mix(y) <= sum_e w_e (-log p_e(y)):
 * the loss of the mixture is at most the weighted mean of the losses of the members. Exponential weights keep this mean, over
 * every window of the discount, below
 *     min_e loss_e + log(K)/rate + rate/2 * (discounted sum of sum_e w_e loss^2).
 * Losses are discounted with a half-life of 500 samples, so that the weights follow a drifting stream.
 *
 * p_e is (1 - 1e-4) p_e + 1e-4 / classes, over the classes that any member knows. A member therefore cannot veto a class that it
 * has never seen or wrongly excludes, and a loss is at most log(classes / 1e-4). A member without any class is uniform.
 *
 * The rate is small (0.01 by default). Members of similar quality are mixed, which is often better than each of them; only a
 * lasting difference of a few tenths of a nat per sample favours one member.
 *
 * The weights cannot detect forgetting, because samples of old classes do not occur in the stream again. A caller that replays
 * old samples should let the mixture observe them too, before they are trained on again.
 *
 * NaN counts as "never seen". No function here allocates memory or fails. */
#include "learner/heads/head.h"

#include <math.h>

static const double FLOOR = 1e-4;
static const double START = 4;                     /* disadvantage at the start, as rate * loss */
static const double DISCOUNT = 0.9986146661010289; /* 2^(-1/500) */

sfp__mix sfp__mix_start(int member)
{
    sfp__mix m = {.rate = SFP_MIX_RATE};
    for (int e = 0; e < SFP_HEAD_MEMBERS; e++)
        m.loss[e] = e == member ? 0 : START / SFP_MIX_RATE;
    return m;
}

void sfp__mix_weights(const sfp__mix *m, double *weight)
{
    double min_loss = INFINITY, sum = 0;
    for (int e = 0; e < SFP_HEAD_MEMBERS; e++)
        min_loss = fmin(min_loss, m->loss[e]);
    for (int e = 0; e < SFP_HEAD_MEMBERS; e++)
        sum += weight[e] = exp(-m->rate * (m->loss[e] - min_loss));
    for (int e = 0; e < SFP_HEAD_MEMBERS; e++)
        weight[e] /= sum;
}

/* Returns whether any member knows class c for sample i. */
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

/* The probabilities of one member for one sample: p(c) = exp(x[c] - shift) if x[c] is finite. */
typedef struct member_probs {
    const float *x; /* (classes) */
    double shift;
    bool none; /* no value is finite */
    int known; /* number of classes that any member knows */
} member_probs;

static member_probs normalise_member(const float *x, int classes, int known_classes)
{
    member_probs o = {.x = x, .none = true, .known = known_classes};
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

static double log_probability(const member_probs *o, int c)
{
    double uniform = 1.0 / o->known, p = isfinite(o->x[c]) ? exp((double)o->x[c] - o->shift) : 0;
    return log((1 - FLOOR) * (o->none ? uniform : p) + FLOOR * uniform);
}

void sfp__mix_observe(sfp__mix *m, int n, int classes, const float *const *logp, const int32_t *label)
{
    for (int i = 0; i < n; i++) {
        int y = label[i];
        if (y < 0 || y >= classes || !known(classes, logp, i, y))
            continue; /* no member knows the class, so the sample does not compare them */
        int known_classes = count_known(classes, logp, i);
        for (int e = 0; e < SFP_HEAD_MEMBERS; e++) {
            member_probs o = normalise_member(logp[e] + (size_t)i * (size_t)classes, classes, known_classes);
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
        int known_classes = count_known(classes, logp, i);
        for (int c = 0; c < classes; c++)
            y[c] = known(classes, logp, i, c) ? 0 : -INFINITY;
        for (int e = 0; e < SFP_HEAD_MEMBERS; e++) {
            member_probs o = normalise_member(logp[e] + (size_t)i * (size_t)classes, classes, known_classes);
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
