/* The curves of a page. */
#include <math.h>
#include <string.h>

#include "report/drawing/chart.h"
#include "report/drawing/html.h"
#include "report/page/page_internal.h"

/* Sizes in the units of the drawing, which fills the width there is. */
enum { WIDTH = 420, HEIGHT = 288, LEFT = 54, TOP = 52, PLOT_WIDTH = 352, PLOT_HEIGHT = 188 };
enum { MAX_POINTS = 400 }; /* of a curve: more than a screen shows */

/* Long series become means of neighbours, in place. */
static void thin_out(struct cvy_series *series)
{
    const size_t count = series->count;

    if (count <= MAX_POINTS)
        return;
    for (size_t i = 0; i < MAX_POINTS; i++) {
        const size_t begin = i * count / MAX_POINTS, end = (i + 1) * count / MAX_POINTS;
        double x = 0, y = 0;
        for (size_t k = begin; k < end; k++) {
            x += series->x[k];
            y += series->y[k];
        }
        series->x[i] = x / (double)(end - begin);
        series->y[i] = y / (double)(end - begin);
    }
    series->count = MAX_POINTS;
}

void cvy_page_chart(struct cvy_text *page, const struct cvy_chart *chart)
{
    struct cvy_chart placed = *chart;

    placed.left = LEFT;
    placed.top = TOP;
    placed.width = PLOT_WIDTH;
    placed.height = PLOT_HEIGHT;
    cvy_text_printf(page, "<div class=\"panel\"><svg viewBox=\"0 0 %d %d\" font-size=\"12\" role=\"img\" aria-label=\"",
                    WIDTH, HEIGHT);
    cvy_html_escaped(page, chart->title);
    cvy_text_puts(page, "\">\n");
    cvy_chart_write(page, &placed);
    cvy_text_puts(page, "</svg></div>\n");
}

/* Over the epochs, from none on. */
static struct cvy_chart chart_of(const char *title, bool from_zero, int digits, const struct cvy_curve *curves,
                                 size_t count)
{
    return (struct cvy_chart){
        .title = title,
        .x_title = "epochs",
        .x_from_zero = true,
        .from_zero = from_zero,
        .digits = digits,
        .curves = curves,
        .curve_count = count,
    };
}

static void add_chart(struct cvy_text *page, const char *title, bool percent, bool from_zero, int digits,
                      const struct cvy_curve *curves, size_t count)
{
    struct cvy_chart chart = chart_of(title, from_zero, digits, curves, count);

    chart.percent = percent;
    cvy_page_chart(page, &chart);
}

/* A loss may be anything. */
static void add_loss_chart(struct cvy_text *page, const char *title, bool from_zero, int digits,
                           const struct cvy_curve *curves, size_t count)
{
    struct cvy_chart chart = chart_of(title, from_zero, digits, curves, count);

    chart.robust = true;
    cvy_page_chart(page, &chart);
}

/* The columns of metrics.csv one by one; x is the number of epochs done. */
struct columns {
    double *x, *y[CVY_EPOCH_VALUES];
    size_t count;
};

static bool open_columns(struct columns *columns, const struct cvy_run_view *view)
{
    const size_t count = view->row_count;
    double *block = cvy_calloc(count + 1, (CVY_EPOCH_VALUES + 1) * sizeof *block);

    *columns = (struct columns){.x = block, .count = count};
    if (!block)
        return false;
    for (int k = 0; k < CVY_EPOCH_VALUES; k++)
        columns->y[k] = block + (size_t)(k + 1) * count;
    for (size_t i = 0; i < count; i++) {
        columns->x[i] = view->rows[i].epoch + 1;
        for (int k = 0; k < CVY_EPOCH_VALUES; k++)
            columns->y[k][i] = view->rows[i].values[k];
    }
    return true;
}

static bool is_measured(const double *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isnan(values[i]))
            return true;
    return false;
}

static void add_loss(struct cvy_text *page, const struct cvy_run_view *view, const struct columns *c)
{
    const bool measured = is_measured(c->y[CVY_EPOCH_VAL_LOSS], c->count);
    const struct cvy_curve curves[] = {
        {"training, records", CVY_CHART_BLUE, c->count > 0, view->loss.x, view->loss.y, view->loss.count},
        {"training", CVY_CHART_BLUE, false, c->x, c->y[CVY_EPOCH_TRAIN_LOSS], c->count},
        {"validation", CVY_CHART_ORANGE, false, c->x, c->y[CVY_EPOCH_VAL_LOSS], c->count},
    };

    add_loss_chart(page, "Loss", false, 4, curves, c->count == 0 ? 1 : measured ? 3 : 2);
}

static void add_accuracy(struct cvy_text *page, const struct cvy_run_view *view, const struct columns *c)
{
    const struct cvy_curve curves[] = {
        {"top-1", CVY_CHART_GREEN, false, c->x, c->y[CVY_EPOCH_TOP1], c->count},
        {view->topk_name, CVY_CHART_PURPLE, false, c->x, c->y[CVY_EPOCH_TOPK], c->count},
        {"EMA", CVY_CHART_BLUE, false, c->x, c->y[CVY_EPOCH_AVERAGE_TOP1], c->count},
    };
    const bool averaged = is_measured(c->y[CVY_EPOCH_AVERAGE_TOP1], c->count);

    if (is_measured(c->y[CVY_EPOCH_TOP1], c->count))
        add_chart(page, "Validation accuracy, %", true, false, 2, curves, averaged ? 3 : view->top_k == 1 ? 1 : 2);
}

/* A curve over the epochs. */
static struct cvy_curve curve_of(const struct columns *c, const char *name, enum cvy_chart_colour colour,
                                 enum cvy_epoch_value value)
{
    return (struct cvy_curve){name, colour, false, c->x, c->y[value], c->count};
}

/* A detector's losses and precisions. */
static void add_detection(struct cvy_text *page, const struct columns *c)
{
    const bool averaged = is_measured(c->y[CVY_EPOCH_AVERAGE_AP], c->count);
    const struct cvy_curve parts[] = {
        curve_of(c, "boxes", CVY_CHART_ORANGE, CVY_EPOCH_LOCALIZATION),
        curve_of(c, "classes", CVY_CHART_GREEN, CVY_EPOCH_CLASSIFICATION),
        curve_of(c, "weights", CVY_CHART_PURPLE, CVY_EPOCH_REGULARIZATION),
    };
    const struct cvy_curve precisions[] = {
        curve_of(c, "AP", CVY_CHART_BLUE, CVY_EPOCH_AP),
        curve_of(c, "AP50", CVY_CHART_GREEN, CVY_EPOCH_AP50),
        curve_of(c, "AP75", CVY_CHART_ORANGE, CVY_EPOCH_AP75),
        curve_of(c, "EMA", CVY_CHART_PURPLE, CVY_EPOCH_AVERAGE_AP),
    };
    const struct cvy_curve sizes[] = {
        curve_of(c, "small", CVY_CHART_ORANGE, CVY_EPOCH_AP_SMALL),
        curve_of(c, "medium", CVY_CHART_GREEN, CVY_EPOCH_AP_MEDIUM),
        curve_of(c, "large", CVY_CHART_BLUE, CVY_EPOCH_AP_LARGE),
    };

    if (is_measured(c->y[CVY_EPOCH_LOCALIZATION], c->count))
        add_loss_chart(page, "Parts of the training loss", true, 3, parts, 3);
    if (!is_measured(c->y[CVY_EPOCH_AP], c->count))
        return;
    add_chart(page, "Average precision, %", true, true, 1, precisions, averaged ? 4 : 3);
    add_chart(page, "Average precision by size, %", true, true, 1, sizes, 3);
}

static void add_rate(struct cvy_text *page, const struct cvy_run_view *view, const struct columns *c)
{
    const bool records = view->rate.count > 0;
    const struct cvy_curve curve = {
        "by step",
        CVY_CHART_BLUE,
        false,
        records ? view->rate.x : c->x,
        records ? view->rate.y : c->y[CVY_EPOCH_RATE],
        records ? view->rate.count : c->count,
    };

    add_chart(page, "Learning rate", false, true, -4, &curve, 1);
}

static void add_speed(struct cvy_text *page, const struct cvy_run_view *view)
{
    const bool epochs = view->epoch_speed.count > 0;
    const struct cvy_curve curves[] = {
        {"training, records", CVY_CHART_BLUE, epochs, view->speed.x, view->speed.y, view->speed.count},
        {"training", CVY_CHART_BLUE, false, view->epoch_speed.x, view->epoch_speed.y, view->epoch_speed.count},
        {"validation", CVY_CHART_ORANGE, false, view->val_speed.x, view->val_speed.y, view->val_speed.count},
    };

    if (view->speed.count > 0 || epochs)
        add_chart(page, "Images per second", false, true, 1, curves, !epochs ? 1 : view->val_speed.count > 0 ? 3 : 2);
}

static void add_scale(struct cvy_text *page, const struct cvy_run_view *view)
{
    const struct cvy_curve curve = {"scale", CVY_CHART_PURPLE, false, view->scale.x, view->scale.y, view->scale.count};
    bool scaled = false;

    for (size_t i = 0; i < view->scale.count; i++)
        scaled |= view->scale.y[i] != 1;
    if (scaled)
        add_chart(page, "Loss scale", false, true, -6, &curve, 1);
}

void cvy_page_charts(struct cvy_text *page, struct cvy_run_view *view)
{
    struct columns columns;

    thin_out(&view->loss);
    thin_out(&view->rate);
    thin_out(&view->speed);
    thin_out(&view->scale);
    if (!open_columns(&columns, view)) {
        page->failed = true;
        return;
    }
    cvy_text_puts(page, "<section><h2>Curves</h2>\n<div class=\"charts\">\n");
    add_loss(page, view, &columns);
    add_accuracy(page, view, &columns);
    add_detection(page, &columns);
    add_rate(page, view, &columns);
    add_speed(page, view);
    add_scale(page, view);
    cvy_text_puts(page, "</div></section>\n");
    cvy_free(columns.x);
}
