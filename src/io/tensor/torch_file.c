/* PyTorch's own files (torch.save, TorchScript).
 *
 * Since 1.6 a zip: NAME/data.pkl tells names, shapes and which storage each
 * tensor is a view of, NAME/data/KEY are the storages, stored and aligned, so
 * tensors are pointers into the mapped file. Before, one stream: a magic
 * number, protocol, system, the same pickle, the keys of the storages in order,
 * then each storage as its length and its numbers. */
#include "io/tensor/formats.h"

#include "base/mem.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------- zip files */

/* Length of NAME/ when the member is NAME/data.pkl; 0: it is another one. */
static size_t pickle_prefix(const char *name)
{
    size_t n = strlen(name), end = strlen("/data.pkl");
    return n > end && strcmp(name + n - end, "/data.pkl") == 0 && strchr(name, '/') == name + n - end ? n - end + 1 : 0;
}

static const sfp_zip_member *find_pickle(const sfp_zip *zip)
{
    for (size_t i = 0; i < zip->count; i++)
        if (pickle_prefix(zip->members[i].name))
            return &zip->members[i];
    return NULL;
}

static bool is_zip(const uint8_t *bytes, size_t size, const sfp_zip *zip)
{
    (void)bytes;
    (void)size;
    return zip && find_pickle(zip);
}

static void storages_done(sfp__torch_storages *s)
{
    sfp__free(s->list);
}

/* Where the bytes of each storage are: member by member, each checked once. `seen` (members) holds what was. */
static sfp_status place_storages(sfp_tensor_file *f, const sfp_zip *zip, const char *folder, size_t length, const uint8_t **seen,
                                 sfp__torch_storages *s, size_t *total, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp_text name = {0};
    for (size_t i = 0; i < s->count; i++) {
        sfp__torch_storage *one = &s->list[i];
        name.length = 0;
        sfp__text_printf(&name, "%.*sdata/%s", (int)length, folder, one->key);
        if (name.failed)
            return sfp__fail_nomem(err);
        const sfp_zip_member *m = sfp__zip_find(zip, name.s);
        char shown[SFP_NAME_MAX];
        size_t wanted;
        if (!m)
            return sfp__fail(err, SFP_EFORMAT, "%s: storage '%s' is missing in the zip archive", f->path,
                             sfp__printable(name.s, shown, sizeof shown));
        if (!sfp__mul_size(one->count, sfp__dtype_size(one->dtype), &wanted) || wanted > m->size)
            return sfp__fail(err, SFP_EFORMAT, "%s: storage '%s' has %zu bytes, expected %zu elements of %s", f->path,
                             sfp__printable(name.s, shown, sizeof shown), m->size, one->count, sfp__dtype_name(one->dtype));
        const uint8_t **at = &seen[m - zip->members];
        uint8_t *unpacked = NULL;
        if (!*at) {
            *total += m->size;
            TRY(sfp__zip_bytes(zip, m, at, &unpacked, err));
        }
        if (unpacked)
            TRY(sfp__tensor_file_own(f, unpacked, err));
        one->bytes = *at;
    }
    return SFP_OK;
}

/* Numbers are used as they lie; a file says so when they are the other way round. */
static sfp_status check_order(const sfp_tensor_file *f, const sfp_zip *zip, const char *folder, size_t length, sfp_error *err)
{
    OWNED_BY(sfp__text_done) sfp_text name = {0};
    sfp__text_printf(&name, "%.*sbyteorder", (int)length, folder);
    if (name.failed)
        return sfp__fail_nomem(err);
    const sfp_zip_member *m = sfp__zip_find(zip, name.s);
    if (m && !m->deflated && m->size == 3 && memcmp(m->data, "big", 3) == 0)
        return sfp__fail(err, SFP_EUNSUPPORTED, "%s: was saved with big-endian numbers, expected little-endian", f->path);
    return SFP_OK;
}

static sfp_status open_zip(sfp_tensor_file *f, const uint8_t *bytes, size_t size, const sfp_zip *zip, sfp_error *err)
{
    (void)bytes;
    (void)size;
    const sfp_zip_member *m = find_pickle(zip);
    size_t prefix = pickle_prefix(m->name), total = 0;
    sfp_pickle_limits limits = sfp__torch_limits();
    OWNED_PTR(sfp__pickle_free) sfp_pickle *p = NULL;
    OWNED_BY(storages_done) sfp__torch_storages storages = {0};
    const uint8_t *program;
    OWNED uint8_t *unpacked = NULL;
    OWNED const uint8_t **seen = NULL;
    TRY(check_order(f, zip, m->name, prefix, err));
    TRY(sfp__zip_bytes(zip, m, &program, &unpacked, err));
    TRY(sfp__pickle_parse(f->path, program, m->size, &limits, &p, err));
    TRY(sfp__torch_find_storages(f->path, p, &storages, err));
    TRY(sfp__alloc(&seen, zip->count, sizeof *seen, err));
    TRY(place_storages(f, zip, m->name, prefix, seen, &storages, &total, err));
    return sfp__torch_add_tensors(f, p, &storages, total, err);
}

const sfp__tensor_format sfp__format_torch = {"PyTorch", is_zip, open_zip};

/* ----------------------------------------------------------------- old files */

/* A pickle of the number 0x1950a86a20f9469cfc6c, by which torch.load knows its own. */
static const uint8_t magic[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};

static bool is_old(const uint8_t *bytes, size_t size, const sfp_zip *zip)
{
    return !zip && size >= sizeof magic && memcmp(bytes, magic, sizeof magic) == 0;
}

/* The next pickle of the stream. */
static sfp_status next_pickle(const sfp_tensor_file *f, const uint8_t *bytes, size_t size, size_t *at, sfp_pickle **out,
                              sfp_error *err)
{
    sfp_pickle_limits limits = sfp__torch_limits();
    size_t rest = size - *at < limits.bytes ? size - *at : limits.bytes;
    TRY(sfp__pickle_parse(f->path, bytes + *at, rest, &limits, out, err));
    *at += (*out)->used;
    return SFP_OK;
}

static int compare_key(const void *pa, const void *pb)
{
    const sfp__torch_storage *const *a = pa, *const *b = pb;
    return strcmp((*a)->key, (*b)->key);
}

/* The storages in the order of `keys`, which is sorted: each its length in elements and its bytes. `sorted`: those of the
 * pickle by key, several for one that has several tensors. */
static sfp_status place_old(const sfp_tensor_file *f, const uint8_t *bytes, size_t size, size_t at, const sfp_pickle *keys,
                            sfp__torch_storage **sorted, size_t count, sfp_error *err)
{
    sfp_pickle_value list = keys->root;
    size_t next = 0;
    for (size_t i = 0; i < sfp__pickle_count(keys, list); i++) {
        const char *key = sfp__pickle_text(keys, sfp__pickle_item(keys, list, i), NULL);
        char shown[64];
        if (!key || next == count || strcmp(key, sorted[next]->key) != 0)
            return sfp__fail(err, SFP_EFORMAT, "%s: storage '%s' belongs to no tensor or is out of order", f->path,
                             sfp__printable(key ? key : "?", shown, sizeof shown));
        uint64_t elements = 0;
        size_t element = sfp__dtype_size(sorted[next]->dtype), n = 0;
        if (size - at >= 8) {
            memcpy(&elements, bytes + at, 8);
            at += 8;
        } else {
            elements = UINT64_MAX;
        }
        if (!sfp__mul_size((size_t)elements, element, &n) || n > size - at)
            return sfp__fail(err, SFP_EFORMAT, "%s: storage '%s' is %llu elements of %s, but only %zu bytes follow", f->path,
                             sfp__printable(key, shown, sizeof shown), (unsigned long long)elements,
                             sfp__dtype_name(sorted[next]->dtype), size - at);
        for (; next < count && strcmp(sorted[next]->key, key) == 0; next++) {
            if (sorted[next]->count > elements || sfp__dtype_size(sorted[next]->dtype) != element)
                return sfp__fail(err, SFP_EFORMAT, "%s: storage '%s' has %llu elements, expected %zu of %s", f->path,
                                 sfp__printable(key, shown, sizeof shown), (unsigned long long)elements, sorted[next]->count,
                                 sfp__dtype_name(sorted[next]->dtype));
            sorted[next]->bytes = bytes + at;
        }
        at += n;
    }
    if (next < count)
        return sfp__fail(err, SFP_EFORMAT, "%s: storage '%s' is missing", f->path,
                         sfp__printable(sorted[next]->key, (char[64]){0}, 64));
    return SFP_OK;
}

enum { PROTOCOL, SYSTEM, OBJECT, KEYS, PICKLES };

typedef struct old_file {
    sfp_pickle *p[PICKLES];
    sfp__torch_storages storages;
    sfp__torch_storage **sorted; /* by key */
} old_file;

static void old_done(old_file *o)
{
    for (int i = 0; i < PICKLES; i++)
        sfp__pickle_free(o->p[i]);
    storages_done(&o->storages);
    sfp__free(o->sorted);
}

static sfp_status open_old(sfp_tensor_file *f, const uint8_t *bytes, size_t size, const sfp_zip *zip, sfp_error *err)
{
    (void)zip;
    OWNED_BY(old_done) old_file o = {0};
    size_t at = sizeof magic;
    for (int i = 0; i < PICKLES; i++)
        TRY(next_pickle(f, bytes, size, &at, &o.p[i], err));
    TRY(sfp__torch_find_storages(f->path, o.p[OBJECT], &o.storages, err));
    TRY(sfp__alloc(&o.sorted, o.storages.count, sizeof *o.sorted, err));
    for (size_t i = 0; i < o.storages.count; i++)
        o.sorted[i] = &o.storages.list[i];
    qsort(o.sorted, o.storages.count, sizeof *o.sorted, compare_key);
    TRY(place_old(f, bytes, size, at, o.p[KEYS], o.sorted, o.storages.count, err));
    return sfp__torch_add_tensors(f, o.p[OBJECT], &o.storages, size, err);
}

const sfp__tensor_format sfp__format_torch_old = {"PyTorch before 1.6", is_old, open_old};
