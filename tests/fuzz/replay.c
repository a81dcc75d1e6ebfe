/* Runs a fuzz target over every file of the given directories, as libFuzzer does with -runs=0, for builds without libFuzzer. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static int run_file(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return 0;
    size_t size = (size_t)st.st_size;
    uint8_t *bytes = malloc(size ? size : 1); /* exact size: a read beyond it is detected */
    FILE *f = fopen(path, "rb");
    if (!bytes || !f || fread(bytes, 1, size, f) != size) {
        (void)fprintf(stderr, "%s: cannot read\n", path);
        exit(1);
    }
    (void)fclose(f);
    (void)LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
    return 1;
}

int main(int argc, char **argv)
{
    int files = 0;
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
