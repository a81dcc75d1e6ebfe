/* The claims of the paper, and their tests on the results. A claim is a row of data: a sentence, the paper's figures, and up to four
 * checks. It holds if all checks hold, and does not hold if one of them fails. Otherwise it cannot be decided here: an experiment was
 * not run, or the 95 % interval of a difference contains the bound. */
#include "experiment/experiment.h"
#include "results/statistics.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef enum check_kind {
    NO_CHECK,
    ABOVE,       /* row a minus row b, by repetition, is more than `low` in every column */
    ABOVE_BEST,  /* row a minus the best other row, closed-form heads apart */
    BELOW,       /* row a minus row b is less than `high` */
    RATIO,       /* the mean of row a divided by that of row b is in [low, high] */
    LOWEST,      /* row a has the lowest mean of all rows, closed-form heads apart */
    GROWS,       /* a minus b grows from the first to the last column */
    SPREAD,      /* the standard deviation of row a over repetitions is below that of row b */
    BEST_COLUMN, /* the best column of row a is one of `set` */
    BEST_ROW_UP, /* the best row does not fall from column to column, and is higher in the last than in the first */
    VALUES       /* the mean of row a is in [low, high] in every column */
} check_kind;

typedef struct check {
    check_kind kind;
    const char *experiment, *metric, *a, *b;
    double low, high;
    const char *set; /* "|m 204|" */
} check;

typedef struct claim {
    int number;
    const char *sentence, *paper;
    check checks[4];
} claim;

#define OVER(e, x, y)                                                   \
    {                                                                   \
        .kind = ABOVE, .experiment = e, .metric = "Acc", .a = x, .b = y \
    }

static const claim claims[] = {
    {1,
     "StreamFP is more accurate than Camel at three arrival rates.",
     "+15.99, +29.65, +51.24 points (the first counts a dash as 0); over the best other method +1.81, +2.52, +4.45",
     {OVER("E3", "StreamFP", "Camel"), {.kind = ABOVE_BEST, .experiment = "E3", .metric = "Acc", .a = "StreamFP"}}},
    {2,
     "Its throughput is 4.6 times that of Camel.",
     "9546.85 s / 2049.52 s = 4.66",
     {{.kind = RATIO, .experiment = "throughput", .metric = "ms", .a = "Camel", .b = "StreamFP", .low = 4.1, .high = INFINITY}}},
    {3,
     "StreamFP is more accurate than ER*.",
     "+3.04 (Clear10), +0.33 (Clear100), +1.29 (CORe50), +4.45 (Stream-51)",
     {OVER("E2", "StreamFP", "ER*")}},
    {4,
     "Without a buffer, its selector is better than the next best one by 5 to 20 points.",
     "+8.89, +7.89, +5.12, +20.06",
     {{.kind = ABOVE_BEST, .experiment = "E1-select", .metric = "Acc", .a = "StreamFP (w/o buffer)", .low = 0.05}}},
    {5,
     "Its selector has the lowest runtime.",
     "1047.37 s; next Camel 1491.93 s",
     {{.kind = LOWEST, .experiment = "E1-select", .metric = "Runtime", .a = "StreamFP (w/o buffer)"}}},
    {6,
     "Its buffer is better than ER by 0.6 to 4.4 points, with less forgetting.",
     "+0.94, +0.60, +1.17, +4.37; forgetting -0.13, -1.40, -1.55, -4.58",
     {OVER("E1-buffer", "StreamFP", "ER"),
      {.kind = BELOW, .experiment = "E1-buffer", .metric = "Fgt", .a = "StreamFP", .b = "ER"}}},
    {7,
     "Its buffer takes about as much time as ER.",
     "2049.52 s / 1951.57 s = 1.05",
     {{.kind = RATIO, .experiment = "E1-buffer", .metric = "Runtime", .a = "StreamFP", .b = "ER", .low = 0.85, .high = 1.15}}},
    {8,
     "Its margin over ER* grows as the arrival rate falls.",
     "+1.81, +2.52, +4.45",
     {{.kind = GROWS, .experiment = "E3", .metric = "Acc", .a = "StreamFP", .b = "ER*"}}},
    {9,
     "Its spread over class orders is smaller.",
     "62.44 +- 1.78; ER* 58.23 +- 2.80, FreeSel* +- 2.56, Learn-Loss* +- 6.70",
     {{.kind = SPREAD, .experiment = "E4", .metric = "Acc", .a = "StreamFP", .b = "ER*"}}},
    {10,
     "At C_S 4, skipping batches is better than thin coresets.",
     "74.06 against 64.71",
     {OVER("E5", "w/ skipping", "w/o skipping")}},
    {11,
     "Attunement adds 2.4 points for 2.2 % more time, coreset selection 21, buffer update 9.",
     "33.29, 35.69, 56.74, 65.78; 1702.91 s, 1740.59 s",
     {OVER("E6", "FA", "none"),
      OVER("E6", "FA+FCS", "FA"),
      OVER("E6", "FA+FCS+FBU", "FA+FCS"),
      {.kind = RATIO, .experiment = "E6", .metric = "Runtime", .a = "FA", .b = "none", .low = 0, .high = 1.05}}},
    {12,
     "b 20, sigma 0.2 to 0.4, m 204 and K 5 are best.",
     "b 20, sigma 0.2-0.4, m 204, K 5",
     {{.kind = BEST_COLUMN, .experiment = "E7-b", .metric = "Acc", .a = "StreamFP", .set = "|b 20|"},
      {.kind = BEST_COLUMN, .experiment = "E7-sigma", .metric = "Acc", .a = "StreamFP", .set = "|sigma 0.2|sigma 0.4|"},
      {.kind = BEST_COLUMN, .experiment = "E7-m", .metric = "Acc", .a = "StreamFP", .set = "|m 204|"},
      {.kind = ABOVE_BEST, .experiment = "E7-k", .metric = "Acc", .a = "K 5", .set = "|m 102|"}}},
    {13,
     "The best number of steps K grows with the buffer size m.",
     "K 5 at m 51, 10 at m 240, 15 at m 510",
     {{.kind = BEST_ROW_UP, .experiment = "E7-k", .metric = "Acc"}}},
    {14,
     "StreamFP is better than ER* with every pretrained backbone.",
     "+4.45, +4.77, +2.61, +2.72, +1.00, +0.52 with six backbones",
     {OVER("A2", "StreamFP", "ER*")}},
    {15,
     "Gradients of different tasks are nearly orthogonal.",
     "heat maps with coefficients near zero",
     {{.kind = VALUES, .experiment = "A1", .metric = "Fp cos", .a = "StreamFP", .low = 0, .high = 0.1},
      {.kind = VALUES, .experiment = "A1", .metric = "Head cos", .a = "StreamFP", .low = 0, .high = 0.1}}},
    {16,
     "The cost of a coreset is within 1 +- eps of that of its batch, with eps about (sigma b)^-1/2.",
     "Theorem 1",
     {{.kind = VALUES, .experiment = "T1", .metric = "Within", .a = "StreamFP", .low = 0.95, .high = 1}}},
    {17,
     "The distance between buffer and stream is bounded (the bound as printed grows with m and exceeds the largest possible "
     "value).",
     "Theorem 2; eps 13.4 at m 102, delta 0.05, while MMD is at most 2",
     {{.kind = VALUES, .experiment = "T2", .metric = "MMD", .a = "StreamFP", .low = 0, .high = 2}}},
};

/* ------------------------------------------------------------------------------------------------------------ looking up */

static int find_experiment(const sfp__lab *lab, const char *name)
{
    for (int e = 0; e < lab->experiment_count; e++)
        if (strcmp(lab->experiments[e].name, name) == 0)
            return e;
    return -1;
}

static int find_row(const sfp__experiment *e, const char *name)
{
    for (int r = 0; name && r < e->row_count; r++)
        if (strcmp(e->rows[r].name, name) == 0)
            return r;
    return -1;
}

static int find_metric(const sfp__experiment *e, const char *name)
{
    const sfp__metric *list[SFP__METRICS_MAX];
    int n = sfp__experiment_metrics(e, list);
    for (int m = 0; m < n; m++)
        if (strcmp(list[m]->name, name) == 0)
            return m;
    return -1;
}

/* Where a check looks. */
typedef struct place {
    const sfp__lab *lab;
    const check *check;
    const sfp__experiment *e;
    int experiment, metric, a, b;
    double unit; /* 100 for percent */
    sfp__claim_result *out;
} place;

static bool in_set(const place *p, const char *name)
{
    char entry[80];
    (void)snprintf(entry, sizeof entry, "|%s|", name);
    return !p->check->set || strstr(p->check->set, entry);
}

static void say(const place *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(const place *p, const char *fmt, ...)
{
    size_t used = strlen(p->out->numbers);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(p->out->numbers + used, sizeof p->out->numbers - used, fmt, args);
    va_end(args);
}

/* Values of a row; accuracies of repetitions in which the method had no time count as 0, as in the paper. */
static int values(const place *p, int row, int column, double *x)
{
    int n = sfp__lab_values(p->lab, p->experiment, row, column, p->metric, x);
    if (strcmp(p->check->metric, "Acc") != 0)
        return n;
    for (int i = 0; i < p->lab->cell_count; i++) {
        const sfp__cell *c = &p->lab->cells[i];
        if (c->experiment == p->experiment && c->row == row && c->column == column && c->state == SFP__CELL_STARVED) {
            x[c->repetition] = 0;
            n++;
        }
    }
    return n;
}

static double mean_of(const place *p, int row, int column)
{
    double x[SFP__REPETITIONS_MAX], sum = 0;
    int n = values(p, row, column, x);
    for (int k = 0; k < p->lab->repetitions; k++)
        sum += isfinite(x[k]) ? x[k] : 0;
    return n ? sum / n : NAN;
}

/* -------------------------------------------------------------------------------------------------------------- checking */

typedef enum answer { FAILS, OPEN, HOLDS } answer;

/* A difference with its interval against a bound. With one repetition only a clear difference of 2 points decides. */
static answer judge(double mean, double half, double bound, double unit)
{
    double margin = isfinite(half) ? half : unit == 100 ? 0.02 : INFINITY;
    bool equal = margin == 0 && mean == bound;
    return !isfinite(mean) ? OPEN : mean - margin > bound ? HOLDS : mean + margin < bound || equal ? FAILS : OPEN;
}

static answer worse(answer x, answer y)
{
    return x < y ? x : y;
}

static void say_difference(const place *p, int column, const sfp__paired *d, const char *other)
{
    const char *name = p->e->columns[column].name;
    say(p, "%s%s%s%s %+.2f", p->out->numbers[0] ? "; " : "", name, *name ? ", " : "", other, p->unit * d->mean);
    if (isfinite(d->half))
        say(p, " +- %.2f", p->unit * d->half);
}

static answer difference(const place *p, int row, int other, int column, double bound, double sign)
{
    double x[SFP__REPETITIONS_MAX], y[SFP__REPETITIONS_MAX];
    char name[96];
    if (!values(p, row, column, x) || !values(p, other, column, y))
        return OPEN;
    sfp__paired d = sfp__paired_differences(p->lab->repetitions, x, y);
    (void)snprintf(name, sizeof name, "%s%s against %s", p->check->kind == BELOW ? "Fgt " : "", p->e->rows[row].name,
                   p->e->rows[other].name);
    say_difference(p, column, &d, name);
    return judge(sign * d.mean, d.half, sign * bound, p->unit);
}

static int best_other(const place *p, int column)
{
    int best = -1;
    for (int r = 0; r < p->e->row_count; r++) {
        bool other = r != p->a && !p->e->rows[r].closed && !p->e->rows[r].extra && isfinite(mean_of(p, r, column));
        if (other && (best < 0 || mean_of(p, r, column) > mean_of(p, best, column)))
            best = r;
    }
    return best;
}

static answer check_differences(const place *p)
{
    answer all = HOLDS;
    for (int c = 0; c < p->e->column_count; c++) {
        int other = p->check->kind == ABOVE_BEST ? best_other(p, c) : p->b;
        if (!in_set(p, p->e->columns[c].name))
            continue;
        answer one = other < 0 ? OPEN
                               : difference(p, p->a, other, c, p->check->kind == BELOW ? p->check->high : p->check->low,
                                            p->check->kind == BELOW ? -1 : 1);
        all = worse(all, one);
    }
    return all;
}

static answer check_ratio(const place *p)
{
    double a = mean_of(p, p->a, 0), b = mean_of(p, p->b, 0), ratio = a / b;
    if (!isfinite(ratio))
        return OPEN;
    say(p, "%s%s %s / %s %.2f", p->out->numbers[0] ? "; " : "", p->check->metric, p->check->a, p->check->b, ratio);
    return ratio >= p->check->low && ratio <= p->check->high ? HOLDS : FAILS;
}

static answer check_lowest(const place *p)
{
    double own = mean_of(p, p->a, 0);
    int lowest = -1;
    for (int r = 0; r < p->e->row_count; r++)
        if (!p->e->rows[r].closed && isfinite(mean_of(p, r, 0)) && (lowest < 0 || mean_of(p, r, 0) < mean_of(p, lowest, 0)))
            lowest = r;
    if (!isfinite(own) || lowest < 0)
        return OPEN;
    say(p, "%s %.1f", p->check->a, own);
    if (lowest != p->a)
        say(p, "; lowest: %s %.1f", p->e->rows[lowest].name, mean_of(p, lowest, 0));
    return lowest == p->a ? HOLDS : FAILS;
}

static answer check_growth(const place *p)
{
    double margin[SFP__REPETITIONS_MAX], first[SFP__REPETITIONS_MAX], a[SFP__REPETITIONS_MAX], b[SFP__REPETITIONS_MAX];
    for (int c = 0; c < p->e->column_count; c++) {
        if (!values(p, p->a, c, a) || !values(p, p->b, c, b))
            return OPEN;
        for (int k = 0; k < p->lab->repetitions; k++)
            *(c == 0 ? &first[k] : &margin[k]) = a[k] - b[k];
        sfp__paired d = sfp__paired_differences(p->lab->repetitions, a, b);
        say_difference(p, c, &d, p->check->b);
    }
    if (p->e->column_count < 2)
        return OPEN;
    sfp__paired growth = sfp__paired_differences(p->lab->repetitions, margin, first);
    say(p, "; growth %+.2f", p->unit * growth.mean);
    if (isfinite(growth.half))
        say(p, " +- %.2f", p->unit * growth.half);
    return judge(growth.mean, growth.half, 0, p->unit);
}

static double deviation(const double *x, int n)
{
    double sum = 0, squares = 0;
    int count = 0;
    for (int k = 0; k < n; k++) {
        if (!isfinite(x[k]))
            continue;
        sum += x[k];
        squares += x[k] * x[k];
        count++;
    }
    return count > 1 ? sqrt(fmax(0, (squares - sum * sum / count) / (count - 1))) : NAN;
}

/* With few repetitions two deviations differ significantly only if one is a multiple of the other (F test, 5 %). */
static answer check_spread(const place *p)
{
    double a[SFP__REPETITIONS_MAX], b[SFP__REPETITIONS_MAX];
    int n = p->lab->repetitions;
    if (values(p, p->a, 0, a) < 3 || values(p, p->b, 0, b) < 3) {
        say(p, "fewer than 3 repetitions");
        return OPEN;
    }
    double x = deviation(a, n), y = deviation(b, n), ratio = y * y / (x * x), df = n - 1;
    double tail = sfp__incomplete_beta(df / 2, df / 2, 1 / (1 + ratio)); /* P(F > ratio) */
    say(p, "standard deviation of %s %.2f, of %s %.2f (F test, p %.2f)", p->check->a, p->unit * x, p->check->b, p->unit * y,
        tail);
    return tail < 0.05 ? HOLDS : tail > 0.5 ? FAILS : OPEN;
}

static answer check_best_column(const place *p)
{
    int best = -1;
    for (int c = 0; c < p->e->column_count; c++)
        if (isfinite(mean_of(p, p->a, c)) && (best < 0 || mean_of(p, p->a, c) > mean_of(p, p->a, best)))
            best = c;
    if (best < 0)
        return OPEN;
    say(p, "%sbest: %s (%.2f)", p->out->numbers[0] ? "; " : "", p->e->columns[best].name, p->unit * mean_of(p, p->a, best));
    if (in_set(p, p->e->columns[best].name))
        return HOLDS;
    answer closest = FAILS; /* is the difference to a column of the set significant? */
    for (int c = 0; c < p->e->column_count; c++) {
        double x[SFP__REPETITIONS_MAX], y[SFP__REPETITIONS_MAX];
        if (!in_set(p, p->e->columns[c].name) || !values(p, p->a, best, x) || !values(p, p->a, c, y))
            continue;
        sfp__paired d = sfp__paired_differences(p->lab->repetitions, x, y);
        if (judge(d.mean, d.half, 0, p->unit) != HOLDS)
            closest = OPEN;
    }
    return closest;
}

static answer check_best_row_up(const place *p)
{
    int last = -1, first = -1;
    bool falls = false;
    for (int c = 0; c < p->e->column_count; c++) {
        int best = -1;
        for (int r = 0; r < p->e->row_count; r++)
            if (!p->e->rows[r].closed && isfinite(mean_of(p, r, c)) && (best < 0 || mean_of(p, r, c) > mean_of(p, best, c)))
                best = r;
        if (best < 0)
            return OPEN;
        say(p, "%s%s at %s", c ? ", " : "best: ", p->e->rows[best].name, p->e->columns[c].name);
        falls = falls || best < last;
        first = c == 0 ? best : first;
        last = best;
    }
    return !falls && last > first ? HOLDS : FAILS;
}

static answer check_values(const place *p)
{
    answer all = HOLDS;
    for (int c = 0; c < p->e->column_count; c++) {
        double x = mean_of(p, p->a, c);
        const char *name = p->e->columns[c].name;
        if (!isfinite(x))
            return OPEN;
        say(p, "%s%s%s%s %.4g", p->out->numbers[0] ? "; " : "", name, *name ? ", " : "", p->check->metric, x);
        all = worse(all, x >= p->check->low && x <= p->check->high ? HOLDS : FAILS);
    }
    return all;
}

static answer run_check(const sfp__lab *lab, const check *c, sfp__claim_result *out)
{
    place p = {.lab = lab, .check = c, .experiment = find_experiment(lab, c->experiment), .out = out};
    if (p.experiment < 0)
        return OPEN;
    p.e = &lab->experiments[p.experiment];
    p.metric = find_metric(p.e, c->metric);
    p.a = find_row(p.e, c->a);
    p.b = find_row(p.e, c->b);
    const sfp__metric *list[SFP__METRICS_MAX];
    (void)sfp__experiment_metrics(p.e, list);
    p.unit = p.metric >= 0 && list[p.metric]->percent ? 100 : 1;
    if (p.metric < 0 || (c->a && p.a < 0) || (c->b && p.b < 0))
        return OPEN;
    switch (c->kind) {
    case ABOVE:
    case ABOVE_BEST:
    case BELOW:
        return check_differences(&p);
    case RATIO:
        return check_ratio(&p);
    case LOWEST:
        return check_lowest(&p);
    case GROWS:
        return check_growth(&p);
    case SPREAD:
        return check_spread(&p);
    case BEST_COLUMN:
        return check_best_column(&p);
    case BEST_ROW_UP:
        return check_best_row_up(&p);
    case VALUES:
        return check_values(&p);
    case NO_CHECK:
        break;
    }
    return OPEN;
}

bool sfp__claim_test(const sfp__lab *lab, int i, sfp__claim_result *out)
{
    static const char *const verdicts[] = {"does not hold", "cannot be decided here", "holds"};
    answer all = HOLDS;
    if (i < 0 || i >= (int)(sizeof claims / sizeof *claims))
        return false;
    *out = (sfp__claim_result){.number = claims[i].number, .claim = claims[i].sentence, .paper = claims[i].paper};
    for (int k = 0; k < 4 && claims[i].checks[k].kind != NO_CHECK; k++)
        all = worse(all, run_check(lab, &claims[i].checks[k], out));
    out->tested = out->numbers[0] != '\0';
    if (!out->tested)
        (void)snprintf(out->numbers, sizeof out->numbers, "not run (%s)", claims[i].checks[0].experiment);
    out->verdict = verdicts[all];
    return true;
}
