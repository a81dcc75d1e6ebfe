#include "cli/stop.h"

#include <stddef.h>
#include <unistd.h>

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
    if (stop)
        _exit(128 + number); /* the last checkpoint is whole */
    stop = 1;
}

const volatile sig_atomic_t *sfp__stop_on_signals(void)
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}; /* a file half read is no broken picture */
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    return &stop;
}
