/* Ranking by score, binary search and a binary heap. */
#ifndef SFP_BASE_RANK_H
#define SFP_BASE_RANK_H

#include <stdbool.h>
#include <stdint.h>

/* Writes the positions 0..n-1 to `order`, by descending score; ties by lower index, NaN last. The result is unique, so it is the
 * same on every machine. Uses no other memory. */
void sfp__rank_descending(int n, const float *score, int *order);

/* Returns the position of the first of n ascending values that is not below `value`; n: there is none. */
int64_t sfp__lower_bound(const int64_t *at, int64_t n, int64_t value);

/* A binary heap of indices, ordered by a callback; the first index is on top. The keys are stored by the caller and may change:
 * call sfp__heap_sink if the key of the top changed, else sfp__heap_make. */
typedef struct sfp__heap {
    int n;
    int *at;                                       /* (n) */
    bool (*before)(const void *ctx, int i, int j); /* a strict order: no two indices are equal */
    const void *ctx;
} sfp__heap;

static inline void sfp__heap_sink(sfp__heap *h, int root)
{
    int moving = h->n ? h->at[root] : 0;
    for (int child; (child = 2 * root + 1) < h->n; root = child) {
        if (child + 1 < h->n && h->before(h->ctx, h->at[child + 1], h->at[child]))
            child++;
        if (!h->before(h->ctx, h->at[child], moving))
            break;
        h->at[root] = h->at[child];
    }
    if (h->n)
        h->at[root] = moving;
}

static inline void sfp__heap_make(sfp__heap *h)
{
    for (int root = h->n / 2 - 1; root >= 0; root--)
        sfp__heap_sink(h, root);
}

static inline int sfp__heap_pop(sfp__heap *h)
{
    int top = h->at[0];
    h->at[0] = h->at[--h->n];
    sfp__heap_sink(h, 0);
    return top;
}

/* Sorts at[0..n) so that no element is `after` the next one. Uses no other memory. */
static inline void sfp__heap_sort(int n, int *at, bool (*after)(const void *ctx, int i, int j), const void *ctx)
{
    sfp__heap h = {.n = n, .at = at, .before = after, .ctx = ctx};
    sfp__heap_make(&h);
    while (h.n > 1) {
        int last = sfp__heap_pop(&h);
        at[h.n] = last;
    }
}

#endif
