/* Changes one file of an input: a value of its JSON, or a line or a field. */
#include "fuzz_files.h"
#include "mutate.h"

#include <jansson.h>

/* Values at the limits of what the readers accept, and beyond. */
static const char *const values[] = {"0",           "-1",      "1",          "2",
                                     "10",          "50",      "51",         "4096",
                                     "65535",       "65536",   "2147483648", "9223372036854775807",
                                     "1e308",       "1e999",   "-0.5",       "1.5",
                                     "nan",         "inf",     "0x10",       "",
                                     " ",           "\"",      "\"\"",       "a",
                                     "path",        "label",   "name",       "task",
                                     "time",        "domain",  "cat",        "dog",
                                     "a.jpg",       "o1",      "../a",       "/",
                                     "é",           "\xff",    "\r",         "\xef\xbb\xbf",
                                     "s1/o1/a.png", "\"a,b\"", "\"a\"\"b\"", "'",
                                     ",",           ",,"};

static const char *value(sfp__rng *rng)
{
    return values[below(rng, sizeof values / sizeof *values)];
}

/* ------------------------------------------------------------------------ JSON */

static bool change_json(sfp__rng *rng, const char *s, size_t n, sfp__text *out);

/* Returns text in which every byte is ASCII: other bytes are not valid in JSON. JSON in a string is changed as such. */
static json_t *changed_string(sfp__rng *rng, const char *s)
{
    size_t n = strlen(s);
    sfp__text inner = {0};
    if (*s == '{' && !one_in(rng, 8) && change_json(rng, s, n, &inner)) {
        json_t *v = json_stringn(inner.s, inner.length);
        sfp__text_done(&inner);
        return v;
    }
    char *copy = changed_bytes(s, &n);
    for (size_t i = 0; i < n; i++)
        copy[i] = (char)(copy[i] & 127 ? copy[i] & 127 : 'x');
    json_t *v = json_stringn(copy, n);
    free(copy);
    return v;
}

/* Returns the value at a random place of the tree. */
static json_t *any_value(sfp__rng *rng, json_t *root)
{
    for (json_t *v = root;;) {
        size_t n = json_is_array(v) ? json_array_size(v) : json_object_size(v);
        if (n == 0 || one_in(rng, 4))
            return v;
        size_t k = below(rng, n);
        if (json_is_array(v)) {
            v = json_array_get(v, k);
        } else {
            void *i = json_object_iter(v);
            while (k--)
                i = json_object_iter_next(v, i);
            v = json_object_iter_value(i);
        }
    }
}

static json_t *new_value(sfp__rng *rng, json_t *root, json_t *old)
{
    static const double reals[] = {0.5, -1.5, 1e20, 1e308, 1048577};
    const char *text = value(rng);
    if (json_is_string(old) && *json_string_value(old) == '{' && !one_in(rng, 4))
        return changed_string(rng, json_string_value(old));
    switch (below(rng, 10)) {
    case 0:
        return json_array();
    case 1:
        return json_object();
    case 2:
        return one_in(rng, 2) ? json_null() : json_true();
    case 3:
        return json_real(reals[below(rng, 5)]);
    case 4:
    case 5:
        return json_is_integer(old) && llabs(json_integer_value(old) / 2) < INT64_MAX / 2
                   ? json_integer(json_integer_value(old) + (one_in(rng, 2) ? 1 : -1))
                   : json_integer(strtoll(text, NULL, 10));
    case 6:
        return json_is_string(old) ? changed_string(rng, json_string_value(old)) : json_pack("s?", text);
    case 7:
        return json_deep_copy(old);
    default:
        return json_deep_copy(any_value(rng, root));
    }
}

/* Removes, adds or replaces member k of an array. */
static void change_array(sfp__rng *rng, json_t *root, json_t *array, size_t k)
{
    json_t *old = json_array_get(array, k);
    json_t *v = new_value(rng, root, old ? old : root);
    switch (below(rng, 4)) {
    case 0:
        (void)json_array_remove(array, k);
        json_decref(v);
        break;
    case 1:
        (void)json_array_insert_new(array, k, v ? v : json_null());
        break;
    default:
        (void)json_array_set_new(array, k, v ? v : json_null());
    }
}

/* The same for an object, whose member may also get another name. */
static void change_object(sfp__rng *rng, json_t *root, json_t *object, size_t k)
{
    void *i = json_object_iter(object);
    while (i && k--)
        i = json_object_iter_next(object, i);
    char *key = strdup(i ? json_object_iter_key(i) : "a");
    json_t *old = json_object_get(object, key), *v = new_value(rng, root, old ? old : root);
    json_t *name = changed_string(rng, key);
    switch (below(rng, 5)) {
    case 0:
        (void)json_object_del(object, key);
        break;
    case 1:
        (void)json_object_set_new(object, one_in(rng, 2) ? value(rng) : json_string_value(name),
                                  json_deep_copy(old ? old : root));
        break;
    default:
        (void)json_object_set(object, key, v);
    }
    json_decref(name);
    json_decref(v);
    free(key);
}

static json_t *changed_tree(sfp__rng *rng, json_t *root)
{
    json_t *v = any_value(rng, root);
    for (int i = 0; i < 8 && !json_is_array(v) && !json_is_object(v); i++) /* the parent of a value */
        v = any_value(rng, root);
    if (json_is_array(v))
        change_array(rng, root, v, below(rng, json_array_size(v) + 1));
    else if (json_is_object(v))
        change_object(rng, root, v, below(rng, json_object_size(v) + 1));
    else
        return new_value(rng, root, root);
    return json_incref(root);
}

/* Appends the changed JSON; false: it is not JSON. */
static bool change_json(sfp__rng *rng, const char *s, size_t n, sfp__text *out)
{
    json_t *root = json_loadb(s, n, JSON_DECODE_ANY, NULL), *changed = NULL;
    char *text = NULL;
    if (root && (changed = changed_tree(rng, root)))
        text = json_dumps(changed, JSON_COMPACT | JSON_ENCODE_ANY); /* fails if a value contains itself */
    if (text)
        sfp__text_put(out, text);
    json_decref(changed);
    json_decref(root);
    free(text);
    return text != NULL;
}

/* ------------------------------------------------------------------------ lines */

typedef struct piece {
    const char *s;
    size_t n;
} piece;

/* Splits at `mark`; the last piece may be empty. Returns the number of pieces, at most `max`. */
static size_t split(const char *s, size_t n, char mark, piece *out, size_t max)
{
    const char *end = s + n, *stop = s;
    for (size_t count = 0;; s = stop + 1) {
        stop = count + 1 < max ? memchr(s, mark, (size_t)(end - s)) : NULL;
        out[count++] = (piece){s, (size_t)((stop ? stop : end) - s)};
        if (!stop)
            return count;
    }
}

static void change_pieces(sfp__rng *rng, const char *s, size_t n, const char *marks, sfp__text *out);

/* Appends a piece, changed: as JSON, by its own pieces, to a value of the list, or arbitrarily. */
static void change_piece(sfp__rng *rng, piece p, const char *marks, sfp__text *out)
{
    if (p.n > 1 && *p.s == '{' && !one_in(rng, 8) && change_json(rng, p.s, p.n, out))
        return;
    if (*marks && !one_in(rng, 4)) {
        change_pieces(rng, p.s, p.n, marks, out);
    } else if (one_in(rng, 2)) {
        sfp__text_put(out, value(rng));
    } else {
        char *bytes = changed_bytes(p.s, &p.n);
        sfp__text_putn(out, bytes, p.n);
        free(bytes);
    }
}

/* Splits at the first of `marks`, then removes, repeats, exchanges or changes one piece. */
static void change_pieces(sfp__rng *rng, const char *s, size_t n, const char *marks, sfp__text *out)
{
    enum { PIECES = 4096 };
    static piece list[2][PIECES]; /* of lines and of fields */
    piece *p = list[marks[1] ? 0 : 1];
    size_t count = split(s, n, *marks, p, PIECES), k = below(rng, count), what = below(rng, 8);
    const piece other = p[below(rng, count)];
    bool first = true;
    for (size_t i = 0; i < count; i++) {
        if (i == k && what == 0)
            continue;
        if (!first)
            sfp__text_putn(out, marks, 1);
        first = false;
        if (i == k && what > 2) {
            change_piece(rng, p[i], marks + 1, out);
            continue;
        }
        sfp__text_putn(out, i == k && what == 1 ? other.s : p[i].s, i == k && what == 1 ? other.n : p[i].n);
        if (i == k && what == 2) {
            sfp__text_putn(out, marks, 1);
            sfp__text_putn(out, p[i].s, p[i].n);
        }
    }
}

/* ------------------------------------------------------------------------ files */

static void change_file(sfp__rng *rng, const file_part *f, sfp__text *out)
{
    if (!one_in(rng, 12) && change_json(rng, f->bytes, f->size, out))
        return;
    if (one_in(rng, 12)) {
        size_t n = f->size;
        char *bytes = changed_bytes(f->bytes, &n);
        sfp__text_putn(out, bytes, n);
        free(bytes);
        return;
    }
    change_pieces(rng, f->bytes, f->size, "\n,", out);
}

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t max_size, unsigned seed)
{
    sfp__rng rng = sfp__rng_init(seed, 0);
    sfp__text out = {0}, file = {0};
    const char *begin = (const char *)bytes, *end = begin + size, *at = begin;
    file_part f;
    size_t count = 0, i = 0;
    while (next_part(&at, begin, end, &f))
        count++;
    size_t chosen = below(&rng, count);
    bool removed = count > 1 && one_in(&rng, 16), repeated = one_in(&rng, 24);
    for (at = begin; next_part(&at, begin, end, &f); i++) {
        if (i == chosen && removed)
            continue;
        for (int twice = 0; twice < (i == chosen && repeated ? 2 : 1); twice++) {
            if (f.name != f.bytes)
                sfp__text_printf(&out, "%s@@ %.*s\n", twice ? "\n" : "", (int)f.name_length, f.name);
            if (i == chosen)
                change_file(&rng, &f, &file);
            sfp__text_putn(&out, i == chosen ? file.s ? file.s : "" : f.bytes, i == chosen ? file.length : f.size);
            sfp__text_done(&file);
        }
        if (at < end)
            sfp__text_put(&out, "\n");
    }
    return replace_input(bytes, size, max_size, &out);
}
