/* Names on their way into HTML. They come from files and may hold anything: bytes that are no UTF-8 become U+FFFD. */
#ifndef SFP_RESULTS_TEXT_OUT_H
#define SFP_RESULTS_TEXT_OUT_H

#include "base/text.h"

/* For element text and quoted attributes: & < > " ' escaped; control bytes and marks that turn the writing direction become
 * U+FFFD. */
void sfp__put_html(sfp_text *t, const char *s);
/* ... at most `most` characters, the last a "…" when there are more. */
void sfp__put_html_cut(sfp_text *t, const char *s, int most);

#endif
