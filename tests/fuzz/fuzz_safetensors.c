/* Any bytes as a safetensors file: refused with a message, or every tensor lies inside, once. */
#include "fuzz.h"
#include "io/safetensors.h"

static volatile unsigned sink;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    sfp_safetensors *st;
    sfp_error err = {0};
    sfp_status status = sfp__safetensors_open_memory("fuzz", bytes, size, &st, &err);
    if (status != SFP_OK) {
        require_error(status, &err);
        return 0;
    }
    size_t total = 0;
    for (size_t i = 0; i < sfp__safetensors_count(st); i++) {
        const sfp_tensor *t = sfp__safetensors_at(st, i);
        REQUIRE(t->bytes == t->count * sfp__dtype_size(t->dtype) && sfp__safetensors_find(st, t->name) == t);
        sink += touch(t->data, t->bytes);
        total += t->bytes;
        float *f = malloc(t->count * sizeof *f + 1);
        if (f)
            REQUIRE(sfp__tensor_to_f32("fuzz", t, f, &err) == SFP_OK);
        free(f);
    }
    REQUIRE(total <= size);
    for (size_t i = 0; i < sfp__safetensors_meta_count(st); i++) {
        const char *key, *value;
        sfp__safetensors_meta_at(st, i, &key, &value);
        REQUIRE(sfp__safetensors_meta(st, key) == value);
    }
    sfp__safetensors_close(st);
    return 0;
}
