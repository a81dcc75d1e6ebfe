/* The classes of a live stream, numbered as they come, and the test set that is matched with them by their names. */
#include "base/mem.h"
#include "run/live.h"

#include <stdio.h>
#include <string.h>

/* --------------------------------------------------------------------- classes */

bool sfp__live_trained_room(sfp__run_state *s, int classes)
{
    sfp__live *v = s->live;
    if (classes <= v->trained_room)
        return true;
    int room = classes > 2 * v->trained_room ? classes + 64 : 2 * v->trained_room;
    uint8_t *trained = sfp__calloc((size_t)room, 1);
    if (!trained)
        return false;
    memcpy(trained, s->trained_class, (size_t)v->trained_room);
    sfp__free(s->trained_class);
    s->trained_class = trained;
    v->trained_room = room;
    return true;
}

/* One more class, with the next number. */
static sfp_status add_class(sfp__run_state *s, const char *name, sfp_error *err)
{
    if (!sfp__live_trained_room(s, s->classes + 1))
        return sfp__fail_nomem(err);
    sfp_status status =
        s->classes < s->r->classes ? SFP_OK : sfp__result_add_class(s->r, name, err); /* a checkpoint brought it */
    if (!status)
        status = sfp__learner_name_class(s->learner, s->classes, name, err);
    if (!status)
        s->classes++;
    return status;
}

/* The number of a class by its name. */
static sfp_status class_number(sfp__run_state *s, const char *name, int32_t *out, sfp_error *err)
{
    int before = s->live->classes.count;
    sfp_status status = sfp__names_add(&s->live->classes, name, strlen(name), out, err);
    return status || *out < before ? status : add_class(s, name, err);
}

sfp_status sfp__live_take_classes(sfp__run_state *s, sfp_error *err)
{
    const sfp_learner *l = s->learner;
    int count = sfp__learner_classes(l);
    for (int c = s->classes; c < count; c++) {
        char number[32];
        int32_t got;
        const char *name = c < s->r->classes ? s->r->class_names[c] : sfp__learner_class_name(l, c);
        (void)snprintf(number, sizeof number, "class %d", c);
        sfp_status status = class_number(s, name ? name : number, &got, err);
        if (!status && got != c) /* of a file */
            status = sfp__fail(err, SFP_EFORMAT, "%s: classes %d and %d have the same name", s->opt->data, got, c);
        if (status)
            return status;
    }
    return SFP_OK;
}

sfp_status sfp__live_label(sfp__run_state *s, const sfp_arrival *a, int32_t *out, sfp_error *err)
{
    sfp__live *v = s->live;
    if (a->label >= v->label_room) {
        int room = a->label + 64;
        int32_t *more = sfp__realloc(v->label_of, (size_t)v->label_room * sizeof *more, (size_t)room * sizeof *more);
        if (!more)
            return sfp__fail_nomem(err);
        for (int i = v->label_room; i < room; i++)
            more[i] = -1;
        v->label_of = more;
        v->label_room = room;
    }
    sfp_status status = v->label_of[a->label] >= 0 ? SFP_OK : class_number(s, a->class_name, &v->label_of[a->label], err);
    *out = v->label_of[a->label];
    return status;
}

/* -------------------------------------------------------------------- test set */

sfp_status sfp__live_cut_test(sfp__run_state *s, sfp_error *err)
{
    sfp_tasks like = {0};
    sfp_status status = sfp__tasks_create(s->test, "free", 0, 0, NULL, &like, err);
    if (!status)
        status = sfp__tasks_create_test(s->test, s->test, &like, "free", s->opt->eval_limit, &s->test_tasks, err);
    sfp__tasks_done(&like);
    return status;
}

sfp_status sfp__live_match(sfp__run_state *s, sfp_error *err)
{
    int unseen = 0, classes = s->test->classes;
    for (int k = 0; k < classes; k++) {
        const char *name = s->test->class_names[k];
        s->test_tasks.label_of[k] = sfp__names_find(&s->live->classes, name, strlen(name));
        unseen += s->test_tasks.label_of[k] < 0;
    }
    if (unseen != s->live->unseen && (unseen || s->live->unseen > 0)) {
        char text[128];
        (void)snprintf(text, sizeof text, "%d of the %d classes of the test set did not come yet: their pictures count as wrong",
                       unseen, classes);
        sfp__run_say(s, text);
    }
    s->live->unseen = unseen;
    return sfp__result_confusion(s->r, err);
}
