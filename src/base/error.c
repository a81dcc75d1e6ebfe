#define SFP__ERROR_FUNCTIONS
#include "base/error.h"

#include "base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define STRINGIFY_(x) #x
#define STRINGIFY(x) STRINGIFY_(x)

const char *sfp_version(void)
{
    return STRINGIFY(SFP_VERSION_MAJOR) "." STRINGIFY(SFP_VERSION_MINOR) "." STRINGIFY(SFP_VERSION_PATCH);
}

const char *sfp_status_text(sfp_status status)
{
    switch (status) {
#define STATUS_CASE(name, value, text) \
    case SFP_##name:                   \
        return text;
        SFP_STATUS_LIST(STATUS_CASE)
#undef STATUS_CASE
    }
    return "unknown status";
}

static void set_error(sfp_error *err, sfp_status status, const char *fmt, va_list ap)
{
    err->status = status;
    err->key[0] = '\0';
    (void)vsnprintf(err->message, sizeof err->message, fmt, ap);
}

sfp_status sfp__fail(sfp_error *err, sfp_status status, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        set_error(err, status, fmt, ap);
        va_end(ap);
    }
    return status;
}

sfp_status sfp__fail_key(sfp_error *err, const char *key, sfp_status status, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        set_error(err, status, fmt, ap);
        va_end(ap);
        (void)snprintf(err->key, sizeof err->key, "%s", key);
    }
    return status;
}

sfp_status sfp__fail_errno(sfp_error *err, sfp_status status, const char *fmt, ...)
{
    int saved = errno;
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        set_error(err, status, fmt, ap);
        va_end(ap);
        size_t used = strlen(err->message);
        char text[128];
        /* the XSI strerror_r returns an int, the GNU one a string: %m avoids both */
        errno = saved;
        (void)snprintf(text, sizeof text, ": %m");
        (void)snprintf(err->message + used, sizeof err->message - used, "%s", text);
    }
    return status;
}

void sfp__fail_rename(sfp_error *err, const char *key, const char *shown)
{
    const sfp_error previous = *err;
    size_t n = strlen(previous.key);
    if (n > 0 && strncmp(previous.message, previous.key, n) == 0)
        (void)snprintf(err->message, sizeof err->message, "%s%s", shown, previous.message + n);
    (void)snprintf(err->key, sizeof err->key, "%s", key);
}

sfp_status sfp__fail_prefix(sfp_error *err, sfp_status status, const char *fmt, ...)
{
    if (err) {
        const sfp_error previous = *err;
        va_list ap;
        va_start(ap, fmt);
        set_error(err, status, fmt, ap);
        va_end(ap);
        size_t used = strlen(err->message);
        (void)snprintf(err->message + used, sizeof err->message - used, ": %s", previous.message);
    }
    return status;
}

sfp_status sfp__fail_nomem(sfp_error *err)
{
    return sfp__fail(err, SFP_ENOMEM, "cannot allocate %zu bytes", sfp__mem_failed());
}
