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
    for (size_t i = 0; i < sfp__zip_count(zip); i++)
        if (pickle_prefix(sfp__zip_at(zip, i)->name))
            return sfp__zip_at(zip, i);
    return NULL;
}

static bool is_zip(const uint8_t *bytes, size_t size, const sfp_zip *zip)
{
    (void)bytes;
    (void)size;
    return zip && find_pickle(zip);
}

/* Where the bytes of each storage are: member by member, each checked once. `seen` (members) holds what was. */
static sfp_status place_storages(sfp_tensor_file *f, const sfp_zip *zip, const char *folder, size_t length, const uint8_t **seen,
                                 sfp__torch_storages *s, size_t *total, sfp_error *err)
{
    sfp_text name = {0};
    sfp_status status = SFP_OK;
    for (size_t i = 0; status == SFP_OK && i < s->count; i++) {
        sfp__torch_storage *one = &s->list[i];
        name.length = 0;
        sfp__text_putn(&name, folder, length);
        sfp__text_put(&name, "data/");
        sfp__text_put(&name, one->key);
        if (name.failed) {
            status = sfp__fail_nomem(err);
            break;
        }
        const sfp_zip_member *m = sfp__zip_find(zip, name.s);
        char shown[SFP_NAME_MAX];
        size_t wanted;
        if (!m) {
            status = sfp__fail(err, SFP_EFORMAT, "%s: storage '%s' is missing in the zip archive", f->path,
                               sfp__printable(name.s, shown, sizeof shown));
        } else if (!sfp__mul_size(one->count, sfp__dtype_size(one->dtype), &wanted) || wanted > m->size) {
            status = sfp__fail(err, SFP_EFORMAT, "%s: storage '%s' has %zu bytes, expected %zu elements of %s", f->path,
                               sfp__printable(name.s, shown, sizeof shown), m->size, one->count, sfp__dtype_name(one->dtype));
        } else {
            const uint8_t **at = &seen[m - sfp__zip_at(zip, 0)];
            uint8_t *owned = NULL;
            if (!*at) {
                *total += m->size;
                status = sfp__zip_bytes(zip, m, at, &owned, err);
            }
            if (status == SFP_OK && owned)
                status = sfp__tensor_file_own(f, owned, err);
            one->bytes = *at;
        }
    }
    sfp__text_done(&name);
    return status;
}

/* Numbers are used as they lie; a file says so when they are the other way round. */
static sfp_status check_order(const sfp_tensor_file *f, const sfp_zip *zip, const char *folder, size_t length, sfp_error *err)
{
    sfp_text name = {0};
    sfp__text_putn(&name, folder, length);
    sfp__text_put(&name, "byteorder");
    if (name.failed)
        return sfp__fail_nomem(err);
    const sfp_zip_member *m = sfp__zip_find(zip, name.s);
    sfp__text_done(&name);
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
    sfp_pickle *p = NULL;
    sfp__torch_storages storages = {0};
    const uint8_t *program;
    uint8_t *owned = NULL;
    const uint8_t **seen = NULL;
    sfp_status status = check_order(f, zip, m->name, prefix, err);
    if (status == SFP_OK)
        status = sfp__zip_bytes(zip, m, &program, &owned, err);
    if (status == SFP_OK)
        status = sfp__pickle_parse(f->path, program, m->size, &limits, &p, err);
    if (status == SFP_OK)
        status = sfp__torch_find_storages(f->path, p, &storages, err);
    if (status == SFP_OK && !(seen = sfp__calloc(sfp__zip_count(zip), sizeof(uint8_t *))))
        status = sfp__fail_nomem(err);
    if (status == SFP_OK)
        status = place_storages(f, zip, m->name, prefix, seen, &storages, &total, err);
    if (status == SFP_OK)
        status = sfp__torch_add_tensors(f, p, &storages, total, err);
    sfp__free(seen);
    sfp__free(storages.list);
    sfp__pickle_free(p);
    sfp__free(owned);
    return status;
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
    sfp_status status = sfp__pickle_parse(f->path, bytes + *at, rest, &limits, out, err);
    if (status == SFP_OK)
        *at += (*out)->used;
    return status;
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

static sfp_status open_old(sfp_tensor_file *f, const uint8_t *bytes, size_t size, const sfp_zip *zip, sfp_error *err)
{
    enum { PROTOCOL, SYSTEM, OBJECT, KEYS, PICKLES };
    (void)zip;
    sfp_pickle *p[PICKLES] = {0};
    sfp__torch_storages storages = {0};
    sfp__torch_storage **sorted = NULL;
    size_t at = sizeof magic;
    sfp_status status = SFP_OK;
    for (int i = 0; status == SFP_OK && i < PICKLES; i++)
        status = next_pickle(f, bytes, size, &at, &p[i], err);
    if (status == SFP_OK)
        status = sfp__torch_find_storages(f->path, p[OBJECT], &storages, err);
    if (status == SFP_OK && storages.count > 0) {
        sorted = sfp__calloc(storages.count, sizeof *sorted);
        if (!sorted)
            status = sfp__fail_nomem(err);
        for (size_t i = 0; sorted && i < storages.count; i++)
            sorted[i] = &storages.list[i];
        if (sorted)
            qsort(sorted, storages.count, sizeof *sorted, compare_key);
    }
    if (status == SFP_OK)
        status = place_old(f, bytes, size, at, p[KEYS], sorted, storages.count, err);
    if (status == SFP_OK)
        status = sfp__torch_add_tensors(f, p[OBJECT], &storages, size, err);
    sfp__free(sorted);
    sfp__free(storages.list);
    for (int i = 0; i < PICKLES; i++)
        sfp__pickle_free(p[i]);
    return status;
}

const sfp__tensor_format sfp__format_torch_old = {"PyTorch before 1.6", is_old, open_old};
