/* Opening and closing a run. */
#ifndef CVY_RUN_SETUP_SETUP_H
#define CVY_RUN_SETUP_SETUP_H

#include "run/run.h"

/* Everything up to the first step. On failure the run is closed. All that is given but the options is borrowed until it
 * is closed. */
CVY_CHECKED cvy_status cvy_run_open(struct cvy_run *run, const struct cvy_train_options *options,
                                    const struct cvy_train_events *events, struct cvy_train_result *result,
                                    const atomic_int *stop);
void cvy_run_close(struct cvy_run *run);

#endif
