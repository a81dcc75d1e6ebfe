/* The common part of all weight formats: detecting the format, the list of tensors, and finding a tensor by binary search. */
#include "io/tensor/formats.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TENSORS_MAX ((size_t)100000)
#define NAMES_MAX ((size_t)64 << 20) /* maximum bytes of all names */

/* Tried in this order. The last one accepts everything that is not an archive, so a file of no known format is reported with its
 * messages. */
static const sfp__tensor_format *const formats[] = {&sfp__format_torch, &sfp__format_npz, &sfp__format_torch_old,
                                                    &sfp__format_npy, &sfp__format_safetensors};

/* --------------------------------------------------------------------- list */

sfp_status sfp__tensor_file_own(sfp__tensor_file *f, void *block, sfp_error *err)
{
    OWNED void *own = block;
    TRY(sfp__check_memory(sfp__grow(&f->blocks, sizeof *f->blocks, f->block_count, f->block_count + 1, &f->block_capacity), err));
    f->blocks[f->block_count++] = TAKE(own);
    return SFP_OK;
}

sfp_status sfp__tensor_file_add(sfp__tensor_file *f, const sfp__tensor *t, sfp_error *err)
{
    f->name_bytes += strlen(t->name) + 1;
    if (f->count >= TENSORS_MAX || f->name_bytes > NAMES_MAX)
        return sfp__fail(err, SFP_ELIMIT, "%s: file has more than %zu tensors or %zu MB of names", f->path, TENSORS_MAX,
                         NAMES_MAX >> 20);
    TRY(sfp__check_memory(sfp__grow(&f->tensors, sizeof *f->tensors, f->count, f->count + 1, &f->capacity), err));
    char *name = sfp__strdup(t->name);
    TRY(sfp__check_memory(name, err));
    TRY(sfp__tensor_file_own(f, name, err));
    f->tensors[f->count] = *t;
    f->tensors[f->count++].name = name;
    return SFP_OK;
}

static int compare_name(const void *pa, const void *pb)
{
    const sfp__tensor *const *a = pa, *const *b = pb;
    return strcmp((*a)->name, (*b)->name);
}

static sfp_status index_names(sfp__tensor_file *f, sfp_error *err)
{
    if (f->count == 0)
        return SFP_OK;
    TRY(sfp__alloc(&f->by_name, f->count, sizeof *f->by_name, err));
    for (size_t i = 0; i < f->count; i++)
        f->by_name[i] = &f->tensors[i];
    qsort(f->by_name, f->count, sizeof *f->by_name, compare_name);
    for (size_t i = 1; i < f->count; i++)
        if (strcmp(f->by_name[i - 1]->name, f->by_name[i]->name) == 0)
            return sfp__fail(err, SFP_EFORMAT, "%s: tensor '%s' is a duplicate", f->path,
                             sfp__printable(f->by_name[i]->name, (char[SFP__NAME_MAX]){0}, SFP__NAME_MAX));
    return SFP_OK;
}

/* --------------------------------------------------------------------- open */

static sfp_status read_bytes(sfp__tensor_file *f, const sfp__tensor_format *format, const uint8_t *bytes, size_t size,
                             sfp_error *err)
{
    OWNED_PTR(sfp__zip_close) sfp__zip *zip = NULL;
    if (!format && sfp__zip_is(bytes, size))
        TRY(sfp__zip_open(f->path, bytes, size, &zip, err));
    for (size_t i = 0; !format && i < sizeof formats / sizeof *formats; i++)
        if (formats[i]->is(bytes, size, zip))
            format = formats[i];
    if (!format)
        return sfp__fail(err, SFP_EUNSUPPORTED,
                         "%s: zip archive has neither PyTorch's data.pkl nor .npy files, expected one of them", f->path);
    f->format = format->name;
    TRY(format->open(f, bytes, size, zip, err));
    return index_names(f, err);
}

/* Opens a file whose contents are `bytes` or, if that is NULL, *map, of which it takes ownership. */
static sfp_status open_bytes(const sfp__tensor_format *format, const char *path, sfp__map *map, const void *bytes, size_t size,
                             sfp__tensor_file **out, sfp_error *err)
{
    OWNED_BY(sfp__map_close) sfp__map own = TAKE(*map);
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *f = NULL;
    TRY(sfp__alloc(&f, 1, sizeof *f, err));
    f->map = TAKE(own);
    if (!bytes) {
        bytes = f->map.bytes;
        size = f->map.size;
    }
    TRY(sfp__check_memory((f->path = sfp__strdup(path)), err));
    TRY(read_bytes(f, format, bytes, size, err));
    *out = TAKE(f);
    return SFP_OK;
}

sfp_status sfp__tensor_file_open_as(const sfp__tensor_format *format, const char *path, const void *bytes, size_t size,
                                    sfp__tensor_file **out, sfp_error *err)
{
    sfp__map map = {0};
    if (!bytes)
        TRY(sfp__map_read(path, &map, err));
    return open_bytes(format, path, &map, bytes, size, out, err);
}

sfp_status sfp__tensor_file_open(const char *path, sfp__tensor_file **out, sfp_error *err)
{
    return sfp__tensor_file_open_as(NULL, path, NULL, 0, out, err);
}

sfp_status sfp__tensor_file_map(const char *path, sfp__tensor_file **out, sfp_error *err)
{
    sfp__map map = {0};
    TRY(sfp__map_open(path, &map, err));
    return open_bytes(NULL, path, &map, NULL, 0, out, err);
}

sfp_status sfp__tensor_file_open_memory(const char *label, const void *bytes, size_t size, sfp__tensor_file **out, sfp_error *err)
{
    return sfp__tensor_file_open_as(NULL, label, bytes, size, out, err);
}

void sfp__tensor_file_close(sfp__tensor_file *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->block_count; i++)
        sfp__free(f->blocks[i]);
    sfp__free(f->blocks);
    sfp__free(f->header);
    sfp__free(f->meta);
    sfp__free(f->tensors);
    sfp__free(f->by_name);
    sfp__map_close(&f->map);
    sfp__free(f->path);
    sfp__free(f);
}

/* ------------------------------------------------------------------ release */

static int compare_span(const void *pa, const void *pb)
{
    const sfp__span *a = pa, *b = pb;
    return a->from < b->from ? -1 : a->from > b->from;
}

/* Returns the whole pages in [from, end). */
static void release_pages(uintptr_t from, uintptr_t end)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    from = (from + page - 1) / page * page;
    end = end / page * page;
    if (from < end)
        (void)madvise((void *)from, end - from, MADV_DONTNEED);
}

void sfp__tensor_file_keep_only(sfp__tensor_file *f, size_t count, sfp__span *keep)
{
    uintptr_t at = (uintptr_t)f->map.bytes, end = at + f->map.size;
    if (!f->map.bytes)
        return;
    if (count > 0)
        qsort(keep, count, sizeof *keep, compare_span);
    for (size_t i = 0; i < count; i++) {
        uintptr_t from = (uintptr_t)keep[i].from, after = (uintptr_t)keep[i].end;
        if (after <= at || from >= end)
            continue; /* inside an earlier span, or not in this file */
        if (from > at)
            release_pages(at, from);
        at = after;
    }
    release_pages(at, end);
}

/* ------------------------------------------------------------------- lookup */

const sfp__tensor *sfp__tensor_file_find(const sfp__tensor_file *f, const char *name)
{
    const sfp__tensor key = {.name = name}, *wanted = &key;
    const sfp__tensor **found = f->count ? bsearch(&wanted, f->by_name, f->count, sizeof *f->by_name, compare_name) : NULL;
    return found ? *found : NULL;
}

sfp_status sfp__tensor_file_need(const sfp__tensor_file *f, const char *name, const sfp__tensor **out, sfp_error *err)
{
    const sfp__tensor *t = sfp__tensor_file_find(f, name);
    if (!t)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: tensor '%s' is missing", f->path,
                         sfp__printable(name, (char[SFP__NAME_MAX]){0}, SFP__NAME_MAX));
    *out = t;
    return SFP_OK;
}

const char *sfp__tensor_file_meta(const sfp__tensor_file *f, const char *key)
{
    for (size_t i = 0; i < f->meta_count; i++)
        if (strcmp(f->meta[i].key, key) == 0)
            return f->meta[i].value;
    return NULL;
}
