/* Class orders: those of the paper's authors are permutations of NumPy's legacy generator. */
#include "stream/source_internal.h"

#include "test.h"

KEEP_BY(keep_list, int64_t, sfp__free)

static int64_t *make_order(int classes, int order)
{
    int64_t *at;
    MUST(sfp__class_order(classes, order, &at, &err));
    return keep_list(at);
}

TEST(authors_orders_of_eleven_classes)
{
    static const int64_t expected[][11] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
                                           {2, 3, 4, 9, 1, 6, 0, 7, 10, 8, 5},
                                           {4, 1, 9, 5, 0, 7, 2, 3, 6, 10, 8},
                                           {5, 4, 1, 2, 9, 6, 7, 0, 3, 8, 10},
                                           {3, 8, 4, 9, 2, 6, 0, 1, 5, 7, 10}};
    for (int k = 1; k <= 5; k++)
        assert_memory_equal(make_order(11, -k), expected[k - 1], sizeof expected[0]);
}

TEST(authors_orders_are_permutations_for_any_number_of_classes)
{
    for (int classes = 1; classes <= 1000; classes += 37) {
        int64_t *at = make_order(classes, -INT32_MAX);
        bool *seen = kept_calloc((size_t)classes, 1);
        for (int i = 0; i < classes; i++) {
            assert_in_range(at[i], 0, classes - 1);
            assert_false(seen[at[i]]);
            seen[at[i]] = true;
        }
    }
}

/* Every class of every order in the table of the authors' code. */
TEST(authors_orders_equal_their_table)
{
    const char *shared = getenv("STREAMFP_SHARED");
    char path[4096], line[256], dataset[64];
    int order, seed, position, class, classes, rows = 0;
    (void)snprintf(path, sizeof path, "%s/paper/tables/class_orders_authors_code.csv", shared ? shared : "../shared");
    FILE *f = fopen(path, "r");
    if (!f)
        skip();
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%63[^,],%d,%d,%d,%d", dataset, &order, &seed, &position, &class) != 5)
            continue;
        classes = strcmp(dataset, "Stream-51") == 0 ? 51 : strcmp(dataset, "Clear10") == 0 ? 11 : 100;
        int64_t *at = make_order(classes, -order);
        if (at[position] != class)
            fail_msg("%s, order %d: class %lld at %d, expected %d", dataset, order, (long long)at[position], position, class);
        rows++;
    }
    fclose(f);
    assert_int_equal(rows, 5 * (51 + 11 + 100));
}
