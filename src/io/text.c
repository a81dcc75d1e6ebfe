#include "io/text.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static bool is_plain(char c)
{
    return c >= 0x20 && c < 0x7f;
}

const char *sfp__printable(const char *s, char *buf, size_t size)
{
    static const char hex[] = "0123456789abcdef";
    size_t at = 0, whole = 0;
    if (size == 0)
        return "";
    for (const char *p = s; *p; p++)
        whole += is_plain(*p) ? 1 : 4;
    bool cut = whole >= size;
    size_t dots = !cut ? 0 : size > 3 ? 3 : size - 1;
    for (; *s && at + (is_plain(*s) ? 1 : 4) < size - dots; s++) {
        if (is_plain(*s)) {
            buf[at++] = *s;
            continue;
        }
        buf[at++] = '\\';
        buf[at++] = 'x';
        buf[at++] = hex[(unsigned char)*s >> 4];
        buf[at++] = hex[(unsigned char)*s & 15];
    }
    memset(buf + at, '.', dots);
    buf[at + dots] = '\0';
    return buf;
}

/* Makes room for n more bytes and the terminator. */
static bool reserve(sfp_text *t, size_t n)
{
    size_t need;
    if (t->failed || !sfp__add_size(t->length, n, &need) || !sfp__add_size(need, 1, &need)) {
        t->failed = true;
        return false;
    }
    if (need <= t->room)
        return true;
    size_t room = t->room < 128 ? 256 : t->room * 2;
    if (room < need)
        room = need;
    char *s = sfp__realloc(t->s, t->length, room);
    if (!s) {
        t->failed = true;
        return false;
    }
    t->s = s;
    t->room = room;
    return true;
}

void sfp__text_putn(sfp_text *t, const char *s, size_t n)
{
    if (!reserve(t, n))
        return;
    memcpy(t->s + t->length, s, n);
    t->length += n;
    t->s[t->length] = '\0';
}

void sfp__text_put(sfp_text *t, const char *s)
{
    sfp__text_putn(t, s, strlen(s));
}

void sfp__text_fill(sfp_text *t, char c, size_t n)
{
    if (!reserve(t, n))
        return;
    memset(t->s + t->length, c, n);
    t->length += n;
    t->s[t->length] = '\0';
}

void sfp__text_printf(sfp_text *t, const char *fmt, ...)
{
    char line[256]; /* callers print numbers and short words only */
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof line)
        t->failed = true;
    else
        sfp__text_putn(t, line, (size_t)n);
}

void sfp__text_json(sfp_text *t, const char *s)
{
    sfp__text_put(t, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\') {
            char pair[2] = {'\\', (char)c};
            sfp__text_putn(t, pair, 2);
        } else if (c < 0x20 || c == 0x7f) {
            sfp__text_printf(t, "\\u%04x", (unsigned)c);
        } else {
            sfp__text_putn(t, s, 1);
        }
    }
    sfp__text_put(t, "\"");
}

void sfp__text_done(sfp_text *t)
{
    sfp__free(t->s);
    *t = (sfp_text){0};
}

bool sfp__utf8_valid(const char *text)
{
    const unsigned char *s = (const unsigned char *)text;
    while (*s) {
        int more = *s < 0x80 ? 0 : *s >= 0xc2 && *s < 0xe0 ? 1 : *s >= 0xe0 && *s < 0xf0 ? 2 : *s >= 0xf0 && *s < 0xf5 ? 3 : -1;
        if (more < 0)
            return false;
        uint32_t code = more == 0 ? *s : *s & (0x3fu >> more);
        s++;
        for (int i = 0; i < more; i++, s++) {
            if ((*s & 0xc0) != 0x80)
                return false; /* the terminator stops here too */
            code = code << 6 | (*s & 0x3fu);
        }
        bool overlong = (more == 2 && code < 0x800) || (more == 3 && code < 0x10000);
        if (overlong || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
            return false;
    }
    return true;
}

size_t sfp__text_mark(const char *s, size_t n)
{
    return n >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}
