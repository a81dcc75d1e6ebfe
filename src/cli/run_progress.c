#include "cli/run_progress.h"

#include "cli/ui.h"

#include <math.h>
#include <string.h>

enum { NAME_WIDTH = 24 };

/* What goes last from a terminal that is too narrow. */
enum { WORTH_LOSS, WORTH_LAG, WORTH_RATE, WORTH_NAME, WORTH_ETA, WORTH_ACCURACY, WORTH_PLACE, WORTH_TASK };

/* Seconds to go at the pace of this process: p->seconds are its own. */
static long left(const sfp_run_progress *p)
{
    if (p->offered <= p->from || p->offered >= p->total)
        return 0;
    return (long)fmin(p->seconds * (double)(p->total - p->offered) / (double)(p->offered - p->from), 1e8);
}

/* A name may come from a folder of somebody else's. */
static void add_task(sfp_line *l, const sfp_run_progress *p)
{
    char name[SFP_LINE_PART];
    sfp__line_add(l, WORTH_TASK, "task %d of %d", p->task + 1, p->tasks);
    if (strncmp(p->task_name, "task ", 5) == 0)
        return; /* a number of the data set's own, maybe from 0, beside ours would only confuse */
    sfp__cell_text(p->task_name, NAME_WIDTH, name, sizeof name);
    sfp__line_add(l, WORTH_NAME, " (%s)", name);
}

void sfp__run_progress_line(const sfp_run_progress *p, sfp_line *l)
{
    *l = (sfp_line){0};
    if (p->total) {
        add_task(l, p);
        sfp__line_add(l, WORTH_PLACE, "  %llu/%llu", (unsigned long long)p->offered, (unsigned long long)p->total);
    } else { /* a live stream: nobody knows how much is to come */
        sfp__line_add(l, WORTH_PLACE, "%llu samples", (unsigned long long)p->offered);
    }
    sfp__line_add(l, WORTH_RATE, "  %.1f/s", p->rate);
    if (isfinite(p->lag))
        sfp__line_add(l, WORTH_LAG, "  lag %.2f s", p->lag);
    if (isfinite(p->loss))
        sfp__line_add(l, WORTH_LOSS, "  loss %.3f", p->loss);
    if (isfinite(p->accuracy))
        sfp__line_add(l, WORTH_ACCURACY, "  accuracy %.3f", p->accuracy);
    if (p->total)
        sfp__line_add(l, WORTH_ETA, "  ETA %ld:%02ld", left(p) / 60, left(p) % 60);
}

/* ----------------------------------------------------------------- when it is shown */

static bool is_due(sfp_run_talk *t)
{
    double now = sfp__seconds(), every = sfp__line_rewrites() ? 0.2 : 10;
    bool due = now - t->last >= every;
    if (due)
        t->last = now;
    return due;
}

void sfp__run_talk_progress(void *ctx, const sfp_run_progress *p)
{
    sfp_line l;
    if (!is_due(ctx))
        return;
    sfp__run_progress_line(p, &l);
    sfp__line_show(&l);
}

void sfp__run_talk_evaluating(void *ctx, int task, uint64_t done, uint64_t total)
{
    bool begins = done == 0 && sfp__line_rewrites(); /* seconds may pass before the first pictures are answered */
    sfp_line l = {0};
    if (!is_due(ctx) && !begins)
        return;
    sfp__line_add(&l, WORTH_TASK, "evaluating after task %d", task + 1);
    sfp__line_add(&l, WORTH_PLACE, ": %llu/%llu", (unsigned long long)done, (unsigned long long)total);
    sfp__line_show(&l);
}

void sfp__run_talk_say(void *ctx, const char *message)
{
    (void)ctx;
    sfp__say("%s", message);
}
