/* Functions that overflow, share hidden state or eat the stack: a file that calls one does not compile. The build includes this
 * before every file (CMakeLists.txt); use snprintf, memcpy, strtok_r, sfp__parse_int and base/mem.h instead. */
#ifndef SFP_BASE_BANNED_H
#define SFP_BASE_BANNED_H

#include <stdio.h> /* the headers that declare them come first: from here on their very names are errors */
#include <stdlib.h>
#include <string.h>

#undef alloca
#pragma GCC poison strcpy strcat sprintf vsprintf gets strtok atoi atol atof alloca

#endif
