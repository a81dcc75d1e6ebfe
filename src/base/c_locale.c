#include "base/c_locale.h"

#include <pthread.h>

static locale_t c_locale; /* created once, never freed */

static void create_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

locale_t sfp__c_locale_enter(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, create_c_locale);
    return uselocale(c_locale);
}

void sfp__c_locale_leave(const locale_t *previous)
{
    (void)uselocale(*previous);
}
