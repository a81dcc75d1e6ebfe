/* Numbers and names on their way into JSON and HTML. Names come from files and may hold anything: bytes that are no UTF-8
 * become U+FFFD in both. */
#ifndef SFP_RUN_TEXT_OUT_H
#define SFP_RUN_TEXT_OUT_H

#include "io/text.h"

/* The shortest of 15, 16 or 17 digits that reads back as the same number; not finite: null. */
void sfp__put_real(sfp_text *t, double x);
void sfp__put_float(sfp_text *t, float x);

/* "s" with its quotes. */
void sfp__put_json(sfp_text *t, const char *s);

/* For element text and quoted attributes: & < > " ' escaped; control bytes and marks that turn the writing direction become
 * U+FFFD. */
void sfp__put_html(sfp_text *t, const char *s);
/* ... at most `most` characters, the last a "…" when there are more. */
void sfp__put_html_cut(sfp_text *t, const char *s, int most);

#endif
