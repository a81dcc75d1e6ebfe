/* Camel's buffer (Li, Shen and Chen, "Camel: Managing Data for Efficient Stream Learning", SIGMOD 2022; docs/method.md, section
 * 12). Batch and buffer are merged, and camel's coreset of m samples, those that cover each class best, is kept (select_camel.c
 * chooses it). Slots precede the batch in the merged set, so on a tie the stored sample is kept. Draws no random number.
 *
 * Cost: the query pass of the samples of the batch outside the coreset (slots keep their queries), then the selector on n = m + b
 * points: n^2*D/2 multiplications for d_max, and the greedy algorithm.
 *
 * Difference from the authors: a stored sample counts once in the loss, as in every buffer here; no weights are stored.
 * select_camel.c describes how its distances differ. */
#include "buffer/buffer.h"
#include "select/select.h"

#include <string.h>

typedef struct camel {
    const sfp__selector *selector;
    sfp__arena arena; /* scratch memory of the selector */
    float *query;     /* (m + max_batch, D) queries of the merged set */
    int32_t *label;   /* (m + max_batch) */
    int *picked;      /* (m + max_batch) */
    bool *kept;       /* (m + max_batch) */
} camel;

static void close_state(void *state)
{
    if (state)
        sfp__arena_done(&((camel *)state)->arena);
    sfp__free(state);
}

static sfp_status open_state(const sfp__buffer_options *opt, int max_batch, void **state, sfp_error *err)
{
    size_t n = (size_t)opt->slots + (size_t)max_batch;
    camel *s, made = {.selector = sfp__selector_find("camel")};
    const sfp__want list[] = {{&s, 1, sizeof *s}, /* must be first: its address is that of the block */
                              {&made.query, n * (size_t)opt->dim, sizeof *made.query},
                              {&made.label, n, sizeof *made.label},
                              {&made.picked, n, sizeof *made.picked},
                              {&made.kept, n, sizeof *made.kept}};
    TRY(sfp__block_cleared(state, SFP__LIST(list), err));
    *s = made;
    return SFP_OK;
}

/* Builds the merged set: first the m slots as they are after free slots are filled, then the remaining samples. */
static void merge(const sfp__buffer *b, const sfp__buffer_batch *batch, camel *s)
{
    size_t D = (size_t)b->opt.dim;
    for (int i = 0; i < b->filled + batch->b; i++) {
        int sample = sfp__buffer_sample_at(b, batch, i);
        const float *query = sample < batch->b ? batch->query + (size_t)sample * D : b->slot[sample - batch->b].query;
        memcpy(s->query + (size_t)i * D, query, D * sizeof *query);
        s->label[i] = sfp__buffer_label(b, batch, sample);
    }
}

static sfp_status update(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, sfp__buffer_change *change,
                         sfp_error *err)
{
    (void)rng;
    camel *s = b->state;
    int m = b->opt.slots, n = b->filled + batch->b, count = 0, in = 0, out = 0;
    if (n <= m || m == 0) {
        sfp__buffer_commit(b, batch, 0, change);
        return SFP_OK;
    }
    merge(b, batch, s);
    const sfp__select_batch merged = {.b = n, .label = s->label, .dim = b->opt.dim, .query = s->query};
    const sfp__select_env env = {.arena = &s->arena, .threads = batch->threads};
    sfp__select_options opt = sfp__select_options_defaults();
    opt.sigma = (double)m / n;
    TRY(s->selector->pick(&merged, &opt, &env, s->picked, NULL, &count, err));
    memset(s->kept, 0, (size_t)n * sizeof *s->kept);
    for (int i = 0; i < count; i++) {
        s->kept[s->picked[i]] = true;
        if (s->picked[i] >= m)
            b->retained[in++] = s->picked[i] - b->filled;
    }
    for (int i = 0; i < m && out < in; i++)
        if (!s->kept[i])
            b->replaced[out++] = i;
    sfp__buffer_commit(b, batch, out, change);
    return SFP_OK;
}

const sfp__buffer_method sfp__buffer_camel = {
    .name = "camel",
    .summary = "the samples of buffer and batch that cover each class best, chosen by camel's selector",
    .needs = SFP__NEED_QUERY,
    .update = update,
    .open = open_state,
    .close = close_state,
};
