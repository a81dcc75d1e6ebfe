/* streamfp: real-time stream learning for vision transformers.
 *
 * The public interface. Everything a program outside this repository needs is
 * here; names begin with sfp_. Names that begin with sfp__ are internal.
 *
 * Errors: fallible functions return a status and, when `err` is not NULL, put
 * a message there that names the file, the place, what was found and what was
 * expected. Outputs are untouched on failure. The library never prints, exits
 * or aborts. */
#ifndef STREAMFP_H
#define STREAMFP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SFP_VERSION_MAJOR 0
#define SFP_VERSION_MINOR 1
#define SFP_VERSION_PATCH 0

#if defined(__GNUC__)
#define SFP_API __attribute__((visibility("default")))
#else
#define SFP_API
#endif

/* One list makes the enum and its words. */
#define SFP_STATUS_LIST(X)                                                     \
    X(OK, 0, "ok")                                                             \
    X(EINVAL, 1, "invalid argument")                                           \
    X(EIO, 2, "input/output error")                                            \
    X(EFORMAT, 3, "malformed file")                                            \
    X(ESHAPE, 4, "wrong shape")                                                \
    X(ENOTFOUND, 5, "not found")                                               \
    X(ENOMEM, 6, "out of memory")                                              \
    X(ELIMIT, 7, "limit exceeded")                                             \
    X(EUNSUPPORTED, 8, "not supported here")                                   \
    X(ELIBRARY, 9, "a library call failed")

typedef enum sfp_status {
#define SFP_STATUS_ENUM(name, value, text) SFP_##name = value,
    SFP_STATUS_LIST(SFP_STATUS_ENUM)
#undef SFP_STATUS_ENUM
} sfp_status;

#define SFP_ERROR_MAX 768

typedef struct sfp_error {
    sfp_status status;
    char message[SFP_ERROR_MAX]; /* always terminated; cut when too long */
} sfp_error;

/* "0.1.0" */
SFP_API const char *sfp_version(void);

/* The words for a status; never NULL. */
SFP_API const char *sfp_status_text(sfp_status status);

#ifdef __cplusplus
}
#endif
#endif
