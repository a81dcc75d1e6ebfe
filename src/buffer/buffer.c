/* The slots of a buffer, the table of buffer methods, and the uniform draw for replay.
 *
 * sfp__buffer_create allocates all memory of the slots and writes it once, so that neither the heap nor the resident size grows
 * during a stream. Invariants: 0 <= filled <= slots and filled <= n_seen. */
#include "buffer/buffer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

const sfp__buffer_method *const sfp__buffer_methods[] = {
    &sfp__buffer_streamfp, &sfp__buffer_none, &sfp__buffer_er,  &sfp__buffer_aser,
    &sfp__buffer_camel,    &sfp__buffer_gss,  &sfp__buffer_ssd, NULL,
};

enum { BUILT_IN = sizeof sfp__buffer_methods / sizeof *sfp__buffer_methods - 1, REGISTERED_MAX = 256 };

/* An entry is written before it is counted and never changes, so that reading needs no lock. */
static const sfp__buffer_method *registered[REGISTERED_MAX];
static atomic_int registered_count;
static pthread_mutex_t registering = PTHREAD_MUTEX_INITIALIZER;

const sfp__buffer_method *sfp__buffer_method_at(int i)
{
    if (i < BUILT_IN)
        return i < 0 ? NULL : sfp__buffer_methods[i];
    return i - BUILT_IN < atomic_load(&registered_count) ? registered[i - BUILT_IN] : NULL;
}

const sfp__buffer_method *sfp__buffer_method_find(const char *name)
{
    const sfp__buffer_method *m;
    for (int i = 0; name && (m = sfp__buffer_method_at(i)); i++)
        if (strcmp(m->name, name) == 0)
            return m;
    return NULL;
}

sfp_status sfp__buffer_method_register(const sfp__buffer_method *m, sfp_error *err)
{
    pthread_mutex_lock(&registering);
    int n = atomic_load(&registered_count);
    bool in_use = sfp__buffer_method_find(m->name), full = n == REGISTERED_MAX;
    if (!in_use && !full) {
        registered[n] = m;
        atomic_store(&registered_count, n + 1);
    }
    pthread_mutex_unlock(&registering);
    if (in_use)
        return sfp__fail(err, SFP_EINVAL, "buffer method '%s': name is in use, expected a new one", m->name);
    return full ? sfp__fail(err, SFP_ELIMIT, "buffer method '%s': %d methods are registered, expected at most %d", m->name, n,
                            REGISTERED_MAX)
                : SFP_OK;
}

sfp__buffer_options sfp__buffer_options_defaults(void)
{
    return (sfp__buffer_options){.slots = 102, .drop = SFP__DROP_ALG2, .ssd = {.every = 3, .window = 32}, .method = "streamfp"};
}

/* ------------------------------------------------------------------ creation */

/* Rounds n up so that the next array is aligned. Returns false if the result does not fit in a size_t. */
static bool padded(size_t n, size_t *out)
{
    size_t padded_size;
    if (!sfp__add_size(n, SFP__ALIGN - 1, &padded_size))
        return false;
    *out = padded_size & ~(size_t)(SFP__ALIGN - 1);
    return true;
}

typedef struct slot_size {
    size_t image, vector; /* padded bytes of an image and of D floats */
    size_t stored;        /* image + 2 vectors */
} slot_size;

static bool measure_slot(const sfp__buffer_options *opt, slot_size *s)
{
    return padded(opt->image_bytes, &s->image) && padded((size_t)opt->dim * sizeof(float), &s->vector) &&
           sfp__add_size(s->image, 2 * s->vector, &s->stored);
}

sfp_status sfp__buffer_create(const sfp__buffer_options *opt, int max_batch, sfp__buffer **out, sfp_error *err)
{
    const sfp__buffer_method *method = sfp__buffer_method_find(opt->method);
    if (!method)
        return sfp__fail(err, SFP_ENOTFOUND, "buffer method '%s' is unknown", opt->method ? opt->method : "");
    if (opt->slots < 0 || opt->dim < 1 || max_batch < 1)
        return sfp__fail(err, SFP_EINVAL,
                         "buffer: slots is %d, dimension is %d and batch size is %d, expected at least 0, 1 and 1", opt->slots,
                         opt->dim, max_batch);

    size_t m = method->keeps_nothing ? 0 : (size_t)opt->slots, bytes;
    slot_size each;
    if (!measure_slot(opt, &each) || !sfp__mul_size(m, each.stored, &bytes))
        return sfp__fail(err, SFP_ELIMIT, "buffer: %d slots with images of %zu bytes are larger than the address space",
                         opt->slots, opt->image_bytes);
    OWNED_PTR(sfp__buffer_free) sfp__buffer *b = NULL;
    TRY(sfp__alloc(&b, 1, sizeof *b, err));
    b->opt = *opt;
    b->opt.slots = (int)m;
    b->opt.method = method->name;
    b->method = method;
    b->max_batch = max_batch;

    size_t batch = (size_t)max_batch, n = batch > m ? batch : m;
    const sfp__want list[] = {{&b->slot, m, sizeof *b->slot},          {&b->store, m, each.stored},
                              {&b->u_nu, batch, sizeof *b->u_nu},      {&b->u_batch, batch, sizeof *b->u_batch},
                              {&b->u_buffer, batch, sizeof *b->u_nu},  {&b->weight, n, sizeof *b->weight},
                              {&b->score, m, sizeof *b->score},        {&b->order, n, sizeof *b->order},
                              {&b->retained, batch, sizeof *b->order}, {&b->replaced, batch, sizeof *b->order}};
    TRY(sfp__block_cleared(&b->block, SFP__LIST(list), err));
    uint8_t *query = b->store + m * each.image;
    for (size_t i = 0; i < m; i++) {
        b->slot[i].image = b->store + i * each.image;
        b->slot[i].query = (float *)(void *)(query + i * each.vector);
        b->slot[i].mean_embed = (float *)(void *)(query + (m + i) * each.vector);
    }
    if (method->open)
        TRY(method->open(&b->opt, max_batch, &b->state, err));
    *out = TAKE(b);
    return SFP_OK;
}

void sfp__buffer_free(sfp__buffer *b)
{
    if (!b)
        return;
    if (b->method->close)
        b->method->close(b->state);
    sfp__free(b->block);
    sfp__free(b);
}

sfp_status sfp__buffer_restore(sfp__buffer *b, int filled, uint64_t seen, sfp_error *err)
{
    if (filled < 0 || filled > b->opt.slots || (uint64_t)filled > seen)
        return sfp__fail(
            err, SFP_EINVAL,
            "buffer: %d of %d slots are filled after %llu samples, expected at most the number of slots and of samples", filled,
            b->opt.slots, (unsigned long long)seen);
    b->filled = filled;
    b->seen = seen;
    return SFP_OK;
}

/* ---------------------------------------------------------------------- draw */

/* Draws the first r cards of a shuffled deck. The deck is initialised at each call, so the result depends only on the random
 * numbers. Earlier draws, which a checkpoint does not contain, have no effect. */
int sfp__buffer_draw(sfp__buffer *b, int r, sfp__rng *rng, int *slots)
{
    int *deck = b->order, n = b->filled, count = r < n ? r : n;
    for (int i = 0; i < n; i++)
        deck[i] = i;
    for (int i = 0; i < count; i++) {
        int k = i + (int)sfp__rng_below(rng, (uint32_t)(n - i));
        slots[i] = deck[k];
        deck[k] = deck[i];
    }
    return count > 0 ? count : 0;
}

sfp_status sfp__buffer_retrieve(sfp__buffer *b, const sfp__buffer_batch *batch, int r, sfp__rng *rng, int *slots, int *count,
                                sfp_error *err)
{
    sfp__rng drawn = *rng;
    if (b->method->retrieve && r > 0 && b->filled > 0)
        TRY(b->method->retrieve(b, batch, r, &drawn, slots, count, err));
    else
        *count = sfp__buffer_draw(b, r, &drawn, slots);
    *rng = drawn;
    return SFP_OK;
}

/* -------------------------------------------------------------------- update */

void sfp__buffer_next_task(sfp__buffer *b)
{
    if (b->method->next_task)
        b->method->next_task(b);
}

void sfp__buffer_put(sfp__buffer *b, int i, const sfp__buffer_batch *batch, int k)
{
    sfp__slot *slot = &b->slot[i];
    size_t dim = (size_t)b->opt.dim, row = dim * sizeof(float);
    slot->label = batch->label[k];
    slot->id = batch->id[k];
    slot->stored_at = batch->now;
    memcpy(slot->image, batch->image[k], b->opt.image_bytes);
    slot->has_query = batch->query && batch->has_query && batch->has_query[k];
    if (slot->has_query)
        memcpy(slot->query, batch->query + (size_t)k * dim, row);
    else
        memset(slot->query, 0, row); /* a slot is saved whole: it must not contain the query of the previous sample */
    if (batch->mean_embed)
        memcpy(slot->mean_embed, batch->mean_embed + (size_t)k * dim, row);
    else
        memset(slot->mean_embed, 0, row);
}

int sfp__buffer_fill(sfp__buffer *b, const sfp__buffer_batch *batch)
{
    int stored = 0;
    while (stored < batch->b && b->filled < b->opt.slots) {
        sfp__buffer_put(b, b->filled++, batch, stored++);
        b->seen++;
    }
    return stored;
}

int sfp__buffer_fits(const sfp__buffer *b, const sfp__buffer_batch *batch)
{
    int capacity = b->opt.slots - b->filled;
    return batch->b < capacity ? batch->b : capacity;
}

int sfp__buffer_sample_at(const sfp__buffer *b, const sfp__buffer_batch *batch, int p)
{
    return p < b->filled ? batch->b + p : p - b->filled;
}

int32_t sfp__buffer_label(const sfp__buffer *b, const sfp__buffer_batch *batch, int sample)
{
    return sample < batch->b ? batch->label[sample] : b->slot[sample - batch->b].label;
}

void sfp__buffer_commit(sfp__buffer *b, const sfp__buffer_batch *batch, int nu, sfp__buffer_change *change)
{
    change->stored = sfp__buffer_fill(b, batch);
    change->nu = nu;
    for (int i = 0; i < nu; i++)
        sfp__buffer_put(b, b->replaced[i], batch, b->retained[i]);
    b->seen += (uint64_t)(batch->b - change->stored);
}

static sfp_status check_needs(const sfp__buffer *b, const sfp__buffer_batch *batch, sfp_error *err)
{
    const char *name = b->method->name;
    unsigned needs = b->method->needs;
    if ((needs & SFP__NEED_SCORE) && (!batch->score || !batch->mean_embed || !batch->fingerprint))
        return sfp__fail(err, SFP_EINVAL,
                         "buffer '%s': the batch lacks scores, mean embeddings or the fingerprint, which this method needs",
                         name);
    if ((needs & (SFP__NEED_FEATURES | SFP__NEED_GRADIENTS | SFP__NEED_PIXELS)) && !batch->model)
        return sfp__fail(err, SFP_EINVAL, "buffer '%s': model callbacks are missing, expected features and gradients", name);
    for (int i = 0; i < batch->b && (needs & SFP__NEED_QUERY); i++)
        if (!batch->query || !batch->has_query || !batch->has_query[i])
            return sfp__fail(err, SFP_EINVAL,
                             "buffer '%s': sample %d of the batch (id %llu) has no query, which this method needs", name, i,
                             (unsigned long long)batch->id[i]);
    return SFP_OK;
}

static sfp_status check_batch(const sfp__buffer *b, const sfp__buffer_batch *batch, sfp_error *err)
{
    const char *name = b->method->name;
    if (batch->b < 0 || batch->b > b->max_batch)
        return sfp__fail(err, SFP_EINVAL, "buffer '%s': batch size is %d, expected 0 to %d", name, batch->b, b->max_batch);
    if (batch->b == 0)
        return SFP_OK;
    if (!batch->label || !batch->id || !batch->image)
        return sfp__fail(err, SFP_EINVAL, "buffer '%s': the batch lacks labels, ids or images", name);
    for (int i = 0; i < batch->b; i++)
        if (!batch->image[i])
            return sfp__fail(err, SFP_EINVAL, "buffer '%s': sample %d of the batch (id %llu) has no image", name, i,
                             (unsigned long long)batch->id[i]);
    return check_needs(b, batch, err);
}

sfp_status sfp__buffer_update(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, sfp__buffer_change *change,
                              sfp_error *err)
{
    sfp__buffer_change result = {.retained = b->retained, .replaced = b->replaced};
    sfp__rng drawn = rng ? *rng : (sfp__rng){0};
    TRY(check_batch(b, batch, err));
    if (batch->b > 0)
        TRY(b->method->update(b, batch, rng ? &drawn : NULL, &result, err));
    if (rng)
        *rng = drawn;
    if (change)
        *change = result;
    return SFP_OK;
}

/* ------------------------------------------------------------- no buffer */

static sfp_status count_only(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, sfp__buffer_change *change,
                             sfp_error *err)
{
    (void)rng;
    (void)change;
    (void)err;
    b->seen += (uint64_t)batch->b;
    return SFP_OK;
}

const sfp__buffer_method sfp__buffer_none = {
    .name = "none", .summary = "stores no samples", .keeps_nothing = true, .update = count_only};
