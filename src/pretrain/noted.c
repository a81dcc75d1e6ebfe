#include "pretrain/noted.h"

#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PREFIX "option."
#define WHOLE(name, field, decides)                                 \
    {                                                               \
        name, offsetof(sfp_pretrain_options, field), false, decides \
    }
#define REAL(name, field, decides)                                 \
    {                                                              \
        name, offsetof(sfp_pretrain_options, field), true, decides \
    }

const sfp_pretrain_number sfp__pretrain_numbers[] = {
    WHOLE("img-size", img_size, true),
    WHOLE("patch", patch_size, true),
    WHOLE("dim", dim, true),
    WHOLE("depth", depth, true),
    WHOLE("heads", heads, true),
    WHOLE("hidden", hidden, true),
    WHOLE("picture-size", picture_size, true),
    WHOLE("teacher-grid", teacher_grid, true),
    WHOLE("epochs", epochs, false),
    REAL("seconds", seconds, false),
    WHOLE("batch", batch, true),
    REAL("lr", lr, true),
    REAL("weight-decay", weight_decay, true),
    REAL("warmup", warmup, true),
    REAL("clip", clip, true),
    REAL("beta2", beta2, true),
    REAL("ema", ema, true),
    WHOLE("views", views, true),
    REAL("crop", crop_least, true),
    REAL("jitter", jitter, true),
    REAL("mixup", mixup, true),
    REAL("smoothing", smoothing, true),
    REAL("weight-label", weight_label, true),
    REAL("weight-class", weight_class, true),
    REAL("weight-patch", weight_patch, true),
    REAL("weight-logits", weight_logits, true),
    REAL("temperature", temperature, true),
    REAL("checkpoint-every", checkpoint_seconds, false),
    REAL("score-every", score_seconds, false),
    WHOLE("score-pictures", score_pictures, false),
};
#undef WHOLE
#undef REAL

enum { TEXTS = 3 }; /* seed, teacher, data */
_Static_assert(sizeof sfp__pretrain_numbers / sizeof *sfp__pretrain_numbers + TEXTS <= SFP_PRETRAIN_NOTES_MAX,
               "no room for the notes");

const size_t sfp__pretrain_number_count = sizeof sfp__pretrain_numbers / sizeof *sfp__pretrain_numbers;

static sfp_pretrain_note *add(sfp_pretrain_note *list, size_t *n, const char *name)
{
    sfp_pretrain_note *note = &list[(*n)++];
    *note = (sfp_pretrain_note){0};
    (void)snprintf(note->key, sizeof note->key, PREFIX "%s", name);
    return note;
}

static void add_text(sfp_pretrain_note *list, size_t *n, const char *name, const char *text)
{
    if (!text || sfp__utf8_valid(text)) /* metadata is UTF-8: another name goes without a note */
        add(list, n, name)->text = text ? text : "";
}

size_t sfp__pretrain_notes(const sfp_pretrain_options *o, sfp_pretrain_note *out)
{
    size_t n = 0;
    for (size_t i = 0; i < sfp__pretrain_number_count; i++) {
        const sfp_pretrain_number *p = &sfp__pretrain_numbers[i];
        const void *at = (const char *)o + p->offset;
        if (!p->decides)
            continue;
        sfp_pretrain_note *note = add(out, &n, p->name);
        if (p->real)
            (void)snprintf(note->number, sizeof note->number, "%.12g", *(const double *)at);
        else
            (void)snprintf(note->number, sizeof note->number, "%d", *(const int *)at);
    }
    (void)snprintf(add(out, &n, "seed")->number, sizeof out->number, "%" PRIu64, o->seed);
    add_text(out, &n, "teacher", o->teacher);
    add_text(out, &n, "data", o->data);
    return n;
}

sfp_status sfp__pretrain_is_other(const sfp_safetensors *f, const sfp_pretrain_options *o, sfp_error *err)
{
    sfp_pretrain_note list[SFP_PRETRAIN_NOTES_MAX];
    const char *path = sfp__safetensors_path(f);
    bool told = false;
    for (size_t i = 0, n = sfp__pretrain_notes(o, list); i < n; i++) {
        const char *was = sfp__safetensors_meta(f, list[i].key), *now = list[i].text ? list[i].text : list[i].number;
        const char *name = list[i].key + strlen(PREFIX);
        char shown[SFP_NAME_MAX];
        told = told || was;
        if (!was || strcmp(was, now) == 0)
            continue;
        if (!*was)
            return sfp__fail(err, SFP_EINVAL, "%s: was made without %s, now it is %s", path, name, now);
        (void)sfp__printable(was, shown, sizeof shown);
        if (!*now)
            return sfp__fail(err, SFP_EINVAL, "%s: was made with %s %s, now there is none", path, name, shown);
        return sfp__fail(err, SFP_EINVAL, "%s: was made with %s %s, now it is %s", path, name, shown, now);
    }
    return sfp__fail(err, SFP_EINVAL, "%s: was made with other %s; give the same ones, or another --out", path,
                     told ? "pictures, labels or teacher's weights than are there now" : "options or data");
}
