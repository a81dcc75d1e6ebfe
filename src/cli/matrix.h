/* Reads matrices and labels from files: .npy; a tensor file (.safetensors, .npz, .pth) with one tensor, or FILE:NAME to choose
 * one. Any other file is text with one row per line. Numbers are separated by commas, by semicolons or, on lines with neither, by
 * blanks; they may be in quotes. A first line without numbers is a header. Any other cell that is not a number, including an
 * empty one, is an error that names the line. */
#ifndef SFP_CLI_MATRIX_H
#define SFP_CLI_MATRIX_H

#include "base/error.h"

#include <stdint.h>

typedef struct sfp__table {
    int rows, columns; /* an array of one dimension has one column */
    float *x;          /* (rows, columns) */
} sfp__table;

sfp_status sfp__table_load(const char *path, sfp__table *out, sfp_error *err);
void sfp__table_done(sfp__table *t);

/* Reads one whole number per row from any of these files. The caller frees *label with sfp__free. */
sfp_status sfp__labels_load(const char *path, int *rows, int32_t **label, sfp_error *err);

#endif
