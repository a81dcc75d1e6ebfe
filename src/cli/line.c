#include "cli/line.h"

#include "base/settings.h"
#include "cli/ui.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

volatile sig_atomic_t sfp__line_open;

void sfp__line_add(sfp_line *l, int worth, const char *fmt, ...)
{
    if (l->count == SFP_LINE_PARTS)
        return;
    va_list ap;
    va_start(ap, fmt);
    l->part[l->count].worth = worth;
    (void)vsnprintf(l->part[l->count++].text, SFP_LINE_PART, fmt, ap);
    va_end(ap);
}

/* Columns that a text may take: a character beyond U+1000, as of a name in Chinese, is counted as if it took two. */
static int columns_of(const char *text)
{
    int n = sfp__text_width(text);
    for (; *text; text++)
        n += (unsigned char)*text >= 0xe1;
    return n;
}

void sfp__line_fit(const sfp_line *l, int columns, char *buf, size_t size)
{
    bool shown[SFP_LINE_PARTS] = {false}, full = false;
    for (int left = columns; !full;) {
        int best = -1;
        for (int i = 0; i < l->count; i++)
            if (!shown[i] && (best < 0 || l->part[i].worth > l->part[best].worth))
                best = i;
        full = best < 0 || columns_of(l->part[best].text) > left;
        if (!full) {
            shown[best] = true;
            left -= columns_of(l->part[best].text);
        }
    }
    buf[0] = '\0';
    for (int i = 0; i < l->count; i++)
        if (shown[i])
            (void)strncat(buf, l->part[i].text, size - strlen(buf) - 1);
}

bool sfp__line_rewrites(void)
{
    const char *term = getenv("TERM");
    return term && *term && strcmp(term, "dumb") != 0 && isatty(STDERR_FILENO) == 1;
}

int sfp__line_columns(void)
{
    struct winsize w;
    int64_t n;
    const char *given = getenv("COLUMNS");
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0)
        return w.ws_col;
    return given && sfp__parse_int(given, &n) && n > 0 && n < 10000 ? (int)n : 80;
}

void sfp__line_show(const sfp_line *l)
{
    char text[SFP_LINE_PARTS * SFP_LINE_PART], out[sizeof text + sizeof SFP_LINE_WIPE];
    bool rewrites = sfp__line_rewrites();
    /* the last column stays free: a terminal may go to the next row when it is written to */
    sfp__line_fit(l, rewrites ? sfp__line_columns() - 1 : INT_MAX, text, sizeof text);
    (void)snprintf(out, sizeof out, "%s%s%s", rewrites ? SFP_LINE_WIPE : "", text, rewrites ? "" : "\n");
    sfp__line_open = rewrites;                 /* a signal may come on either side of the writing, */
    (void)fwrite(out, 1, strlen(out), stderr); /* which is at once: it must not find half of it */
    sfp__line_open = rewrites;
}

void sfp__line_wipe(void)
{
    if (sfp__line_open)
        (void)fputs(SFP_LINE_WIPE, stderr);
    sfp__line_open = 0;
}
