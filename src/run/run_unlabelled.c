/* Pictures without a label. On a live stream they are predicted and wait for one (run_live.c); in a data set that is a free
 * stream in its own order no label will come: each is predicted when its turn comes, and dropped. */
#include "base/mem.h"
#include "run/run_internal.h"
#include "run/text_out.h"
#include "stream/picture.h"

#include <inttypes.h>
#include <stdio.h>

enum { GROUP = 32 }; /* predicted at once */

sfp_status sfp__run_write_prediction(const sfp__run_state *s, sfp_line_log *log, const sfp__prediction *p, sfp_error *err)
{
    if (!log)
        return SFP_OK;
    sfp_text *t = sfp__line_log_begin(log);
    sfp__text_printf(t, "{\"id\":%" PRIu64 ",\"t\":%" PRId64 ",\"name\":", p->id, s->stamps);
    sfp__put_json(t, p->name);
    sfp__text_put(t, ",\"class\":");
    if (p->label >= 0 && p->label < s->classes)
        sfp__put_json(t, s->r->class_names[p->label]);
    else
        sfp__text_put(t, "null");
    sfp__text_put(t, ",\"probability\":");
    sfp__put_float(t, p->probability);
    sfp__text_put(t, "}\n");
    return sfp__line_log_add(log, err);
}

sfp_status sfp__run_find_unlabelled(sfp__run_state *s, uint64_t count, sfp_error *err)
{
    char text[128];
    bool predicted = s->tasks.free && s->source->keeps_order;
    if (count == 0)
        return SFP_OK;
    (void)snprintf(text, sizeof text, "%" PRIu64 " picture%s no label and %s %s", count, count == 1 ? " has" : "s have",
                   count == 1 ? "is" : "are", predicted ? "predicted, not learned from" : "left out");
    sfp__run_say(s, text);
    if (!predicted)
        return SFP_OK;
    if (!(s->unlabelled.at = sfp__malloc((size_t)count * sizeof *s->unlabelled.at)))
        return sfp__fail_nomem(err, (size_t)count * sizeof *s->unlabelled.at);
    sfp_status status = SFP_OK;
    for (int64_t i = 0; i < s->source->count && !status; i++) {
        sfp_record record;
        status = s->source->record(s->source, i, &record, err);
        if (!status && record.label < 0 && (uint64_t)s->unlabelled.count < count)
            s->unlabelled.at[s->unlabelled.count++] = i;
    }
    return status;
}

static sfp_status make_room(sfp__run_state *s, sfp_error *err)
{
    size_t size = (size_t)sfp__vit_config(s->opt->vit)->img_size, pictures = GROUP * 3 * size * size,
           queries = GROUP * (size_t)s->system.D * sizeof(float);
    if (!s->unlabelled.rgb && !(s->unlabelled.rgb = sfp__malloc(pictures)))
        return sfp__fail_nomem(err, pictures);
    if (!s->unlabelled.query && !(s->unlabelled.query = sfp__malloc(queries)))
        return sfp__fail_nomem(err, queries);
    if (!s->opt->out || s->unlabelled.log)
        return SFP_OK;
    return sfp__line_log_open(s->opt->out, SFP__RUN_PREDICTIONS, "id", (uint64_t)s->unlabelled.at[s->unlabelled.next],
                              SFP__RUN_LOG_BYTES, SFP__RUN_LOGS, &s->unlabelled.log, err);
}

/* Up to GROUP of those before `index`; those that cannot be read are left out and counted. */
static sfp_status predict_some(sfp__run_state *s, int64_t index, sfp_error *err)
{
    int size = sfp__vit_config(s->opt->vit)->img_size, n = 0;
    size_t bytes = 3 * (size_t)size * (size_t)size;
    const uint8_t *rgb[GROUP];
    int64_t at[GROUP];
    bool has_query[GROUP] = {false};
    int32_t label[GROUP];
    float probability[GROUP];
    for (; n < GROUP && s->unlabelled.next < s->unlabelled.count && s->unlabelled.at[s->unlabelled.next] < index;
         s->unlabelled.next++) {
        uint8_t *to = s->unlabelled.rgb + (size_t)n * bytes;
        sfp_error why;
        at[n] = s->unlabelled.at[s->unlabelled.next];
        if (sfp__picture_read_fit(s->source, at[n], size, s->opt->learner.resize, to, NULL, &why))
            s->unlabelled.unread++;
        else
            rgb[n++] = to;
    }
    sfp_status status =
        n ? sfp__system_predict(&s->system, n, rgb, s->unlabelled.query, has_query, label, probability, err) : SFP_OK;
    for (int i = 0; i < n && !status; i++) {
        char name[4096];
        const sfp__prediction p = {.id = (uint64_t)at[i],
                                   .name = s->source->name(s->source, at[i], name, sizeof name),
                                   .label = label[i],
                                   .probability = probability[i]};
        status = sfp__run_write_prediction(s, s->unlabelled.log, &p, err);
    }
    s->r->labels.unlabelled += status ? 0 : (uint64_t)n;
    return status;
}

sfp_status sfp__run_predict_before(sfp__run_state *s, int64_t index, sfp_error *err)
{
    sfp_status status = SFP_OK;
    while (!status && s->unlabelled.next < s->unlabelled.count && s->unlabelled.at[s->unlabelled.next] < index) {
        status = make_room(s, err);
        if (!status)
            status = predict_some(s, index, err);
    }
    return status;
}

void sfp__run_unlabelled_done(sfp__run_state *s)
{
    sfp__line_log_close(s->unlabelled.log);
    sfp__free(s->unlabelled.at);
    sfp__free(s->unlabelled.rgb);
    sfp__free(s->unlabelled.query);
}
