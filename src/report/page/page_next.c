/* The end of a run's page: what to do next, with the commands. */
#include <math.h>
#include <string.h>

#include "report/drawing/html.h"
#include "report/page/page_internal.h"

/* A word of a POSIX shell. */
static void add_word(struct cvy_text *command, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=:,@%";

    if (*text && !text[strspn(text, plain)]) {
        cvy_text_puts(command, text);
        return;
    }
    cvy_text_puts(command, "'");
    for (; *text; text++) {
        if (*text == '\'')
            cvy_text_puts(command, "'\\''");
        else
            cvy_text_append(command, text, 1);
    }
    cvy_text_puts(command, "'");
}

/* A file of the run's folder; "": the folder itself. */
static void add_run_file(struct cvy_text *command, const char *folder, const char *file)
{
    struct cvy_text path = {0};
    size_t length = strlen(folder);

    while (length > 1 && folder[length - 1] == '/')
        length--;
    cvy_text_append(&path, folder, length);
    cvy_text_printf(&path, "%s%s", file[0] ? "/" : "", file);
    add_word(command, path.text ? path.text : "");
    command->failed |= path.failed;
    cvy_text_release(&path);
}

/* What for, and the command, whose memory is given back. */
static void add_step(struct cvy_text *page, const char *what, struct cvy_text *command)
{
    cvy_text_puts(page, "<dt>");
    cvy_html_escaped(page, what);
    cvy_text_puts(page, "</dt><dd><code>");
    cvy_html_escaped(page, command->text);
    cvy_text_puts(page, "</code></dd>\n");
    page->failed |= command->failed;
    cvy_text_release(command);
}

void cvy_page_next(struct cvy_text *page, const struct cvy_run_view *view, const char *folder)
{
    bool measured = false, detection = false;
    const char *weights;
    struct cvy_text command = {0};

    for (size_t i = 0; i < view->row_count; i++) {
        detection |= !isnan(view->rows[i].values[CVY_EPOCH_AP]);
        measured |= detection || !isnan(view->rows[i].values[CVY_EPOCH_TOP1]);
    }
    weights = measured ? "model_best.safetensors" : "checkpoint.safetensors";
    cvy_text_puts(page, "<section class=\"next\"><h2>What to do next</h2>\n<div class=\"panel\"><dl>\n");
    if ((int64_t)view->row_count < view->epochs) {
        cvy_text_puts(&command, "convoy train ");
        add_word(&command, view->data);
        cvy_text_puts(&command, " --resume ");
        add_run_file(&command, folder, "");
        add_step(page, "Continue the run, to the results that it would have had without a stop", &command);
    }
    if (view->row_count > 0) {
        cvy_text_printf(&command, "convoy %s IMAGE --weights ", detection ? "detect" : "classify");
        add_run_file(&command, folder, weights);
        cvy_text_puts(&command, detection ? " --draw found" : "");
        add_step(page, detection ? "Find the objects on new images" : "Say what is on new images", &command);
    }
    if (measured) {
        cvy_text_puts(&command, "convoy check ");
        add_word(&command, view->data);
        add_step(page, "Look at the most wrong images above: wrong labels are the cheapest mistakes to mend", &command);
        cvy_text_puts(&command, "convoy evaluate ");
        add_word(&command, view->data);
        cvy_text_puts(&command, " --weights ");
        add_run_file(&command, folder, weights);
        add_step(page, "Measure it again, after the data have changed", &command);
        cvy_text_puts(&command, "convoy convert ");
        add_run_file(&command, folder, weights);
        cvy_text_puts(&command, " network.onnx");
        add_step(page, "Take it to other programs", &command);
    }
    cvy_text_puts(page, "</dl></div></section>\n");
}
