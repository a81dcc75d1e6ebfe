/* A source restricted to a list of classes: it has only the images of these classes, with their numbers in the list. The classes
 * of a state and of a dataset are matched by name, because their order may differ. */
#include "stream/source_internal.h"
#include "stream/tasks.h"

#include <stdio.h>

static sfp_status filter_record(const sfp_source *s, int64_t i, sfp_record *out, sfp_error *err)
{
    const sfp__class_filter *f = (const sfp__class_filter *)s;
    sfp_record r;
    TRY(sfp__source_record(f->inner, f->index[i], &r, err));
    r.label = f->label_of[r.label];
    *out = r;
    return SFP_OK;
}

static sfp_status filter_load(const sfp_source *s, int64_t i, sfp__raw_image *out, sfp_error *err)
{
    const sfp__class_filter *f = (const sfp__class_filter *)s;
    return sfp__source_load(f->inner, f->index[i], out, err);
}

static const char *filter_name(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    const sfp__class_filter *f = (const sfp__class_filter *)s;
    return sfp__source_name(f->inner, f->index[i], buf, size);
}

static const char *filter_display_name(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    const sfp__class_filter *f = (const sfp__class_filter *)s;
    return sfp__source_display_name(f->inner, f->index[i], buf, size);
}

static void filter_close(sfp_source *s)
{
    sfp__class_filter *f = (sfp__class_filter *)s;
    sfp__source_close(f->inner);
    sfp__free(f->index);
    sfp__free(f->label_of);
    sfp__free(f->foreign);
}

static const sfp__source_ops filter_ops = {
    .record = filter_record,
    .load = filter_load,
    .name = filter_name,
    .display_name = filter_display_name,
    .close = filter_close,
};

/* Sets class_names to the list, and label_of to the place of each class of the inner source in it. */
static sfp_status match(sfp__class_filter *f, const sfp_source *inner, int classes, const char *const *names, sfp_error *err)
{
    OWNED_BY(sfp__names_done) sfp__names table = {0};
    char number[16], shown[SFP__NAME_MAX];
    for (int c = 0; c < classes; c++) {
        (void)snprintf(number, sizeof number, "%d", c);
        const char *name = names[c] ? names[c] : number;
        int32_t at = 0;
        TRY(sfp__names_add(&table, name, strlen(name), &at, err));
        if (at != c)
            return sfp__fail(err, SFP_EFORMAT, "classes %d and %d have the same name '%s'", at, c,
                             sfp__printable(name, shown, sizeof shown));
    }
    for (int c = 0; c < inner->classes; c++)
        f->label_of[c] = sfp__names_find(&table, inner->class_names[c], strlen(inner->class_names[c]));
    sfp__names_give(&table, &f->base.class_names, &f->base.classes);
    return SFP_OK;
}

static sfp_status list_images(sfp__class_filter *f, const sfp_source *inner, sfp_error *err)
{
    f->base.count = 0;
    for (int64_t i = 0; i < inner->count; i++) {
        sfp_record r;
        TRY(sfp__source_record(inner, i, &r, err));
        if (r.label < 0)
            f->unlabelled++;
        else if (f->label_of[r.label] < 0)
            f->foreign[r.label]++;
        else
            f->index[f->base.count++] = i;
    }
    return SFP_OK;
}

sfp_status sfp__class_filter_open(sfp_source *inner, int classes, const char *const *names, sfp__class_filter **out,
                                  sfp_error *err)
{
    if (inner->kind->live || inner->count < 0)
        return sfp__fail(err, SFP_EUNSUPPORTED, "%s:%s: live source, expected a dataset", inner->kind->name, inner->path);
    OWNED_PTR(sfp__source_close) sfp_source *s = NULL;
    TRY(sfp__source_create(sizeof(sfp__class_filter), inner->kind, &filter_ops, inner->path, &s, err));
    sfp__class_filter *f = (sfp__class_filter *)s;
    TRY(sfp__alloc(&f->index, (size_t)inner->count, sizeof *f->index, err));
    TRY(sfp__alloc(&f->label_of, (size_t)inner->classes, sizeof *f->label_of, err));
    TRY(sfp__alloc(&f->foreign, (size_t)inner->classes, sizeof *f->foreign, err));
    TRY(match(f, inner, classes, names, err));
    TRY(sfp__alloc(&s->domain_names, (size_t)inner->domains, sizeof *s->domain_names, err));
    for (; s->domains < inner->domains; s->domains++)
        TRY(sfp__check_memory((s->domain_names[s->domains] = sfp__strdup(inner->domain_names[s->domains])), err));
    TRY(list_images(f, inner, err));
    s->keeps_order = inner->keeps_order;
    f->inner = inner; /* last, because the caller keeps it on failure */
    *out = (sfp__class_filter *)TAKE(s);
    return SFP_OK;
}
