/* Arbitrary bytes as a pickle: refused with a message, or a tree in which every value is accessible. */
#include "fuzz.h"
#include "io/tensor/pickle.h"

static unsigned budget; /* remaining visits: shared values are reached on many paths, which would take too long */

static void walk(const sfp__pickle *p, sfp__pickle_value v, int depth)
{
    size_t length = 0, n = sfp__pickle_count(p, v);
    sfp__pickle_type type = sfp__pickle_type_of(p, v);
    const char *text = sfp__pickle_text(p, v, &length);
    REQUIRE(sfp__pickle_type_name(type) != NULL);
    if (text) {
        REQUIRE(text[length] == '\0');
        touch(text, length);
    }
    (void)sfp__pickle_int(p, v);
    sfp__pickle_value found = 0;
    if (sfp__pickle_get(p, v, "nc", &found) || sfp__pickle_get_int(p, v, 0, &found))
        REQUIRE(type == SFP__PICKLE_DICT && n > 0);
    for (size_t i = 0; i < n && depth > 0 && budget > 0; i++) {
        budget--;
        if (type == SFP__PICKLE_DICT)
            walk(p, sfp__pickle_key(p, v, i), depth - 1);
        walk(p, sfp__pickle_item(p, v, i), depth - 1);
    }
}

static void read_pickle(const uint8_t *bytes, size_t size, const sfp__pickle_limits *limits)
{
    sfp__pickle *p = NULL;
    sfp_error err = {0};
    bool parsed = accepted(sfp__pickle_parse("fuzz", bytes, size, limits, &p, &err), &err);
    REQUIRE(parsed ? p->used <= size : p == NULL);
    if (!parsed)
        return;
    budget = 10000;
    walk(p, p->root, 70);
    sfp__pickle_free(p);
}

/* Parses the input as plain data, and with objects of any name. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static const char *const all[] = {"*", NULL};
    sfp__pickle_limits limits = sfp__pickle_limits_defaults();
    read_pickle(bytes, size, NULL);
    limits.globals = all;
    read_pickle(bytes, size, &limits);
    return 0;
}
