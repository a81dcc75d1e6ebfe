/* Zip archives in memory: what PyTorch and NumPy wrap their arrays in.
 *
 * A stored member is a pointer into the archive, so that a mapped file of weights is used where it lies (a library that copies
 * members out would cost a second copy of the model). A deflated one is unpacked by its owner. Nothing is ever written to the
 * disk, and the names of members are only compared. */
#ifndef SFP_IO_TENSOR_ZIP_H
#define SFP_IO_TENSOR_ZIP_H

#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sfp_zip_member {
    const char *name;
    const uint8_t *data; /* (packed) */
    size_t packed, size; /* bytes in the archive, bytes unpacked; equal when stored */
    uint32_t crc;
    bool deflated;
} sfp_zip_member;

typedef struct sfp_zip {
    sfp_zip_member *members; /* (count) in the order of the directory */
    size_t count;
    char *label, *names;            /* the names in one block */
    const sfp_zip_member **by_name; /* (count) */
} sfp_zip;

/* Does it begin like one? */
bool sfp__zip_is(const void *bytes, size_t size);

/* Reads and checks the directory: every member lies inside, has a name of its own and is stored or deflated, and what they
 * unpack to is in proportion to the archive. The bytes must outlive the handle; `label` stands for the file in messages. */
sfp_status sfp__zip_open(const char *label, const void *bytes, size_t size, sfp_zip **out, sfp_error *err);
void sfp__zip_close(sfp_zip *z);
DEFINE_OWNED_PTR(sfp_zip, sfp__zip_close)

const sfp_zip_member *sfp__zip_find(const sfp_zip *z, const char *name); /* NULL: not there */

/* The bytes of a member, checked against its CRC. *owned is a block of sfp__malloc that holds them, for the caller to free, or
 * NULL when they lie in the archive. */
sfp_status sfp__zip_bytes(const sfp_zip *z, const sfp_zip_member *m, const uint8_t **bytes, uint8_t **owned, sfp_error *err);

#endif
