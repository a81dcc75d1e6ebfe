/* The main function; command.c contains everything else, so that tests can link it. */
#include "serve/serve.h"

#include "cli/command.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], SFP__DECODER) == 0) {
        sfp__decoder_main();
        _exit(0);
    }
    (void)signal(SIGXFSZ, SIG_IGN); /* so that a file that reaches the size limit fails with EFBIG, like a full disk */
    return sfp__command_main(argc, argv);
}
