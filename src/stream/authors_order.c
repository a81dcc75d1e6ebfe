/* The class orders of the paper's authors. Their code draws a permutation with NumPy's legacy generator: np.random.seed(S), then
 * np.random.permutation(classes). This is the Mersenne Twister (MT19937), and a shuffle from the last place to the second. Each
 * index is drawn by masked rejection: the lowest bits of a word, until they are not above the maximum. */
#include "stream/source_internal.h"

enum { MT_WORDS = 624, MT_SHIFT = 397 };

typedef struct twister {
    uint32_t word[MT_WORDS];
    int next; /* the first word that was not used yet */
} twister;

static uint32_t draw_word(twister *t)
{
    for (int i = 0; t->next == MT_WORDS && i < MT_WORDS; i++) {
        uint32_t y = (t->word[i] & UINT32_C(0x80000000)) | (t->word[(i + 1) % MT_WORDS] & UINT32_C(0x7fffffff));
        t->word[i] = t->word[(i + MT_SHIFT) % MT_WORDS] ^ (y >> 1) ^ (y & 1 ? UINT32_C(0x9908b0df) : 0);
    }
    t->next %= MT_WORDS;
    uint32_t y = t->word[t->next++];
    y ^= y >> 11;
    y ^= (y << 7) & UINT32_C(0x9d2c5680);
    y ^= (y << 15) & UINT32_C(0xefc60000);
    return y ^ (y >> 18);
}

/* Draws a number that is uniform in [0, max]. */
static uint32_t draw_index(twister *t, uint32_t max)
{
    uint32_t mask = max, value;
    for (int shift = 1; shift < 32; shift *= 2)
        mask |= mask >> shift;
    do
        value = draw_word(t) & mask;
    while (value > max);
    return value;
}

void sfp__authors_shuffle(int64_t *a, int n, uint32_t seed)
{
    twister t = {.next = MT_WORDS};
    for (uint32_t i = 0; i < MT_WORDS; i++) {
        t.word[i] = seed;
        seed = UINT32_C(1812433253) * (seed ^ (seed >> 30)) + i + 1;
    }
    for (int i = n - 1; i > 0; i--) {
        uint32_t j = draw_index(&t, (uint32_t)i);
        int64_t other = a[i];
        a[i] = a[j];
        a[j] = other;
    }
}
