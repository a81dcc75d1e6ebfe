/* Settings (streamfp.h, part 4). */
#include "api/api.h"

#include "base/c_locale.h"
#include "base/mem.h"
#include "base/text.h"
#include "learner/settings.h"

struct sfp_settings {
    sfp__strings pairs; /* key, value, key, value, ... */
};

const sfp_setting_info *sfp_settings_info(int i)
{
    (void)i;
    return NULL;
}

sfp_status sfp_settings_create(sfp_settings **out, sfp_error *err)
{
    IN_C_LOCALE;
    return sfp__alloc(out, 1, sizeof **out, err);
}

void sfp_settings_free(sfp_settings *s)
{
    if (!s)
        return;
    sfp__strings_done(&s->pairs);
    sfp__free(s);
}

sfp_status sfp_settings_set(sfp_settings *s, const char *key, const char *value, sfp_error *err)
{
    IN_C_LOCALE;
    /* checked here, so that the message comes where the mistake is; kept as text, applied when the backbone is known */
    sfp__learner_options scratch = {0};
    const sfp__vit_config plain = {.std = {1, 1, 1}};
    int at = s->pairs.count;
    TRY(sfp__settings_apply(&scratch, &plain, key, value, err));
    OWNED char *k = sfp__strdup(key);
    OWNED char *v = sfp__strdup(value);
    TRY(sfp__check_memory(k && v, err));
    TRY(sfp__strings_resize(&s->pairs, at + 2, err));
    s->pairs.s[at] = TAKE(k);
    s->pairs.s[at + 1] = TAKE(v);
    return SFP_OK;
}

sfp_status sfp__api_learner_options(const sfp_engine *e, const sfp_settings *settings, sfp__learner_options *out,
                                    int *label_queue, sfp_error *err)
{
    const sfp__vit_config *c = &e->vit->config;
    sfp__learner_options o = sfp__learner_options_defaults(e->vit);
    for (int i = 0; i < sfp__settings_count; i++)
        TRY(sfp__settings_apply(&o, c, sfp__settings[i].info.key, sfp__settings[i].info.default_value, err));
    if (o.fp.last_layer >= c->depth)
        o.fp.last_layer = c->depth - 1; /* the default "0-4" on a shallow backbone; what the caller sets is taken as it is */
    for (int i = 0; settings && i < settings->pairs.count; i += 2)
        TRY(sfp__settings_apply(&o, c, settings->pairs.s[i], settings->pairs.s[i + 1], err));
    if (label_queue)
        *label_queue = 1000;
    *out = o;
    return SFP_OK;
}
