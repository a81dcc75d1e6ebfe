/* Summarising stream data (Gu et al., AAAI 2024, sections 3.2 to 3.4; docs/method.md, section 12). For each class floor(m /
 * classes) slots hold synthetic images. They are initialised with the first samples of the class and are optimised every 3
 * batches, once the window of 32 recent batches of the task is full (ssd.c). Training on them should then have
 * the same effect as training on the recent samples of the stream. The other slots are a reservoir.
 *
 * `classes` is the number of classes of the head: all classes if they are known, those seen so far in a task-free stream. It may
 * grow. The number of synthetic images per class then decreases. The surplus images (the highest slots) stay unchanged in the
 * buffer but become part of the reservoir, which may replace them. With more classes than slots all slots are a reservoir.
 *
 * A synthetic image consists of float pixels, which are stored here. Its slot holds the nearest bytes, which are replayed, and
 * the query and the mean embedding of these bytes. A step that changes no byte keeps the query and the mean embedding. Otherwise
 * the step costs a patch embedding (1/150 of a pass) and, at the next replay, a query.
 *
 * An optimisation moves images by a small part of a byte level: by 0.08 on average on Fashion-MNIST (docs/measurements.md). So
 * bytes change after several optimisations. The authors' images are replayed as floats.
 *
 * Additional cost compared with a reservoir: at every third batch, for each class in it, the gradients of its samples in the last
 * 32 batches. Its synthetic images need one query pass, one gradient and two passes to pixels, or three if there are older
 * classes. Queries of recent samples are stored: those of the coreset are known, the others are computed once. At b = 20, if
 * the last 32 batches have the classes of the batch, this is 640 gradients per 3 batches. That is 213 per batch, compared with
 * 20 trained samples per step.
 *
 * Memory, n = 3*S*S: 8*m*n bytes for pixels and momentum, 32*b*n for recent images, 128*b*D for their queries and 4*m*n of
 * scratch memory: 123 + 96 + 2 + 61 MB at S = 224, D = 768, m = 102, b = 20.
 *
 * Differences from the authors' code:
 *   - They match on a separate convolutional network, which is trained in addition and initialised again for each task. Here the
 *     learner itself is used: the gradients are those of its trained parameters.
 *   - They backpropagate through the gradient. Here the mixed derivative is a central difference over the trained parameters.
 *   - Their number of images per class is constant. Here it is floor(m / classes).
 *   - Matched images are not augmented, because this learner uses no augmentation (docs/method.md, section 6).
 *   - Pixels are clipped to the range of bytes. Theirs are not, and are replayed as floats.
 *   - They have one optimiser for all images of a task. Each step for one class also moves the images of the other classes, by
 *     their momentum. Here an image moves only when its class is matched. Momentum is kept across tasks.
 *   - They match after a batch is stored, but not if the batch created a synthetic image. Here matching always precedes
 * storing. */
#include "buffer/ssd.h"
#include "compute/pixels.h"

#include <math.h>
#include <string.h>

/* ---------------------------------------------------------------------- state */

enum { KEPT = 7, SCRATCH = 18 };

static sfp__ssd init_sizes(const sfp__buffer_options *opt, int max_batch)
{
    return (sfp__ssd){.slots = opt->slots,
                      .side = (int)lrint(sqrt((double)opt->image_bytes / 3)),
                      .max_batch = max_batch,
                      .dim = opt->dim,
                      .pixels = opt->image_bytes,
                      .timing = opt->ssd};
}

/* Lists the arrays that checkpoints contain. */
static void list_kept(sfp__ssd *s, sfp__want list[KEPT])
{
    size_t m = (size_t)s->slots, n = s->pixels, recent = (size_t)s->timing.window * (size_t)s->max_batch;
    const sfp__want all[KEPT] = {{&s->kept.synthetic, m, 1},
                                 {&s->kept.x, m * n, sizeof(float)},
                                 {&s->kept.u, m * n, sizeof(float)},
                                 {&s->kept.recent, recent * n, 1},
                                 {&s->kept.recent_label, recent, sizeof(int32_t)},
                                 {&s->kept.recent_query, recent * (size_t)s->dim, sizeof(float)},
                                 {&s->kept.recent_known, recent, 1}};
    memcpy(list, all, sizeof all);
}

static void list_scratch(sfp__ssd *s, sfp__want list[SCRATCH])
{
    size_t m = (size_t)s->slots, n = s->pixels, D = (size_t)s->dim, requested = m > SFP__SSD_CHUNK ? m : SFP__SSD_CHUNK;
    const sfp__want all[SCRATCH] = {{&s->scratch.grad, m * n, sizeof(float)},
                                    {&s->scratch.step, m, 1},
                                    {&s->scratch.in, SFP__SSD_CHUNK * n, sizeof(float)},
                                    {&s->scratch.out, SFP__SSD_CHUNK * D, sizeof(float)},
                                    {&s->scratch.rgb, n, 1},
                                    {&s->scratch.feature, m * D, sizeof(float)},
                                    {&s->scratch.dfeature, m * D, sizeof(float)},
                                    {&s->scratch.query, m * D, sizeof(float)},
                                    {&s->scratch.older, m * D, sizeof(float)},
                                    {&s->scratch.has_features, m, 1},
                                    {&s->scratch.memory, SFP__SSD_MEMORY * D, sizeof(float)},
                                    {&s->scratch.real, 4 * D, sizeof(float)},
                                    {&s->scratch.class_slots, 2 * m, sizeof(int)},
                                    {&s->request.xs, requested, sizeof(float *)},
                                    {&s->request.label, requested, sizeof(int32_t)},
                                    {&s->request.queries, requested, sizeof(float *)},
                                    {&s->request.known, requested, sizeof(bool)},
                                    {&s->request.dx, requested, sizeof(float *)}};
    memcpy(list, all, sizeof all);
}

static void close_state(void *state)
{
    if (state)
        sfp__arena_done(&((sfp__ssd *)state)->arena);
    sfp__free(state);
}

/* Removes all samples of recent batches. */
static void empty_window(sfp__ssd *s)
{
    memset(s->kept.recent_label, -1, (size_t)s->timing.window * (size_t)s->max_batch * sizeof *s->kept.recent_label);
    s->kept.batches = 0;
}

static sfp_status open_state(const sfp__buffer_options *opt, int max_batch, void **state, sfp_error *err)
{
    sfp__ssd made = init_sizes(opt, max_batch), *s;
    if (made.side < 1 || 3 * (size_t)made.side * (size_t)made.side != opt->image_bytes)
        return sfp__fail(err, SFP_EINVAL, "buffer 'ssd': image size is %zu bytes, expected 3 * side * side", opt->image_bytes);
    for (int c = 0; c < 3; c++) {
        if (!(opt->std[c] > 0) || !isfinite(opt->mean[c] / opt->std[c]))
            return sfp__fail(err, SFP_EINVAL, "buffer 'ssd': channel %d has mean %g and std %g, expected std above 0", c,
                             (double)opt->mean[c], (double)opt->std[c]);
        made.mean[c] = opt->mean[c];
        made.std[c] = opt->std[c];
        made.channel[c] = (sfp__ssd_channel){.low = (0 - opt->mean[c]) / opt->std[c],
                                             .high = (1 - opt->mean[c]) / opt->std[c],
                                             .rate = sfp__ssd_rate(opt->std[c])};
    }
    if (opt->slots == 0)
        return SFP_OK;
    sfp__want list[1 + KEPT + SCRATCH] = {{&s, 1, sizeof *s}}; /* must be first: its address is that of the block */
    list_kept(&made, list + 1);
    list_scratch(&made, list + 1 + KEPT);
    TRY(sfp__block_cleared(state, SFP__LIST(list), err));
    made.scratch.work = made.scratch.real + made.dim;
    made.scratch.older_slots = made.scratch.class_slots + made.slots;
    made.quota = -1;
    *s = made;
    empty_window(s);
    return SFP_OK;
}

static int state_tensors(void *state, int index, sfp__state_tensor *out)
{
    sfp__ssd *s = state;
    if (!s)
        return 0;
    int64_t m = s->slots, S = s->side, b = s->max_batch, D = s->dim, window = s->timing.window;
    const sfp__state_tensor list[] = {
        {.name = "synthetic", .type = SFP__STATE_U8, .ndim = 1, .shape = {m}, .data = s->kept.synthetic},
        {.name = "pixels", .type = SFP__STATE_F32, .ndim = 4, .shape = {m, 3, S, S}, .data = s->kept.x},
        {.name = "momentum", .type = SFP__STATE_F32, .ndim = 4, .shape = {m, 3, S, S}, .data = s->kept.u},
        {.name = "recent", .type = SFP__STATE_U8, .ndim = 3, .shape = {window, b, 3 * S * S}, .data = s->kept.recent},
        {.name = "recent.label", .type = SFP__STATE_I32, .ndim = 2, .shape = {window, b}, .data = s->kept.recent_label},
        {.name = "recent.query", .type = SFP__STATE_F32, .ndim = 3, .shape = {window, b, D}, .data = s->kept.recent_query},
        {.name = "recent.known", .type = SFP__STATE_U8, .ndim = 2, .shape = {window, b}, .data = s->kept.recent_known},
        {.name = "batches", .type = SFP__STATE_I64, .ndim = 1, .shape = {1}, .data = &s->kept.batches},
    };
    int count = (int)(sizeof list / sizeof *list);
    if (index < count)
        *out = list[index];
    return count;
}

/* ------------------------------------------------------------- recent samples */

/* Returns the position of sample k of the current batch in the window. */
static size_t window_position(const sfp__ssd *s, int k)
{
    return (size_t)((uint64_t)s->kept.batches % (uint64_t)s->timing.window) * (size_t)s->max_batch + (size_t)k;
}

/* Copies the batch into the window, over the oldest batch. This is not undone if the update fails later. */
static void add_to_window(sfp__ssd *s, const sfp__buffer_batch *batch)
{
    size_t D = (size_t)s->dim;
    for (int i = 0; i < s->max_batch; i++) {
        size_t at = window_position(s, i);
        bool known = i < batch->b && batch->query && batch->has_query && batch->has_query[i];
        s->kept.recent_label[at] = i < batch->b ? batch->label[i] : -1;
        s->kept.recent_known[at] = known;
        memset(s->kept.recent_query + at * D, 0, D * sizeof *s->kept.recent_query);
        if (known)
            memcpy(s->kept.recent_query + at * D, batch->query + (size_t)i * D, D * sizeof *s->kept.recent_query);
        if (i < batch->b)
            memcpy(s->kept.recent + at * s->pixels, batch->image[i], s->pixels);
    }
}

/* -------------------------------------------------------------------- storing */

/* Returns the number of synthetic images of a class in slots [0, end). */
static int count_synthetic(const sfp__buffer *b, int32_t label, int end)
{
    const sfp__ssd *s = b->state;
    int n = 0;
    for (int i = 0; i < end; i++)
        n += s->kept.synthetic[i] && b->slot[i].label == label;
    return n;
}

/* Reduces the number of synthetic images per class to `quota` after the number of classes has grown. */
static void release_surplus(sfp__buffer *b, int quota)
{
    sfp__ssd *s = b->state;
    for (int i = b->filled - 1; i >= 0 && quota != s->quota; i--)
        if (s->kept.synthetic[i] && count_synthetic(b, b->slot[i].label, i) >= quota) {
            s->kept.synthetic[i] = 0;
            memset(s->kept.x + (size_t)i * s->pixels, 0, s->pixels * sizeof *s->kept.x);
            memset(s->kept.u + (size_t)i * s->pixels, 0, s->pixels * sizeof *s->kept.u);
        }
    s->quota = quota;
}

/* Makes the real sample that was just stored in slot i a synthetic image. */
static void start_synthetic(sfp__buffer *b, int i)
{
    sfp__ssd *s = b->state;
    s->kept.synthetic[i] = 1;
    sfp__pixels_normalise(b->slot[i].image, s->side, s->mean, s->std, s->kept.x + (size_t)i * s->pixels);
    memset(s->kept.u + (size_t)i * s->pixels, 0, s->pixels * sizeof *s->kept.u);
}

/* Draws a slot of the reservoir uniformly; -1: there is none. */
static int draw_reservoir_slot(const sfp__buffer *b, sfp__rng *rng)
{
    const sfp__ssd *s = b->state;
    int n = 0;
    for (int i = 0; i < b->filled; i++)
        n += !s->kept.synthetic[i];
    int remaining = n ? (int)sfp__rng_below(rng, (uint32_t)n) : -1;
    for (int i = 0; n && i < b->filled; i++)
        if (!s->kept.synthetic[i] && remaining-- == 0)
            return i;
    return -1;
}

/* Copies the query of sample k, which is now in slot i, if the optimisation has computed it. */
static void copy_known_query(sfp__buffer *b, int i, int k)
{
    const sfp__ssd *s = b->state;
    sfp__slot *slot = &b->slot[i];
    size_t at = window_position(s, k), D = (size_t)s->dim;
    if (slot->has_query || !s->kept.recent_known[at])
        return;
    memcpy(slot->query, s->kept.recent_query + at * D, D * sizeof *slot->query);
    slot->has_query = true;
}

static void store(sfp__buffer *b, const sfp__buffer_batch *batch, int quota, sfp__rng *rng, sfp__buffer_change *change)
{
    sfp__ssd *s = b->state;
    int first = b->filled, nu = 0;
    change->stored = sfp__buffer_fill(b, batch);
    for (int i = first; i < b->filled; i++) {
        s->kept.synthetic[i] = 0;
        copy_known_query(b, i, i - first);
        if (count_synthetic(b, b->slot[i].label, i) < quota)
            start_synthetic(b, i);
    }
    for (int k = change->stored; k < batch->b; k++) {
        bool becomes_synthetic = count_synthetic(b, batch->label[k], b->filled) < quota;
        int i = becomes_synthetic ? draw_reservoir_slot(b, rng) : -1;
        becomes_synthetic = becomes_synthetic && i >= 0;
        if (becomes_synthetic)
            b->seen++;
        else
            i = sfp__reservoir_draw_slot(b, rng);
        if (i < 0 || s->kept.synthetic[i])
            continue;
        sfp__buffer_record_replacement(b, i, k, &nu);
        sfp__buffer_put(b, i, batch, k);
        copy_known_query(b, i, k);
        if (becomes_synthetic)
            start_synthetic(b, i);
    }
    change->nu = nu;
}

/* Returns whether the batch that was just added to the window is one at which images are optimised. */
static bool is_due(const sfp__ssd *s)
{
    uint64_t batches = (uint64_t)s->kept.batches + 1;
    return batches >= (uint64_t)s->timing.window && batches % (uint64_t)s->timing.every == 0;
}

/* The authors empty the window at the start of a task, so that only classes of the task have recent samples. */
static void next_task(sfp__buffer *b)
{
    if (b->state)
        empty_window(b->state);
}

static sfp_status update(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, sfp__buffer_change *change,
                         sfp_error *err)
{
    sfp__ssd *s = b->state;
    if (!s) { /* the buffer has no slots */
        b->seen += (uint64_t)batch->b;
        return SFP_OK;
    }
    if (batch->model->side != s->side)
        return sfp__fail(err, SFP_EINVAL, "buffer 'ssd': the learner's images have side %d, expected %d", batch->model->side,
                         s->side);
    add_to_window(s, batch);
    if (is_due(s))
        TRY(sfp__ssd_optimise(b, batch, rng, &change->moved, err));
    int quota = batch->model->classes > 0 ? b->opt.slots / batch->model->classes : 0;
    release_surplus(b, quota);
    store(b, batch, quota, rng, change);
    s->kept.batches = (int64_t)((uint64_t)s->kept.batches + 1);
    return SFP_OK;
}

const sfp__buffer_method sfp__buffer_ssd = {
    .name = "ssd",
    .summary = "synthetic images per class whose gradients match those of recent samples; the other slots are a reservoir",
    .needs = SFP__NEED_FEATURES | SFP__NEED_GRADIENTS | SFP__NEED_PIXELS,
    .update = update,
    .next_task = next_task,
    .open = open_state,
    .close = close_state,
    .state_tensors = state_tensors,
};
