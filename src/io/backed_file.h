/* A tensor file that is written repeatedly and whose previous version is kept as a backup: a checkpoint.
 *
 * The new file is written beside PATH, straight from the memory of the tensors and in one pass with its checksum, so that no
 * large data is copied. Only when the new file is complete does PATH become PATH.old, by a hard link, and then the new file PATH.
 * Therefore at least one of the two names always refers to a complete file. A damaged PATH never replaces PATH.old.
 *
 * The last tensor, "checksum" (I32), is the CRC-32 of all bytes before it, including header and metadata. */
#ifndef SFP_IO_BACKED_FILE_H
#define SFP_IO_BACKED_FILE_H

#include "base/mem.h"
#include "io/file.h"
#include "io/tensor/safetensors.h"

/* The location of a tensor's bytes that are not contiguous: n pieces, in order. */
typedef struct sfp__pieces {
    int n;
    void *(*at)(void *ctx, int i, size_t *bytes);
    void *ctx;
} sfp__pieces;

/* The tensors to be written to a file. Names are copied, data is not. The creator must call sfp__tensor_list_done. */
typedef struct sfp__tensor_list {
    sfp__tensor *list;
    sfp__pieces *pieces; /* (count) n is 0: the data of the tensor is contiguous */
    size_t count, capacity;
    sfp__arena arena; /* holds the names, and values that must last until the file is written */
} sfp__tensor_list;

sfp_status sfp__tensor_list_add(sfp__tensor_list *p, const sfp__tensor *t, const sfp__pieces *pieces, sfp_error *err);
void sfp__tensor_list_done(sfp__tensor_list *p);

/* Identifies the file that was last written or read and is known to be undamaged, until the file changes. All 0: none. */
typedef struct sfp__backed_file {
    uint64_t device, inode, size;
    int64_t seconds, nanoseconds; /* time of its last modification */
} sfp__backed_file;

sfp_status sfp__backed_file_write(sfp__backed_file *k, const char *path, sfp__tensor_list *tensors, const sfp__meta *meta,
                                  size_t meta_count, sfp_error *err);

/* Reads the whole file into a new block and verifies its checksum. The file is read and not mapped, so that a bad sector causes
 * an error and not a signal. */
sfp_status sfp__backed_file_read(const char *path, uint8_t **bytes, size_t *size, sfp_error *err);
/* Verifies the checksum of such a file that is in memory. */
sfp_status sfp__backed_file_check(const char *path, const void *bytes, size_t size, sfp_error *err);

/* Reads PATH with `read`, or PATH.old if PATH is damaged or missing (sfp__file_read_or_backup). First removes the temporary files
 * of killed writers. */
sfp_status sfp__backed_file_resume(sfp__backed_file *k, const char *path, sfp__file_reader read, void *ctx, bool *used_old,
                                   sfp_error *err);

#endif
