/* safetensors: 8 bytes header length (LE), a JSON header, then the tensors'
 * bytes. The reader maps the file and checks every offset, length, overlap,
 * gap, count x size and shape before anything is used; it trusts nothing. */
#ifndef SFP_IO_SAFETENSORS_H
#define SFP_IO_SAFETENSORS_H

#include "base/mem.h"
#include "base/text.h"
#include "io/tensor.h"

typedef struct sfp_safetensors sfp_safetensors;

sfp_status sfp__safetensors_open(const char *path, sfp_safetensors **out, sfp_error *err);
/* The same checks on bytes in memory (which must outlive the handle); `label` stands for the file in messages. */
sfp_status sfp__safetensors_open_memory(const char *label, const void *bytes, size_t size, sfp_safetensors **out, sfp_error *err);
void sfp__safetensors_close(sfp_safetensors *st);
DEFINE_OWNED_PTR(sfp_safetensors, sfp__safetensors_close)

const char *sfp__safetensors_path(const sfp_safetensors *st);
size_t sfp__safetensors_count(const sfp_safetensors *st);
const sfp_tensor *sfp__safetensors_at(const sfp_safetensors *st, size_t i);           /* in order of offset */
const sfp_tensor *sfp__safetensors_find(const sfp_safetensors *st, const char *name); /* NULL: not there */
sfp_status sfp__safetensors_need(const sfp_safetensors *st, const char *name, const sfp_tensor **out, sfp_error *err);

/* __metadata__: strings to strings; NULL when absent. */
const char *sfp__safetensors_meta(const sfp_safetensors *st, const char *key);
size_t sfp__safetensors_meta_count(const sfp_safetensors *st);
void sfp__safetensors_meta_at(const sfp_safetensors *st, size_t i, const char **key, const char **value);

/* Tells the kernel that the mapped pages are not needed for now (they come back when read). */
void sfp__safetensors_release(const sfp_safetensors *st);

typedef struct sfp_meta {
    const char *key, *value;
} sfp_meta;

/* Writes PATH atomically: PATH.tmp.PID in the same directory, fsync, rename, directory fsync. Tensors are written in
 * the order given without gaps after a header padded to 8 bytes, so each is aligned as long as the sizes before it are
 * multiples of its element's; on failure nothing is left behind. */
sfp_status sfp__safetensors_write(const char *path, const sfp_tensor *tensors, size_t count, const sfp_meta *meta,
                                  size_t meta_count, sfp_error *err);

/* Appends what comes before the tensors' bytes in such a file, for writers whose bytes lie in pieces: these follow in the order
 * given. `data` is only checked for NULL. */
sfp_status sfp__safetensors_header(const char *path, const sfp_tensor *tensors, size_t count, const sfp_meta *meta,
                                   size_t meta_count, sfp_text *out, sfp_error *err);

/* A checksum for the metadata of a file, as text: of `also` (NULL: nothing) and the bytes of all tensors in order. */
#define SFP_CHECKSUM_KEY "checksum"
enum { SFP_CHECKSUM_MAX = 16 };
void sfp__safetensors_sum(const char *also, size_t count, const sfp_tensor *tensors, char out[SFP_CHECKSUM_MAX]);
/* SFP_EFORMAT when what the file says is not so; a file that says nothing is taken as it is. */
sfp_status sfp__safetensors_check_sum(const sfp_safetensors *st, const char *also, sfp_error *err);
/* The same for a file that makes its sum in another way: `sum` is what it comes to. */
sfp_status sfp__safetensors_expect_sum(const sfp_safetensors *st, const char *sum, sfp_error *err);

#endif
