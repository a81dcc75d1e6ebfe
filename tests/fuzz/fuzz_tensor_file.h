/* Whatever a file of weights holds: refused with a message, or every tensor can be read and converted. */
#ifndef SFP_TESTS_FUZZ_TENSOR_FILE_H
#define SFP_TESTS_FUZZ_TENSOR_FILE_H

#include "fuzz.h"
#include "io/tensor/tensor_file.h"

static volatile unsigned sink;

static inline void read_tensors(const uint8_t *bytes, size_t size)
{
    sfp_tensor_file *f = NULL;
    sfp_error err = {0};
    sfp_status status = sfp__tensor_file_open_memory("fuzz", bytes, size, &f, &err);
    if (status != SFP_OK) {
        require_error(status, &err);
        REQUIRE(f == NULL);
        return;
    }
    for (size_t i = 0; i < f->count; i++) {
        const sfp_tensor *t = &f->tensors[i];
        REQUIRE(t->bytes == t->count * sfp__dtype_size(t->dtype) && sfp__tensor_file_find(f, t->name) == t);
        sink += touch(t->data, t->bytes);
        float *x = malloc(t->count * sizeof *x + 1);
        if (x)
            REQUIRE(sfp__tensor_to_f32("fuzz", t, x, &err) == SFP_OK);
        free(x);
    }
    sfp__tensor_file_close(f);
}

#endif
