/* What a run writes: checkpoints, what it reports besides its metrics, and its plan in words. */
#ifndef CVY_RUN_OUTPUT_OUTPUT_H
#define CVY_RUN_OUTPUT_OUTPUT_H

#include "run/run.h"

/* ---- checkpoints (save.c) ---- */

/* Parts of checkpoints that a killed run left; and where a run continues from an epoch's own file, what was written
 * later: its future is another one. */
void cvy_run_clean_up(const struct cvy_run *run);
/* Write checkpoint.safetensors (the logs up to here are on the disk before it), model_best.safetensors; nothing with
 * --no-checkpoints and on ranks other than 0. The end of an epoch keeps what --gather-checkpoints wants. */
CVY_CHECKED cvy_status cvy_run_save(struct cvy_run *run);
CVY_CHECKED cvy_status cvy_run_save_epoch(struct cvy_run *run);
CVY_CHECKED cvy_status cvy_run_save_best(struct cvy_run *run);
/* Write options.json on rank 0, with --no-checkpoints too; end_reached: the run has come to its end. */
CVY_CHECKED cvy_status cvy_run_save_options(const struct cvy_run *run, bool end_reached);

/* ---- the report (report.c) ---- */

/* Before the first step. */
CVY_CHECKED cvy_status cvy_run_report_open(struct cvy_run *run);
/* The PARAMETER records of the report: options, model, data and environment; in a resumed run the last two. */
CVY_CHECKED cvy_status cvy_run_report_parameters(struct cvy_run *run);
/* After each step: reports a diagnosis, if there is one. */
CVY_CHECKED cvy_status cvy_run_report_step(struct cvy_run *run, int64_t position, int64_t step, double loss,
                                           const struct cvy_scaler *scaler);
/* The run has gone back to its present state, since `step` had that loss: the logs are cut back, and say so. */
CVY_CHECKED cvy_status cvy_run_report_rewind(struct cvy_run *run, int64_t step, double loss);
/* After an epoch is logged: validation.json, the plot, and diagnoses. Files that cannot be written are logged as
 * warnings. */
CVY_CHECKED cvy_status cvy_run_report_epoch(struct cvy_run *run, const struct cvy_run_epoch *epoch);
/* report.html, likewise. */
void cvy_run_report_page(const struct cvy_run *run);

/* ---- in words (text.c) ---- */

/* The plan of the run, for events->plan. */
void cvy_run_text(const struct cvy_run *run, struct cvy_text *text);
/* Logs how much the caches of --ram-cache hold. */
void cvy_run_describe_caches(const struct cvy_run_data *data);

#endif
