/* Arbitrary bytes as the JSON of a model: refused with a message, or every value is in its range. */
#include "fuzz.h"
#include "io/config.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    sfp__model_config c;
    sfp_error err = {0};
    if (!accepted(sfp__model_config_parse("fuzz", (const char *)bytes, size, &c, &err), &err))
        return 0;
    REQUIRE(c.heads >= 0 && c.img_size >= 0 && c.patch_size >= 0 && c.ln_eps >= 0 && c.ln_eps <= 1);
    REQUIRE(!c.has_std || (c.std[0] > 0 && c.std[1] > 0 && c.std[2] > 0));
    for (size_t i = 0; i < c.class_count; i++)
        touch(c.class_names[i], strlen(c.class_names[i]));
    sfp__model_config_done(&c);
    return 0;
}
