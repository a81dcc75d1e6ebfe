/* Arbitrary bytes as an npy file: refused with a message, or the array is the rest of the file. */
#include "fuzz_tensor_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *npy = NULL;
    sfp_error err = {0};
    if (!accepted(sfp__npy_open_memory("fuzz", bytes, size, &npy, &err), &err))
        return 0;
    const sfp__tensor *t = &npy->tensors[0];
    REQUIRE((const uint8_t *)t->data + t->bytes == bytes + size);
    check_tensors(npy);
    return 0;
}
