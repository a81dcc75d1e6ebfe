#include "cli/external.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const sfp__external sfp__externals[] = {
    {"sweep", "run all combinations of some settings, as one table"},
    {"experiment", "repeat the tables of the paper, with a verdict for every claim"},
    {"compare", "tables and plots of runs: LaTeX, Markdown, CSV, HTML, SVG"},
    {NULL, NULL},
};

sfp_status sfp__external_run(const char *name, char **argv, sfp_error *err)
{
    char self[PATH_MAX] = "", path[PATH_MAX];
    const sfp__external *known = sfp__externals;
    while (known->name && strcmp(known->name, name) != 0)
        known++;
    errno = ENOENT;
    if (!strchr(name, '/') && readlink("/proc/self/exe", self, sizeof self - 1) > 0) {
        int directory = (int)(strrchr(self, '/') + 1 - self);
        (void)setenv("STREAMFP", self, 1);
        argv[0] = path;
        if (snprintf(path, sizeof path, "%.*sstreamfp-%s", directory, self, name) < (int)sizeof path)
            (void)execv(path, argv);
        if (errno == ENOENT)
            (void)execvp(path + directory, argv);
    }
    if (!known->name)
        return sfp__fail(err, SFP_ENOTFOUND, "unknown command '%s'", name);
    if (errno != ENOENT)
        return sfp__fail(err, SFP_EIO, "cannot execute streamfp-%s: %s", name, strerror(errno));
    return sfp__fail(err, SFP_EIO,
                     "'%s' is a program of the Python package, and streamfp-%s is neither beside streamfp nor in PATH; to install it, in "
                     "the source directory of streamfp %s: pip install './python[lab]'",
                     name, name, sfp_version());
}
