/* Routes that add, list, label and forget samples, and that change classes. */
#include "serve/internal.h"

#include "io/image/image.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

enum { LIST_MAX = 1000, LIST_DEFAULT = 50, SIZE_MAX_PX = 1024 };

const char *const sfp__standing_names[5] = {"waiting", "learned", "dropped", "unreadable", "forgotten"};

/* -------------------------------------------------------------- samples as JSON */

static void put_time(sfp__json *j, const char *key, int64_t ms)
{
    char text[40] = "";
    time_t seconds = (time_t)(ms / 1000);
    struct tm utc;
    size_t n = gmtime_r(&seconds, &utc) ? strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc) : 0;
    (void)snprintf(text + n, sizeof text - n, ".%03dZ", (int)(ms % 1000));
    sfp__json_string(j, key, n ? text : NULL);
}

void sfp__json_members(sfp__json *j, const sfp_sample_info *s)
{
    sfp__json_uint(j, "id", s->id);
    sfp__json_string(j, "name", s->name);
    sfp__json_string(j, "standing", sfp__standing_names[s->standing]);
    sfp__json_string(j, "label", s->label);
    sfp__json_string(j, "learned", s->learned);
    sfp__json_string(j, "predicted", s->predicted);
    sfp__json_real(j, "probability", s->probability);
    sfp__json_real(j, "unknown", s->unknown);
    if (s->reason)
        sfp__json_string(j, "reason", s->reason);
    put_time(j, "time", s->arrived);
    sfp__json_bool(j, "has_image", s->has_image);
}

typedef struct listing {
    sfp__json *json;
    const char *key;
    int left;              /* samples that may still be written */
    uint64_t last, only;   /* ids: of the last one written; of the only one to write (UINT64_MAX: all) */
    bool more, some;       /* there are more samples; at least one was written */
    sfp_standing standing; /* of the last one written */
} listing;

static sfp_status put_sample(void *ctx, const sfp_sample_info *s, sfp_error *err)
{
    listing *l = ctx;
    (void)err;
    l->more = l->left == 0;
    if (l->more || (l->only != UINT64_MAX && s->id != l->only))
        return SFP_OK;
    l->left--;
    l->last = s->id;
    l->standing = s->standing;
    l->some = true;
    sfp__json_object(l->json, l->key);
    sfp__json_members(l->json, s);
    sfp__json_end(l->json);
    return SFP_OK;
}

static sfp_status find_sample(sfp__model *m, uint64_t id, listing *l, sfp_error *err)
{
    sfp_sample_filter f = SFP_SAMPLE_FILTER_INIT;
    f.from = id;
    f.limit = 1;
    return sfp_run_samples(sfp__model_run(m), &f, put_sample, l, err);
}

sfp_status sfp__json_sample(sfp__model *m, uint64_t id, sfp__json *j, const char *key, bool *found, sfp_error *err)
{
    listing l = {.json = j, .key = key, .left = 1, .only = id};
    TRY(find_sample(m, id, &l, err));
    *found = l.some;
    return SFP_OK;
}

/* Reads the id in the path of the request. */
static sfp_status get_id(const sfp__request *r, uint64_t *id, sfp_error *err)
{
    int64_t n;
    if (!sfp__parse_int(r->text, &n) || n < 0)
        return sfp__fail(err, SFP_ENOTFOUND, "sample '%.40s' does not exist", r->text);
    *id = (uint64_t)n;
    return SFP_OK;
}

static sfp_status reply_sample(sfp__request *r, uint64_t id, sfp_error *err)
{
    sfp__json j = {.text = &r->reply};
    bool found;
    TRY(sfp__json_sample(r->model, id, &j, NULL, &found, err));
    return found ? SFP_OK : sfp__fail(err, SFP_ENOTFOUND, "sample %llu does not exist, or was forgotten", (unsigned long long)id);
}

/* ---------------------------------------------------------------------- samples */

sfp_status sfp__post_sample(sfp__request *r, sfp_error *err)
{
    OWNED char *label = sfp__request_param(r, "label", 0), *name = sfp__request_param(r, "name", 0);
    OWNED_BY(sfp__text_done) sfp__text answer = {0};
    const sfp__received_image in = {.bytes = r->body.s,
                                    .size = r->body.length,
                                    .name = name,
                                    .label = label,
                                    .key = sfp__request_header(r, "Idempotency-Key")};
    uint64_t id = 0;
    bool repeated = false, unreadable = false;
    if (r->body.length == 0)
        return sfp__fail(err, SFP_EINVAL, "the body is empty, expected an image");
    sfp_status status =
        sfp__submit_image(r->model, sfp__server_events(r->server), &in, &id, &repeated, &unreadable, &answer, err);
    if (unreadable) {
        sfp__reply_error(r, 422, "unreadable_image", err->message);
        return SFP_OK;
    }
    TRY(status);
    r->status = repeated ? 200 : 201;
    sfp__json j = {.text = &r->reply}, none = {0};
    listing l = {.json = &none, .left = 1, .only = id};
    if (repeated) /* the sample of the earlier request may have been learned, dropped or forgotten */
        TRY(find_sample(r->model, id, &l, err));
    bool found = l.some;
    sfp__json_object(&j, NULL);
    sfp__json_uint(&j, "id", id);
    sfp__json_string(&j, "standing", !repeated ? "waiting" : found ? sfp__standing_names[l.standing] : "forgotten");
    sfp__json_raw(&j, "prediction", answer.s ? answer.s : "null");
    sfp__json_end_all(&j);
    return SFP_OK;
}

sfp_status sfp__get_samples(sfp__request *r, sfp_error *err)
{
    OWNED char *standing = sfp__request_param(r, "standing", 0), *label = sfp__request_param(r, "label", 0),
               *predicted = sfp__request_param(r, "predicted", 0);
    sfp_sample_filter f = SFP_SAMPLE_FILTER_INIT;
    int64_t limit = LIST_DEFAULT, after = -1;
    TRY(sfp__request_int(r, "limit", 1, LIST_MAX, &limit, err));
    TRY(sfp__request_int(r, "after", -1, INT64_MAX - 1, &after, err));
    for (int i = 0; standing && i < 4; i++)
        if (strcmp(standing, sfp__standing_names[i]) == 0) {
            f.by_standing = 1;
            f.standing = (sfp_standing)i;
        }
    if (standing && !f.by_standing)
        return sfp__fail_key(err, "standing", SFP_EINVAL, "standing is '%.40s', expected waiting, learned, dropped or unreadable",
                             standing);
    f.unlabelled = label && !*label;
    f.label = label && *label ? label : NULL;
    f.predicted = predicted;
    f.from = (uint64_t)(after + 1);
    f.limit = (int32_t)limit + 1;
    sfp__json j = {.text = &r->reply};
    listing l = {.json = &j, .left = (int)limit, .only = UINT64_MAX};
    sfp__json_object(&j, NULL);
    sfp__json_array(&j, "samples");
    TRY(sfp_run_samples(sfp__model_run(r->model), &f, put_sample, &l, err));
    sfp__json_end(&j);
    if (l.more)
        sfp__json_uint(&j, "next", l.last);
    else
        sfp__json_string(&j, "next", NULL);
    sfp__json_end_all(&j);
    return SFP_OK;
}

sfp_status sfp__get_sample(sfp__request *r, sfp_error *err)
{
    uint64_t id = 0;
    TRY(get_id(r, &id, err));
    return reply_sample(r, id, err);
}

/* Writes an image as PNG, reduced so that its longer side has at most `size` pixels. */
static sfp_status write_thumbnail(const sfp__decoded *d, int size, sfp__text *to, sfp_error *err)
{
    const sfp__image from = {.width = d->image.width, .height = d->image.height, .rgb = d->pixels};
    sfp__image small = {0};
    int longer = from.width > from.height ? from.width : from.height;
    if (longer <= size)
        return sfp__image_encode_png("thumbnail", &from, to, err);
    int w = (int)((int64_t)from.width * size / longer), h = (int)((int64_t)from.height * size / longer);
    TRY(sfp__image_resize(&from, w > 0 ? w : 1, h > 0 ? h : 1, SFP__FILTER_BILINEAR, &small, err));
    sfp_status status = sfp__image_encode_png("thumbnail", &small, to, err);
    sfp__image_done(&small);
    return status;
}

sfp_status sfp__get_sample_image(sfp__request *r, sfp_error *err)
{
    OWNED_BY(sfp__decoded_done) sfp__decoded decoded = {0};
    void *bytes = NULL;
    size_t size = 0;
    uint64_t id = 0;
    int64_t side = 0;
    TRY(get_id(r, &id, err));
    TRY(sfp__request_int(r, "size", 8, SIZE_MAX_PX, &side, err));
    TRY(sfp_run_sample_image(sfp__model_run(r->model), id, &bytes, &size, err));
    const uint8_t *b = bytes;
    sfp_status status = SFP_OK;
    if (side) {
        status = sfp__serve_decode(bytes, size, &decoded, err);
        status = status ? status : write_thumbnail(&decoded, (int)side, &r->reply, err);
        r->type = "image/png";
    } else {
        sfp__text_putn(&r->reply, bytes, size);
        r->type = size > 3 && b[0] == 0xff ? "image/jpeg" : size > 3 && b[0] == 'R' ? "image/webp" : "image/png";
    }
    sfp_free(bytes);
    sfp__reply_header(r, "Cache-Control", "private, max-age=86400, immutable"); /* the image of an id never changes */
    sfp__reply_header(r, "Content-Security-Policy", "default-src 'none'");
    return status;
}

/* The value of a member that is a string; NULL: there is no such member, or it is not a string. */
static const char *get_text(const sfp__json_value *root, const char *key)
{
    return sfp__json_text(sfp__json_get(root, key));
}

sfp_status sfp__put_label(sfp__request *r, sfp_error *err)
{
    OWNED sfp__json_value *root = NULL;
    uint64_t id = 0;
    TRY(get_id(r, &id, err));
    TRY(sfp__request_json(r, &root, err));
    const char *label = get_text(root, "label");
    if (sfp__json_is(sfp__json_get(root, "label"), SFP__JSON_NULL))
        return sfp__fail_key(
            err, "label", SFP_EINVAL,
            "label is null, expected the name of a class; DELETE the sample with again=1 to forget it and its label, and send "
            "it again without one");
    if (!label)
        return sfp__fail_key(err, "label", SFP_EINVAL, "label is missing, expected {\"label\": \"CLASS\"}");
    sfp_status status = sfp_run_label(sfp__model_run(r->model), id, label, err);
    if (status == SFP_ELIMIT) {
        sfp__reply_error(r, 410, "image_removed", err->message);
        return SFP_OK;
    }
    TRY(status);
    sfp__model_watch(r->model, id);
    sfp__events_sample(sfp__server_events(r->server), r->model, id);
    return reply_sample(r, id, err);
}

sfp_status sfp__delete_sample(sfp__request *r, sfp_error *err)
{
    uint64_t id = 0;
    int64_t again = 0;
    TRY(get_id(r, &id, err));
    TRY(sfp__request_int(r, "again", 0, 1, &again, err));
    TRY(sfp_run_forget_sample(sfp__model_run(r->model), id, (int)again, err));
    r->status = 204;
    sfp__events_sample(sfp__server_events(r->server), r->model, id);
    return SFP_OK;
}

/* ---------------------------------------------------------------------- classes */

static sfp_status put_class(void *ctx, const char *name, int64_t samples, sfp_error *err)
{
    sfp__json *j = ctx;
    (void)err;
    sfp__json_object(j, NULL);
    sfp__json_string(j, "name", name);
    sfp__json_int(j, "samples", samples);
    sfp__json_end(j);
    return SFP_OK;
}

sfp_status sfp__post_class(sfp__request *r, sfp_error *err)
{
    OWNED sfp__json_value *root = NULL;
    TRY(sfp__request_json(r, &root, err));
    const char *name = get_text(root, "name");
    if (!name)
        return sfp__fail_key(err, "name", SFP_EINVAL, "name is missing, expected {\"name\": \"CLASS\"}");
    TRY(sfp_run_add_class(sfp__model_run(r->model), name, err));
    sfp__json j = {.text = &r->reply};
    return put_class(&j, name, 0, err);
}

sfp_status sfp__patch_class(sfp__request *r, sfp_error *err)
{
    OWNED sfp__json_value *root = NULL;
    TRY(sfp__request_json(r, &root, err));
    const char *to = get_text(root, "rename"), *into = get_text(root, "merge_into");
    if (!to == !into)
        return sfp__fail_key(err, "rename", SFP_EINVAL,
                             "rename or merge_into is missing, expected one of them with the name of a class");
    TRY(sfp_run_rename_class(sfp__model_dir(r->model), r->text, to ? to : into, into != NULL, err));
    sfp__json j = {.text = &r->reply};
    sfp__json_object(&j, NULL);
    sfp__json_string(&j, "name", to ? to : into);
    sfp__json_end_all(&j);
    return SFP_OK;
}

sfp_status sfp__delete_class(sfp__request *r, sfp_error *err)
{
    TRY(sfp_run_remove_class(sfp__model_dir(r->model), r->text, err));
    r->status = 204;
    return SFP_OK;
}
