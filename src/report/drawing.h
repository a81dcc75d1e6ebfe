/* What the drawings of a page share: the frame with its scales and axes, colours, and the beginning of a stand-alone SVG file. */
#ifndef SFP_REPORT_DRAWING_H
#define SFP_REPORT_DRAWING_H

#include "report/html.h"

/* The scales of a drawing: x0..x1 and y0..y1 fill the area inside of the margins. */
typedef struct sfp__frame {
    int width, height;            /* of the drawing */
    int left, right, top, bottom; /* margins */
    double x0, x1, y0, y1;
    bool log_x;      /* x0 > 0 */
    bool fraction_x; /* ticks are percentages */
    bool fraction_y;
    bool grid_x; /* lines at the ticks of x, over the whole height */
} sfp__frame;

double sfp__frame_x(const sfp__frame *f, double x);
double sfp__frame_y(const sfp__frame *f, double y);

/* Returns 1, 2 or 5 times a power of ten such that about `count` steps cover `range` > 0. */
double sfp__nice_step(double range, int count);
enum { SFP__CHAR_WIDTH = 7 }; /* estimated width of a character */
/* The left margin that the numbers of sfp__put_y_axis need. */
int sfp__y_axis_margin(const sfp__frame *f, double step);
/* Horizontal lines with numbers, `step` apart, at multiples of it. */
void sfp__put_y_axis(sfp__text *t, const sfp__frame *f, double step);
/* Ticks with numbers at the lower edge, and the name of the quantity, which is escaped. */
void sfp__put_x_axis(sfp__text *t, const sfp__frame *f, const char *name);
/* Like sfp__put_x_axis, with ticks at these n values. */
void sfp__put_x_axis_at(sfp__text *t, const sfp__frame *f, const char *name, int n, const double *x);

/* A drawing is inline in a page or a file of its own. Colours are CSS variables of head.html: "--blue". */
typedef struct sfp__drawing {
    sfp__text *out;
    bool file; /* colours are written as numbers, because there is no page that defines the variables */
} sfp__drawing;

/* Begins an svg element. Inline: `title` becomes a heading before it. In a file: `title` is printed in the top margin, which must
 * have SFP__TITLE_HEIGHT more. */
enum { SFP__TITLE_HEIGHT = 26 };
void sfp__drawing_begin(const sfp__drawing *d, int width, int height, const char *title, const char *description);
void sfp__drawing_end(const sfp__drawing *d);
/* Writes the value of a colour: "var(--blue)", or "#0067a3" in a file. */
void sfp__put_color(const sfp__drawing *d, const char *color);
/* The colour of series k of several; 8 are different. */
const char *sfp__series_color(int k);

#endif
