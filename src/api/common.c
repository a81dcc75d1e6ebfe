/* Errors, memory and options of all parts of the library (streamfp.h, part 1). */
#include "api/api.h"

#include "base/in_library.h"
#include "base/mem.h"

#include <string.h>

void sfp_free(void *memory)
{
    sfp__free(memory);
}

sfp_status sfp_error_set(sfp_error *err, sfp_status status, const char *message)
{
    IN_LIBRARY;
    return sfp__fail(err, status, "%s", message ? message : "");
}

sfp_status sfp__api_callback_failed(sfp_status status, sfp_error *why, const char *where, sfp_error *err)
{
    bool known = status > SFP_OK && status <= SFP_ECANCELLED;
    why->message[sizeof why->message - 1] = '\0';
    return sfp__fail(err, known ? status : SFP_EINVAL, "%s: %s", where,
                     why->message[0] ? why->message
                     : known         ? sfp_status_text(status)
                                     : "the callback returned an unknown status");
}

sfp_status sfp__api_options(const void *given, void *out, size_t size, const char *name, sfp_error *err)
{
    size_t has = 0;
    memset(out, 0, size);
    if (given) {
        memcpy(&has, given, sizeof has);
        if (has < sizeof has)
            return sfp__fail(err, SFP_EINVAL, "%s: size is %zu, expected sizeof(%s): initialise it with its _INIT macro", name,
                             has, name);
        memcpy(out, given, has < size ? has : size);
    }
    memcpy(out, &size, sizeof size);
    return SFP_OK;
}
