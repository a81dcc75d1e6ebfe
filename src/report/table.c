/* The contents of a table; table_write.c writes it. */
#include "report/table.h"

#include "results/statistics.h"

#include <math.h>

sfp_status sfp__table_create(int rows, int columns, sfp__table **out, sfp_error *err)
{
    sfp__table *t = NULL;
    size_t r = (size_t)rows, c = (size_t)columns;
    TRY(sfp__alloc(&t, 1, sizeof *t, err));
    OWNED_PTR(sfp__table_free) sfp__table *owned = t;
    const sfp__want list[] = {{&t->row_name, r, sizeof *t->row_name},       {&t->group_name, c, sizeof *t->group_name},
                              {&t->column_name, c, sizeof *t->column_name}, {&t->decimals, c, sizeof *t->decimals},
                              {&t->percent, c, sizeof *t->percent},         {&t->lower_is_better, c, sizeof *t->lower_is_better},
                              {&t->unranked, r, sizeof *t->unranked},       {&t->cell, r * c, sizeof *t->cell}};
    TRY(sfp__block_cleared(&t->block, SFP__LIST(list), err));
    t->rows = rows;
    t->columns = columns;
    t->width = SFP__TABLE_WIDTH;
    for (int i = 0; i < columns; i++)
        t->decimals[i] = 2;
    for (size_t i = 0; i < r * c; i++)
        t->cell[i] = (sfp__table_cell){.mean = NAN, .half = NAN, .paper = NAN, .paper_pm = NAN};
    *out = TAKE(owned);
    return SFP_OK;
}

void sfp__table_free(sfp__table *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->rows; i++)
        sfp__free(t->row_name[i]);
    for (int i = 0; i < t->columns; i++) {
        sfp__free(t->group_name[i]);
        sfp__free(t->column_name[i]);
    }
    sfp__free(t->title);
    sfp__free(t->caption);
    sfp__free(t->label);
    sfp__free(t->row_heading);
    sfp__free(t->block);
    sfp__free(t);
}

sfp_status sfp__table_set_text(char **place, const char *text, sfp_error *err)
{
    char *copy = text ? sfp__strdup(text) : NULL;
    TRY(sfp__check_memory(copy || !text, err));
    sfp__free(*place);
    *place = copy;
    return SFP_OK;
}

sfp__table_cell *sfp__table_at(const sfp__table *t, int row, int column)
{
    return &t->cell[(size_t)row * (size_t)t->columns + (size_t)column];
}

void sfp__table_set_values(sfp__table *t, int row, int column, int n, double *x)
{
    sfp__table_cell *c = sfp__table_at(t, row, column);
    c->n = 0;
    for (int i = 0; i < n; i++)
        if (isfinite(x[i]))
            x[c->n++] = x[i];
    sfp__mean_interval(c->n, x, &c->mean, &c->half);
}

void sfp__table_set_paper(sfp__table *t, int row, int column, double paper, double paper_pm)
{
    sfp__table_cell *c = sfp__table_at(t, row, column);
    c->paper = paper;
    c->paper_pm = paper_pm;
    c->verdict = sfp__verdict(c->mean, c->half, paper, paper_pm);
}

/* A mean as it is printed, as an integer; higher is better. NAN: none. Differences that are not printed must not decide. */
static double rounded(const sfp__table *t, int row, int column)
{
    const sfp__table_cell *c = sfp__table_at(t, row, column);
    double scale = pow(10, t->decimals[column]) * (t->percent[column] ? 100 : 1) * (t->lower_is_better[column] ? -1 : 1);
    return c->n > 0 && !c->text && !t->unranked[row] ? round(scale * c->mean) : NAN;
}

void sfp__table_mark_best(sfp__table *t)
{
    for (int k = 0; k < t->columns; k++) {
        double best = NAN, worst = NAN;
        for (int i = 0; i < t->rows; i++) {
            best = fmax(best, rounded(t, i, k)); /* fmax and fmin ignore NAN */
            worst = fmin(worst, rounded(t, i, k));
        }
        for (int i = 0; i < t->rows; i++)
            sfp__table_at(t, i, k)->best = best > worst && rounded(t, i, k) >= best;
    }
}
