/* Heapsort, because it needs no memory: the C library's qsort may allocate, and a step must not. Heapsort is not stable, but this
 * does not matter: the index breaks ties, so no two elements compare equal. */
#include "base/rank.h"

#include <math.h>
#include <stdbool.h>

/* Returns whether i ranks after j. */
static bool after(const float *score, int i, int j)
{
    float a = score[i], b = score[j];
    if (a < b || (isnan(a) && !isnan(b)))
        return true;
    if (a > b || (isnan(b) && !isnan(a)))
        return false;
    return i > j; /* equal, or both NaN */
}

/* Moves order[root] down to its place in the heap order[0..n), whose top is the element that ranks last. */
static void sift(int n, const float *score, int *order, int root)
{
    int moving = order[root];
    for (int child; (child = 2 * root + 1) < n; root = child) {
        if (child + 1 < n && after(score, order[child + 1], order[child]))
            child++;
        if (!after(score, order[child], moving))
            break;
        order[root] = order[child];
    }
    order[root] = moving;
}

void sfp__rank_descending(int n, const float *score, int *order)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int root = n / 2 - 1; root >= 0; root--)
        sift(n, score, order, root);
    for (int end = n - 1; end > 0; end--) {
        int last = order[0];
        order[0] = order[end];
        order[end] = last;
        sift(end, score, order, 0);
    }
}

int64_t sfp__lower_bound(const int64_t *at, int64_t n, int64_t value)
{
    int64_t low = 0, high = n;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (at[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
