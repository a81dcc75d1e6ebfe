/* Arbitrary metadata of CLEAR: refused with a message, or every image has a class, a task and a bucket. */
#include "fuzz_source.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char *const names[] = {"train/labeled_metadata.json",
                                        "train/class_names.txt",
                                        "train/a.json",
                                        "train/b.json",
                                        "class_names.txt",
                                        "test/labeled_metadata.json",
                                        "test/class_names.txt",
                                        "test/a.json",
                                        NULL};
    write_parts(bytes, size, names, NULL);
    for (int test = 0; test < 2; test++) {
        sfp__source_options opt = {.test = test, .order = (int)(size % 3) - 1, .seed = 7};
        open_and_check(&sfp__source_clear10, directory, opt);
        open_and_check(&sfp__source_clear100, directory, opt);
    }
    clear_directory(directory);
    return 0;
}
