/* The pictures of a run's report: of the last timestamp some that the coreset took and some that it left, and those of the
 * buffer. */
#include "base/mem.h"
#include "report/report.h"
#include "run/run_internal.h"

#include <string.h>

/* What was taken, or what was left; a batch may have far more than there is room for. */
typedef struct side {
    int all, most, seen, shown;
} side;

/* The next one of a side: is it one of the `most` that are shown? They are evenly spread. */
static bool is_shown(side *a)
{
    bool yes = a->shown < a->most && a->seen == (int)((int64_t)a->shown * a->all / a->most);
    a->seen++;
    a->shown += yes;
    return yes;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

void sfp__run_show(sfp__run_state *s, int n, const sfp_sample *samples, const sfp_timestamp *t)
{
    size_t size = (size_t)s->opt->vit->config.img_size, bytes = 3 * size * size;
    side took = {.all = t->coreset_count}, left = {.all = n - t->coreset_count};
    /* half each; what one does not need the other gets */
    took.most = smaller(took.all, SFP__RUN_SHOWN - smaller(left.all, SFP__RUN_SHOWN / 2));
    left.most = smaller(left.all, SFP__RUN_SHOWN - took.most);
    memset(s->taken, 0, (size_t)n * sizeof *s->taken);
    for (int i = 0; i < t->coreset_count; i++)
        s->taken[t->coreset[i]] = true;
    s->shown = 0;
    s->shown_of.took = took.all;
    s->shown_of.left = left.all;
    for (int i = 0; i < n; i++) {
        if (!is_shown(s->taken[i] ? &took : &left))
            continue;
        memcpy(s->shown_rgb + (size_t)s->shown * bytes, samples[i].rgb, bytes);
        s->shown_label[s->shown] = samples[i].label;
        s->shown_taken[s->shown++] = s->taken[i];
    }
}

static void batch_thumbs(const sfp__run_state *s, sfp_thumb *out /* (SFP__RUN_SHOWN) */)
{
    int size = s->opt->vit->config.img_size;
    size_t bytes = 3 * (size_t)size * (size_t)size;
    for (int i = 0; i < s->shown; i++)
        out[i] = (sfp_thumb){.width = size,
                             .height = size,
                             .rgb = s->shown_rgb + (size_t)i * bytes,
                             .label = s->r->class_names[s->shown_label[i]],
                             .chosen = s->shown_taken[i]};
}

static void buffer_thumbs(const sfp__run_state *s, sfp_buffer *buffer, int n, sfp_thumb *out)
{
    int size = s->opt->vit->config.img_size;
    size_t bytes = 3 * (size_t)size * (size_t)size;
    uint64_t now = sfp__learner_counts(s->learner).timestamps;
    for (int i = 0; i < n; i++) {
        const sfp_slot *slot = &buffer->slot[i];
        out[i] = (sfp_thumb){.label = s->r->class_names[slot->label], .age = now - slot->born};
        if (slot->image_size == bytes) {
            out[i].width = out[i].height = size;
            out[i].rgb = slot->image;
        } else {
            out[i].encoded = slot->image;
            out[i].encoded_size = slot->image_size;
            out[i].resize = s->opt->learner.resize;
        }
    }
}

sfp_status sfp__run_write_report(const sfp__run_state *s, const char *path, sfp_error *err)
{
    sfp_buffer *buffer = sfp__learner_buffer(s->learner);
    int n = buffer ? buffer->filled : 0;
    sfp_thumb batch[SFP__RUN_SHOWN], *kept = n ? sfp__calloc((size_t)n, sizeof *kept) : NULL;
    if (n && !kept)
        return sfp__fail_nomem(err);
    batch_thumbs(s, batch);
    buffer_thumbs(s, buffer, n, kept);
    const sfp_report_pictures pictures = {.selects = !s->opt->method,
                                          .batch_count = s->shown,
                                          .batch = batch,
                                          .took = s->shown_of.took,
                                          .left = s->shown_of.left,
                                          .buffer_count = n,
                                          .buffer = kept};
    sfp_status status = sfp__report_write(s->r, &pictures, path, err);
    sfp__free(kept);
    return status;
}
