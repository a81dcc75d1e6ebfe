/* Arbitrary bytes as a text matrix and as labels (`select`): refused with a message that names the file, or rows of equal
 * length. */
#include "cli/matrix.h"
#include "fuzz.h"

#include "base/mem.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    OWNED_BY(sfp__table_done) sfp__table t = {0};
    sfp_error err = {0};
    char path[32];
    int rows = -1, fd = file_of(bytes, size, path);
    OWNED int32_t *label = NULL;
    bool matrix = accepted(sfp__table_load(path, &t, &err), &err);
    if (matrix) {
        REQUIRE(t.rows > 0 && t.columns > 0 && (size_t)t.rows * (size_t)t.columns <= size);
        REQUIRE(!memchr(bytes, 0, size)); /* not a text */
        touch(t.x, (size_t)t.rows * (size_t)t.columns * sizeof *t.x);
    } else {
        REQUIRE(strncmp(err.message, path, strlen(path)) == 0);
        REQUIRE(!t.x && t.rows == 0 && t.columns == 0);
    }
    if (accepted(sfp__labels_load(path, &rows, &label, &err), &err)) {
        REQUIRE(matrix && t.columns == 1 && rows == t.rows);
        for (int i = 0; i < rows; i++)
            REQUIRE(label[i] >= 0 && (float)label[i] == t.x[i]);
    } else {
        REQUIRE(!label && rows == -1);
    }
    (void)close(fd);
    return 0;
}
