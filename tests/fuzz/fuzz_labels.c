/* Arbitrary bytes as labels.csv of a watched directory. The parts of the input are appended one after the other, and what was
 * appended is read each time. This must give the same labels as reading the whole file once. */
#include "fuzz_files.h"
#include "stream/sources/dir.h"

#include <fcntl.h>
#include <limits.h>

typedef struct reading {
    sfp__dir_labels labels;
    sfp__names classes;
    uint64_t calls;
} reading;

static void begin(reading *r, const char *path)
{
    sfp_error err = {0};
    *r = (reading){0};
    REQUIRE(sfp__dir_labels_init(&r->labels, "", &err) == SFP_OK);
    sfp__free(r->labels.path);
    REQUIRE((r->labels.path = sfp__strdup(path)) != NULL);
}

static void end(reading *r)
{
    sfp__dir_labels_done(&r->labels);
    sfp__names_done(&r->classes);
}

static sfp_status receive(void *ctx, const char *name, int32_t label, sfp_error *err)
{
    reading *r = ctx;
    (void)err;
    REQUIRE(label >= 0 && label < r->classes.count && name[0] != '\0' && sfp__dir_labels_find(&r->labels, name) == label);
    r->calls++;
    return SFP_OK;
}

static void read_new(reading *r)
{
    sfp_error err = {0};
    REQUIRE(sfp__dir_labels_read(&r->labels, &r->classes, receive, r, &err) == SFP_OK);
    REQUIRE(r->labels.skipped <= r->labels.line && (r->labels.skipped == 0) == (r->labels.first_skipped == 0));
}

static void compare(const reading *a, const reading *b)
{
    REQUIRE(a->calls == b->calls && a->labels.line == b->labels.line && a->labels.skipped == b->labels.skipped &&
            a->labels.first_skipped == b->labels.first_skipped && a->labels.offset == b->labels.offset);
    REQUIRE(a->classes.count == b->classes.count && a->labels.images.count == b->labels.images.count);
    for (int i = 0; i < a->classes.count; i++)
        REQUIRE(strcmp(a->classes.name[i], b->classes.name[i]) == 0);
    for (int i = 0; i < a->labels.images.count; i++)
        REQUIRE(strcmp(a->labels.images.name[i], b->labels.images.name[i]) == 0 && a->labels.label[i] == b->labels.label[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const char *first = (const char *)bytes, *at = first;
    char path[32];
    int fd = file_of(bytes, 0, path);
    file_part part;
    reading pieces, whole;
    begin(&pieces, path);
    begin(&whole, path);
    while (next_part(&at, first, first + size, &part)) {
        REQUIRE(write(fd, part.bytes, part.size) == (ssize_t)part.size);
        read_new(&pieces);
    }
    pieces.labels.ended = whole.labels.ended = true;
    read_new(&pieces);
    read_new(&whole);
    compare(&pieces, &whole);
    end(&pieces);
    end(&whole);
    (void)close(fd);
    return 0;
}
