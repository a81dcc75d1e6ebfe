/* The head of a page, escaping of text, and formats of numbers. */
#include "report/html.h"

#include "io/file.h"
#include "results/result.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------------- page */

/* The assembler includes head.html; {title} in it is replaced by the title. Its colours are those of Okabe and Ito, which people
 * with any kind of colour vision can distinguish; the dark scheme uses lighter ones. The segments of a .bar have no padding, so
 * that their widths are proportional to their shares. */
__asm__(".pushsection .rodata.sfp_report, \"a\"\n"
        ".local sfp_report_head\n"
        "sfp_report_head:\n"
        ".incbin \"" SFP_REPORT_HEAD "\"\n"
        ".byte 0\n"
        ".popsection\n");
extern const char sfp_report_head[] __attribute__((visibility("hidden")));

void sfp__page_begin(sfp__text *t, const char *title, const char *subject)
{
    static const char placeholder[] = "{title}";
    const char *at = strstr(sfp_report_head, placeholder);
    sfp__text_putn(t, sfp_report_head, (size_t)(at - sfp_report_head));
    sfp__text_put(t, title);
    sfp__put_html_cut(t, subject ? subject : "", 80);
    sfp__text_put(t, at + strlen(placeholder));
}

sfp_status sfp__page_write(sfp__text *t, const char *path, sfp_error *err)
{
    sfp__text_put(t, "</main></body></html>\n");
    return t->failed ? sfp__fail_nomem(err) : sfp__file_write(path, t->s, t->length, err);
}

static bool is_unsafe(uint32_t c)
{
    bool control = c < 0x20 || (c >= 0x7f && c < 0xa0);
    bool direction = c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
    return control || direction || c == SFP__UTF8_BAD;
}

void sfp__put_html_cut(sfp__text *t, const char *s, int max_chars)
{
    for (int i = 0; *s; i++) {
        uint32_t c;
        int n = sfp__utf8_next(s, &c);
        if (i + 1 >= max_chars && s[n]) {
            sfp__text_put(t, "\xe2\x80\xa6");
            return;
        }
        const char *name = c == '&'    ? "&amp;"
                           : c == '<'  ? "&lt;"
                           : c == '>'  ? "&gt;"
                           : c == '"'  ? "&quot;"
                           : c == '\'' ? "&#39;"
                                       : NULL;
        if (name)
            sfp__text_put(t, name);
        else if (is_unsafe(c))
            sfp__text_put(t, SFP__UTF8_REPLACEMENT);
        else
            sfp__text_putn(t, s, (size_t)n);
        s += n;
    }
}

void sfp__put_html(sfp__text *t, const char *s)
{
    sfp__put_html_cut(t, s, INT_MAX);
}

/* ------------------------------------------------------------------- numbers */

#define DASH "\xe2\x80\x93"

static const char *dash(char buf[SFP__SHORT])
{
    memcpy(buf, DASH, sizeof DASH);
    return buf;
}

const char *sfp__format_percent(double x, char buf[SFP__SHORT])
{
    if (!isfinite(x))
        return dash(buf);
    (void)snprintf(buf, SFP__SHORT, "%.1f %%", sfp__no_minus_zero(100 * x, 1));
    return buf;
}

const char *sfp__format_count(double x, char buf[SFP__SHORT])
{
    char digits[32];
    int at = 0;
    if (!(x >= 0 && x < 1e18))
        return isfinite(x) ? sfp__format_compact(x, buf) : dash(buf);
    int n = snprintf(digits, sizeof digits, "%.0f", x);
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            buf[at++] = ',';
        buf[at++] = digits[i];
    }
    buf[at] = '\0';
    return buf;
}

const char *sfp__format_compact(double x, char buf[SFP__SHORT])
{
    double size = fabs(x);
    if (!isfinite(x))
        return dash(buf);
    if (size >= 1e6)
        (void)snprintf(buf, SFP__SHORT, "%.3gM", x / 1e6);
    else if (size >= 10000)
        (void)snprintf(buf, SFP__SHORT, "%.3gk", x / 1e3);
    else if (size >= 1000)
        (void)snprintf(buf, SFP__SHORT, "%.0f", x);
    else
        (void)snprintf(buf, SFP__SHORT, "%.3g", size < 1e-12 ? 0 : x);
    return buf;
}

const char *sfp__format_seconds(double x, char buf[SFP__SHORT])
{
    if (!isfinite(x) || fabs(x) > 1e9)
        return dash(buf);
    long s = (long)(x + 0.5);
    if (x < 1)
        (void)snprintf(buf, SFP__SHORT, "%.3g ms", 1e3 * x);
    else if (x < 60)
        (void)snprintf(buf, SFP__SHORT, "%.3g s", x);
    else if (s < 3600)
        (void)snprintf(buf, SFP__SHORT, "%ld min %ld s", s / 60, s % 60);
    else
        (void)snprintf(buf, SFP__SHORT, "%ld h %ld min", s / 3600, s / 60 % 60);
    return buf;
}

const char *sfp__format_bytes(double x, char buf[SFP__SHORT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int i = 0;
    if (!isfinite(x))
        return dash(buf);
    for (; x >= 1024 && i < 4; i++)
        x /= 1024;
    (void)snprintf(buf, SFP__SHORT, x < 10 && i ? "%.1f %s" : "%.0f %s", x, units[i]);
    return buf;
}
