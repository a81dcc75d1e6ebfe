/* The classes of a stream.
 *
 * Class k of a state or a checkpoint is label k of an indexed stream, because labels are numbers everywhere. If both have a name
 * for class k, the names must be equal; otherwise predictions would carry the names of other classes. A live stream numbers its
 * classes by name in order of appearance. Names match its classes with those of the source, the test set and an earlier
 * process. */
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
    sfp__names_done(&c->names);
}

/* ------------------------------------------------- the names of an indexed stream */

/* Refuses class c of `path` if its name is not that of label c in the stream; `wanted` is the expectation in the message. Names
 * in a stream are UTF-8 (sfp__names_add), and states and results hold them unchanged. */
static sfp_status check_name(const char *path, int c, const char *then, const char *now, const char *wanted, sfp_error *err)
{
    char a[SFP_NAME_MAX], b[SFP_NAME_MAX];
    if (strcmp(then, now) == 0)
        return SFP_OK;
    return sfp__fail(err, SFP_EINVAL, "%s: class %d is '%s' in this file and '%s' in the stream, expected %s", path, c,
                     sfp__printable(then, a, sizeof a), sfp__printable(now, b, sizeof b), wanted);
}

sfp_status sfp__classes_check_state(const sfp__classes *c, const sfp__plan *p, const char *path, sfp_error *err)
{
    const char *wanted = p->tasks.free ? "the data and --order of its run, or a live stream, whose classes are matched by name"
                                       : "the data and --order of its run";
    for (int k = 0; k < c->r->classes; k++) {
        const char *then = sfp__learner_class_name(c->learner, k), *now = c->r->class_names[k];
        TRY(then ? check_name(path, k, then, now, wanted, err) : sfp__learner_name_class(c->learner, k, now, err));
    }
    return SFP_OK;
}

sfp_status sfp__classes_check_result(const sfp__classes *c, const char *path, const sfp_result *then, sfp_error *err)
{
    for (int k = 0; k < c->r->classes && k < then->classes; k++)
        if (then->class_names[k])
            TRY(check_name(path, k, then->class_names[k], c->r->class_names[k], "the data of that run", err));
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

sfp_status sfp__classes_number(sfp__classes *c, const char *name, int32_t *out, sfp_error *err)
{
    int before = c->names.count;
    TRY(sfp__names_add(&c->names, name, strlen(name), out, err));
    if (*out < before)
        return SFP_OK;
    TRY(sfp__check_memory(sfp__classes_reserve(c, c->count + 1), err));
    if (c->count >= c->r->classes) /* else a checkpoint has added it */
        TRY(sfp__result_add_class(c->r, name, err));
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
        const char *name = k < c->r->classes ? c->r->class_names[k] : sfp__learner_class_name(c->learner, k);
        (void)snprintf(number, sizeof number, "class %d", k);
        TRY(sfp__classes_number(c, name ? name : number, &got, err));
        if (got != k) /* a state or a result may be wrong */
            return sfp__fail(err, SFP_EFORMAT, "%s: classes %d and %d have the same name", p->data, got, k);
    }
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
        sfp__plan_info(p, "%d of the %d classes of the test set have not appeared yet: their images count as wrong", unseen,
                       classes);
    c->unseen = unseen;
    return sfp__result_confusion(c->r, err);
}
