/* One handle for all formats of weights: which one it is, the list of tensors, names found by bisection. */
#include "io/tensor_file_internal.h"

#include "base/mem.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define TENSORS_MAX ((size_t)100000)
#define NAMES_MAX ((size_t)64 << 20) /* bytes of all names */

/* ------------------------------------------------------------------ formats */

static bool any(const uint8_t *bytes, size_t size, const sfp_zip *zip)
{
    (void)bytes;
    (void)size;
    return zip == NULL;
}

static sfp_status open_safetensors(sfp_tensor_file *f, const uint8_t *bytes, size_t size, const sfp_zip *zip, sfp_error *err)
{
    (void)zip;
    sfp_status status = sfp__safetensors_open_memory(f->path, bytes, size, &f->st, err);
    for (size_t i = 0; status == SFP_OK && i < sfp__safetensors_count(f->st); i++)
        status = sfp__tensor_file_add(f, sfp__safetensors_at(f->st, i), err);
    return status;
}

static const sfp__tensor_format safetensors = {"safetensors", any, open_safetensors};

/* Asked in this order. The last one takes whatever is no archive, so its messages are what a file that is nothing gets. */
static const sfp__tensor_format *const formats[] = {&sfp__format_torch, &sfp__format_npz, &sfp__format_torch_old, &safetensors};

/* --------------------------------------------------------------------- list */

sfp_status sfp__tensor_file_own(sfp_tensor_file *f, void *block, sfp_error *err)
{
    if (!sfp__grow(&f->blocks, sizeof *f->blocks, f->block_count, f->block_count + 1, &f->block_room)) {
        sfp__free(block);
        return sfp__fail_nomem(err);
    }
    f->blocks[f->block_count++] = block;
    return SFP_OK;
}

sfp_status sfp__tensor_file_add(sfp_tensor_file *f, const sfp_tensor *t, sfp_error *err)
{
    f->name_bytes += strlen(t->name) + 1;
    if (f->count >= TENSORS_MAX || f->name_bytes > NAMES_MAX)
        return sfp__fail(err, SFP_ELIMIT, "%s: more than %zu tensors or %zu MB of names", f->path, TENSORS_MAX, NAMES_MAX >> 20);
    if (!sfp__grow(&f->tensors, sizeof *f->tensors, f->count, f->count + 1, &f->room))
        return sfp__fail_nomem(err);
    char *name = sfp__strdup(t->name);
    sfp_status status = name ? sfp__tensor_file_own(f, name, err) : sfp__fail_nomem(err);
    if (status != SFP_OK)
        return status;
    f->tensors[f->count] = *t;
    f->tensors[f->count++].name = name;
    return SFP_OK;
}

static int compare_name(const void *pa, const void *pb)
{
    const sfp_tensor *const *a = pa, *const *b = pb;
    return strcmp((*a)->name, (*b)->name);
}

static sfp_status index_names(sfp_tensor_file *f, sfp_error *err)
{
    if (f->count == 0)
        return SFP_OK;
    f->by_name = sfp__calloc(f->count, sizeof(sfp_tensor *));
    if (!f->by_name)
        return sfp__fail_nomem(err);
    for (size_t i = 0; i < f->count; i++)
        f->by_name[i] = &f->tensors[i];
    qsort(f->by_name, f->count, sizeof *f->by_name, compare_name);
    for (size_t i = 1; i < f->count; i++)
        if (strcmp(f->by_name[i - 1]->name, f->by_name[i]->name) == 0)
            return sfp__fail(err, SFP_EFORMAT, "%s: tensor '%s' is there twice", f->path,
                             sfp__printable(f->by_name[i]->name, (char[SFP_NAME_MAX]){0}, SFP_NAME_MAX));
    return SFP_OK;
}

/* --------------------------------------------------------------------- open */

static sfp_status read_bytes(sfp_tensor_file *f, const uint8_t *bytes, size_t size, sfp_error *err)
{
    sfp_zip *zip = NULL;
    sfp_status status = sfp__zip_is(bytes, size) ? sfp__zip_open(f->path, bytes, size, &zip, err) : SFP_OK;
    for (size_t i = 0; status == SFP_OK && !f->format && i < sizeof formats / sizeof *formats; i++)
        if (formats[i]->is(bytes, size, zip))
            f->format = formats[i];
    if (status == SFP_OK && !f->format)
        status = sfp__fail(err, SFP_EUNSUPPORTED,
                           "%s: a zip archive with neither PyTorch's data.pkl nor .npy files, expected one of them", f->path);
    if (status == SFP_OK)
        status = f->format->open(f, bytes, size, zip, err);
    sfp__zip_close(zip);
    return status == SFP_OK ? index_names(f, err) : status;
}

/* Takes `map` over, also when it fails. */
static sfp_status open_bytes(const char *label, sfp_map map, const void *bytes, size_t size, sfp_tensor_file **out,
                             sfp_error *err)
{
    sfp_tensor_file *f = sfp__calloc(1, sizeof *f);
    if (!f) {
        sfp__map_close(&map);
        return sfp__fail_nomem(err);
    }
    f->map = map;
    f->path = sfp__strdup(label);
    sfp_status status = f->path ? read_bytes(f, bytes, size, err) : sfp__fail_nomem(err);
    if (status != SFP_OK)
        sfp__tensor_file_close(f);
    else
        *out = f;
    return status;
}

sfp_status sfp__tensor_file_open(const char *path, sfp_tensor_file **out, sfp_error *err)
{
    sfp_map map = {0};
    sfp_status status = sfp__map_open(path, &map, err);
    return status == SFP_OK ? open_bytes(path, map, map.bytes, map.size, out, err) : status;
}

sfp_status sfp__tensor_file_open_memory(const char *label, const void *bytes, size_t size, sfp_tensor_file **out, sfp_error *err)
{
    return open_bytes(label, (sfp_map){0}, bytes, size, out, err);
}

void sfp__tensor_file_close(sfp_tensor_file *f)
{
    if (!f)
        return;
    sfp__safetensors_close(f->st);
    for (size_t i = 0; i < f->block_count; i++)
        sfp__free(f->blocks[i]);
    sfp__free(f->blocks);
    sfp__free(f->tensors);
    sfp__free(f->by_name);
    sfp__map_close(&f->map);
    sfp__free(f->path);
    sfp__free(f);
}

/* ------------------------------------------------------------------- asking */

const char *sfp__tensor_file_path(const sfp_tensor_file *f)
{
    return f->path;
}

const char *sfp__tensor_file_format(const sfp_tensor_file *f)
{
    return f->format->name;
}

size_t sfp__tensor_file_count(const sfp_tensor_file *f)
{
    return f->count;
}

const sfp_tensor *sfp__tensor_file_at(const sfp_tensor_file *f, size_t i)
{
    return i < f->count ? &f->tensors[i] : NULL;
}

const sfp_tensor *sfp__tensor_file_find(const sfp_tensor_file *f, const char *name)
{
    const sfp_tensor key = {.name = name}, *wanted = &key;
    const sfp_tensor **found = f->count ? bsearch(&wanted, f->by_name, f->count, sizeof *f->by_name, compare_name) : NULL;
    return found ? *found : NULL;
}

sfp_status sfp__tensor_file_need(const sfp_tensor_file *f, const char *name, const sfp_tensor **out, sfp_error *err)
{
    const sfp_tensor *t = sfp__tensor_file_find(f, name);
    if (!t)
        return sfp__fail(err, SFP_ENOTFOUND, "%s: tensor '%s' is missing", f->path,
                         sfp__printable(name, (char[SFP_NAME_MAX]){0}, SFP_NAME_MAX));
    *out = t;
    return SFP_OK;
}

const char *sfp__tensor_file_meta(const sfp_tensor_file *f, const char *key)
{
    return f->st ? sfp__safetensors_meta(f->st, key) : NULL;
}

size_t sfp__tensor_file_meta_count(const sfp_tensor_file *f)
{
    return f->st ? sfp__safetensors_meta_count(f->st) : 0;
}

void sfp__tensor_file_meta_at(const sfp_tensor_file *f, size_t i, const char **key, const char **value)
{
    sfp__safetensors_meta_at(f->st, i, key, value);
}

void sfp__tensor_file_release(const sfp_tensor_file *f)
{
    if (f->map.bytes)
        (void)madvise((void *)(uintptr_t)f->map.bytes, f->map.size, MADV_DONTNEED);
}
