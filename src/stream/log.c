#include "stream/log.h"

#include "base/rng.h"
#include "base/settings.h"
#include "io/image/image.h"
#include "stream/source_internal.h"

#include <stdio.h>
#include <string.h>

/* -------------------------------------------------------------------- messages */

void sfp__message_free(sfp__message *m)
{
    if (!m)
        return;
    sfp__free(m->id);
    sfp__free(m->name);
    sfp__free(m->label);
    sfp__free(m->data);
    sfp__free(m);
}

void sfp__messages_put(sfp__messages *l, sfp__message *m)
{
    m->next = NULL;
    *(l->last ? &l->last->next : &l->first) = m;
    l->last = m;
    l->count++;
}

sfp__message *sfp__messages_take(sfp__messages *l)
{
    sfp__message *m = l->first;
    if (!m)
        return NULL;
    l->first = m->next;
    l->last = l->first ? l->last : NULL;
    l->count--;
    m->next = NULL;
    return m;
}

void sfp__messages_done(sfp__messages *l)
{
    for (sfp__message *m; (m = sfp__messages_take(l));)
        sfp__message_free(m);
}

bool sfp__messages_have(const sfp__messages *l, const char *id)
{
    for (const sfp__message *m = l->first; m; m = m->next)
        if (strcmp(m->id, id) == 0)
            return true;
    return false;
}

static sfp_status copy_text(char **to, const void *value, size_t size, sfp_error *err)
{
    if (*to)
        return SFP_OK; /* only the first field with this name is used */
    return sfp__text_new(to, err, "%.*s", (int)(size < SFP__CLASS_NAME_MAX + 1 ? size : SFP__CLASS_NAME_MAX + 1),
                         (const char *)value);
}

sfp_status sfp__message_set(sfp__message *m, const char *key, size_t key_size, const void *value, size_t size, sfp_error *err)
{
    static const char *const keys[] = {"image", "features", "label", "id"};
    int k = 0;
    while (k < 4 && (strlen(keys[k]) != key_size || memcmp(keys[k], key, key_size) != 0))
        k++;
    if (k >= 2)
        return k == 4 ? SFP_OK : copy_text(k == 2 ? &m->label : &m->name, value, size, err);
    if (m->data)
        return SFP_OK;
    TRY(sfp__alloc(&m->data, size, 1, err));
    if (size)
        memcpy(m->data, value, size);
    m->size = size;
    m->row = k == 1;
    return SFP_OK;
}

void sfp__message_end(sfp__message *m)
{
    m->digest = sfp__hash(SFP__HASH_START, m->label ? m->label : "", m->label ? strlen(m->label) : 0);
    m->digest = sfp__hash(m->digest, m->data, m->size);
}

/* ----------------------------------------------------------------- the source */

static const char *name_log(const sfp_source *base, int64_t i, char *buf, size_t size)
{
    (void)i;
    return sfp__printable(base->path, buf, size);
}

static sfp_status next_log(sfp_source *base, sfp_record *record, sfp__raw_image *out, bool *end, sfp_error *err)
{
    (void)record, (void)out, (void)end;
    return sfp__fail(err, SFP_EUNSUPPORTED, "%s:%s: a log can only be learned from, with 'run --share DIR'", base->kind->name,
                     base->path);
}

static void origin_log(const sfp_source *base, sfp__origin *out)
{
    (void)base;
    *out = (sfp__origin){.name = ""};
}

const sfp__source_ops sfp__log_source_ops = {.name = name_log, .next = next_log, .origin = origin_log, .close = sfp__log_close};

sfp__log *sfp__source_log(sfp_source *s)
{
    return s && s->ops && s->ops->close == sfp__log_close ? (sfp__log *)s : NULL;
}

void sfp__log_close(sfp_source *base)
{
    sfp__log *l = (sfp__log *)base;
    if (l->ops)
        l->ops->disconnect(l);
    sfp__free(l->stream);
    sfp__free(l->address);
    sfp__free(l->group);
}

/* Parses STREAM@ADDRESS/GROUP. The stream must not contain '@', the group not '/'. */
static sfp_status parse(sfp__log *l, char *text, const char *example, sfp_error *err)
{
    char shown[SFP__NAME_MAX];
    const char *kind = l->base.kind->name;
    char *query = strchr(text, '?'), *at = strchr(text, '@'), *slash = NULL;
    if (query) {
        int64_t dim = 0;
        static const char word[] = "?features=";
        bool known = strncmp(query, word, sizeof word - 1) == 0 && sfp__parse_int(query + sizeof word - 1, &dim);
        if (!known || dim < 1 || dim > SFP__ROW_MAX)
            return sfp__fail_key(err, "data", SFP_EINVAL, "data: '%s' is not an option of a log, expected ?features=1 to %d",
                                 sfp__printable(query, shown, sizeof shown), SFP__ROW_MAX);
        l->base.row_dim = (int)dim;
        *query = '\0';
    }
    slash = at ? strrchr(at, '/') : NULL;
    if (!at || at == text || !slash || slash == at + 1 || !slash[1])
        return sfp__fail_key(err, "data", SFP_EINVAL, "data is '%s:%s', expected %s:STREAM@ADDRESS/GROUP, such as %s", kind,
                             sfp__printable(text, shown, sizeof shown), kind, example);
    *at = *slash = '\0';
    if (strlen(text) > SFP__LOG_STREAM_MAX || strlen(slash + 1) > SFP__LOG_STREAM_MAX)
        return sfp__fail_key(err, "data", SFP_EINVAL, "data: the names of a stream and of a group have at most %d bytes",
                             SFP__LOG_STREAM_MAX);
    TRY(sfp__check_memory((l->stream = sfp__strdup(text)), err));
    TRY(sfp__check_memory((l->address = sfp__strdup(at + 1)), err));
    return sfp__check_memory((l->group = sfp__strdup(slash + 1)), err);
}

sfp_status sfp__log_create(size_t size, const sfp__source_kind *kind, const sfp__log_ops *ops, const char *path,
                           const char *example, sfp__log **out, sfp_error *err)
{
    OWNED_PTR(sfp__source_close) sfp_source *base = NULL;
    OWNED char *text = sfp__strdup(path);
    TRY(sfp__check_memory(text, err));
    TRY(sfp__source_create(size, kind, &sfp__log_source_ops, path, &base, err));
    sfp__log *l = (sfp__log *)base;
    l->ops = ops;
    base->live = &l->live;
    base->keeps_order = true;
    TRY(parse(l, text, example, err));
    l->claim_seconds = 60;
    base = NULL;
    *out = l;
    return SFP_OK;
}
