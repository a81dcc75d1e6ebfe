#include "cli/run_progress.h"

#include "cli/ui.h"

#include <math.h>
#include <string.h>

enum { NAME_WIDTH = 24 };

/* Seconds to go at the pace of this process: p->seconds are its own. */
static long left(const sfp_run_progress *p)
{
    if (p->offered <= p->from || p->offered >= p->total)
        return 0;
    return (long)fmin(p->seconds * (double)(p->total - p->offered) / (double)(p->offered - p->from), 1e8);
}

/* A name may come from a folder of somebody else's. */
static void put_task(FILE *to, const sfp_run_progress *p)
{
    (void)fprintf(to, "task %d of %d", p->task + 1, p->tasks);
    if (strncmp(p->task_name, "task ", 5) == 0)
        return; /* a number of the data set's own, maybe from 0, beside ours would only confuse */
    (void)fputs(" (", to);
    if (sfp__text_width(p->task_name) > NAME_WIDTH)
        sfp__put_cell(to, p->task_name, NAME_WIDTH);
    else
        sfp__put_text(to, p->task_name, 0);
    (void)fputs(")", to);
}

void sfp__put_run_progress(FILE *to, const sfp_run_progress *p)
{
    if (p->total) {
        put_task(to, p);
        (void)fprintf(to, "  %llu/%llu", (unsigned long long)p->offered, (unsigned long long)p->total);
    } else { /* a live stream: nobody knows how much is to come */
        (void)fprintf(to, "%llu samples", (unsigned long long)p->offered);
    }
    (void)fprintf(to, "  %.1f/s", p->rate);
    if (isfinite(p->lag))
        (void)fprintf(to, "  lag %.2f s", p->lag);
    if (isfinite(p->loss))
        (void)fprintf(to, "  loss %.3f", p->loss);
    if (isfinite(p->accuracy))
        (void)fprintf(to, "  accuracy %.3f", p->accuracy);
    if (p->total)
        (void)fprintf(to, "  ETA %ld:%02ld", left(p) / 60, left(p) % 60);
}
