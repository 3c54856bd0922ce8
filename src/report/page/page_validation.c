/* A validation on a page: accuracy by class, confusions, the most wrong images. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_out.h"
#include "report/drawing/html.h"
#include "report/page/page_internal.h"

enum {
    MAX_BARS = 40,        /* classes that are shown as bars, all of them */
    MAX_SHOWN_CELLS = 30, /* classes of a confusion matrix that can be read */
    HARDEST = 24,         /* classes shown as bars where there are more */
    FEW_CONFUSIONS = 12,  /* beside a matrix */
    MANY_CONFUSIONS = 60, /* instead of one */
};

static double accuracy(const struct cvy_validation *v, int32_t class)
{
    return v->class_images[class] > 0 ? 100.0 * (double)v->class_hits[class] / (double)v->class_images[class] : NAN;
}

static void add_class(struct cvy_text *page, const struct cvy_validation *v, int32_t class)
{
    char buffer[32];

    cvy_html_escaped(page, cvy_validation_class(v, class, buffer));
}

static void add_percent(struct cvy_text *page, double value)
{
    cvy_html_fixed(page, value, 1);
    cvy_text_puts(page, isfinite(value) ? " %" : "");
}

/* A probability in per cent; how far below a hundredth it lies is of no interest. */
static void add_probability(struct cvy_text *page, double probability)
{
    const double percent = 100 * probability;

    if (percent < 0.005)
        cvy_text_puts(page, "&lt;\xC2\xA0"
                            "0.01");
    else
        cvy_html_fixed(page, percent, percent < 1 ? 2 : 1);
    cvy_text_puts(page, "\xC2\xA0%");
}

/* ---- by class ---- */

struct ranked {
    int32_t class;
    double accuracy;
};

/* Hard ones first; classes without images last. */
static int by_accuracy(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (isnan(x->accuracy) || isnan(y->accuracy))
        return isnan(x->accuracy) - isnan(y->accuracy);
    if (x->accuracy != y->accuracy)
        return x->accuracy < y->accuracy ? -1 : 1;
    return (x->class > y->class) - (x->class < y->class);
}

static void add_bar(struct cvy_text *page, const struct cvy_validation *v, int32_t class)
{
    const double value = accuracy(v, class);

    cvy_text_puts(page, "<div class=\"class\"><span title=\"");
    add_class(page, v, class);
    cvy_text_puts(page, "\">");
    add_class(page, v, class);
    cvy_text_puts(page, "</span><span class=\"bar\"><i style=\"width:");
    cvy_html_coordinate(page, isnan(value) ? 0 : value);
    cvy_text_puts(page, "%\"></i></span><span class=\"number\">");
    add_percent(page, value);
    cvy_text_printf(page, "</span><span class=\"number soft\">%lld/%lld</span></div>\n",
                    (long long)v->class_hits[class], (long long)v->class_images[class]);
}

/* How many classes lie in each tenth of the accuracies. */
static void add_histogram(struct cvy_text *page, const struct cvy_validation *v)
{
    int32_t bins[10] = {0}, max = 1;

    for (int32_t i = 0; i < v->class_count; i++) {
        const double value = accuracy(v, i);
        if (!isnan(value))
            bins[value >= 100 ? 9 : (int)(value / 10)]++;
    }
    for (int i = 0; i < 10; i++)
        max = bins[i] > max ? bins[i] : max;
    cvy_text_puts(page, "<h3>How many classes reach which accuracy</h3>\n<div class=\"classes\">");
    for (int i = 0; i < 10; i++)
        cvy_text_printf(page,
                        "<div class=\"class\"><span>%d to %d %%</span><span class=\"bar\"><i style=\"width:%d%%\"></i>"
                        "</span><span class=\"number\">%d</span><span></span></div>\n",
                        i * 10, i * 10 + 10, (int)(100.0 * bins[i] / max), (int)bins[i]);
    cvy_text_puts(page, "</div>\n");
}

static void add_class_table(struct cvy_text *page, const struct cvy_validation *v, const struct ranked *order)
{
    cvy_text_printf(page,
                    "<details><summary>All %d classes</summary><div class=\"scroll\"><table class=\"list\"><thead><tr>"
                    "<th data-sort=\"text\">class</th><th class=\"number\" data-sort=\"number\">top-1, %%</th>"
                    "<th class=\"number\" data-sort=\"number\">top-%d, %%</th>"
                    "<th class=\"number\" data-sort=\"number\">images</th>"
                    "<th class=\"number\" data-sort=\"number\">taken for it</th></tr></thead><tbody>\n",
                    (int)v->class_count, (int)v->top_k);
    for (int32_t i = 0; i < v->class_count; i++) {
        const int32_t class = order[i].class;
        const double images = (double)v->class_images[class];
        cvy_text_puts(page, "<tr><td>");
        add_class(page, v, class);
        cvy_text_puts(page, "</td><td class=\"number\">");
        cvy_html_fixed(page, order[i].accuracy, 2);
        cvy_text_puts(page, "</td><td class=\"number\">");
        cvy_html_fixed(page, images > 0 ? 100.0 * (double)v->class_topk_hits[class] / images : NAN, 2);
        cvy_text_printf(page, "</td><td class=\"number\">%lld</td><td class=\"number\">%lld</td></tr>\n",
                        (long long)v->class_images[class], (long long)v->class_predicted[class]);
    }
    cvy_text_puts(page, "</tbody></table></div></details>\n");
}

static void add_classes(struct cvy_text *page, const struct cvy_validation *v)
{
    const bool few = v->class_count <= MAX_BARS;
    struct ranked *order = cvy_calloc((size_t)v->class_count, sizeof *order);

    if (!order) {
        page->failed = true;
        return;
    }
    for (int32_t i = 0; i < v->class_count; i++)
        order[i] = (struct ranked){i, accuracy(v, i)};
    qsort(order, (size_t)v->class_count, sizeof *order, by_accuracy);
    cvy_text_puts(page, "<section><h2>Accuracy by class</h2>\n<div class=\"panel\">");
    if (!few)
        add_histogram(page, v);
    cvy_text_puts(page, few ? "<div class=\"classes\">\n" : "<h3>The hardest classes</h3>\n<div class=\"classes\">\n");
    for (int32_t i = 0; i < (few ? v->class_count : HARDEST); i++)
        add_bar(page, v, few ? i : order[i].class);
    cvy_text_puts(page, "</div>\n");
    add_class_table(page, v, order);
    cvy_text_puts(page, "</div></section>\n");
    cvy_free(order);
}

/* ---- confusions ---- */

static void add_cell(struct cvy_text *page, const struct cvy_validation *v, int32_t label, int32_t predicted,
                     int64_t count)
{
    const double images = (double)v->class_images[label], share = images > 0 ? (double)count / images : 0;
    char number[32];

    if (count == 0) {
        cvy_text_puts(page, "<td class=\"none\">0</td>");
        return;
    }
    /* Rare ones are seen too: the colour begins at a sixth. */
    cvy_text_printf(page, "<td%s style=\"background:rgba(var(--%s),%s)\" title=\"",
                    share > 0.6 ? " class=\"full\"" : "", label == predicted ? "right" : "wrong",
                    cvy_digits_text(0.17 + 0.83 * share, 2, number));
    add_class(page, v, label);
    cvy_text_puts(page, label == predicted ? " recognised: " : " taken for ");
    if (label != predicted) {
        add_class(page, v, predicted);
        cvy_text_puts(page, ": ");
    }
    add_percent(page, 100 * share);
    cvy_text_printf(page, "\">%lld</td>", (long long)count);
}

static void add_matrix(struct cvy_text *page, const struct cvy_validation *v)
{
    const int32_t classes = v->class_count;
    int64_t *counts = cvy_calloc((size_t)classes * (size_t)classes, sizeof *counts);

    if (!counts) {
        page->failed = true;
        return;
    }
    for (size_t i = 0; i < v->cell_count; i++)
        counts[v->cells[i].label * classes + v->cells[i].predicted] += v->cells[i].count;
    cvy_text_puts(page, "<div><h3>Rows: the true classes; columns: what the network said</h3>\n"
                        "<div class=\"scroll\"><table class=\"matrix\"><thead><tr><th></th>");
    for (int32_t i = 0; i < classes; i++) {
        cvy_text_puts(page, "<th><span>");
        add_class(page, v, i);
        cvy_text_puts(page, "</span></th>");
    }
    cvy_text_puts(page, "</tr></thead><tbody>\n");
    for (int32_t i = 0; i < classes; i++) {
        cvy_text_puts(page, "<tr><th title=\"");
        add_class(page, v, i);
        cvy_text_puts(page, "\">");
        add_class(page, v, i);
        cvy_text_puts(page, "</th>");
        for (int32_t k = 0; k < classes; k++)
            add_cell(page, v, i, k, counts[i * classes + k]);
        cvy_text_puts(page, "</tr>\n");
    }
    cvy_text_puts(page, "</tbody></table></div></div>\n");
    cvy_free(counts);
}

/* Cells come sorted by count. */
static void add_confusions(struct cvy_text *page, const struct cvy_validation *v, int max)
{
    int shown = 0;

    cvy_text_puts(page,
                  "<div><h3>The most frequent confusions</h3>\n<div class=\"scroll\"><table class=\"list\"><thead><tr>"
                  "<th>class</th><th>taken for</th><th class=\"number\">images</th>"
                  "<th class=\"number\">of the class</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < v->cell_count && shown < max; i++) {
        const struct cvy_confusion_cell *cell = &v->cells[i];
        if (cell->label == cell->predicted)
            continue;
        cvy_text_puts(page, "<tr><td>");
        add_class(page, v, cell->label);
        cvy_text_puts(page, "</td><td>");
        add_class(page, v, cell->predicted);
        cvy_text_printf(page, "</td><td class=\"number\">%lld</td><td class=\"number\">", (long long)cell->count);
        add_percent(page, 100.0 * (double)cell->count / (double)v->class_images[cell->label]);
        cvy_text_puts(page, "</td></tr>\n");
        shown++;
    }
    cvy_text_puts(page, "</tbody></table></div>\n");
    if (shown == 0)
        cvy_text_puts(page, "<p class=\"soft\">None: every image is recognised.</p>\n");
}

/* ---- images ---- */

static void add_image(struct cvy_text *page, const struct cvy_validation *v, const struct cvy_wrong_image *image)
{
    cvy_text_puts(page, "<figure class=\"panel\">");
    if (image->thumbnail)
        cvy_text_printf(page, "<img alt=\"\" loading=\"lazy\" src=\"data:image/jpeg;base64,%s\">", image->thumbnail);
    cvy_text_puts(page, "<figcaption><span class=\"said\">said <b>");
    add_class(page, v, image->predicted);
    cvy_text_puts(page, "</b> ");
    add_probability(page, image->probability);
    cvy_text_puts(page, "</span><br><span class=\"is\">is <b>");
    add_class(page, v, image->label);
    cvy_text_puts(page, "</b> ");
    add_probability(page, image->label_probability);
    cvy_text_puts(page, "</span>");
    cvy_page_file(page, image->file);
    cvy_text_puts(page, "</figcaption></figure>\n");
}

void cvy_page_validation(struct cvy_text *page, const struct cvy_validation *v)
{
    const bool readable = v->class_count <= MAX_SHOWN_CELLS;

    add_classes(page, v);
    cvy_text_puts(page, "<section><h2>Confusions</h2>\n<div class=\"panel confusions\">");
    if (readable)
        add_matrix(page, v);
    add_confusions(page, v, readable ? FEW_CONFUSIONS : MANY_CONFUSIONS);
    cvy_text_puts(page, "</div></div></section>\n");
    if (v->worst_count == 0)
        return;
    cvy_text_puts(page, "<section><h2>The most wrong images</h2>\n<p class=\"soft\">Where the true class was given the "
                        "least probability, as the network saw them. Wrong labels are often among them.</p>\n"
                        "<div class=\"images\">\n");
    for (size_t i = 0; i < v->worst_count; i++)
        add_image(page, v, &v->worst[i]);
    cvy_text_puts(page, "</div></section>\n");
}
