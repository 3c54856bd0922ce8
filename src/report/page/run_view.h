/* The contents of a run directory, finished or still running, for its page. */
#ifndef CVY_REPORT_PAGE_RUN_VIEW_H
#define CVY_REPORT_PAGE_RUN_VIEW_H

#include "formats/json_in.h"
#include "report/validation/detection.h"
#include "report/validation/validation.h"

/* Points of a curve; x in epochs that are done. Memory of its own. */
struct cvy_series {
    double *x, *y;
    size_t count, capacity;
};
/* One epoch of metrics.csv; NAN where nothing was measured. */
enum cvy_epoch_value {
    CVY_EPOCH_TRAIN_LOSS,
    CVY_EPOCH_VAL_LOSS,
    CVY_EPOCH_TOP1,
    CVY_EPOCH_TOPK,
    CVY_EPOCH_AVERAGE_TOP1, /* of the moving average of the weights */
    CVY_EPOCH_RATE,
    /* a detector's */
    CVY_EPOCH_LOCALIZATION,
    CVY_EPOCH_CLASSIFICATION,
    CVY_EPOCH_REGULARIZATION,
    CVY_EPOCH_AP,
    CVY_EPOCH_AP50,
    CVY_EPOCH_AP75,
    CVY_EPOCH_AP_SMALL,
    CVY_EPOCH_AP_MEDIUM,
    CVY_EPOCH_AP_LARGE,
    CVY_EPOCH_AVERAGE_AP,
    CVY_EPOCH_VALUES
};
struct cvy_epoch_row {
    double epoch, values[CVY_EPOCH_VALUES];
};
struct cvy_fact {
    const char *name, *value;
};
struct cvy_remark {
    const char *moment, *text;
    int64_t epoch;
    int64_t step; /* of the epoch; 0: at its end */
};
/* Texts live in the arena. */
struct cvy_run_view {
    struct cvy_arena arena;
    const struct cvy_json_value *options; /* options.json: data, run, result */
    const char *arch, *data, *report_file;
    char topk_name[32]; /* "top-5" */
    int64_t epochs, top_k, steps_per_epoch, parameters;
    struct cvy_epoch_row *rows;
    size_t row_count;
    struct cvy_series loss, rate, speed, scale;           /* from the records of steps */
    struct cvy_series epoch_speed, val_speed, data_share; /* from those of epochs */
    struct cvy_fact *facts;                               /* model, data and environment, newest values */
    size_t fact_count;
    struct cvy_remark *remarks; /* diagnoses */
    size_t remark_count;
    const char *first_moment, *last_moment; /* of the report's records; "" without */
    int64_t resumed;                        /* how many times */
    double bad_images;
    bool finished, has_validation, has_detection; /* validations of one kind or the other */
    bool of_best; /* the validation is that of model_best.safetensors; else the last one */
    struct cvy_validation validation;
    struct cvy_detection_validation detection;
};
/* CVY_NO_INPUT: not a run directory; CVY_BAD_DATA, CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_run_view_open(struct cvy_run_view *view, const char *folder);
void cvy_run_view_close(struct cvy_run_view *view); /* accepts a zeroed one */

#endif
