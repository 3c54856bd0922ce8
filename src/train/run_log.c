/* The logs of a run. */
#include "train/run_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "report/plot.h"
#include "train/options.h"

/* ---- cutting back ---- */

/* metrics.csv: a row "epoch,..." of an epoch that is not done yet goes. The first line is the header. */
static bool keep_metrics(const char *line, int64_t number, const struct cvy_train_state *state)
{
    return number == 0 || strtoll(line, NULL, 10) < state->epoch;
}

/* "epoch,step,...": steps after the checkpoint go. */
static bool keep_steps(const char *line, int64_t number, const struct cvy_train_state *state)
{
    const char *comma = strchr(line, ',');

    return number == 0 || (comma && strtoll(comma + 1, NULL, 10) <= state->step);
}

/* DLLogger lines: "step": "PARAMETER", [] (summary), [epoch], or [epoch, iteration, ...]. Lines without a step stay. */
static bool keep_report(const char *line, int64_t number, const struct cvy_train_state *state)
{
    const char *step = strstr(line, "\"step\": [");
    char *end;
    int64_t epoch, iteration;

    (void)number;
    if (!step)
        return true;
    step += strlen("\"step\": [");
    epoch = strtoll(step, &end, 10);
    if (end == step)
        return false;
    if (*end != ',')
        return epoch < state->epoch;
    iteration = strtoll(end + 1, NULL, 10);
    return epoch < state->epoch || (epoch == state->epoch && iteration <= state->position);
}

int64_t cvy_run_log_keep(const char *path, enum cvy_log_kind kind, const struct cvy_train_state *state)
{
    bool (*const keep)(const char *, int64_t, const struct cvy_train_state *) = kind == CVY_LOG_METRICS ? keep_metrics
                                                                                : kind == CVY_LOG_STEPS ? keep_steps
                                                                                                        : keep_report;
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    int64_t kept = 0;

    if (!file)
        return 0;
    for (int64_t number = 0; (length = getline(&line, &room, file)) > 0; number++) {
        if (line[length - 1] != '\n' || !keep(line, number, state))
            break;
        kept += length;
    }
    free(line); /* allocated by getline */
    fclose(file);
    return kept;
}

/* ---- opening ---- */

static cvy_status write_parameters(struct cvy_run_log *log, const struct cvy_train_options *options)
{
    struct cvy_text text = {0};
    struct cvy_json json = {.text = &text};
    cvy_status status;

    cvy_options_write_json(options, CVY_OPTION_RESULT, &json);
    status =
        text.failed ? cvy_fail_memory(text.capacity, "the report") : cvy_dllogger_parameters(&log->report, text.text);
    cvy_text_release(&text);
    return status;
}

cvy_status cvy_run_log_open(struct cvy_run_log *log, const struct cvy_run_paths *paths,
                            const struct cvy_train_options *options, const struct cvy_train_state *state)
{
    static const char *const step_columns[] = {"epoch", "step", "loss", "lr"};
    const char *const columns[] = {"epoch", "train.loss", "val.loss", "val.top1", log->topk, "train.lr"};
    int64_t offset;
    cvy_status status;

    memset(log, 0, sizeof *log);
    log->paths = paths;
    snprintf(log->title, sizeof log->title, "%s on %.64s", options->arch,
             options->data[0] ? options->data : "synthetic data");
    snprintf(log->topk, sizeof log->topk, "val.top%d", (int)options->topk);
    offset = state ? cvy_run_log_keep(paths->metrics, CVY_LOG_METRICS, state) : 0;
    CVY_GOTO(cvy_csv_open(&log->metrics, paths->metrics, columns, 6, offset));
    if (paths->steps[0]) {
        offset = state ? cvy_run_log_keep(paths->steps, CVY_LOG_STEPS, state) : 0;
        CVY_GOTO(cvy_csv_open(&log->steps, paths->steps, step_columns, 4, offset));
    }
    offset = state ? cvy_run_log_keep(paths->report, CVY_LOG_REPORT, state) : 0;
    CVY_GOTO(cvy_dllogger_open(&log->report, paths->report, offset));
    if (offset == 0) {
        CVY_GOTO(write_parameters(log, options));
        CVY_GOTO(cvy_dllogger_standard_metadata(&log->report));
    }
    return CVY_OK;
fail:
    cvy_run_log_close(log);
    return status;
}

void cvy_run_log_close(struct cvy_run_log *log)
{
    cvy_csv_close(&log->metrics);
    cvy_csv_close(&log->steps);
    cvy_dllogger_close(&log->report);
    memset(log, 0, sizeof *log);
}

/* ---- records ---- */

cvy_status cvy_run_log_step(struct cvy_run_log *log, int64_t epoch, int64_t step, double loss, double learning_rate)
{
    const double values[] = {(double)epoch, (double)step, loss, learning_rate};

    return cvy_csv_row(&log->steps, values, NULL);
}

static double rate(int64_t count, double seconds)
{
    return seconds > 0 ? (double)count / seconds : 0;
}

cvy_status cvy_run_log_window(struct cvy_run_log *log, const struct cvy_run_window *window)
{
    const double steps = window->steps > 0 ? (double)window->steps : 1;
    const double compute = window->seconds - window->wait;
    const int64_t step[] = {window->epoch, window->position};
    const struct cvy_metric metrics[] = {
        {"train.loss", window->loss},
        {"train.compute_ips", rate(window->images, compute)},
        {"train.total_ips", rate(window->images, window->seconds)},
        {"train.data_time", window->wait / steps},
        {"train.compute_time", compute / steps},
        {"train.lr", window->learning_rate},
    };

    return cvy_dllogger_log(&log->report, step, 2, metrics, sizeof metrics / sizeof metrics[0]);
}

cvy_status cvy_run_log_epoch(struct cvy_run_log *log, const struct cvy_run_epoch *epoch)
{
    const struct cvy_train_epoch *e = &epoch->public;
    const bool v = e->validated;
    const bool present[] = {true, true, v, v, v, true};
    const double row[] = {(double)e->epoch, e->train_loss, e->val_loss, e->val_top1, e->val_top5, e->learning_rate};
    const int64_t step[] = {e->epoch};
    const struct cvy_metric metrics[] = {
        {"train.loss", e->train_loss},
        {"train.total_ips", e->images_per_second},
        {"train.lr", e->learning_rate},
        {"train.bad_images", (double)e->bad_images},
        {"val.top1", e->val_top1},
        {log->topk, e->val_top5},
        {"val.loss", e->val_loss},
        {"val.total_ips", rate(epoch->val_images, epoch->val_seconds)},
        {"val.skipped", (double)epoch->skipped},
    };

    CVY_TRY(cvy_csv_row(&log->metrics, row, present));
    return cvy_dllogger_log(&log->report, step, 1, metrics, v ? 9 : 4);
}

cvy_status cvy_run_log_plot(const struct cvy_run_log *log)
{
    return cvy_plot_metrics(log->paths->plot, log->title, log->paths->metrics);
}

cvy_status cvy_run_log_sync(struct cvy_run_log *log)
{
    CVY_TRY(cvy_line_file_sync(&log->metrics.file));
    CVY_TRY(cvy_line_file_sync(&log->steps.file));
    return cvy_line_file_sync(&log->report.file);
}

cvy_status cvy_run_log_summary(struct cvy_run_log *log, const struct cvy_train_result *result, double images_per_second)
{
    const struct cvy_metric metrics[] = {
        {"train.total_ips", images_per_second},
        {"train.bad_images", (double)result->bad_images},
        {"val.top1", result->best_top1},
    };

    return cvy_dllogger_log(&log->report, NULL, 0, metrics, result->best_epoch >= 0 ? 3 : 2);
}
