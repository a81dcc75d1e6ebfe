/* The main function; command.c contains everything else, so that tests can link it. */
#include "cli/command.h"

#include <signal.h>

int main(int argc, char **argv)
{
    (void)signal(SIGXFSZ, SIG_IGN); /* so that a file that reaches the size limit fails with EFBIG, like a full disk */
    return sfp__command_main(argc, argv);
}
