/* Arbitrary bytes as a manifest (CSV or JSONL): refused with a message, or every record has a path and a valid label. */
#include "fuzz.h"
#include "stream/source_internal.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    sfp_source *s = NULL;
    sfp_error err = {0};
    bool opened = accepted(sfp__manifest_open_memory("fuzz", bytes, size, &s, &err), &err);
    REQUIRE(opened ? s->count > 0 : s == NULL);
    if (!opened)
        return 0;
    for (int64_t i = 0; i < s->count; i++) {
        sfp_record r;
        char name[64];
        REQUIRE(sfp__source_record(s, i, &r, &err) == SFP_OK);
        REQUIRE(r.label >= -1 && r.label < s->classes && r.domain >= -1 && r.domain < s->domains && r.task >= -1 &&
                !isinf(r.time));
        REQUIRE(sfp__source_name(s, i, name, sizeof name)[0] != '\0');
    }
    for (int k = 1; k < s->classes; k++)
        REQUIRE(sfp__name_compare(s->class_names[k - 1], s->class_names[k]) < 0);
    sfp__source_close(s);
    return 0;
}
