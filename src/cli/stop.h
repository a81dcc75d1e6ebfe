/* Ctrl-C for commands that work for hours: the first asks to finish the step and write a checkpoint, and says so; the second
 * leaves at once. */
#ifndef SFP_CLI_STOP_H
#define SFP_CLI_STOP_H

#include <signal.h>

/* From now on SIGINT and SIGTERM set what is returned. */
const volatile sig_atomic_t *sfp__stop_on_signals(void);

#endif
