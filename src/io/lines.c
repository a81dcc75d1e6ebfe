#include "io/lines.h"

#include "base/text.h"

#include <string.h>

sfp_status sfp__lines_open(const char *path, const char *expected, sfp__lines *out, sfp_error *err)
{
    OWNED char *line = NULL;
    TRY(sfp__alloc(&line, SFP__LINE_MAX, 1, err));
    TRY(sfp__file_open(path, &out->f, err));
    out->line = TAKE(line);
    out->path = path;
    out->expected = expected;
    out->number = 0;
    return SFP_OK;
}

void sfp__lines_done(sfp__lines *l)
{
    sfp__file_close(l->f);
    sfp__free(l->line);
    *l = (sfp__lines){0};
}

sfp_status sfp__lines_next(sfp__lines *l, char **line, sfp_error *err)
{
    size_t n = 0, bom_length;
    int c;
    const char *bad = NULL;
    while ((c = getc(l->f)) != EOF && c != '\n') {
        if (c == '\0')
            bad = "a zero byte";
        if (n + 1 == SFP__LINE_MAX)
            bad = "a line that is too long";
        else
            l->line[n++] = (char)c;
    }
    if (ferror(l->f))
        return sfp__fail_errno(err, SFP_EIO, "%s: cannot read", l->path);
    *line = NULL;
    if (c == EOF && n == 0)
        return SFP_OK;
    l->number++;
    if (bad)
        return sfp__fail(err, SFP_EFORMAT, "%s:%llu: found %s, expected %s", l->path, (unsigned long long)l->number, bad,
                         l->expected);
    while (n > 0 && (l->line[n - 1] == '\r' || l->line[n - 1] == ' '))
        n--;
    l->line[n] = '\0';
    bom_length = l->number == 1 ? sfp__text_bom_length(l->line, n) : 0;
    *line = l->line + bom_length;
    return SFP_OK;
}

const char *sfp__csv_quoted(const char *at, const char *end, char *to, size_t *n)
{
    char *begin = to;
    for (; at < end; at++) {
        if (*at == '"' && (++at == end || *at != '"')) {
            *n = (size_t)(to - begin);
            return at;
        }
        *to++ = *at;
    }
    return NULL;
}

bool sfp__csv_field(char **at, char **field)
{
    char *in = *at, *stop = in + strcspn(in, ",");
    if (*in == '"') {
        size_t n = 0;
        const char *after_quote = sfp__csv_quoted(in + 1, in + strlen(in), in + 1, &n);
        if (!after_quote || (*after_quote != ',' && *after_quote != '\0'))
            return false;
        stop = in + (after_quote - in);
        *field = in + 1;
        *at = *stop ? stop + 1 : NULL;
        in[1 + n] = '\0';
        return true;
    }
    *field = in;
    *at = *stop ? stop + 1 : NULL;
    *stop = '\0';
    return true;
}
