/* The table of selectors, and what they share: the size of a coreset and the window of SPEC section 5. */
#include "select/select_internal.h"

#include <string.h>

const sfp_selector *const sfp__selectors[] = {
    &sfp__selector_streamfp,
    &sfp__selector_none,
    &sfp__selector_random,
    NULL,
};

const sfp_selector *sfp__selector_find(const char *name)
{
    for (const sfp_selector *const *s = sfp__selectors; *s; s++)
        if (name && strcmp((*s)->name, name) == 0)
            return *s;
    return NULL;
}

sfp_select_options sfp__select_options_defaults(void)
{
    return (sfp_select_options){.sigma = 0.5, .mode = SFP_CORESET_EXACT};
}

int sfp__coreset_size(int b, double sigma)
{
    if (b <= 0)
        return 0;
    if (sigma >= 1)
        return b;
    if (!(sigma > 0)) /* also NaN */
        return 1;
    int c = (int)(sigma * b + 1e-9); /* 1e-9: 0.29 * 100 is 28.999... and means 29 */
    return c < 1 ? 1 : c > b ? b : c;
}

int sfp__coreset_window(int b, const int *order, const sfp_select_options *opt, int *out)
{
    int c = sfp__coreset_size(b, opt->sigma);
    if (opt->sigma >= 1) {
        for (int i = 0; i < c; i++)
            out[i] = i;
        return c;
    }
    int first = b / 2 - c / 2;
    int n = opt->mode == SFP_CORESET_PAPER && c > 1 ? c / 2 * 2 : c; /* the paper's window has two halves of floor(c/2) */
    for (int i = 0; i < n; i++)
        out[i] = order[first + i];
    return n;
}

sfp_status sfp__select_check(const sfp_selector *s, const sfp_select_batch *batch, sfp_error *err)
{
    const struct {
        unsigned need;
        const void *there;
        const char *name;
    } inputs[] = {
        {SFP_NEED_SCORE, batch->score, "scores"},
        {SFP_NEED_FEATURES, batch->features, "features"},
        {SFP_NEED_LOGITS, batch->logits, "logits"},
        {SFP_NEED_PROBS, batch->probs, "probabilities"},
        {SFP_NEED_ATTENTION, batch->pooled, "pooled patch tokens"},
    };
    if (batch->b < 0)
        return sfp__fail(err, SFP_EINVAL, "selector '%s': a batch of %d samples", s->name, batch->b);
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        if (batch->b > 0 && (s->needs & inputs[i].need) && !inputs[i].there)
            return sfp__fail(err, SFP_EINVAL, "selector '%s' needs %s, the batch has none", s->name, inputs[i].name);
    return SFP_OK;
}

void sfp__select_equal_weights(int n, float *weight)
{
    for (int i = 0; weight && i < n; i++)
        weight[i] = 1;
}

void sfp__select_whole(int b, int *out, float *weight, int *count)
{
    for (int i = 0; i < b; i++)
        out[i] = i;
    sfp__select_equal_weights(b, weight);
    *count = b;
}
