#include "run/events.h"

#include "io/json_write.h"

#include <inttypes.h>

static void put_ints(sfp_text *t, const char *key, int n, const int *v)
{
    sfp__text_printf(t, ",\"%s\":[", key);
    for (int i = 0; i < n; i++)
        sfp__text_printf(t, "%s%d", i ? "," : "", v[i]);
    sfp__text_put(t, "]");
}

static void put_line(sfp_text *t, const sfp_timestamp *ts, int replay, const uint64_t *ids)
{
    sfp__text_printf(t, "{\"t\":%" PRIu64 ",\"task\":%d,\"offered\":[", ts->t, ts->task);
    for (int i = 0; i < ts->offered; i++)
        sfp__text_printf(t, "%s%" PRIu64, i ? "," : "", ids[i]);
    sfp__text_put(t, "],\"similarity\":");
    sfp__text_put(t, ts->similarity ? "[" : "null");
    for (int i = 0; ts->similarity && i < ts->offered; i++) {
        sfp__text_put(t, i ? "," : "");
        sfp__text_exact_float(t, ts->similarity[i]);
    }
    sfp__text_put(t, ts->similarity ? "]" : "");
    sfp__text_put(t, ",\"coreset\":[");
    for (int i = 0; i < ts->coreset_count; i++)
        sfp__text_printf(t, "%s%d", i ? "," : "", ts->coreset ? ts->coreset[i] : i);
    sfp__text_put(t, "],\"replay\":[");
    for (int k = 0; k < ts->steps; k++) {
        sfp__text_put(t, k ? ",[" : "[");
        for (int i = 0; i < ts->replay_count[k]; i++)
            sfp__text_printf(t, "%s%d", i ? "," : "", ts->replay[(size_t)k * (size_t)replay + (size_t)i]);
        sfp__text_put(t, "]");
    }
    sfp__text_put(t, "],\"loss\":[");
    for (int k = 0; k < ts->steps; k++) {
        sfp__text_put(t, k ? "," : "");
        sfp__text_exact(t, ts->loss[k]);
    }
    sfp__text_printf(t, "],\"stored\":%d,\"nu\":%d", ts->buffer.stored, ts->buffer.nu);
    put_ints(t, "retained", ts->buffer.nu, ts->buffer.retained);
    put_ints(t, "replaced", ts->buffer.nu, ts->buffer.replaced);
    sfp__text_put(t, ts->grew ? ",\"grew\":true" : "");
    const struct {
        const char *key;
        double x;
    } seconds[] = {{"query", ts->seconds.query},     {"select", ts->seconds.select},     {"attune", ts->seconds.attune},
                   {"forward", ts->seconds.forward}, {"backward", ts->seconds.backward}, {"update", ts->seconds.update},
                   {"buffer", ts->seconds.buffer},   {"head", ts->seconds.head},         {"total", ts->seconds.total}};
    for (size_t i = 0; i < sizeof seconds / sizeof *seconds; i++) {
        /* a microsecond is more than a clock can tell here */
        sfp__text_printf(t, "%s\"%s\":%.6f", i ? "," : ",\"seconds\":{", seconds[i].key, seconds[i].x);
    }
    sfp__text_put(t, "}}\n");
}

sfp_status sfp__events_write(sfp_line_log *e, const sfp_timestamp *t, int replay, const uint64_t *ids, sfp_error *err)
{
    put_line(sfp__line_log_begin(e), t, replay, ids);
    return sfp__line_log_add(e, err);
}
