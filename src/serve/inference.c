/* /v2: the Open Inference Protocol, which clients of KServe, Triton and OVMS use. There is one input, "image", of type BYTES. Its elements are
 * image files: as base64 in the JSON, or as binary data after it (each element follows its length, 4 bytes, little-endian). Outputs: "label" and
 * "probability", both of shape (images, top), and "unknown", of shape (images). */
#include "serve/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { IMAGES_MAX = 64, TOP_MAX = 20, TOP_DEFAULT = 1 };

sfp_status sfp__v2_server(sfp__request *r, sfp_error *err)
{
    (void)err;
    sfp__text_printf(&r->reply, "{\"name\":\"streamfp\",\"version\":\"%s\",\"extensions\":[\"binary_tensor_data\"]}",
                     sfp_version());
    return SFP_OK;
}

sfp_status sfp__v2_live(sfp__request *r, sfp_error *err)
{
    (void)err;
    sfp__text_put(&r->reply, "{\"live\":true}");
    return SFP_OK;
}

sfp_status sfp__v2_ready(sfp__request *r, sfp_error *err)
{
    (void)err;
    bool ready = sfp__serve_ready(r->server);
    r->status = ready ? 200 : 503;
    sfp__text_printf(&r->reply, "{\"ready\":%s}", ready ? "true" : "false");
    return SFP_OK;
}

sfp_status sfp__v2_model_ready(sfp__request *r, sfp_error *err)
{
    (void)err;
    bool ready = sfp__model_ready(r->model);
    sfp__json j = {.text = &r->reply};
    r->status = ready ? 200 : 503;
    sfp__json_object(&j, NULL);
    sfp__json_string(&j, "name", sfp__model_name(r->model));
    sfp__json_bool(&j, "ready", ready);
    sfp__json_end_all(&j);
    return SFP_OK;
}

static void put_tensor(sfp__json *j, const char *name, const char *type, int dims)
{
    sfp__json_object(j, NULL);
    sfp__json_string(j, "name", name);
    sfp__json_string(j, "datatype", type);
    sfp__json_array(j, "shape");
    for (int i = 0; i < dims; i++)
        sfp__json_int(j, NULL, -1);
    sfp__json_end(j);
    sfp__json_end(j);
}

sfp_status sfp__v2_model(sfp__request *r, sfp_error *err)
{
    (void)err;
    sfp__model_status s;
    char version[32];
    sfp__json j = {.text = &r->reply};
    sfp__model_get(r->model, &s);
    (void)snprintf(version, sizeof version, "t%llu", (unsigned long long)s.version);
    sfp__json_object(&j, NULL);
    sfp__json_string(&j, "name", sfp__model_name(r->model));
    sfp__json_array(&j, "versions");
    sfp__json_string(&j, NULL, version);
    sfp__json_end(&j);
    sfp__json_string(&j, "platform", "streamfp");
    sfp__json_array(&j, "inputs");
    put_tensor(&j, "image", "BYTES", 1);
    sfp__json_end(&j);
    sfp__json_array(&j, "outputs");
    put_tensor(&j, "label", "BYTES", 2);
    put_tensor(&j, "probability", "FP32", 2);
    put_tensor(&j, "unknown", "FP32", 1);
    sfp__json_end_all(&j);
    return SFP_OK;
}

/* ------------------------------------------------------------------------ input */

typedef struct infer_job {
    sfp__request *request;
    char id[256];
    int count, top;
    sfp__decoded decoded[IMAGES_MAX];
    sfp_image images[IMAGES_MAX];
} infer_job;

static void free_job(infer_job *j)
{
    for (int i = 0; j && i < IMAGES_MAX; i++)
        sfp__decoded_done(&j->decoded[i]);
    sfp__free(j);
}
DEFINE_OWNED_PTR(infer_job, free_job)

static sfp_status add_image(infer_job *j, const void *bytes, size_t size, sfp_error *err)
{
    sfp_error why;
    if (j->count == IMAGES_MAX)
        return sfp__fail(err, SFP_ELIMIT, "the input has more than %d images", IMAGES_MAX);
    sfp_status status = sfp__serve_decode(bytes, size, &j->decoded[j->count], &why);
    if (status)
        return sfp__fail(err, status == SFP_ENOMEM ? status : SFP_EFORMAT, "image %d: %.600s", j->count, why.message);
    j->images[j->count] = j->decoded[j->count].image;
    j->count++;
    return SFP_OK;
}

/* Returns the number of bytes written. SIZE_MAX: the text is not base64. */
static size_t decode_base64(const char *s, size_t n, uint8_t *out)
{
    uint32_t bits = 0;
    int have = 0;
    size_t count = 0;
    while (n > 0 && s[n - 1] == '=')
        n--;
    for (size_t i = 0; i < n; i++) {
        int c = (unsigned char)s[i];
        int v = c >= 'A' && c <= 'Z'   ? c - 'A'
                : c >= 'a' && c <= 'z' ? c - 'a' + 26
                : c >= '0' && c <= '9' ? c - '0' + 52
                : c == '+'             ? 62
                : c == '/'             ? 63
                                       : -1;
        if (v < 0)
            return SIZE_MAX;
        bits = bits << 6 | (uint32_t)v;
        have += 6;
        if (have >= 8) {
            have -= 8;
            out[count++] = (uint8_t)(bits >> have);
        }
    }
    return count;
}

static sfp_status read_base64(infer_job *j, const sfp__json_value *data, sfp_error *err)
{
    for (size_t i = 0; i < sfp__json_size(data); i++) {
        const sfp__json_value *v = sfp__json_at(data, i);
        OWNED uint8_t *bytes = NULL;
        if (!sfp__json_is(v, SFP__JSON_STRING))
            return sfp__fail(err, SFP_EINVAL, "element %zu of 'data' is not a string, expected an image in base64", i);
        TRY(sfp__alloc(&bytes, v->count / 4 * 3 + 3, 1, err));
        size_t n = decode_base64(v->text, v->count, bytes);
        if (n == SIZE_MAX)
            return sfp__fail(err, SFP_EINVAL, "element %zu of 'data' is not base64", i);
        TRY(add_image(j, bytes, n, err));
    }
    return SFP_OK;
}

static sfp_status read_binary(infer_job *j, const uint8_t *at, size_t size, sfp_error *err)
{
    while (size > 0) {
        size_t n = size < 4 ? 0 : (size_t)at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
        if (size < 4 || n > size - 4)
            return sfp__fail(err, SFP_EINVAL, "the binary data ends inside element %d", j->count);
        TRY(add_image(j, at + 4, n, err));
        at += 4 + n;
        size -= 4 + n;
    }
    return SFP_OK;
}

static sfp_status read_input(infer_job *j, const sfp__json_value *input, const uint8_t *binary, size_t size, sfp_error *err)
{
    const char *type = sfp__json_text(sfp__json_get(input, "datatype"));
    const sfp__json_value *data = sfp__json_get(input, "data");
    int64_t bytes = -1;
    if (!type || strcmp(type, "BYTES") != 0)
        return sfp__fail(err, SFP_EINVAL, "the datatype of the input is '%.20s', expected BYTES", type ? type : "");
    (void)sfp__json_whole(sfp__json_get(input, "parameters"), "binary_data_size", 0, INT64_MAX, &bytes);
    if (bytes >= 0 && (uint64_t)bytes != size)
        return sfp__fail(err, SFP_EINVAL, "binary_data_size is %lld, but %zu bytes follow the JSON", (long long)bytes, size);
    if (bytes < 0 && !sfp__json_is(data, SFP__JSON_ARRAY))
        return sfp__fail(err, SFP_EINVAL, "the input has neither 'data' nor binary data");
    TRY(bytes >= 0 ? read_binary(j, binary, size, err) : read_base64(j, data, err));
    return j->count ? SFP_OK : sfp__fail(err, SFP_EINVAL, "the input has no image");
}

/* ----------------------------------------------------------------------- output */

static void put_shape(sfp__json *j, const char *name, const char *type, int rows, int columns)
{
    sfp__json_object(j, NULL);
    sfp__json_string(j, "name", name);
    sfp__json_string(j, "datatype", type);
    sfp__json_array(j, "shape");
    sfp__json_int(j, NULL, rows);
    if (columns >= 0)
        sfp__json_int(j, NULL, columns);
    sfp__json_end(j);
    sfp__json_array(j, "data");
}

/* The k-th best class of row i; -1: there is none. */
static int ranked(const sfp_predictor *p, const float *score, int k)
{
    int best = -1;
    for (int last = -1; k >= 0; k--, last = best) {
        best = -1;
        for (int c = 0; c < sfp_predictor_classes(p); c++) {
            bool after = last < 0 || score[c] < score[last] || (score[c] == score[last] && c > last);
            if (after && sfp_predictor_class_seen(p, c) && (best < 0 || score[c] > score[best]))
                best = c;
        }
        if (best < 0)
            break;
    }
    return best;
}

static void write_outputs(sfp__prediction_request *q, const sfp_predictor *p, int first, const sfp_prediction *predictions)
{
    const infer_job *job = q->ctx;
    const float *scores = sfp_predictor_scores(p), *unknown = sfp_predictor_unknown(p);
    size_t classes = (size_t)sfp_predictor_classes(p);
    char version[32];
    int seen = 0;
    for (int c = 0; c < (int)classes; c++)
        seen += sfp_predictor_class_seen(p, c) != 0;
    int top = job->top < seen ? job->top : seen;
    sfp__json j = {.text = &job->request->reply};
    (void)predictions;
    (void)snprintf(version, sizeof version, "t%llu", (unsigned long long)sfp_predictor_timestamps(p));
    sfp__json_object(&j, NULL);
    sfp__json_string(&j, "model_name", sfp__model_name(job->request->model));
    sfp__json_string(&j, "model_version", version);
    if (*job->id)
        sfp__json_string(&j, "id", job->id);
    sfp__json_array(&j, "outputs");
    for (int part = 0; part < 2; part++) {
        put_shape(&j, part ? "probability" : "label", part ? "FP32" : "BYTES", q->count, top);
        for (int i = 0; i < q->count; i++)
            for (int k = 0; k < top; k++) {
                const float *row = scores + (size_t)(first + i) * classes;
                int c = ranked(p, row, k);
                const char *name = c >= 0 ? sfp_predictor_class_name(p, c) : NULL;
                if (part)
                    sfp__json_real(&j, NULL, c >= 0 ? exp((double)row[c]) : 0);
                else
                    sfp__json_string(&j, NULL, name ? name : "");
            }
        sfp__json_end(&j);
        sfp__json_end(&j);
    }
    put_shape(&j, "unknown", "FP32", q->count, -1);
    for (int i = 0; i < q->count; i++)
        sfp__json_real(&j, NULL, unknown && isfinite(unknown[first + i]) ? (double)unknown[first + i] : -1);
    sfp__json_end_all(&j);
}

sfp_status sfp__v2_infer(sfp__request *r, sfp_error *err)
{
    OWNED sfp__json_value *root = NULL;
    OWNED_PTR(free_job) infer_job *j = NULL;
    const char *header = sfp__request_header(r, "Inference-Header-Content-Length");
    int64_t length = (int64_t)r->body.length, top = TOP_DEFAULT;
    if (header && (!sfp__parse_int(header, &length) || length < 0 || (size_t)length > r->body.length))
        return sfp__fail(err, SFP_EINVAL,
                         "Inference-Header-Content-Length is '%.40s', expected at most the %zu bytes of the body", header,
                         r->body.length);
    TRY(sfp__json_parse("body", r->body.s ? r->body.s : "", (size_t)length, &root, err));
    const sfp__json_value *inputs = sfp__json_get(root, "inputs");
    const char *id = sfp__json_text(sfp__json_get(root, "id"));
    if (!sfp__json_is(inputs, SFP__JSON_ARRAY) || sfp__json_size(inputs) != 1)
        return sfp__fail(err, SFP_EINVAL, "inputs has %zu entries, expected one of type BYTES", sfp__json_size(inputs));
    TRY(sfp__alloc(&j, 1, sizeof *j, err));
    j->request = r;
    (void)snprintf(j->id, sizeof j->id, "%s", id ? id : "");
    if (!sfp__utf8_valid(j->id)) /* snprintf truncated it inside a character */
        return sfp__fail(err, SFP_EINVAL, "id is longer than %zu bytes", sizeof j->id - 1);
    if (sfp__json_get(sfp__json_get(root, "parameters"), "top") &&
        !sfp__json_whole(sfp__json_get(root, "parameters"), "top", 1, TOP_MAX, &top))
        return sfp__fail(err, SFP_EINVAL, "parameter 'top' is not a number from 1 to %d", TOP_MAX);
    j->top = (int)top;
    TRY(read_input(j, sfp__json_at(inputs, 0), (const uint8_t *)r->body.s + length, r->body.length - (size_t)length, err));
    sfp__prediction_request q = {.count = j->count, .images = j->images, .answer = write_outputs, .ctx = j};
    return sfp__model_predict(r->model, &q, err);
}
