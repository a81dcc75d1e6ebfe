/* Numbers are read and written with a decimal point, in every locale that a host program may have set.
 *
 * The program never sets a locale. A public function that can fail begins with IN_C_LOCALE: its thread is then in the C locale
 * until the function returns. All code below it, and the libraries it calls, may therefore use strtod and snprintf. Worker
 * threads are not covered: they only compute. The locale of the process and of other threads does not change.
 * scripts/check-layers reports a public function without IN_C_LOCALE. */
#ifndef SFP_BASE_C_LOCALE_H
#define SFP_BASE_C_LOCALE_H

#include <locale.h>

#define IN_C_LOCALE __attribute__((cleanup(sfp__c_locale_leave))) locale_t caller_locale_ = sfp__c_locale_enter()

/* Switches this thread to the C locale and returns the locale that it had. */
locale_t sfp__c_locale_enter(void);
void sfp__c_locale_leave(const locale_t *previous);

#endif
