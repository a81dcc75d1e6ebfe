/* D^2 sampling on lazy distances (cover.h says why this is exact). */
#include "select/cover.h"

#include <string.h>

enum { PATIENCE = 32 }; /* proposals refused before the weights are brought up to date */

typedef struct sampler {
    sfp_cover cover;
    bool cosine;
    double *bound; /* (n) weight when the sums were made */
    double *sum;   /* (n) running sums of bound */
    bool *taken;   /* (n) */
} sampler;

static double weight_of(const sampler *s, int i, double near2)
{
    if (s->taken[i])
        return 0;
    return s->cosine ? 0.25 * near2 * near2 : near2; /* cosine distance is near2 / 2 */
}

static void make_sums(sampler *s)
{
    double total = 0;
    sfp__cover_refresh(&s->cover);
    for (int i = 0; i < s->cover.n; i++)
        s->sum[i] = total += s->bound[i] = weight_of(s, i, s->cover.near2[i]);
}

/* The first index whose running sum exceeds u * total. */
static int propose(const sampler *s, double u)
{
    int low = 0, high = s->cover.n - 1;
    double at = u * s->sum[high];
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (s->sum[middle] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int any_left(const sampler *s, sfp_rng *rng)
{
    int k = (int)sfp__rng_below(rng, (uint32_t)(s->cover.n - s->cover.count)), i = 0;
    for (;; i++)
        if (!s->taken[i] && k-- == 0)
            return i;
}

static int draw(sampler *s, sfp_rng *rng)
{
    for (int refused = 0;; refused++) {
        if (refused == PATIENCE) /* with weights that are up to date the next proposal is taken */
            make_sums(s);
        if (!(s->sum[s->cover.n - 1] > 0))
            return any_left(s, rng);
        int i = propose(s, sfp__rng_double(rng));
        double u = sfp__rng_double(rng);
        if (u * s->bound[i] < weight_of(s, i, sfp__cover_now(&s->cover, i)))
            return i;
    }
}

sfp_status sfp__d2_sample(const sfp_select_env *env, int n, int dim, const float *x, bool cosine, int count, int *out,
                          sfp_error *err)
{
    if (count < 1)
        return SFP_OK;
    sampler s = {.cosine = cosine};
    sfp_status status = sfp__cover_init(&s.cover, env, n, dim, x, count, err);
    if (status)
        return status;
    const sfp_want list[] = {
        {&s.bound, (size_t)n, sizeof *s.bound}, {&s.sum, (size_t)n, sizeof *s.sum}, {&s.taken, (size_t)n, sizeof *s.taken}};
    if ((status = sfp__arena_list(env->arena, SFP_LIST(list), err)))
        return status;
    memset(s.taken, 0, (size_t)n * sizeof *s.taken);
    for (int k = 0; k < count; k++) {
        int i = k == 0 ? (int)sfp__rng_below(env->rng, (uint32_t)n) : draw(&s, env->rng);
        s.taken[i] = true;
        out[k] = i;
        if (sfp__cover_add(&s.cover, i) || k == 0)
            make_sums(&s);
    }
    return SFP_OK;
}
