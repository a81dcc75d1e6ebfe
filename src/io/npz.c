/* NumPy's .npz: a zip of .npy files, stored (savez) or deflated (savez_compressed); a tensor is called as its member without
 * the ".npy". */
#include "io/tensor_file_internal.h"

#include "base/mem.h"
#include "base/text.h"
#include "io/npy.h"

#include <string.h>

/* Length without ".npy"; 0: another ending. */
static size_t stem(const char *name)
{
    size_t n = strlen(name), end = strlen(".npy");
    return n > end && strcmp(name + n - end, ".npy") == 0 ? n - end : 0;
}

static bool is(const uint8_t *bytes, size_t size, const sfp_zip *zip)
{
    (void)bytes;
    (void)size;
    for (size_t i = 0; zip && i < sfp__zip_count(zip); i++)
        if (stem(sfp__zip_at(zip, i)->name))
            return true;
    return false;
}

static sfp_status add_member(sfp_tensor_file *f, const sfp_zip *zip, const sfp_zip_member *m, sfp_error *err)
{
    char shown[SFP_NAME_MAX];
    const uint8_t *bytes;
    uint8_t *owned = NULL;
    char *name = NULL;
    sfp_text label = {0};
    sfp_npy *npy = NULL;
    if (!stem(m->name))
        return sfp__fail(err, SFP_EFORMAT, "%s: zip member '%s' is no .npy file, expected only those", f->path,
                         sfp__printable(m->name, shown, sizeof shown));
    sfp_status status = sfp__zip_bytes(zip, m, &bytes, &owned, err);
    if (status == SFP_OK && owned)
        status = sfp__tensor_file_own(f, owned, err);
    if (status != SFP_OK)
        return status;
    sfp__text_put(&label, f->path);
    sfp__text_put(&label, ": ");
    sfp__text_put(&label, sfp__printable(m->name, shown, sizeof shown));
    name = sfp__strdup(m->name);
    if (!name || label.failed) {
        status = sfp__fail_nomem(err);
        goto done;
    }
    status = sfp__npy_open_memory(label.s, bytes, m->size, &npy, err);
    if (status != SFP_OK)
        goto done;
    sfp_tensor t = *sfp__npy_tensor(npy); /* its data lie in `bytes` */
    name[stem(m->name)] = '\0';
    t.name = name;
    status = sfp__tensor_file_add(f, &t, err);
done:
    sfp__npy_close(npy);
    sfp__text_done(&label);
    sfp__free(name);
    return status;
}

static sfp_status open_npz(sfp_tensor_file *f, const uint8_t *bytes, size_t size, const sfp_zip *zip, sfp_error *err)
{
    (void)bytes;
    (void)size;
    sfp_status status = SFP_OK;
    for (size_t i = 0; status == SFP_OK && i < sfp__zip_count(zip); i++)
        status = add_member(f, zip, sfp__zip_at(zip, i), err);
    return status;
}

const sfp__tensor_format sfp__format_npz = {"NumPy npz", is, open_npz};
