/* Any bytes as an npy file: refused with a message, or the array is the rest of the file. */
#include "fuzz.h"
#include "io/tensor/tensor_file.h"

static volatile unsigned sink;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    sfp_tensor_file *npy;
    sfp_error err = {0};
    sfp_status status = sfp__npy_open_memory("fuzz", bytes, size, &npy, &err);
    if (status != SFP_OK) {
        require_error(status, &err);
        return 0;
    }
    const sfp_tensor *t = &npy->tensors[0];
    REQUIRE((const uint8_t *)t->data + t->bytes == bytes + size);
    sink += touch(t->data, t->bytes);
    sfp__tensor_file_close(npy);
    return 0;
}
