/* One panel with axes, grid, curves and a legend, as SVG elements. Elements carry colours for a picture of its own and
 * classes that the style of a page may set otherwise: "grid", "edge", "c0", "c1", ... (lines), "f0", ... (fills),
 * "clipped" (the value of a mark at the end of the axis). */
#ifndef CVY_REPORT_DRAWING_CHART_H
#define CVY_REPORT_DRAWING_CHART_H

#include <stdbool.h>
#include <stddef.h>

#include "base/memory.h"

/* From Okabe and Ito's palette, which colour-blind readers can tell apart. */
enum cvy_chart_colour { CVY_CHART_BLUE, CVY_CHART_ORANGE, CVY_CHART_GREEN, CVY_CHART_PURPLE };

struct cvy_curve {
    const char *name;
    enum cvy_chart_colour colour;
    bool faint;          /* thin, without dots, not in the legend */
    const double *x, *y; /* (count); y is NAN where nothing was measured (a gap) */
    size_t count;
};
struct cvy_chart {
    const char *title, *x_title;
    double left, top, width, height; /* of the plotting area, pixels */
    bool percent;                    /* values lie between 0 and 100 */
    bool x_from_zero, from_zero;     /* the axis begins at 0 where nothing lies below */
    bool names_alone;                /* the legend has no values */
    /* A few values far above all others do not decide about the axis: they are drawn at its end and marked there. */
    bool robust;
    int digits; /* of the numbers in the legend: decimals, or significant ones when negative */
    const struct cvy_curve *curves;
    size_t curve_count;
};
void cvy_chart_write(struct cvy_text *svg, const struct cvy_chart *chart);
/* A label; style: more attributes or "". */
void cvy_chart_label(struct cvy_text *svg, double x, double y, const char *anchor, const char *style, const char *text);

#endif
