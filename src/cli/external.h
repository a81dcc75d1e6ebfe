/* Commands that are separate programs: `streamfp NAME ARGUMENT...` executes streamfp-NAME, as git does. The Python package contains three of
 * them. */
#ifndef SFP_CLI_EXTERNAL_H
#define SFP_CLI_EXTERNAL_H

#include "base/error.h"

typedef struct sfp__external {
    const char *name, *summary;
} sfp__external;

/* The programs of the Python package, for --help and completion; the name of the last is NULL. */
extern const sfp__external sfp__externals[];

/* Replaces this process by the program streamfp-NAME, which is searched beside this program and in PATH. The environment variable STREAMFP tells it
 * the path of this program. argv[0] is replaced by the path of the new program. Returns only on failure. SFP_ENOTFOUND: the program does not exist
 * and is not one of the Python package. */
sfp_status sfp__external_run(const char *name, char **argv, sfp_error *err);

#endif
