/* A file of tensors that is written again and again, of which the one before stays beside it: checkpoints.
 *
 * It is written beside PATH from where the values lie, in one pass with its checksum: nothing large is copied. Only when all of
 * it is in the new file does the present PATH become PATH.old, by a second link to it, and then the new file PATH, so that at
 * every moment one whole file has one of the two names. A PATH that is damaged never takes the place of PATH.old.
 *
 * The last tensor, "checksum" (I32), is the CRC-32 of all bytes before it, header and metadata too. */
#ifndef SFP_IO_BACKED_FILE_H
#define SFP_IO_BACKED_FILE_H

#include "base/mem.h"
#include "io/file.h"
#include "io/tensor/safetensors.h"

/* Where the bytes of a tensor are when they are not together: n pieces, in order. */
typedef struct sfp__pieces {
    int n;
    void *(*at)(void *ctx, int i, size_t *bytes);
    void *ctx;
} sfp__pieces;

/* What goes into a file: names are copied, data is not. Whoever made it calls done. */
typedef struct sfp__tensor_list {
    sfp__tensor *list;
    sfp__pieces *pieces; /* (count) n 0: the data of the tensor */
    size_t count, capacity;
    sfp__arena arena; /* of names and of values that must last until the file is written */
} sfp__tensor_list;

sfp_status sfp__tensor_list_add(sfp__tensor_list *p, const sfp__tensor *t, const sfp__pieces *pieces, sfp_error *err);
void sfp__tensor_list_done(sfp__tensor_list *p);

/* The file last written or read, which is known to be whole as long as it is still the same one. All 0: none. */
typedef struct sfp__backed_file {
    uint64_t device, inode, size;
    int64_t seconds, nanoseconds; /* of its last change */
} sfp__backed_file;

sfp_status sfp__backed_file_write(sfp__backed_file *k, const char *path, sfp__tensor_list *parts, const sfp__meta *meta,
                                  size_t meta_count, sfp_error *err);

/* All of the file in a new block, when its checksum holds. It is read, not mapped: a bad sector is an error then, no signal. */
sfp_status sfp__backed_file_read(const char *path, uint8_t **bytes, size_t *size, sfp_error *err);

/* PATH by `read`, or when that is damaged or gone PATH.old (sfp__file_read_or_backup); what killed writers left behind goes. */
sfp_status sfp__backed_file_resume(sfp__backed_file *k, const char *path, sfp__file_reader read, void *ctx, bool *used_old,
                                   sfp_error *err);

#endif
