#include "report/page/run_view.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_out.h"
#include "report/records/csv.h"
#include "report/records/dllogger.h"

enum { MAX_FACTS = 64, MAX_REMARKS = 256 };

static cvy_status add_point(struct cvy_series *series, double x, double y)
{
    if (series->count == series->capacity) {
        const size_t capacity = series->capacity ? series->capacity * 2 : 256;
        double *xs = cvy_realloc(series->x, capacity, sizeof *xs);
        series->x = xs ? xs : series->x;
        double *ys = xs ? cvy_realloc(series->y, capacity, sizeof *ys) : NULL;
        series->y = ys ? ys : series->y;
        if (!xs || !ys)
            return cvy_fail_memory(capacity * sizeof *xs, "the curves of a run");
        series->capacity = capacity;
    }
    series->x[series->count] = x;
    series->y[series->count++] = y;
    return CVY_OK;
}

static void release_series(struct cvy_series *series)
{
    cvy_free(series->x);
    cvy_free(series->y);
    *series = (struct cvy_series){0};
}

void cvy_run_view_close(struct cvy_run_view *view)
{
    release_series(&view->loss);
    release_series(&view->rate);
    release_series(&view->speed);
    release_series(&view->scale);
    release_series(&view->epoch_speed);
    release_series(&view->val_speed);
    release_series(&view->data_share);
    cvy_free(view->rows);
    cvy_validation_release(&view->validation);
    cvy_detection_validation_release(&view->detection);
    cvy_arena_release(&view->arena);
    *view = (struct cvy_run_view){0};
}

/* ---- options.json ---- */

/* A path inside the folder, in the arena. An absolute name stays what it is. */
static char *path_in(struct cvy_run_view *view, const char *folder, const char *name)
{
    return name[0] == '/' ? cvy_arena_strdup(&view->arena, name)
                          : cvy_arena_printf(&view->arena, "%s/%s", folder, name);
}

static cvy_status read_options(struct cvy_run_view *view, const char *folder)
{
    const struct cvy_json_value *result, *run;
    struct cvy_json_value *root;
    char *path = path_in(view, folder, "options.json");
    void *data = NULL;
    size_t size;
    cvy_status status;

    if (!path)
        return cvy_fail_memory(strlen(folder) + 16, "a file name");
    if (!cvy_path_exists(path))
        return cvy_fail(CVY_NO_INPUT, "%s is not a run directory: it has no options.json", cvy_quote(folder));
    CVY_TRY(cvy_file_read(path, 1 << 20, &data, &size));
    status = cvy_json_parse(path, data, size, &view->arena, &root);
    cvy_free(data);
    CVY_TRY(status);
    result = cvy_json_get(root, "result");
    run = cvy_json_get(root, "run");
    if (!result || !run)
        return cvy_fail(CVY_BAD_DATA, "%s does not hold the options of a run", cvy_quote(path));
    view->options = root;
    view->arch = cvy_json_get_string(result, "arch", "network");
    view->data = cvy_json_get_string(root, "data", "synthetic data");
    view->epochs = cvy_json_get_int(result, "epochs", 0);
    view->top_k = cvy_json_get_int(result, "topk", 5);
    view->report_file = path_in(view, folder, cvy_json_get_string(run, "raport-file", "experiment_raport.json"));
    snprintf(view->topk_name, sizeof view->topk_name, "top-%lld", (long long)view->top_k);
    return view->report_file ? CVY_OK : cvy_fail_memory(strlen(folder), "a file name");
}

/* ---- metrics.csv ---- */

static cvy_status read_metrics(struct cvy_run_view *view, const char *folder)
{
    char topk[32];
    /* "epoch", then as enum cvy_epoch_value has them. */
    const char *const columns[] = {
        "epoch",
        "train.loss",
        "val.loss",
        "val.top1",
        topk,
        "val_ema.top1",
        "train.lr",
        "train.localization_loss",
        "train.classification_loss",
        "train.regularization_loss",
        "val.ap",
        "val.ap50",
        "val.ap75",
        "val.ap_small",
        "val.ap_medium",
        "val.ap_large",
        "val_ema.ap",
    };
    enum { COLUMNS = sizeof columns / sizeof *columns };
    _Static_assert(COLUMNS == CVY_EPOCH_VALUES + 1, "a column for each value");
    const char *path = path_in(view, folder, "metrics.csv");
    double *values;
    size_t rows;

    if (!path)
        return cvy_fail_memory(strlen(folder) + 16, "a file name");
    if (!cvy_path_exists(path))
        return CVY_OK;
    snprintf(topk, sizeof topk, "val.top%lld", (long long)view->top_k);
    CVY_TRY(cvy_csv_read(path, columns, COLUMNS, &values, &rows));
    view->rows = cvy_calloc(rows, sizeof *view->rows);
    if (!view->rows) {
        cvy_free(values);
        return cvy_fail_memory(rows * sizeof *view->rows, "the epochs of a run");
    }
    for (size_t i = 0; i < rows; i++) {
        const double *v = values + i * COLUMNS;
        view->rows[i].epoch = v[0];
        memcpy(view->rows[i].values, v + 1, sizeof view->rows[i].values);
    }
    view->row_count = rows;
    cvy_free(values);
    return CVY_OK;
}

/* ---- the report ---- */

/* A value as text; NULL for arrays and objects. */
static char *value_text(struct cvy_run_view *view, const struct cvy_json_value *value)
{
    char number[32];

    switch (value->type) {
    case CVY_JSON_STRING:
        return cvy_arena_strdup(&view->arena, value->text);
    case CVY_JSON_BOOL:
        return cvy_arena_strdup(&view->arena, value->boolean ? "true" : "false");
    case CVY_JSON_NUMBER:
        if (value->is_integer)
            return cvy_arena_printf(&view->arena, "%lld", (long long)value->integer);
        return cvy_arena_strdup(&view->arena, cvy_digits_text(value->number, 6, number));
    default:
        return NULL;
    }
}

/* model.*, data.*, environment.*: later records (of resumed runs) replace earlier ones. */
static cvy_status take_fact(struct cvy_run_view *view, const struct cvy_json_value *value)
{
    char *text = value_text(view, value);
    size_t i = 0;

    while (i < view->fact_count && strcmp(view->facts[i].name, value->key) != 0)
        i++;
    if (i == MAX_FACTS || !text)
        return CVY_OK;
    if (i == view->fact_count) {
        view->facts[i].name = cvy_arena_strdup(&view->arena, value->key);
        if (!view->facts[i].name)
            return cvy_fail_memory(strlen(value->key), "the facts of a run");
        view->fact_count++;
    }
    view->facts[i].value = text;
    return CVY_OK;
}

static cvy_status take_parameters(struct cvy_run_view *view, const struct cvy_json_value *data)
{
    view->resumed += cvy_json_get(data, "resumed.epoch") != NULL;
    view->steps_per_epoch = cvy_json_get_int(data, "data.steps_per_epoch", view->steps_per_epoch);
    view->parameters = cvy_json_get_int(data, "model.parameters", view->parameters);
    for (const struct cvy_json_value *value = data->first; value; value = value->next) {
        if (strchr(value->key, '.') && strncmp(value->key, "resumed.", 8) != 0)
            CVY_TRY(take_fact(view, value));
    }
    return CVY_OK;
}

static cvy_status take_remark(struct cvy_run_view *view, const struct cvy_log_record *record,
                              const struct cvy_json_value *value)
{
    struct cvy_remark *remark = &view->remarks[view->remark_count];

    if (value->type != CVY_JSON_STRING || strncmp(value->key, "diagnosis.", 10) != 0 || record->step_count < 1 ||
        view->remark_count == MAX_REMARKS)
        return CVY_OK;
    remark->moment = cvy_arena_strdup(&view->arena, record->moment);
    remark->text = cvy_arena_strdup(&view->arena, value->text);
    remark->epoch = record->step[0];
    remark->step = record->step_count > 1 ? record->step[1] : 0;
    if (!remark->moment || !remark->text)
        return cvy_fail_memory(strlen(value->text), "the remarks of a run");
    view->remark_count++;
    return CVY_OK;
}

static cvy_status take_number(struct cvy_series *series, double x, const struct cvy_json_value *data, const char *name)
{
    const double value = cvy_json_get_number(data, name, NAN);

    return isnan(value) ? CVY_OK : add_point(series, x, value);
}

static cvy_status take_window(struct cvy_run_view *view, const struct cvy_log_record *record)
{
    const double steps = view->steps_per_epoch > 0 ? (double)view->steps_per_epoch : 1;
    const double x = (double)record->step[0] + fmin((double)record->step[1] / steps, 1);

    CVY_TRY(take_number(&view->loss, x, record->data, "train.loss"));
    CVY_TRY(take_number(&view->rate, x, record->data, "train.lr"));
    CVY_TRY(take_number(&view->speed, x, record->data, "train.total_ips"));
    return take_number(&view->scale, x, record->data, "train.grad_scale");
}

static cvy_status take_epoch(struct cvy_run_view *view, const struct cvy_log_record *record)
{
    const double x = (double)record->step[0] + 1;
    const double wait = cvy_json_get_number(record->data, "train.data_time", NAN);
    const double compute = cvy_json_get_number(record->data, "train.compute_time", NAN);

    view->bad_images = cvy_json_get_number(record->data, "train.bad_images", view->bad_images);
    if (wait + compute > 0)
        CVY_TRY(add_point(&view->data_share, x, wait / (wait + compute)));
    CVY_TRY(take_number(&view->epoch_speed, x, record->data, "train.total_ips"));
    return take_number(&view->val_speed, x, record->data, "val.total_ips");
}

static cvy_status take_record(void *context, const struct cvy_log_record *record)
{
    struct cvy_run_view *view = context;
    char *moment = cvy_arena_strdup(&view->arena, record->moment);

    if (!moment)
        return cvy_fail_memory(strlen(record->moment), "a date");
    view->last_moment = moment;
    if (!view->first_moment[0])
        view->first_moment = moment;
    view->finished = record->step_count == 0;
    if (record->step_count == CVY_STEP_PARAMETER)
        return take_parameters(view, record->data);
    for (const struct cvy_json_value *value = record->data->first; value; value = value->next)
        CVY_TRY(take_remark(view, record, value));
    if (record->step_count == 2)
        return take_window(view, record);
    return record->step_count == 1 ? take_epoch(view, record) : CVY_OK;
}

static cvy_status read_report(struct cvy_run_view *view)
{
    view->facts = cvy_arena_alloc(&view->arena, MAX_FACTS * sizeof *view->facts);
    view->remarks = cvy_arena_alloc(&view->arena, (MAX_REMARKS + 1) * sizeof *view->remarks);
    if (!view->facts || !view->remarks)
        return cvy_fail_memory(MAX_REMARKS * sizeof *view->remarks, "the report of a run");
    if (!cvy_path_exists(view->report_file))
        return CVY_OK;
    return cvy_dllogger_read(view->report_file, take_record, view);
}

/* The epoch in which a value was largest; -1: it was never measured. */
static double best_epoch(const struct cvy_run_view *view, enum cvy_epoch_value value)
{
    double best = -INFINITY, epoch = -1;

    for (size_t i = 0; i < view->row_count; i++)
        if (view->rows[i].values[value] > best) {
            best = view->rows[i].values[value];
            epoch = view->rows[i].epoch;
        }
    return epoch;
}

static cvy_status read_validation(struct cvy_run_view *view, const char *path)
{
    CVY_TRY(cvy_detection_validation_read(&view->detection, path, &view->has_detection));
    view->has_validation = !view->has_detection;
    return view->has_validation ? cvy_validation_read(&view->validation, path) : CVY_OK;
}

static void drop_validation(struct cvy_run_view *view)
{
    cvy_validation_release(&view->validation);
    cvy_detection_validation_release(&view->detection);
    view->validation = (struct cvy_validation){0};
    view->detection = (struct cvy_detection_validation){0};
    view->has_validation = view->has_detection = false;
}

/* That of the best weights, where one is kept that belongs to the best row; else the last one. */
static cvy_status read_validations(struct cvy_run_view *view, const char *folder)
{
    const char *best = path_in(view, folder, "validation_best.json"), *last = path_in(view, folder, "validation.json");

    if (!best || !last)
        return cvy_fail_memory(strlen(folder) + 32, "a file name");
    if (cvy_path_exists(best) && read_validation(view, best) == CVY_OK) {
        const double epoch = view->has_detection ? (double)view->detection.epoch : (double)view->validation.epoch;
        view->of_best = epoch == best_epoch(view, view->has_detection ? CVY_EPOCH_AP : CVY_EPOCH_TOP1);
    }
    if (view->of_best)
        return CVY_OK;
    drop_validation(view);
    return cvy_path_exists(last) ? read_validation(view, last) : CVY_OK;
}

cvy_status cvy_run_view_open(struct cvy_run_view *view, const char *folder)
{
    cvy_status status;

    *view = (struct cvy_run_view){.first_moment = "", .last_moment = ""};
    CVY_GOTO(read_options(view, folder));
    CVY_GOTO(read_metrics(view, folder));
    CVY_GOTO(read_report(view));
    CVY_GOTO(read_validations(view, folder));
    return CVY_OK;
fail:
    cvy_run_view_close(view);
    return status;
}
