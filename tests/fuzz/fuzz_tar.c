/* Arbitrary bytes as a WebDataset shard, from a file and as a stream: refused with a message, or every image can be read. */
#include "fuzz.h"
#include "stream/source_internal.h"

static void check_label(const sfp_source *s, const sfp_record *r)
{
    REQUIRE(r->label >= -1 && r->label < s->classes);
    if (r->label >= 0)
        REQUIRE(s->class_names[r->label][0] != '\0');
}

static void read_indexed(const char *path)
{
    sfp_source *s = NULL;
    sfp_error err = {0};
    sfp__source_options opt = {0};
    if (!accepted(sfp__source_tar.open(path, &opt, &s, &err), &err))
        return;
    REQUIRE(s->count > 0);
    for (int64_t i = 0; i < s->count; i++) {
        sfp_record r;
        sfp__raw_image p = {0};
        char name[64];
        REQUIRE(sfp__source_record(s, i, &r, &err) == SFP_OK && sfp__source_name(s, i, name, sizeof name) == name);
        check_label(s, &r);
        if (accepted(sfp__source_load(s, i, &p, &err), &err))
            touch(p.bytes, p.size);
        sfp__raw_image_done(&p);
    }
    sfp__source_close(s);
}

static void read_stream(int fd)
{
    sfp_source *s = NULL;
    sfp_error err = {0};
    REQUIRE(sfp__tar_stream_open(fd, "", &s, &err) == SFP_OK);
    for (bool end = false; !end;) {
        sfp_record r;
        sfp__raw_image p = {0};
        if (!accepted(sfp__source_next(s, &r, &p, &end, &err), &err))
            break;
        if (!end) {
            check_label(s, &r);
            touch(p.bytes, p.size);
        }
        sfp__raw_image_done(&p);
    }
    sfp__source_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char path[32];
    int fd = file_of(bytes, size, path);
    read_indexed(path);
    read_stream(fd);
    (void)close(fd);
    return 0;
}
