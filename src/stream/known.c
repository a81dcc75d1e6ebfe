#include "stream/known.h"

#include "base/mem.h"
#include "stream/source_internal.h"

#include <stdio.h>
#include <string.h>

static sfp_status known_record(const sfp_source *s, int64_t i, sfp_record *out, sfp_error *err)
{
    const sfp_known_source *k = (const sfp_known_source *)s;
    sfp_record r;
    sfp_status status = sfp__source_check_index(s, i, err);
    if (!status)
        status = k->inner->record(k->inner, k->index[i], &r, err);
    if (status)
        return status;
    r.label = k->label_of[r.label];
    *out = r;
    return SFP_OK;
}

static sfp_status known_load(const sfp_source *s, int64_t i, sfp_picture *out, sfp_error *err)
{
    const sfp_known_source *k = (const sfp_known_source *)s;
    sfp_status status = sfp__source_check_index(s, i, err);
    return status ? status : k->inner->load(k->inner, k->index[i], out, err);
}

static const char *known_name(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    const sfp_known_source *k = (const sfp_known_source *)s;
    return k->inner->name(k->inner, k->index[i], buf, size);
}

static const char *known_where(const sfp_source *s, int64_t i, char *buf, size_t size)
{
    const sfp_known_source *k = (const sfp_known_source *)s;
    return sfp__source_where(k->inner, k->index[i], buf, size);
}

/* Without the inner source: what opening made itself. */
static void drop(sfp_known_source *k)
{
    if (!k)
        return;
    sfp__source_done(&k->base);
    sfp__free(k->index);
    sfp__free(k->label_of);
    sfp__free(k->foreign);
    sfp__free(k);
}

static void known_close(sfp_source *s)
{
    sfp_known_source *k = (sfp_known_source *)s;
    sfp__source_close(k->inner);
    drop(k);
}

static sfp_status copy_names(int count, char *const *from, char ***to, int *to_count, sfp_error *err)
{
    char **names = count ? sfp__calloc((size_t)count, sizeof *names) : NULL;
    if (count && !names)
        return sfp__fail_nomem(err);
    *to = names;
    *to_count = count;
    for (int i = 0; i < count; i++)
        if (!(names[i] = sfp__strdup(from[i])))
            return sfp__fail_nomem(err);
    return SFP_OK;
}

/* The list as class_names, and where each class of the inner source is in it. */
static sfp_status match(sfp_known_source *k, int classes, const char *const *names, sfp_error *err)
{
    sfp_names table = {0};
    char number[16], shown[SFP_NAME_MAX];
    sfp_status status = SFP_OK;
    for (int c = 0; !status && c < classes; c++) {
        (void)snprintf(number, sizeof number, "%d", c);
        const char *name = names[c] ? names[c] : number;
        int32_t at = 0;
        status = sfp__names_add(&table, name, strlen(name), &at, err);
        if (!status && at != c)
            status = sfp__fail(err, SFP_EFORMAT, "classes %d and %d are both called '%s'", at, c,
                               sfp__printable(name, shown, sizeof shown));
    }
    for (int c = 0; !status && c < k->inner->classes; c++)
        k->label_of[c] = sfp__names_find(&table, k->inner->class_names[c], strlen(k->inner->class_names[c]));
    if (status)
        sfp__names_done(&table);
    else
        sfp__names_give(&table, &k->base.class_names, &k->base.classes);
    return status;
}

static sfp_status pick(sfp_known_source *k, sfp_error *err)
{
    for (int64_t i = 0; i < k->inner->count; i++) {
        sfp_record r;
        sfp_status status = k->inner->record(k->inner, i, &r, err);
        if (status)
            return status;
        if (r.label < 0)
            k->unlabelled++;
        else if (k->label_of[r.label] < 0)
            k->foreign[r.label]++;
        else
            k->index[k->base.count++] = i;
    }
    return SFP_OK;
}

sfp_status sfp__known_open(sfp_source *inner, int classes, const char *const *names, sfp_known_source **out, sfp_error *err)
{
    if (inner->kind->live || inner->count < 0)
        return sfp__fail(err, SFP_EUNSUPPORTED, "%s:%s: has no end, expected a data set", inner->kind->name, inner->path);
    size_t n = (size_t)(inner->count ? inner->count : 1), c = (size_t)(inner->classes ? inner->classes : 1);
    sfp_known_source *k = sfp__calloc(1, sizeof *k);
    if (!k)
        return sfp__fail_nomem(err);
    sfp_status status = sfp__source_init(&k->base, inner->kind, inner->path, err);
    k->inner = inner;
    k->base.count = 0;
    k->index = sfp__malloc(n * sizeof *k->index);
    k->label_of = sfp__malloc(c * sizeof *k->label_of);
    k->foreign = sfp__calloc(c, sizeof *k->foreign);
    if (!status && (!k->index || !k->label_of || !k->foreign))
        status = sfp__fail_nomem(err);
    if (!status)
        status = match(k, classes, names, err);
    if (!status)
        status = copy_names(inner->domains, inner->domain_names, &k->base.domain_names, &k->base.domains, err);
    if (!status)
        status = pick(k, err);
    if (status) {
        drop(k);
        return status;
    }
    k->base.keeps_order = inner->keeps_order;
    k->base.record = known_record;
    k->base.load = known_load;
    k->base.name = known_name;
    k->base.where = known_where;
    k->base.close = known_close;
    *out = k;
    return SFP_OK;
}
