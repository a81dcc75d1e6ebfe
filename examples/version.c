/* The smallest program that uses the library:
 *     cc version.c $(pkg-config --cflags --libs streamfp) && ./a.out */
#include <streamfp.h>

#include <stdio.h>

int main(void)
{
    return printf("libstreamfp %s\n", sfp_version()) < 0;
}
