/* safetensors: 8 bytes header length (LE), a JSON header, then the tensors'
 * bytes. The reader maps the file and checks every offset, length, overlap,
 * gap, count x size and shape before anything is used; it trusts nothing. */
#ifndef SFP_IO_TENSOR_SAFETENSORS_H
#define SFP_IO_TENSOR_SAFETENSORS_H

#include "base/text.h"
#include "io/tensor/tensor_file.h"

/* Files of this format and no other; their tensors are in the order of their offsets. */
sfp_status sfp__safetensors_open(const char *path, sfp__tensor_file **out, sfp_error *err);
sfp_status sfp__safetensors_open_memory(const char *label, const void *bytes, size_t size, sfp__tensor_file **out,
                                        sfp_error *err);

/* Writes PATH atomically: PATH.tmp.PID in the same directory, fsync, rename, directory fsync. Tensors are written in
 * the order given without gaps after a header padded to 8 bytes, so each is aligned as long as the sizes before it are
 * multiples of its element's; on failure nothing is left behind. */
sfp_status sfp__safetensors_write(const char *path, const sfp__tensor *tensors, size_t count, const sfp__meta *meta,
                                  size_t meta_count, sfp_error *err);

/* Appends what comes before the tensors' bytes in such a file, for writers whose bytes lie in pieces: these follow in the order
 * given. `data` is only checked for NULL. */
sfp_status sfp__safetensors_header(const char *path, const sfp__tensor *tensors, size_t count, const sfp__meta *meta,
                                   size_t meta_count, sfp__text *out, sfp_error *err);

/* A checksum for the metadata of a file, as text: of `also` (NULL: nothing) and the bytes of all tensors in order. */
#define SFP_CHECKSUM_KEY "checksum"
enum { SFP_CHECKSUM_MAX = 16 };
void sfp__safetensors_sum(const char *also, size_t count, const sfp__tensor *tensors, char out[SFP_CHECKSUM_MAX]);
/* SFP_EFORMAT when what the file says is not so; a file that says nothing is taken as it is. */
sfp_status sfp__safetensors_check_sum(const sfp__tensor_file *f, const char *also, sfp_error *err);
/* The same for a file that makes its sum in another way: `sum` is what it comes to. */
sfp_status sfp__safetensors_expect_sum(const sfp__tensor_file *f, const char *sum, sfp_error *err);

#endif
