/* Errors: the only way in which a failure is passed to the caller.
 *
 *     TRY(open_gz(path, &f, err));
 *     if (got != want)
 *         return sfp__fail(err, SFP_ESHAPE, "%s: tensor '%s' is ...", ...);
 *
 * A function declares the resources that it owns as OWNED (base/mem.h) and writes its outputs last: then every return is clean. A
 * `status` variable is used only where a function continues after a failure, to close or to save. */
#ifndef SFP_BASE_ERROR_H
#define SFP_BASE_ERROR_H

#include "streamfp.h"

#include <stdbool.h>

/* Returns from the calling function with the status of `call`, unless that is SFP_OK. */
#define TRY(call)                        \
    do {                                 \
        sfp_status try_status_ = (call); \
        if (try_status_)                 \
            return try_status_;          \
    } while (0)

/* Fills *err (if not NULL) and returns `status`. */
sfp_status sfp__fail(sfp_error *err, sfp_status status, const char *fmt, ...) __attribute__((format(printf, 3, 4), cold));

/* Like sfp__fail, for an error about the setting or field `key`; the message begins with its name. The name is also stored in
 * err->key, so that a caller can add where the value was set. */
sfp_status sfp__fail_key(sfp_error *err, const char *key, sfp_status status, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));

/* Like sfp__fail, with strerror(errno) appended: "PATH: cannot open: No such file". */
sfp_status sfp__fail_errno(sfp_error *err, sfp_status status, const char *fmt, ...) __attribute__((format(printf, 3, 4), cold));

/* Sets the key of *err to `key`. If the message begins with the previous key, replaces that beginning with `shown`. */
void sfp__fail_rename(sfp_error *err, const char *key, const char *shown);

/* Puts "PREFIX: " before the message in *err and clears its key, because the message is now about PREFIX. Returns `status`. */
sfp_status sfp__fail_prefix(sfp_error *err, sfp_status status, const char *fmt, ...) __attribute__((format(printf, 3, 4), cold));

/* Reports that the last allocation of this thread failed (base/mem.h), with its number of bytes. */
sfp_status sfp__fail_nomem(sfp_error *err);

/* Returns whether the machine and not the data caused a failure: memory, descriptors or the disk. Data that cannot be read for such a
 * reason is not damaged, and must not be skipped. (Of one image that the disk cannot read, see sfp__source_settle.) */
static inline bool sfp__is_machine_error(sfp_status status)
{
    return status == SFP_ENOMEM || status == SFP_EIO;
}

/* clang-tidy analyses one file at a time. These macros show it that the functions never return SFP_OK, so that it knows which
 * pointers are set afterwards. */
#if defined(__clang_analyzer__) && !defined(SFP__ERROR_FUNCTIONS)
#define sfp__fail(err, status, ...) (sfp__fail(err, status, __VA_ARGS__), (status))
#define sfp__fail_key(err, key, status, ...) (sfp__fail_key(err, key, status, __VA_ARGS__), (status))
#define sfp__fail_errno(err, status, ...) (sfp__fail_errno(err, status, __VA_ARGS__), (status))
#define sfp__fail_prefix(err, status, ...) (sfp__fail_prefix(err, status, __VA_ARGS__), (status))
#define sfp__fail_nomem(err) (sfp__fail_nomem(err), SFP_ENOMEM)
#endif

/* Returns SFP_ENOMEM if the allocation failed: TRY(sfp__check_memory((l->path = sfp__strdup(path)), err)). */
static inline sfp_status sfp__check_memory(bool allocated, sfp_error *err)
{
    return allocated ? SFP_OK : sfp__fail_nomem(err);
}

#endif
