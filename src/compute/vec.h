/* Short vectors: plain C that the compiler can vectorise without reordering a sum, because the partial sums are explicit. */
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

/* <a, b> in double: the same bits for (a, b) and (b, a). */
static inline double sfp__dot_f64(int n, const float *a, const float *b)
{
    double s[4] = {0};
    int i = 0;
    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++)
            s[j] += (double)a[i + j] * (double)b[i + j];
    for (; i < n; i++)
        s[0] += (double)a[i] * (double)b[i];
    return (s[0] + s[1]) + (s[2] + s[3]);
}

/* |a - b|^2 in double */
static inline double sfp__distance2_f64(int n, const float *a, const float *b)
{
    double s[4] = {0};
    int i = 0;
    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++) {
            double d = (double)a[i + j] - (double)b[i + j];
            s[j] += d * d;
        }
    for (; i < n; i++)
        s[0] += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return (s[0] + s[1]) + (s[2] + s[3]);
}

#endif
