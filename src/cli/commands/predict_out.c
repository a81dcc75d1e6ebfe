#include "cli/commands/predict.h"

#include "cli/ui.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { EVAL_TOP = 5 };
static const double unknown_from = 0.95; /* an image with this score may belong to none of the classes */

static int shown(const sfp__predict *p, int i)
{
    int n = p->rankings[i].count;
    return p->topk < n ? p->topk : n;
}

static const char *file_of(const sfp__predict *p, int i)
{
    return sfp__filelist_path(&p->files, p->first + (size_t)i);
}

/* Reports an image that could not be read; with --features, the message contains its row. */
void sfp__predict_print_failed(const sfp__predict *p, int i)
{
    const char *features = sfp__args_string(p->args, "features"), *message = sfp_predictor_image_error(p->predictor, i);
    if (features)
        sfp__warn("%s (row %zu of %s)", message, p->first + (size_t)i, features);
    else
        sfp__warn("%s", message);
}

double sfp__predict_unknown(const sfp__predict *p, int i)
{
    const float *unknown = sfp_predictor_unknown(p->predictor);
    return unknown ? (double)unknown[i] : NAN;
}

/* Columns are separated by tabs, since names contain commas, colons and blanks. */
static void print_text(const sfp__predict *p, int i)
{
    const sfp__ranking *r = &p->rankings[i];
    sfp__put_text(stdout, file_of(p, i), 0);
    for (int k = 0; k < shown(p, i); k++) {
        const char *name = sfp__predict_class_name(p, r->label[k]);
        (void)fputc('\t', stdout);
        if (name)
            sfp__put_text(stdout, name, 0);
        else
            (void)printf("%d", r->label[k]);
        (void)printf("\t%.1f %%", 100.0 * (double)r->probability[k]);
    }
    if (sfp__predict_unknown(p, i) >= unknown_from)
        (void)fputs("\tnone of these?", stdout);
    (void)fputc('\n', stdout);
}

static void print_json(sfp__predict *p, int i)
{
    sfp__json *json = &p->out.json;
    const sfp__ranking *r = &p->rankings[i];
    sfp__json_object(json, NULL);
    sfp__json_int(json, "row", (int64_t)p->first + i);
    sfp__json_string(json, "file", file_of(p, i));
    if (p->predictions[i].status) {
        sfp__json_string(json, "error", sfp_predictor_image_error(p->predictor, i));
    } else if (p->classes > 0) {
        sfp__json_array(json, "top");
        for (int k = 0; k < shown(p, i); k++) {
            const char *name = sfp__predict_class_name(p, r->label[k]);
            sfp__json_object(json, NULL);
            sfp__json_int(json, "class", r->label[k]);
            if (name)
                sfp__json_string(json, "name", name);
            sfp__json_float(json, "probability", r->probability[k]);
            sfp__json_end(json);
        }
        sfp__json_end(json);
        if (isfinite(sfp__predict_unknown(p, i)))
            sfp__json_float(json, "unknown", (float)sfp__predict_unknown(p, i));
    }
    sfp__json_end(json);
}

static void count_correct(sfp__predict *p, int i)
{
    const sfp__ranking *r = &p->rankings[i];
    int32_t label = p->labels[p->first + (size_t)i];
    for (int k = 0; k < EVAL_TOP && k < r->count; k++) {
        p->top1 += k == 0 && r->label[k] == label;
        p->top5 += r->label[k] == label;
    }
}

void sfp__predict_print_chunk(sfp__predict *p)
{
    for (int i = 0; i < p->count; i++) {
        if (p->list)
            print_json(p, i);
        else if (p->predictions[i].status)
            continue;
        else if (p->eval)
            count_correct(p, i);
        else if (p->classes > 0)
            print_text(p, i);
    }
}

void sfp__predict_print_totals(sfp__predict *p)
{
    sfp__json *json = &p->out.json;
    double rate = p->seconds > 0 ? (double)p->answered / p->seconds : 0, n = p->answered ? (double)p->answered : 1;
    if (p->eval) {
        sfp__json_int(json, "top1_count", (int64_t)p->top1);
        sfp__json_int(json, "top5_count", (int64_t)p->top5);
        sfp__out_printf(&p->out, "top-1 %zu of %zu (%.1f %%), top-%d %zu of %zu (%.1f %%), %.1f images/s\n", p->top1, p->answered,
                        100.0 * (double)p->top1 / n, EVAL_TOP, p->top5, p->answered, 100.0 * (double)p->top5 / n, rate);
    }
    sfp__json_int(json, "count", (int64_t)p->answered);
    sfp__json_int(json, "failed", (int64_t)p->failed);
    sfp__json_real(json, "seconds", p->seconds);
    sfp__json_real(json, "images_per_second", rate);
    if (p->failed)
        sfp__warn("%zu of %zu images could not be decoded", p->failed, p->failed + p->answered);
}

/* ---------------------------------------------------------------------- features */

/* The .npy format, version 1.0: magic, version, length of a header that pads the whole to a multiple of 64 bytes, header, rows. The
 * number of rows is that of the files and so known before the first one: rows are written as they are computed. */
sfp_status sfp__predict_features_open(sfp__predict *p, sfp_error *err)
{
    enum { HEAD = 128, PREFIX = 10 };
    char head[HEAD + 1], text[HEAD - PREFIX]; /* longer than any shape */
    const char *path = sfp__args_string(p->args, "features");
    if (!path)
        return SFP_OK;
    (void)snprintf(text, sizeof text, "{'descr': '<f4', 'fortran_order': False, 'shape': (%zu, %d), }", p->files.count,
                   sfp_predictor_feature_dim(p->predictor));
    (void)snprintf(head, sizeof head, "\x93NUMPY\x01___%-*.*s\n", HEAD - PREFIX - 1, HEAD - PREFIX - 1, text);
    const uint8_t binary[] = {0, HEAD - PREFIX, 0}; /* minor version, length of the header, little-endian */
    memcpy(head + 7, binary, sizeof binary);
    TRY(sfp__writer_open(path, &p->features, err));
    return sfp__writer_put(&p->features, head, HEAD, err);
}

/* Writes one row per file of the chunk. The row of an unreadable image is NaN. */
sfp_status sfp__predict_features_put(sfp__predict *p, sfp_error *err)
{
    size_t dim = (size_t)sfp_predictor_feature_dim(p->predictor);
    const float *rows = sfp_predictor_features(p->predictor), nan_value = NAN;
    if (!p->features.tmp)
        return SFP_OK;
    for (int i = 0; i < p->count; i++) {
        if (p->predictions[i].status == SFP_OK)
            TRY(sfp__writer_put(&p->features, rows + (size_t)i * dim, dim * sizeof *rows, err));
        for (size_t k = 0; p->predictions[i].status && k < dim; k++)
            TRY(sfp__writer_put(&p->features, &nan_value, sizeof nan_value, err));
    }
    return SFP_OK;
}

sfp_status sfp__predict_features_commit(sfp__predict *p, sfp_error *err)
{
    return p->features.tmp ? sfp__writer_commit(&p->features, err) : SFP_OK;
}
