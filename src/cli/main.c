/* The program; everything it does is in command.c, so that tests can link it. */
#include "cli/command.h"

int main(int argc, char **argv)
{
    return sfp__command_main(argc, argv);
}
