/* The metrics of docs/method.md, section 10: accuracy, forgetting, backward transfer and confusion.
 *
 * `a` has shape (tasks, tasks); row i is measured after task i. Only the first `done` rows are used. The column of a task without
 * test samples is NAN; every mean excludes NAN. */
#include "results/result.h"

#include <math.h>
#include <string.h>

static double at(int tasks, const double *a, int i, int j)
{
    return a[(size_t)i * (size_t)tasks + (size_t)j];
}

double sfp__average_accuracy(int tasks, int done, const double *a)
{
    double sum = 0;
    int n = 0;
    for (int j = 0; j < done; j++)
        if (!isnan(at(tasks, a, done - 1, j))) {
            sum += at(tasks, a, done - 1, j);
            n++;
        }
    return n ? sum / n : NAN;
}

double sfp__no_minus_zero(double x, int decimals)
{
    return fabs(x) < 0.5 * pow(10, -decimals) ? 0 : x;
}

double sfp__forgetting(int tasks, int done, const double *a)
{
    double sum = 0;
    int n = 0;
    for (int j = 0; j + 1 < done; j++) {
        double best = NAN, last = at(tasks, a, done - 1, j);
        for (int k = j; k + 1 < done; k++)
            best = fmax(best, at(tasks, a, k, j)); /* fmax ignores NAN */
        if (!isnan(best) && !isnan(last)) {
            sum += best - last;
            n++;
        }
    }
    return n ? sum / n : NAN;
}

double sfp__backward_transfer(int tasks, int done, const double *a)
{
    double sum = 0;
    int n = 0;
    for (int j = 0; j + 1 < done; j++) {
        double change = at(tasks, a, done - 1, j) - at(tasks, a, j, j);
        if (!isnan(change)) {
            sum += change;
            n++;
        }
    }
    return n ? sum / n : NAN;
}

void sfp__result_summarise(sfp_result *r)
{
    r->average_accuracy = sfp__average_accuracy(r->tasks, r->tasks_done, r->accuracy);
    r->forgetting = sfp__forgetting(r->tasks, r->tasks_done, r->accuracy);
    r->backward_transfer = sfp__backward_transfer(r->tasks, r->tasks_done, r->accuracy);
}

int sfp__top_confusions(int classes, const uint64_t *confusion, int max_pairs, sfp__confusion_pair *out)
{
    int found = 0;
    for (int t = 0; confusion && t < classes; t++)
        for (int a = 0; a < classes; a++) {
            uint64_t count = confusion[(size_t)t * (size_t)classes + (size_t)a];
            if (a == t || count == 0 || (found == max_pairs && count <= out[found - 1].count))
                continue;
            int at = found < max_pairs ? found++ : found - 1;
            for (; at > 0 && out[at - 1].count < count; at--)
                out[at] = out[at - 1];
            out[at] = (sfp__confusion_pair){t, a, count};
        }
    return found;
}

void sfp__reliability_add(sfp__reliability *c, double confidence, bool correct)
{
    if (!(confidence >= 0 && confidence <= 1.001)) /* NAN: no class was predicted; probabilities may round to a little above 1 */
        return;
    int bin = (int)(confidence * SFP__RELIABILITY_BINS);
    bin = bin < SFP__RELIABILITY_BINS ? bin : SFP__RELIABILITY_BINS - 1;
    c->count[bin]++;
    c->correct[bin] += correct;
    c->confidence[bin] += fmin(confidence, 1);
}

double sfp__reliability_error(const sfp__reliability *c)
{
    double sum = 0, n = 0;
    for (int b = 0; b < SFP__RELIABILITY_BINS; b++) {
        sum += fabs((double)c->correct[b] - c->confidence[b]);
        n += (double)c->count[b];
    }
    return n > 0 ? sum / n : NAN;
}
