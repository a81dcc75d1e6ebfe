/* core50:PATH - CORe50 (Lomonaco and Maltoni 2017), scenario "new classes".
 *
 *   PATH/core50_128x128/sX/oY/C_XX_YY_ZZZ.png   session, object, frame; or PATH/sX/...
 *   PATH/paths.pkl    list of "sX/oY/C_XX_YY_ZZZ.png"
 *   PATH/LUP.pkl      {scenario: runs: batches: indices into paths}; the last batch is the test set
 *   PATH/labels.pkl   the same with labels
 *
 * With the three pickles a run (the order; of order -K the run K - 1) is as published: its batches are the tasks, in their own order. A run has its own
 * numbers for the objects. Classes are numbered here in the order of tasks and named after the directory of their object.
 *
 * Without them everything follows from the directories: sessions 3, 7 and 10 are the test set. Objects have their natural order
 * (shuffled if the order is not 0), 10 in the first task and 5 in each other; within an object, by session and frame. */
#include "io/tensor/pickle.h"
#include "stream/source_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_TASK = 10, EACH_TASK = 5, NUMBER_MAX = 9999 };

#define SCENARIO "nc"
#define IMAGES "core50_128x128"

static const char *const pickle_names[3] = {"paths.pkl", "LUP.pkl", "labels.pkl"};
enum { PATHS, LUP, LABELS };

/* Returns 12 for "o12"; -1: another form. */
static int numbered(const char *s, size_t n, char letter)
{
    int v = 0;
    if (n < 2 || n > 5 || s[0] != letter)
        return -1;
    for (size_t i = 1; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return -1;
        v = 10 * v + (s[i] - '0');
    }
    return v;
}

/* ------------------------------------------------------------------ by pickles */

typedef struct tables {
    char *file[3]; /* paths, for messages */
    sfp__pickle *pickle[3];
    sfp__pickle_value lup, labels; /* of the run: lists of batches */
    size_t batches;                /* number of batches; the last one is the test set */
    int run;                       /* not negative */
    bool authors;                  /* the order is authors:K, which is the run K - 1 */
    sfp_error *err;
} tables;

static bool is_list(const sfp__pickle *p, sfp__pickle_value v)
{
    sfp__pickle_type type = sfp__pickle_type_of(p, v);
    return type == SFP__PICKLE_LIST || type == SFP__PICKLE_TUPLE;
}

/* Finds the batches of the run t->run. The entry of the scenario is a list of runs, or a dict whose keys are numbers of runs. */
static sfp_status find_run(const tables *t, int which, sfp__pickle_value *out)
{
    const sfp__pickle *p = t->pickle[which];
    const char *file = t->file[which];
    sfp__pickle_value root = p->root, runs, run;
    if (sfp__pickle_type_of(p, root) != SFP__PICKLE_DICT)
        return sfp__fail(t->err, SFP_EFORMAT, "%s: file contains %s, expected a dict of scenarios", file,
                         sfp__pickle_type_name(sfp__pickle_type_of(p, root)));
    if (!sfp__pickle_get(p, root, SCENARIO, &runs))
        return sfp__fail(t->err, SFP_EFORMAT, "%s: scenario '" SCENARIO "' is missing", file);
    size_t n = sfp__pickle_count(p, runs);
    bool found = sfp__pickle_get_int(p, runs, t->run, &run);
    if (is_list(p, runs) && t->run >= 0 && (size_t)t->run < n) {
        run = sfp__pickle_item(p, runs, (size_t)t->run);
        found = true;
    }
    const char *authors = t->authors ? "authors:" : "";
    size_t first = t->authors;
    if (!found)
        return sfp__fail(t->err, SFP_EINVAL, "order is %s%zu, expected %s%zu to %zu, the runs of scenario '" SCENARIO "' in %s",
                         authors, (size_t)t->run + first, authors, first, (n ? n - 1 : 0) + first, file);
    if (!is_list(p, run) || sfp__pickle_count(p, run) < 2)
        return sfp__fail(t->err, SFP_EFORMAT,
                         "%s: scenario '" SCENARIO "', run %d is %s of %zu, expected a list of batches, the last for test", file,
                         t->run, sfp__pickle_type_name(sfp__pickle_type_of(p, run)), sfp__pickle_count(p, run));
    *out = run;
    return SFP_OK;
}

/* Returns the path and the label of image k of batch b. */
static sfp_status get_image(const tables *t, size_t b, size_t k, const char **path, size_t *length, int64_t *label)
{
    sfp__pickle_value paths = t->pickle[PATHS]->root;
    sfp__pickle_value index = sfp__pickle_item(t->pickle[LUP], sfp__pickle_item(t->pickle[LUP], t->lup, b), k);
    sfp__pickle_value class = sfp__pickle_item(t->pickle[LABELS], sfp__pickle_item(t->pickle[LABELS], t->labels, b), k);
    size_t count = sfp__pickle_count(t->pickle[PATHS], paths);
    int64_t i = sfp__pickle_int(t->pickle[LUP], index);
    if (sfp__pickle_type_of(t->pickle[LUP], index) != SFP__PICKLE_INT || i < 0 || (uint64_t)i >= count)
        return sfp__fail(t->err, SFP_EFORMAT, "%s: run %d, batch %zu, item %zu is %s %lld, expected a number below %zu (paths)",
                         t->file[LUP], t->run, b, k, sfp__pickle_type_name(sfp__pickle_type_of(t->pickle[LUP], index)),
                         (long long)i, count);
    *label = sfp__pickle_int(t->pickle[LABELS], class);
    if (sfp__pickle_type_of(t->pickle[LABELS], class) != SFP__PICKLE_INT || *label < 0 || *label >= SFP__CLASSES_MAX)
        return sfp__fail(t->err, SFP_EFORMAT, "%s: run %d, batch %zu, item %zu is %s %lld, expected a class below %d",
                         t->file[LABELS], t->run, b, k, sfp__pickle_type_name(sfp__pickle_type_of(t->pickle[LABELS], class)),
                         (long long)*label, SFP__CLASSES_MAX);
    *path = sfp__pickle_text(t->pickle[PATHS], sfp__pickle_item(t->pickle[PATHS], paths, (size_t)i), length);
    if (!*path || *length == 0 || *length > SFP__PATH_BYTES_MAX || memchr(*path, '\0', *length))
        return sfp__fail(t->err, SFP_EFORMAT, "%s: item %lld is not a path", t->file[PATHS], (long long)i);
    return SFP_OK;
}

static sfp_status check_batches(tables *t)
{
    const sfp__pickle *p = t->pickle[LUP], *q = t->pickle[LABELS];
    if (!is_list(t->pickle[PATHS], t->pickle[PATHS]->root))
        return sfp__fail(t->err, SFP_EFORMAT, "%s: file contains %s, expected a list of paths", t->file[PATHS],
                         sfp__pickle_type_name(sfp__pickle_type_of(t->pickle[PATHS], t->pickle[PATHS]->root)));
    TRY(find_run(t, LUP, &t->lup));
    TRY(find_run(t, LABELS, &t->labels));
    t->batches = sfp__pickle_count(p, t->lup);
    if (t->batches != sfp__pickle_count(q, t->labels))
        return sfp__fail(t->err, SFP_EFORMAT, "%s: run %d has %zu batches, expected %zu as in LUP.pkl", t->file[LABELS], t->run,
                         sfp__pickle_count(q, t->labels), t->batches);
    for (size_t b = 0; b < t->batches; b++) {
        sfp__pickle_value x = sfp__pickle_item(p, t->lup, b), y = sfp__pickle_item(q, t->labels, b);
        if (!is_list(p, x) || !is_list(q, y) || sfp__pickle_count(p, x) != sfp__pickle_count(q, y))
            return sfp__fail(t->err, SFP_EFORMAT, "%s: run %d, batch %zu is %s of %zu, expected a list of %zu as in LUP.pkl",
                             t->file[LABELS], t->run, b, sfp__pickle_type_name(sfp__pickle_type_of(q, y)),
                             sfp__pickle_count(q, y), sfp__pickle_count(p, x));
    }
    return SFP_OK;
}

/* Facts about a published label. */
typedef struct label_info {
    int32_t task;   /* first training batch that has it; -1: none */
    int32_t object; /* object of its paths; 0: none yet, -1: several */
    int32_t class;
} label_info;

/* Returns the number of the object in "sX/oY/..."; -1: none. */
static int object_of(const char *path)
{
    for (const char *s = path; *s;) {
        size_t n = strcspn(s, "/");
        int v = numbered(s, n, 'o');
        if (v >= 1)
            return v;
        s += n + (s[n] == '/');
    }
    return -1;
}

static sfp_status collect_labels(const tables *t, label_info *info, int64_t *labels)
{
    int64_t top = 0;
    for (size_t b = 0; b < t->batches; b++) {
        size_t n = sfp__pickle_count(t->pickle[LUP], sfp__pickle_item(t->pickle[LUP], t->lup, b)), length;
        for (size_t k = 0; k < n; k++) {
            const char *path;
            int64_t label = 0;
            TRY(get_image(t, b, k, &path, &length, &label));
            label_info *i = &info[label];
            int object = object_of(path);
            if (b + 1 < t->batches && i->task < 0)
                i->task = (int32_t)b;
            i->object = i->object == 0 || i->object == object ? object : -1;
            top = label >= top ? label + 1 : top;
        }
    }
    *labels = top;
    return SFP_OK;
}

/* Numbers and names the classes, sorted by task and label. A label of the test set that no task has is an error. */
static sfp_status number_classes(sfp_source *s, const tables *t, label_info *info, int64_t labels, sfp__names *names)
{
    bool by_object = true;
    for (int64_t i = 0; i < labels; i++) {
        if (info[i].object != 0 && info[i].task < 0)
            return sfp__fail(t->err, SFP_EFORMAT, "%s: run %d: label %lld is in the test set and in no batch", t->file[LABELS],
                             t->run, (long long)i);
        by_object = by_object && info[i].object >= 0;
    }
    if (!by_object)
        TRY(sfp__source_warn(s, t->err, "classes are named after their labels: %s has labels for more than one object",
                             t->file[LABELS]));
    for (int32_t task = 0; (size_t)task + 1 < t->batches; task++) {
        for (int64_t i = 0; i < labels; i++) {
            char name[24];
            if (info[i].object == 0 || info[i].task != task)
                continue;
            int n = by_object ? snprintf(name, sizeof name, "o%d", info[i].object)
                              : snprintf(name, sizeof name, "%lld", (long long)i);
            int before = names->count;
            TRY(sfp__names_add(names, name, (size_t)n, &info[i].class, t->err));
            if (names->count == before) /* one object has two labels */
                return sfp__fail(t->err, SFP_EFORMAT, "%s: run %d: object %s has two labels", t->file[LABELS], t->run, name);
        }
    }
    return SFP_OK;
}

static sfp_status add_batches(sfp__file_source *s, const tables *t, const label_info *info, bool test)
{
    size_t first = test ? t->batches - 1 : 0, last = test ? t->batches : t->batches - 1;
    for (size_t b = first; b < last; b++) {
        size_t n = sfp__pickle_count(t->pickle[LUP], sfp__pickle_item(t->pickle[LUP], t->lup, b)), length = 0;
        for (size_t k = 0; k < n; k++) {
            const char *path = NULL;
            int64_t label = 0;
            sfp__entry e = {.record = sfp__record_none()};
            TRY(get_image(t, b, k, &path, &length, &label));
            e.record.label = info[label].class;
            e.record.task = test ? info[label].task : (int32_t)b;
            TRY(sfp__entries_add(&s->entries, e, path, length, t->err));
        }
    }
    return SFP_OK;
}

static sfp_status fill_by_pickles(sfp__file_source *s, tables *t, bool test, sfp__names *names)
{
    OWNED label_info *info = NULL;
    int64_t labels = 0;
    for (int i = 0; i < 3; i++)
        TRY(sfp__pickle_read(t->file[i], NULL, &t->pickle[i], t->err));
    TRY(check_batches(t));
    TRY(sfp__alloc(&info, SFP__CLASSES_MAX, sizeof *info, t->err));
    for (int i = 0; i < SFP__CLASSES_MAX; i++)
        info[i].task = -1;
    TRY(collect_labels(t, info, &labels));
    TRY(number_classes(&s->base, t, info, labels, names));
    return add_batches(s, t, info, test);
}

/* ------------------------------------------------------------------ by directories */

typedef struct directory_scan {
    sfp__file_source *s;
    bool test;
    bool seen[NUMBER_MAX + 1]; /* objects of both parts, which must have the same classes */
    sfp_error *err;
} directory_scan;

static sfp_status add_files(directory_scan *f, const char *path, int session, int object)
{
    OWNED_BY(sfp__strings_done) sfp__strings names = {0};
    TRY(sfp__directory_names(path, &names, f->err));
    for (int i = 0; i < names.count; i++) {
        char relative[SFP__PATH_BYTES_MAX];
        sfp__entry e = {.record = sfp__record_none(), .place = (uint64_t)session};
        if (names.s[i][0] == '.' || !sfp__image_name(names.s[i]))
            continue;
        f->seen[object] = true;
        if ((session == 3 || session == 7 || session == 10) != f->test)
            continue;
        int n = snprintf(relative, sizeof relative, "s%d/o%d/%s", session, object, names.s[i]);
        e.record.label = object; /* replaced by its class when all objects are known */
        TRY(sfp__entries_add(&f->s->entries, e, relative, (size_t)n, f->err));
    }
    return SFP_OK;
}

/* Adds the objects of a session; session 0: adds the sessions. */
static sfp_status add_directories(directory_scan *f, const char *path, int session)
{
    OWNED_BY(sfp__strings_done) sfp__strings names = {0};
    TRY(sfp__directory_names(path, &names, f->err));
    for (int i = 0; i < names.count; i++) {
        OWNED char *inner = NULL;
        int number = numbered(names.s[i], strlen(names.s[i]), session ? 'o' : 's');
        if (number < 1 || names.s[i][1] == '0')
            continue;
        TRY(sfp__path_make(path, names.s[i], &inner, f->err));
        TRY(session ? add_files(f, inner, session, number) : add_directories(f, inner, number));
    }
    return SFP_OK;
}

/* Compares by place of the object, session and frame. `label` contains the place here. */
static int compare_entries(const void *a, const void *b, void *text)
{
    const sfp__entry *x = a, *y = b;
    if (x->record.label != y->record.label)
        return x->record.label < y->record.label ? -1 : 1;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return sfp__natural_compare((const char *)text + x->text, (const char *)text + y->text);
}

static sfp_status fill_by_directories(sfp__file_source *s, int order, bool test, sfp__names *names, sfp_error *err)
{
    OWNED directory_scan *f = NULL;
    OWNED int64_t *class_at = NULL;
    int32_t class_of[NUMBER_MAX + 1] = {0}, place_of[NUMBER_MAX + 1] = {0}, number;
    TRY(sfp__alloc(&f, 1, sizeof *f, err));
    *f = (directory_scan){.s = s, .test = test, .err = err};
    TRY(add_directories(f, s->root, 0));
    for (int object = 1; object <= NUMBER_MAX; object++) {
        char name[16];
        if (!f->seen[object])
            continue;
        class_of[object] = names->count;
        TRY(sfp__names_add(names, name, (size_t)snprintf(name, sizeof name, "o%d", object), &number, err));
    }
    TRY(sfp__class_order(names->count, order, &class_at, err));
    for (int32_t i = 0; i < names->count; i++)
        place_of[class_at[i]] = i;
    for (int64_t i = 0; i < s->entries.count; i++)
        s->entries.at[i].record.label = place_of[class_of[s->entries.at[i].record.label]];
    if (s->entries.count > 0)
        qsort_r(s->entries.at, (size_t)s->entries.count, sizeof *s->entries.at, compare_entries, s->entries.text.s);
    for (int64_t i = 0; i < s->entries.count; i++) {
        sfp_record *r = &s->entries.at[i].record;
        r->task = sfp__task_of_place(r->label, FIRST_TASK, EACH_TASK);
        r->label = (int32_t)class_at[r->label];
    }
    return SFP_OK;
}

/* --------------------------------------------------------------------- opening */

/* Finds all three pickles or none. */
static sfp_status find_pickles(const char *path, tables *t, bool *found)
{
    int have = 0, absent = 0;
    for (int i = 0; i < 3; i++) {
        bool exists = false;
        TRY(sfp__path_make(path, pickle_names[i], &t->file[i], t->err));
        TRY(sfp__path_exists(t->file[i], &exists, t->err));
        if (exists)
            have++;
        else
            absent = i;
    }
    if (have > 0 && have < 3)
        return sfp__fail(t->err, SFP_ENOTFOUND,
                         "%s: file is missing, expected paths.pkl, LUP.pkl and labels.pkl, or none of them", t->file[absent]);
    *found = have == 3;
    return SFP_OK;
}

static void tables_done(tables *t)
{
    for (int i = 0; i < 3; i++) {
        sfp__free(t->file[i]);
        sfp__pickle_free(t->pickle[i]);
    }
}

static sfp_status open_core50(const char *path, const sfp__source_options *opt, sfp_source **out, sfp_error *err)
{
    OWNED_PTR(sfp__file_source_free) sfp__file_source *s = NULL;
    OWNED_BY(tables_done)
    tables t = {.run = opt->order < 0 ? -(opt->order + 1) : opt->order, .authors = opt->order < 0, .err = err};
    OWNED_BY(sfp__names_done) sfp__names names = {0};
    OWNED char *root = NULL;
    bool pickles = false, below = false;
    TRY(sfp__path_make(path, IMAGES, &root, err));
    TRY(sfp__path_is_dir(root, &below, err));
    TRY(sfp__file_source_create(sizeof *s, &sfp__source_core50, &sfp__file_source_ops, path, below ? root : path, &s, err));
    TRY(find_pickles(path, &t, &pickles));
    if (pickles)
        TRY(fill_by_pickles(s, &t, opt->test, &names));
    else
        TRY(fill_by_directories(s, opt->order, opt->test, &names, err));
    if (s->entries.count == 0)
        return sfp__fail(err, SFP_EFORMAT, "%s: %s part of CORe50 has no images, expected " IMAGES "/sX/oY/C_XX_YY_ZZZ.png", path,
                         opt->test ? "test" : "training");
    if (!pickles)
        TRY(sfp__source_warn(&s->base, err, "pickles are missing: tasks follow from the directory names"));
    s->base.keeps_order = true;
    s->base.test_part = opt->test;
    *out = sfp__file_source_finish(TAKE(s), &names, NULL);
    return SFP_OK;
}

const sfp__source_kind sfp__source_core50 = {
    .name = "core50",
    .summary = "CORe50 128x128: 50 objects in 11 sessions, new classes",
    .open = open_core50,
};
