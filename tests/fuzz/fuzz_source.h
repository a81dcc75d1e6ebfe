/* Checks of an opened source, and the directory of sources that read several files. */
#ifndef SFP_TESTS_FUZZ_SOURCE_H
#define SFP_TESTS_FUZZ_SOURCE_H

#include "fuzz_directory.h"
#include "fuzz_files.h"
#include "stream/source_internal.h"
#include "stream/tasks.h"

#include <limits.h>
#include <sys/stat.h>

/* Checks every record and the tasks that follow from them, then closes the source. */
static inline void check_and_close(sfp_source *s)
{
    sfp_error err = {0};
    uint64_t digest = 0, unlabelled = 0;
    REQUIRE(s->count > 0);
    for (int64_t i = 0; i < s->count; i++) {
        sfp_record r;
        char name[64];
        REQUIRE(sfp__source_record(s, i, &r, &err) == SFP_OK);
        REQUIRE(r.label >= -1 && r.label < s->classes && r.domain >= -1 && r.domain < s->domains && r.task >= -1 &&
                !isinf(r.time));
        REQUIRE(sfp__source_name(s, i, name, sizeof name)[0] != '\0');
    }
    for (int k = 0; k < s->classes; k++)
        REQUIRE(s->class_names[k][0] != '\0');
    REQUIRE(sfp__source_digest(s, &digest, &err) == SFP_OK && digest != 0);
    static const char *const specs[] = {NULL, "2", "domain", "time", "given"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        sfp__tasks tasks = {0};
        if (accepted(sfp__tasks_create(s, specs[i], NULL, &unlabelled, &tasks, &err), &err))
            sfp__tasks_done(&tasks);
    }
    sfp__source_close(s);
}

static inline void open_and_check(const sfp__source_kind *kind, const char *path, sfp__source_options opt)
{
    sfp_source *s = NULL;
    sfp_error err = {0};
    bool opened = accepted(kind->open(path, &opt, &s, &err), &err);
    REQUIRE(opened == (s != NULL));
    if (opened)
        check_and_close(s);
}

/* Creates the parent directories of a file. */
static inline void make_parents(char *path)
{
    for (char *p = path + strlen(directory) + 1; (p = strchr(p, '/')); *p++ = '/') {
        *p = '\0';
        REQUIRE(mkdir(path, 0777) == 0 || access(path, F_OK) == 0);
    }
}

/* Writes the parts of an input whose names are in the list (it ends with NULL) to a directory of its own. Others are ignored, so
 * that no input names a file elsewhere. write_file converts the contents; NULL: they are written as they are. */
static inline void write_parts(const uint8_t *bytes, size_t size, const char *const *names,
                               void (*write_file)(FILE *to, const char *bytes, size_t size))
{
    const char *begin = (const char *)bytes, *at = begin;
    file_part part;
    make_directory();
    while (next_part(&at, begin, begin + size, &part)) {
        char path[PATH_MAX];
        const char *const *name = names;
        while (*name && (strlen(*name) != part.name_length || memcmp(*name, part.name, part.name_length) != 0))
            name++;
        if (!*name)
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", directory, *name);
        make_parents(path);
        FILE *f = fopen(path, "wb");
        REQUIRE(f);
        if (write_file)
            write_file(f, part.bytes, part.size);
        else
            REQUIRE(fwrite(part.bytes, 1, part.size, f) == part.size);
        REQUIRE(fclose(f) == 0);
    }
}

#endif
