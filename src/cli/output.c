#include "cli/output.h"

#include "cli/ui.h"

#include <stdarg.h>

void sfp__out_begin(sfp__out *o, bool json, int width)
{
    *o = (sfp__out){.text = !json, .width = width};
    if (json)
        sfp__json_begin(&o->json, stdout);
    else
        sfp__json_object(&o->json, NULL);
}

void sfp__out_end(sfp__out *o)
{
    sfp__json_end_all(&o->json);
}

void sfp__out_printf(const sfp__out *o, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (o->text)
        (void)vprintf(fmt, ap);
    va_end(ap);
}

void sfp__out_row(const sfp__out *o, const char *label, const char *fmt, ...)
{
    char value[8192];
    va_list ap;
    if (!o->text)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(value, sizeof value, fmt, ap);
    va_end(ap);
    (void)printf("%-*s ", o->width, label);
    sfp__put_text(stdout, value, 0);
    (void)fputc('\n', stdout);
}

void sfp__out_cell(const sfp__out *o, const char *text, int width)
{
    if (o->text)
        sfp__put_cell(stdout, text, width);
}

void sfp__out_string(sfp__out *o, const char *key, const char *label, const char *value)
{
    sfp__json_string(&o->json, key, value);
    sfp__out_row(o, label, "%s", value);
}
