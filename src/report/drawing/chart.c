#include "report/drawing/chart.h"

#include <math.h>
#include <stdlib.h>

#include "base/json_out.h"
#include "report/drawing/html.h"

enum { MAX_MARKED_POINTS = 40 };

static const char *const colours[] = {"#0072B2", "#D55E00", "#009E73", "#AA4499"};

/* From data to pixels, with the distance of the ticks. */
struct axis {
    double low, high, step;
};

/* What differences of values would overflow for cannot be drawn; nor what stands nowhere. */
static double value_of(const struct cvy_curve *curve, size_t index)
{
    return fabs(curve->y[index]) < 1e300 && isfinite(curve->x[index]) ? curve->y[index] : NAN;
}

void cvy_chart_label(struct cvy_text *svg, double x, double y, const char *anchor, const char *style, const char *text)
{
    cvy_text_puts(svg, "<text");
    cvy_html_attribute(svg, "x", x);
    cvy_html_attribute(svg, "y", y);
    cvy_text_printf(svg, " text-anchor=\"%s\"%s>", anchor, style);
    cvy_html_escaped(svg, text);
    cvy_text_puts(svg, "</text>\n");
}

static void add_line(struct cvy_text *svg, double x1, double y1, double x2, double y2, const char *style)
{
    cvy_text_puts(svg, "<line");
    cvy_html_attribute(svg, "x1", x1);
    cvy_html_attribute(svg, "y1", y1);
    cvy_html_attribute(svg, "x2", x2);
    cvy_html_attribute(svg, "y2", y2);
    cvy_text_printf(svg, " %s/>\n", style);
}

/* ---- axes ---- */

/* The smallest of 1, 2, 5 times a power of ten that cuts `range` into at most `parts`. */
static double nice_step(double range, double parts)
{
    static const double factors[] = {1, 2, 5};
    const double power = pow(10, floor(log10(range / parts)));

    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        if (range / (factors[i] * power) <= parts * (1 + 1e-9))
            return factors[i] * power;
    return 10 * power;
}

static struct axis epoch_axis(const struct cvy_chart *chart)
{
    struct axis axis = {INFINITY, -INFINITY, 1};

    for (size_t c = 0; c < chart->curve_count; c++)
        for (size_t i = 0; i < chart->curves[c].count; i++) {
            axis.low = fmin(axis.low, chart->curves[c].x[i]);
            axis.high = fmax(axis.high, chart->curves[c].x[i]);
        }
    if (!(axis.low <= axis.high) || !isfinite(axis.low) || !isfinite(axis.high))
        return (struct axis){0, 1, 1};
    if (chart->x_from_zero && axis.low > 0)
        axis.low = 0;
    if (axis.low == axis.high)
        axis.high = axis.low + 1;
    axis.step = fmax(1, nice_step(axis.high - axis.low, 10)); /* there is no half epoch */
    return axis;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The largest value that counts for the axis. Of ten values one, and one more, may be left out, if that leaves less
 * than a quarter of the range: the others would be a line at the bottom. `high` where nothing is. */
static double robust_high(const struct cvy_chart *chart, double low, double high)
{
    size_t count = 0, dropped;
    double *values, found = high;

    for (size_t c = 0; c < chart->curve_count; c++)
        count += chart->curves[c].count;
    values = cvy_calloc(count + 1, sizeof *values);
    if (!values) /* a picture with a worse axis */
        return high;
    count = 0;
    for (size_t c = 0; c < chart->curve_count; c++)
        for (size_t i = 0; i < chart->curves[c].count; i++)
            if (!isnan(value_of(&chart->curves[c], i)))
                values[count++] = value_of(&chart->curves[c], i);
    qsort(values, count, sizeof *values, by_value);
    dropped = 1 + count / 10;
    if (count >= 5 && values[count - 1 - dropped] > low && (high - low) / 4 > values[count - 1 - dropped] - low)
        found = values[count - 1 - dropped];
    /* What may be left out is, if it is far away. */
    for (size_t k = count - dropped; found < high && k < count && (values[k] - low) / 4 <= found - low; k++)
        found = values[k];
    cvy_free(values);
    return found;
}

/* From a tick below the smallest value to a tick above the largest. */
static struct axis value_axis(const struct cvy_chart *chart)
{
    struct axis axis = {INFINITY, -INFINITY, 1};

    for (size_t c = 0; c < chart->curve_count; c++)
        for (size_t i = 0; i < chart->curves[c].count; i++) {
            const double value = value_of(&chart->curves[c], i);
            axis.low = fmin(axis.low, value); /* fmin passes over NAN */
            axis.high = fmax(axis.high, value);
        }
    if (!(axis.low <= axis.high))
        return chart->percent ? (struct axis){0, 100, 20} : (struct axis){0, 1, 0.2};
    if (chart->robust)
        axis.high = robust_high(chart, axis.low, axis.high);
    if (chart->from_zero && axis.low > 0)
        axis.low = 0;
    const double min_range = fmax(fabs(axis.high) * 1e-3, 1e-9);
    if (axis.high - axis.low < min_range) {
        const double middle = (axis.low + axis.high) / 2;
        axis.low = middle - min_range / 2;
        axis.high = middle + min_range / 2;
    }
    axis.step = nice_step(axis.high - axis.low, 6);
    axis.low = floor(axis.low / axis.step) * axis.step;
    axis.high = ceil(axis.high / axis.step) * axis.step;
    if (chart->percent) {
        axis.low = fmax(axis.low, 0);
        axis.high = fmin(axis.high, 100);
    }
    return axis;
}

static double pixel_x(const struct cvy_chart *chart, const struct axis *axis, double value)
{
    return chart->left + (value - axis->low) / (axis->high - axis->low) * chart->width;
}

static double pixel_y(const struct cvy_chart *chart, const struct axis *axis, double value)
{
    return chart->top + (axis->high - value) / (axis->high - axis->low) * chart->height;
}

static void add_grid(struct cvy_text *svg, const struct cvy_chart *chart, const struct axis *x, const struct axis *y)
{
    static const char grid[] = "class=\"grid\" stroke=\"#dddddd\"", edge[] = "class=\"edge\" stroke=\"#555555\"";
    const double right = chart->left + chart->width, bottom = chart->top + chart->height;
    char number[32];

    /* Ticks are whole multiples of the step, so that rounding errors do not add up; + 0.0 makes -0 a 0. */
    for (double n = ceil(x->low / x->step - 1e-9); n * x->step <= x->high + x->step * 1e-9; n++) {
        const double at = pixel_x(chart, x, n * x->step);
        add_line(svg, at, chart->top, at, bottom, grid);
        cvy_chart_label(svg, at, bottom + 18, "middle", "", cvy_digits_text(n * x->step + 0.0, 6, number));
    }
    for (double n = ceil(y->low / y->step - 1e-9); n * y->step <= y->high + y->step * 1e-9; n++) {
        const double at = pixel_y(chart, y, n * y->step);
        add_line(svg, chart->left, at, right, at, grid);
        cvy_chart_label(svg, chart->left - 8, at + 4, "end", "", cvy_digits_text(n * y->step + 0.0, 6, number));
    }
    add_line(svg, chart->left, chart->top, chart->left, bottom, edge);
    add_line(svg, chart->left, bottom, right, bottom, edge);
    cvy_chart_label(svg, chart->left + chart->width / 2.0, bottom + 38, "middle", "", chart->x_title);
    cvy_chart_label(svg, chart->left, chart->top - 28, "start", " font-weight=\"bold\"", chart->title);
}

/* ---- curves ---- */

static void add_dots(struct cvy_text *svg, const struct cvy_chart *chart, const struct cvy_curve *curve,
                     const struct axis *x, const struct axis *y)
{
    char number[32];

    /* A value between two gaps has no line: it is marked always. */
    for (size_t i = 0; i < curve->count; i++) {
        const double value = value_of(curve, i);
        const bool alone =
            (i == 0 || isnan(value_of(curve, i - 1))) && (i + 1 == curve->count || isnan(value_of(curve, i + 1)));

        if (isnan(value) || value > y->high || ((curve->count > MAX_MARKED_POINTS || curve->faint) && !alone))
            continue;
        cvy_text_puts(svg, "<circle r=\"3\"");
        cvy_html_attribute(svg, "cx", pixel_x(chart, x, curve->x[i]));
        cvy_html_attribute(svg, "cy", pixel_y(chart, y, value));
        cvy_text_printf(svg, " class=\"f%d\" fill=\"%s\"><title>", (int)curve->colour, colours[curve->colour]);
        cvy_html_escaped(svg, curve->name);
        cvy_text_printf(svg, " %s", cvy_digits_text(value, 6, number));
        cvy_text_printf(svg, ", %s %s</title></circle>\n", chart->x_title, cvy_digits_text(curve->x[i], 6, number));
    }
}

/* The number of a mark, beside it and those next to it, on the side where there is more width. */
static void add_clipped_number(struct cvy_text *svg, const struct cvy_chart *chart, const struct cvy_curve *curve,
                               const struct axis *x, const struct axis *y, size_t index)
{
    const bool left = pixel_x(chart, x, curve->x[index]) > chart->left + chart->width / 2;
    size_t end = index;
    char number[32];

    if (left)
        while (end > 0 && value_of(curve, end - 1) > y->high)
            end--;
    else
        while (end + 1 < curve->count && value_of(curve, end + 1) > y->high)
            end++;
    cvy_chart_label(svg, pixel_x(chart, x, curve->x[end]) + (left ? -8 : 8), chart->top + 10, left ? "end" : "start",
                    " class=\"clipped\"", cvy_digits_text(value_of(curve, index), 6, number));
}

/* Where a value beyond the axis would be: a triangle at its end, and for the largest one the number. */
static void add_clipped(struct cvy_text *svg, const struct cvy_chart *chart, const struct cvy_curve *curve,
                        const struct axis *x, const struct axis *y)
{
    size_t largest = curve->count;
    char number[32];

    for (size_t i = 0; i < curve->count; i++) {
        const double value = value_of(curve, i), at = isnan(value) ? 0 : pixel_x(chart, x, curve->x[i]);
        if (!(value > y->high))
            continue;
        if (largest == curve->count || value > value_of(curve, largest))
            largest = i;
        cvy_text_puts(svg, "<path d=\"M");
        cvy_html_coordinate(svg, at - 5);
        cvy_text_puts(svg, " ");
        cvy_html_coordinate(svg, chart->top + 8);
        cvy_text_puts(svg, "h10l-5 -8z\"");
        cvy_text_printf(svg, " class=\"f%d\" fill=\"%s\"><title>", (int)curve->colour, colours[curve->colour]);
        cvy_html_escaped(svg, curve->name);
        cvy_text_printf(svg, " %s, beyond the axis", cvy_digits_text(value, 6, number));
        cvy_text_printf(svg, ", %s %s</title></path>\n", chart->x_title, cvy_digits_text(curve->x[i], 6, number));
    }
    if (largest < curve->count && !curve->faint)
        add_clipped_number(svg, chart, curve, x, y, largest);
}

/* One line for each run of epochs that have a value, and a dot for each value where dots do not touch. */
static void add_curve(struct cvy_text *svg, const struct cvy_chart *chart, const struct cvy_curve *curve,
                      const struct axis *x, const struct axis *y)
{
    bool open = false;

    for (size_t i = 0; i <= curve->count; i++) {
        const double value = i < curve->count ? value_of(curve, i) : NAN;

        if (isnan(value)) {
            cvy_text_puts(svg, open ? "\"/>\n" : "");
            open = false;
            continue;
        }
        if (!open)
            cvy_text_printf(svg, "<polyline class=\"c%d\" fill=\"none\" stroke=\"%s\" stroke-width=\"%s\" points=\"",
                            (int)curve->colour, colours[curve->colour], curve->faint ? "1\" opacity=\".6" : "2");
        cvy_text_puts(svg, open ? " " : "");
        cvy_html_coordinate(svg, pixel_x(chart, x, curve->x[i]));
        cvy_text_puts(svg, ",");
        cvy_html_coordinate(svg, pixel_y(chart, y, fmin(value, y->high)));
        open = true;
    }
    add_dots(svg, chart, curve, x, y);
    add_clipped(svg, chart, curve, x, y);
}

/* A swatch, the name and the newest value of each curve, in the line under the panel's title. */
static void add_legend(struct cvy_text *svg, const struct cvy_chart *chart)
{
    double x = chart->left;
    size_t shown = 0;

    for (size_t c = 0; c < chart->curve_count; c++)
        shown += !chart->curves[c].faint;
    for (size_t c = 0; c < chart->curve_count; c++) {
        const struct cvy_curve *curve = &chart->curves[c];
        struct cvy_text entry = {0};
        char number[32];
        double value = NAN;

        if (curve->faint)
            continue;
        for (size_t i = 0; i < curve->count && !chart->names_alone; i++)
            if (!isnan(value_of(curve, i)))
                value = value_of(curve, i);
        cvy_text_puts(&entry, curve->name);
        if (!chart->names_alone)
            cvy_text_puts(&entry, isnan(value) ? ": not measured" : " ");
        if (!isnan(value) && chart->digits >= 0)
            cvy_html_fixed(&entry, value, chart->digits);
        else if (!isnan(value))
            cvy_text_puts(&entry, cvy_digits_text(value, -chart->digits, number));
        cvy_text_puts(svg, "<rect width=\"18\" height=\"4\"");
        cvy_html_attribute(svg, "x", x);
        cvy_html_attribute(svg, "y", chart->top - 15);
        cvy_text_printf(svg, " class=\"f%d\" fill=\"%s\"/>\n", (int)curve->colour, colours[curve->colour]);
        cvy_chart_label(svg, x + 24, chart->top - 9, "start", "", entry.text ? entry.text : "");
        svg->failed |= entry.failed;
        cvy_text_release(&entry);
        x += chart->width / (double)shown;
    }
}

void cvy_chart_write(struct cvy_text *svg, const struct cvy_chart *chart)
{
    const struct axis x = epoch_axis(chart), y = value_axis(chart);

    add_grid(svg, chart, &x, &y);
    for (size_t c = 0; c < chart->curve_count; c++)
        add_curve(svg, chart, &chart->curves[c], &x, &y);
    add_legend(svg, chart);
}
