#include "cli/stop.h"

#include "cli/line.h"

#include <errno.h>
#include <stddef.h>
#include <unistd.h>

static volatile sig_atomic_t stop;

/* What it does may take seconds: who pressed Ctrl-C must see at once that it was heard. */
static void tell(void)
{
    static const char text[] = SFP_LINE_WIPE "streamfp: stopping after this step and a checkpoint; once more leaves at once\n";
    size_t skip = sfp__line_open ? 0 : sizeof SFP_LINE_WIPE - 1;
    int before = errno;
    ssize_t unused = write(STDERR_FILENO, text + skip, sizeof text - 1 - skip);
    (void)unused;
    errno = before;
    sfp__line_open = 0;
}

static void on_signal(int number)
{
    if (stop)
        _exit(128 + number); /* the last checkpoint is whole */
    stop = 1;
    tell();
}

const volatile sig_atomic_t *sfp__stop_on_signals(void)
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}; /* a file half read is no broken picture */
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    return &stop;
}
