#include "cli/commands/predict.h"

#include "cli/ui.h"
#include "io/file.h"

#include "io/tensor/tensor_file.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { EVAL_TOP = 5 };

static int shown(const sfp__predict *p, int i)
{
    return p->answer.topk < p->answer.top_count[i] ? p->answer.topk : p->answer.top_count[i];
}

static const char *file_of(const sfp__predict *p, int slot)
{
    return sfp__filelist_path(&p->files, p->chunk.first + (size_t)slot);
}

/* With --features an image is also known by its row, which only the list of files would tell. */
void sfp__predict_report_failed(const sfp__predict *p, int slot)
{
    const char *features = sfp__args_string(p->args, "features");
    if (features)
        sfp__info("%s (row %zu of %s)", p->chunk.errors[slot].message, p->chunk.first + (size_t)slot, features);
    else
        (void)sfp__print_error(&p->chunk.errors[slot]);
}

/* Columns by tabs, which put_text lets through in no name: names have commas, colons and blanks. */
static void print_text(const sfp__predict *p, int i)
{
    const int32_t *top = p->answer.top + (size_t)i * SFP_PREDICT_TOP_MAX;
    const float *top_p = p->answer.top_p + (size_t)i * SFP_PREDICT_TOP_MAX;
    sfp__put_text(stdout, file_of(p, p->chunk.slot_of[i]), 0);
    for (int k = 0; k < shown(p, i); k++) {
        const char *name = sfp__image_classifier_class_name(&p->answer, top[k]);
        (void)fputc('\t', stdout);
        if (name)
            sfp__put_text(stdout, name, 0);
        else
            (void)printf("%d", top[k]);
        (void)printf("\t%.1f %%", 100.0 * (double)top_p[k]);
    }
    (void)fputc('\n', stdout);
}

static void json_top(sfp__predict *p, int i)
{
    const int32_t *top = p->answer.top + (size_t)i * SFP_PREDICT_TOP_MAX;
    const float *top_p = p->answer.top_p + (size_t)i * SFP_PREDICT_TOP_MAX;
    sfp__json_array(&p->tally.out.json, "top");
    for (int k = 0; k < shown(p, i); k++) {
        sfp__json_object(&p->tally.out.json, NULL);
        sfp__json_int(&p->tally.out.json, "class", top[k]);
        if (sfp__image_classifier_class_name(&p->answer, top[k]))
            sfp__json_string(&p->tally.out.json, "name", sfp__image_classifier_class_name(&p->answer, top[k]));
        sfp__json_float(&p->tally.out.json, "probability", top_p[k]);
        sfp__json_end(&p->tally.out.json);
    }
    sfp__json_end(&p->tally.out.json);
}

/* The image of a slot: the decoded image i, or with i negative one that could not be. */
static void print_json(sfp__predict *p, int slot, int i)
{
    sfp__json_object(&p->tally.out.json, NULL);
    sfp__json_int(&p->tally.out.json, "row", (int64_t)p->chunk.first + slot);
    sfp__json_string(&p->tally.out.json, "file", file_of(p, slot));
    if (i < 0)
        sfp__json_string(&p->tally.out.json, "error", p->chunk.errors[slot].message);
    else if (p->answer.score)
        json_top(p, i);
    sfp__json_end(&p->tally.out.json);
}

static void count_right(sfp__predict *p, int i)
{
    const int32_t *top = p->answer.top + (size_t)i * SFP_PREDICT_TOP_MAX;
    int32_t label = p->labels[p->chunk.first + (size_t)p->chunk.slot_of[i]];
    for (int k = 0; k < EVAL_TOP && k < p->answer.top_count[i]; k++) {
        p->tally.top1 += k == 0 && top[k] == label;
        p->tally.top5 += top[k] == label;
    }
}

void sfp__predict_tell(sfp__predict *p)
{
    for (int slot = 0, next = 0; slot < p->chunk.slots; slot++) {
        int i = next < p->chunk.decoded && p->chunk.slot_of[next] == slot ? next++ : -1;
        if (p->list)
            print_json(p, slot, i);
        else if (i >= 0 && p->eval)
            count_right(p, i);
        else if (i >= 0 && p->answer.score)
            print_text(p, i);
    }
}

void sfp__predict_summary(sfp__predict *p)
{
    double rate = p->tally.seconds > 0 ? (double)p->tally.count / p->tally.seconds : 0;
    if (!p->tally.out.text) {
        if (p->eval) {
            sfp__json_int(&p->tally.out.json, "top1_count", (int64_t)p->tally.top1);
            sfp__json_int(&p->tally.out.json, "top5_count", (int64_t)p->tally.top5);
        }
        sfp__json_int(&p->tally.out.json, "count", (int64_t)p->tally.count);
        sfp__json_int(&p->tally.out.json, "failed", (int64_t)p->tally.failed);
        sfp__json_real(&p->tally.out.json, "seconds", p->tally.seconds);
        sfp__json_real(&p->tally.out.json, "images_per_second", rate);
    } else if (p->eval) {
        double n = p->tally.count ? (double)p->tally.count : 1;
        (void)printf("top-1 %zu of %zu (%.1f %%), top-%d %zu of %zu (%.1f %%), %.1f images/s\n", p->tally.top1, p->tally.count,
                     100.0 * (double)p->tally.top1 / n, EVAL_TOP, p->tally.top5, p->tally.count,
                     100.0 * (double)p->tally.top5 / n, rate);
    }
    if (p->tally.failed)
        sfp__info("%zu of %zu images could not be decoded", p->tally.failed, p->tally.failed + p->tally.count);
}

/* ---------------------------------------------------------------------- features */

/* Rows are spooled as they come and become the .npy file at the end, through a map, so that a file larger than memory can be
 * written. */
sfp_status sfp__predict_spool_open(sfp__predict *p, sfp_error *err)
{
    char name[4096];
    const char *path = sfp__args_string(p->args, "features");
    if (!path)
        return SFP_OK;
    TRY(sfp__path_print(name, sizeof name, err, "%s.tmp.XXXXXX", path));
    int fd = mkstemp(name);
    if (fd < 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot create", path);
    (void)unlink(name);
    p->tally.spool = fdopen(fd, "w+");
    if (!p->tally.spool) {
        (void)close(fd);
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot create", path);
    }
    return SFP_OK;
}

/* Rows go to the spool in the order of files, one for each of them. */
sfp_status sfp__predict_spool_chunk(sfp__predict *p, sfp_error *err)
{
    int dim = p->answer.vit->config.dim, next = 0;
    const float nan_row = NAN;
    bool good = true;
    for (int slot = 0; p->tally.spool && slot < p->chunk.slots; slot++) {
        if (next < p->chunk.decoded && p->chunk.slot_of[next] == slot) {
            good = good && fwrite(p->answer.feature + (size_t)next * (size_t)dim, sizeof(float), (size_t)dim, p->tally.spool) ==
                               (size_t)dim;
            next++;
        } else {
            for (int k = 0; k < dim; k++)
                good = good && fwrite(&nan_row, sizeof nan_row, 1, p->tally.spool) == 1;
        }
    }
    return good ? SFP_OK : sfp__fail_errno(err, SFP_EIO, "%s: cannot write", sfp__args_string(p->args, "features"));
}

sfp_status sfp__predict_spool_finish(sfp__predict *p, sfp_error *err)
{
    const char *path = sfp__args_string(p->args, "features");
    size_t dim = (size_t)p->answer.vit->config.dim, bytes = p->files.count * dim * sizeof(float);
    if (!p->tally.spool)
        return SFP_OK;
    if (fflush(p->tally.spool) != 0)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot write", path);
    void *map = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fileno(p->tally.spool), 0);
    if (map == MAP_FAILED)
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot map %zu bytes", path, bytes);
    sfp__tensor t = {
        .name = "features", .dtype = SFP_DTYPE_F32, .ndim = 2, .count = p->files.count * dim, .bytes = bytes, .data = map};
    t.shape[0] = (int64_t)p->files.count;
    t.shape[1] = (int64_t)dim;
    sfp_status s = sfp__npy_write(path, &t, err);
    (void)munmap(map, bytes);
    return s;
}
