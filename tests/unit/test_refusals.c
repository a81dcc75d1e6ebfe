/* Files that must be refused, each with the status and the reason. The cases are data: refusals/NAME.test, in lines of these forms. \n, \\
 * and \xNN stand for bytes.
 *
 *     file PATH TEXT                   writes a file, which stays for the cases below
 *     KIND PATH, test KIND PATH        opens a source of this kind, or its test part; KIND= TEXT: of a text that is not a path
 *     list PATH                        reads a list of images with labels
 *     pickle BYTES, config TEXT        are read from memory
 *     npy VERSION SIZE HEADER, safetensors SIZE HEADER    a file with this header and SIZE bytes of data
 *     > STATUS PART                    what the line above must fail with: the status and a part of the message
 *     & PART                           another part of this message */
#include "cli/filelist.h"
#include "io/config.h"
#include "io/tensor/pickle.h"
#include "io/tensor/safetensors.h"
#include "io/tensor/tensor_file.h"
#include "stream/source_internal.h"

#include "temp_directory.h"
#include "test.h"

AROUND_EACH(make_directory, remove_directory)

static sfp_status status_of(const char *word)
{
#define IS(name, value, text)     \
    if (strcmp(word, #name) == 0) \
        return SFP_##name;
    SFP_STATUS_LIST(IS)
#undef IS
    fail_msg("there is no status %s", word);
    return SFP_OK;
}

/* Replaces the escapes of a text in place, and returns its length. */
static size_t unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; to++) {
        char hex[3] = "";
        if (*from != '\\') {
            *to = *from++;
        } else if (from[1] == 'x') {
            memcpy(hex, from + 2, 2);
            *to = (char)strtol(hex, NULL, 16);
            from += 4;
        } else {
            *to = from[1] == 'n' ? '\n' : from[1];
            from += 2;
        }
    }
    *to = '\0';
    return (size_t)(to - text);
}

static char *next_word(char **line)
{
    char *word = strsep(line, " ");
    static char none[1];
    *line = *line ? *line : none;
    return word;
}

/* Returns memory of exactly this size, so that a sanitizer detects a read beyond it: the start, the header and bytes 0, 1, 2, ... */
static uint8_t *with_header(const void *start, size_t length, const char *header, size_t n, size_t data, size_t *size)
{
    *size = length + n + data;
    uint8_t *bytes = kept_malloc(*size);
    memcpy(bytes, start, length);
    memcpy(bytes + length, header, n);
    for (size_t i = 0; i < data; i++)
        bytes[length + n + i] = (uint8_t)i;
    return bytes;
}

static sfp_status read_npy(char *rest)
{
    uint8_t start[12] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    start[6] = (uint8_t)strtol(next_word(&rest), NULL, 10);
    size_t data = strtoul(next_word(&rest), NULL, 10), n = unescape(rest), size;
    start[8] = (uint8_t)n;
    start[9] = (uint8_t)(n >> 8);
    uint8_t *bytes = with_header(start, start[6] == 1 ? 10 : 12, rest, n, data, &size);
    sfp__tensor_file *f = NULL;
    sfp_status s = sfp__npy_open_memory("x.npy", bytes, size, &f, &err);
    assert_null(f);
    return s;
}

static sfp_status read_safetensors(char *rest)
{
    size_t data = strtoul(next_word(&rest), NULL, 10), size;
    uint64_t n = unescape(rest);
    uint8_t *bytes = with_header(&n, sizeof n, rest, n, data, &size);
    sfp__tensor_file *f = NULL;
    sfp_status s = sfp__safetensors_open_memory("w.safetensors", bytes, size, &f, &err);
    assert_null(f);
    return s;
}

static sfp_status read_pickle(char *rest)
{
    size_t n = unescape(rest);
    sfp__pickle *p = NULL;
    sfp_status s = sfp__pickle_parse("x.pkl", memcpy(kept_malloc(n), rest, n), n, NULL, &p, &err);
    assert_null(p);
    assert_int_equal(strncmp(err.message, "x.pkl: ", 7), 0);
    return s;
}

static sfp_status read_config(char *rest)
{
    sfp__model_config c, untouched;
    memset(&c, 0x5a, sizeof c);
    untouched = c;
    size_t n = unescape(rest);
    sfp_status s = sfp__model_config_parse("c.json", rest, n, &c, &err);
    assert_memory_equal(&c, &untouched, sizeof c);
    return s;
}

static sfp_status read_list(char *rest)
{
    OWNED_BY(sfp__filelist_done) sfp__filelist l = {0};
    return sfp__filelist_add_csv(&l, in_directory(rest), &err);
}

static sfp_status open_a_source(char *word, char *rest)
{
    const sfp__source_options o = {.test = strcmp(word, "test") == 0};
    char *kind = o.test ? next_word(&rest) : word;
    bool is_path = !strchr(kind, '=');
    kind[strcspn(kind, "=")] = '\0';
    (void)unescape(rest);
    const char *place = is_path ? in_directory(rest) : rest;
    sfp_source *s = NULL;
    sfp_status status = sfp__source_open(kept_print("%s:%s", kind, place), &o, &s, &err);
    assert_null(s);
    return status;
}

static sfp_status run_case(char *line)
{
    static const struct {
        const char *word;
        sfp_status (*read)(char *rest);
    } readers[] = {{"npy", read_npy},
                   {"safetensors", read_safetensors},
                   {"pickle", read_pickle},
                   {"config", read_config},
                   {"list", read_list}};
    char *rest = line, *word = next_word(&rest);
    err = (sfp_error){0};
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++)
        if (strcmp(word, readers[i].word) == 0)
            return readers[i].read(rest);
    return open_a_source(word, rest);
}

static void check_all(const char *path)
{
    char *text = file_text(path), *line, *command = NULL;
    int cases = 0;
    for (int number = 1; (line = strsep(&text, "\n")); number++) {
        if (strncmp(line, "file ", 5) == 0) {
            char *rest = line + 5, *name = next_word(&rest);
            (void)unescape(name);
            size_t n = unescape(rest);
            put_bytes(name, rest, n);
        } else if (*line == '>' || *line == '&') {
            char *part = line + 2;
            if (*line == '>') {
                KEPT_IN_BLOCK;
                const char *word = next_word(&part);
                sfp_status status = run_case(command);
                cases++;
                if (status != status_of(word))
                    fail_msg("%s:%d: status %d, expected %s; '%s'", path, number, status, word, err.message);
            }
            (void)unescape(part);
            if (!strstr(err.message, part))
                fail_msg("%s:%d: '%s', expected '%s'", path, number, err.message, part);
        } else if (*line && *line != '#') {
            command = line;
        }
    }
    assert_true(cases > 50);
}

TEST(weights_are_refused_with_the_reason)
{
    check_all("tests/unit/refusals/weights.test");
}

TEST(sources_are_refused_with_the_reason)
{
    check_all("tests/unit/refusals/sources.test");
}
