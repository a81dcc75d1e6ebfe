/* Selectors and buffer methods of the program (streamfp.h, part 10).
 *
 * A definition becomes an entry of the list of selectors (select/select.h) or buffer methods (buffer/buffer.h). The functions
 * of the entry are in this file. They pass the declared inputs to the callback and check its results before anything changes.
 * Random numbers are those of the learner. A call that fails draws none, so that the learner can be offered the batch again. */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"
#include "buffer/buffer.h"
#include "select/select.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 32, STATE_BYTES_MAX = 1 << 20 };

_Static_assert((int)SFP_NEEDS_SCORE == SFP__NEED_SCORE && (int)SFP_NEEDS_FEATURES == SFP__NEED_FEATURES &&
                   (int)SFP_NEEDS_LOGITS == SFP__NEED_LOGITS && (int)SFP_NEEDS_PROBS == SFP__NEED_PROBS &&
                   (int)SFP_NEEDS_QUERY == SFP__NEED_QUERY,
               "public and internal needs are the same bits");
_Static_assert(sizeof(int) == sizeof(int32_t), "indices of the callbacks are ints of the learner");

/* --------------------------------------------------------------------------------------------------------- random numbers */

static sfp_random *as_random(sfp__rng *rng)
{
    return (sfp_random *)(void *)rng;
}

double sfp_random_uniform(sfp_random *r)
{
    return sfp__rng_double((sfp__rng *)(void *)r);
}

uint32_t sfp_random_below(sfp_random *r, uint32_t n)
{
    return n > 0 ? sfp__rng_below((sfp__rng *)(void *)r, n) : 0;
}

/* -------------------------------------------------------------------------------------------------------------- selectors */

typedef struct selector_entry {
    sfp__selector selector;
    sfp_selector_definition def;
} selector_entry;

static sfp_status check_selection(const char *name, int b, int32_t count, const int *chosen, const float *weight, bool *used,
                                  sfp_error *err)
{
    if (count < 1 || count > b)
        return sfp__fail(err, SFP_EINVAL, "selector '%s': count is %d, expected 1 to %d", name, count, b);
    memset(used, 0, (size_t)b * sizeof *used);
    for (int i = 0; i < count; i++) {
        int k = chosen[i];
        if (k < 0 || k >= b)
            return sfp__fail(err, SFP_EINVAL, "selector '%s': chosen[%d] is %d, expected 0 to %d", name, i, k, b - 1);
        if (used[k])
            return sfp__fail(err, SFP_EINVAL, "selector '%s': chosen[%d] is %d again, expected different indices", name, i, k);
        if (!isfinite(weight[i]) || weight[i] < 0)
            return sfp__fail(err, SFP_EINVAL, "selector '%s': weights[%d] is %g, expected a finite number of at least 0", name, i,
                             (double)weight[i]);
        used[k] = true;
    }
    return SFP_OK;
}

static sfp_status pick(const sfp__select_batch *batch, const sfp__select_options *opt, const sfp__select_env *env, int *out,
                       float *weight, int *count, sfp_error *err)
{
    const sfp_selector_definition *d = env->ctx;
    int b = batch->b, c = sfp__coreset_size(b, opt->sigma);
    float *weights;
    bool *used;
    const sfp__want list[] = {{&weights, (size_t)b, sizeof *weights}, {&used, (size_t)b, sizeof *used}};
    sfp__arena_reset(env->arena);
    TRY(sfp__arena_list(env->arena, SFP__LIST(list), err));
    bool whole = c >= b;
    for (int i = 0; i < b; i++) {
        out[i] = whole ? i : -1;
        weights[i] = 1;
    }
    int32_t chosen = b;
    if (!whole) {
        sfp__rng rng = *env->rng;
        const sfp_selection view = {.size = sizeof view,
                                    .b = b,
                                    .coreset = c,
                                    .dim = batch->dim,
                                    .classes = batch->classes,
                                    .labels = batch->label,
                                    .score = d->needs & SFP_NEEDS_SCORE ? batch->score : NULL,
                                    .query = d->needs & SFP_NEEDS_QUERY ? batch->query : NULL,
                                    .features = d->needs & SFP_NEEDS_FEATURES ? batch->features : NULL,
                                    .logits = d->needs & SFP_NEEDS_LOGITS ? batch->logits : NULL,
                                    .probs = d->needs & SFP_NEEDS_PROBS ? batch->probs : NULL,
                                    .random = as_random(&rng)};
        sfp_error why = {0};
        char where[NAME_BYTES + 16];
        (void)snprintf(where, sizeof where, "selector '%s'", d->name);
        chosen = 0;
        sfp_status status = d->select(d->ctx, &view, out, weights, &chosen, &why);
        if (status)
            return sfp__api_callback_failed(status, &why, where, err);
        TRY(check_selection(d->name, b, chosen, out, weights, used, err));
        *env->rng = rng;
    }
    if (weight)
        memcpy(weight, weights, (size_t)chosen * sizeof *weight);
    *count = chosen;
    return SFP_OK;
}

/* Checks the members that both kinds of definitions have. `what` is "selector" or "buffer method". */
static sfp_status check_names(const char *what, const char *name, bool callback, unsigned needs, unsigned allowed, sfp_error *err)
{
    char shown[SFP__NAME_MAX];
    size_t n = name ? strnlen(name, NAME_BYTES) : 0;
    (void)sfp__printable(name ? name : "", shown, sizeof shown);
    if (n == 0 || n == NAME_BYTES || strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != n)
        return sfp__fail(err, SFP_EINVAL, "%s '%.80s': not a name, expected 1 to %d lower-case letters, digits and '-'", what,
                         shown, NAME_BYTES - 1);
    if (!callback)
        return sfp__fail(err, SFP_EINVAL, "%s '%s': callback is NULL", what, shown);
    if (needs & ~allowed)
        return sfp__fail(err, SFP_EINVAL, "%s '%s': needs is 0x%x, expected only bits of 0x%x", what, shown, needs, allowed);
    return SFP_OK;
}

sfp_status sfp_register_selector(const sfp_selector_definition *definition, sfp_error *err)
{
    IN_LIBRARY;
    OWNED selector_entry *entry = NULL;
    SFP__REQUIRE(definition, "definition");
    TRY(sfp__alloc(&entry, 1, sizeof *entry, err));
    sfp_selector_definition *d = &entry->def;
    TRY(sfp__api_options(definition, d, sizeof *d, "sfp_selector_definition", err));
    TRY(check_names("selector", d->name, d->select, d->needs,
                    SFP_NEEDS_SCORE | SFP_NEEDS_FEATURES | SFP_NEEDS_LOGITS | SFP_NEEDS_PROBS | SFP_NEEDS_QUERY, err));
    entry->selector = (sfp__selector){
        .name = d->name, .summary = d->summary ? d->summary : "", .needs = d->needs, .weighs = true, .pick = pick, .ctx = d};
    TRY(sfp__selector_register(&entry->selector, err));
    (void)TAKE(entry); /* belongs to the list from now on */
    return SFP_OK;
}

/* --------------------------------------------------------------------------------------------------------- buffer methods */

typedef struct buffer_entry {
    sfp__buffer_method method;
    sfp_buffer_definition def;
} buffer_entry;

/* State and scratch of a buffer method in one learner. */
typedef struct buffer_state {
    size_t bytes;
    uint8_t *data, *saved; /* (bytes) the state, and as it was before the callback */
    int32_t *slot_label;   /* (m) */
    uint64_t *slot_id;     /* (m) */
    uint64_t *slot_time;   /* (m) */
    bool *slot_used;       /* (m) */
    bool *sample_used;     /* (max_batch) */
} buffer_state;

static const sfp_buffer_definition *definition_of(const sfp__buffer_options *opt)
{
    return sfp__buffer_method_find(opt->method)->ctx;
}

static sfp_status open_state(const sfp__buffer_options *opt, int max_batch, void **state, sfp_error *err)
{
    size_t m = (size_t)opt->slots, b = (size_t)max_batch;
    buffer_state *s, made = {.bytes = definition_of(opt)->state_bytes};
    const sfp__want list[] = {{&s, 1, sizeof *s}, /* first: its address is that of the block */
                              {&made.data, made.bytes, 1},
                              {&made.saved, made.bytes, 1},
                              {&made.slot_label, m, sizeof *made.slot_label},
                              {&made.slot_id, m, sizeof *made.slot_id},
                              {&made.slot_time, m, sizeof *made.slot_time},
                              {&made.slot_used, m, sizeof *made.slot_used},
                              {&made.sample_used, b, sizeof *made.sample_used}};
    TRY(sfp__block_cleared(state, SFP__LIST(list), err));
    *s = made;
    return SFP_OK;
}

static void close_state(void *state)
{
    sfp__free(state);
}

static int state_tensors(void *state, int index, sfp__state_tensor *out)
{
    buffer_state *s = state;
    if (index == 0)
        *out =
            (sfp__state_tensor){.name = "state", .type = SFP__STATE_U8, .ndim = 1, .shape = {(int64_t)s->bytes}, .data = s->data};
    return s->bytes > 0;
}

static sfp_status check_pairs(const sfp__buffer *b, int n, int32_t count, sfp_error *err)
{
    buffer_state *s = b->state;
    const char *name = b->method->name;
    int m = b->opt.slots, max = n < m ? n : m;
    if (count < 0 || count > max)
        return sfp__fail(err, SFP_EINVAL, "buffer '%s': count is %d, expected 0 to %d", name, count, max);
    memset(s->slot_used, 0, (size_t)m * sizeof *s->slot_used);
    memset(s->sample_used, 0, (size_t)n * sizeof *s->sample_used);
    for (int i = 0; i < count; i++) {
        int sample = b->retained[i], slot = b->replaced[i];
        if (sample < 0 || sample >= n)
            return sfp__fail(err, SFP_EINVAL, "buffer '%s': sample[%d] is %d, expected 0 to %d", name, i, sample, n - 1);
        if (slot < 0 || slot >= m)
            return sfp__fail(err, SFP_EINVAL, "buffer '%s': slot[%d] is %d, expected 0 to %d", name, i, slot, m - 1);
        if (s->sample_used[sample])
            return sfp__fail(err, SFP_EINVAL, "buffer '%s': sample[%d] is %d again, expected different samples", name, i, sample);
        if (s->slot_used[slot])
            return sfp__fail(err, SFP_EINVAL, "buffer '%s': slot[%d] is %d again, expected different slots", name, i, slot);
        s->sample_used[sample] = s->slot_used[slot] = true;
    }
    return SFP_OK;
}

/* Calls the callback, which assigns the samples from `first` on to slots. All slots are full. The pairs are in b->retained and
 * b->replaced. */
static sfp_status call_update(sfp__buffer *b, const sfp__buffer_batch *batch, int first, sfp__rng *rng, int32_t *count,
                              sfp_error *err)
{
    const sfp_buffer_definition *d = b->method->ctx;
    buffer_state *s = b->state;
    bool scores = d->needs & SFP_NEEDS_SCORE;
    int n = batch->b - first;
    for (int i = 0; i < b->opt.slots; i++) {
        s->slot_label[i] = b->slot[i].label;
        s->slot_id[i] = b->slot[i].id;
        s->slot_time[i] = b->slot[i].stored_at;
    }
    if (scores)
        sfp__buffer_score(b, batch->fingerprint, b->score);
    for (int i = 0; i < n; i++)
        b->retained[i] = b->replaced[i] = -1;
    const sfp_buffer_view view = {.size = sizeof view,
                                  .b = n,
                                  .slots = b->opt.slots,
                                  .seen = b->seen,
                                  .timestamp = batch->now,
                                  .labels = batch->label + first,
                                  .ids = batch->id + first,
                                  .score = scores ? batch->score + first : NULL,
                                  .slot_label = s->slot_label,
                                  .slot_id = s->slot_id,
                                  .slot_time = s->slot_time,
                                  .slot_score = scores ? b->score : NULL,
                                  .random = as_random(rng)};
    sfp_error why = {0};
    char where[NAME_BYTES + 16];
    (void)snprintf(where, sizeof where, "buffer '%s'", d->name);
    sfp_status status = d->replace(d->ctx, s->bytes ? s->data : NULL, &view, b->retained, b->replaced, count, &why);
    return status ? sfp__api_callback_failed(status, &why, where, err) : check_pairs(b, n, *count, err);
}

/* Filling changes free slots only, so that a failure is undone by the two counts. */
static sfp_status update(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, sfp__buffer_change *change,
                         sfp_error *err)
{
    buffer_state *s = b->state;
    int filled = b->filled;
    uint64_t seen = b->seen;
    int32_t count = 0;
    int stored = sfp__buffer_fill(b, batch), left = batch->b - stored;
    if (left > 0 && b->opt.slots > 0) {
        if (s->bytes)
            memcpy(s->saved, s->data, s->bytes);
        sfp_status status = call_update(b, batch, stored, rng, &count, err);
        if (status) {
            if (s->bytes)
                memcpy(s->data, s->saved, s->bytes);
            b->filled = filled;
            b->seen = seen;
            return status;
        }
    }
    for (int i = 0; i < count; i++) {
        b->retained[i] += stored;
        sfp__buffer_put(b, b->replaced[i], batch, b->retained[i]);
    }
    b->seen += (uint64_t)left;
    change->stored = stored;
    change->nu = count;
    return SFP_OK;
}

sfp_status sfp_register_buffer(const sfp_buffer_definition *definition, sfp_error *err)
{
    IN_LIBRARY;
    OWNED buffer_entry *entry = NULL;
    SFP__REQUIRE(definition, "definition");
    TRY(sfp__alloc(&entry, 1, sizeof *entry, err));
    sfp_buffer_definition *d = &entry->def;
    TRY(sfp__api_options(definition, d, sizeof *d, "sfp_buffer_definition", err));
    TRY(check_names("buffer method", d->name, d->replace, d->needs, SFP_NEEDS_SCORE, err));
    if (d->state_bytes > STATE_BYTES_MAX)
        return sfp__fail(err, SFP_ELIMIT, "buffer method '%s': state_bytes is %zu, expected at most %d", d->name, d->state_bytes,
                         STATE_BYTES_MAX);
    entry->method = (sfp__buffer_method){.name = d->name,
                                         .summary = d->summary ? d->summary : "",
                                         .needs = d->needs,
                                         .update = update,
                                         .open = open_state,
                                         .close = close_state,
                                         .state_tensors = state_tensors,
                                         .ctx = d};
    TRY(sfp__buffer_method_register(&entry->method, err));
    (void)TAKE(entry); /* belongs to the list from now on */
    return SFP_OK;
}
