/* DLLogger's JSON lines ("DLLL {...}"), as the reference programs write them to their --raport-file. */
#ifndef CVY_REPORT_RECORDS_DLLOGGER_H
#define CVY_REPORT_RECORDS_DLLOGGER_H

#include <stdbool.h>
#include <stddef.h>

#include "convoy/train.h"
#include "formats/json_in.h"
#include "report/records/line_file.h"

/* Zero-initialise before opening. Records to a log that is not open are dropped without an error. */
struct cvy_dllogger {
    struct cvy_line_file file;
    double start; /* cvy_clock() at the opening: elapsedtime counts from here */
};
/* offset as for cvy_line_file_open; the offset for the checkpoint is cvy_line_file_offset(&log->file). */
CVY_CHECKED cvy_status cvy_dllogger_open(struct cvy_dllogger *log, const char *path, int64_t offset);
void cvy_dllogger_close(struct cvy_dllogger *log); /* accepts a zeroed one */

/* What a metric means: METADATA with its unit (NULL: none) and Python format (":.5f"; NULL: none). */
CVY_CHECKED cvy_status cvy_dllogger_metadata(struct cvy_dllogger *log, const char *metric, const char *unit,
                                             const char *format);
/* The metrics of a training with their units: train.loss, train.compute_ips, ..., the parts of the loss, val.loss,
 * val.top1, ... (what a validation measures), val.compute_ips, ... and, with `averaged`, those of val_ema. Of both
 * lists the names count. One METADATA record each. */
CVY_CHECKED cvy_status cvy_dllogger_standard_metadata(struct cvy_dllogger *log, const struct cvy_measures *parts,
                                                      const struct cvy_measures *val, bool averaged);

/* step "PARAMETER"; `json_object` is the text of the data ("{...}", made with cvy_json). */
CVY_CHECKED cvy_status cvy_dllogger_parameters(struct cvy_dllogger *log, const char *json_object);

struct cvy_metric {
    const char *name;
    double value; /* not finite: written as null */
};
/* A LOG record. step: {epoch, iteration} in training, {epoch, iteration, validation iteration} in validation, {epoch}
 * at the end of an epoch, step_count 0 for the summary of the run. All counted from 0. */
CVY_CHECKED cvy_status cvy_dllogger_log(struct cvy_dllogger *log, const int64_t *step, size_t step_count,
                                        const struct cvy_metric *metrics, size_t metric_count);
/* The same with lists: values (metric_count, length), those of a metric one after the other. */
CVY_CHECKED cvy_status cvy_dllogger_lists(struct cvy_dllogger *log, const int64_t *step, size_t step_count,
                                          const char *const *names, size_t metric_count, const double *values,
                                          size_t length);
/* The same with one text. */
CVY_CHECKED cvy_status cvy_dllogger_text(struct cvy_dllogger *log, const int64_t *step, size_t step_count,
                                         const char *name, const char *text);

/* ---- reading back ---- */

enum { CVY_STEP_PARAMETER = -1 }; /* the step_count of "PARAMETER" */
struct cvy_log_record {
    int64_t step[3];
    int step_count;                    /* 0 to 3, or CVY_STEP_PARAMETER */
    const char *moment;                /* date and time, "" if it is not there */
    const struct cvy_json_value *data; /* an object */
};
/* Called for each LOG record; valid during the call. A status other than CVY_OK ends the reading. */
typedef cvy_status (*cvy_log_record_handler)(void *context, const struct cvy_log_record *record);
/* Lines that are no whole records (the end of a log that is being written, other text) are skipped. Nothing is read
 * from what is not a regular file. CVY_NO_INPUT, CVY_NO_MEMORY, the handler's. */
CVY_CHECKED cvy_status cvy_dllogger_read(const char *path, cvy_log_record_handler handler, void *context);

#endif
