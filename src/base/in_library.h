/* Sets up the thread of a public function, independently of the settings of the host program: the C locale, in which numbers have a decimal point,
 * and the default floating-point environment (rounding to nearest, subnormal numbers, no traps).
 *
 * A public function that can fail begins with IN_LIBRARY; its thread then has both until the function returns. All code that it calls, including
 * other libraries, may therefore use strtod and snprintf, and rounds as in every other program.
 * Worker threads inherit the floating-point environment of the public function that creates them, but not the locale: they only compute.
 * The process and its other threads do not change. scripts/check-layers reports a public function without IN_LIBRARY. */
#ifndef SFP_BASE_IN_LIBRARY_H
#define SFP_BASE_IN_LIBRARY_H

#include <fenv.h>
#include <locale.h>

/* The settings of the caller's thread, which are restored on return. */
typedef struct sfp__caller {
    locale_t locale;
    fenv_t floats;
} sfp__caller;

#define IN_LIBRARY __attribute__((cleanup(sfp__library_leave))) sfp__caller caller_ = sfp__library_enter()

sfp__caller sfp__library_enter(void);
void sfp__library_leave(const sfp__caller *caller);

#endif
