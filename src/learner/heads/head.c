/* The table of kinds of heads, and the code that all kinds have in common (head_kind.h). */
#include "learner/heads/head.h"

#include "base/digest.h"
#include "base/mem.h"
#include "base/text.h"
#include "compute/gemm.h"
#include "learner/heads/head_kind.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const sfp__head_kind *const kinds[] = {&sfp__head_ncm, &sfp__head_slda, &sfp__head_ridge, &sfp__head_ranpac};

sfp__head_options sfp__head_options_defaults(int dim, int classes)
{
    return (sfp__head_options){.dim = dim,
                               .tap_dim = dim,
                               .classes = classes,
                               .seed = 0,
                               .ranpac_width = SFP__RANPAC_WIDTH_DEFAULT,
                               .slda_shrink = 1e-4f,
                               .shrinkage_oas = true};
}

/* ------------------------------------------------------------------- classes */

bool sfp__head_extend(void *p, size_t size, size_t old, size_t count)
{
    void *block;
    size_t bytes;
    memcpy(&block, p, sizeof block);
    if (count == 0 || (block && count <= old))
        return true;
    if (!sfp__mul_size(count, size, &bytes) || !(block = sfp__realloc(block, old * size, bytes)))
        return false;
    memset((char *)block + old * size, 0, (count - old) * size);
    memcpy(p, &block, sizeof block);
    return true;
}

static sfp_status reserve_rows(sfp__head *h, int rows, sfp_error *err)
{
    if (rows <= h->capacity)
        return SFP_OK;
    int capacity = h->capacity > 0 ? h->capacity : 8;
    while (capacity < rows)
        capacity *= 2;
    size_t old = (size_t)h->capacity, count = (size_t)capacity;
    TRY(sfp__check_memory(sfp__head_extend(&h->label, sizeof *h->label, old, count) &&
                              sfp__head_extend(&h->count, sizeof *h->count, old, count) &&
                              sfp__head_extend(&h->raw, SFP__HEAD_GRAIN * sizeof *h->raw, old, count),
                          err));
    TRY(h->kind->grow(h, capacity, err));
    h->capacity = capacity;
    return SFP_OK;
}

static sfp_status reserve_labels(sfp__head *h, int labels, sfp_error *err)
{
    if (labels <= h->label_capacity)
        return SFP_OK;
    int capacity = h->label_capacity > 0 ? h->label_capacity : 8;
    while (capacity < labels)
        capacity *= 2;
    TRY(sfp__check_memory(sfp__head_extend(&h->row_of, sizeof *h->row_of, (size_t)h->label_capacity, (size_t)capacity), err));
    for (int i = h->label_capacity; i < capacity; i++)
        h->row_of[i] = -1;
    h->label_capacity = capacity;
    return SFP_OK;
}

/* Returns the row of a label; adds one if needed. The memory must be reserved. */
static int row_of(sfp__head *h, int label)
{
    if (h->row_of[label] < 0) {
        h->label[h->rows] = label;
        h->row_of[label] = h->rows++;
    }
    return h->row_of[label];
}

/* Reserves memory for every class of a batch before anything is learned, so that learning cannot fail midway. */
static sfp_status reserve(sfp__head *h, int n, const int32_t *label, sfp_error *err)
{
    int highest = -1, new_labels = 0;
    for (int i = 0; i < n; i++) {
        if (label[i] < 0 || label[i] >= SFP__HEAD_LABEL_MAX)
            return sfp__fail(err, SFP_EINVAL, "head %s: label of sample %d is %d, expected 0 to %d", h->kind->name, i, label[i],
                             SFP__HEAD_LABEL_MAX - 1);
        highest = label[i] > highest ? label[i] : highest;
    }
    TRY(reserve_labels(h, highest + 1, err));
    for (int i = 0; i < n; i++) /* -2: already counted */
        if (h->row_of[label[i]] == -1) {
            h->row_of[label[i]] = -2;
            new_labels++;
        }
    for (int i = 0; i < n; i++)
        if (h->row_of[label[i]] == -2)
            h->row_of[label[i]] = -1;
    return reserve_rows(h, h->rows + new_labels, err);
}

static sfp_status check_queries(const sfp__head *h, int n, const float *query, sfp_error *err)
{
    size_t count = (size_t)n * (size_t)h->opt.dim;
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(query[i]) <= SFP__HEAD_VALUE_MAX))
            return sfp__fail(err, SFP_EINVAL, "head %s: value %zu of query %zu is %g, expected a number within +-%g",
                             h->kind->name, i % (size_t)h->opt.dim, i / (size_t)h->opt.dim, (double)query[i],
                             (double)SFP__HEAD_VALUE_MAX);
    return SFP_OK;
}

/* ---------------------------------------------------------------- create, use */

sfp_status sfp__head_create(const char *kind, const sfp__head_options *opt, sfp__head **out, sfp_error *err)
{
    const sfp__head_kind *k = NULL;
    char name[SFP__NAME_MAX];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i]->name, kind) == 0)
            k = kinds[i];
    if (!k)
        return sfp__fail(err, SFP_EINVAL, "unknown head '%s', expected ncm, slda, ridge or ranpac",
                         sfp__printable(kind, name, sizeof name));
    if (opt->dim < 1 || opt->tap_dim < 1 || opt->tap_dim > opt->dim || opt->classes < 0 || opt->classes > SFP__HEAD_LABEL_MAX ||
        opt->ranpac_width < 1 || opt->ranpac_width > 1 << 15 || !(opt->slda_shrink >= 0 && opt->slda_shrink <= 1))
        return sfp__fail(err, SFP_EINVAL,
                         "head %s: dim is %d, classes is %d, width is %d and shrinkage is %g, expected values in range", k->name,
                         opt->dim, opt->classes, opt->ranpac_width, (double)opt->slda_shrink);
    OWNED_PTR(sfp__head_free) sfp__head *h = NULL;
    TRY(sfp__alloc(&h, 1, k->size, err));
    h->kind = k;
    h->opt = *opt;
    TRY(k->init(h, err));
    TRY(reserve_rows(h, opt->classes > 0 ? opt->classes : 1, err));
    TRY(reserve_labels(h, opt->classes, err));
    *out = TAKE(h);
    return SFP_OK;
}

void sfp__head_free(sfp__head *h)
{
    if (!h)
        return;
    h->kind->done(h);
    sfp__free(h->label);
    sfp__free(h->count);
    sfp__free(h->row_of);
    sfp__free(h->raw);
    sfp__free(h);
}

bool sfp__head_saves_solution(const sfp__head *h)
{
    return h->kind->saves_solution;
}

const char *sfp__head_kind_name(const sfp__head *h)
{
    return h->kind->name;
}

const char *sfp__head_name(int i)
{
    return i >= 0 && (size_t)i < sizeof kinds / sizeof *kinds ? kinds[i]->name : NULL;
}

static sfp_status check_can_learn(const sfp__head *h, sfp_error *err)
{
    if (h->inference_only)
        return sfp__fail(err, SFP_EUNSUPPORTED,
                         "head %s: loaded only for prediction, expected a head with its sums; they were not saved",
                         h->kind->name);
    return SFP_OK;
}

static uint64_t key_of(const sfp__head *h, const float *query)
{
    return sfp__digest_bytes((sfp__digest){{0}}, query, (size_t)h->opt.dim * sizeof *query).word[0];
}

sfp_status sfp__head_update(sfp__head *h, int n, const float *query, const int32_t *label, const uint64_t *key, sfp_error *err)
{
    TRY(check_can_learn(h, err));
    TRY(check_queries(h, n, query, err));
    TRY(reserve(h, n, label, err));
    int token = sfp__gemm_enter();
    for (int i = 0; i < n; i++) {
        const float *q = query + (size_t)i * (size_t)h->opt.dim;
        int row = row_of(h, label[i]);
        h->kind->learn(h, q, row, key ? key[i] : key_of(h, q));
        h->count[row]++;
        h->n++;
    }
    sfp__gemm_leave(token);
    return SFP_OK;
}

static sfp_status check_no_half_life(const sfp__head *h, sfp_error *err)
{
    if (h->opt.half_life > 0)
        return sfp__fail_key(
            err, "half-life", SFP_EUNSUPPORTED,
            "half-life is %g: samples that count less with their age cannot be taken out or merged exactly; use a "
            "learner without it",
            h->opt.half_life);
    return SFP_OK;
}

static sfp_status check_forget(const sfp__head *h, int n, const float *query, sfp_error *err)
{
    TRY(check_can_learn(h, err));
    TRY(check_queries(h, n, query, err));
    if (!h->kind->sums)
        return sfp__fail(err, SFP_EUNSUPPORTED, "head %s: a sample cannot be taken out; ncm, slda and ridge can", h->kind->name);
    return check_no_half_life(h, err);
}

/* Subtracts the samples from the counts of their classes. On failure nothing has changed. */
static sfp_status count_out(sfp__head *h, int n, const int32_t *label, sfp_error *err)
{
    for (int i = 0; i < n; i++) {
        if (sfp__head_label_samples(h, label[i]) == 0) {
            for (int j = 0; j < i; j++)
                h->count[h->row_of[label[j]]]++;
            return sfp__fail(err, SFP_ENOTFOUND, "head %s: no such sample with label %d was learned from", h->kind->name,
                             label[i]);
        }
        h->count[h->row_of[label[i]]]--;
    }
    return SFP_OK;
}

/* All checks come before the first subtraction. Adding a sample back after a failure would not restore the sums exactly, because of rounding. */
sfp_status sfp__head_forget(sfp__head *h, int n, const float *query, const int32_t *label, const uint64_t *key, sfp_error *err)
{
    TRY(check_forget(h, n, query, err));
    TRY(count_out(h, n, label, err));
    for (int i = 0; i < n; i++) {
        const float *q = query + (size_t)i * (size_t)h->opt.dim;
        sfp__sums_remove(h->kind->sums(h), q, h->row_of[label[i]], key ? key[i] : key_of(h, q));
    }
    h->n -= n;
    if (n > 0)
        h->kind->sums_changed(h);
    return SFP_OK;
}

sfp_status sfp__head_relabel(sfp__head *h, const float *query, int32_t from, int32_t to, const uint64_t *key, sfp_error *err)
{
    TRY(reserve(h, 1, &to, err));
    TRY(sfp__head_forget(h, 1, query, &from, key, err));
    return sfp__head_update(h, 1, query, &to, key, err); /* cannot fail: its memory is reserved */
}

static const sfp__sums *sums_of(const sfp__head *h)
{
    return h->kind->sums((sfp__head *)h); /* the cast is safe: `sums` does not change the head */
}

static sfp_status check_alike(const sfp__head *h, const sfp__head *from, sfp_error *err)
{
    TRY(check_can_learn(h, err));
    TRY(check_can_learn(from, err));
    if (h == from || h->kind != from->kind || !h->kind->sums || h->opt.dim != from->opt.dim)
        return sfp__fail(
            err, SFP_EUNSUPPORTED,
            "head %s with %d values per sample cannot be combined with head %s with %d; another ncm, slda or ridge of the "
            "same size can",
            from->kind->name, from->opt.dim, h->kind->name, h->opt.dim);
    TRY(check_no_half_life(h, err));
    return check_no_half_life(from, err);
}

/* Returns the label in this head of a row of another head. */
static int label_here(const sfp__head *from, int row, const int32_t *label)
{
    return label ? label[row] : (int)from->label[row];
}

sfp_status sfp__head_merge(sfp__head *h, const sfp__head *from, const int32_t *label, sfp_error *err)
{
    OWNED int32_t *added = NULL;
    OWNED int *row = NULL;
    int n = 0;
    TRY(check_alike(h, from, err));
    TRY(sfp__alloc(&row, (size_t)from->rows + 1, sizeof *row, err));
    TRY(sfp__alloc(&added, (size_t)from->rows + 1, sizeof *added, err));
    for (int r = 0; r < from->rows; r++)
        if (label_here(from, r, label) >= 0)
            added[n++] = label_here(from, r, label);
    TRY(reserve(h, n, added, err));
    for (int r = 0; r < from->rows; r++) {
        row[r] = label_here(from, r, label) >= 0 ? row_of(h, label_here(from, r, label)) : -1;
        if (row[r] >= 0)
            h->count[row[r]] += from->count[r];
    }
    sfp__sums_merge(h->kind->sums(h), sums_of(from), from->rows, row);
    h->n += from->n;
    h->kind->sums_changed(h);
    return SFP_OK;
}

/* Returns the row in this head that corresponds to a row of another head; -1: none. */
static int row_here(const sfp__head *h, const sfp__head *from, int row, const int32_t *label)
{
    int here = label_here(from, row, label);
    return here >= 0 && here < h->label_capacity ? h->row_of[here] : -1;
}

int sfp__head_find_excess(const sfp__head *h, const sfp__head *from, const int32_t *label)
{
    for (int r = 0; r < from->rows; r++) {
        const int row = row_here(h, from, r, label);
        if (from->count[r] > (row < 0 ? 0 : h->count[row]))
            return r;
    }
    return -1;
}

sfp_status sfp__head_subtract(sfp__head *h, const sfp__head *from, const int32_t *label, sfp_error *err)
{
    OWNED int *row = NULL;
    TRY(check_alike(h, from, err));
    int excess = sfp__head_find_excess(h, from, label);
    if (excess >= 0)
        return sfp__fail(err, SFP_ENOTFOUND, "head %s: class %d has fewer samples than are to be taken out", h->kind->name,
                         label_here(from, excess, label));
    TRY(sfp__alloc(&row, (size_t)from->rows + 1, sizeof *row, err));
    for (int r = 0; r < from->rows; r++) {
        row[r] = row_here(h, from, r, label);
        if (row[r] >= 0)
            h->count[row[r]] -= from->count[r];
    }
    sfp__sums_subtract(h->kind->sums(h), sums_of(from), from->rows, row);
    h->n -= from->n;
    h->kind->sums_changed(h);
    return SFP_OK;
}

void sfp__head_leave_out(sfp__head *h, int label)
{
    if (sfp__head_label_samples(h, label) == 0)
        return;
    int row = h->row_of[label];
    sfp__sums_leave_out(h->kind->sums(h), row);
    h->n -= h->count[row];
    h->count[row] = 0;
    h->kind->sums_changed(h);
}

sfp_status sfp__head_drop_samples(sfp__head *h, sfp_error *err)
{
    TRY(sfp__head_refresh(h, true, err));
    h->kind->drop_samples(h);
    return SFP_OK;
}

double sfp__head_scale(const sfp__head *h, bool exact)
{
    return h->kind->scale ? h->kind->scale(h, exact || h->inference_only) : NAN;
}

float sfp__head_unknown(const sfp__head *h, const float *query, double *work)
{
    const sfp__novelty *y = h->kind->novelty && h->n > 0 ? h->kind->novelty(h) : NULL;
    return y ? sfp__novelty_score(y, query + h->opt.dim - y->dim, work) : NAN;
}

int64_t sfp__head_samples(const sfp__head *h)
{
    return h->n;
}

int64_t sfp__head_label_samples(const sfp__head *h, int label)
{
    int row = label >= 0 && label < h->label_capacity ? h->row_of[label] : -1;
    return row >= 0 ? h->count[row] : 0;
}

int sfp__head_rows(const sfp__head *h)
{
    return h->rows;
}

int sfp__head_row_label(const sfp__head *h, int row)
{
    return (int)h->label[row];
}

bool sfp__head_has_sums(const sfp__head *h)
{
    return h->kind->sums != NULL;
}

size_t sfp__head_sums_bytes(const sfp__head *h)
{
    return h->kind->sums ? sfp__sums_bytes(sums_of(h), h->rows) : 0;
}

sfp_status sfp__head_refresh(sfp__head *h, bool exact, sfp_error *err)
{
    if (h->n == 0)
        return SFP_OK;
    int token = sfp__gemm_enter();
    sfp_status s = h->kind->refresh(h, exact, err);
    sfp__gemm_leave(token);
    return s;
}

/* A probability that underflows is still a finite logarithm: only classes never seen are -INFINITY. */
void sfp__head_log_softmax(int rows, const int64_t *label, const double *raw, int classes, float *out)
{
    double top = -INFINITY, sum = 0;
    for (int r = 0; r < rows; r++)
        if (label[r] < classes && raw[r] > top)
            top = raw[r];
    for (int r = 0; r < rows; r++)
        if (label[r] < classes && raw[r] > -INFINITY)
            sum += exp(raw[r] - top);
    double shift = top + log(sum);
    for (int r = 0; r < rows; r++)
        if (label[r] < classes && raw[r] > -INFINITY)
            out[label[r]] = (float)fmax(raw[r] - shift, -1e30);
}

/* Returns the cross-entropy of samples that the scores were not computed from. A prior with the strength of a few samples keeps the scale moderate if there
 * are few samples or all predictions are correct. */
static double scale_loss(int n, int rows, const double *scores, const int64_t *row, double first, double scale)
{
    double loss = 2 * log(scale / first) * log(scale / first);
    for (int i = 0; i < n; i++, scores += rows) {
        double top = -INFINITY, sum = 0, own = scores[row[i]];
        for (int r = 0; r < rows; r++)
            top = fmax(top, scores[r]);
        for (int r = 0; r < rows; r++)
            sum += exp(scale * (scores[r] - top));
        if (own > -1e20) /* skips samples whose class has no score */
            loss += scale * (top - own) + log(sum);
    }
    return loss;
}

double sfp__head_fit_scale(int n, int rows, const double *scores, const int64_t *row, double first)
{
    double best = INFINITY, choice = first;
    for (int k = -20; k <= 20; k++) { /* from first / 32 to 32 * first */
        double scale = first * exp2(0.25 * k), loss = scale_loss(n, rows, scores, row, first, scale);
        if (loss < best) {
            best = loss;
            choice = scale;
        }
    }
    return choice;
}

sfp_status sfp__head_scores(sfp__head *h, int n, const float *query, bool exact, int classes, float *out, sfp_error *err)
{
    exact = exact || h->inference_only;
    TRY(check_queries(h, n, query, err));
    TRY(sfp__head_refresh(h, exact, err));
    size_t count = (size_t)n * (size_t)classes;
    for (size_t i = 0; i < count; i++)
        out[i] = -INFINITY;
    if (h->n == 0)
        return SFP_OK;
    int token = sfp__gemm_enter();
    for (int i = 0; i < n; i += SFP__HEAD_GRAIN) {
        int m = n - i < SFP__HEAD_GRAIN ? n - i : SFP__HEAD_GRAIN;
        h->kind->score(h, m, query + (size_t)i * (size_t)h->opt.dim, exact, h->raw);
        for (int j = 0; j < m; j++)
            sfp__head_log_softmax(h->rows, h->label, h->raw + (size_t)j * (size_t)h->rows, classes,
                                  out + (size_t)(i + j) * (size_t)classes);
    }
    sfp__gemm_leave(token);
    return SFP_OK;
}

sfp_status sfp__head_judge(sfp__head *h, int n, const float *query, const int32_t *label, int classes, float *out, float *unknown,
                           sfp_error *err)
{
    size_t count = (size_t)n * (size_t)classes;
    sfp_status status = SFP_OK;
    TRY(check_forget(h, n, query, err));
    TRY(sfp__head_refresh(h, true, err));
    for (size_t i = 0; i < count; i++)
        out[i] = -INFINITY;
    if (h->n == 0)
        return SFP_OK;
    int token = sfp__gemm_enter();
    for (int i = 0; i < n && !status; i += SFP__HEAD_GRAIN) {
        int row[SFP__HEAD_GRAIN], m = n - i < SFP__HEAD_GRAIN ? n - i : SFP__HEAD_GRAIN;
        for (int j = 0; j < m; j++) /* the result for a class without samples is not used */
            row[j] = sfp__head_label_samples(h, label[i + j]) > 0 ? h->row_of[label[i + j]] : 0;
        status = h->kind->judge(h, m, query + (size_t)i * (size_t)h->opt.dim, row, h->raw, unknown + i, err);
        for (int j = 0; j < m && !status; j++)
            if (sfp__head_label_samples(h, label[i + j]) > 0)
                sfp__head_log_softmax(h->rows, h->label, h->raw + (size_t)j * (size_t)h->rows, classes,
                                      out + (size_t)(i + j) * (size_t)classes);
            else
                unknown[i + j] = NAN;
    }
    sfp__gemm_leave(token);
    return status;
}

/* ---------------------------------------------------------------- save, load */

static sfp_status read_classes(sfp__head *h, const sfp__visitor *v, sfp_error *err)
{
    const sfp__tensor *t = NULL;
    TRY(sfp__visit_find(v, "labels", SFP__DTYPE_I64, &t, err));
    if (t->ndim != 1 || t->count > SFP__HEAD_LABEL_MAX)
        return sfp__fail(err, SFP_EFORMAT, "%s: tensor '%s.labels' is not a list of classes", v->file, v->prefix);
    const int64_t rows = (int64_t)t->count;
    TRY(reserve_rows(h, (int)rows, err));
    TRY(sfp__visit(v, "labels", SFP__DTYPE_I64, 1, &rows, h->label, err));
    TRY(sfp__visit(v, "counts", SFP__DTYPE_I64, 1, &rows, h->count, err));
    for (int64_t r = 0; r < rows; r++) {
        int64_t label = h->label[r];
        if (label < 0 || label >= SFP__HEAD_LABEL_MAX || h->count[r] < 0 || h->count[r] > INT64_MAX / SFP__HEAD_LABEL_MAX)
            return sfp__fail(
                err, SFP_EFORMAT,
                "%s: '%s': row %lld has label %lld and %lld samples, expected a label below %d and a number of samples", v->file,
                v->prefix, (long long)r, (long long)label, (long long)h->count[r], SFP__HEAD_LABEL_MAX);
        TRY(reserve_labels(h, (int)label + 1, err));
        if (row_of(h, (int)label) != (int)r)
            return sfp__fail(err, SFP_EFORMAT, "%s: '%s': label %lld occurs twice", v->file, v->prefix, (long long)label);
        h->n += h->count[r];
    }
    return SFP_OK;
}

static sfp_status visit_sums(sfp__head *h, const sfp__visitor *v, sfp_error *err)
{
    return sfp__sums_visit(h->kind->sums(h), h->rows, h->count, v, err);
}

static sfp_status visit_kind(sfp__head *h, const sfp__visitor *v, sfp_error *err)
{
    return (v->inference_only && h->kind->visit_inference ? h->kind->visit_inference : h->kind->visit)(h, v, err);
}

static sfp_status write_head(sfp__head *h, const sfp__visitor *v, sfp_error *err)
{
    const int64_t rows = h->rows;
    if (v->inference_only)
        TRY(sfp__head_refresh(h, true, err));
    TRY(sfp__visit(v, "labels", SFP__DTYPE_I64, 1, &rows, h->label, err));
    TRY(sfp__visit(v, "counts", SFP__DTYPE_I64, 1, &rows, h->count, err));
    TRY(visit_kind(h, v, err));
    return v->sums ? visit_sums(h, v, err) : SFP_OK;
}

sfp_status sfp__head_visit(sfp__head *h, const sfp__visitor *v, sfp_error *err)
{
    OWNED_PTR(sfp__head_free) sfp__head *new_head = NULL; /* if reading fails, h is unchanged */
    sfp__visitor reads = *v;
    reads.finite = true;
    if (v->put)
        return write_head(h, v, err);
    TRY(sfp__head_create(h->kind->name, &h->opt, &new_head, err));
    TRY(read_classes(new_head, &reads, err));
    TRY((v->sums ? visit_sums : visit_kind)(new_head, &reads, err));
    new_head->inference_only = v->inference_only;
    char *a = (char *)h, *b = (char *)new_head;
    for (size_t i = 0; i < h->kind->size; i++) {
        char c = a[i];
        a[i] = b[i];
        b[i] = c;
    }
    return SFP_OK;
}

sfp_status sfp__head_visit_named(sfp__head *h, const sfp__visitor *with, sfp_error *err)
{
    char prefix[32];
    sfp__visitor v = *with;
    if (!h)
        return SFP_OK;
    (void)snprintf(prefix, sizeof prefix, "head.%s", sfp__head_kind_name(h));
    v.prefix = prefix;
    return sfp__head_visit(h, &v, err);
}
