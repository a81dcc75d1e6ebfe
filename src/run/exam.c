#include "run/exam.h"

#include "base/clock.h"
#include "base/mem.h"
#include "results/result.h"
#include "stream/known.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct sitting {
    const sfp_exam_options *opt;
    sfp_exam *e;
    sfp_predictor *predictor;
    sfp_known_source *data;
    sfp_tasks tasks;
    sfp_evaluator *evaluator;
} sitting;

/* ----------------------------------------------------------------------- data */

static sfp_status open_data(sitting *s, sfp_error *err)
{
    const sfp_exam_options *o = s->opt;
    int classes = sfp__predictor_classes(s->predictor);
    const sfp_source_options so = {.test = !o->train_part,
                                   .seed = o->seed ? *o->seed : sfp__predictor_options(s->predictor)->seed};
    const char **names = sfp__calloc((size_t)(classes ? classes : 1), sizeof *names);
    sfp_source *inner = NULL;
    sfp_status status = names ? sfp__source_open(o->data, &so, &inner, err) : sfp__fail_nomem(err);
    for (int c = 0; !status && c < classes; c++)
        names[c] = sfp__predictor_class_name(s->predictor, c);
    if (!status && (status = sfp__known_open(inner, classes, names, &s->data, err))) {
        if (status == SFP_EFORMAT) /* of the list of names, which is the state's */
            (void)sfp__fail_prefix(err, status, "%s", o->state);
        sfp__source_close(inner);
    }
    sfp__free(names);
    return status;
}

static sfp_status add_unknown(sfp_exam *e, const char *name, uint64_t pictures, sfp_error *err)
{
    size_t n = (size_t)e->unknown_count;
    sfp_exam_class *list = sfp__realloc(e->unknown, n * sizeof *list, (n + 1) * sizeof *list);
    if (!list)
        return sfp__fail_nomem(err);
    e->unknown = list;
    char *copy = sfp__strdup(name);
    if (!copy)
        return sfp__fail_nomem(err);
    e->unknown[e->unknown_count++] = (sfp_exam_class){copy, pictures};
    e->unknown_pictures += pictures;
    return SFP_OK;
}

/* Pictures of classes that the state has a row for but never saw go out of the tasks, after these were cut as the run cut them.
 */
static sfp_status leave_out_unseen(sitting *s, sfp_error *err)
{
    const sfp_source *source = &s->data->base;
    uint64_t *unseen = sfp__calloc((size_t)(source->classes ? source->classes : 1), sizeof *unseen);
    sfp_status status = unseen ? SFP_OK : sfp__fail_nomem(err);
    for (int t = 0; !status && t < s->tasks.count; t++) {
        sfp_task *task = &s->tasks.task[t];
        int64_t kept = 0;
        for (int64_t i = 0; !status && i < task->count; i++) {
            sfp_record r = {0};
            status = source->record(source, task->sample[i], &r, err);
            if (status)
                break;
            if (sfp__predictor_seen(s->predictor, r.label))
                task->sample[kept++] = task->sample[i];
            else
                unseen[r.label]++;
        }
        task->count = kept;
    }
    for (int c = 0; !status && c < source->classes; c++)
        if (unseen[c])
            status = add_unknown(s->e, source->class_names[c], unseen[c], err);
    sfp__free(unseen);
    return status;
}

static sfp_status cut_data(sitting *s, sfp_error *err)
{
    const sfp_source *source = &s->data->base;
    const char *spec = s->opt->tasks ? s->opt->tasks : source->domains > 1 ? "domain" : NULL;
    sfp_tasks like = {0};
    sfp_status status = SFP_OK;
    for (int c = 0; !status && c < s->data->inner->classes; c++)
        if (s->data->foreign[c])
            status = add_unknown(s->e, s->data->inner->class_names[c], s->data->foreign[c], err);
    if (!status && source->count == 0)
        status = sfp__fail(err, SFP_EINVAL, "%s: no picture of a class that %s knows", s->opt->data, s->opt->state);
    if (!status)
        status = sfp__tasks_create(source, spec, 0, 0, NULL, &like, err);
    if (!status)
        status = sfp__tasks_create_test(source, source, &like, spec, s->opt->limit, &s->tasks, err);
    sfp__tasks_done(&like);
    for (int c = 0; !status && c < source->classes; c++)
        s->tasks.label_of[c] = c; /* the state's own labels, whatever order the cut gave them */
    return status ? status : leave_out_unseen(s, err);
}

/* --------------------------------------------------------------------- answers */

static sfp_status make_room(sitting *s, sfp_error *err)
{
    sfp_exam *e = s->e;
    char *const *class_names = s->data->base.class_names;
    size_t tasks = (size_t)s->tasks.count, classes = (size_t)s->data->base.classes; /* one at least: there are pictures */
    e->task_names = sfp__calloc(tasks, sizeof *e->task_names);
    e->accuracy = sfp__calloc(tasks, sizeof *e->accuracy);
    e->asked = sfp__calloc(tasks, sizeof *e->asked);
    e->class_names = sfp__calloc(classes, sizeof *e->class_names);
    bool all = classes <= SFP_CONFUSION_MAX;
    e->confusion = all ? sfp__calloc(classes * classes, sizeof *e->confusion) : NULL;
    if (!e->task_names || !e->accuracy || !e->asked || !e->class_names || (all && !e->confusion))
        return sfp__fail_nomem(err);
    e->tasks = s->tasks.count;
    e->classes = s->data->base.classes;
    for (int t = 0; t < e->tasks; t++)
        if (!(e->task_names[t] = sfp__strdup(s->tasks.task[t].name)))
            return sfp__fail_nomem(err);
    for (int c = 0; c < e->classes; c++)
        if (!(e->class_names[c] = sfp__strdup(class_names[c])))
            return sfp__fail_nomem(err);
    return SFP_OK;
}

static sfp_status answer(sitting *s, sfp_error *err)
{
    const sfp_exam_options *o = s->opt;
    sfp_exam *e = s->e;
    uint64_t total = 0;
    const sfp_vit_config *c = &o->vit->config;
    sfp_status status =
        sfp__evaluator_create(&s->data->base, &s->tasks, c->img_size, sfp__predictor_options(s->predictor)->resize, c->dim,
                              SFP_EVALUATOR_MEMORY, &s->evaluator, err);
    if (status)
        return status;
    for (int t = 0; t < s->tasks.count; t++)
        total += (uint64_t)s->tasks.task[t].count;
    if (total == 0)
        return sfp__fail(err, SFP_EINVAL, "%s: no picture of a class that %s has seen", o->data, o->state);
    if (o->begin)
        o->begin(o->ctx, total, s->data->inner->note);
    sfp__evaluator_tell(s->evaluator, o->progress, o->ctx);
    double begin = sfp__now();
    status = sfp__evaluator_run(s->evaluator, s->predictor, e->tasks - 1, e->accuracy, e->classes, e->confusion, err);
    e->seconds = sfp__now() - begin;
    return status;
}

static void sum_up(sitting *s)
{
    sfp_exam *e = s->e;
    double sum = 0;
    int n = 0;
    for (int t = 0; t < e->tasks; t++) {
        e->asked[t] = sfp__evaluator_asked(s->evaluator, t);
        e->pictures += e->asked[t];
        if (e->asked[t] == 0)
            continue;
        e->right += (uint64_t)llround(e->accuracy[t] * (double)e->asked[t]);
        sum += e->accuracy[t];
        n++;
    }
    e->average = n ? sum / n : NAN;
    e->skipped = sfp__evaluator_skipped(s->evaluator);
    (void)snprintf(e->first_error, sizeof e->first_error, "%s", sfp__evaluator_first_error(s->evaluator));
    e->unlabelled = s->data->unlabelled;
}

sfp_status sfp__exam(const sfp_exam_options *opt, sfp_exam *out, sfp_error *err)
{
    sfp_exam e = {0};
    sitting s = {.opt = opt, .e = &e};
    sfp_status status;
    if (!(status = sfp__predictor_open(opt->vit, opt->pool, opt->state, 0, &s.predictor, err)) &&
        !(status = open_data(&s, err)) && !(status = cut_data(&s, err)) && !(status = make_room(&s, err)) &&
        !(status = answer(&s, err)))
        sum_up(&s);
    if (!status && e.pictures == 0)
        status = sfp__fail(err, SFP_EFORMAT, "%s: none of the %llu pictures could be read; the first: %s", opt->data,
                           (unsigned long long)e.skipped, e.first_error);
    sfp__evaluator_free(s.evaluator);
    sfp__tasks_done(&s.tasks);
    sfp__source_close(s.data ? &s.data->base : NULL);
    sfp__predictor_free(s.predictor);
    if (status)
        sfp__exam_done(&e);
    else
        *out = e;
    return status;
}

void sfp__exam_done(sfp_exam *e)
{
    for (int t = 0; t < e->tasks; t++)
        sfp__free(e->task_names[t]);
    for (int c = 0; c < e->classes; c++)
        sfp__free(e->class_names[c]);
    for (int i = 0; i < e->unknown_count; i++)
        sfp__free(e->unknown[i].name);
    sfp__free(e->task_names);
    sfp__free(e->class_names);
    sfp__free(e->accuracy);
    sfp__free(e->asked);
    sfp__free(e->confusion);
    sfp__free(e->unknown);
    *e = (sfp_exam){0};
}
