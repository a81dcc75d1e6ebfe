/* How the time of a run is spent (docs/method.md, section 19): --allocate adaptive.
 *
 * A sample can be dropped, queried (one pass, which feeds every closed-form head) or trained on (three passes and more). Queries
 * come first. If more samples have arrived than can be queried, those that are queried are spread evenly over all that arrived, so
 * that no class is missed because whole batches are dropped; under a high load they are also balanced over classes. The time that
 * queries leave is spent on training the fingerprints, in proportion to the weight that the mixture gives their head. A small
 * share remains, so that the mixture notices when training begins to pay. */
#include "run/run_internal.h"

#include <math.h>

static const double PROBE = 0.05; /* least share of the spare time that is spent on training */
static const double MEMORY = 0.9; /* weight of earlier measurements in the mean processing times */
enum { BALANCE = 8 };             /* classes are balanced if at most one sample in BALANCE can be queried */

/* ----------------------------------------------------------- choice of samples */

/* Marks `want` of the `count` samples of class `label` (-1: of any class), spread evenly over them. */
static void mark_spread(int n, const sfp__sample *samples, int label, int count, int want, bool *marked)
{
    for (int i = 0, k = 0; i < n; i++) {
        if (label >= 0 && samples[i].label != label)
            continue;
        marked[i] = (int64_t)(k + 1) * want / count > (int64_t)k * want / count;
        k++;
    }
}

/* Returns the first sample of the class that has the least samples, learned and chosen, and one more to choose; -1: there is none. */
static int poorest(int n, const int *learned, const int *count, const int *chosen)
{
    int best = -1;
    for (int i = 0; i < n; i++)
        if (chosen[i] < count[i] && (best < 0 || learned[i] + chosen[i] < learned[best] + chosen[best]))
            best = i;
    return best;
}

/* Marks `want` samples so that classes have equal numbers as far as possible, with those that were learned before. `count` and
 * `chosen` are those of a class at its first sample, and 0 at its others. */
static void mark_balanced(int n, const sfp__sample *samples, int want, const int *learned, int *count, int *chosen, bool *marked)
{
    for (int i = 0; i < n; i++) {
        int first = 0;
        while (samples[first].label != samples[i].label)
            first++;
        count[i] = chosen[i] = 0;
        count[first]++;
    }
    for (int k = 0, i; k < want && (i = poorest(n, learned, count, chosen)) >= 0; k++)
        chosen[i]++;
    for (int i = 0; i < n; i++)
        if (count[i] > 0)
            mark_spread(n, samples, samples[i].label, count[i], chosen[i], marked);
}

int sfp__allocate_samples(int n, sfp__sample *samples, int want, int *work, bool *marked)
{
    int kept = 0;
    if (n <= want)
        return n;
    for (int i = 0; i < n; i++) /* a class with a full batch of samples has no claim to more than the others */
        work[i] = work[i] < want ? work[i] : want;
    if (n >= BALANCE * want)
        mark_balanced(n, samples, want, work, work + n, work + (ptrdiff_t)2 * n, marked);
    else
        mark_spread(n, samples, -1, n, want, marked);
    for (int i = 0; i < n; i++)
        if (marked[i])
            samples[kept++] = samples[i];
    return kept;
}

/* ------------------------------------------------------------ time for training */

bool sfp__allocate_training(sfp__allocation *a, int n, double time, double weight)
{
    double share = fmax(weight, PROBE);
    if (!isfinite(time)) /* no arrival rate: there is time for everything */
        return true;
    if (a->query == 0) /* the first timestamp is measured */
        return false;
    double left = time - n * a->query;
    a->credit = fmin(fmax(a->credit + left * share, -a->train), 2 * a->train); /* a long overload is forgotten */
    if (left <= 0)                                                             /* overload */
        a->credit = fmin(a->credit, 0);
    bool too_long = n * a->query + a->train > SFP__RUN_BACKLOG * time; /* samples would be dropped */
    if (left <= 0 || a->credit < a->train || too_long)
        return false;
    a->credit -= a->train;
    return true;
}

/* Updates a mean processing time; the first value is taken as it is. */
static void update(double *mean, double seconds)
{
    *mean = *mean > 0 ? MEMORY * *mean + (1 - MEMORY) * seconds : seconds;
}

void sfp__allocate_measured(sfp__allocation *a, int n, bool trained, double seconds)
{
    if (n == 0)
        return;
    if (!trained)
        update(&a->query, seconds / n);
    else
        update(&a->train, fmax(seconds - n * a->query, 0));
}
