/* The figures of the paper's tables, for comparison. */
#include "experiment/experiment.h"

#include <math.h>
#include <string.h>

#define NONE NAN

static const struct {
    const char *table, *row, *group;
    double accuracy, accuracy_spread, forgetting, forgetting_spread, runtime;
} figures[] = {
#define X(table, row, group, accuracy, accuracy_spread, forgetting, forgetting_spread, runtime) \
    {table, row, group, accuracy, accuracy_spread, forgetting, forgetting_spread, runtime},
#include "experiment/paper_numbers.inc"
#undef X
};

bool sfp__paper_number(const char *table, const char *row, const char *group, const char *metric, double *value, double *spread)
{
    *value = *spread = NAN;
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        if (strcmp(figures[i].table, table) != 0 || strcmp(figures[i].row, row) != 0 || strcmp(figures[i].group, group) != 0)
            continue;
        if (strcmp(metric, "Acc") == 0) {
            *value = figures[i].accuracy / 100;
            *spread = figures[i].accuracy_spread / 100;
        } else if (strcmp(metric, "Fgt") == 0) {
            *value = figures[i].forgetting / 100;
            *spread = figures[i].forgetting_spread / 100;
        } else if (strcmp(metric, "Runtime") == 0) {
            *value = figures[i].runtime;
        }
        return isfinite(*value);
    }
    return false;
}
