/* Runs a fuzz target over every file of the given directories, as libFuzzer does with -runs=0, for builds without libFuzzer. If the
 * target has a mutator (mutate.h), it also runs some mutations of every file, always the same ones. */
#include "mutate.h"

#include <dirent.h>
#include <sys/stat.h>

enum { MUTATIONS = 8, ROOM = 4096 }; /* per file; bytes by which an input may grow */

#pragma weak LLVMFuzzerCustomMutator
#pragma weak LLVMFuzzerInitialize
int LLVMFuzzerInitialize(int *argc, char ***argv);

static sfp__rng rng; /* of the mutations of one file */

/* Changes some bytes; a small version of the function of libFuzzer. */
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t size, size_t max_size)
{
    if (size < max_size && one_in(&rng, 3)) {
        size_t at = below(&rng, size + 1);
        memmove(bytes + at + 1, bytes + at, size++ - at);
    }
    if (size > 0)
        bytes[below(&rng, size)] = (uint8_t)sfp__rng_below(&rng, 256);
    return size;
}

/* Runs a copy of exactly this size, so that a read beyond it is detected. */
static void run_bytes(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    REQUIRE(copy);
    memcpy(copy, bytes, size);
    (void)LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static int run_file(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return 0;
    size_t size = (size_t)st.st_size, room = size + ROOM;
    uint8_t *bytes = malloc(room), *changed = malloc(room);
    FILE *f = fopen(path, "rb");
    if (!bytes || !changed || !f || fread(bytes, 1, size, f) != size) {
        (void)fprintf(stderr, "%s: cannot read\n", path);
        exit(1);
    }
    (void)fclose(f);
    run_bytes(bytes, size);
    rng = sfp__rng_init(size, 0);
    for (unsigned seed = 0; LLVMFuzzerCustomMutator && seed < MUTATIONS; seed++) {
        memcpy(changed, bytes, size);
        run_bytes(changed, LLVMFuzzerCustomMutator(changed, size, room, seed));
    }
    free(bytes);
    free(changed);
    return 1;
}

int main(int argc, char **argv)
{
    int files = 0;
    if (LLVMFuzzerInitialize)
        (void)LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        if (!dir) {
            (void)fprintf(stderr, "%s: cannot open the directory\n", argv[i]);
            return 1;
        }
        for (struct dirent *entry; (entry = readdir(dir));) {
            char path[4096];
            (void)snprintf(path, sizeof path, "%s/%s", argv[i], entry->d_name);
            files += run_file(path);
        }
        (void)closedir(dir);
    }
    (void)printf("%d files\n", files);
    return files > 0 ? 0 : 1; /* an empty corpus tests nothing */
}
