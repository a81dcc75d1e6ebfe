/* Errors: the one way a failure travels upwards.
 *
 *     TRY(open_gz(path, &f, err));
 *     if (got != want)
 *         return sfp__fail(err, SFP_ESHAPE, "%s: tensor '%s' is ...", ...);
 *
 * What a function owns on the way is declared OWNED (base/mem.h), and outputs are written last: then every return is a clean one.
 * A `status` variable stands only where a function goes on after a failure, to close or to save. */
#ifndef SFP_BASE_ERROR_H
#define SFP_BASE_ERROR_H

#include "streamfp.h"

#include <stdbool.h>

/* Leaves the function with the status of `call` unless that is SFP_OK. */
#define TRY(call)                        \
    do {                                 \
        sfp_status try_status_ = (call); \
        if (try_status_)                 \
            return try_status_;          \
    } while (0)

/* Fills *err (when not NULL) and returns `status`. */
sfp_status sfp__fail(sfp_error *err, sfp_status status, const char *fmt, ...) __attribute__((format(printf, 3, 4), cold));

/* As sfp__fail, about the setting or field `key`, with which the message begins: err->key carries its name, so that a caller can
 * say where its value came from. */
sfp_status sfp__fail_key(sfp_error *err, const char *key, sfp_status status, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));

/* As sfp__fail with strerror(errno) appended: "PATH: cannot open: No such file". */
sfp_status sfp__fail_errno(sfp_error *err, sfp_status status, const char *fmt, ...) __attribute__((format(printf, 3, 4), cold));

/* The message already in *err, where it begins with its key, begins with `shown` instead; its key is `key` from now on. */
void sfp__fail_rename(sfp_error *err, const char *key, const char *shown);

/* Puts "PREFIX: " before the message already in *err, which is about PREFIX then and has no key; returns its status. */
sfp_status sfp__fail_prefix(sfp_error *err, sfp_status status, const char *fmt, ...) __attribute__((format(printf, 3, 4), cold));

/* The last allocation of this thread failed (base/mem.h): says how many bytes it was. */
sfp_status sfp__fail_nomem(sfp_error *err);

/* clang-tidy reads one file at a time: that these never return SFP_OK, and that a pointer is set where they were not called, it
 * knows from here. */
#if defined(__clang_analyzer__) && !defined(SFP_ERROR_FUNCTIONS)
#define sfp__fail(err, status, ...) (sfp__fail(err, status, __VA_ARGS__), (status))
#define sfp__fail_key(err, key, status, ...) (sfp__fail_key(err, key, status, __VA_ARGS__), (status))
#define sfp__fail_errno(err, status, ...) (sfp__fail_errno(err, status, __VA_ARGS__), (status))
#define sfp__fail_prefix(err, status, ...) (sfp__fail_prefix(err, status, __VA_ARGS__), (status))
#define sfp__fail_nomem(err) (sfp__fail_nomem(err), SFP_ENOMEM)
#endif

/* SFP_ENOMEM unless the memory was there: TRY(sfp__check_memory((l->path = sfp__strdup(path)), err)). */
static inline sfp_status sfp__check_memory(bool there, sfp_error *err)
{
    return there ? SFP_OK : sfp__fail_nomem(err);
}

#endif
