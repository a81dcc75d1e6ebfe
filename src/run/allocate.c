/* --allocate adaptive: chooses which samples are queried if more have arrived than can be (docs/method.md, section 19).
 *
 * The next place goes to the class with the fewest samples, counting learned and chosen ones. A class with half of the places gets more only
 * if no other has samples left: if it begins at the end of the window, it would be known by its first samples alone. The samples of a class
 * are chosen evenly spaced over its arrivals. This needs neither a score nor a pass. Accuracy on streams in order of class and on shuffled
 * streams (mean of loads 4, 16 and 32 and four datasets, before places were limited): this rule .722 and .721; whole batches dropped .487
 * and .698; random .689 and .694; only evenly spaced .732 and .696; by the middle of the paper's score .669 and .633. */
#include "base/rank.h"
#include "run/run_internal.h"

/* Orders samples by class, then by arrival. */
static bool comes_after(const void *ctx, int i, int j)
{
    const sfp__sample *s = ctx;
    return s[i].label != s[j].label ? s[i].label > s[j].label : i > j;
}

/* Whether the class of sample i has fewer samples, learned and chosen, than that of j. Ties: the class that arrived first. */
static bool has_fewer(const void *ctx, int i, int j)
{
    const sfp__candidate *c = ctx;
    int64_t a = c[i].learned + c[i].chosen, b = c[j].learned + c[j].chosen;
    return a != b ? a < b : i < j;
}

/* Finds the first sample of each class and counts the samples of the class there. Writes the first samples of all classes to
 * `order` (n) and returns their number. */
static int group_by_class(int n, const sfp__sample *samples, sfp__candidate *c, int *order)
{
    int classes = 0;
    for (int i = 0; i < n; i++)
        order[i] = i;
    sfp__heap_sort(n, order, comes_after, samples);
    for (int k = 0, first = 0; k < n; k++) {
        int i = order[k];
        if (k == 0 || samples[i].label != samples[first].label)
            first = order[classes++] = i;
        c[i].first = first;
        c[i].count = c[i].chosen = c[i].passed = 0;
        c[first].count++;
    }
    return classes;
}

int sfp__allocate_samples(int n, sfp__sample *samples, int want, sfp__candidate *c, int *order)
{
    int kept = 0, half = -1; /* the class that has half of the places, and samples left */
    if (n <= want)
        return n;
    sfp__heap classes = {.n = group_by_class(n, samples, c, order), .at = order, .before = has_fewer, .ctx = c};
    sfp__heap_make(&classes);
    for (int k = 0; k < want; k++) {
        sfp__candidate *fewest = &c[classes.n > 0 ? order[0] : half];
        bool has_all = ++fewest->chosen == fewest->count;
        if (!has_all && classes.n > 1 && 2 * fewest->chosen >= want)
            half = sfp__heap_pop(&classes);
        else if (has_all && classes.n > 0)
            (void)sfp__heap_pop(&classes);
        else
            sfp__heap_sink(&classes, 0);
    }
    for (int i = 0; i < n; i++) {
        sfp__candidate *class = &c[c[i].first];
        int64_t k = class->passed++;
        if ((k + 1) * class->chosen / class->count > k * class->chosen / class->count)
            samples[kept++] = samples[i];
    }
    return kept;
}
