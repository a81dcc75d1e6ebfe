#include "select/lossnet.h"

#include "compute/gemm.h"
#include "compute/vec.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDTH = SFP_LOSSNET_WIDTH, JOINED = SFP_LOSSNET_JOINED, LAST = 2 * SFP_TAPS };

sfp_status sfp__lossnet_init(sfp_lossnet *net, int dim, sfp_rng *rng, sfp_error *err)
{
    sfp_status s = SFP_OK;
    *net = (sfp_lossnet){.dim = dim};
    for (int k = 0; !s && k <= SFP_TAPS; k++) {
        char w[16] = "w", b[16] = "b";
        if (k < SFP_TAPS) {
            (void)snprintf(w, sizeof w, "w%d", k);
            (void)snprintf(b, sizeof b, "b%d", k);
        }
        const int64_t rows = k < SFP_TAPS ? WIDTH : 1, shape[] = {rows, k < SFP_TAPS ? dim : JOINED};
        sfp_param *weight = &net->param[2 * k], *bias = &net->param[2 * k + 1];
        if ((s = sfp__param_init(weight, w, 2, shape, err)) || (s = sfp__param_init(bias, b, 1, &rows, err)))
            break;
        double bound = 1 / sqrt((double)shape[1]);
        for (int64_t i = 0; i < rows * shape[1]; i++)
            weight->data[i] = (float)((2 * sfp__rng_double(rng) - 1) * bound);
        for (int64_t i = 0; i < rows; i++)
            bias->data[i] = (float)((2 * sfp__rng_double(rng) - 1) * bound);
    }
    if (s)
        sfp__lossnet_done(net);
    return s;
}

void sfp__lossnet_done(sfp_lossnet *net)
{
    for (int i = 0; i < SFP_LOSSNET_PARAMS; i++)
        sfp__param_done(&net->param[i]);
}

void sfp__lossnet_fwd(const sfp_lossnet *net, int n, const float *taps, float *hidden, float *predicted)
{
    int token = sfp__gemm_enter();
    for (int k = 0; k < SFP_TAPS; k++) {
        float *to = hidden + (size_t)k * WIDTH;
        for (int i = 0; i < n; i++)
            memcpy(to + (size_t)i * JOINED, net->param[2 * k + 1].data, WIDTH * sizeof *to);
        sfp__gemm_plain(false, true, n, WIDTH, net->dim, taps + (size_t)k * (size_t)net->dim, SFP_TAPS * net->dim,
                        net->param[2 * k].data, net->dim, 1, to, JOINED);
    }
    sfp__gemm_leave(token);
    for (int i = 0; i < n; i++) {
        float *row = hidden + (size_t)i * JOINED;
        for (int j = 0; j < JOINED; j++)
            row[j] = row[j] > 0 ? row[j] : 0;
        predicted[i] = sfp__dot(JOINED, row, net->param[LAST].data) + net->param[LAST + 1].data[0];
    }
}

void sfp__lossnet_bwd(sfp_lossnet *net, int n, const float *taps, float *hidden, const float *grad)
{
    const float *last = net->param[LAST].data;
    for (int i = 0; i < n; i++) {
        float *row = hidden + (size_t)i * JOINED;
        sfp__axpy(JOINED, grad[i], row, net->param[LAST].grad);
        net->param[LAST + 1].grad[0] += grad[i];
        for (int j = 0; j < JOINED; j++)
            row[j] = row[j] > 0 ? grad[i] * last[j] : 0;
        for (int k = 0; k < SFP_TAPS; k++)
            sfp__axpy(WIDTH, 1, row + (size_t)k * WIDTH, net->param[2 * k + 1].grad);
    }
    int token = sfp__gemm_enter();
    for (int k = 0; k < SFP_TAPS; k++)
        sfp__gemm_plain(true, false, WIDTH, net->dim, n, hidden + (size_t)k * WIDTH, JOINED, taps + (size_t)k * (size_t)net->dim,
                        SFP_TAPS * net->dim, 1, net->param[2 * k].grad, net->dim);
    sfp__gemm_leave(token);
}

double sfp__lossnet_rank(int n, const float *predicted, const float *loss, float *grad)
{
    int pairs = n / 2;
    double sum = 0;
    memset(grad, 0, (size_t)n * sizeof *grad);
    for (int i = 0; i < pairs; i++) {
        int j = n - 1 - i;
        float sign = loss[i] > loss[j] ? 1.0f : -1.0f, margin = 1 - sign * (predicted[i] - predicted[j]);
        if (!(margin > 0))
            continue;
        sum += (double)margin / pairs;
        grad[i] = -sign / (float)pairs;
        grad[j] = sign / (float)pairs;
    }
    return sum;
}
