/* StreamFP's buffer update (paper Algorithm 2, docs/method.md, section 7). The number of new samples follows a reservoir. Which
 * samples are stored and which are replaced depends on the ranks of their current scores.
 *
 * Every training step makes the scores of the slots outdated. The mean embedding in each slot allows a new score in O(D), without
 * the image (docs/method.md, section 4). */
#include "buffer/buffer.h"

/* Uses four vectors of four partial sums, so that the additions are independent of each other. Without -ffast-math the compiler
 * may not reorder the sum itself. The order of the additions is fixed, so the result is the same everywhere. Loads need no
 * alignment. */
typedef float quad __attribute__((vector_size(16), aligned(4), may_alias));

static inline quad product(const float *x, const float *y)
{
    return *(const quad *)x * *(const quad *)y;
}

static float dot(const float *x, const float *y, int n)
{
    quad a = {0}, b = {0}, c = {0}, d = {0};
    int i = 0;
    for (; i + 16 <= n; i += 16) {
        a += product(x + i, y + i);
        b += product(x + i + 4, y + i + 4);
        c += product(x + i + 8, y + i + 8);
        d += product(x + i + 12, y + i + 12);
    }
    for (; i + 4 <= n; i += 4)
        a += product(x + i, y + i);
    a = (a + b) + (c + d);
    float sum = (a[0] + a[1]) + (a[2] + a[3]);
    for (; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

void sfp__buffer_score(const sfp__buffer *b, const float *fingerprint, float *score)
{
    for (int i = 0; i < b->filled; i++)
        score[i] = dot(b->slot[i].mean_embed, fingerprint, b->opt.dim);
}

static void draw_uniforms(sfp__rng *rng, int n, double *u)
{
    for (int i = 0; i < n; i++)
        u[i] = sfp__rng_double(rng);
}

static sfp_status update(sfp__buffer *b, const sfp__buffer_batch *batch, sfp__rng *rng, sfp__buffer_change *change,
                         sfp_error *err)
{
    (void)err;
    int m = b->opt.slots, stored = sfp__buffer_fill(b, batch), n_left = batch->b - stored;
    change->stored = stored;
    if (n_left == 0)
        return SFP_OK;

    draw_uniforms(rng, n_left, b->u_nu);
    int nu = sfp__buffer_nu(b->seen, m, batch->b, n_left, b->u_nu);
    draw_uniforms(rng, nu, b->u_batch);
    draw_uniforms(rng, nu, b->u_buffer);
    sfp__buffer_score(b, batch->fingerprint, b->score);
    sfp__buffer_pairs(n_left, batch->score + stored, m, b->score, nu, b->u_batch, b->u_buffer, b->opt.drop, b->order, b->weight,
                      b->retained, b->replaced);
    for (int i = 0; i < nu; i++) {
        b->retained[i] += stored;
        sfp__buffer_put(b, b->replaced[i], batch, b->retained[i]);
    }
    b->seen += (uint64_t)n_left;
    change->nu = nu;
    return SFP_OK;
}

const sfp__buffer_method sfp__buffer_streamfp = {
    .name = "streamfp",
    .summary = "as many replacements as a reservoir; samples and slots drawn by rank of similarity to the fingerprints",
    .needs = SFP__NEED_SCORE,
    .update = update,
};
