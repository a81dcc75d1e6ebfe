/* The decisions of docs/method.md, section 7 as pure functions from random numbers to indices.
 *
 * The arithmetic is that of the reference: double, sums in index order. The same random numbers therefore give the same indices,
 * to the last bit of a running sum. */
#include "buffer/buffer.h"

#include "base/rank.h"

static int min(int a, int b)
{
    return a < b ? a : b;
}

/* paper Eq. 7 */
void sfp__rank_probability(int n, const float *score, int *order, double *pi)
{
    double sum = 0;
    for (int r = 1; r <= n; r++)
        sum += 1.0 / r;
    sfp__rank_descending(n, score, order);
    for (int r = 1; r <= n; r++)
        pi[order[r - 1]] = 1 - 1.0 / r / sum;
}

/* An index that has been drawn has weight -1, which distinguishes it from a weight of 0. */
void sfp__weighted_draw(int n, double *weight, int count, const double *uniform, int *out)
{
    for (int d = 0; d < count && d < n; d++) {
        double total = 0;
        for (int i = 0; i < n; i++)
            if (weight[i] > 0)
                total += weight[i];
        if (total == 0) {
            for (int i = 0; i < n; i++) {
                if (weight[i] == 0) {
                    weight[i] = 1;
                    total += 1;
                }
            }
        }
        /* u < 1, so the running sum exceeds u * total at the last positive weight at the latest. If a caller passes u = 1,
         * `chosen` is the last positive weight. */
        double target = uniform[d] * total, running = 0;
        int chosen = 0;
        for (int i = 0; i < n && !(running > target); i++) {
            if (weight[i] > 0) {
                running += weight[i];
                chosen = i;
            }
        }
        weight[chosen] = -1;
        out[d] = chosen;
    }
}

int sfp__buffer_nu(uint64_t n_seen, int m, int b, int n_left, const double *u_nu)
{
    int hits = 0;
    for (int i = 0; i < n_left; i++)
        hits += u_nu[i] * (double)n_seen < m;
    int half = b / 2 > 1 ? b / 2 : 1;
    return min(min(half, n_left), min(m, hits > 1 ? hits : 1));
}

void sfp__buffer_pairs(int n_left, const float *score_left, int m, const float *score_slot, int nu, const double *u_batch,
                       const double *u_buffer, sfp__drop_rule drop, int *iwork, double *dwork, int *retained, int *replaced)
{
    sfp__rank_probability(n_left, score_left, iwork, dwork);
    sfp__weighted_draw(n_left, dwork, nu, u_batch, retained);
    sfp__rank_probability(m, score_slot, iwork, dwork);
    for (int i = 0; drop == SFP__DROP_ALG2 && i < m; i++)
        dwork[i] = 1 - dwork[i];
    sfp__weighted_draw(m, dwork, nu, u_buffer, replaced);
}

void sfp__buffer_decide(uint64_t n_seen, int m, int b, const float *score_batch, const float *score_buffer, const double *u_nu,
                        const double *u_batch, const double *u_buffer, sfp__drop_rule drop, int *iwork, double *dwork,
                        int *retained, int *replaced, sfp__buffer_plan *out)
{
    int stored = n_seen < (uint64_t)m ? min(b, m - (int)n_seen) : 0, n_left = b - stored;
    *out = (sfp__buffer_plan){.stored = stored};
    if (n_left == 0)
        return;
    out->nu = sfp__buffer_nu(n_seen + (uint64_t)stored, m, b, n_left, u_nu);
    sfp__buffer_pairs(n_left, score_batch + stored, m, score_buffer, out->nu, u_batch, u_buffer, drop, iwork, dwork, retained,
                      replaced);
    for (int i = 0; i < out->nu; i++)
        retained[i] += stored;
}
