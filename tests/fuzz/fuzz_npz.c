/* Arbitrary bytes as an archive and as the arrays of an archive. The latter avoids that checksums reject every mutation. */
#include "fuzz_tensor_file.h"

#include "../unit/zip_make.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    KEPT_IN_BLOCK;
    zip_made z = {0};
    read_tensors(bytes, size);
    zip_add(&z, "a.npy", bytes, size / 2, false);
    zip_add(&z, "b.npy", bytes + size / 2, size - size / 2, true);
    zip_end(&z);
    read_tensors(z.file.bytes, z.file.size);
    return 0;
}
