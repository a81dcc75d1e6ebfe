/* submitted - samples that a program submits while the run learns (stream/submitted.h, sfp_run_submit): a live source.
 *
 * The store of samples contains a sample and its image before its submission is acknowledged. This source delivers the samples that wait in the
 * store: first those that an earlier process has left, then those whose ids are offered. Therefore a sample is learned exactly once, even if a
 * process is killed, and none is dropped: if samples are submitted faster than they are learned, they wait on the disk. */
#include "stream/submitted.h"

#include "stream/source_internal.h"

#include <string.h>

typedef struct submitted {
    sfp_source base;
    sfp__source_live live;
    sfp__names classes; /* with reserved memory, because other threads read the list */
    sfp__store *store;  /* NULL: next was not called yet */
    int64_t pending;    /* waiting samples of an earlier process up to this id were delivered; INT64_MAX: all of them */
    uint64_t redeliveries;
    sfp__stored last; /* the sample that `next` has delivered last */
    sfp__offers offers;
} submitted;

static submitted *of(sfp_source *base)
{
    return (submitted *)base;
}

/* Finds the next sample; *some false: there is none now. */
static sfp_status take(submitted *s, sfp__stored *row, bool *some, sfp_error *err)
{
    uint64_t id = 0, redeliveries = sfp__store_redeliveries(s->store);
    if (redeliveries != s->redeliveries)
        s->pending = -1;
    s->redeliveries = redeliveries;
    if (s->pending < INT64_MAX && !sfp__offers_paused(&s->offers)) {
        TRY(sfp__store_next_pending(s->store, s->pending, row, some, err));
        s->pending = *some ? (int64_t)row->id : INT64_MAX;
        if (*some)
            return SFP_OK;
    }
    *some = sfp__offers_take(&s->offers, true, &id);
    return *some ? sfp__store_get(s->store, id, row, err) : SFP_OK;
}

static sfp_status next(sfp_source *base, sfp_record *record, sfp__raw_image *out, bool *end, sfp_error *err)
{
    submitted *s = of(base);
    s->live.lost = false;
    for (;;) {
        OWNED_BY(sfp__stored_done) sfp__stored row = {0};
        bool some = false;
        *end = !s->store || (s->live.stop && atomic_load(s->live.stop));
        if (*end)
            return SFP_OK;
        TRY(take(s, &row, &some, err));
        if (!some || row.standing != SFP__WAITING || (row.predicted && !row.label))
            continue; /* the sample has been delivered meanwhile, or was forgotten */
        *record = sfp__record_none();
        if (row.label)
            TRY(sfp__names_add(&s->classes, row.label, strlen(row.label), &record->label, err));
        base->classes = s->classes.count;
        sfp__stored_done(&s->last);
        s->last = TAKE(row);
        out->kind = SFP__RAW_IMAGE_ENCODED;
        sfp_status status = sfp__store_image(s->store, s->last.id, &out->bytes, &out->size, err);
        s->live.lost = status == SFP_ENOTFOUND;
        return status;
    }
}

static void origin(const sfp_source *base, sfp__origin *out)
{
    const sfp__stored *last = &((const submitted *)base)->last;
    *out = (sfp__origin){.name = last->name, .stored = true, .id = last->id, .urgent = true};
}

static sfp_status set_store(sfp_source *base, sfp__store *store, sfp_error *err)
{
    (void)err;
    of(base)->store = store;
    of(base)->pending = -1;
    return SFP_OK;
}

static sfp_status image(sfp_source *base, const sfp__stored *row, sfp__raw_image *out, sfp_error *err)
{
    out->kind = SFP__RAW_IMAGE_ENCODED;
    return sfp__store_image(of(base)->store, row->id, &out->bytes, &out->size, err);
}

static const char *name_of(const sfp_source *base, int64_t i, char *buf, size_t size)
{
    const submitted *s = (const submitted *)base;
    (void)i; /* a live source has no numbers: the last sample */
    return sfp__printable(s->last.name ? s->last.name : base->path, buf, size);
}

static void close_submitted(sfp_source *base)
{
    submitted *s = of(base);
    base->class_names = NULL; /* the list belongs to s->classes */
    base->classes = 0;
    sfp__names_done(&s->classes);
    sfp__stored_done(&s->last);
    sfp__offers_done(&s->offers);
}

static const sfp__source_ops ops = {
    .name = name_of,
    .next = next,
    .origin = origin,
    .set_store = set_store,
    .image = image,
    .pauses = true,
    .close = close_submitted,
};

/* Opens the source. path: a file with the names of the classes; "": none. */
static sfp_status open_submitted(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err)
{
    (void)opt;
    OWNED_PTR(sfp__source_close) sfp_source *base = NULL;
    TRY(sfp__source_create(sizeof(submitted), &sfp__source_submitted, &ops, *path ? path : "submitted", &base, err));
    submitted *s = of(base);
    sfp__offers_init(&s->offers);
    if (*path)
        TRY(sfp__names_read(path, &s->classes, err));
    TRY(sfp__names_reserve(&s->classes, err));
    base->live = &s->live;
    s->live.offers = &s->offers;
    base->keeps_order = true;
    base->class_names = s->classes.name;
    base->classes = s->classes.count;
    *out = TAKE(base);
    return SFP_OK;
}

const sfp__source_kind sfp__source_submitted = {
    .name = "submitted",
    .summary = "samples that a program submits (streamfp serve); submitted:classes.txt names the classes",
    .live = true,
    .open = open_submitted,
};
