/* What a public function needs of its thread, whatever the host program has set: the C locale, in which numbers have a decimal point,
 * and the default floating-point environment: rounding to nearest, subnormal numbers, no traps.
 *
 * The program never sets either. A public function that can fail begins with IN_LIBRARY: its thread has both until the function
 * returns. All code below it, and the libraries it calls, may therefore use strtod and snprintf, and round as in every other program.
 * Worker threads inherit the floating-point environment of the public function that creates them, but not the locale: they only compute.
 * The process and its other threads do not change. scripts/check-layers reports a public function without IN_LIBRARY. */
#ifndef SFP_BASE_IN_LIBRARY_H
#define SFP_BASE_IN_LIBRARY_H

#include <fenv.h>
#include <locale.h>

/* What the thread of the caller had. */
typedef struct sfp__caller {
    locale_t locale;
    fenv_t floats;
} sfp__caller;

#define IN_LIBRARY __attribute__((cleanup(sfp__library_leave))) sfp__caller caller_ = sfp__library_enter()

sfp__caller sfp__library_enter(void);
void sfp__library_leave(const sfp__caller *caller);

#endif
