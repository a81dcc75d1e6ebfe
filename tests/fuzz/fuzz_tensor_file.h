/* Arbitrary weight files: refused with a message, or every tensor can be read and converted. */
#ifndef SFP_TESTS_FUZZ_TENSOR_FILE_H
#define SFP_TESTS_FUZZ_TENSOR_FILE_H

#include "fuzz.h"
#include "io/tensor/tensor_file.h"

/* Returns the total size of all tensors in bytes. */
static inline size_t check_tensors(const sfp__tensor_file *f)
{
    size_t total = 0;
    for (size_t i = 0; i < f->count; i++) {
        const sfp__tensor *t = &f->tensors[i];
        sfp_error err = {0};
        REQUIRE(t->bytes == t->count * sfp__dtype_size(t->dtype) && sfp__tensor_file_find(f, t->name) == t);
        touch(t->data, t->bytes);
        total += t->bytes;
        float *x = malloc(t->count * sizeof *x + 1);
        if (x)
            REQUIRE(sfp__tensor_to_f32("fuzz", t, x, &err) == SFP_OK);
        free(x);
    }
    return total;
}

static inline void read_tensors(const uint8_t *bytes, size_t size)
{
    OWNED_PTR(sfp__tensor_file_close) sfp__tensor_file *f = NULL;
    sfp_error err = {0};
    if (accepted(sfp__tensor_file_open_memory("fuzz", bytes, size, &f, &err), &err))
        (void)check_tensors(f);
    else
        REQUIRE(f == NULL);
}

#endif
