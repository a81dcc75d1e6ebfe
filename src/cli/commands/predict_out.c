#include "cli/commands/predict.h"

#include "cli/ui.h"

#include "io/tensor/tensor_file.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { EVAL_TOP = 5 };

static int shown(const sfp_predict *p, int i)
{
    return p->topk < p->top_count[i] ? p->topk : p->top_count[i];
}

static const char *file_of(const sfp_predict *p, int slot)
{
    return sfp__filelist_path(&p->files, p->first + (size_t)slot);
}

/* With --features a picture is also known by its row, which only the list of files would tell. */
void sfp__predict_say_failed(const sfp_predict *p, int slot)
{
    const char *features = sfp__args_string(p->args, "features");
    if (features)
        sfp__say("%s (row %zu of %s)", p->errors[slot].message, p->first + (size_t)slot, features);
    else
        (void)sfp__say_error(&p->errors[slot]);
}

/* Columns by tabs, which put_text lets through in no name: names have commas, colons and blanks. */
static void print_text(const sfp_predict *p, int i)
{
    const int32_t *top = p->top + (size_t)i * SFP_PREDICT_TOP_MAX;
    const float *top_p = p->top_p + (size_t)i * SFP_PREDICT_TOP_MAX;
    sfp__put_text(stdout, file_of(p, p->slot_of[i]), 0);
    for (int k = 0; k < shown(p, i); k++) {
        const char *name = sfp__predict_class_name(p, top[k]);
        (void)fputc('\t', stdout);
        if (name)
            sfp__put_text(stdout, name, 0);
        else
            (void)printf("%d", top[k]);
        (void)printf("\t%.1f %%", 100.0 * (double)top_p[k]);
    }
    (void)fputc('\n', stdout);
}

static void json_top(sfp_predict *p, int i)
{
    const int32_t *top = p->top + (size_t)i * SFP_PREDICT_TOP_MAX;
    const float *top_p = p->top_p + (size_t)i * SFP_PREDICT_TOP_MAX;
    sfp__json_array(&p->out, "top");
    for (int k = 0; k < shown(p, i); k++) {
        sfp__json_object(&p->out, NULL);
        sfp__json_int(&p->out, "class", top[k]);
        if (sfp__predict_class_name(p, top[k]))
            sfp__json_string(&p->out, "name", sfp__predict_class_name(p, top[k]));
        sfp__json_float(&p->out, "probability", top_p[k]);
        sfp__json_end(&p->out);
    }
    sfp__json_end(&p->out);
}

/* The picture of a slot: the decoded picture i, or with i negative one that could not be. */
static void print_json(sfp_predict *p, int slot, int i)
{
    sfp__json_object(&p->out, NULL);
    sfp__json_int(&p->out, "row", (int64_t)p->first + slot);
    sfp__json_string(&p->out, "file", file_of(p, slot));
    if (i < 0)
        sfp__json_string(&p->out, "error", p->errors[slot].message);
    else if (p->score)
        json_top(p, i);
    sfp__json_end(&p->out);
}

static void count_right(sfp_predict *p, int i)
{
    const int32_t *top = p->top + (size_t)i * SFP_PREDICT_TOP_MAX;
    int32_t label = p->labels[p->first + (size_t)p->slot_of[i]];
    for (int k = 0; k < EVAL_TOP && k < p->top_count[i]; k++) {
        p->top1 += k == 0 && top[k] == label;
        p->top5 += top[k] == label;
    }
}

void sfp__predict_tell(sfp_predict *p)
{
    for (int slot = 0, next = 0; slot < p->slots; slot++) {
        int i = next < p->decoded && p->slot_of[next] == slot ? next++ : -1;
        if (p->list)
            print_json(p, slot, i);
        else if (i >= 0 && p->eval)
            count_right(p, i);
        else if (i >= 0 && p->score)
            print_text(p, i);
    }
}

void sfp__predict_summary(sfp_predict *p)
{
    double rate = p->seconds > 0 ? (double)p->count / p->seconds : 0;
    if (p->json) {
        if (p->eval) {
            sfp__json_int(&p->out, "top1_count", (int64_t)p->top1);
            sfp__json_int(&p->out, "top5_count", (int64_t)p->top5);
        }
        sfp__json_int(&p->out, "count", (int64_t)p->count);
        sfp__json_int(&p->out, "failed", (int64_t)p->failed);
        sfp__json_real(&p->out, "seconds", p->seconds);
        sfp__json_real(&p->out, "images_per_second", rate);
    } else if (p->eval) {
        double n = p->count ? (double)p->count : 1;
        (void)printf("top-1 %zu of %zu (%.1f %%), top-%d %zu of %zu (%.1f %%), %.1f images/s\n", p->top1, p->count,
                     100.0 * (double)p->top1 / n, EVAL_TOP, p->top5, p->count, 100.0 * (double)p->top5 / n, rate);
    }
    if (p->failed)
        sfp__say("%zu of %zu pictures could not be decoded", p->failed, p->failed + p->count);
}

/* ---------------------------------------------------------------------- features */

/* Rows are spooled as they come and become the .npy file at the end, through a map, so that a file larger than memory can be
 * written. */
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
    sfp_tensor t = {
        .name = "features", .dtype = SFP_DTYPE_F32, .ndim = 2, .count = p->files.count * dim, .bytes = bytes, .data = map};
    t.shape[0] = (int64_t)p->files.count;
    t.shape[1] = (int64_t)dim;
    sfp_status s = sfp__npy_write(path, &t, err);
    (void)munmap(map, bytes);
    return s;
}
