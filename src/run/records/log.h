/* The files a run writes continuously: metrics.csv, the plot, the DLLogger report, TensorBoard's events,
 * --log-every-step. A resumed run first cuts the files back to its checkpoint, then appends. */
#ifndef CVY_RUN_LOG_H
#define CVY_RUN_LOG_H

#include "data/loader/loader_stats.h"
#include "eval/evaluate.h"
#include "report/records/csv.h"
#include "report/records/dllogger.h"
#include "report/records/events.h"
#include "run/records/diagnosis.h"
#include "run/records/directory.h"
#include "run/records/rank_times.h"
#include "run/records/summary.h"
#include "weights/checkpoint.h"

struct cvy_run_log {
    struct cvy_csv metrics, steps, ranks;
    struct cvy_dllogger report;
    struct cvy_events events;
    const struct cvy_run_paths *paths; /* borrowed */
    char title[160];
    struct cvy_measures measures; /* the names of what a validation measures */
    int32_t top_k;                /* of the second accuracy */
    bool averaged;                /* the moving average is validated too */
    bool parts;                   /* the training loss has parts */
    bool tensorflow;              /* a network of TensorFlow's program for classification: its names are there too */
    bool fresh;                   /* the report is empty: its parameters are still to be written */
    struct cvy_run_summary summary;
    bool reported[CVY_FINDING_COUNT]; /* findings that an earlier part of the run has reported */
};
/* state NULL: a new run. */
CVY_CHECKED cvy_status cvy_run_log_open(struct cvy_run_log *log, const struct cvy_run_paths *paths,
                                        const struct cvy_train_options *options, const struct cvy_train_state *state);
/* Then, of a run of several processes, the table of their times. */
CVY_CHECKED cvy_status cvy_run_log_open_ranks(struct cvy_run_log *log, const struct cvy_train_state *state);
/* Only the report, in --workspace, which is there and locked: records are added after the last whole line. */
CVY_CHECKED cvy_status cvy_run_log_open_report(struct cvy_run_log *log, struct cvy_run_paths *paths,
                                               const struct cvy_train_options *options);
void cvy_run_log_close(struct cvy_run_log *log); /* accepts a zeroed one */

CVY_CHECKED cvy_status cvy_run_log_step(struct cvy_run_log *log, int64_t epoch, int64_t step, double loss,
                                        double learning_rate);
/* Records of the report: means over `steps` steps that took `seconds`, of which `wait` for data. */
struct cvy_run_window {
    int64_t epoch, position, steps, images;
    int64_t step; /* of the whole training */
    double loss, learning_rate, seconds, wait;
    double scale; /* of the loss; 1 where it is not scaled */
    bool scaling;
};
CVY_CHECKED cvy_status cvy_run_log_window(struct cvy_run_log *log, const struct cvy_run_window *window);
/* Validation batches, all of a pass or those since its last record. */
struct cvy_run_validation {
    const char *name; /* "val", "val_ema" */
    int64_t images, skipped, batches;
    int ranks; /* that divide the validation set among them */
    double seconds, wait;
    struct cvy_measures measures;
    double *latency; /* (batches) seconds; put into order here */
};
/* The mean of its batches' seconds, which their quantiles are of, too; 0 without batches. */
double cvy_run_mean_latency(const struct cvy_run_validation *validation);
/* Records of validation batches that are done. iteration: training steps done in the epoch; batch: from 1. */
CVY_CHECKED cvy_status cvy_run_log_validation(struct cvy_run_log *log, int64_t epoch, int64_t iteration, int64_t batch,
                                              struct cvy_run_validation *validation);
/* The end of an epoch: a row, a record and an event. */
struct cvy_run_epoch {
    struct cvy_train_epoch public;
    int64_t step;                       /* of the whole training */
    int64_t steps, images;              /* of this epoch in this run */
    double wait, scale;                 /* as above */
    double moved, exposed;              /* of struct cvy_sum_times, of rank 0 */
    struct cvy_loader_stats loading;    /* of this epoch in this run; zeros: synthetic images */
    const struct cvy_rank_times *ranks; /* (world) of this epoch in this run; borrowed, NULL: a single process */
    int world;
    struct cvy_run_window rest;        /* the steps after its last record; steps 0: none */
    struct cvy_run_validation val;     /* where public.validated is set */
    struct cvy_run_validation val_ema; /* where public.averaged is set */
};
CVY_CHECKED cvy_status cvy_run_log_epoch(struct cvy_run_log *log, struct cvy_run_epoch *epoch);
/* What --evaluate found. */
CVY_CHECKED cvy_status cvy_run_log_evaluation(struct cvy_run_log *log, struct cvy_run_epoch *epoch);
/* A diagnosis: a record with its text. position 0: at the end of the epoch. */
CVY_CHECKED cvy_status cvy_run_log_finding(struct cvy_run_log *log, int64_t epoch, int64_t position,
                                           enum cvy_finding finding, const char *text);
/* Draw the plot of metrics.csv. */
CVY_CHECKED cvy_status cvy_run_log_plot(const struct cvy_run_log *log);
/* Syncs what is written so far to the disk. */
CVY_CHECKED cvy_status cvy_run_log_sync(struct cvy_run_log *log);
/* The last record. */
CVY_CHECKED cvy_status cvy_run_log_summary(struct cvy_run_log *log);

#endif
