/* Arbitrary bytes as labels.csv of a watched directory. The parts of the input are appended one after the other, and what was
 * appended is read each time. This must give the same labels as reading the whole file once. */
#include "fuzz_files.h"
#include "stream/sources/dir.h"

#include <fcntl.h>
#include <limits.h>

typedef struct reading {
    sfp__dir_labels labels;
    uint64_t calls;
    sfp__digest lines; /* of all names and labels, in order */
} reading;

static void begin(reading *r, const char *path)
{
    sfp_error err = {0};
    *r = (reading){0};
    REQUIRE(sfp__dir_labels_init(&r->labels, "", &err) == SFP_OK);
    sfp__free(r->labels.path);
    REQUIRE((r->labels.path = sfp__strdup(path)) != NULL);
}

static sfp_status receive(void *ctx, const char *name, const char *label, sfp_error *err)
{
    reading *r = ctx;
    (void)err;
    REQUIRE(name[0] && strlen(name) <= SFP__PATH_BYTES_MAX && sfp__utf8_valid(name));
    REQUIRE(label[0] && strlen(label) <= SFP__CLASS_NAME_MAX && sfp__utf8_valid(label));
    r->lines = sfp__digest_bytes(r->lines, name, strlen(name) + 1);
    r->lines = sfp__digest_bytes(r->lines, label, strlen(label) + 1);
    r->calls++;
    return SFP_OK;
}

static void read_new(reading *r)
{
    sfp_error err = {0};
    REQUIRE(sfp__dir_labels_read(&r->labels, receive, r, &err) == SFP_OK);
    REQUIRE(r->labels.skipped <= r->labels.at.line + 1 && (r->labels.skipped == 0) == (r->labels.first_skipped == 0));
}

static void compare(const reading *a, const reading *b)
{
    REQUIRE(a->calls == b->calls && sfp__digest_equal(&a->lines, &b->lines));
    REQUIRE(a->labels.skipped == b->labels.skipped && a->labels.first_skipped == b->labels.first_skipped);
    REQUIRE(a->labels.at.line == b->labels.at.line && a->labels.at.offset == b->labels.at.offset &&
            a->labels.at.crc == b->labels.at.crc);
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
    sfp__dir_labels_done(&pieces.labels);
    sfp__dir_labels_done(&whole.labels);
    (void)close(fd);
    return 0;
}
