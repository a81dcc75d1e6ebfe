/* The classes of a stream.
 *
 * Class k of a state or a checkpoint is label k of an indexed stream, because labels are numbers everywhere. If both have a name
 * for class k, the names must be equal; otherwise predictions would carry the names of other classes. A live stream numbers its
 * classes by name in order of appearance. Names match its classes with those of the source, the test set and an earlier
 * process. */
#include "base/mem.h"
#include "base/settings.h"
#include "base/text.h"
#include "io/file.h"
#include "results/result.h"
#include "run/run_internal.h"

#include <stdio.h>
#include <string.h>

/* Finds the classes that the source of a live stream lists. A watched directory also names its directories of classes, each of which
 * may be a typing error, so only classes.txt counts. */
static sfp_status read_known(sfp__classes *c, sfp_error *err)
{
    const sfp_source *s = c->plan->source;
    char path[PATH_MAX];
    int32_t number;
    sfp_error why = {0};
    if (s->kind->walks) {
        TRY(sfp__path_print(path, sizeof path, err, "%s/classes.txt", s->path));
        sfp_status status = sfp__names_read(path, &c->known, &why);
        return status && status != SFP_ENOTFOUND ? sfp__fail(err, status, "%s", why.message) : SFP_OK;
    }
    for (int k = 0; k < s->classes; k++)
        TRY(sfp__names_add(&c->known, s->class_names[k], strlen(s->class_names[k]), &number, err));
    return SFP_OK;
}

sfp_status sfp__classes_init(sfp__classes *c, const sfp__plan *p, sfp__learner *learner, sfp__journal *journal, sfp_error *err)
{
    int count = p->tasks.classes;
    *c = (sfp__classes){
        .plan = p, .count = count, .capacity = count ? count : 1, .unseen = -1, .learner = learner, .journal = journal};
    TRY(sfp__alloc(&c->trained, (size_t)c->capacity, 1, err));
    return p->live ? read_known(c, err) : SFP_OK;
}

void sfp__classes_done(sfp__classes *c)
{
    sfp__free(c->trained);
    sfp__names_done(&c->names);
    sfp__names_done(&c->known);
    sfp__names_done(&c->refused);
}

/* ------------------------------------------------- the names of an indexed stream */

/* Refuses class c of `path` if its name is not that of label c in the stream; `wanted` is the expectation in the message. Names
 * in a stream are UTF-8 (sfp__names_add), and states and results hold them unchanged. */
static sfp_status check_name(const char *path, int c, const char *then, const char *now, const char *wanted, sfp_error *err)
{
    char a[SFP__NAME_MAX], b[SFP__NAME_MAX];
    if (strcmp(then, now) == 0)
        return SFP_OK;
    return sfp__fail(err, SFP_EINVAL, "%s: class %d is '%s' in this file and '%s' in the stream, expected %s", path, c,
                     sfp__printable(then, a, sizeof a), sfp__printable(now, b, sizeof b), wanted);
}

sfp_status sfp__classes_check_state(const sfp__classes *c, const sfp__plan *p, const char *path, sfp_error *err)
{
    const char *wanted = p->tasks.free ? "the data and --order of its run, or a live stream, whose classes are matched by name"
                                       : "the data and --order of its run";
    const sfp_result *r = c->journal->r;
    for (int k = 0; k < r->classes; k++) {
        const char *then = sfp__learner_class_name(c->learner, k), *now = r->class_names[k];
        TRY(then ? check_name(path, k, then, now, wanted, err) : sfp__learner_name_class(c->learner, k, now, err));
    }
    return SFP_OK;
}

sfp_status sfp__classes_check_result(const sfp__classes *c, const char *path, const sfp_result *then, sfp_error *err)
{
    const sfp_result *r = c->journal->r;
    for (int k = 0; k < r->classes && k < then->classes; k++)
        if (then->class_names[k])
            TRY(check_name(path, k, then->class_names[k], r->class_names[k], "the data of that run", err));
    return SFP_OK;
}

/* ---------------------------------------------------- the classes of a live stream */

/* Reserves memory in `trained`. */
static bool reserve(sfp__classes *c, int count)
{
    size_t capacity = (size_t)c->capacity, before = capacity;
    if (count <= c->capacity)
        return true;
    if (!sfp__grow(&c->trained, 1, before, (size_t)count, &capacity))
        return false;
    memset(c->trained + before, 0, capacity - before);
    c->capacity = (int)capacity;
    return true;
}

void sfp__classes_trained(sfp__classes *c, int32_t label)
{
    c->trained[label] = 1;
}

void sfp__classes_write(const sfp__classes *c, sfp__json *j)
{
    sfp__json_array(j, "trained");
    for (int k = 0; k < c->count; k++)
        sfp__json_int(j, NULL, c->trained[k]);
    sfp__json_end(j);
}

bool sfp__classes_read(sfp__classes *c, const sfp__json_value *trained)
{
    size_t n = sfp__json_size(trained);
    if (!sfp__json_is(trained, SFP__JSON_ARRAY) || n > SFP__RESULT_CLASSES_MAX || (!c->plan->live && n != (size_t)c->count) ||
        !reserve(c, (int)n))
        return false;
    for (size_t k = 0; k < n; k++)
        c->trained[k] = sfp__json_integer(sfp__json_at(trained, k)) != 0;
    return true;
}

static const char *find_similar(const sfp__classes *c, const char *name)
{
    for (int k = 0; k < c->known.count; k++)
        if (sfp__resembles(name, c->known.name[k]))
            return c->known.name[k];
    return NULL;
}

/* Adds a class that has appeared. A label with a typing error would add a class, too, so a warning is given if the name resembles a known class. */
static sfp_status add_known(sfp__classes *c, const char *name, bool warns, sfp_error *err)
{
    char new[SFP__NAME_MAX], old[SFP__NAME_MAX];
    int32_t number;
    bool is_known = sfp__names_find(&c->known, name, strlen(name)) >= 0;
    const char *similar = warns && !is_known ? find_similar(c, name) : NULL;
    if (similar)
        sfp__plan_warn(c->plan, "new class '%s', did you mean '%s'?", sfp__printable(name, new, sizeof new),
                       sfp__printable(similar, old, sizeof old));
    return sfp__names_add(&c->known, name, strlen(name), &number, err);
}

bool sfp__classes_allowed(const sfp__classes *c, const char *name)
{
    return !c->plan->opt->strict_classes || sfp__names_find(&c->known, name, strlen(name)) >= 0;
}

void sfp__classes_refuse(sfp__classes *c, const char *name, const char *file, char text[SFP_ERROR_MAX])
{
    enum { REPORTED_MAX = 100 }; /* further names are only counted */
    char at[SFP__NAME_MAX], label[SFP__NAME_MAX], class[SFP__NAME_MAX];
    int before = c->refused.count;
    int32_t number;
    *text = '\0';
    if (before == REPORTED_MAX || sfp__names_add(&c->refused, name, strlen(name), &number, NULL) || number < before)
        return;
    const char *best = find_similar(c, name);
    best = best ? best : sfp__nearest(name, (const char *const *)c->known.name, (size_t)c->known.count);
    (void)snprintf(text, SFP_ERROR_MAX, "%s: label is '%s', expected a known class with --classes strict%s%s%s",
                   sfp__printable(file, at, sizeof at), sfp__printable(name, label, sizeof label), best ? "; did you mean '" : "",
                   best ? sfp__printable(best, class, sizeof class) : "", best ? "'?" : "");
    sfp__plan_warn(c->plan, "%s", text);
}

sfp_status sfp__classes_check_strict(const sfp__classes *c, sfp_error *err)
{
    if (!c->plan->opt->strict_classes || c->known.count > 0)
        return SFP_OK;
    return sfp__fail_key(
        err, "classes", SFP_EINVAL,
        "classes is strict, but no class of %s is known; name them in classes.txt (watch:DIR) or FILE (stdin:FILE), "
        "or use --init-state",
        c->plan->data);
}

sfp_status sfp__classes_number(sfp__classes *c, const char *name, int32_t *out, sfp_error *err)
{
    int before = c->names.count;
    TRY(sfp__names_add(&c->names, name, strlen(name), out, err));
    if (*out < before)
        return SFP_OK;
    TRY(add_known(c, name, true, err));
    TRY(sfp__check_memory(reserve(c, c->count + 1), err));
    if (c->count >= c->journal->r->classes) /* else a checkpoint has added it */
        TRY(sfp__journal_add_class(c->journal, name, err));
    TRY(sfp__learner_name_class(c->learner, c->count, name, err));
    c->count++;
    return SFP_OK;
}

sfp_status sfp__classes_restore(sfp__classes *c, const sfp__plan *p, sfp_error *err)
{
    int count = sfp__learner_classes(c->learner);
    for (int k = c->count; k < count; k++) {
        char number[32];
        int32_t got;
        const sfp_result *r = c->journal->r;
        const char *name = k < r->classes ? r->class_names[k] : sfp__learner_class_name(c->learner, k);
        (void)snprintf(number, sizeof number, "class %d", k);
        TRY(add_known(c, name ? name : number, false, err));
        TRY(sfp__classes_number(c, name ? name : number, &got, err));
        if (got != k) /* the file of the state or result names a class twice */
            return sfp__fail(err, SFP_EFORMAT, "%s: classes %d and %d have the same name", p->data, got, k);
    }
    return SFP_OK;
}

void sfp__classes_match(sfp__classes *c, const sfp__plan *p)
{
    int unseen = 0, classes = p->test->classes;
    for (int k = 0; k < classes; k++) {
        const char *name = p->test->class_names[k];
        p->test_tasks.label_of[k] = sfp__names_find(&c->names, name, strlen(name));
        unseen += p->test_tasks.label_of[k] < 0;
    }
    if (unseen != c->unseen && (unseen || c->unseen > 0))
        sfp__plan_info(p, "%d of the %d classes of the test set have not appeared yet: their images count as wrong", unseen,
                       classes);
    c->unseen = unseen;
}
