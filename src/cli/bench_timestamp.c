/* A learner in the middle of a stream: the buffer is full, long ago, and its
 * queries are known, as they are after each slot's first replay. */
#include "cli/bench_timestamp.h"

#include "base/mem.h"
#include "base/rng.h"
#include "learner/learner.h"

#include <string.h>
#include <sys/resource.h>

enum { CLASSES = 51, TASKS = 5, WARM_UP = 1 };

const char *const sfp__bench_part_names[SFP_BENCH_PARTS] = {"query",    "select", "attune", "forward",
                                                            "backward", "update", "buffer"};

static void noise(uint8_t *to, size_t n, sfp_rng *rng)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)sfp__rng_u32(rng);
}

/* All classes are of the task: without a buffer only those compete. */
static sfp_status set_classes(sfp_learner *l, sfp_error *err)
{
    int32_t all[CLASSES];
    for (int i = 0; i < CLASSES; i++)
        all[i] = i;
    return sfp__learner_set_classes(l, CLASSES, all, err);
}

/* Every slot filled, with a query; many samples seen before. */
static sfp_status fill_buffer(sfp_learner *l, int dim, size_t bytes, sfp_rng *rng, sfp_error *err)
{
    enum { SEEN = 10000 };
    sfp_buffer *buffer = sfp__learner_buffer(l);
    if (!buffer)
        return SFP_OK;
    int m = sfp__learner_options(l)->buffer.slots;
    for (int i = 0; i < m; i++) {
        sfp_slot *s = &buffer->slot[i];
        s->label = i % CLASSES;
        s->id = (uint64_t)i;
        s->image_size = bytes;
        s->has_query = true;
        noise(s->image, bytes, rng);
        for (int k = 0; k < dim; k++) {
            s->query[k] = (float)sfp__rng_normal(rng);
            s->mean_embed[k] = (float)sfp__rng_normal(rng) / (float)dim;
        }
    }
    return sfp__buffer_restore(buffer, m, SEEN, err);
}

static void keep_best(const sfp_timestamp *t, sfp_bench_timestamp *out)
{
    out->mean += (t->seconds.total - out->mean) / (out->rounds + 1);
    if (out->rounds++ > 0 && t->seconds.total >= out->total)
        return;
    const double part[SFP_BENCH_PARTS] = {t->seconds.query,    t->seconds.select, t->seconds.attune, t->seconds.forward,
                                          t->seconds.backward, t->seconds.update, t->seconds.buffer};
    out->total = t->seconds.total;
    memcpy(out->part, part, sizeof part);
    out->coreset = t->coreset_count;
    out->replay = t->replay_count[0];
}

sfp_status sfp__bench_timestamp_run(sfp_vit *vit, sfp_thread_pool *pool, int b, int rounds, const char *select,
                                    const char *buffer, sfp_bench_timestamp *out, sfp_error *err)
{
    const sfp_vit_config *c = &vit->config;
    size_t bytes = 3 * (size_t)c->img_size * (size_t)c->img_size, n = (size_t)b;
    sfp_rng rng = sfp__rng_init(7, 0);
    sfp_learner_options o = sfp__learner_options_defaults(vit);
    sfp_learner *l = NULL;
    o.fp.tasks = TASKS;
    o.fp.classes = CLASSES;
    o.batch = b;
    o.select = select;
    o.buffer.method = buffer;
    uint8_t *rgb = sfp__malloc(n * bytes);
    sfp_sample *samples = sfp__calloc(n, sizeof *samples);
    sfp_status s = rgb && samples ? SFP_OK : sfp__fail_nomem(err);
    if (!s)
        s = sfp__learner_create(vit, pool, &o, &l, err);
    if (!s)
        s = set_classes(l, err);
    if (!s)
        s = fill_buffer(l, c->dim, bytes, &rng, err);
    for (int i = 0; !s && i < WARM_UP + rounds; i++) {
        sfp_timestamp t;
        noise(rgb, n * bytes, &rng);
        for (size_t k = 0; k < n; k++)
            samples[k] = (sfp_sample){.rgb = rgb + k * bytes, .label = (int32_t)(k % CLASSES), .id = 1000 * (uint64_t)i + k};
        s = sfp__learner_offer(l, b, samples, &t, err);
        if (!s && i >= WARM_UP)
            keep_best(&t, out);
    }
    struct rusage u;
    out->rss = getrusage(RUSAGE_SELF, &u) == 0 ? (size_t)u.ru_maxrss * 1024 : 0;
    out->slots = l && sfp__learner_buffer(l) ? o.buffer.slots : 0;
    sfp__learner_free(l);
    sfp__free(samples);
    sfp__free(rgb);
    return s;
}
