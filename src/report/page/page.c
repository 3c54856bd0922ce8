#include "report/page/page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_out.h"
#include "report/drawing/html.h"
#include "report/page/page_internal.h"

/* ---- the frame ---- */

/* From the document's beginning to the open <main>. */
static void begin_page(struct cvy_text *page, const char *title)
{
    cvy_text_puts(page, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                        "<meta name=\"generator\" content=\"Convoy ");
    cvy_html_escaped(page, cvy_version());
    cvy_text_puts(page, "\">\n<title>");
    cvy_html_escaped(page, title);
    cvy_text_puts(page, "</title>\n<style>\n");
    cvy_text_puts(page, cvy_page_style);
    cvy_text_puts(page, "</style></head>\n<body><main>\n<h1>");
    cvy_html_escaped(page, title);
    cvy_text_puts(page, "</h1>\n");
}

static void end_page(struct cvy_text *page)
{
    cvy_text_puts(page, "</main>\n<script>\n");
    cvy_text_puts(page, cvy_page_script);
    cvy_text_puts(page, "</script></body></html>\n");
}

/* A tile with a number: value is text. */
static void add_card(struct cvy_text *page, const char *label, const char *value)
{
    cvy_text_puts(page, "<div><b>");
    cvy_html_escaped(page, value);
    cvy_text_puts(page, "</b><span>");
    cvy_html_escaped(page, label);
    cvy_text_puts(page, "</span></div>\n");
}

static void add_number_card(struct cvy_text *page, const char *label, double value, int decimals, const char *unit)
{
    struct cvy_text text = {0};
    char number[32];

    if (fabs(value) >= 1e6) /* a tile has the width of ten digits */
        cvy_text_puts(&text, cvy_digits_text(value, 3, number));
    else
        cvy_html_fixed(&text, value, fabs(value) >= 1e4 && decimals > 1 ? 1 : decimals);
    cvy_text_puts(&text, unit);
    page->failed |= text.failed;
    add_card(page, label, text.text ? text.text : "");
    cvy_text_release(&text);
}

static void add_count_card(struct cvy_text *page, const char *label, int64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "%lld", (long long)value);
    add_card(page, label, text);
}

static cvy_status finish_page(struct cvy_text *page, const char *path)
{
    const cvy_status status =
        page->failed ? cvy_fail_memory(page->length, "a page") : cvy_file_replace(path, page->text, page->length);

    cvy_text_release(page);
    return status;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

void cvy_page_file(struct cvy_text *page, const char *file)
{
    if (!file)
        return;
    cvy_text_puts(page, "<br><span class=\"soft\" title=\"");
    cvy_html_escaped(page, file);
    cvy_text_puts(page, "\">");
    cvy_html_escaped(page, last_part(file));
    cvy_text_puts(page, "</span>");
}

/* ---- a run ---- */

/* "23 Nov 12:00" is for people of one place; the log's form sorts: without its fractions of a second. */
static void add_moment(struct cvy_text *page, const char *moment)
{
    char text[32];

    snprintf(text, sizeof text, "%.19s", moment);
    cvy_html_escaped(page, text);
}

static void add_status(struct cvy_text *page, const struct cvy_run_view *view)
{
    cvy_text_puts(page, "<p class=\"soft\">");
    if (view->finished && (int64_t)view->row_count >= view->epochs) {
        cvy_text_puts(page, "Finished: ");
        cvy_text_count(page, view->epochs, "epoch");
    } else {
        cvy_text_printf(page, "%s%zu of ", view->finished ? "Ended after " : "", view->row_count);
        cvy_text_count(page, view->epochs, "epoch");
        cvy_text_puts(page, view->finished ? "" : view->epochs == 1 ? " is done" : " are done");
    }
    if (view->first_moment[0]) {
        cvy_text_puts(page, "; from ");
        add_moment(page, view->first_moment);
        cvy_text_puts(page, " to ");
        add_moment(page, view->last_moment);
    }
    if (view->resumed > 0)
        cvy_text_printf(page, ", resumed %s", view->resumed == 1 ? "once" : "");
    if (view->resumed > 1)
        cvy_text_printf(page, "%lld times", (long long)view->resumed);
    cvy_text_puts(page, ". Data: ");
    cvy_html_escaped(page, view->data);
    cvy_text_puts(page, "</p>\n");
}

/* The diagnoses; nothing for a healthy run. */
static void add_remarks(struct cvy_text *page, const struct cvy_run_view *view)
{
    if (view->remark_count == 0)
        return;
    cvy_text_puts(page, "<div class=\"panel notes\" role=\"note\">\n");
    for (size_t i = 0; i < view->remark_count; i++) {
        const struct cvy_remark *remark = &view->remarks[i];
        cvy_text_printf(page, "<p><b>Epoch %lld", (long long)remark->epoch + 1);
        if (remark->step > 0)
            cvy_text_printf(page, ", step %lld", (long long)remark->step);
        cvy_text_puts(page, ":</b> ");
        cvy_html_escaped(page, remark->text);
        cvy_text_puts(page, ".</p>\n");
    }
    cvy_text_puts(page, "</div>\n");
}

/* The epoch in which a value was largest; NULL: it was never measured. */
static const struct cvy_epoch_row *best_row(const struct cvy_run_view *view, enum cvy_epoch_value value)
{
    const struct cvy_epoch_row *best = NULL;

    for (size_t i = 0; i < view->row_count; i++)
        if (!isnan(view->rows[i].values[value]) && (!best || view->rows[i].values[value] > best->values[value]))
            best = &view->rows[i];
    return best;
}

/* What the best epoch reached, all of it of that one epoch, and what the last one did where that is another. */
static void add_score_cards(struct cvy_text *page, const struct cvy_run_view *view)
{
    const struct cvy_epoch_row *top1 = best_row(view, CVY_EPOCH_TOP1), *ap = best_row(view, CVY_EPOCH_AP);
    const struct cvy_epoch_row *best = ap ? ap : top1, *last = &view->rows[view->row_count - 1];
    char label[64];

    if (!best)
        return;
    snprintf(label, sizeof label, "best %s, epoch %.0f", ap ? "AP" : "top-1", best->epoch + 1);
    add_number_card(page, label, best->values[ap ? CVY_EPOCH_AP : CVY_EPOCH_TOP1], ap ? 1 : 2, " %");
    if (ap) {
        add_number_card(page, "its AP50", ap->values[CVY_EPOCH_AP50], 1, " %");
        add_number_card(page, "its AP75", ap->values[CVY_EPOCH_AP75], 1, " %");
    } else {
        if (view->top_k != 1) {
            snprintf(label, sizeof label, "its %s", view->topk_name);
            add_number_card(page, label, top1->values[CVY_EPOCH_TOPK], 2, " %");
        }
        add_number_card(page, "its validation loss", top1->values[CVY_EPOCH_VAL_LOSS], 4, "");
    }
    add_number_card(page, "its training loss", best->values[CVY_EPOCH_TRAIN_LOSS], 4, "");
    if (last == best || isnan(last->values[ap ? CVY_EPOCH_AP : CVY_EPOCH_TOP1]))
        return;
    snprintf(label, sizeof label, "last %s, epoch %.0f", ap ? "AP" : "top-1", last->epoch + 1);
    add_number_card(page, label, last->values[ap ? CVY_EPOCH_AP : CVY_EPOCH_TOP1], ap ? 1 : 2, " %");
}

static void add_cards(struct cvy_text *page, const struct cvy_run_view *view)
{
    const struct cvy_epoch_row *last = view->row_count > 0 ? &view->rows[view->row_count - 1] : NULL;

    cvy_text_puts(page, "<div class=\"cards\">\n");
    if (last)
        add_score_cards(page, view);
    if (last && !best_row(view, CVY_EPOCH_TOP1) && !best_row(view, CVY_EPOCH_AP))
        add_number_card(page, "last training loss", last->values[CVY_EPOCH_TRAIN_LOSS], 4, "");
    if (view->epoch_speed.count > 0)
        add_number_card(page, "images per second", view->epoch_speed.y[view->epoch_speed.count - 1], 1, "");
    if (view->data_share.count > 0)
        add_number_card(page, "waiting for data", 100 * view->data_share.y[view->data_share.count - 1], 1, " %");
    if (view->parameters > 0)
        add_number_card(page, "million parameters", (double)view->parameters / 1e6, 2, "");
    if (view->bad_images > 0)
        add_count_card(page, "unreadable images", (int64_t)view->bad_images);
    cvy_text_puts(page, "</div>\n");
}

/* ---- configuration ---- */

static void begin_settings(struct cvy_text *page, const char *title)
{
    cvy_text_puts(page, "<h3>");
    cvy_html_escaped(page, title);
    cvy_text_puts(page, "</h3>\n<dl class=\"settings\">\n");
}

static void add_setting(struct cvy_text *page, const char *name, const char *value)
{
    cvy_text_puts(page, "<div><dt>");
    cvy_html_escaped(page, name);
    cvy_text_puts(page, "</dt><dd>");
    cvy_html_escaped(page, value);
    cvy_text_puts(page, "</dd></div>\n");
}

static void add_options(struct cvy_text *page, const struct cvy_json_value *object)
{
    char number[32];

    for (const struct cvy_json_value *value = object->first; value; value = value->next) {
        if (value->type == CVY_JSON_STRING)
            add_setting(page, value->key, value->text);
        else if (value->type == CVY_JSON_BOOL)
            add_setting(page, value->key, value->boolean ? "yes" : "no");
        else if (value->type == CVY_JSON_NUMBER)
            add_setting(page, value->key, cvy_digits_text(value->number, value->is_integer ? 17 : 10, number));
    }
}

static void add_configuration(struct cvy_text *page, const struct cvy_run_view *view)
{
    cvy_text_puts(page, "<section><h2>Configuration</h2>\n<div class=\"panel\">\n");
    begin_settings(page, "What the result depends on");
    add_options(page, cvy_json_get(view->options, "result"));
    cvy_text_puts(page, "</dl>\n");
    begin_settings(page, "How this run works");
    add_options(page, cvy_json_get(view->options, "run"));
    cvy_text_puts(page, "</dl>\n");
    if (view->fact_count > 0) {
        begin_settings(page, "Model, data and environment");
        for (size_t i = 0; i < view->fact_count; i++)
            add_setting(page, view->facts[i].name, view->facts[i].value);
        cvy_text_puts(page, "</dl>\n");
    }
    cvy_text_puts(page, "</div></section>\n");
}

/* Which weights what follows is about: those that one takes along, or the last ones where of those no details are kept.
 */
static void add_validation_title(struct cvy_text *page, const struct cvy_run_view *view, int64_t epoch, int64_t images,
                                 int64_t skipped, const char *name, double percent)
{
    cvy_text_puts(page, "<section><h2>Validation</h2>\n<p class=\"soft\">Classes and images below are those of ");
    if (view->of_best)
        cvy_text_puts(page, "model_best.safetensors: ");
    else
        cvy_text_puts(page, "the last validation, not of the best weights: ");
    cvy_text_printf(page, "epoch %lld, %s, %s ", (long long)epoch + 1, cvy_counted(images, "image"), name);
    cvy_html_fixed(page, percent, 2);
    cvy_text_puts(page, " %");
    if (skipped > 0)
        cvy_text_printf(page, "; %s could not be read", cvy_counted(skipped, "image"));
    cvy_text_puts(page, ".</p></section>\n");
}

static void add_validation(struct cvy_text *page, const struct cvy_run_view *view)
{
    const struct cvy_validation *v = &view->validation;
    const struct cvy_detection_validation *d = &view->detection;

    if (view->has_validation) {
        add_validation_title(page, view, v->epoch, v->images, v->skipped, "top-1", v->top1);
        cvy_page_validation(page, v);
    } else if (view->has_detection) {
        add_validation_title(page, view, d->epoch, d->images, d->skipped, "AP",
                             d->stats[0] < 0 ? NAN : 100 * d->stats[0]);
        cvy_page_detection(page, d);
    }
}

cvy_status cvy_report(const char *run_directory, const char *path)
{
    CVY_REQUIRE(run_directory);
    struct cvy_run_view view;
    struct cvy_text page = {0};
    char *title = NULL, *own = NULL;
    cvy_status status;

    CVY_TRY(cvy_run_view_open(&view, run_directory));
    title = cvy_arena_printf(&view.arena, "%s on %s", view.arch, last_part(view.data));
    own = cvy_path_join(run_directory, "report.html");
    if (!title || !own) {
        status = cvy_fail_memory(strlen(run_directory) + 16, "a page");
        goto fail;
    }
    begin_page(&page, title);
    add_status(&page, &view);
    add_cards(&page, &view);
    add_remarks(&page, &view);
    cvy_page_charts(&page, &view);
    add_validation(&page, &view);
    add_configuration(&page, &view);
    cvy_page_next(&page, &view, run_directory);
    end_page(&page);
    status = finish_page(&page, path ? path : own);
fail:
    cvy_free(own);
    cvy_text_release(&page);
    cvy_run_view_close(&view);
    return status;
}

/* ---- a validation alone ---- */

cvy_status cvy_page_of_validation(const char *path, const char *title, const struct cvy_validation *v)
{
    struct cvy_text page = {0}, head = {0};
    char label[32];

    cvy_text_printf(&head, "%s: validation", title);
    page.failed |= head.failed;
    begin_page(&page, head.text ? head.text : "");
    cvy_text_release(&head);
    cvy_text_puts(&page, "<div class=\"cards\">\n");
    add_number_card(&page, "top-1", v->top1, 2, " %");
    if (v->top_k != 1) {
        snprintf(label, sizeof label, "top-%d", (int)v->top_k);
        add_number_card(&page, label, v->topk, 2, " %");
    }
    add_number_card(&page, "loss", v->loss, 4, "");
    add_count_card(&page, "images", v->images);
    if (v->skipped > 0)
        add_count_card(&page, "could not be read", v->skipped);
    cvy_text_puts(&page, "</div>\n");
    cvy_page_validation(&page, v);
    end_page(&page);
    return finish_page(&page, path);
}

/* ---- a detector's validation alone ---- */

cvy_status cvy_page_of_detection(const char *path, const char *title, const struct cvy_detection_validation *v)
{
    static const char *const names[CVY_DETECTION_STATS] = {"AP",
                                                           "AP50",
                                                           "AP75",
                                                           "AP, small",
                                                           "AP, medium",
                                                           "AP, large",
                                                           "recall, 1 a picture",
                                                           "recall, 10 a picture",
                                                           "recall, 100 a picture",
                                                           "recall, small",
                                                           "recall, medium",
                                                           "recall, large"};
    struct cvy_text page = {0}, head = {0};

    cvy_text_printf(&head, "%s: validation", title);
    page.failed |= head.failed;
    begin_page(&page, head.text ? head.text : "");
    cvy_text_release(&head);
    cvy_text_puts(&page, "<div class=\"cards\">\n");
    for (int i = 0; i < CVY_DETECTION_STATS; i++)
        add_number_card(&page, names[i], v->stats[i] < 0 ? NAN : 100 * v->stats[i], 1, v->stats[i] < 0 ? "" : " %");
    add_count_card(&page, "images", v->images);
    if (v->skipped > 0)
        add_count_card(&page, "could not be read", v->skipped);
    cvy_text_puts(&page, "</div>\n");
    cvy_page_detection(&page, v);
    end_page(&page);
    return finish_page(&page, path);
}
