/* The logs of a run. */
#include "run/records/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "options/options.h"
#include "report/drawing/plot.h"
#include "run/records/summary.h"

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

/* DLLogger lines: "step": "PARAMETER", [] (summary), [epoch], [epoch, iteration], or [epoch, iteration, batch] in a
 * validation, which is computed again as long as its epoch is not done. Lines without a step stay. */
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
    iteration = strtoll(end + 1, &end, 10);
    return epoch < state->epoch || (epoch == state->epoch && iteration <= state->position && *end == ']');
}

/* Whether the checkpoint's state knows a line of a log; number: of the line, from 0. */
typedef bool (*line_rule)(const char *line, int64_t number, const struct cvy_train_state *state);

/* The bytes of a log up to its first line that does not stay; 0 when the file is missing. */
static int64_t bytes_to_keep(const char *path, line_rule keep, const struct cvy_train_state *state)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    int64_t kept = 0;

    if (!file)
        return 0;
    for (int64_t number = 0; (length = getline(&line, &capacity, file)) > 0; number++) {
        if (line[length - 1] != '\n' || !keep(line, number, state))
            break;
        kept += length;
    }
    free(line); /* allocated by getline */
    fclose(file);
    return kept;
}

/* ---- opening ---- */

/* What the part of the report that stays says: the values of its epochs, and what was told already. */
static cvy_status restore_record(void *context, const struct cvy_log_record *record)
{
    struct cvy_run_log *log = context;
    static const char prefix[] = "diagnosis.";

    for (const struct cvy_json_value *value = record->data->first; value; value = value->next) {
        if (value->type == CVY_JSON_NUMBER && record->step_count == 1)
            cvy_run_summary_add(&log->summary, value->key, value->number);
        for (int i = 0; i < CVY_FINDING_COUNT; i++)
            log->reported[i] |= strncmp(value->key, prefix, strlen(prefix)) == 0 &&
                                strcmp(value->key + strlen(prefix), cvy_finding_name((enum cvy_finding)i)) == 0;
    }
    return CVY_OK;
}

static cvy_status open_report(struct cvy_run_log *log, const struct cvy_train_state *state)
{
    const char *path = log->paths->report;
    const int64_t offset = state ? bytes_to_keep(path, keep_report, state) : 0;
    const struct cvy_events_keep keep = {state ? state->step : 0, state ? state->epoch : 0};

    CVY_TRY(cvy_dllogger_open(&log->report, path, offset));
    log->fresh = offset == 0;
    if (!log->fresh)
        CVY_TRY(cvy_dllogger_read(path, restore_record, log));
    return cvy_events_open(&log->events, log->paths->folder, state ? &keep : NULL);
}

static cvy_status name_measures(struct cvy_run_log *log, const struct cvy_train_options *options)
{
    const struct cvy_metrics none = {.top_k = (int32_t)options->topk};
    const double nothing[CVY_COCO_STATS] = {0};

    log->top_k = (int32_t)options->topk;
    log->averaged = options->use_ema > 0 && !options->training_only;
    log->parts = cvy_architecture_find(options->arch)->task == CVY_TASK_DETECT;
    log->tensorflow = !log->parts && strcmp(options->padding, "same") == 0;
    if (!log->parts) {
        cvy_metrics_measures(&none, &log->measures);
        return CVY_OK;
    }
    cvy_coco_measures(nothing, &log->measures);
    return cvy_detection_loss_measures(NULL, NULL, NULL, &log->measures);
}

static cvy_status open_metrics(struct cvy_run_log *log, int64_t offset)
{
    char names[2 * CVY_MEASURES_MAX + CVY_LOSS_PARTS][32];
    const char *columns[2 * CVY_MEASURES_MAX + CVY_LOSS_PARTS + 3];
    size_t count = 0, named = 0;

    columns[count++] = "epoch";
    columns[count++] = "train.loss";
    for (int i = 0; log->parts && i < CVY_LOSS_PARTS; i++) {
        snprintf(names[named], sizeof names[0], "train.%s", cvy_loss_part_names[i]);
        columns[count++] = names[named++];
    }
    for (int average = 0; average <= (int)log->averaged; average++) {
        for (int i = 0; i < log->measures.count; i++) {
            snprintf(names[named], sizeof names[0], "%s.%s", average ? "val_ema" : "val", log->measures.list[i].name);
            columns[count++] = names[named++];
        }
    }
    columns[count++] = "train.lr";
    return cvy_csv_open(&log->metrics, log->paths->metrics, columns, count, offset);
}

cvy_status cvy_run_log_open_report(struct cvy_run_log *log, struct cvy_run_paths *paths,
                                   const struct cvy_train_options *options)
{
    memset(log, 0, sizeof *log);
    CVY_TRY(cvy_run_paths_set(paths, options->workspace[0] ? options->workspace : ".", options));
    log->paths = paths;
    log->fresh = true;
    CVY_TRY(name_measures(log, options));
    return cvy_dllogger_open(&log->report, paths->report, INT64_MAX); /* all whole lines stay */
}

cvy_status cvy_run_log_open(struct cvy_run_log *log, const struct cvy_run_paths *paths,
                            const struct cvy_train_options *options, const struct cvy_train_state *state)
{
    static const char *const step_columns[] = {"epoch", "step", "loss", "lr"};
    int64_t offset;
    cvy_status status;

    memset(log, 0, sizeof *log);
    log->paths = paths;
    snprintf(log->title, sizeof log->title, "%s on %.64s", options->arch,
             options->data[0] ? options->data : "synthetic data");
    CVY_GOTO(name_measures(log, options));
    offset = state ? bytes_to_keep(paths->metrics, keep_metrics, state) : 0;
    CVY_GOTO(open_metrics(log, offset));
    if (paths->steps[0]) {
        offset = state ? bytes_to_keep(paths->steps, keep_steps, state) : 0;
        CVY_GOTO(cvy_csv_open(&log->steps, paths->steps, step_columns, 4, offset));
    }
    CVY_GOTO(open_report(log, state));
    return CVY_OK;
fail:
    cvy_run_log_close(log);
    return status;
}

cvy_status cvy_run_log_open_ranks(struct cvy_run_log *log, const struct cvy_train_state *state)
{
    static const char *const columns[] = {"epoch", "rank", "steps", "compute", "data", "wait"};
    const char *path = log->paths->ranks;

    return cvy_csv_open(&log->ranks, path, columns, sizeof columns / sizeof *columns,
                        state ? bytes_to_keep(path, keep_metrics, state) : 0);
}

void cvy_run_log_close(struct cvy_run_log *log)
{
    cvy_csv_close(&log->metrics);
    cvy_csv_close(&log->steps);
    cvy_csv_close(&log->ranks);
    cvy_dllogger_close(&log->report);
    cvy_events_close(&log->events);
    memset(log, 0, sizeof *log);
}

cvy_status cvy_run_log_plot(const struct cvy_run_log *log)
{
    return cvy_plot_metrics(log->paths->plot, log->title, log->top_k, log->paths->metrics);
}

cvy_status cvy_run_log_sync(struct cvy_run_log *log)
{
    CVY_TRY(cvy_line_file_sync(&log->metrics.file));
    CVY_TRY(cvy_line_file_sync(&log->steps.file));
    CVY_TRY(cvy_line_file_sync(&log->ranks.file));
    CVY_TRY(cvy_line_file_sync(&log->events.file));
    return cvy_line_file_sync(&log->report.file);
}
