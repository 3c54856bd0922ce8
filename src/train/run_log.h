/* What a run writes down as it goes: metrics.csv, the plot, the DLLogger report, --log-every-step. A resumed run first
 * cuts the files back to its checkpoint, then appends. */
#ifndef CVY_TRAIN_RUN_LOG_H
#define CVY_TRAIN_RUN_LOG_H

#include "report/csv.h"
#include "report/dllogger.h"
#include "train/checkpoint.h"
#include "train/run_directory.h"

struct cvy_run_log {
    struct cvy_csv metrics, steps;
    struct cvy_dllogger report;
    const struct cvy_run_paths *paths; /* borrowed */
    char title[160], topk[32];         /* "val.top5" */
};
/* state NULL: a new run. */
CVY_CHECKED cvy_status cvy_run_log_open(struct cvy_run_log *log, const struct cvy_run_paths *paths,
                                        const struct cvy_train_options *options, const struct cvy_train_state *state);
void cvy_run_log_close(struct cvy_run_log *log); /* accepts a zeroed one */

CVY_CHECKED cvy_status cvy_run_log_step(struct cvy_run_log *log, int64_t epoch, int64_t step, double loss,
                                        double learning_rate);
/* A record of the report: means over `steps` steps that took `seconds`, of which `wait` for data. */
struct cvy_run_window {
    int64_t epoch, position, steps, images;
    double loss, learning_rate, seconds, wait;
};
CVY_CHECKED cvy_status cvy_run_log_window(struct cvy_run_log *log, const struct cvy_run_window *window);
/* The end of an epoch: a row and a record. */
struct cvy_run_epoch {
    struct cvy_train_epoch public;
    double val_seconds;
    int64_t val_images, skipped;
};
CVY_CHECKED cvy_status cvy_run_log_epoch(struct cvy_run_log *log, const struct cvy_run_epoch *epoch);
/* Draw the plot of metrics.csv. */
CVY_CHECKED cvy_status cvy_run_log_plot(const struct cvy_run_log *log);
/* Bring what is written so far to the disk. */
CVY_CHECKED cvy_status cvy_run_log_sync(struct cvy_run_log *log);
CVY_CHECKED cvy_status cvy_run_log_summary(struct cvy_run_log *log, const struct cvy_train_result *result,
                                           double images_per_second);

/* How many bytes of a log a checkpoint knows; 0 when the file is missing. For the logs above and for tests. */
enum cvy_log_kind { CVY_LOG_METRICS, CVY_LOG_STEPS, CVY_LOG_REPORT };
int64_t cvy_run_log_keep(const char *path, enum cvy_log_kind kind, const struct cvy_train_state *state);

#endif
