/* Arbitrary bytes as a manifest (CSV or JSONL): refused with a message, or every record has a path and a valid label. */
#include "fuzz_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    sfp_source *s = NULL;
    sfp_error err = {0};
    bool opened = accepted(sfp__manifest_open_memory("fuzz", bytes, size, &s, &err), &err);
    REQUIRE(opened == (s != NULL));
    if (!opened)
        return 0;
    for (int k = 1; k < s->classes; k++)
        REQUIRE(sfp__name_compare(s->class_names[k - 1], s->class_names[k]) < 0);
    check_and_close(s);
    return 0;
}
