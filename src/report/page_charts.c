/* The curves of a page. */
#include <math.h>
#include <string.h>

#include "report/chart.h"
#include "report/html.h"
#include "report/page_internal.h"

/* Sizes in the units of the drawing, which fills the width there is. */
enum { WIDTH = 420, HEIGHT = 288, LEFT = 54, TOP = 52, PLOT_WIDTH = 352, PLOT_HEIGHT = 188 };
enum { MOST_POINTS = 400 }; /* of a curve: more than a screen shows */

/* Long series become means of neighbours, in place. */
static void thin_out(struct cvy_series *series)
{
    const size_t count = series->count;

    if (count <= MOST_POINTS)
        return;
    for (size_t i = 0; i < MOST_POINTS; i++) {
        const size_t begin = i * count / MOST_POINTS, end = (i + 1) * count / MOST_POINTS;
        double x = 0, y = 0;
        for (size_t k = begin; k < end; k++) {
            x += series->x[k];
            y += series->y[k];
        }
        series->x[i] = x / (double)(end - begin);
        series->y[i] = y / (double)(end - begin);
    }
    series->count = MOST_POINTS;
}

static void add_chart(struct cvy_text *page, const char *title, bool percent, bool from_zero, int digits,
                      const struct cvy_curve *curves, size_t count)
{
    const struct cvy_chart chart = {
        .title = title,
        .x_title = "epochs",
        .left = LEFT,
        .top = TOP,
        .width = PLOT_WIDTH,
        .height = PLOT_HEIGHT,
        .percent = percent,
        .x_from_zero = true,
        .from_zero = from_zero,
        .digits = digits,
        .curves = curves,
        .curve_count = count,
    };

    cvy_text_printf(page, "<div class=\"panel\"><svg viewBox=\"0 0 %d %d\" font-size=\"12\" role=\"img\" aria-label=\"",
                    WIDTH, HEIGHT);
    cvy_html_escaped(page, title);
    cvy_text_puts(page, "\">\n");
    cvy_chart_write(page, &chart);
    cvy_text_puts(page, "</svg></div>\n");
}

/* The columns of metrics.csv one by one; x is the number of epochs done. */
struct columns {
    double *x, *train_loss, *val_loss, *top1, *topk, *average, *rate;
    size_t count;
};

static bool open_columns(struct columns *columns, const struct cvy_run_view *view)
{
    const size_t count = view->row_count;
    double *block = cvy_calloc(count, 7 * sizeof *block);

    *columns = (struct columns){.x = block};
    if (!block)
        return false;
    *columns = (struct columns){
        block,
        block + count,
        block + 2 * count,
        block + 3 * count,
        block + 4 * count,
        block + 5 * count,
        block + 6 * count,
        count,
    };
    for (size_t i = 0; i < count; i++) {
        const struct cvy_epoch_row *row = &view->rows[i];
        columns->x[i] = row->epoch + 1;
        columns->train_loss[i] = row->train_loss;
        columns->val_loss[i] = row->val_loss;
        columns->top1[i] = row->top1;
        columns->topk[i] = row->topk;
        columns->average[i] = row->average_top1;
        columns->rate[i] = row->learning_rate;
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
    const bool measured = is_measured(c->val_loss, c->count);
    const struct cvy_curve curves[] = {
        {"training, records", CVY_CHART_BLUE, c->count > 0, view->loss.x, view->loss.y, view->loss.count},
        {"training", CVY_CHART_BLUE, false, c->x, c->train_loss, c->count},
        {"validation", CVY_CHART_ORANGE, false, c->x, c->val_loss, c->count},
    };

    add_chart(page, "Loss", false, false, 4, curves, c->count == 0 ? 1 : measured ? 3 : 2);
}

static void add_accuracy(struct cvy_text *page, const struct cvy_run_view *view, const struct columns *c)
{
    const struct cvy_curve curves[] = {
        {"top-1", CVY_CHART_GREEN, false, c->x, c->top1, c->count},
        {view->topk_name, CVY_CHART_PURPLE, false, c->x, c->topk, c->count},
        {"EMA", CVY_CHART_BLUE, false, c->x, c->average, c->count},
    };
    const bool averaged = is_measured(c->average, c->count);

    if (is_measured(c->top1, c->count))
        add_chart(page, "Validation accuracy, %", true, false, 2, curves, averaged ? 3 : view->top_k == 1 ? 1 : 2);
}

static void add_rate(struct cvy_text *page, const struct cvy_run_view *view, const struct columns *c)
{
    const bool records = view->rate.count > 0;
    const struct cvy_curve curve = {
        "by step",
        CVY_CHART_BLUE,
        false,
        records ? view->rate.x : c->x,
        records ? view->rate.y : c->rate,
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
    add_rate(page, view, &columns);
    add_speed(page, view);
    add_scale(page, view);
    cvy_text_puts(page, "</div></section>\n");
    cvy_free(columns.x);
}
