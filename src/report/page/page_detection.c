/* A detector's validation on a page: precision by class, precision and recall, pictures. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "report/drawing/html.h"
#include "report/page/page_internal.h"

enum {
    MAX_BARS = 40,    /* classes that are shown as bars, all of them */
    MAX_CURVES = 40,  /* classes that have a curve of their own */
    LONGER_SIDE = 400 /* of a picture, in units of its drawing */
};

/* Classes without a name are counted from 1, as in `convoy detect`. */
static void add_class(struct cvy_text *page, const struct cvy_detection_validation *v, int32_t class)
{
    if (class >= 0 && class < v->class_count && v->classes[class])
        cvy_html_escaped(page, v->classes[class]);
    else
        cvy_text_printf(page, "class %d", (int)class + 1);
}

/* A fraction in per cent; -1 is none. */
static double percent(double fraction)
{
    return fraction < 0 ? NAN : 100 * fraction;
}

/* ---- by class ---- */

/* Classes with something to find, the most precise first. */
struct ranked {
    int32_t class;
    double ap;
};

static int by_precision(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->ap != y->ap)
        return x->ap > y->ap ? -1 : 1;
    return (x->class > y->class) - (x->class < y->class);
}

static void add_bar(struct cvy_text *page, const struct cvy_detection_validation *v, int32_t class)
{
    const struct cvy_class_precision *p = &v->precisions[class];

    cvy_text_puts(page, "<div class=\"class\"><span title=\"");
    add_class(page, v, class);
    cvy_text_puts(page, "\">");
    add_class(page, v, class);
    cvy_text_puts(page, "</span><span class=\"bar\"><i style=\"width:");
    cvy_html_coordinate(page, fmax(0, 100 * p->ap));
    cvy_text_puts(page, "%\"></i></span><span class=\"number\">");
    cvy_html_fixed(page, percent(p->ap), 1);
    cvy_text_printf(page, "</span><span class=\"number soft\">%lld</span></div>\n", (long long)p->truths);
}

static void add_row(struct cvy_text *page, const struct cvy_detection_validation *v, int32_t class)
{
    const struct cvy_class_precision *p = &v->precisions[class];
    const double numbers[] = {p->ap, p->ap50, p->ap75, p->recall};

    cvy_text_puts(page, "<tr><td>");
    add_class(page, v, class);
    cvy_text_puts(page, "</td>");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        cvy_text_puts(page, "<td class=\"number\">");
        cvy_html_fixed(page, percent(numbers[i]), 1);
        cvy_text_puts(page, "</td>");
    }
    cvy_text_printf(page, "<td class=\"number\">%lld</td><td class=\"number\">%lld</td></tr>\n", (long long)p->truths,
                    (long long)p->detections);
}

static void add_classes(struct cvy_text *page, const struct cvy_detection_validation *v, const struct ranked *order,
                        int32_t count)
{
    cvy_text_puts(page, "<section><h2>Average precision by class</h2>\n<p class=\"soft\">AP, per cent: the mean over "
                        "overlaps from 0.50 to 0.95, and the number of objects.</p>\n<div class=\"panel\">"
                        "<div class=\"classes\">\n");
    for (int32_t i = 0; i < count && i < MAX_BARS; i++)
        add_bar(page, v, order[i].class);
    cvy_text_printf(page,
                    "</div>\n<details><summary>All %d classes with objects</summary><div class=\"scroll\"><table "
                    "class=\"list\"><thead><tr><th data-sort=\"text\">class</th>",
                    (int)count);
    static const char *const heads[] = {"AP", "AP50", "AP75", "recall", "objects", "detections"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        cvy_text_printf(page, "<th class=\"number\" data-sort=\"number\">%s</th>", heads[i]);
    cvy_text_puts(page, "</tr></thead><tbody>\n");
    for (int32_t i = 0; i < count; i++)
        add_row(page, v, order[i].class);
    cvy_text_puts(page, "</tbody></table></div></details>\n</div></section>\n");
}

/* ---- precision and recall ---- */

static void add_curves(struct cvy_text *page, const char *title, const char *const *names,
                       const struct cvy_precision_curve *curves, size_t count)
{
    static const enum cvy_chart_colour colours[] = {CVY_CHART_BLUE, CVY_CHART_ORANGE, CVY_CHART_GREEN};
    double x[CVY_CURVE_POINTS], y[CVY_MEAN_CURVES][CVY_CURVE_POINTS];
    struct cvy_curve drawn[CVY_MEAN_CURVES];

    for (int i = 0; i < CVY_CURVE_POINTS; i++)
        x[i] = i;
    for (size_t c = 0; c < count; c++) {
        for (int i = 0; i < CVY_CURVE_POINTS; i++)
            y[c][i] = percent((double)curves[c].precision[i]);
        drawn[c] = (struct cvy_curve){names[c], colours[c], false, x, y[c], CVY_CURVE_POINTS};
    }
    cvy_page_chart(page, &(struct cvy_chart){
                             .title = title,
                             .x_title = "recall, %",
                             .percent = true,
                             .from_zero = true,
                             .names_alone = true,
                             .curves = drawn,
                             .curve_count = count,
                         });
}

static void add_class_curves(struct cvy_text *page, const struct cvy_detection_validation *v,
                             const struct ranked *order, int32_t count)
{
    const char *const name = "overlap 0.50";

    cvy_text_puts(page, "<details><summary>By class</summary><div class=\"charts\">\n");
    for (int32_t i = 0; i < count && i < MAX_CURVES; i++) {
        const struct cvy_class_precision *p = &v->precisions[order[i].class];
        char title[160];
        if (v->classes[order[i].class])
            snprintf(title, sizeof title, "%.100s: AP50 %.1f", v->classes[order[i].class], 100 * p->ap50);
        else
            snprintf(title, sizeof title, "class %d: AP50 %.1f", (int)order[i].class + 1, 100 * p->ap50);
        add_curves(page, title, &name, &p->curve, 1);
    }
    cvy_text_puts(page, "</div></details>\n");
}

static void add_precision(struct cvy_text *page, const struct cvy_detection_validation *v, const struct ranked *order,
                          int32_t count)
{
    static const char *const names[CVY_MEAN_CURVES] = {"overlap 0.50", "0.75", "0.50 to 0.95"};

    cvy_text_puts(page, "<section><h2>Precision and recall</h2>\n<p class=\"soft\">Of the detections that score "
                        "above some value, the share that is right; against the share of the objects that they "
                        "find.</p>\n<div class=\"charts one\">\n");
    add_curves(page, "Precision, %: mean over the classes", names, v->curves, CVY_MEAN_CURVES);
    cvy_text_puts(page, "</div>\n");
    add_class_curves(page, v, order, count);
    cvy_text_puts(page, "</section>\n");
}

/* ---- pictures ---- */

struct frame {
    double width, height; /* of the drawing */
};

static void add_mark(struct cvy_text *page, const struct cvy_detection_validation *v, const struct frame *frame,
                     const struct cvy_mark *mark, bool found)
{
    const double left = (double)mark->box[1] * frame->width, top = (double)mark->box[0] * frame->height;
    const double right = (double)mark->box[3] * frame->width, bottom = (double)mark->box[2] * frame->height;
    /* Names of what was found stand above its box, those of objects below theirs, and both inside the picture. */
    const double text = found ? fmax(top - 3, 11) : fmin(bottom + 11, frame->height - 3);

    cvy_text_printf(page, "<g class=\"%s\"><rect", found ? "found" : mark->crowd ? "truth crowd" : "truth");
    cvy_html_attribute(page, "x", left);
    cvy_html_attribute(page, "y", top);
    cvy_html_attribute(page, "width", fmax(right - left, 0));
    cvy_html_attribute(page, "height", fmax(bottom - top, 0));
    cvy_text_puts(page, "><title>");
    add_class(page, v, mark->label);
    if (found)
        cvy_text_printf(page, ", %.0f %%", 100 * (double)mark->score);
    cvy_text_puts(page, found         ? "</title></rect><text"
                        : mark->crowd ? ": a crowd</title></rect><text"
                                      : ": the truth</title></rect><text");
    cvy_html_attribute(page, "x", fmin(fmax(left, 1), frame->width - 20));
    cvy_html_attribute(page, "y", text);
    cvy_text_puts(page, ">");
    add_class(page, v, mark->label);
    if (found)
        cvy_text_printf(page, " %.0f", 100 * (double)mark->score);
    cvy_text_puts(page, "</text></g>\n");
}

static void add_picture(struct cvy_text *page, const struct cvy_detection_validation *v,
                        const struct cvy_marked_picture *picture)
{
    const double longer = fmax(picture->width, picture->height);
    const struct frame frame = {fmax(LONGER_SIDE * picture->width / longer, 1),
                                fmax(LONGER_SIDE * picture->height / longer, 1)};

    cvy_text_puts(page, "<figure class=\"panel\"><svg class=\"marked\" viewBox=\"0 0 ");
    cvy_html_coordinate(page, frame.width);
    cvy_text_puts(page, " ");
    cvy_html_coordinate(page, frame.height);
    cvy_text_puts(page, "\" font-size=\"11\">\n<image preserveAspectRatio=\"none\"");
    cvy_html_attribute(page, "width", frame.width);
    cvy_html_attribute(page, "height", frame.height);
    cvy_text_printf(page, " href=\"data:image/jpeg;base64,%s\"/>\n", picture->jpeg ? picture->jpeg : "");
    for (size_t i = 0; i < picture->truth_count; i++)
        add_mark(page, v, &frame, &picture->truths[i], false);
    for (size_t i = picture->found_count; i-- > 0;)
        add_mark(page, v, &frame, &picture->found[i], true);
    cvy_text_printf(page, "</svg><figcaption>%s, %zu found", cvy_counted((int64_t)picture->truth_count, "object"),
                    picture->found_count);
    cvy_page_file(page, picture->file);
    cvy_text_puts(page, "</figcaption></figure>\n");
}

void cvy_page_detection(struct cvy_text *page, const struct cvy_detection_validation *v)
{
    struct ranked *order = cvy_calloc((size_t)v->class_count + 1, sizeof *order);
    int32_t count = 0;

    if (!order) {
        page->failed = true;
        return;
    }
    for (int32_t i = 0; i < v->class_count; i++)
        if (v->precisions[i].ap >= 0)
            order[count++] = (struct ranked){i, v->precisions[i].ap};
    if (count > 0) {
        qsort(order, (size_t)count, sizeof *order, by_precision);
        add_classes(page, v, order, count);
        add_precision(page, v, order, count);
    }
    cvy_free(order);
    if (v->picture_count == 0)
        return;
    cvy_text_puts(page, "<section><h2>Pictures</h2>\n<p class=\"soft\">As the network saw them: <span "
                        "class=\"said\">what it found</span>, with scores in per cent (from 30 on), and <span "
                        "class=\"true\">the truth</span>, dashed.</p>\n<div class=\"pictures\">\n");
    for (size_t i = 0; i < v->picture_count; i++)
        add_picture(page, v, &v->pictures[i]);
    cvy_text_puts(page, "</div></section>\n");
}
