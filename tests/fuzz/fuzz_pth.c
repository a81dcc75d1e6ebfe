/* Arbitrary bytes as a PyTorch file and as the pickle of a file with two storages. The latter avoids that checksums reject
 * every mutation. */
#include "fuzz_tensor_file.h"

#include "../unit/zip_make.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    KEPT_IN_BLOCK;
    static const uint8_t storage[96] = {1, 2, 3};
    zip_made z = {0};
    read_tensors(bytes, size);
    zip_add(&z, "archive/data.pkl", bytes, size, false);
    zip_add(&z, "archive/data/0", storage, sizeof storage, false);
    zip_add(&z, "archive/data/1", storage, 16, size % 2);
    zip_end(&z);
    read_tensors(z.file.bytes, z.file.size);
    return 0;
}
