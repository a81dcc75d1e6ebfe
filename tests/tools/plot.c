/* Draws a line from standard input, with the charts of the reports (report/chart.h).
 *
 *     plot OUT.svg TITLE X_NAME Y_NAME
 *         standard input has lines "X Y", with X in increasing order */
#include "base/text.h"
#include "io/file.h"
#include "report/chart.h"

#include <stdio.h>

enum { POINTS_MAX = 100000 };

int main(int argc, char **argv)
{
    static double x[POINTS_MAX], y[POINTS_MAX];
    sfp__chart c = {
        .title = argc > 2 ? argv[2] : NULL, .x_name = argc > 3 ? argv[3] : "", .y_name = argc > 4 ? argv[4] : "", .count = 1};
    sfp_error err = {0};
    OWNED_BY(sfp__text_done) sfp__text t = {0};
    int n = 0;
    if (argc != 5) {
        (void)fprintf(stderr, "usage: plot OUT.svg TITLE X_NAME Y_NAME\n");
        return 2;
    }
    while (n < POINTS_MAX && scanf("%lf %lf", &x[n], &y[n]) == 2)
        n++;
    c.series[0] = (sfp__chart_series){.count = n, .x = x, .y = y};
    if (!sfp__chart_lines(&c, SFP__CHART_FILE, &t) || sfp__file_write(argv[1], t.s, t.length, &err)) {
        (void)fprintf(stderr, "plot: %s\n", err.message[0] ? err.message : "no values");
        return 1;
    }
    return 0;
}
