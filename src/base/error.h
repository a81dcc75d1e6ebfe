/* Errors: the one way a failure travels upwards.
 *
 *     if (got != want)
 *         return sfp__fail(err, SFP_ESHAPE, "%s: tensor '%s' is ...", ...);
 */
#ifndef SFP_BASE_ERROR_H
#define SFP_BASE_ERROR_H

#include "streamfp.h"

/* Fills *err (when not NULL) and returns `status`. */
sfp_status sfp__fail(sfp_error *err, sfp_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), cold));

/* As sfp__fail with strerror(errno) appended: "PATH: cannot open: No such file". */
sfp_status sfp__fail_errno(sfp_error *err, sfp_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), cold));

/* Puts "PREFIX: " before the message already in *err; returns its status. */
sfp_status sfp__fail_prefix(sfp_error *err, sfp_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4), cold));

/* The common one. */
sfp_status sfp__fail_nomem(sfp_error *err, size_t bytes);

#endif
