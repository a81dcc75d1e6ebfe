/* Any bytes as a text matrix and as labels (`select`): refused with a message that names the file, or rows of equal length. */
#include "cli/matrix.h"
#include "fuzz_file.h"

#include "base/mem.h"

#include <string.h>

static volatile float sink;

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    sfp_table t = {0};
    sfp_error err = {0};
    char path[32];
    int rows = -1, fd = file_of(bytes, size, path);
    int32_t *label = NULL;
    sfp_status status = sfp__table_load(path, &t, &err);
    if (status != SFP_OK) {
        require_error(status, &err);
        REQUIRE(strncmp(err.message, path, strlen(path)) == 0);
        REQUIRE(!t.x && t.rows == 0 && t.columns == 0);
    } else {
        REQUIRE(t.rows > 0 && t.columns > 0 && (size_t)t.rows * (size_t)t.columns <= size);
        REQUIRE(!memchr(bytes, 0, size)); /* is no text */
        for (int64_t i = 0; i < (int64_t)t.rows * t.columns; i++)
            sink = t.x[i];
    }
    sfp_status as_labels = sfp__labels_load(path, &rows, &label, &err);
    if (as_labels == SFP_OK) {
        REQUIRE(status == SFP_OK && t.columns == 1 && rows == t.rows);
        for (int i = 0; i < rows; i++)
            REQUIRE(label[i] >= 0 && (float)label[i] == t.x[i]);
    } else {
        require_error(as_labels, &err);
        REQUIRE(!label && rows == -1);
    }
    sfp__free(label);
    sfp__table_done(&t);
    (void)close(fd);
    return 0;
}
