/* safetensors: 8 bytes of header length (little-endian), a JSON header, then the bytes of the tensors. The reader
 * checks every offset, length, overlap, gap, count x size and shape before it uses them. */
#ifndef SFP_IO_TENSOR_SAFETENSORS_H
#define SFP_IO_TENSOR_SAFETENSORS_H

#include "base/text.h"
#include "io/tensor/tensor_file.h"

/* Open a file of this format only; its tensors are in the order of their offsets. */
sfp_status sfp__safetensors_open(const char *path, sfp__tensor_file **out, sfp_error *err);
sfp_status sfp__safetensors_open_memory(const char *label, const void *bytes, size_t size, sfp__tensor_file **out,
                                        sfp_error *err);

/* Writes PATH atomically: PATH.tmp.PID in the same directory, fsync, rename, fsync of the directory. Tensors are written in the
 * given order without gaps, after a header padded to 8 bytes. A tensor is therefore aligned if the sizes before it are multiples
 * of its element size. On failure no file is left. */
sfp_status sfp__safetensors_write(const char *path, const sfp__tensor *tensors, size_t count, const sfp__meta *meta,
                                  size_t meta_count, sfp_error *err);

/* Appends the part of such a file before the tensors' bytes, for writers that write these bytes in pieces. They must follow in
 * the given order. `data` is only checked for NULL. */
sfp_status sfp__safetensors_header(const char *path, const sfp__tensor *tensors, size_t count, const sfp__meta *meta,
                                   size_t meta_count, sfp__text *out, sfp_error *err);

/* Computes the checksum for the metadata of a file, as text: the CRC-32 of `also` (NULL: nothing) and of the bytes of all tensors
 * in order. */
#define SFP__CHECKSUM_KEY "checksum"
enum { SFP__CHECKSUM_MAX = 16 };
void sfp__safetensors_sum(const char *also, size_t count, const sfp__tensor *tensors, char out[SFP__CHECKSUM_MAX]);
/* Verifies the checksum in the file's metadata; SFP_EFORMAT: it differs. A file without a checksum is accepted. */
sfp_status sfp__safetensors_check_sum(const sfp__tensor_file *f, const char *also, sfp_error *err);
/* Like sfp__safetensors_check_sum, for a checksum that the caller has computed. */
sfp_status sfp__safetensors_expect_sum(const sfp__tensor_file *f, const char *sum, sfp_error *err);

#endif
