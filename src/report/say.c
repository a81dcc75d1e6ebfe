/* Numbers and names as people read them. */
#include "report/report_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DASH "\xe2\x80\x93"

static const char *dash(char buf[SFP_SHORT])
{
    memcpy(buf, DASH, sizeof DASH);
    return buf;
}

const char *sfp__say_percent(double x, char buf[SFP_SHORT])
{
    if (!isfinite(x))
        return dash(buf);
    (void)snprintf(buf, SFP_SHORT, "%.1f %%", sfp__no_minus_zero(100 * x, 1));
    return buf;
}

const char *sfp__say_count(double x, char buf[SFP_SHORT])
{
    char digits[32];
    int at = 0;
    if (!(x >= 0 && x < 1e18))
        return isfinite(x) ? sfp__say_compact(x, buf) : dash(buf);
    int n = snprintf(digits, sizeof digits, "%.0f", x);
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            buf[at++] = ',';
        buf[at++] = digits[i];
    }
    buf[at] = '\0';
    return buf;
}

const char *sfp__say_compact(double x, char buf[SFP_SHORT])
{
    double size = fabs(x);
    if (!isfinite(x))
        return dash(buf);
    if (size >= 1e6)
        (void)snprintf(buf, SFP_SHORT, "%.3gM", x / 1e6);
    else if (size >= 10000)
        (void)snprintf(buf, SFP_SHORT, "%.3gk", x / 1e3);
    else if (size >= 1000)
        (void)snprintf(buf, SFP_SHORT, "%.0f", x);
    else
        (void)snprintf(buf, SFP_SHORT, "%.3g", size < 1e-12 ? 0 : x);
    return buf;
}

const char *sfp__say_seconds(double x, char buf[SFP_SHORT])
{
    if (!isfinite(x) || fabs(x) > 1e9)
        return dash(buf);
    long s = (long)(x + 0.5);
    if (x < 1)
        (void)snprintf(buf, SFP_SHORT, "%.3g ms", 1e3 * x);
    else if (x < 60)
        (void)snprintf(buf, SFP_SHORT, "%.3g s", x);
    else if (s < 3600)
        (void)snprintf(buf, SFP_SHORT, "%ld min %ld s", s / 60, s % 60);
    else
        (void)snprintf(buf, SFP_SHORT, "%ld h %ld min", s / 3600, s / 60 % 60);
    return buf;
}

const char *sfp__say_bytes(double x, char buf[SFP_SHORT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int i = 0;
    if (!isfinite(x))
        return dash(buf);
    for (; x >= 1024 && i < 4; i++)
        x /= 1024;
    (void)snprintf(buf, SFP_SHORT, x < 10 && i ? "%.1f %s" : "%.0f %s", x, units[i]);
    return buf;
}

const char *sfp__class_name(const sfp_result *r, int c, char buf[SFP_SHORT])
{
    if (r->class_names[c] && *r->class_names[c])
        return r->class_names[c];
    (void)snprintf(buf, SFP_SHORT, "class %d", c);
    return buf;
}

const char *sfp__task_name(const sfp_result *r, int i, char buf[SFP_SHORT])
{
    if (r->task_names[i] && *r->task_names[i])
        return r->task_names[i];
    (void)snprintf(buf, SFP_SHORT, "task %d", i + 1);
    return buf;
}
