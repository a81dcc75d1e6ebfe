#include "pretrain/output.h"

#include "io/file.h"
#include "io/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

static void put_number(sfp_text *t, const char *key, double x)
{
    if (isfinite(x))
        sfp__text_printf(t, ", \"%s\": %.9g", key, x);
    else
        sfp__text_printf(t, ", \"%s\": null", key);
}

static void put_string(sfp_text *t, const char *key, const char *s)
{
    sfp__text_printf(t, ",\n    \"%s\": ", key);
    if (s)
        sfp__text_json(t, s);
    else
        sfp__text_put(t, "null");
}

static void put_training(sfp_text *t, const sfp_pretrain_options *o, int64_t pictures, const sfp_pretrain_result *r)
{
    char date[32] = "";
    time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm))
        (void)strftime(date, sizeof date, "%Y-%m-%d", &tm);
    sfp__text_printf(t, "  \"pretraining\": {\n    \"version\": \"%s\"", sfp_version());
    put_string(t, "date", date);
    put_string(t, "command", o->command);
    put_string(t, "data", o->data);
    put_string(t, "test", o->test);
    put_string(t, "teacher", o->teacher);
    sfp__text_printf(t, ",\n    \"pictures\": %lld, \"steps\": %" PRIu64, (long long)pictures, r->steps);
    put_number(t, "epochs", r->epochs);
    put_number(t, "seconds", r->seconds);
    put_number(t, "images_per_second", r->images_per_second);
    sfp__text_printf(t, ",\n    \"finished\": %s, \"parameters\": %zu", r->finished ? "true" : "false", r->parameters);
    put_number(t, "ncm", r->ncm);
    put_number(t, "knn", r->knn);
    for (int i = 0; i < SFP_TERMS; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "loss_%s", sfp__pretrain_term_name(i));
        put_number(t, key, r->loss[i]);
    }
    sfp__text_put(t, "\n  }");
}

sfp_status sfp__pretrain_write_config(const char *path, const sfp_pretrain_options *o, const sfp_vit_config *c, int64_t pictures,
                                      const sfp_pretrain_result *r, sfp_error *err)
{
    sfp_text t = {0};
    sfp__text_put(&t, "{");
    sfp__vit_put_config(c, &t);
    sfp__text_put(&t, ",\n");
    put_training(&t, o, pictures, r);
    sfp__text_put(&t, "\n}\n");
    sfp_status s = t.failed ? sfp__fail_nomem(err, t.length) : sfp__file_write(path, t.s, t.length, err);
    sfp__text_done(&t);
    return s;
}
