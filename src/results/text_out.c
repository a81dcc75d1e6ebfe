#include "results/text_out.h"

#include <limits.h>

static bool is_unsafe(uint32_t c)
{
    bool control = c < 0x20 || (c >= 0x7f && c < 0xa0);
    bool direction = c == 0x200e || c == 0x200f || (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
    return control || direction || c == SFP_UTF8_BAD;
}

void sfp__put_html_cut(sfp_text *t, const char *s, int most)
{
    for (int i = 0; *s; i++) {
        uint32_t c;
        int n = sfp__utf8_next(s, &c);
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
            sfp__text_put(t, SFP_UTF8_REPLACEMENT);
        else
            sfp__text_putn(t, s, (size_t)n);
        s += n;
    }
}

void sfp__put_html(sfp_text *t, const char *s)
{
    sfp__put_html_cut(t, s, INT_MAX);
}
