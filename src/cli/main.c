/* The program; everything it does is in command.c, so that tests can link it. */
#include "cli/command.h"

#include <signal.h>

int main(int argc, char **argv)
{
    (void)signal(SIGXFSZ, SIG_IGN); /* a file at the limit of its size is told like a full disk */
    return sfp__command_main(argc, argv);
}
