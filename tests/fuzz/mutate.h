/* Mutators that know the format of an input. They change one part of a valid input and repair what depends on it (lengths, offsets,
 * checksums), so that the code behind these checks is reached. A target has the mutator with which it is linked (CMakeLists.txt):
 *
 *     mutate_tensors.c   safetensors, with the checksum of a state or a checkpoint
 *     mutate_tar.c       tar, with the checksums of its headers
 *     mutate_text.c      files of lines, fields and JSON; several files in one input (fuzz_files.h)
 *
 * libFuzzer calls them; in other builds replay.c does. */
#ifndef SFP_TESTS_FUZZ_MUTATE_H
#define SFP_TESTS_FUZZ_MUTATE_H

#include "base/rng.h"
#include "base/text.h"
#include "fuzz.h"

#include <string.h>

/* Changes bytes without any knowledge of the format. Returns the new size. */
size_t LLVMFuzzerMutate(uint8_t *bytes, size_t size, size_t max_size);
/* Changes an input in place. Returns the new size. */
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t max_size, unsigned seed);

/* Returns true once in n times. */
static inline bool one_in(sfp__rng *rng, uint32_t n)
{
    return sfp__rng_below(rng, n) == 0;
}

static inline size_t below(sfp__rng *rng, size_t n)
{
    return n ? sfp__rng_below(rng, (uint32_t)n) : 0;
}

/* Returns n bytes, changed and of another length; *n becomes the new length. The caller frees them. */
static inline char *changed_bytes(const char *s, size_t *n)
{
    size_t room = *n + 64;
    char *copy = malloc(room + 1);
    REQUIRE(copy);
    if (*n)
        memcpy(copy, s, *n);
    *n = LLVMFuzzerMutate((uint8_t *)copy, *n, room);
    copy[*n] = '\0';
    return copy;
}

/* Writes the new input over the old one and frees it. If it is too long, the old bytes are changed without knowledge instead. */
static inline size_t replace_input(uint8_t *bytes, size_t size, size_t max_size, sfp__text *with)
{
    REQUIRE(!with->failed);
    size_t n = with->length;
    bool fits = n > 0 && n <= max_size;
    if (fits)
        memcpy(bytes, with->s, n);
    sfp__text_done(with);
    return fits ? n : LLVMFuzzerMutate(bytes, size, max_size);
}

#endif
