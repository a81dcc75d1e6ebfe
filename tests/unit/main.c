/* unit test_FILE [NAME]: runs the tests of tests/unit/test_FILE.c, or only the test NAME. Without arguments it lists all
 * tests. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_TESTS = 2048, MAX_FILES = 256 };

typedef struct test_entry {
    const char *file, *name;
    int line;
    test_function *run, *before, *after;
    sfp_error *err;
} test_entry;

typedef struct fixture {
    const char *file;
    bool each;
    test_function *before, *after;
} fixture;

static test_entry entries[MAX_TESTS];
static fixture fixtures[MAX_FILES];
static size_t entry_count, fixture_count;
static test_function *all_before, *all_after;

void test_add(const char *file, int line, const char *name, test_function *run, test_function *before, test_function *after,
              sfp_error *error)
{
    if (entry_count == MAX_TESTS)
        abort();
    entries[entry_count++] =
        (test_entry){.file = file, .name = name, .line = line, .run = run, .before = before, .after = after, .err = error};
}

void test_around(const char *file, bool each, test_function *before, test_function *after)
{
    if (fixture_count == MAX_FILES)
        abort();
    fixtures[fixture_count++] = (fixture){.file = file, .each = each, .before = before, .after = after};
}

/* Returns whether `name` is the base name of `file` without ".c". */
static bool is_named(const char *file, const char *name)
{
    const char *slash = strrchr(file, '/');
    const char *base = slash ? slash + 1 : file;
    size_t n = strlen(name);
    return strncmp(base, name, n) == 0 && strcmp(base + n, ".c") == 0;
}

static size_t kept_before;

static void run(void **state)
{
    const test_entry *t = *state;
    t->run();
}

static int before(void **state)
{
    const test_entry *t = *state;
    *t->err = (sfp_error){0};
    kept_before = kept_count();
    if (t->before)
        t->before();
    return 0;
}

static int after(void **state)
{
    const test_entry *t = *state;
    if (t->after)
        t->after();
    kept_free_to(&kept_before);
    return 0;
}

static int before_all(void **unused)
{
    (void)unused;
    if (all_before)
        all_before();
    return 0;
}

static int after_all(void **unused)
{
    (void)unused;
    if (all_after)
        all_after();
    kept_free_to(&(size_t){0});
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const test_entry *x = a, *y = b;
    int files = strcmp(x->file, y->file);
    return files ? files : (x->line > y->line) - (x->line < y->line);
}

int main(int argc, char **argv)
{
    qsort(entries, entry_count, sizeof *entries, by_place);
    if (argc < 2) {
        for (size_t i = 0; i < entry_count; i++)
            printf("%s: %s\n", entries[i].file, entries[i].name);
        return 0;
    }
    const fixture *each = NULL;
    for (size_t i = 0; i < fixture_count; i++) {
        const fixture *f = &fixtures[i];
        if (!is_named(f->file, argv[1]))
            continue;
        if (f->each) {
            each = f;
        } else {
            all_before = f->before;
            all_after = f->after;
        }
    }
    static struct CMUnitTest tests[MAX_TESTS];
    size_t count = 0;
    for (size_t i = 0; i < entry_count; i++) {
        test_entry *t = &entries[i];
        if (!is_named(t->file, argv[1]) || (argc > 2 && strcmp(t->name, argv[2]) != 0))
            continue;
        if (each && !t->before && !t->after) {
            t->before = each->before;
            t->after = each->after;
        }
        tests[count++] = (struct CMUnitTest){
            .name = t->name, .test_func = run, .setup_func = before, .teardown_func = after, .initial_state = t};
    }
    if (count == 0) {
        (void)fprintf(stderr, "unit: no such test; run without arguments to list all tests\n");
        return 1;
    }
    return _cmocka_run_group_tests(argv[1], tests, count, before_all, after_all);
}
