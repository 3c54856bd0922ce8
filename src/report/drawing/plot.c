#include "report/drawing/plot.h"

#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "base/file.h"
#include "report/drawing/chart.h"
#include "report/drawing/html.h"
#include "report/records/csv.h"

/* Sizes in pixels of the picture. */
enum { WIDTH = 1000, HEIGHT = 440, PANEL_WIDTH = 400, PANEL_HEIGHT = 300, PANEL_TOP = 78 };

/* What viewers that prefer dark pages get, as on the page (page.css); others, and those that know no style sheets, have
 * the colours of the elements. */
static const char dark_style[] =
    "<style>@media (prefers-color-scheme: dark) {\n"
    "svg { fill: #e5e9ee; } .paper { fill: #1a2028; } .grid { stroke: #303945; } .edge { stroke: #9ba6b3; }\n"
    ".c0 { stroke: #5aaee6; } .c1 { stroke: #f0904c; } .c2 { stroke: #3fc79b; } .c3 { stroke: #d58acb; }\n"
    ".f0 { fill: #5aaee6; } .f1 { fill: #f0904c; } .f2 { fill: #3fc79b; } .f3 { fill: #d58acb; }\n"
    "}</style>\n";

/* The curves, each as an array: epochs that are done, then the values in the order of struct cvy_plot_point. */
enum { COLUMNS = 5 };

static void add_panels(struct cvy_text *svg, const double *columns, size_t count, int32_t top_k)
{
    const bool detection = top_k == CVY_PLOT_DETECTION;
    const double *top1 = columns + 3 * count, *topk = columns + 4 * count;
    char name[16];
    snprintf(name, sizeof name, "top-%d", (int)top_k);
    const struct cvy_curve curves[] = {
        {"train", CVY_CHART_BLUE, false, columns, columns + count, count},
        {"validation", CVY_CHART_ORANGE, false, columns, columns + 2 * count, count},
        {detection ? "AP" : "top-1", CVY_CHART_GREEN, false, columns, top1, count},
        {detection ? "AP50" : name, CVY_CHART_PURPLE, false, columns, topk, count},
    };
    struct cvy_chart chart = {
        .title = "loss",
        .x_title = "epochs",
        .x_from_zero = true,
        .robust = true,
        .left = 70,
        .top = PANEL_TOP,
        .width = PANEL_WIDTH,
        .height = PANEL_HEIGHT,
        .digits = 4,
        .curves = curves,
        .curve_count = detection ? 1 : 2, /* a detector's validation has its losses in the records alone */
    };

    cvy_chart_write(svg, &chart);
    chart.title = detection ? "validation: average precision, %" : "validation accuracy, %";
    chart.left = 570;
    chart.percent = true;
    chart.robust = false;
    chart.digits = 2;
    chart.curves = curves + 2;
    chart.curve_count = top_k == 1 ? 1 : 2;
    cvy_chart_write(svg, &chart);
}

cvy_status cvy_plot_write(const char *path, const char *title, const struct cvy_plot_point *points, size_t count,
                          int32_t top_k)
{
    struct cvy_text text = {0}, *svg = &text;
    double *columns = cvy_calloc(count, COLUMNS * sizeof *columns);
    cvy_status status;

    if (!columns)
        return cvy_fail_memory(count * COLUMNS * sizeof *columns, "a plot");
    for (size_t i = 0; i < count; i++) {
        columns[i] = points[i].epoch + 1;
        columns[count + i] = points[i].train_loss;
        columns[2 * count + i] = points[i].val_loss;
        columns[3 * count + i] = points[i].top1;
        columns[4 * count + i] = points[i].topk;
    }
    cvy_text_printf(svg,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                    "font-family=\"sans-serif\" font-size=\"13\" fill=\"#222222\">\n<title>",
                    WIDTH, HEIGHT, WIDTH, HEIGHT);
    cvy_html_escaped(svg, title);
    cvy_text_printf(svg, "</title>\n%s<rect class=\"paper\" width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n",
                    dark_style, WIDTH, HEIGHT);
    cvy_chart_label(svg, WIDTH / 2.0, 26, "middle", " font-size=\"17\" font-weight=\"bold\"", title);
    add_panels(svg, columns, count, top_k);
    cvy_text_puts(svg, "</svg>\n");
    status = svg->failed ? cvy_fail_memory(svg->length, "a plot") : cvy_file_replace(path, svg->text, svg->length);
    cvy_text_release(svg);
    cvy_free(columns);
    return status;
}

cvy_status cvy_plot_metrics(const char *path, const char *title, int32_t top_k, const char *csv_path)
{
    enum { EPOCH, TRAIN_LOSS, VAL_LOSS, TOP1, TOPK, AP, AP50, READ };
    char topk[16];
    const char *const names[READ] = {"epoch", "train.loss", "val.loss", "val.top1", topk, "val.ap", "val.ap50"};
    bool detection = false;
    snprintf(topk, sizeof topk, "val.top%d", (int)top_k);
    double *values;
    size_t rows;
    CVY_TRY(cvy_csv_read(csv_path, names, READ, &values, &rows));
    cvy_status status;
    struct cvy_plot_point *points = cvy_calloc(rows, sizeof *points);
    if (!points) {
        status = cvy_fail_memory(rows * sizeof *points, "a plot");
    } else {
        for (size_t i = 0; i < rows; i++)
            detection |= !isnan(values[i * READ + AP]);
        for (size_t i = 0; i < rows; i++) {
            const double *row = values + i * READ;
            points[i] = (struct cvy_plot_point){row[EPOCH], row[TRAIN_LOSS], row[VAL_LOSS], row[detection ? AP : TOP1],
                                                row[detection ? AP50 : TOPK]};
        }
        status = cvy_plot_write(path, title, points, rows, detection ? CVY_PLOT_DETECTION : top_k);
    }
    cvy_free(points);
    cvy_free(values);
    return status;
}
