/* The classes of a stream.
 *
 * Class k of a state or a checkpoint is label k of an indexed stream: labels are numbers everywhere. So where both have a name
 * for it, the names must be the same, or what was learned would answer with the names of others. Live streams number their
 * classes by name as they come; names tie them to those of the source, of a test set and of an earlier process. */
#include "base/mem.h"
#include "base/text.h"
#include "results/result.h"
#include "run/run_internal.h"

#include <stdio.h>
#include <string.h>

sfp_status sfp__classes_init(sfp__classes *c, int count, sfp__learner *learner, sfp_result *r, sfp_error *err)
{
    *c = (sfp__classes){.count = count, .capacity = count ? count : 1, .unseen = -1, .learner = learner, .r = r};
    return sfp__alloc(&c->trained, (size_t)c->capacity, 1, err);
}

void sfp__classes_done(sfp__classes *c)
{
    sfp__free(c->trained);
    sfp__free(c->label_of);
    sfp__names_done(&c->names);
}

/* ------------------------------------------------- the names of an indexed stream */

/* Refuses class c of `path` when it has another name than label c of the stream; `wanted`: what is to be given instead. A
 * stream's names are UTF-8 (sfp__names_add): states and results hold them as they are. */
static sfp_status check_name(const char *path, int c, const char *then, const char *now, const char *wanted, sfp_error *err)
{
    char a[SFP_NAME_MAX], b[SFP_NAME_MAX];
    if (strcmp(then, now) == 0)
        return SFP_OK;
    return sfp__fail(err, SFP_EINVAL, "%s: class %d is '%s' there and '%s' in the stream, expected %s", path, c,
                     sfp__printable(then, a, sizeof a), sfp__printable(now, b, sizeof b), wanted);
}

sfp_status sfp__classes_take_names(const sfp__classes *c, const sfp__plan *p, sfp_error *err)
{
    const char *wanted = p->tasks.free
                             ? "the data and --order that it was made with, or a live stream (dir:), which goes by names"
                             : "the data and --order that it was made with";
    for (int k = 0; k < c->r->classes; k++) {
        const char *then = sfp__learner_class_name(c->learner, k), *now = c->r->class_names[k];
        TRY(then ? check_name(p->opt->init_state, k, then, now, wanted, err) : sfp__learner_name_class(c->learner, k, now, err));
    }
    return SFP_OK;
}

sfp_status sfp__classes_same_names(const sfp__classes *c, const char *path, const sfp_result *then, sfp_error *err)
{
    for (int k = 0; k < c->r->classes && k < then->classes; k++)
        if (then->class_names[k])
            TRY(check_name(path, k, then->class_names[k], c->r->class_names[k], "the data that it was made with", err));
    return SFP_OK;
}

/* ---------------------------------------------------- the classes of a live stream */

bool sfp__classes_reserve(sfp__classes *c, int count)
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

/* The number of a class by its name; one that is new gets the next. */
static sfp_status class_number(sfp__classes *c, const char *name, int32_t *out, sfp_error *err)
{
    int before = c->names.count;
    TRY(sfp__names_add(&c->names, name, strlen(name), out, err));
    if (*out < before)
        return SFP_OK;
    TRY(sfp__check_memory(sfp__classes_reserve(c, c->count + 1), err));
    if (c->count >= c->r->classes) /* else a checkpoint brought it */
        TRY(sfp__result_add_class(c->r, name, err));
    TRY(sfp__learner_name_class(c->learner, c->count, name, err));
    c->count++;
    return SFP_OK;
}

sfp_status sfp__classes_take(sfp__classes *c, const sfp__plan *p, sfp_error *err)
{
    int count = sfp__learner_classes(c->learner);
    for (int k = c->count; k < count; k++) {
        char number[32];
        int32_t got;
        const char *name = k < c->r->classes ? c->r->class_names[k] : sfp__learner_class_name(c->learner, k);
        (void)snprintf(number, sizeof number, "class %d", k);
        TRY(class_number(c, name ? name : number, &got, err));
        if (got != k) /* of a file */
            return sfp__fail(err, SFP_EFORMAT, "%s: classes %d and %d have the same name", p->opt->data, got, k);
    }
    return SFP_OK;
}

sfp_status sfp__classes_label(sfp__classes *c, const sfp__arrival *a, int32_t *out, sfp_error *err)
{
    size_t capacity = (size_t)c->label_capacity, before = capacity;
    if (a->label >= c->label_capacity) {
        TRY(sfp__check_memory(sfp__grow(&c->label_of, sizeof *c->label_of, before, (size_t)a->label + 1, &capacity), err));
        for (size_t i = before; i < capacity; i++)
            c->label_of[i] = -1;
        c->label_capacity = (int)capacity;
    }
    if (c->label_of[a->label] < 0)
        TRY(class_number(c, a->class_name, &c->label_of[a->label], err));
    *out = c->label_of[a->label];
    return SFP_OK;
}

sfp_status sfp__classes_match(sfp__classes *c, const sfp__plan *p, sfp_error *err)
{
    int unseen = 0, classes = p->test->classes;
    for (int k = 0; k < classes; k++) {
        const char *name = p->test->class_names[k];
        p->test_tasks.label_of[k] = sfp__names_find(&c->names, name, strlen(name));
        unseen += p->test_tasks.label_of[k] < 0;
    }
    if (unseen != c->unseen && (unseen || c->unseen > 0))
        sfp__plan_info(p, "%d of the %d classes of the test set did not come yet: their images count as wrong", unseen, classes);
    c->unseen = unseen;
    return sfp__result_confusion(c->r, err);
}
