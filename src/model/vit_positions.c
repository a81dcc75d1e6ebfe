/* Position embeddings for another input size: the grid of patches is a picture of D channels, resized by cubic convolution with
 * a = -0.75, pixel centres at halves and the border repeated. That is torch's interpolate(mode="bicubic") as DeiT, DINO and CLIP
 * users call it; timm's own helper also smooths when it makes the grid smaller. */
#include "model/vit_internal.h"

#include <math.h>
#include <string.h>

static double near_tap(double x)
{
    const double a = -0.75;
    return ((a + 2) * x - (a + 3)) * x * x + 1;
}

static double far_tap(double x)
{
    const double a = -0.75;
    return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
}

/* The four source cells of target cell i and their weights. */
static void taps(int from, int to, int i, int at[4], double weight[4])
{
    double x = (i + 0.5) * from / to - 0.5, base = floor(x), t = x - base;
    const double w[4] = {far_tap(t + 1), near_tap(t), near_tap(1 - t), far_tap(2 - t)};
    for (int k = 0; k < 4; k++) {
        int cell = (int)base - 1 + k;
        at[k] = cell < 0 ? 0 : cell >= from ? from - 1 : cell;
        weight[k] = w[k];
    }
}

void sfp__vit_resize_positions(int dim, int from, const float *x, int to, float *out)
{
    size_t D = (size_t)dim;
    memcpy(out, x, D * sizeof *out); /* the class token has no place */
    const float *grid = x + D;
    float *cell = out + D;
    for (int row = 0; row < to; row++)
        for (int column = 0; column < to; column++, cell += D) {
            int rows[4], columns[4];
            double wr[4], wc[4];
            taps(from, to, row, rows, wr);
            taps(from, to, column, columns, wc);
            for (size_t d = 0; d < D; d++) {
                double sum = 0;
                for (int r = 0; r < 4; r++)
                    for (int c = 0; c < 4; c++)
                        sum += wr[r] * wc[c] * (double)grid[((size_t)rows[r] * (size_t)from + (size_t)columns[c]) * D + d];
                cell[d] = (float)sum;
            }
        }
}
