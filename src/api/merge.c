/* Merging of states and checkpoints without a backbone (streamfp.h, part 5). */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"
#include "run/share.h"

enum { MIN_COUNT = 2 }; /* with one sample, the sum would reveal the sample */

static sfp_status check(int count, const char *const *paths, const char *what, sfp_error *err)
{
    for (int i = 0; i < count; i++)
        if (!paths || !paths[i])
            return sfp__fail(err, SFP_EINVAL, "%s %d must not be NULL", what, i);
    return SFP_OK;
}

/* Reads a file whose sums have the identity of `sum`, and adds them to it or takes them out. */
static sfp_status combine(sfp__saved_sums *sum, const char *path, bool subtract, sfp__thread_pool *pool, sfp_error *err)
{
    OWNED_BY(sfp__saved_sums_done) sfp__saved_sums next = {0};
    TRY(sfp__saved_sums_read(&(const sfp__saved_file){.path = path}, &sum->metadata, sum->path, pool, &next, err));
    return subtract ? sfp__saved_sums_subtract(sum, &next, err) : sfp__saved_sums_add(sum, &next, err);
}

/* Checks the options of both functions and makes the threads. */
static sfp_status begin(const char *output, const sfp_merge_options *options, sfp_merge_options *o, sfp__thread_pool **pool,
                        sfp_error *err)
{
    *o = (sfp_merge_options)SFP_MERGE_OPTIONS_INIT;
    if (options)
        TRY(sfp__api_options(options, o, sizeof *o, "sfp_merge_options", err));
    SFP__REQUIRE(output, "output");
    TRY(check(o->subtract_count, o->subtract, "subtracted file", err));
    if (o->min_count && (!o->sums_only || o->min_count < MIN_COUNT))
        return sfp__fail_key(err, "min-count", SFP_EINVAL, "min-count is %lld, expected at least %d, and sums-only",
                             (long long)o->min_count, MIN_COUNT);
    return sfp__thread_pool_create(o->threads, pool, err);
}

/* Subtracts what is to be subtracted, and writes the sums. */
static sfp_status end(sfp__saved_sums *sum, const char *output, const sfp_merge_options *o, sfp__thread_pool *pool,
                      sfp_merge_report r, sfp_merge_report *report, sfp_error *err)
{
    for (int i = 0; i < o->subtract_count; i++)
        TRY(combine(sum, o->subtract[i], true, pool, err));
    if (o->sums_only)
        TRY(sfp__saved_sums_drop_samples(sum, o->min_count ? o->min_count : MIN_COUNT, o->left_out, o->ctx, err));
    TRY(sfp__saved_sums_write(sum, output, err));
    if (report) {
        r.size = report->size;
        r.classes = sfp__saved_sums_classes(sum);
        r.samples = sfp__saved_sums_samples(sum);
        memcpy(report, &r, report->size < sizeof r ? report->size : sizeof r);
    }
    return SFP_OK;
}

sfp_status sfp_merge_share(const char *dir, const char *output, const sfp_merge_options *options, sfp_merge_report *report,
                           sfp_error *err)
{
    IN_LIBRARY;
    sfp_merge_options o;
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = NULL;
    OWNED_BY(sfp__share_sum_done) sfp__share_sum all = {0};
    SFP__REQUIRE(dir, "dir");
    TRY(begin(output, options, &o, &pool, err));
    TRY(sfp__share_merge(dir, pool, &all, err));
    return end(&all.sum, output, &o, pool, (sfp_merge_report){.units = all.units, .digest = all.digest}, report, err);
}

sfp_status sfp_merge(int count, const char *const *inputs, const char *output, const sfp_merge_options *options,
                     sfp_merge_report *report, sfp_error *err)
{
    IN_LIBRARY;
    sfp_merge_options o;
    OWNED_PTR(sfp__thread_pool_free) sfp__thread_pool *pool = NULL;
    OWNED_BY(sfp__saved_sums_done) sfp__saved_sums sum = {0};
    if (count < 1)
        return sfp__fail(err, SFP_EINVAL, "count is %d, expected at least 1 input", count);
    TRY(check(count, inputs, "input", err));
    TRY(begin(output, options, &o, &pool, err));
    TRY(sfp__saved_sums_read(&(const sfp__saved_file){.path = inputs[0]}, NULL, NULL, pool, &sum, err));
    for (int i = 1; i < count; i++)
        TRY(combine(&sum, inputs[i], false, pool, err));
    return end(&sum, output, &o, pool, (sfp_merge_report){.units = count}, report, err);
}
