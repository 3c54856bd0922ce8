#include "report/plot.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_out.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "report/csv.h"

/* Sizes in pixels of the picture. */
enum { WIDTH = 1000, HEIGHT = 440, PANEL_WIDTH = 400, PANEL_HEIGHT = 300, PANEL_TOP = 78, MAX_MARKED_POINTS = 40 };

/* One curve of a panel. Colours from Okabe and Ito's palette, which colour-blind readers can tell apart. */
struct curve {
    const char *name, *colour;
    size_t field; /* offset of its value in struct cvy_plot_point */
};

struct panel {
    const char *title;
    double left; /* of the plotting area */
    struct curve curves[2];
    bool percent;
    int decimals; /* of the numbers in the legend */
};

static const struct panel panels[2] = {
    {"loss",
     70,
     {{"train", "#0072B2", offsetof(struct cvy_plot_point, train_loss)},
      {"validation", "#D55E00", offsetof(struct cvy_plot_point, val_loss)}},
     false,
     4},
    {"validation accuracy, %",
     570,
     {{"top-1", "#009E73", offsetof(struct cvy_plot_point, top1)},
      {"top-5", "#AA4499", offsetof(struct cvy_plot_point, top5)}},
     true,
     2},
};

/* From data to pixels, with the distance of the ticks. */
struct axis {
    double low, high, step;
};

struct drawing {
    struct cvy_text svg;
    const struct cvy_plot_point *points;
    size_t count;
};

static double value_of(const struct drawing *drawing, size_t index, const struct curve *curve)
{
    double value;
    memcpy(&value, (const char *)&drawing->points[index] + curve->field, sizeof value);
    /* What differences of values would overflow for cannot be drawn either. */
    return fabs(value) < 1e300 && isfinite(drawing->points[index].epoch) ? value : NAN;
}

/* ---- text ---- */

/* A coordinate: one decimal is a tenth of a pixel. */
static void add_number(struct cvy_text *svg, double value)
{
    char buffer[32];
    double rounded = round(value * 10) / 10;
    cvy_text_puts(svg, cvy_double_text(rounded == 0 ? 0 : rounded, buffer));
}

/* ` name="value"` */
static void add_attribute(struct cvy_text *svg, const char *name, double value)
{
    cvy_text_printf(svg, " %s=\"", name);
    add_number(svg, value);
    cvy_text_puts(svg, "\"");
}

/* Text that may hold anything, as XML: markup escaped, control characters and broken UTF-8 replaced. */
static void add_escaped(struct cvy_text *svg, const char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        uint32_t code_point = 0;
        size_t size = cvy_utf8_sequence(text, left, &code_point);
        if (size == 0 || code_point < 0x20 || code_point == 0xFFFE || code_point == 0xFFFF)
            cvy_text_puts(svg, "\xEF\xBF\xBD");
        else if (code_point == '<' || code_point == '>' || code_point == '&' || code_point == '"')
            cvy_text_printf(svg, "&#%u;", (unsigned)code_point);
        else
            cvy_text_append(svg, text, size);
        size += size == 0;
        text += size;
        left -= size;
    }
}

static void add_label(struct cvy_text *svg, double x, double y, const char *anchor, const char *style, const char *text)
{
    cvy_text_puts(svg, "<text");
    add_attribute(svg, "x", x);
    add_attribute(svg, "y", y);
    cvy_text_printf(svg, " text-anchor=\"%s\"%s>", anchor, style);
    add_escaped(svg, text);
    cvy_text_puts(svg, "</text>\n");
}

static void add_line(struct cvy_text *svg, double x1, double y1, double x2, double y2, const char *style)
{
    cvy_text_puts(svg, "<line");
    add_attribute(svg, "x1", x1);
    add_attribute(svg, "y1", y1);
    add_attribute(svg, "x2", x2);
    add_attribute(svg, "y2", y2);
    cvy_text_printf(svg, " %s/>\n", style);
}

/* ---- axes ---- */

/* The smallest of 1, 2, 5 times a power of ten that cuts `range` into at most `parts`. */
static double nice_step(double range, double parts)
{
    double power = pow(10, floor(log10(range / parts)));
    static const double factors[] = {1, 2, 5};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        if (range / (factors[i] * power) <= parts * (1 + 1e-9))
            return factors[i] * power;
    return 10 * power;
}

static struct axis epoch_axis(const struct drawing *drawing)
{
    struct axis axis = {INFINITY, -INFINITY, 1};
    for (size_t i = 0; i < drawing->count; i++) {
        axis.low = fmin(axis.low, drawing->points[i].epoch);
        axis.high = fmax(axis.high, drawing->points[i].epoch);
    }
    if (!(axis.low <= axis.high) || !isfinite(axis.low) || !isfinite(axis.high))
        return (struct axis){0, 1, 1};
    if (axis.low == axis.high)
        axis.high = axis.low + 1;
    axis.step = fmax(1, nice_step(axis.high - axis.low, 10)); /* there is no half epoch */
    return axis;
}

/* From a tick below the smallest value to a tick above the largest. */
static struct axis value_axis(const struct drawing *drawing, const struct panel *panel)
{
    struct axis axis = {INFINITY, -INFINITY, 1};
    for (size_t i = 0; i < drawing->count; i++)
        for (int c = 0; c < 2; c++) {
            double value = value_of(drawing, i, &panel->curves[c]);
            axis.low = fmin(axis.low, value); /* fmin passes over NAN */
            axis.high = fmax(axis.high, value);
        }
    if (!(axis.low <= axis.high))
        return panel->percent ? (struct axis){0, 100, 20} : (struct axis){0, 1, 0.2};
    double least_range = fmax(fabs(axis.high) * 1e-3, 1e-9);
    if (axis.high - axis.low < least_range) {
        double middle = (axis.low + axis.high) / 2;
        axis.low = middle - least_range / 2;
        axis.high = middle + least_range / 2;
    }
    axis.step = nice_step(axis.high - axis.low, 6);
    axis.low = floor(axis.low / axis.step) * axis.step;
    axis.high = ceil(axis.high / axis.step) * axis.step;
    if (panel->percent) {
        axis.low = fmax(axis.low, 0);
        axis.high = fmin(axis.high, 100);
    }
    return axis;
}

static double pixel_x(const struct panel *panel, const struct axis *axis, double value)
{
    return panel->left + (value - axis->low) / (axis->high - axis->low) * PANEL_WIDTH;
}

static double pixel_y(const struct axis *axis, double value)
{
    return PANEL_TOP + (axis->high - value) / (axis->high - axis->low) * PANEL_HEIGHT;
}

static void add_grid(struct drawing *drawing, const struct panel *panel, const struct axis *x, const struct axis *y)
{
    static const char grid[] = "stroke=\"#dddddd\"", edge[] = "stroke=\"#555555\"";
    struct cvy_text *svg = &drawing->svg;
    const double right = panel->left + PANEL_WIDTH, bottom = PANEL_TOP + PANEL_HEIGHT;
    char number[32];
    /* Ticks are whole multiples of the step, so that rounding errors do not add up; + 0.0 makes -0 a 0. */
    for (double n = ceil(x->low / x->step - 1e-9); n * x->step <= x->high + x->step * 1e-9; n++) {
        double at = pixel_x(panel, x, n * x->step);
        add_line(svg, at, PANEL_TOP, at, bottom, grid);
        add_label(svg, at, bottom + 18, "middle", "", cvy_digits_text(n * x->step + 0.0, 6, number));
    }
    for (double n = ceil(y->low / y->step - 1e-9); n * y->step <= y->high + y->step * 1e-9; n++) {
        double at = pixel_y(y, n * y->step);
        add_line(svg, panel->left, at, right, at, grid);
        add_label(svg, panel->left - 8, at + 4, "end", "", cvy_digits_text(n * y->step + 0.0, 6, number));
    }
    add_line(svg, panel->left, PANEL_TOP, panel->left, bottom, edge);
    add_line(svg, panel->left, bottom, right, bottom, edge);
    add_label(svg, panel->left + PANEL_WIDTH / 2.0, bottom + 38, "middle", "", "epoch");
    add_label(svg, panel->left, PANEL_TOP - 28, "start", " font-weight=\"bold\"", panel->title);
}

/* ---- curves ---- */

/* One line for each run of epochs that have a value, and a dot for each value where dots do not touch. */
static void add_curve(struct drawing *drawing, const struct panel *panel, const struct curve *curve,
                      const struct axis *x, const struct axis *y)
{
    struct cvy_text *svg = &drawing->svg;
    bool open = false;
    for (size_t i = 0; i <= drawing->count; i++) {
        double value = i < drawing->count ? value_of(drawing, i, curve) : NAN;
        if (isnan(value)) {
            cvy_text_puts(svg, open ? "\"/>\n" : "");
            open = false;
            continue;
        }
        if (!open)
            cvy_text_printf(svg, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", curve->colour);
        cvy_text_puts(svg, open ? " " : "");
        add_number(svg, pixel_x(panel, x, drawing->points[i].epoch));
        cvy_text_puts(svg, ",");
        add_number(svg, pixel_y(y, value));
        open = true;
    }
    /* A value between two gaps has no line: it is marked always. */
    for (size_t i = 0; i < drawing->count; i++) {
        double value = value_of(drawing, i, curve);
        bool alone = (i == 0 || isnan(value_of(drawing, i - 1, curve))) &&
                     (i + 1 == drawing->count || isnan(value_of(drawing, i + 1, curve)));
        if (isnan(value) || (drawing->count > MAX_MARKED_POINTS && !alone))
            continue;
        cvy_text_puts(svg, "<circle r=\"3\"");
        add_attribute(svg, "cx", pixel_x(panel, x, drawing->points[i].epoch));
        add_attribute(svg, "cy", pixel_y(y, value));
        cvy_text_printf(svg, " fill=\"%s\"/>\n", curve->colour);
    }
}

/* A swatch, the name and the newest value of each curve, in the line under the panel's title. */
static void add_legend(struct drawing *drawing, const struct panel *panel)
{
    struct cvy_text *svg = &drawing->svg;
    double x = panel->left;
    for (int c = 0; c < 2; c++) {
        const struct curve *curve = &panel->curves[c];
        struct cvy_text entry = {0};
        double value = NAN;
        for (size_t i = 0; i < drawing->count; i++)
            if (!isnan(value_of(drawing, i, curve)))
                value = value_of(drawing, i, curve);
        cvy_text_puts(&entry, curve->name);
        if (!isnan(value)) {
            struct cvy_json number = {.text = &entry};
            cvy_text_puts(&entry, " ");
            cvy_json_fixed(&number, value, panel->decimals);
        } else {
            cvy_text_puts(&entry, ": not measured");
        }
        cvy_text_puts(svg, "<rect width=\"18\" height=\"4\"");
        add_attribute(svg, "x", x);
        add_attribute(svg, "y", PANEL_TOP - 15);
        cvy_text_printf(svg, " fill=\"%s\"/>\n", curve->colour);
        add_label(svg, x + 24, PANEL_TOP - 9, "start", "", entry.text ? entry.text : "");
        svg->failed |= entry.failed;
        cvy_text_release(&entry);
        x += PANEL_WIDTH / 2.0;
    }
}

cvy_status cvy_plot_write(const char *path, const char *title, const struct cvy_plot_point *points, size_t count)
{
    struct drawing drawing = {.points = points, .count = count};
    struct cvy_text *svg = &drawing.svg;
    cvy_text_printf(svg,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                    "font-family=\"sans-serif\" font-size=\"13\" fill=\"#222222\">\n<title>",
                    WIDTH, HEIGHT, WIDTH, HEIGHT);
    add_escaped(svg, title);
    cvy_text_printf(svg, "</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", WIDTH, HEIGHT);
    add_label(svg, WIDTH / 2.0, 26, "middle", " font-size=\"17\" font-weight=\"bold\"", title);
    struct axis x = epoch_axis(&drawing);
    for (int p = 0; p < 2; p++) {
        const struct panel *panel = &panels[p];
        struct axis y = value_axis(&drawing, panel);
        add_grid(&drawing, panel, &x, &y);
        for (int c = 0; c < 2; c++)
            add_curve(&drawing, panel, &panel->curves[c], &x, &y);
        add_legend(&drawing, panel);
    }
    cvy_text_puts(svg, "</svg>\n");
    cvy_status status =
        svg->failed ? cvy_fail_memory(svg->length, "a plot") : cvy_file_replace(path, svg->text, svg->length);
    cvy_text_release(svg);
    return status;
}

cvy_status cvy_plot_metrics(const char *path, const char *title, const char *csv_path)
{
    static const char *const columns[] = {"epoch", "train.loss", "val.loss", "val.top1", "val.top5"};
    enum { COLUMNS = sizeof columns / sizeof *columns };
    double *values;
    size_t rows;
    CVY_TRY(cvy_csv_read(csv_path, columns, COLUMNS, &values, &rows));
    cvy_status status;
    struct cvy_plot_point *points = cvy_calloc(rows, sizeof *points);
    if (!points) {
        status = cvy_fail_memory(rows * sizeof *points, "a plot");
    } else {
        for (size_t i = 0; i < rows; i++) {
            const double *row = values + i * COLUMNS;
            points[i] = (struct cvy_plot_point){row[0], row[1], row[2], row[3], row[4]};
        }
        status = cvy_plot_write(path, title, points, rows);
    }
    cvy_free(points);
    cvy_free(values);
    return status;
}
