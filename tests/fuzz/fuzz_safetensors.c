/* Any bytes as a safetensors file: refused with a message, or every tensor lies inside, once. */
#include "fuzz.h"
#include "io/tensor/safetensors.h"

static volatile unsigned sink;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    sfp_tensor_file *st;
    sfp_error err = {0};
    sfp_status status = sfp__safetensors_open_memory("fuzz", bytes, size, &st, &err);
    if (status != SFP_OK) {
        require_error(status, &err);
        return 0;
    }
    size_t total = 0;
    for (size_t i = 0; i < st->count; i++) {
        const sfp_tensor *t = &st->tensors[i];
        REQUIRE(t->bytes == t->count * sfp__dtype_size(t->dtype) && sfp__tensor_file_find(st, t->name) == t);
        sink += touch(t->data, t->bytes);
        total += t->bytes;
        float *f = malloc(t->count * sizeof *f + 1);
        if (f)
            REQUIRE(sfp__tensor_to_f32("fuzz", t, f, &err) == SFP_OK);
        free(f);
    }
    REQUIRE(total <= size);
    for (size_t i = 0; i < st->meta_count; i++) {
        const char *key = st->meta[i].key, *value = st->meta[i].value;
        REQUIRE(sfp__tensor_file_meta(st, key) == value);
    }
    sfp__tensor_file_close(st);
    return 0;
}
