/* Changes an entry of a tar: a field of its header, its bytes, or its place. Then the checksums of all headers are repaired. */
#include "mutate.h"

enum { BLOCK = 512, ENTRIES = 256, SUM_AT = 148, SUM_SIZE = 8, SIZE_AT = 124, SIZE_SIZE = 12, TYPE_AT = 156 };

typedef struct entry {
    const uint8_t *header;
    size_t body; /* bytes of whole blocks behind the header */
} entry;

static uint64_t octal(const uint8_t *s, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n && s[i] >= '0' && s[i] <= '7'; i++)
        v = v * 8 + (s[i] - '0');
    return v;
}

static void put_octal(uint8_t *field, size_t n, uint64_t v)
{
    for (size_t i = n - 1; i-- > 0; v /= 8)
        field[i] = (uint8_t)('0' + v % 8);
    field[n - 1] = '\0';
}

/* Finds the entries: a header and as many blocks as it says, or as there are. */
static size_t find_entries(const uint8_t *bytes, size_t size, entry *list)
{
    size_t count = 0;
    for (size_t at = 0; at + BLOCK <= size && count < ENTRIES; count++) {
        uint64_t blocks = bytes[at] ? (octal(bytes + at + SIZE_AT, SIZE_SIZE) + BLOCK - 1) / BLOCK : 0,
                 rest = size / BLOCK - at / BLOCK - 1;
        list[count] = (entry){bytes + at, (size_t)(blocks < rest ? blocks : rest) * BLOCK};
        at += BLOCK + list[count].body;
    }
    return count;
}

static void repair_sum(uint8_t *header)
{
    uint64_t sum = 0;
    memset(header + SUM_AT, ' ', SUM_SIZE);
    for (int i = 0; i < BLOCK; i++)
        sum += header[i];
    put_octal(header + SUM_AT, SUM_SIZE - 1, sum);
}

/* Changes one field of a header. */
static void change_header(sfp__rng *rng, uint8_t *header)
{
    static const struct {
        size_t at, size;
    } fields[] = {{0, 100}, {100, 8}, {SIZE_AT, SIZE_SIZE}, {136, 12}, {TYPE_AT, 1}, {157, 100}, {257, 8}, {345, 155}, {386, 97}};
    static const char types[] = "0123456789xgLKSVD\0\x7f", *const names[] = {".jpg", ".cls", ".txt", ".json",
                                                                             ".png", ".",    "/",    "a/b.jpg"};
    size_t k = below(rng, sizeof fields / sizeof *fields);
    uint8_t *field = header + fields[k].at;
    const char *name = names[below(rng, sizeof names / sizeof *names)];
    if (fields[k].at == SIZE_AT && !one_in(rng, 4)) {
        static const uint64_t sizes[] = {0, 1, 511, 512, 513, 1 << 20, UINT64_C(077777777777), UINT64_C(1) << 32};
        put_octal(field, fields[k].size, one_in(rng, 2) ? below(rng, 2048) : sizes[below(rng, 8)]);
    } else if (fields[k].at == TYPE_AT) {
        *field = (uint8_t)types[below(rng, sizeof types)];
    } else if (fields[k].size >= 97 && one_in(rng, 2)) { /* the end of a name decides what the entry is */
        size_t n = strnlen((const char *)field, fields[k].size - 8);
        memcpy(field + (one_in(rng, 2) ? 0 : n), name, strlen(name) + 1);
    } else {
        (void)LLVMFuzzerMutate(field, fields[k].size, fields[k].size);
    }
}

/* Appends a body with bytes of a pax header, a label, or changed ones, and writes its size to the header. */
static void change_body(sfp__rng *rng, uint8_t *header, const entry *e, sfp__text *out)
{
    static const char *const bodies[] = {"18 path=bb/cc.jpg\n",
                                         "12 size=600\n",
                                         "21 size=99999999999\n",
                                         "0 path=a\n",
                                         "9999 path=a\n",
                                         "11 path=\n",
                                         "30 GNU.sparse.name=a/very.jpg\n",
                                         "{\"label\": \"a\"}",
                                         "{\"label\": 3}",
                                         "[1]",
                                         "cat\n",
                                         "7",
                                         "-1",
                                         "\xff",
                                         "a\nb",
                                         "99999999999999999999"};
    size_t n = octal(header + SIZE_AT, SIZE_SIZE);
    n = n < e->body ? n : e->body;
    char *bytes = NULL;
    const char *chosen = bodies[below(rng, sizeof bodies / sizeof *bodies)];
    if (one_in(rng, 2)) {
        bytes = changed_bytes((const char *)e->header + BLOCK, &n);
        chosen = bytes;
    } else {
        n = strlen(chosen);
    }
    put_octal(header + SIZE_AT, SIZE_SIZE, n);
    sfp__text_putn(out, chosen, n);
    sfp__text_fill(out, '\0', (BLOCK - n % BLOCK) % BLOCK);
    free(bytes);
}

static void put_entry(sfp__rng *rng, const entry *e, bool changed, sfp__text *out)
{
    uint8_t header[BLOCK];
    sfp__text body = {0};
    memcpy(header, e->header, BLOCK);
    if (changed && one_in(rng, 2))
        change_body(rng, header, e, &body);
    else if (changed)
        change_header(rng, header);
    if (!body.s)
        sfp__text_putn(&body, (const char *)e->header + BLOCK, e->body);
    if (header[0])
        repair_sum(header);
    sfp__text_putn(out, (const char *)header, BLOCK);
    sfp__text_putn(out, body.s ? body.s : "", body.length);
    sfp__text_done(&body);
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t max_size, unsigned seed)
{
    static entry list[ENTRIES];
    sfp__rng rng = sfp__rng_init(seed, 0);
    sfp__text out = {0};
    size_t count = find_entries(bytes, size, list), chosen = below(&rng, count), other = below(&rng, count),
           what = below(&rng, 10);
    if (count == 0 || one_in(&rng, 16))
        return LLVMFuzzerMutate(bytes, size, max_size);
    for (size_t i = 0; i < count; i++) {
        if (i == chosen && what == 0)
            continue;
        put_entry(&rng, &list[i], i == chosen && what > 2, &out);
        if (i == chosen && (what == 1 || what == 2))
            put_entry(&rng, &list[what == 1 ? i : other], false, &out);
    }
    const entry *last = &list[count - 1];
    const uint8_t *rest = last->header + BLOCK + last->body;
    sfp__text_putn(&out, (const char *)rest, (size_t)(bytes + size - rest));
    return replace_input(bytes, size, max_size, &out);
}
