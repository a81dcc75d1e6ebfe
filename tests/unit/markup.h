/* Checks of HTML and SVG. */
#ifndef SFP_TESTS_MARKUP_H
#define SFP_TESTS_MARKUP_H

#include "test.h"

/* Returns how often `what` occurs. */
static UNUSED int count(const char *text, const char *what)
{
    int n = 0;
    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

/* Checks that opened elements are closed in order and that attributes are quoted. */
static UNUSED void check_nesting(const char *text)
{
    static const char *const empty[] = {"meta", "rect", "line", "circle", "path", "!DOCTYPE", "?xml"};
    char open[64][16];
    int depth = 0;
    for (const char *p = text; (p = strchr(p, '<')); p++) {
        char name[16];
        bool closing = p[1] == '/', alone = false;
        size_t n = strcspn(p + 1 + closing, " >/\n");
        const char *end = p;
        for (bool quoted = false; *end && (quoted || *end != '>'); end++)
            quoted = quoted != (*end == '"');
        if (n == 0 || n >= sizeof name || !*end)
            fail_msg("not a tag: %.60s", p);
        (void)snprintf(name, sizeof name, "%.*s", (int)n, p + 1 + closing);
        for (size_t i = 0; i < sizeof empty / sizeof *empty; i++)
            alone = alone || (strcmp(name, empty[i]) == 0);
        if (alone && (end[-1] == '/' || name[0] == '!' || name[0] == '?' || strcmp(name, "meta") == 0)) {
            p = end;
            continue;
        }
        if (!closing) {
            assert_true(depth < 64);
            (void)snprintf(open[depth++], sizeof open[0], "%s", name);
        } else if (depth == 0 || strcmp(open[--depth], name) != 0) {
            fail_msg("</%s> closes <%s>: %.80s", name, open[depth], p);
        }
        p = end;
    }
    assert_int_equal(depth, 0);
}

#endif
