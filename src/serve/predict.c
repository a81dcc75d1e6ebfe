/* Predictions for requests: reads images and boxes from the body, writes answers as JSON, and adds received images as samples. */
#include "serve/internal.h"

#include <math.h>
#include <stdio.h>
#include <strings.h>

enum { PARTS_MAX = 64, BOXES_MAX = 64, IMAGES_MAX = 256, TOP_MAX = 1000, TOP_DEFAULT = 3 };
static const double unknown_limit = 0.95; /* as sfp_predictor_unknown in streamfp.h recommends */

/* -------------------------------------------------------------------- answers */

/* Writes the labels of the `top` classes with the highest scores to `best`, highest first; returns their number. */
static int find_best(const sfp_predictor *p, const float *score, int top, int *best)
{
    int count = 0;
    for (int c = 0; c < sfp_predictor_classes(p); c++) {
        if (!sfp_predictor_class_seen(p, c) || (count == top && score[c] <= score[best[count - 1]]))
            continue;
        int at = count < top ? count++ : count - 1;
        for (; at > 0 && score[best[at - 1]] < score[c]; at--)
            best[at] = best[at - 1];
        best[at] = c;
    }
    return count;
}

void sfp__json_prediction(sfp__json *j, const sfp_predictor *p, int i, const sfp_prediction *prediction, int top)
{
    const float *scores = sfp_predictor_scores(p), *unknown = sfp_predictor_unknown(p);
    int best[TOP_MAX], count = 0;
    if (scores && prediction->label >= 0)
        count = find_best(p, scores + (size_t)i * (size_t)sfp_predictor_classes(p), top, best);
    sfp__json_array(j, "classes");
    for (int k = 0; k < count; k++) {
        const char *name = sfp_predictor_class_name(p, best[k]);
        sfp__json_object(j, NULL);
        sfp__json_string(j, "name", name ? name : "");
        sfp__json_real(j, "probability", exp((double)scores[(size_t)i * (size_t)sfp_predictor_classes(p) + (size_t)best[k]]));
        sfp__json_end(j);
    }
    sfp__json_end(j);
    double u = unknown ? (double)unknown[i] : (double)NAN;
    sfp__json_real(j, "unknown", u);
    sfp__json_bool(j, "is_unknown", count == 0 || u >= unknown_limit);
}

/* -------------------------------------------------------- images of a request */

typedef struct upload_part {
    const char *bytes;
    size_t size;
    char name[128];
} upload_part;

typedef struct upload {
    upload_part parts[PARTS_MAX];
    int count;
} upload;

/* Copies the value of an attribute in the header of a part. name includes the opening quote, such as filename=". */
static void find_attribute(const char *header, size_t size, const char *name, char *out, size_t max)
{
    const char *at = memmem(header, size, name, strlen(name));
    out[0] = '\0';
    if (!at)
        return;
    at += strlen(name);
    for (size_t n = 0; at < header + size && *at != '"' && *at != '\r' && n + 1 < max; at++) {
        out[n++] = *at;
        out[n] = '\0';
    }
}

/* Splits the body of multipart/form-data at its boundary lines. */
static sfp_status split_parts(const sfp__request *r, const char *type, upload *u, sfp_error *err)
{
    const char *given = strcasestr(type, "boundary=");
    char line[96];
    size_t n = 0;
    given = given ? given + 9 : "";
    bool quoted = *given == '"';
    for (given += quoted; *given && *given != (quoted ? '"' : ';') && *given != ' ' && n < 71; n++)
        line[4 + n] = *given++;
    if (n == 0 || n > 70)
        return sfp__fail(err, SFP_EINVAL, "the boundary of multipart/form-data is missing, or longer than 70 characters");
    memcpy(line, "\r\n--", 4);
    n += 4;
    const char *body = r->body.s ? r->body.s : "", *end = body + r->body.length;
    const char *at =
        r->body.length >= n - 2 && memcmp(body, line + 2, n - 2) == 0 ? body + n - 2 : memmem(body, r->body.length, line, n);
    if (at && at > body + n)
        at += n;
    while (at && end - at >= 2 && memcmp(at, "--", 2) != 0) {
        const char *header = at + 2, *split = memmem(header, (size_t)(end - header), "\r\n\r\n", 4);
        const char *next = split ? memmem(split + 2, (size_t)(end - split - 2), line, n) : NULL;
        if (memcmp(at, "\r\n", 2) != 0 || !next || next < split + 4)
            return sfp__fail(err, SFP_EINVAL, "part %d of multipart/form-data does not end, or has no header", u->count + 1);
        if (u->count == PARTS_MAX)
            return sfp__fail(err, SFP_ELIMIT, "the request has more than %d parts", PARTS_MAX);
        upload_part *p = &u->parts[u->count++];
        p->bytes = split + 4;
        p->size = (size_t)(next - split - 4);
        find_attribute(header, (size_t)(split - header), "filename=\"", p->name, sizeof p->name);
        if (!*p->name)
            find_attribute(header, (size_t)(split - header), "name=\"", p->name, sizeof p->name);
        at = next + n;
    }
    return at && u->count ? SFP_OK : sfp__fail(err, SFP_EINVAL, "the body has no part of multipart/form-data, or does not end");
}

static sfp_status read_upload(const sfp__request *r, upload *u, sfp_error *err)
{
    const char *type = sfp__request_header(r, "Content-Type");
    if (type && strncasecmp(type, "multipart/form-data", 19) == 0)
        return split_parts(r, type, u, err);
    if (r->body.length == 0)
        return sfp__fail(err, SFP_EINVAL, "the body is empty, expected an image");
    u->parts[0] = (upload_part){.bytes = r->body.s, .size = r->body.length};
    u->count = 1;
    return SFP_OK;
}

typedef struct box {
    double side[4]; /* left, top, right, bottom, from 0 to 1 */
} box;

static sfp_status read_boxes(const sfp__request *r, box *boxes, int *count, sfp_error *err)
{
    for (*count = 0;; ++*count) {
        OWNED char *text = sfp__request_param(r, "box", *count);
        int used = 0;
        if (!text)
            return SFP_OK;
        if (*count == BOXES_MAX)
            return sfp__fail(err, SFP_ELIMIT, "the request has more than %d boxes", BOXES_MAX);
        double *b = boxes[*count].side;
        if (sscanf(text, "%lf,%lf,%lf,%lf%n", &b[0], &b[1], &b[2], &b[3], &used) != 4 || text[used] || !(b[0] >= 0) ||
            !(b[1] >= 0) || !(b[2] <= 1) || !(b[3] <= 1) || !(b[0] < b[2]) || !(b[1] < b[3]))
            return sfp__fail_key(err, "box", SFP_EINVAL, "box is '%.60s', expected left,top,right,bottom from 0 to 1", text);
    }
}

/* --------------------------------------------------------------------- predict */

/* The images of a request: each part, or each box of it. */
typedef struct image_job {
    sfp__request *request;
    const upload *upload;
    const box *boxes;
    int box_count, top;
    sfp_image *images;
    sfp__decoded decoded[PARTS_MAX];
} image_job;

static void job_done(image_job *job)
{
    for (int i = 0; i < PARTS_MAX; i++)
        sfp__decoded_done(&job->decoded[i]);
    sfp__free(job->images);
}

static void write_answer(sfp__prediction_request *q, const sfp_predictor *p, int first, const sfp_prediction *predictions)
{
    const image_job *job = q->ctx;
    int per = job->box_count ? job->box_count : 1;
    sfp__json j = {.text = &job->request->reply};
    sfp__json_object(&j, NULL);
    sfp__json_uint(&j, "version", sfp_predictor_timestamps(p));
    sfp__json_array(&j, "predictions");
    for (int i = 0; i < q->count; i++) {
        const upload_part *part = &job->upload->parts[i / per];
        sfp__json_object(&j, NULL);
        if (*part->name)
            sfp__json_string(&j, "name", part->name);
        if (job->box_count) {
            sfp__json_array(&j, "box");
            for (int k = 0; k < 4; k++)
                sfp__json_real(&j, NULL, job->boxes[i % per].side[k]);
            sfp__json_end(&j);
        }
        sfp__json_prediction(&j, p, first + i, &predictions[i], job->top);
        sfp__json_end(&j);
    }
    sfp__json_end_all(&j);
}

/* Sets the images to predict of one part: the whole image, or one image per box. */
static void set_boxes(const image_job *job, const sfp_image *from, sfp_image *images)
{
    images[0] = *from;
    for (int k = 0; k < job->box_count; k++) {
        sfp_image *to = &images[k];
        *to = *from;
        for (int s = 0; s < 4; s++)
            to->box[s] = (int32_t)lround(job->boxes[k].side[s] * (s % 2 ? from->height : from->width));
        for (int s = 0; s < 2; s++) { /* at least one pixel */
            int32_t most = s ? from->height : from->width;
            to->box[s] = to->box[s] < most ? to->box[s] : most - 1;
            to->box[s + 2] = to->box[s + 2] > to->box[s] ? to->box[s + 2] : to->box[s] + 1;
        }
    }
}

sfp_status sfp__post_predict(sfp__request *r, sfp_error *err)
{
    OWNED upload *u = NULL;
    box boxes[BOXES_MAX];
    int64_t top = TOP_DEFAULT;
    OWNED_BY(job_done) image_job job = {.request = r, .boxes = boxes};
    TRY(sfp__alloc(&u, 1, sizeof *u, err));
    TRY(sfp__request_int(r, "top", 1, TOP_MAX, &top, err));
    TRY(read_boxes(r, boxes, &job.box_count, err));
    TRY(read_upload(r, u, err));
    int per = job.box_count ? job.box_count : 1, count = u->count * per;
    if (count > IMAGES_MAX)
        return sfp__fail(err, SFP_ELIMIT, "the request has %d images and boxes, expected at most %d", count, IMAGES_MAX);
    job.top = (int)top;
    job.upload = u;
    TRY(sfp__alloc(&job.images, (size_t)count, sizeof *job.images, err));
    for (int i = 0; i < u->count; i++) {
        sfp_status status = sfp__serve_decode(u->parts[i].bytes, u->parts[i].size, &job.decoded[i], err);
        if (status == SFP_ENOMEM) /* it may be a good image */
            return status;
        if (status) {
            sfp__reply_error(r, 422, "unreadable_image", err->message);
            return SFP_OK;
        }
        set_boxes(&job, &job.decoded[i].image, job.images + i * per);
    }
    sfp__prediction_request q = {.count = count, .images = job.images, .answer = write_answer, .ctx = &job};
    return sfp__model_predict(r->model, &q, err);
}

/* ---------------------------------------------------------- received images */

/* Where the answer for a received image is stored: as JSON, and in the sample that is submitted. */
typedef struct received_answer {
    sfp__text *text;
    sfp_submission *sample;
    char class_name[1025];
} received_answer;

static void keep_answer(sfp__prediction_request *q, const sfp_predictor *p, int first, const sfp_prediction *prediction)
{
    received_answer *s = q->ctx;
    const float *unknown = sfp_predictor_unknown(p);
    const char *name = prediction->label >= 0 ? sfp_predictor_class_name(p, prediction->label) : NULL;
    s->sample->answered = 1;
    s->sample->timestamp = sfp_predictor_timestamps(p);
    s->sample->probability = (double)prediction->probability;
    s->sample->unknown = unknown ? (double)unknown[first] : (double)NAN;
    if (name) {
        (void)snprintf(s->class_name, sizeof s->class_name, "%s", name);
        s->sample->class_name = s->class_name;
    }
    if (!s->text)
        return;
    sfp__json j = {.text = s->text};
    sfp__json_object(&j, NULL);
    sfp__json_uint(&j, "version", sfp_predictor_timestamps(p));
    sfp__json_prediction(&j, p, first, prediction, TOP_DEFAULT);
    sfp__json_end_all(&j);
}

sfp_status sfp__submit_image(sfp__model *m, struct sfp__events *events, const sfp__received_image *in, uint64_t *id,
                             bool *repeated, bool *unreadable, sfp__text *answer, sfp_error *err)
{
    OWNED_BY(sfp__decoded_done) sfp__decoded decoded = {0};
    int again = 0;
    sfp_status status = sfp__serve_decode(in->bytes, in->size, &decoded, err);
    *unreadable = status != SFP_OK && status != SFP_ENOMEM;
    TRY(status);
    sfp_submission s = SFP_SUBMISSION_INIT;
    s.bytes = in->bytes;
    s.byte_count = in->size;
    s.name = in->name;
    s.label = in->label;
    s.key = in->key;
    received_answer single = {.text = answer, .sample = &s};
    if (!in->label) {
        sfp__prediction_request q = {.count = 1, .images = &decoded.image, .answer = keep_answer, .ctx = &single};
        TRY(sfp__model_predict(m, &q, err));
    }
    TRY(sfp_run_submit(sfp__model_run(m), &s, id, &again, err));
    *repeated = again != 0;
    if (!again)
        sfp__events_sample(events, m, *id);
    if (in->label)
        sfp__model_watch(m, *id);
    return SFP_OK;
}
