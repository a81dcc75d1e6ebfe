/* The clock of a run on an indexed stream: what a batch costs, and what that means for which batches are learned from. */
#include "base/mem.h"
#include "base/text.h"
#include "io/file.h"
#include "run/run_internal.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line of the file of costs; *seconds is NAN for one that holds none. */
static sfp_status read_cost(const char *file, int64_t number, char *line, double *seconds, sfp_error *err)
{
    char *end, shown[SFP_NAME_MAX];
    for (size_t n = strlen(line); n > 0 && isspace((unsigned char)line[n - 1]); n--)
        line[n - 1] = '\0';
    double x = strtod(line, &end);
    *seconds = NAN;
    if (line[0] == '#' || line[0] == '\0')
        return SFP_OK;
    if (end == line || *end || !isfinite(x) || x < 0)
        return sfp__fail(err, SFP_EFORMAT, "%s:%lld: is '%s', expected seconds from 0", file, (long long)number,
                         sfp__printable(line, shown, sizeof shown));
    *seconds = x;
    return SFP_OK;
}

static sfp_status read_costs(sfp__run_state *s, sfp_error *err)
{
    FILE *f = NULL;
    sfp_status status = sfp__file_open(s->opt->costs, &f, err);
    if (status)
        return status;
    char *line = NULL;
    size_t room = 0, line_room = 0;
    ssize_t length;
    for (int64_t number = 1; !status && (length = getline(&line, &line_room, f)) >= 0; number++) {
        double seconds = NAN;
        if (strlen(line) != (size_t)length)
            status = sfp__fail(err, SFP_EFORMAT, "%s:%lld: has a byte of 0, expected text", s->opt->costs, (long long)number);
        else
            status = read_cost(s->opt->costs, number, line, &seconds, err);
        if (status || isnan(seconds))
            continue;
        if (sfp__grow(&s->costs, sizeof *s->costs, (size_t)s->cost_count, (size_t)s->cost_count + 1, &room))
            s->costs[s->cost_count++] = seconds;
        else
            status = sfp__fail_nomem(err);
    }
    free(line);
    if (!status && ferror(f))
        status = sfp__fail_errno(err, SFP_EIO, "%s: cannot read", s->opt->costs);
    (void)fclose(f);
    if (!status && s->cost_count == 0)
        status = sfp__fail(err, SFP_EFORMAT, "%s: no costs, expected seconds, one a line", s->opt->costs);
    return status;
}

/* Cost of a batch on a copy of the learner that is thrown away: the mean of `calibrate` batches after 3. */
static sfp_status calibrate(sfp__run_state *s, double *cost, sfp_error *err)
{
    if (s->cost_count) {
        *cost = 0;
        for (int64_t i = 0; i < s->cost_count; i++)
            *cost += s->costs[i] / (double)s->cost_count;
        return SFP_OK;
    }
    sfp_learner *copy = NULL;
    sfp_feed *feed = NULL;
    const sfp_feed_options fo = {.size = s->opt->vit->config.img_size,
                                 .resize = s->opt->learner.resize,
                                 .keep_encoded = s->opt->learner.keep_compressed,
                                 .depth = SFP__RUN_AHEAD};
    sfp_status status = sfp__run_make_learner(s, &copy, err);
    if (status)
        return status;
    status = sfp__feed_create(s->source, &s->tasks, &s->batches, &fo, 0, &feed, err);
    double sum = 0;
    int measured = 0;
    int64_t count = 0;
    while (count < s->batches.count && count < 3 + s->opt->calibrate && s->batches.task[count] == s->batches.task[0])
        count++;
    for (int64_t k = 0; !status && k < count && !sfp__run_stopped(s); k++) {
        int n;
        const sfp_sample *samples;
        sfp_timestamp t;
        status = sfp__feed_take(feed, k, &n, &samples, err);
        if (!status && n > 0)
            status = sfp__learner_offer(copy, n, samples, &t, err);
        if (!status && n > 0)
            sfp__run_tell_slack(copy, n * s->spacing, t.seconds.total);
        if (!status && n > 0 && (k >= 3 || count <= 3)) {
            sum += t.seconds.total;
            measured++;
        }
        sfp__feed_release(feed, k + 1);
    }
    sfp__feed_free(feed);
    sfp__learner_free(copy);
    *cost = measured ? sum / measured : 0;
    return status;
}

sfp_status sfp__run_keep_batches(sfp__run_state *s, sfp_error *err)
{
    double cost;
    sfp_status status = calibrate(s, &cost, err);
    if (status || sfp__run_stopped(s)) /* then too little was measured */
        return status;
    s->r->cs = sfp__clock_cs(cost, s->batches.count, s->batches.samples + s->unlabelled.count, s->opt->rate);
    for (int64_t first = 0; first < s->batches.count;) {
        int64_t n = 1;
        while (first + n < s->batches.count && s->batches.task[first + n] == s->batches.task[first])
            n++;
        int64_t keep = sfp__clock_keep(n, s->r->cs);
        for (int64_t i = 0; i < keep; i++)
            s->kept[s->kept_count++] = first + sfp__clock_kept_at(i, n, keep);
        first += n;
    }
    char text[160];
    (void)snprintf(text, sizeof text, "clock paper: %.4f s a batch, C_S %.2f: %lld of %lld batches are kept", cost, s->r->cs,
                   (long long)s->kept_count, (long long)s->batches.count);
    sfp__run_say(s, text);
    return SFP_OK;
}

/* Pictures without a label arrive too: a batch comes after all that lie before its last picture. */
static sfp_status count_all(sfp__run_state *s, sfp_error *err)
{
    const sfp_batches *b = &s->batches;
    if (!(s->comes = sfp__malloc((size_t)b->count * sizeof *s->comes)))
        return sfp__fail_nomem(err);
    for (int64_t k = 0; k < b->count; k++)
        s->comes[k] = b->arrived[k] + sfp__run_unlabelled_before(s, b->order[b->first[k + 1] - 1]);
    return SFP_OK;
}

sfp_status sfp__run_start_clock(sfp__run_state *s, sfp_error *err)
{
    const sfp_run_options *o = s->opt;
    s->r->lambda = o->rate > 0 ? o->rate : NAN;
    sfp_status status = o->costs ? read_costs(s, err) : SFP_OK;
    if (status || s->clock_kind == SFP_CLOCK_OFF)
        return status;
    if (!(o->rate > 0))
        return sfp__fail_key(err, "clock", SFP_EINVAL, "clock %s: this clock needs a rate (--rate samples/s)",
                             sfp__clock_name(s->clock_kind));
    s->spacing = 1 / o->rate;
    if (s->clock_kind == SFP_CLOCK_PAPER) {
        s->kept = sfp__calloc((size_t)s->batches.count, sizeof *s->kept);
        return s->kept ? SFP_OK : sfp__fail_nomem(err);
    }
    const sfp_clock_options co = {.kind = s->clock_kind,
                                  .lambda = o->rate,
                                  .queue = o->queue,
                                  .policy = o->policy,
                                  .pool = o->triage,
                                  .pool_most = SFP__RUN_POOL,
                                  .stop = s->hooks->stop};
    s->clocked = true;
    s->lag = &s->clock.lag;
    if (!status && s->unlabelled.count > 0)
        status = count_all(s, err);
    return status ? status : sfp__clock_init(&s->clock, &co, s->batches.count, s->comes ? s->comes : s->batches.arrived, err);
}
