/* Sources (streamfp.h, part 7): the library's own, and sources that a program defines with callbacks.
 *
 * The public type sfp_source is the struct of stream/source.h. A source of the program is a further kind of source. The
 * operations below call its callbacks, copy each image and check all returned values. */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"
#include "base/monotonic.h"
#include "stream/source_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ------------------------------------------------------------------------------------------------ sources of the library */

sfp_status sfp_source_open(const char *spec, const sfp_source_options *options, sfp_source **out, sfp_error *err)
{
    IN_LIBRARY;
    sfp_source_options o;
    SFP__REQUIRE(spec && out, "spec and out");
    TRY(sfp__api_options(options, &o, sizeof o, "sfp_source_options", err));
    const sfp__source_options open = {.test = o.test, .seed = o.seed, .order = o.order};
    return sfp__source_open(spec, &open, out, err);
}

void sfp_source_close(sfp_source *s)
{
    sfp__source_close(s);
}

int sfp_source_kind(int i, const char **name, const char **summary, int *live)
{
    int known = 0;
    while (sfp__source_kinds[known] && known < i)
        known++;
    const sfp__source_kind *kind = i < 0 ? NULL : sfp__source_kinds[known];
    if (!kind)
        return 0;
    if (name)
        *name = kind->name;
    if (summary)
        *summary = kind->summary;
    if (live)
        *live = kind->live;
    return 1;
}

int sfp_source_is_live(const sfp_source *s)
{
    return s->live != NULL;
}

int sfp_source_has_test_part(const sfp_source *s)
{
    return s->test_part;
}

int sfp_source_is_seeded(const sfp_source *s)
{
    return s->seeded;
}

int64_t sfp_source_count(const sfp_source *s)
{
    return s->live ? -1 : s->count;
}

int sfp_source_classes(const sfp_source *s)
{
    return s->classes;
}

const char *sfp_source_class_name(const sfp_source *s, int label)
{
    return label >= 0 && label < s->classes ? s->class_names[label] : NULL;
}

int sfp_source_domains(const sfp_source *s)
{
    return s->domains;
}

const char *sfp_source_domain_name(const sfp_source *s, int domain)
{
    return domain >= 0 && domain < s->domains ? s->domain_names[domain] : NULL;
}

const char *sfp_source_warning(const sfp_source *s)
{
    return s->warning;
}

/* --------------------------------------------------------------------------------------------------------------- reading */

sfp_status sfp_source_read(const sfp_source *s, int64_t i, sfp_record *record, sfp_image *image, sfp_error *err)
{
    IN_LIBRARY;
    static const int32_t formats[] = {[SFP__RAW_IMAGE_ENCODED] = SFP_IMAGE_ENCODED,
                                      [SFP__RAW_IMAGE_RGB] = SFP_IMAGE_RGB,
                                      [SFP__RAW_IMAGE_GREY] = SFP_IMAGE_GREY,
                                      [SFP__RAW_IMAGE_ROW] = SFP_IMAGE_FEATURES};
    sfp_record r = {0};
    sfp__raw_image p = {0};
    SFP__REQUIRE(s, "source");
    if (s->live)
        return sfp__fail(err, SFP_EINVAL, "%s:%s: live source, expected an indexed one: it has no image %lld", s->kind->name,
                         s->path, (long long)i);
    if (record || !image)
        TRY(sfp__source_record(s, i, &r, err));
    if (image)
        TRY(sfp__source_load(s, i, &p, err));
    if (record)
        *record = r;
    if (!image)
        return SFP_OK;
    if (p.kind == SFP__RAW_IMAGE_ROW)
        p.width = (int)(p.size / sizeof(float));
    *image = (sfp_image){.format = formats[p.kind], .width = p.width, .height = p.height, .data = p.bytes, .bytes = p.size};
    if (p.has_box)
        memcpy(image->box, p.box, sizeof image->box);
    return SFP_OK;
}

void sfp_source_release(const sfp_source *s, sfp_image *image)
{
    (void)s;
    if (!image)
        return;
    sfp__free((void *)(uintptr_t)image->data); /* sfp_source_read allocated it */
    *image = (sfp_image){0};
}

/* ------------------------------------------------------------------------------------------------ sources of the program */

typedef struct own_source {
    sfp_source base;
    sfp__source_live live;
    sfp_source_definition def; /* callbacks are NULL until the source is complete */
    /* live */
    sfp__names names;                  /* classes so far; base.class_names is its list, which never moves */
    uint64_t delivered;                /* number of items so far */
    char key[SFP__PATH_BYTES_MAX + 1]; /* of the last item, or its number */
    bool ended;
    sfp_error failure; /* of next, which is not called again; status SFP_OK: none */
} own_source;

static void close_own(sfp_source *base)
{
    own_source *s = (own_source *)base;
    if (base->live) { /* the list belongs to s->names */
        base->class_names = NULL;
        base->classes = 0;
    }
    sfp__names_done(&s->names);
    if (s->def.close)
        s->def.close(s->def.ctx);
}

static const char *name_indexed(const sfp_source *base, int64_t i, char *buf, size_t size)
{
    (void)snprintf(buf, size, "%s[%lld]", base->path, (long long)i);
    return buf;
}

static sfp_status check_record(const sfp_source *s, int64_t i, const sfp_record *r, sfp_error *err)
{
    const struct {
        const char *name;
        int32_t value, end;
    } list[] = {{"label", r->label, s->classes}, {"domain", r->domain, s->domains}, {"task", r->task, INT32_MAX}};
    for (size_t k = 0; k < sizeof list / sizeof *list; k++)
        if (list[k].value < -1 || list[k].value >= list[k].end)
            return sfp__fail(err, SFP_EINVAL, "%s[%lld]: %s is %d, expected -1 to %d", s->path, (long long)i, list[k].name,
                             list[k].value, list[k].end - 1);
    if (isinf(r->time))
        return sfp__fail(err, SFP_EINVAL, "%s[%lld]: time is infinite, expected a finite number or NaN", s->path, (long long)i);
    return SFP_OK;
}

static sfp_status record_own(const sfp_source *base, int64_t i, sfp_record *out, sfp_error *err)
{
    const own_source *s = (const own_source *)base;
    sfp_record r = sfp__record_none();
    sfp_error why = {0};
    char where[SFP__NAME_MAX];
    sfp_status status = s->def.record(s->def.ctx, i, &r, &why);
    if (status)
        return sfp__api_callback_failed(status, &why, name_indexed(base, i, where, sizeof where), err);
    TRY(check_record(base, i, &r, err));
    *out = r;
    return SFP_OK;
}

static sfp_status load_own(const sfp_source *base, int64_t i, sfp__raw_image *out, sfp_error *err)
{
    const own_source *s = (const own_source *)base;
    sfp_image image = {0};
    sfp_error why = {0};
    char where[SFP__NAME_MAX];
    (void)name_indexed(base, i, where, sizeof where);
    sfp_status status = s->def.load(s->def.ctx, i, &image, &why);
    if (status)
        return sfp__api_callback_failed(status, &why, where, err);
    status = sfp__api_raw_image(&image, where, out, err);
    if (s->def.release)
        s->def.release(s->def.ctx, &image);
    return status;
}

/* ------------------------------------------------------------------------------------------------------------------ live */

/* Sets s->key to the key of the item or, if it has none, to its number. */
static sfp_status set_key(own_source *s, const sfp_live_item *item, sfp_error *err)
{
    uint64_t number = s->delivered++;
    (void)snprintf(s->key, sizeof s->key, "%.400s[%llu]", s->base.path, (unsigned long long)number);
    size_t n = item->key ? strnlen(item->key, sizeof s->key) : 0;
    if (n >= sizeof s->key)
        return sfp__fail(err, SFP_ELIMIT, "%s: key has more than %d bytes", s->key, SFP__PATH_BYTES_MAX);
    if (n > 0)
        memcpy(s->key, item->key, n + 1);
    return SFP_OK;
}

/* The name of the last item in messages. */
static const char *display_live(const sfp_source *base, int64_t i, char *buf, size_t size)
{
    const own_source *s = (const own_source *)base;
    char key[SFP__NAME_MAX];
    (void)i;
    (void)snprintf(buf, size, "%s: %s", base->path, sfp__printable(s->key, key, sizeof key));
    return buf;
}

static const char *name_live(const sfp_source *base, int64_t i, char *buf, size_t size)
{
    (void)i;
    return sfp__printable(((const own_source *)base)->key, buf, size);
}

static void origin_live(const sfp_source *base, sfp__origin *out)
{
    *out = (sfp__origin){.name = ((const own_source *)base)->key};
}

/* Reports a failure now and in every later call: next is not called again. */
static sfp_status fail_source(own_source *s, sfp_status status, const sfp_error *why, sfp_error *err)
{
    s->failure = *why;
    s->failure.status = status;
    return sfp__fail(err, status, "%s", why->message);
}

static sfp_status convert_item(own_source *s, const sfp_live_item *item, sfp_record *record, sfp__raw_image *out, sfp_error *err)
{
    sfp_record r = sfp__record_none();
    sfp__raw_image p = {0};
    char where[SFP__NAME_MAX];
    TRY(set_key(s, item, err));
    (void)display_live(&s->base, -1, where, sizeof where);
    if (!item->image.data && !(item->key && *item->key && item->class_name))
        return sfp__fail(err, SFP_EINVAL, "%s: item has no image, expected a key and a class name: the label of an earlier image",
                         where);
    if (item->image.data)
        TRY(sfp__api_raw_image(&item->image, where, &p, err));
    sfp_status status =
        item->class_name ? sfp__names_add(&s->names, item->class_name, strlen(item->class_name), &r.label, err) : SFP_OK;
    if (status) {
        sfp__raw_image_done(&p);
        return sfp__fail_prefix(err, status, "%s: class name", where);
    }
    s->base.classes = s->names.count;
    *record = r;
    *out = p;
    return SFP_OK;
}

/* An image that cannot be used is skipped. A label that cannot be used fails the source. */
static sfp_status take_item(own_source *s, const sfp_live_item *item, sfp_record *record, sfp__raw_image *out, sfp_error *err)
{
    sfp_error why = {0};
    sfp_status status = convert_item(s, item, record, out, &why);
    if (!status)
        return SFP_OK;
    s->live.lost = item->image.data && status != SFP_ENOMEM;
    return s->live.lost ? sfp__fail(err, status, "%s", why.message) : fail_source(s, status, &why, err);
}

/* Sleeps if the callback has returned at once without an item; otherwise a loop of such calls would keep a core busy. */
static void wait_after(double begin)
{
    static const double quick = 1e-3;
    if (sfp__monotonic_seconds() - begin < quick)
        (void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static sfp_status next_live(sfp_source *base, sfp_record *record, sfp__raw_image *out, bool *end, sfp_error *err)
{
    own_source *s = (own_source *)base;
    s->live.lost = *end = false;
    if (s->failure.status)
        return sfp__fail(err, s->failure.status, "%s", s->failure.message);
    while (!s->ended && !(s->live.stop && atomic_load(s->live.stop))) {
        sfp_live_item item = {0};
        sfp_error why = {0};
        int got = 0, ended = 0;
        double begin = sfp__monotonic_seconds();
        sfp_status status = s->def.next(s->def.ctx, &item, &got, &ended, &why);
        if (status) {
            sfp_error named = {0};
            status = sfp__api_callback_failed(status, &why, base->path, &named);
            return fail_source(s, status, &named, err);
        }
        s->ended = ended;
        if (got)
            return take_item(s, &item, record, out, err);
        if (!ended)
            wait_after(begin);
    }
    *end = true;
    return SFP_OK;
}

/* -------------------------------------------------------------------------------------------------------------- creating */

static sfp_status check_definition(const sfp_source_definition *d, sfp_error *err)
{
    char name[SFP__NAME_MAX];
    if (!d->name || !*d->name)
        return sfp__fail(err, SFP_EINVAL, "sfp_source_definition: name is empty, expected a name for messages");
    (void)sfp__printable(d->name, name, sizeof name);
    bool indexed = d->record || d->load || d->release || d->count > 0 || d->classes || d->domains;
    if (d->next)
        return indexed ? sfp__fail(err, SFP_EINVAL,
                                   "source '%s': next and indexed members are both set, expected next alone (live), or count, "
                                   "record and load (indexed)",
                                   name)
                       : SFP_OK;
    if (!d->record || !d->load)
        return sfp__fail(err, SFP_EINVAL,
                         "source '%s': %s is NULL, expected count, record and load (indexed), or next alone (live)", name,
                         !d->record ? "record" : "load");
    if (d->count < 0 || d->count > SFP__RECORDS_MAX)
        return sfp__fail(err, SFP_EINVAL, "source '%s': count is %lld, expected 0 to %lld; a live source has a callback next",
                         name, (long long)d->count, (long long)SFP__RECORDS_MAX);
    return SFP_OK;
}

/* Copies the names of classes or domains (`what`), which must be different. */
static sfp_status copy_names(const char *source, const char *what, int32_t count, const char *const *names, sfp__names *out,
                             sfp_error *err)
{
    if (count < 0 || count > SFP__CLASSES_MAX)
        return sfp__fail(err, SFP_EINVAL, "source '%s': number of %s is %d, expected 0 to %d", source, what, count,
                         SFP__CLASSES_MAX);
    if (count > 0 && !names)
        return sfp__fail(err, SFP_EINVAL, "source '%s': names of %s are NULL, expected %d names", source, what, count);
    for (int32_t i = 0; i < count; i++) {
        int32_t at = -1;
        if (!names[i])
            return sfp__fail(err, SFP_EINVAL, "source '%s': name %d of %s is NULL", source, i, what);
        sfp_status status = sfp__names_add(out, names[i], strlen(names[i]), &at, err);
        if (status)
            return sfp__fail_prefix(err, status == SFP_ENOMEM ? status : SFP_EINVAL, "source '%s': name %d of %s", source, i,
                                    what);
        if (at != i)
            return sfp__fail(err, SFP_EINVAL, "source '%s': names %d and %d of %s are equal, expected different names", source,
                             at, i, what);
    }
    return SFP_OK;
}

static sfp_status make_source(const sfp_source_definition *d, sfp_source **out, sfp_error *err)
{
    static const sfp__source_kind indexed_kind = {.name = "source", .summary = "images of a program"};
    static const sfp__source_kind live_kind = {.name = "source", .summary = "images of a program", .live = true};
    static const sfp__source_ops indexed_ops = {.record = record_own, .load = load_own, .name = name_indexed, .close = close_own};
    static const sfp__source_ops live_ops = {
        .next = next_live, .name = name_live, .display_name = display_live, .origin = origin_live, .close = close_own};
    OWNED_PTR(sfp__source_close) sfp_source *base = NULL;
    OWNED_BY(sfp__names_done) sfp__names classes = {0};
    OWNED_BY(sfp__names_done) sfp__names domains = {0};
    char name[SFP__NAME_MAX];
    TRY(check_definition(d, err));
    (void)sfp__printable(d->name, name, sizeof name);
    TRY(copy_names(name, "classes", d->classes, d->class_names, &classes, err));
    TRY(copy_names(name, "domains", d->domains, d->domain_names, &domains, err));
    TRY(sfp__source_create(sizeof(own_source), d->next ? &live_kind : &indexed_kind, d->next ? &live_ops : &indexed_ops, name,
                           &base, err));
    own_source *s = (own_source *)base;
    if (d->next) {
        TRY(sfp__names_reserve(&s->names, err));
        base->live = &s->live;
        base->class_names = s->names.name;
        base->keeps_order = true;
    } else {
        base->count = d->count;
        base->keeps_order = d->keeps_order;
        sfp__names_give(&classes, &base->class_names, &base->classes);
        sfp__names_give(&domains, &base->domain_names, &base->domains);
    }
    s->def = *d; /* from here on closing the source calls d->close */
    *out = TAKE(base);
    return SFP_OK;
}

sfp_status sfp_source_create(const sfp_source_definition *definition, sfp_source **out, sfp_error *err)
{
    IN_LIBRARY;
    sfp_source_definition d;
    SFP__REQUIRE(definition, "definition");
    TRY(sfp__api_options(definition, &d, sizeof d, "sfp_source_definition", err));
    sfp_status status = out ? make_source(&d, out, err) : sfp__fail(err, SFP_EINVAL, "out must not be NULL");
    if (status && d.close)
        d.close(d.ctx);
    return status;
}
