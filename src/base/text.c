#include "base/text.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Returns the length of the character at s. *bytes: its length in a message, in which each byte of a character that cannot be shown becomes
 * \xNN. */
static int printed_length(const char *s, size_t *bytes)
{
    bool shown;
    int n = sfp__utf8_shown(s, &shown);
    *bytes = (size_t)n * (shown ? 1 : 4);
    return n;
}

const char *sfp__printable(const char *s, char *buf, size_t size)
{
    static const char hex[] = "0123456789abcdef";
    size_t at = 0, whole = 0, bytes;
    int n;
    if (size == 0)
        return "";
    for (const char *p = s; *p; p += n, whole += bytes)
        n = printed_length(p, &bytes);
    bool cut = whole >= size;
    size_t dots = !cut ? 0 : size > 3 ? 3 : size - 1;
    for (; *s; s += n) {
        n = printed_length(s, &bytes);
        if (at + bytes >= size - dots)
            break;
        for (int i = 0; i < n; i++) {
            unsigned char c = (unsigned char)s[i];
            const char escaped[] = {'\\', 'x', hex[c >> 4], hex[c & 15]};
            memcpy(buf + at, bytes == (size_t)n ? s + i : escaped, bytes / (size_t)n);
            at += bytes / (size_t)n;
        }
    }
    memset(buf + at, '.', dots);
    buf[at + dots] = '\0';
    return buf;
}

/* Reserves memory for n more bytes and the terminator. */
static bool reserve(sfp__text *t, size_t n)
{
    size_t need;
    if (t->failed || !sfp__add_size(t->length, n, &need) || !sfp__add_size(need, 1, &need)) {
        t->failed = true;
        return false;
    }
    if (need <= t->capacity)
        return true;
    size_t capacity = t->capacity < 128 ? 256 : t->capacity * 2;
    if (capacity < need)
        capacity = need;
    char *s = sfp__realloc(t->s, t->length, capacity);
    if (!s) {
        t->failed = true;
        return false;
    }
    t->s = s;
    t->capacity = capacity;
    return true;
}

void sfp__text_putn(sfp__text *t, const char *s, size_t n)
{
    if (!reserve(t, n))
        return;
    memcpy(t->s + t->length, s, n);
    t->length += n;
    t->s[t->length] = '\0';
}

void sfp__text_put(sfp__text *t, const char *s)
{
    sfp__text_putn(t, s, strlen(s));
}

void sfp__text_fill(sfp__text *t, char c, size_t n)
{
    if (!reserve(t, n))
        return;
    memset(t->s + t->length, c, n);
    t->length += n;
    t->s[t->length] = '\0';
}

void sfp__text_printf(sfp__text *t, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    size_t capacity = t->capacity - t->length;
    int n = vsnprintf(capacity ? t->s + t->length : NULL, capacity, fmt, ap);
    if (n < 0)
        t->failed = true;
    else if (reserve(t, (size_t)n)) {
        if ((size_t)n >= capacity)
            (void)vsnprintf(t->s + t->length, (size_t)n + 1, fmt, again);
        t->length += (size_t)n;
    }
    va_end(again);
    va_end(ap);
}

sfp_status sfp__text_new(char **out, sfp_error *err, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    char *s = n < 0 ? NULL : sfp__malloc((size_t)n + 1);
    if (s)
        (void)vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    TRY(sfp__check_memory(s, err));
    *out = s;
    return SFP_OK;
}

void sfp__text_done(sfp__text *t)
{
    sfp__free(t->s);
    *t = (sfp__text){0};
}

int sfp__utf8_next(const char *s, uint32_t *code)
{
    unsigned char first = (unsigned char)s[0];
    int more = first < 0x80                    ? 0
               : first >= 0xc2 && first < 0xe0 ? 1
               : first >= 0xe0 && first < 0xf0 ? 2
               : first >= 0xf0 && first < 0xf5 ? 3
                                               : -1;
    uint32_t c = more <= 0 ? first : first & (0x3fu >> more);
    int i = 1;
    for (; i <= more && ((unsigned char)s[i] & 0xc0) == 0x80; i++) /* the terminator ends this loop too */
        c = c << 6 | ((unsigned char)s[i] & 0x3fu);
    bool overlong = (more == 2 && c < 0x800) || (more == 3 && c < 0x10000);
    bool bad = i != more + 1 || overlong || c > 0x10ffff || (c >= 0xd800 && c < 0xe000);
    *code = bad ? SFP__UTF8_BAD : c;
    return bad ? 1 : i;
}

bool sfp__utf8_valid(const char *s)
{
    uint32_t code = 0;
    while (*s && code != SFP__UTF8_BAD)
        s += sfp__utf8_next(s, &code);
    return code != SFP__UTF8_BAD;
}

/* Invisible characters. Some of them change the order or the lines of the text around them, so that one name could look like another. The last
 * ranges are annotations and tags, which can hide a text of any length. */
static bool is_invisible(uint32_t c)
{
    return c == 0xad || c == 0x61c || c == 0x180e || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb) || (c >= 0xe0000 && c <= 0xe0fff);
}

int sfp__utf8_shown(const char *s, bool *shown)
{
    uint32_t c;
    int n = sfp__utf8_next(s, &c);
    *shown = c != SFP__UTF8_BAD && c >= 0x20 && !(c >= 0x7f && c < 0xa0) && !is_invisible(c);
    return n;
}

int sfp__text_width(const char *text)
{
    int n = 0;
    bool shown;
    for (; *text; text += sfp__utf8_shown(text, &shown))
        n++;
    return n;
}

size_t sfp__text_bom_length(const char *s, size_t n)
{
    return n >= 3 && memcmp(s, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

/* -------------------------------------------------------------- names of tasks */

/* Reads "class 3" or "classes 4-6". */
static bool parse_class_range(const char *name, int *first, int *last)
{
    int end = -1;
    if (sscanf(name, "class %9d%n", first, &end) == 1 && end > 0 && !name[end]) {
        *last = *first;
        return *first >= 0;
    }
    end = -1;
    return sscanf(name, "classes %9d-%9d%n", first, last, &end) == 2 && end > 0 && !name[end] && *first >= 0 && *first <= *last;
}

/* Whether all classes have names, of which at least one is not the number of the class. */
static bool has_class_names(int first, int last, sfp__class_name_fn *class_name, const void *ctx)
{
    bool named = false;
    char number[16];
    for (int c = first; c <= last; c++) {
        const char *name = class_name(ctx, c);
        if (!name || !*name)
            return false;
        (void)snprintf(number, sizeof number, "%d", c);
        named = named || strcmp(name, number) != 0;
    }
    return named;
}

/* Returns how many of the names fit, at least one. */
static int count_fitting(int first, int last, int width, sfp__class_name_fn *class_name, const void *ctx)
{
    char more[24];
    int used = 0, fitting = 1;
    for (int c = first; c <= last; c++) {
        int left = last - c;
        used += sfp__text_width(class_name(ctx, c)) + (c > first ? 2 : 0);
        int end = left ? snprintf(more, sizeof more, ", +%d", left) : 0;
        if (used + end <= width)
            fitting = c - first + 1;
    }
    return fitting;
}

const char *sfp__task_title(const char *task_name, int width, sfp__class_name_fn *class_name, const void *ctx,
                            char buf[SFP__TITLE_SIZE])
{
    int first, last;
    if (!parse_class_range(task_name, &first, &last) || !has_class_names(first, last, class_name, ctx)) {
        (void)snprintf(buf, SFP__TITLE_SIZE, "%s", task_name);
        return buf;
    }
    int fitting = count_fitting(first, last, width, class_name, ctx), left = last - first + 1 - fitting;
    size_t used = 0;
    for (int c = first; c < first + fitting && used < SFP__TITLE_SIZE; c++)
        used += (size_t)snprintf(buf + used, SFP__TITLE_SIZE - used, "%s%s", c > first ? ", " : "", class_name(ctx, c));
    if (left && used < SFP__TITLE_SIZE)
        (void)snprintf(buf + used, SFP__TITLE_SIZE - used, ", +%d", left);
    return buf;
}

/* ---------------------------------------------------------- lists of strings */

sfp_status sfp__strings_resize(sfp__strings *list, int count, sfp_error *err)
{
    if (count <= list->count)
        return SFP_OK;
    TRY(sfp__check_memory(sfp__grow(&list->s, sizeof *list->s, (size_t)list->count, (size_t)count, &list->capacity), err));
    for (; list->count < count; list->count++)
        list->s[list->count] = NULL;
    return SFP_OK;
}

sfp_status sfp__strings_add(sfp__strings *list, const char *text, sfp_error *err)
{
    OWNED char *copy = text ? sfp__strdup(text) : NULL;
    TRY(sfp__check_memory(copy || !text, err));
    TRY(sfp__strings_resize(list, list->count + 1, err));
    list->s[list->count - 1] = TAKE(copy);
    return SFP_OK;
}

int sfp__strings_find(const sfp__strings *list, const char *text)
{
    for (int i = 0; i < list->count; i++)
        if (list->s[i] && strcmp(list->s[i], text) == 0)
            return i;
    return -1;
}

void sfp__strings_done(sfp__strings *list)
{
    for (int i = 0; i < list->count; i++)
        sfp__free(list->s[i]);
    sfp__free(list->s);
    *list = (sfp__strings){0};
}
