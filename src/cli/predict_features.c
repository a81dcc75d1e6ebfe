/* --features: rows are spooled as they come and become the .npy file at the end, through a map, so that a file larger than
 * memory can be written. */
#include "cli/predict.h"

#include "io/npy.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

sfp_status sfp__predict_spool_open(sfp_predict *p, sfp_error *err)
{
    char name[4096];
    const char *path = sfp__args_string(p->args, "features");
    if (!path)
        return SFP_OK;
    int need = snprintf(name, sizeof name, "%s.tmp.XXXXXX", path);
    if (need < 0 || (size_t)need >= sizeof name)
        return sfp__fail(err, SFP_ELIMIT, "%s: the path is too long", path);
    int fd = mkstemp(name);
    if (fd < 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot create", path);
    (void)unlink(name);
    p->spool = fdopen(fd, "w+");
    if (!p->spool) {
        (void)close(fd);
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot create", path);
    }
    return SFP_OK;
}

/* Rows go to the spool in the order of files, one for each of them. */
sfp_status sfp__predict_spool_chunk(sfp_predict *p, sfp_error *err)
{
    int dim = p->vit->config.dim, next = 0;
    const float nan_row = NAN;
    bool good = true;
    for (int slot = 0; p->spool && slot < p->slots; slot++) {
        if (next < p->decoded && p->slot_of[next] == slot) {
            good = good && fwrite(p->feature + (size_t)next * (size_t)dim, sizeof(float), (size_t)dim, p->spool) == (size_t)dim;
            next++;
        } else {
            for (int k = 0; k < dim; k++)
                good = good && fwrite(&nan_row, sizeof nan_row, 1, p->spool) == 1;
        }
    }
    return good ? SFP_OK : sfp__fail_errno(err, SFP_EIO, "%s: cannot write", sfp__args_string(p->args, "features"));
}

sfp_status sfp__predict_spool_finish(sfp_predict *p, sfp_error *err)
{
    const char *path = sfp__args_string(p->args, "features");
    size_t dim = (size_t)p->vit->config.dim, bytes = p->files.count * dim * sizeof(float);
    if (!p->spool)
        return SFP_OK;
    if (fflush(p->spool) != 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot write", path);
    void *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fileno(p->spool), 0);
    if (map == MAP_FAILED)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot map %zu bytes", path, bytes);
    sfp_tensor t = {.name = "features", .dtype = SFP_DTYPE_F32, .ndim = 2, .count = p->files.count * dim, .bytes = bytes, .data = map};
    t.shape[0] = (int64_t)p->files.count;
    t.shape[1] = (int64_t)dim;
    sfp_status s = sfp__npy_write(path, &t, err);
    (void)munmap(map, bytes);
    return s;
}
