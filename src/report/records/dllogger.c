#include "report/records/dllogger.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/json_out.h"
#include "base/system.h"

cvy_status cvy_dllogger_open(struct cvy_dllogger *log, const char *path, int64_t offset)
{
    log->start = cvy_clock();
    return cvy_line_file_open(&log->file, path, offset);
}

void cvy_dllogger_close(struct cvy_dllogger *log)
{
    cvy_line_file_close(&log->file);
}

/* Seconds with up to six decimals and at least one: "93.2", "12.0". */
static void seconds_text(int64_t microseconds, char buffer[40])
{
    int length =
        snprintf(buffer, 40, "%lld.%06lld", (long long)(microseconds / 1000000), (long long)(microseconds % 1000000));
    while (length > 2 && buffer[length - 1] == '0' && buffer[length - 2] != '.')
        buffer[--length] = 0;
}

struct moment {
    char timestamp[40], datetime[80], elapsed[40];
};

/* Unix seconds, local date and time, seconds since the log was opened. */
static struct moment read_moment(const struct cvy_dllogger *log)
{
    struct moment now;
    struct tm local = {0};
    int64_t wall = (int64_t)llround(cvy_wall_clock() * 1e6);
    int64_t elapsed = (int64_t)llround((cvy_clock() - log->start) * 1e6);
    time_t seconds = (time_t)(wall / 1000000);
    localtime_r(&seconds, &local);
    snprintf(now.datetime, sizeof now.datetime, "%04d-%02d-%02d %02d:%02d:%02d.%06d", local.tm_year + 1900,
             local.tm_mon + 1, local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec, (int)(wall % 1000000));
    seconds_text(wall, now.timestamp);
    seconds_text(elapsed > 0 ? elapsed : 0, now.elapsed);
    return now;
}

/* Close the record, write it, release its text. */
static cvy_status finish(struct cvy_dllogger *log, struct cvy_json *json)
{
    cvy_json_end_object(json);
    cvy_status status = json->text->failed ? cvy_fail_memory(json->text->length, "a log record")
                                           : cvy_line_file_add(&log->file, json->text->text);
    cvy_text_release(json->text);
    return status;
}

cvy_status cvy_dllogger_metadata(struct cvy_dllogger *log, const char *metric, const char *unit, const char *format)
{
    struct cvy_text text = {0};
    struct cvy_json json = {.text = &text};
    if (!log->file.stream)
        return CVY_OK;
    struct moment now = read_moment(log);
    cvy_text_puts(&text, "DLLL ");
    cvy_json_begin_object(&json);
    cvy_json_put_string(&json, "timestamp", now.timestamp);
    cvy_json_put_string(&json, "elapsedtime", now.elapsed);
    cvy_json_put_string(&json, "datetime", now.datetime);
    cvy_json_put_string(&json, "type", "METADATA");
    cvy_json_put_string(&json, "metric", metric);
    cvy_json_key(&json, "metadata");
    cvy_json_begin_object(&json);
    cvy_json_put_string(&json, "unit", unit);
    cvy_json_put_string(&json, "format", format);
    cvy_json_end_object(&json);
    return finish(log, &json);
}

struct known_metric {
    const char *metric, *unit, *format;
};

static cvy_status known_metadata(struct cvy_dllogger *log, const char *prefix, const struct known_metric *known,
                                 size_t count)
{
    char name[64];

    for (size_t i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s.%s", prefix, known[i].metric);
        CVY_TRY(cvy_dllogger_metadata(log, name, known[i].unit, known[i].format));
    }
    return CVY_OK;
}

/* Shares in per cent, and losses. */
static cvy_status measured_metadata(struct cvy_dllogger *log, const char *prefix, const struct cvy_measures *measures)
{
    char name[64];

    for (int i = 0; i < measures->count; i++) {
        const char *measure = measures->list[i].name, *loss = strstr(measure, "loss");
        if (i > 0 && strcmp(measure, measures->list[i - 1].name) == 0) /* the best 1 of the best 1 */
            continue;
        snprintf(name, sizeof name, "%s.%s", prefix, measure);
        CVY_TRY(cvy_dllogger_metadata(log, name, loss ? NULL : "%", loss ? ":.5f" : ":.2f"));
    }
    return CVY_OK;
}

cvy_status cvy_dllogger_standard_metadata(struct cvy_dllogger *log, const struct cvy_measures *parts,
                                          const struct cvy_measures *val, bool averaged)
{
    static const struct known_metric train[] = {
        {"loss", NULL, ":.5f"},           {"compute_ips", "images/s", ":.2f"}, {"total_ips", "images/s", ":.2f"},
        {"data_time", "s", ":.5f"},       {"compute_time", "s", ":.5f"},       {"lr", NULL, NULL},
        {"grad_scale", NULL, ":.5f"},     {"read_time", "s", ":.6f"},          {"decode_time", "s", ":.6f"},
        {"transform_time", "s", ":.6f"},  {"loader_busy", NULL, ":.3f"},       {"wait_time", "s", ":.5f"},
        {"comm_time", "s", ":.5f"},       {"comm_exposed_time", "s", ":.5f"},  {"slowest_rank", NULL, NULL},
        {"slowest_excess", NULL, ":.3f"},
    };
    static const struct known_metric times[] = {
        {"compute_ips", "images/s", ":.2f"},
        {"total_ips", "images/s", ":.2f"},
        {"data_time", "s", ":.5f"},
        {"compute_latency", "s", ":.5f"},
        {"compute_latency_at100", "s", ":.5f"},
        {"compute_latency_at99", "s", ":.5f"},
        {"compute_latency_at95", "s", ":.5f"},
    };
    static const char *const prefixes[] = {"val", "val_ema"};

    CVY_TRY(known_metadata(log, "train", train, sizeof train / sizeof *train));
    CVY_TRY(measured_metadata(log, "train", parts));
    for (int i = 0; i <= (int)averaged; i++) {
        CVY_TRY(measured_metadata(log, prefixes[i], val));
        CVY_TRY(known_metadata(log, prefixes[i], times, sizeof times / sizeof *times));
    }
    return CVY_OK;
}

/* The part of a LOG record before its step. */
static void begin_log(struct cvy_dllogger *log, struct cvy_json *json)
{
    struct moment now = read_moment(log);
    cvy_text_puts(json->text, "DLLL ");
    cvy_json_begin_object(json);
    cvy_json_put_string(json, "timestamp", now.timestamp);
    cvy_json_put_string(json, "datetime", now.datetime);
    cvy_json_put_string(json, "elapsedtime", now.elapsed);
    cvy_json_put_string(json, "type", "LOG");
    cvy_json_key(json, "step");
}

cvy_status cvy_dllogger_parameters(struct cvy_dllogger *log, const char *json_object)
{
    struct cvy_text text = {0};
    struct cvy_json json = {.text = &text};
    if (!log->file.stream)
        return CVY_OK;
    begin_log(log, &json);
    cvy_json_string(&json, "PARAMETER");
    cvy_json_key(&json, "data");
    cvy_json_raw(&json, json_object);
    return finish(log, &json);
}

/* A LOG record up to the beginning of its data. */
static void begin_data(struct cvy_dllogger *log, struct cvy_json *json, const int64_t *step, size_t step_count)
{
    begin_log(log, json);
    cvy_json_begin_array(json);
    for (size_t i = 0; i < step_count; i++)
        cvy_json_int(json, step[i]);
    cvy_json_end_array(json);
    cvy_json_key(json, "data");
    cvy_json_begin_object(json);
}

cvy_status cvy_dllogger_log(struct cvy_dllogger *log, const int64_t *step, size_t step_count,
                            const struct cvy_metric *metrics, size_t metric_count)
{
    struct cvy_text text = {0};
    struct cvy_json json = {.text = &text};
    if (!log->file.stream)
        return CVY_OK;
    begin_data(log, &json, step, step_count);
    for (size_t i = 0; i < metric_count; i++) {
        cvy_json_key(&json, metrics[i].name);
        cvy_json_number(&json, metrics[i].value);
    }
    cvy_json_end_object(&json);
    return finish(log, &json);
}

cvy_status cvy_dllogger_lists(struct cvy_dllogger *log, const int64_t *step, size_t step_count,
                              const char *const *names, size_t metric_count, const double *values, size_t length)
{
    struct cvy_text text = {0};
    struct cvy_json json = {.text = &text};

    if (!log->file.stream)
        return CVY_OK;
    begin_data(log, &json, step, step_count);
    for (size_t i = 0; i < metric_count; i++) {
        cvy_json_key(&json, names[i]);
        cvy_json_begin_array(&json);
        for (size_t k = 0; k < length; k++)
            cvy_json_number(&json, values[i * length + k]);
        cvy_json_end_array(&json);
    }
    cvy_json_end_object(&json);
    return finish(log, &json);
}

cvy_status cvy_dllogger_text(struct cvy_dllogger *log, const int64_t *step, size_t step_count, const char *name,
                             const char *text)
{
    struct cvy_text line = {0};
    struct cvy_json json = {.text = &line};

    if (!log->file.stream)
        return CVY_OK;
    begin_data(log, &json, step, step_count);
    cvy_json_put_string(&json, name, text);
    cvy_json_end_object(&json);
    return finish(log, &json);
}
