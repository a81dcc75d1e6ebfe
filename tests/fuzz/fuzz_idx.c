/* Arbitrary bytes as an IDX file, compressed or not: refused with a message, or the data has the size that its header gives. */
#include "base/mem.h"
#include "fuzz.h"
#include "stream/source_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char path[32];
    int fd = file_of(bytes, size, path);
    for (int ndim = 1; ndim <= 3; ndim += 2) {
        int64_t dims[3] = {1, 1, 1};
        uint8_t *body = NULL;
        sfp_error err = {0};
        if (accepted(sfp__idx_read(path, ndim, dims, &body, &err), &err))
            touch(body, (size_t)(dims[0] * dims[1] * dims[2]));
        else
            REQUIRE(body == NULL);
        sfp__free(body);
    }
    (void)close(fd);
    return 0;
}
