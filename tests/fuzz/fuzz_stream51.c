/* Arbitrary metadata of Stream-51: refused with a message, or every image has a class and a task. */
#include "fuzz_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char *const names[] = {"Stream-51_meta_train.json", "Stream-51_meta_test.json", NULL};
    write_parts(bytes, size, names, NULL);
    for (int test = 0; test < 2; test++)
        open_and_check(&sfp__source_stream51, directory,
                       (sfp__source_options){.test = test, .order = (int)(size % 3) - 1, .seed = 7});
    clear_directory(directory);
    return 0;
}
