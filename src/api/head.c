/* Heads on features of the caller (streamfp.h, part 14): the closed-form heads of a learner, with names of classes and a file. */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"
#include "base/text.h"
#include "learner/heads/head.h"
#include "learner/state/saved_sums.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT "streamfp-head"
enum { VERSION = 1, PREDICT_ROWS = 64 };

struct sfp_head {
    sfp__head *core;
    sfp__thread_pool *pool; /* owned by the head */
    sfp_head_options opt;   /* as given, except that a tap_dim of 0 was replaced */
    int dim, classes;
    char **names; /* (capacity) NULL: the class has no name */
    size_t capacity;
};
DEFINE_OWNED_PTR(sfp_head, sfp_head_free)

/* ------------------------------------------------------------------------------------------------------------- creating */

#define HALF_LIFE_MAX INT64_C(1000000000000000)

/* Creates a head without classes; the options are complete. */
static sfp_status create(const char *method, int dim, const sfp_head_options *opt, sfp_head **out, sfp_error *err)
{
    OWNED_PTR(sfp_head_free) sfp_head *h = NULL;
    if (dim < 1 || dim > SFP__ROW_MAX)
        return sfp__fail(err, SFP_EINVAL, "dim is %d, expected 1 to %d", dim, SFP__ROW_MAX);
    if (opt->threads < 0 || opt->threads > 1024)
        return sfp__fail_key(err, "threads", SFP_EINVAL, "threads is %d, expected 0 to 1024", opt->threads);
    if (opt->tap_dim < 0 || opt->tap_dim > dim || (opt->tap_dim && dim % opt->tap_dim))
        return sfp__fail(err, SFP_EINVAL, "tap_dim is %d, expected 0 or a divisor of dim, which is %d", opt->tap_dim, dim);
    if (opt->half_life < 0 || opt->half_life > HALF_LIFE_MAX || (opt->half_life && strcmp(method, "ranpac") == 0))
        return sfp__fail_key(err, "half-life", SFP_EINVAL,
                             "half_life is %lld, expected 0 to %lld, and 0 with ranpac, which is not computed from sums",
                             (long long)opt->half_life, (long long)HALF_LIFE_MAX);
    TRY(sfp__alloc(&h, 1, sizeof *h, err));
    h->opt = *opt;
    h->dim = dim;
    TRY(sfp__thread_pool_create(opt->threads, &h->pool, err));
    sfp__head_options o = sfp__head_options_defaults(dim, 0);
    h->opt.tap_dim = o.tap_dim = opt->tap_dim ? opt->tap_dim : dim;
    o.seed = opt->seed;
    o.ridge_balanced = !opt->plain;
    o.tap_mean = opt->tap_mean;
    o.half_life = (double)opt->half_life;
    o.threads = h->pool;
    TRY(sfp__head_create(method, &o, &h->core, err));
    *out = TAKE(h);
    return SFP_OK;
}

sfp_status sfp_head_create(const char *method, int dim, const sfp_head_options *options, sfp_head **out, sfp_error *err)
{
    IN_LIBRARY;
    sfp_head_options o;
    SFP__REQUIRE(method && out, "method and out");
    TRY(sfp__api_options(options, &o, sizeof o, "sfp_head_options", err));
    return create(method, dim, &o, out, err);
}

static sfp_status check_head(const sfp_head *h, sfp_error *err)
{
    SFP__REQUIRE(h, "head");
    return sfp__thread_pool_check(h->pool, "the head", err);
}

void sfp_head_free(sfp_head *h)
{
    if (!h || (h->pool && sfp__thread_pool_is_foreign(h->pool)))
        return;
    sfp__head_free(h->core);
    sfp__thread_pool_free(h->pool);
    for (int c = 0; c < h->classes; c++)
        sfp__free(h->names[c]);
    sfp__free(h->names);
    sfp__free(h);
}

const char *sfp_head_method(const sfp_head *h)
{
    return sfp__head_kind_name(h->core);
}

int sfp_head_dim(const sfp_head *h)
{
    return h->dim;
}

int64_t sfp_head_samples(const sfp_head *h, int32_t label)
{
    return label == -1 ? sfp__head_samples(h->core) : sfp__head_label_samples(h->core, label);
}

/* -------------------------------------------------------------------------------------------------------------- classes */

/* Reserves the names of `classes` classes, so that adding these cannot fail. */
static sfp_status reserve_classes(sfp_head *h, int classes, sfp_error *err)
{
    return sfp__check_memory(sfp__grow(&h->names, sizeof *h->names, (size_t)h->classes, (size_t)classes, &h->capacity), err);
}

static void add_classes(sfp_head *h, int classes)
{
    for (; h->classes < classes; h->classes++)
        h->names[h->classes] = NULL;
}

int sfp_head_classes(const sfp_head *h)
{
    return h->classes;
}

const char *sfp_head_class_name(const sfp_head *h, int32_t label)
{
    return label >= 0 && label < h->classes ? h->names[label] : NULL;
}

sfp_status sfp_head_add_class(sfp_head *h, const char *name, int32_t *label, sfp_error *err)
{
    IN_LIBRARY;
    TRY(check_head(h, err));
    if (!name || !*name || !label)
        return sfp__fail(err, SFP_EINVAL, "name must not be empty, label must not be NULL");
    int unused = h->classes;
    for (int c = h->classes - 1; c >= 0; c--) {
        if (h->names[c] && strcmp(h->names[c], name) == 0) {
            *label = c;
            return SFP_OK;
        }
        if (!h->names[c] && sfp__head_label_samples(h->core, c) == 0)
            unused = c;
    }
    if (unused >= SFP__HEAD_LABEL_MAX)
        return sfp__fail(err, SFP_ELIMIT, "class '%.80s': the head has %d classes, expected fewer", name, h->classes);
    OWNED char *copy = sfp__strdup(name);
    TRY(sfp__check_memory(copy, err));
    TRY(reserve_classes(h, unused + 1, err));
    add_classes(h, unused + 1);
    h->names[unused] = TAKE(copy);
    *label = unused;
    return SFP_OK;
}

/* ----------------------------------------------------------------------------------------------------------------- rows */

/* Rows without gaps between them: the array of the caller or, if it has gaps, a copy. */
typedef struct matrix {
    const float *rows;
    float *copy;
} matrix;

static void matrix_done(matrix *m)
{
    sfp__free(m->copy);
}

static sfp_status check_row(const sfp_head *h, int i, const float *row, sfp_error *err)
{
    for (int k = 0; k < h->dim; k++)
        if (!(fabsf(row[k]) <= SFP__HEAD_VALUE_MAX))
            return sfp__fail(err, SFP_EINVAL, "row %d: value %d is %g, expected a number within +-%g", i, k, (double)row[k],
                             (double)SFP__HEAD_VALUE_MAX);
    return SFP_OK;
}

/* Checks the arguments that all functions on rows have. `result`: the other array of the function, which must not be NULL. */
static sfp_status read_rows(const sfp_head *h, int count, const float *rows, int64_t stride, const void *result, matrix *out,
                            sfp_error *err)
{
    TRY(check_head(h, err));
    int64_t step = stride ? stride : h->dim;
    if (count < 0)
        return sfp__fail(err, SFP_EINVAL, "count is %d, expected at least 0", count);
    if (count > 0 && (!rows || !result))
        return sfp__fail(err, SFP_EINVAL, "rows, labels and results must not be NULL");
    if (step < h->dim)
        return sfp__fail(err, SFP_ESHAPE, "stride is %lld, expected 0 or at least %d, the dimension of the head",
                         (long long)stride, h->dim);
    for (int i = 0; i < count; i++)
        TRY(check_row(h, i, rows + (int64_t)i * step, err));
    out->rows = rows;
    if (step == h->dim || count < 2)
        return SFP_OK;
    TRY(sfp__alloc(&out->copy, (size_t)count, (size_t)h->dim * sizeof(float), err));
    for (int i = 0; i < count; i++)
        memcpy(out->copy + (size_t)i * (size_t)h->dim, rows + (int64_t)i * step, (size_t)h->dim * sizeof(float));
    out->rows = out->copy;
    return SFP_OK;
}

sfp_status sfp_head_learn(sfp_head *h, int count, const float *rows, int64_t stride, const int32_t *labels, const uint64_t *keys,
                          sfp_error *err)
{
    IN_LIBRARY;
    OWNED_BY(matrix_done) matrix m = {0};
    int classes = 0;
    TRY(read_rows(h, count, rows, stride, labels, &m, err));
    for (int i = 0; i < count; i++) {
        if (labels[i] < 0 || labels[i] >= SFP__HEAD_LABEL_MAX)
            return sfp__fail(err, SFP_EINVAL, "row %d: label is %d, expected 0 to %d", i, labels[i], SFP__HEAD_LABEL_MAX - 1);
        classes = labels[i] >= classes ? labels[i] + 1 : classes;
    }
    TRY(reserve_classes(h, classes, err));
    TRY(sfp__head_update(h->core, count, m.rows, labels, keys, err));
    add_classes(h, classes);
    return SFP_OK;
}

sfp_status sfp_head_forget(sfp_head *h, int count, const float *rows, int64_t stride, const int32_t *labels, const uint64_t *keys,
                           sfp_error *err)
{
    IN_LIBRARY;
    OWNED_BY(matrix_done) matrix m = {0};
    TRY(read_rows(h, count, rows, stride, labels, &m, err));
    return sfp__head_forget(h->core, count, m.rows, labels, keys, err);
}

/* ------------------------------------------------------------------------------------------------------------ other heads */

static sfp_status match(const sfp_head *h, const sfp_head *from, sfp__class_match *m, sfp_error *err)
{
    TRY(check_head(h, err));
    SFP__REQUIRE(from, "the other head");
    char path[] = "the other head"; /* in messages */
    const sfp__saved_sums other = {.path = path, .head = from->core, .names = {true, from->classes, from->names}};
    const sfp__known_classes here = {h->classes, h->names, h->core};
    return sfp__saved_sums_match(&other, &here, m, err);
}

/* Copies the names that a merge adds, so that the merge cannot fail halfway. */
static sfp_status copy_names(const sfp_head *h, const sfp_head *from, const sfp__class_match *m, sfp__saved_names *out,
                             sfp_error *err)
{
    TRY(sfp__alloc(&out->name, (size_t)from->classes, sizeof *out->name, err));
    out->count = from->classes;
    for (int c = 0; c < from->classes; c++)
        if (from->names[c] && !sfp_head_class_name(h, m->label[c]))
            TRY(sfp__check_memory((out->name[c] = sfp__strdup(from->names[c])), err));
    return SFP_OK;
}

sfp_status sfp_head_merge(sfp_head *h, const sfp_head *from, sfp_error *err)
{
    IN_LIBRARY;
    OWNED_BY(sfp__class_match_done) sfp__class_match m = {0};
    OWNED_BY(sfp__metadata_names_done) sfp__saved_names names = {0};
    TRY(match(h, from, &m, err));
    TRY(copy_names(h, from, &m, &names, err));
    TRY(reserve_classes(h, m.end, err));
    TRY(sfp__head_merge(h->core, from->core, m.row_label, err));
    add_classes(h, m.end);
    for (int c = 0; c < names.count; c++)
        if (names.name[c])
            h->names[m.label[c]] = TAKE(names.name[c]);
    return SFP_OK;
}

sfp_status sfp_head_subtract(sfp_head *h, const sfp_head *from, sfp_error *err)
{
    IN_LIBRARY;
    OWNED_BY(sfp__class_match_done) sfp__class_match m = {0};
    TRY(match(h, from, &m, err));
    return sfp__head_subtract(h->core, from->core, m.row_label, err);
}

/* -------------------------------------------------------------------------------------------------------------- answers */

sfp_status sfp_head_scores(sfp_head *h, int count, const float *rows, int64_t stride, float *scores, sfp_error *err)
{
    IN_LIBRARY;
    OWNED_BY(matrix_done) matrix m = {0};
    TRY(read_rows(h, count, rows, stride, scores, &m, err));
    return sfp__head_scores(h->core, count, m.rows, true, h->classes, scores, err);
}

/* Writes the best classes of one row; ties go to the lower label. */
static void rank(int classes, const float *score, int top, sfp_prediction *out)
{
    int have = 0;
    for (int k = 0; k < top; k++)
        out[k] = (sfp_prediction){.label = -1, .probability = NAN};
    for (int c = 0; c < classes; c++) {
        int at = have;
        if (score[c] == -INFINITY)
            continue;
        while (at > 0 && score[c] > score[out[at - 1].label])
            at--;
        if (at == top)
            continue;
        have += have < top;
        memmove(out + at + 1, out + at, (size_t)(have - at - 1) * sizeof *out);
        out[at] = (sfp_prediction){.label = c, .probability = expf(score[c])};
    }
}

sfp_status sfp_head_predict(sfp_head *h, int count, const float *rows, int64_t stride, int top, sfp_prediction *predictions,
                            sfp_error *err)
{
    IN_LIBRARY;
    OWNED_BY(matrix_done) matrix m = {0};
    OWNED float *scores = NULL;
    TRY(read_rows(h, count, rows, stride, predictions, &m, err));
    if (top < 1)
        return sfp__fail(err, SFP_EINVAL, "top is %d, expected at least 1", top);
    TRY(sfp__alloc(&scores, PREDICT_ROWS * (size_t)h->classes, sizeof *scores, err));
    TRY(sfp__head_refresh(h->core, true, err)); /* from here on nothing can fail */
    for (int i = 0; i < count; i += PREDICT_ROWS) {
        int n = count - i < PREDICT_ROWS ? count - i : PREDICT_ROWS;
        TRY(sfp__head_scores(h->core, n, m.rows + (size_t)i * (size_t)h->dim, true, h->classes, scores, err));
        for (int k = 0; k < n; k++)
            rank(h->classes, scores + (size_t)k * (size_t)h->classes, top, predictions + (size_t)(i + k) * (size_t)top);
    }
    return SFP_OK;
}

sfp_status sfp_head_unknown(sfp_head *h, int count, const float *rows, int64_t stride, float *unknown, sfp_error *err)
{
    IN_LIBRARY;
    OWNED_BY(matrix_done) matrix m = {0};
    OWNED double *work = NULL;
    TRY(read_rows(h, count, rows, stride, unknown, &m, err));
    TRY(sfp__alloc(&work, (size_t)h->dim, sizeof *work, err));
    TRY(sfp__head_refresh(h->core, true, err));
    for (int i = 0; i < count; i++)
        unknown[i] = sfp__head_unknown(h->core, m.rows + (size_t)i * (size_t)h->dim, work);
    return SFP_OK;
}

/* ---------------------------------------------------------------------------------------------------------------- files */

sfp_status sfp_head_save(sfp_head *h, const char *path, sfp_error *err)
{
    IN_LIBRARY;
    OWNED_BY(sfp__tensor_list_done) sfp__tensor_list tensors = {0};
    OWNED_BY(sfp__metadata_done) sfp__file_metadata meta = {0};
    char seed[24];
    TRY(check_head(h, err));
    SFP__REQUIRE(path, "path");
    sfp__visitor v = sfp__visit_writing(&tensors);
    v.prefix = "head";
    TRY(sfp__head_visit(h->core, &v, err));
    (void)snprintf(seed, sizeof seed, "%llu", (unsigned long long)h->opt.seed);
    sfp__metadata_put(&meta, "format", FORMAT);
    sfp__metadata_put_int(&meta, "version", VERSION);
    sfp__metadata_put(&meta, "method", sfp_head_method(h));
    sfp__metadata_put_int(&meta, "dim", h->dim);
    sfp__metadata_put_int(&meta, "tap_dim", h->opt.tap_dim);
    sfp__metadata_put(&meta, "seed", seed);
    sfp__metadata_put_int(&meta, "plain", h->opt.plain != 0);
    sfp__metadata_put_int(&meta, "tap_mean", h->opt.tap_mean != 0);
    sfp__metadata_put_int(&meta, "half_life", h->opt.half_life);
    sfp__metadata_put_names(&meta, h->classes, h->names);
    return sfp__state_write(path, &tensors, &meta, err);
}

/* A file that passes its checksum may still be malicious: it must contain the sums for which memory is reserved. */
static sfp_status check_size(const sfp__tensor_file *st, const char *method, int dim, sfp_error *err)
{
    const sfp__tensor *labels = NULL;
    size_t bytes = 0, d = (size_t)dim;
    TRY(sfp__tensor_file_need(st, "head.labels", &labels, err));
    for (size_t i = 0; i < st->count; i++)
        bytes += st->tensors[i].bytes;
    size_t products = strcmp(method, "ridge") == 0 || strcmp(method, "slda") == 0 ? d * d / 2 : 0;
    bool ranpac = strcmp(method, "ranpac") == 0; /* whose sums have a fixed width */
    if (labels->count > SFP__HEAD_LABEL_MAX || (!ranpac && bytes / sizeof(double) < labels->count * d + products))
        return sfp__fail(err, SFP_EFORMAT,
                         "%s: the file has %zu bytes of tensors, expected the sums of %zu classes and %d values", st->path, bytes,
                         labels->count, dim);
    return SFP_OK;
}

static sfp_status read_options(const sfp__tensor_file *st, int *dim, sfp_head_options *o, sfp_error *err)
{
    const char *seed = sfp__tensor_file_meta(st, "seed");
    char *end = NULL;
    long long number;
    TRY(sfp__metadata_int(st, "dim", 1, SFP__ROW_MAX, &number, err));
    *dim = (int)number;
    TRY(sfp__metadata_int(st, "tap_dim", 1, *dim, &number, err));
    o->tap_dim = (int32_t)number;
    TRY(sfp__metadata_int(st, "plain", 0, 1, &number, err));
    o->plain = (int32_t)number;
    TRY(sfp__metadata_int(st, "tap_mean", 0, 1, &number, err));
    o->tap_mean = (int32_t)number;
    TRY(sfp__metadata_int(st, "half_life", 0, HALF_LIFE_MAX, &number, err));
    o->half_life = (int64_t)number;
    errno = 0;
    o->seed = seed ? strtoull(seed, &end, 10) : 0;
    if (!seed || end == seed || *end || errno || *seed == '-')
        return sfp__fail(err, SFP_EFORMAT, "%s: metadata 'seed' is missing or not a number", st->path);
    return SFP_OK;
}

static sfp_status check_file(const sfp__tensor_file *st, sfp_error *err)
{
    char sum[SFP__CHECKSUM_MAX];
    TRY(sfp__metadata_check_format(st, FORMAT, VERSION, true, err));
    if (!sfp__tensor_file_meta(st, SFP__CHECKSUM_KEY))
        return sfp__fail(err, SFP_EFORMAT, "%s: metadata '%s' is missing", st->path, SFP__CHECKSUM_KEY);
    TRY(sfp__state_sum(st->count, st->tensors, st->meta_count, st->meta, sum, err));
    return sfp__safetensors_expect_sum(st, sum, err);
}

/* Moves the names to a new head, whose classes are those of the list. */
static sfp_status take_names(sfp_head *h, const char *path, sfp__saved_names *names, sfp_error *err)
{
    int64_t samples = 0;
    TRY(reserve_classes(h, names->count, err));
    for (int c = 0; c < names->count; c++)
        samples += sfp__head_label_samples(h->core, c);
    if (samples != sfp__head_samples(h->core))
        return sfp__fail(err, SFP_EFORMAT, "%s: metadata 'class_names' has %d classes, expected all that have samples", path,
                         names->count);
    add_classes(h, names->count);
    for (int c = 0; c < names->count; c++)
        h->names[c] = TAKE(names->name[c]);
    return SFP_OK;
}

sfp_status sfp_head_load(const char *path, int threads, sfp_head **out, sfp_error *err)
{
    IN_LIBRARY;
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    OWNED_PTR(sfp_head_free) sfp_head *h = NULL;
    OWNED_BY(sfp__metadata_names_done) sfp__saved_names names = {0};
    sfp_head_options o = {.threads = threads};
    int dim = 0;
    SFP__REQUIRE(path && out, "path and out");
    TRY(sfp__safetensors_open(path, &st, err));
    TRY(check_file(st, err));
    const char *method = sfp__tensor_file_meta(st, "method");
    if (!method)
        return sfp__fail(err, SFP_EFORMAT, "%s: metadata 'method' is missing", path);
    TRY(read_options(st, &dim, &o, err));
    TRY(check_size(st, method, dim, err));
    TRY(sfp__metadata_names_read(st, SFP__HEAD_LABEL_MAX, &names, err));
    sfp_status status = create(method, dim, &o, &h, err);
    if (status)
        return sfp__fail_prefix(err, status, "%s", path);
    sfp__visitor v = sfp__visit_reading(st, false);
    v.prefix = "head";
    TRY(sfp__head_visit(h->core, &v, err));
    TRY(take_names(h, path, &names, err));
    *out = TAKE(h);
    return SFP_OK;
}
