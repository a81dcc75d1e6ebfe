/* Functions that can overflow a buffer, share hidden state or exhaust the stack: a file that calls one of them does not compile.
 * The build includes this header before every file (CMakeLists.txt). Use snprintf, memcpy, strtok_r, sfp__parse_int and
 * base/mem.h instead. */
#ifndef SFP_BASE_BANNED_H
#define SFP_BASE_BANNED_H

#include <stdio.h> /* the headers that declare these functions must be included first: below, even their names are errors */
#include <stdlib.h>
#include <string.h>

#undef alloca
#pragma GCC poison strcpy strcat sprintf vsprintf gets strtok atoi atol atof alloca

#endif
