/* Arbitrary bytes as a safetensors file: refused with a message, or all tensors are inside the file and do not overlap. */
#include "fuzz_tensor_file.h"
#include "io/tensor/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *st = NULL;
    sfp_error err = {0};
    if (!accepted(sfp__safetensors_open_memory("fuzz", bytes, size, &st, &err), &err))
        return 0;
    REQUIRE(check_tensors(st) <= size);
    for (size_t i = 0; i < st->meta_count; i++)
        REQUIRE(sfp__tensor_file_meta(st, st->meta[i].key) == st->meta[i].value);
    return 0;
}
