#include "base/in_library.h"

#include <pthread.h>

static locale_t c_locale; /* created once, never freed */

static void create_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

sfp__caller sfp__library_enter(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    sfp__caller caller;
    (void)pthread_once(&once, create_c_locale);
    caller.locale = uselocale(c_locale);
    (void)fegetenv(&caller.floats);
    (void)fesetenv(FE_DFL_ENV);
    return caller;
}

void sfp__library_leave(const sfp__caller *caller)
{
    (void)fesetenv(&caller->floats);
    (void)uselocale(caller->locale);
}
