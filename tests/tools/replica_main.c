/* replica KIND DIR [--each N] [--size PIXELS] [--seed N] [--json]: creates a miniature of a dataset (replica.h) and prints how
 * to open it. */
#include "tools/replica.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"each", required_argument, NULL, 'e'},
        {"size", required_argument, NULL, 's'},
        {"seed", required_argument, NULL, 'r'},
        {"json", no_argument, NULL, 'j'},
        {NULL, 0, NULL, 0},
    };
    replica_options opt = {.each = 2, .size = 48, .seed = 1};
    const char *data = NULL;
    bool json = false;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'e')
            opt.each = (int)strtol(optarg, NULL, 10);
        else if (c == 's')
            opt.size = (int)strtol(optarg, NULL, 10);
        else if (c == 'r')
            opt.seed = strtoull(optarg, NULL, 10);
        else if (c == 'j')
            json = true;
        else
            return 2;
    }
    if (argc - optind != 2) {
        (void)fprintf(stderr, "replica: expected KIND DIR [--each N] [--size PIXELS] [--seed N] [--json]\n");
        return 2;
    }
    const char *kind = argv[optind], *dir = argv[optind + 1];
    uint64_t files = replica_make(kind, dir, opt, &data);
    int source = (int)strcspn(data, ":") + 1; /* KIND:, the path, and the text after it */
    (void)printf(json ? "{\"layout\":\"%s\",\"files\":%" PRIu64 ",\"data\":\"%.*s%s%s\"}\n"
                      : "%s: %" PRIu64 " files; use --data %.*s%s%s\n",
                 kind, files, source, data, dir, data + source);
    return 0;
}
