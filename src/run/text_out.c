#include "run/text_out.h"

#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"

/* A host program may have set a locale that writes 0,5. */
static void put_number(sfp_text *t, char *digits)
{
    char *comma = strchr(digits, ',');
    if (comma)
        *comma = '.';
    sfp__text_put(t, digits);
}

void sfp__put_real(sfp_text *t, double x)
{
    char digits[40];
    if (!isfinite(x)) {
        sfp__text_put(t, "null");
        return;
    }
    for (int n = 15; n <= 17; n++) {
        (void)snprintf(digits, sizeof digits, "%.*g", n, x);
        if (n == 17 || strtod(digits, NULL) == x)
            break;
    }
    put_number(t, digits);
}

void sfp__put_float(sfp_text *t, float x)
{
    char digits[40];
    if (!isfinite(x)) {
        sfp__text_put(t, "null");
        return;
    }
    for (int n = 6; n <= 9; n++) {
        (void)snprintf(digits, sizeof digits, "%.*g", n, (double)x);
        if (n == 9 || strtof(digits, NULL) == x)
            break;
    }
    put_number(t, digits);
}

/* The character at s and its bytes; bytes that begin none: one, with *code 0xfffd. */
static int next_char(const char *s, uint32_t *code)
{
    unsigned char first = (unsigned char)s[0];
    int more = first < 0x80                    ? 0
               : first >= 0xc2 && first < 0xe0 ? 1
               : first >= 0xe0 && first < 0xf0 ? 2
               : first >= 0xf0 && first < 0xf5 ? 3
                                               : -1;
    if (more >= 0) {
        uint32_t c = more == 0 ? first : first & (0x3fu >> more);
        int i = 1;
        for (; i <= more && ((unsigned char)s[i] & 0xc0) == 0x80; i++)
            c = c << 6 | ((unsigned char)s[i] & 0x3fu);
        bool overlong = (more == 2 && c < 0x800) || (more == 3 && c < 0x10000);
        if (i == more + 1 && !overlong && c <= 0x10ffff && !(c >= 0xd800 && c < 0xe000)) {
            *code = c;
            return more + 1;
        }
    }
    *code = 0xfffd;
    return 1;
}

void sfp__put_json(sfp_text *t, const char *s)
{
    sfp__text_put(t, "\"");
    while (*s) {
        uint32_t c;
        int n = next_char(s, &c);
        if (c == '"' || c == '\\') {
            sfp__text_put(t, "\\");
            sfp__text_putn(t, s, 1);
        } else if (c < 0x20 || c == 0x7f) {
            sfp__text_printf(t, "\\u%04x", (unsigned)c);
        } else if (c == 0xfffd) {
            sfp__text_put(t, REPLACEMENT);
        } else {
            sfp__text_putn(t, s, (size_t)n);
        }
        s += n;
    }
    sfp__text_put(t, "\"");
}

static bool is_unsafe(uint32_t c)
{
    bool control = c < 0x20 || (c >= 0x7f && c < 0xa0);
    bool direction = c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
    return control || direction || c == 0xfffd;
}

void sfp__put_html_cut(sfp_text *t, const char *s, int most)
{
    for (int i = 0; *s; i++) {
        uint32_t c;
        int n = next_char(s, &c);
        if (i + 1 >= most && s[n]) {
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
            sfp__text_put(t, REPLACEMENT);
        else
            sfp__text_putn(t, s, (size_t)n);
        s += n;
    }
}

void sfp__put_html(sfp_text *t, const char *s)
{
    sfp__put_html_cut(t, s, INT_MAX);
}
