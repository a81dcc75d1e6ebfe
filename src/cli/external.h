/* Commands that are programs of their own: `streamfp NAME ARGUMENT...` executes streamfp-NAME, as git does. The Python package has three
 * of them. */
#ifndef SFP_CLI_EXTERNAL_H
#define SFP_CLI_EXTERNAL_H

#include "base/error.h"

typedef struct sfp__external {
    const char *name, *summary;
} sfp__external;

/* The programs of the Python package, for --help and completion; the name of the last is NULL. */
extern const sfp__external sfp__externals[];

/* Replaces this process by the program streamfp-NAME, which is beside this program or in PATH and finds this program in the environment
 * variable STREAMFP. argv[0] is replaced by the path, the arguments follow. Returns only on failure; SFP_ENOTFOUND: there is no such
 * program, and none is known. */
sfp_status sfp__external_run(const char *name, char **argv, sfp_error *err);

#endif
