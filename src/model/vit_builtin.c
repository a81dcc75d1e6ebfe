#include "io/tensor/tensor_file.h"
#include "model/vit.h"

#ifdef SFP_BUILTIN_FILE

/* The assembler includes the file: this avoids a generated source of 30 MB, and the loader maps it like any other page of the
 * binary. */
__asm__(".pushsection .rodata.sfp_builtin, \"a\"\n"
        ".balign 64\n"
        ".local sfp_builtin_begin\n"
        "sfp_builtin_begin:\n"
        ".incbin \"" SFP_BUILTIN_FILE "\"\n"
        ".local sfp_builtin_end\n"
        "sfp_builtin_end:\n"
        ".popsection\n");
extern const uint8_t sfp_builtin_begin[] __attribute__((visibility("hidden"))),
    sfp_builtin_end[] __attribute__((visibility("hidden")));

bool sfp__vit_has_builtin(void)
{
    return true;
}

sfp_status sfp__vit_builtin_open(sfp__tensor_file **out, sfp_error *err)
{
    size_t size = 0;
    const uint8_t *bytes = sfp__vit_builtin_bytes(&size);
    return sfp__tensor_file_open_memory(SFP__VIT_BUILTIN, bytes, size, out, err);
}

const uint8_t *sfp__vit_builtin_bytes(size_t *size)
{
    *size = (size_t)(sfp_builtin_end - sfp_builtin_begin);
    return sfp_builtin_begin;
}

#else

bool sfp__vit_has_builtin(void)
{
    return false;
}

sfp_status sfp__vit_builtin_open(sfp__tensor_file **out, sfp_error *err)
{
    (void)out;
    return sfp__fail(err, SFP_ENOTFOUND,
                     "builtin: this program has no built-in backbone, because models/builtin.safetensors was missing when it was "
                     "built; choose a file");
}

const uint8_t *sfp__vit_builtin_bytes(size_t *size)
{
    (void)size;
    return NULL;
}

#endif
