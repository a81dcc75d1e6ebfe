/* Matrices and labels that a user gives as files: .npy, a file of tensors (.safetensors, .npz, .pth: the only tensor, or
 * FILE:NAME), else text, a line a row: numbers between commas, or between semicolons, or, on a line that has neither, between
 * blanks. Numbers may stand in quotes. A first line without any number is a heading; everything else that is no number, an empty
 * cell too, is an error that names its line. */
#ifndef SFP_CLI_MATRIX_H
#define SFP_CLI_MATRIX_H

#include "base/error.h"

#include <stdint.h>

typedef struct sfp__table {
    int rows, columns; /* one dimension is one column */
    float *x;          /* (rows, columns) */
} sfp__table;

sfp_status sfp__table_load(const char *path, sfp__table *out, sfp_error *err);
void sfp__table_done(sfp__table *t);

/* One whole number a row, as any of these files has it. `label` is of sfp__malloc. */
sfp_status sfp__labels_load(const char *path, int *rows, int32_t **label, sfp_error *err);

#endif
