/* An experiment from the grids of the user. */
#ifndef SFP_EXPERIMENT_SWEEP_H
#define SFP_EXPERIMENT_SWEEP_H

#include "experiment/experiment.h"

enum { SFP__GRIDS_MAX = 8, SFP__SWEEP_ROWS_MAX = 4096 };

typedef struct sfp__sweep {
    sfp__experiment experiment;
    sfp__variant *rows, *columns;
    int row_count, column_count;
    sfp__strings texts; /* names and settings of the variants */
} sfp__sweep;

/* grids: (count) "KEY=VALUE,VALUE". On failure sfp__sweep_done must still be called. */
sfp_status sfp__sweep_init(sfp__sweep *s, int count, const char *const *grids, sfp_error *err);
void sfp__sweep_done(sfp__sweep *s);

#endif
