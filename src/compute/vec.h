/* Short vectors: plain C that the compiler vectorises without being allowed to
 * reorder a sum, because the partial sums are written out. */
#ifndef SFP_COMPUTE_VEC_H
#define SFP_COMPUTE_VEC_H

/* <a, b> */
static inline float sfp__dot(int n, const float *a, const float *b)
{
    float s[8] = {0};
    int i = 0;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++)
            s[j] += a[i + j] * b[i + j];
    for (; i < n; i++)
        s[0] += a[i] * b[i];
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

/* y += f x */
static inline void sfp__axpy(int n, float f, const float *restrict x, float *restrict y)
{
    for (int i = 0; i < n; i++)
        y[i] += f * x[i];
}

#endif
