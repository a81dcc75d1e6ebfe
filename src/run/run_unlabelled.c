/* Pictures without a label. On a live stream they are predicted and wait for one (run_live.c); in a data set that is a free
 * stream in its own order no label will come: each is predicted when its turn comes, and dropped. A thread of its own reads them
 * ahead. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/rank.h"
#include "io/json_write.h"
#include "run/run_internal.h"
#include "stream/picture.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { GROUP = 32, RING = 2 * GROUP }; /* predicted at once; read ahead */

sfp_status sfp__run_write_prediction(const sfp__run_state *s, sfp_line_log *log, const sfp__prediction *p, sfp_error *err)
{
    if (!log)
        return SFP_OK;
    sfp_text *t = sfp__line_log_begin(log);
    sfp__text_printf(t, "{\"id\":%" PRIu64 ",\"t\":%" PRId64 ",\"name\":", p->id, s->stamps);
    sfp__text_json(t, p->name);
    sfp__text_put(t, ",\"class\":");
    if (p->label >= 0 && p->label < s->classes)
        sfp__text_json(t, s->r->class_names[p->label]);
    else
        sfp__text_put(t, "null");
    sfp__text_put(t, ",\"probability\":");
    sfp__text_exact_float(t, p->probability);
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
        return sfp__fail_nomem(err);
    sfp_status status = SFP_OK;
    for (int64_t i = 0; i < s->source->count && !status; i++) {
        sfp_record record;
        status = s->source->record(s->source, i, &record, err);
        if (!status && record.label < 0 && (uint64_t)s->unlabelled.count < count)
            s->unlabelled.at[s->unlabelled.count++] = i;
    }
    return status;
}

/* Picture `turn` of the list into its slot, on the thread that reads ahead. */
static void read_one(void *ctx, int64_t turn)
{
    sfp__unlabelled *u = ctx;
    sfp__unlabelled_slot *slot = &u->ring[turn % RING];
    double begin = sfp__now();
    sfp_error err = {0};
    bool read = !sfp__picture_read_fit(u->source, u->at[turn], u->size, u->resize, slot->rgb, NULL, &err);
    (void)snprintf(slot->why, sizeof slot->why, "%s", read ? "" : err.message);
    slot->seconds = sfp__now() - begin;
}

sfp_status sfp__run_read_unlabelled(sfp__run_state *s, sfp_error *err)
{
    sfp__unlabelled *u = &s->unlabelled;
    if (u->next >= u->count)
        return SFP_OK;
    u->source = s->source;
    u->size = s->opt->vit->config.img_size;
    u->resize = s->opt->learner.resize;
    size_t picture = 3 * (size_t)u->size * (size_t)u->size,
           queries = GROUP * (size_t)s->opt->vit->config.dim * sizeof(float);
    u->ring = sfp__calloc(RING, sizeof *u->ring);
    u->rgb = sfp__malloc(RING * picture);
    u->query = sfp__malloc(queries);
    if (!u->ring || !u->rgb || !u->query)
        return sfp__fail_nomem(err);
    for (size_t i = 0; i < RING; i++)
        u->ring[i].rgb = u->rgb + i * picture;
    uint64_t from = u->next ? (uint64_t)u->at[u->next] : 0; /* a run that begins keeps no line that is there */
    sfp_status status = s->opt->out ? sfp__line_log_open(s->opt->out, SFP__RUN_PREDICTIONS, "id", from, SFP__RUN_LOG_BYTES,
                                                         SFP__RUN_LOGS, &u->log, err)
                                    : SFP_OK;
    const sfp_ahead_options ahead = {
        .what = "picture", .first = u->next, .end = u->count, .depth = RING, .make = read_one, .ctx = u};
    return status ? status : sfp__ahead_create(&ahead, &u->ahead, err);
}

/* Up to GROUP of those before `index`; those that cannot be read are left out and counted. */
static sfp_status predict_some(sfp__run_state *s, int64_t index, double *seconds, sfp_error *err)
{
    sfp__unlabelled *u = &s->unlabelled;
    int n = 0, unread = 0;
    int64_t end = u->next, at[GROUP];
    const uint8_t *rgb[GROUP];
    bool has_query[GROUP] = {false};
    int32_t label[GROUP];
    float probability[GROUP];
    sfp_status status = SFP_OK;
    for (; end < u->count && end < u->next + GROUP && u->at[end] < index; end++) {
        if ((status = sfp__ahead_take(u->ahead, end, &u->waited, err)))
            return status;
        const sfp__unlabelled_slot *slot = &u->ring[end % RING];
        u->decode += slot->seconds;
        if (!*slot->why) {
            rgb[n] = slot->rgb;
            at[n++] = u->at[end];
        } else if (unread++ == 0 && !u->first_error[0]) {
            memcpy(u->first_error, slot->why, sizeof u->first_error);
        }
    }
    double begin = sfp__now();
    if (n > 0)
        status = sfp__predictor_ask(s->predictor, n, rgb, u->query, has_query, label, probability, err);
    *seconds += sfp__now() - begin;
    for (int i = 0; i < n && !status; i++) {
        char name[4096];
        const sfp__prediction p = {.id = (uint64_t)at[i],
                                   .name = s->source->name(s->source, at[i], name, sizeof name),
                                   .label = label[i],
                                   .probability = probability[i]};
        status = sfp__run_write_prediction(s, u->log, &p, err);
    }
    if (status)
        return status;
    sfp__ahead_release(u->ahead, end);
    u->next = end;
    u->unread += (uint64_t)unread;
    s->r->samples.skipped += (uint64_t)unread;
    s->r->labels.unlabelled += (uint64_t)n;
    return SFP_OK;
}

int64_t sfp__run_unlabelled_before(const sfp__run_state *s, int64_t index)
{
    const sfp__unlabelled *u = &s->unlabelled;
    return sfp__lower_bound(u->at, u->count, index);
}

sfp_status sfp__run_predict_before(sfp__run_state *s, int64_t index, double *seconds, sfp_error *err)
{
    const sfp__unlabelled *u = &s->unlabelled;
    sfp_status status = SFP_OK;
    *seconds = 0;
    while (!status && u->next < u->count && u->at[u->next] < index)
        status = predict_some(s, index, seconds, err);
    return status;
}

void sfp__run_unlabelled_done(sfp__run_state *s)
{
    sfp__ahead_free(s->unlabelled.ahead); /* first: it uses the others */
    sfp__line_log_close(s->unlabelled.log);
    sfp__free(s->unlabelled.at);
    sfp__free(s->unlabelled.ring);
    sfp__free(s->unlabelled.rgb);
    sfp__free(s->unlabelled.query);
}
