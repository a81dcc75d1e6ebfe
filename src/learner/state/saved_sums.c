#include "learner/state/saved_sums.h"

#include "base/mem.h"
#include "io/directory.h"
#include "learner/heads/triangle.h"
#include "learner/settings.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

/* ------------------------------------------------------------------ identity */

/* Metadata that are not settings. `facts` belong to the identity; backbone-file does not, because a file may be renamed: it is only for messages. */
static const char *const facts[] = {"method", "backbone-sizes", "backbone", "precision", "mean", "std"},
                         backbone_file[] = "backbone-file", timestamps[] = "timestamps";
enum { FACTS = sizeof facts / sizeof *facts };

/* Whether a state of a closed-form head contains this setting. */
static bool is_saved(const sfp__opt *row)
{
    return row->only != SFP__ONLY_TRAINED && (row->saved == SFP__SAVED_STATE || row->saved == SFP__SAVED_INFERENCE);
}

static const char *value_of(const sfp__file_metadata *m, const char *key)
{
    for (size_t i = 0; i < m->count; i++)
        if (strcmp(m->list[i].key, key) == 0)
            return m->list[i].value;
    return NULL;
}

static const char *shown_value(const sfp__file_metadata *m, const char *key, char buf[SFP__NAME_MAX])
{
    const char *value = value_of(m, key);
    return sfp__printable(value ? value : "none", buf, SFP__NAME_MAX);
}

void sfp__saved_sums_identify(sfp__file_metadata *m, const sfp__learner *l)
{
    sfp__metadata_put(m, "method", l->opt.method);
    sfp__metadata_put_backbone(m, l->vit);
    sfp__metadata_put_settings(m, l, false);
}

static void copy_value(const sfp__tensor_file *st, const char *key, sfp__file_metadata *out)
{
    const char *value = sfp__tensor_file_meta(st, key);
    char setting[64];
    (void)snprintf(setting, sizeof setting, "setting.%s", key);
    if (!value)
        value = sfp__tensor_file_meta(st, setting);
    if (value)
        sfp__metadata_put(out, key, value);
}

/* Copies the metadata of a state or of a checkpoint, in which the keys of settings have a prefix. */
static sfp_status copy_metadata(const sfp__tensor_file *st, sfp__file_metadata *out, sfp_error *err)
{
    for (int i = 0; i < FACTS; i++)
        copy_value(st, facts[i], out);
    for (size_t i = 0; i < sfp__learner_row_count; i++)
        if (is_saved(&sfp__learner_rows[i]))
            copy_value(st, sfp__learner_rows[i].name, out);
    copy_value(st, timestamps, out);
    copy_value(st, backbone_file, out);
    return sfp__check_memory(!out->failed, err);
}

/* Names both backbones, or both input sizes if the sizes differ only in that. */
static sfp_status fail_backbone(const char *path, const sfp__file_metadata *found, const sfp__file_metadata *expected,
                                const char *like, sfp_error *err)
{
    char a[3][SFP__NAME_MAX], b[3][SFP__NAME_MAX];
    const char *const list[] = {backbone_file, "backbone-sizes", "backbone"};
    for (int i = 0; i < 3; i++) {
        (void)shown_value(found, list[i], a[i]);
        (void)shown_value(expected, list[i], b[i]);
    }
    const char *rest = strchr(a[1], ','), *other = strchr(b[1], ',');
    if (rest && other && strcmp(rest, other) == 0 && strcmp(a[1], b[1]) != 0)
        return sfp__fail(err, SFP_EINVAL, "%s: input size is %.*s, expected %.*s as in %s", path, (int)strcspn(a[1] + 4, ","),
                         a[1] + 4, (int)strcspn(b[1] + 4, ","), b[1] + 4, like);
    return sfp__fail(err, SFP_EINVAL, "%s: backbone is '%s' (%s; checksum %s), expected '%s' (%s; checksum %s) as in %s", path,
                     a[0], a[1], a[2], b[0], b[1], b[2], like);
}

static sfp_status check_value(const char *path, const char *key, const sfp__file_metadata *found,
                              const sfp__file_metadata *expected, const char *like, sfp_error *err)
{
    const char *a = value_of(found, key), *b = value_of(expected, key);
    char was[SFP__NAME_MAX], now[SFP__NAME_MAX];
    if ((!a && !b) || (a && b && strcmp(a, b) == 0))
        return SFP_OK;
    if (strncmp(key, "backbone", 8) == 0)
        return fail_backbone(path, found, expected, like, err);
    return sfp__fail(err, SFP_EINVAL, "%s: %s is %s, expected %s as in %s", path, key, shown_value(found, key, was),
                     shown_value(expected, key, now), like);
}

/* Compares what gives the sums their meaning: backbone, method, preprocessing and the settings of the head. */
static sfp_status check_identity(const char *path, const sfp__file_metadata *found, const sfp__file_metadata *expected,
                                 const char *like, sfp_error *err)
{
    for (int i = 0; i < FACTS; i++)
        TRY(check_value(path, facts[i], found, expected, like, err));
    for (size_t i = 0; i < sfp__learner_row_count; i++)
        if (is_saved(&sfp__learner_rows[i]) && sfp__learner_rows[i].saved == SFP__SAVED_STATE)
            TRY(check_value(path, sfp__learner_rows[i].name, found, expected, like, err));
    return SFP_OK;
}

/* ------------------------------------------------------------------- reading */

/* Finds the file of a run directory: its checkpoint, which is never older than its state. */
static sfp_status find_file(const char *given, char *path, sfp_error *err)
{
    struct stat st;
    bool has = false;
    TRY(sfp__state_path(given, path, PATH_MAX, err));
    if (stat(given, &st) == 0 && S_ISDIR(st.st_mode))
        TRY(sfp__directory_has(given, "checkpoint", &has, err));
    return has ? sfp__path_print(path, PATH_MAX, err, "%s/checkpoint", given) : SFP_OK;
}

/* Reads the sizes of the backbone and the settings of the head from the metadata. */
static sfp_status read_options(const char *path, const sfp__file_metadata *m, sfp__vit_config *vit, sfp__learner_options *o,
                               sfp_error *err)
{
    const char *sizes = value_of(m, "backbone-sizes");
    char value[SFP__NAME_MAX];
    int used = 0;
    bool fine = sizes &&
                sscanf(sizes, "img %d, patch %d, width %d, depth %d, heads %d, hidden %d%n", &vit->img_size, &vit->patch_size,
                       &vit->dim, &vit->depth, &vit->heads, &vit->hidden, &used) == 6 &&
                sizes[used] == '\0' && vit->dim > 0 && vit->dim <= 1 << 16 && vit->depth > 0 && vit->depth <= SFP__VIT_MAX_DEPTH;
    if (!fine)
        return sfp__fail(err, SFP_EFORMAT, "%s: metadata 'backbone-sizes' is '%s', expected the sizes of a backbone", path,
                         shown_value(m, "backbone-sizes", value));
    for (size_t i = 0; i < sfp__learner_row_count; i++) {
        const sfp__opt *row = &sfp__learner_rows[i];
        if (row->only != SFP__ONLY_CLOSED_FORM || !is_saved(row))
            continue;
        if (!value_of(m, row->name))
            return sfp__fail(err, SFP_EFORMAT, "%s: metadata '%s' is missing", path, row->name);
        sfp_status s = sfp__learner_set(o, row->name, shown_value(m, row->name, value), err);
        if (s)
            return sfp__fail_prefix(err, s, "%s: metadata", path);
    }
    o->ranpac_width = SFP__RANPAC_WIDTH_DEFAULT;
    return sfp__learner_check_taps(o, vit, err) ? sfp__fail_prefix(err, SFP_EFORMAT, "%s", path) : SFP_OK;
}

/* Finds a tensor of the head; NULL: there is none. */
static const sfp__tensor *find_tensor(const sfp__tensor_file *st, const char *method, const char *tensor)
{
    char name[SFP__NAME_MAX];
    (void)snprintf(name, sizeof name, "head.%s.%s", method, tensor);
    return sfp__tensor_file_find(st, name);
}

static sfp_status check_has_sums(const sfp__tensor_file *st, sfp_error *err)
{
    static const char *const methods[] = {"ncm", "slda", "ridge"};
    const char *method = sfp__tensor_file_meta(st, "method");
    char shown[SFP__NAME_MAX];
    bool known = false;
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        known = known || (method && strcmp(method, methods[i]) == 0);
    if (!known)
        return sfp__fail(err, SFP_EUNSUPPORTED, "%s: method is %s, expected ncm, slda or ridge: only they are functions of sums",
                         st->path, sfp__printable(method ? method : "none", shown, sizeof shown));
    if (!find_tensor(st, method, "sums"))
        return sfp__fail(err, SFP_EUNSUPPORTED, "%s: the file has no sums: they exceed %d MiB; use the checkpoint of the run",
                         st->path, SFP__STATE_SUMS_MAX >> 20);
    return SFP_OK;
}

/* Checks the sizes of the largest tensors before memory for them is allocated. */
static sfp_status check_sizes(const sfp__tensor_file *st, const char *method, int dim, sfp_error *err)
{
    const sfp__tensor *sums = find_tensor(st, method, "sums"), *products = find_tensor(st, method, "products");
    const int64_t shape[] = {sums->ndim == 2 ? sums->shape[0] : 0, dim}, count = (int64_t)sfp__triangle_count(dim);
    TRY(sfp__tensor_expect(st->path, sums, shape, 2, err));
    if (strcmp(method, "ncm") == 0)
        return SFP_OK;
    if (!products)
        return sfp__fail(err, SFP_EFORMAT, "%s: tensor 'head.%s.products' is missing", st->path, method);
    return sfp__tensor_expect(st->path, products, &count, 1, err);
}

static sfp_status read_head(sfp__tensor_file *st, const sfp__file_metadata *m, sfp__thread_pool *threads, sfp__head **out,
                            sfp_error *err)
{
    const char *method = value_of(m, "method");
    sfp__vit_config vit = {0};
    sfp__learner_options o = {0};
    OWNED_PTR(sfp__head_free) sfp__head *head = NULL;
    sfp__visitor v = sfp__visit_reading(st, false);
    TRY(read_options(st->path, m, &vit, &o, err));
    sfp__head_options h = sfp__learner_head_options(&o, &vit, 0);
    h.threads = threads;
    TRY(check_sizes(st, method, h.dim, err));
    TRY(sfp__head_create(method, &h, &head, err));
    v.sums = true;
    TRY(sfp__head_visit_named(head, &v, err));
    *out = TAKE(head);
    return SFP_OK;
}

sfp_status sfp__saved_sums_read(const sfp__saved_file *from, const sfp__file_metadata *expected, const char *like,
                                sfp__thread_pool *threads, sfp__saved_sums *out, sfp_error *err)
{
    OWNED_BY(sfp__opened_file_done) sfp__opened_file f = {0};
    OWNED_BY(sfp__saved_sums_done) sfp__saved_sums s = {0};
    sfp__saved_file file = *from;
    char path[PATH_MAX];
    if (!from->data) {
        TRY(find_file(from->path, path, err));
        file.path = path;
    }
    TRY(sfp__saved_file_open(&file, false, &f, err));
    TRY(check_has_sums(f.st, err));
    TRY(copy_metadata(f.st, &s.metadata, err));
    if (expected)
        TRY(check_identity(file.path, &s.metadata, expected, like, err));
    TRY(read_head(f.st, &s.metadata, threads, &s.head, err));
    TRY(sfp__metadata_names_read(f.st, SFP__LEARNER_MAX_CLASSES, &s.names, err));
    TRY(sfp__check_memory((s.path = sfp__strdup(file.path)), err));
    *out = TAKE(s);
    return SFP_OK;
}

void sfp__saved_sums_done(sfp__saved_sums *s)
{
    sfp__free(s->path);
    sfp__metadata_done(&s->metadata);
    sfp__head_free(s->head);
    sfp__metadata_names_done(&s->names);
}

/* ------------------------------------------------------------------- classes */

typedef struct named {
    const char *name;
    int32_t label;
} named;

static int compare_names(const void *pa, const void *pb)
{
    const named *a = pa, *b = pb;
    int order = strcmp(a->name, b->name);
    return order ? order : (a->label > b->label) - (a->label < b->label);
}

/* Lists the classes that have names, sorted by name; returns their number. */
static int list_named_classes(int count, char *const *names, named *out)
{
    int n = 0;
    for (int c = 0; c < count; c++)
        if (names[c])
            out[n++] = (named){names[c], c};
    qsort(out, (size_t)n, sizeof *out, compare_names);
    return n;
}

/* Finds a name in a sorted list; NULL: it is not there. */
static const named *find_name(int n, const named *list, const char *name)
{
    int low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (strcmp(list[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && strcmp(list[low].name, name) == 0 ? &list[low] : NULL;
}

static const char *name_of(int count, char *const *names, int label)
{
    return label >= 0 && label < count ? names[label] : NULL;
}

/* Writes "class 3" or "class 'cat'". */
static const char *describe(const sfp__saved_sums *s, int label, char buf[SFP__NAME_MAX])
{
    const char *name = name_of(s->names.count, s->names.name, label);
    char shown[SFP__NAME_MAX - 16];
    if (name)
        (void)snprintf(buf, SFP__NAME_MAX, "class '%s'", sfp__printable(name, shown, sizeof shown));
    else
        (void)snprintf(buf, SFP__NAME_MAX, "class %d", label);
    return buf;
}

/* Returns a label that no class of the head exceeds. */
static int label_end(const sfp__head *h)
{
    int end = 0;
    for (int r = 0; r < sfp__head_rows(h); r++)
        end = sfp__head_row_label(h, r) >= end ? sfp__head_row_label(h, r) + 1 : end;
    return end;
}

/* Returns whether label `c` has neither a name nor samples. */
static bool is_unused(const sfp__known_classes *here, int c)
{
    return !name_of(here->count, here->names, c) && sfp__head_label_samples(here->head, c) == 0;
}

static sfp_status fail_twice(const sfp__saved_sums *from, int a, int b, sfp_error *err)
{
    char first[SFP__NAME_MAX], second[SFP__NAME_MAX];
    return sfp__fail(err, SFP_EINVAL, "%s: %s (label %d) and %s (label %d) would become one class; give each its own name",
                     from->path, describe(from, a, first), a, describe(from, b, second), b);
}

/* Finds the label of class `c` of the file among the known classes. *out -1: the class is new, and a class with another name has its label. */
static sfp_status find_label(const sfp__saved_sums *from, int c, const sfp__known_classes *here, int n, const named *sorted,
                             int32_t *out, sfp_error *err)
{
    const char *name = name_of(from->names.count, from->names.name, c);
    const named *known = name ? find_name(n, sorted, name) : NULL;
    char shown[SFP__NAME_MAX];
    if (known && known + 1 < sorted + n && strcmp(known[1].name, name) == 0)
        return sfp__fail(err, SFP_EINVAL, "%s: %s has labels %d and %d here, expected one class of that name", from->path,
                         describe(from, c, shown), known->label, known[1].label);
    *out = known ? known->label : name && name_of(here->count, here->names, c) ? -1 : c;
    return SFP_OK;
}

/* Matches all classes; `by` (size) is the class of the file that a label has been given to, or -1. */
static sfp_status match(const sfp__saved_sums *from, const sfp__known_classes *here, int n, const named *sorted, int size,
                        int32_t *by, int32_t *label, int count, sfp_error *err)
{
    int unused = 0;
    for (int c = 0; c < size; c++)
        by[c] = -1;
    for (int pass = 0; pass < 2; pass++) /* first classes that are known or can keep their label, then the others */
        for (int c = 0; c < count; c++) {
            if (pass == 0) {
                label[c] = -1;
                if (!name_of(from->names.count, from->names.name, c) && sfp__head_label_samples(from->head, c) == 0)
                    continue;
                TRY(find_label(from, c, here, n, sorted, &label[c], err));
                label[c] = label[c] < 0 ? -2 : label[c]; /* -2: new */
            } else if (label[c] == -2) {
                while (by[unused] >= 0 || !is_unused(here, unused))
                    unused++;
                label[c] = unused;
            } else {
                continue;
            }
            if (label[c] >= 0 && by[label[c]] >= 0)
                return fail_twice(from, by[label[c]], c, err);
            if (label[c] >= SFP__LEARNER_MAX_CLASSES)
                return sfp__fail(err, SFP_ELIMIT, "%s: number of classes is more than %d", from->path, SFP__LEARNER_MAX_CLASSES);
            if (label[c] >= 0)
                by[label[c]] = c;
        }
    return SFP_OK;
}

sfp_status sfp__saved_sums_match(const sfp__saved_sums *from, const sfp__known_classes *here, sfp__class_match *out,
                                 sfp_error *err)
{
    OWNED named *sorted = NULL, *theirs = NULL;
    OWNED int32_t *by = NULL;
    OWNED_BY(sfp__class_match_done) sfp__class_match m = {0};
    int end = label_end(from->head), ours = label_end(here->head);
    m.count = from->names.count > end ? from->names.count : end;
    ours = here->count > ours ? here->count : ours;
    int size = m.count + (ours > m.count ? ours : m.count); /* enough labels for the classes of both */
    TRY(sfp__alloc(&sorted, (size_t)here->count, sizeof *sorted, err));
    TRY(sfp__alloc(&theirs, (size_t)from->names.count, sizeof *theirs, err));
    TRY(sfp__alloc(&by, (size_t)size + 1, sizeof *by, err));
    TRY(sfp__alloc(&m.label, (size_t)m.count, sizeof *m.label, err));
    TRY(sfp__alloc(&m.row_label, (size_t)sfp__head_rows(from->head), sizeof *m.row_label, err));
    int n = list_named_classes(from->names.count, from->names.name, theirs);
    for (int i = 1; i < n; i++)
        if (strcmp(theirs[i - 1].name, theirs[i].name) == 0)
            return fail_twice(from, theirs[i - 1].label, theirs[i].label, err);
    n = list_named_classes(here->count, here->names, sorted);
    TRY(match(from, here, n, sorted, size, by, m.label, m.count, err));
    for (int r = 0; r < sfp__head_rows(from->head); r++)
        m.row_label[r] = m.label[sfp__head_row_label(from->head, r)];
    for (int c = 0; c < m.count; c++)
        m.end = m.label[c] >= m.end ? m.label[c] + 1 : m.end;
    *out = TAKE(m);
    return SFP_OK;
}

void sfp__class_match_done(sfp__class_match *m)
{
    sfp__free(m->label);
    sfp__free(m->row_label);
}

sfp_status sfp__saved_sums_check_subtract(const sfp__saved_sums *from, const sfp__class_match *m, const sfp__head *head,
                                          sfp_error *err)
{
    int row = sfp__head_find_excess(head, from->head, m->row_label);
    if (row < 0)
        return SFP_OK;
    int c = sfp__head_row_label(from->head, row);
    long long found = sfp__head_label_samples(from->head, c), here = sfp__head_label_samples(head, m->label[c]);
    char shown[SFP__NAME_MAX];
    return sfp__fail(
        err, SFP_ENOTFOUND,
        "%s: %s has %lld samples, which are not among the %lld that were learned; subtract only what was learned or merged",
        from->path, describe(from, c, shown), found, here);
}

/* ------------------------------------------------------------- add, subtract */

static sfp__known_classes classes_of(const sfp__saved_sums *s)
{
    return (sfp__known_classes){s->names.count, s->names.name, s->head};
}

/* Reserves memory for the names of `count` classes. */
static sfp_status reserve_names(sfp__saved_names *n, int count, sfp_error *err)
{
    size_t old = (size_t)n->count * sizeof *n->name;
    if (count <= n->count)
        return SFP_OK;
    char **name = sfp__realloc(n->name, old, (size_t)count * sizeof *name);
    TRY(sfp__check_memory(name, err));
    memset(name + n->count, 0, (size_t)(count - n->count) * sizeof *name);
    n->name = name;
    n->count = count;
    n->given = true;
    return SFP_OK;
}

sfp_status sfp__saved_sums_add(sfp__saved_sums *to, sfp__saved_sums *from, sfp_error *err)
{
    OWNED_BY(sfp__class_match_done) sfp__class_match m = {0};
    const sfp__known_classes here = classes_of(to);
    TRY(sfp__saved_sums_match(from, &here, &m, err));
    TRY(reserve_names(&to->names, m.end, err));
    TRY(sfp__head_merge(to->head, from->head, m.row_label, err));
    for (int c = 0; c < from->names.count; c++)
        if (from->names.name[c] && !to->names.name[m.label[c]])
            to->names.name[m.label[c]] = TAKE(from->names.name[c]);
    return SFP_OK;
}

sfp_status sfp__saved_sums_name(sfp__saved_sums *s, int count, const char *const *name, sfp_error *err)
{
    TRY(reserve_names(&s->names, count, err));
    for (int c = 0; c < count; c++) {
        sfp__free(s->names.name[c]);
        TRY(sfp__check_memory((s->names.name[c] = sfp__strdup(name[c])), err));
    }
    return SFP_OK;
}

sfp_status sfp__saved_sums_subtract(sfp__saved_sums *to, const sfp__saved_sums *from, sfp_error *err)
{
    OWNED_BY(sfp__class_match_done) sfp__class_match m = {0};
    const sfp__known_classes here = classes_of(to);
    TRY(sfp__saved_sums_match(from, &here, &m, err));
    TRY(sfp__saved_sums_check_subtract(from, &m, to->head, err));
    return sfp__head_subtract(to->head, from->head, m.row_label, err);
}

sfp_status sfp__saved_sums_drop_samples(sfp__saved_sums *s, int64_t min_count, sfp__left_out_fn on_left_out, void *ctx,
                                        sfp_error *err)
{
    for (int r = 0; r < sfp__head_rows(s->head); r++) {
        int c = sfp__head_row_label(s->head, r);
        int64_t samples = sfp__head_label_samples(s->head, c);
        if (samples == 0 || samples >= min_count)
            continue;
        if (on_left_out)
            on_left_out(ctx, c, name_of(s->names.count, s->names.name, c), samples);
        sfp__head_leave_out(s->head, c);
        if (c < s->names.count) {
            sfp__free(s->names.name[c]);
            s->names.name[c] = NULL;
        }
    }
    return sfp__head_drop_samples(s->head, err);
}

int sfp__saved_sums_classes(const sfp__saved_sums *s)
{
    int n = 0;
    for (int r = 0; r < sfp__head_rows(s->head); r++)
        n += sfp__head_label_samples(s->head, sfp__head_row_label(s->head, r)) > 0;
    return n;
}

int64_t sfp__saved_sums_samples(const sfp__saved_sums *s)
{
    return sfp__head_samples(s->head);
}

/* ------------------------------------------------------------------- writing */

sfp_status sfp__saved_sums_write(sfp__saved_sums *s, const char *path, sfp_error *err)
{
    OWNED_BY(sfp__tensor_list_done) sfp__tensor_list tensors = {0};
    OWNED_BY(sfp__metadata_done) sfp__file_metadata meta = {0};
    OWNED uint8_t *seen = NULL;
    int end = label_end(s->head), classes = end > s->names.count ? end : s->names.count, names = s->names.count;
    sfp__visitor v = sfp__visit_writing(&tensors);
    v.inference_only = v.sums = true;
    TRY(sfp__head_visit_named(s->head, &v, err));
    while (names > 0 && !s->names.name[names - 1])
        names--;
    while (classes > names && sfp__head_label_samples(s->head, classes - 1) == 0)
        classes--;
    TRY(sfp__alloc(&seen, (size_t)classes, 1, err));
    for (int c = 0; c < classes; c++)
        seen[c] = sfp__head_label_samples(s->head, c) > 0;
    sfp__state_put_format(&meta, classes, seen);
    for (size_t i = 0; i < s->metadata.count; i++)
        sfp__metadata_put(&meta, s->metadata.list[i].key, s->metadata.list[i].value);
    sfp__metadata_put_names(&meta, names, s->names.name);
    return sfp__state_write(path, &tensors, &meta, err);
}
