/* A benchmark workload: random weights, images that change from batch to batch (random ones, or from files), and the
 * code that `train` and `classify` run. */
#ifndef CVY_INFO_WORKLOAD_H
#define CVY_INFO_WORKLOAD_H

#include "eval/evaluate.h"
#include "trainer/trainer.h"

struct cvy_workload {
    struct cvy_network network;
    struct cvy_source source;
    struct cvy_comm comm;
    struct cvy_trainer trainer;     /* training */
    struct cvy_evaluator evaluator; /* inference */
    int32_t batch;
    bool training;
    int64_t epoch;       /* of the source */
    double data_seconds; /* that iterations have waited for images */
};
/* The device is borrowed. `loader`: how images are read; NULL: random ones. quantizer_states: values of the state
 * parameters, of which those of quantizers are not zero (cvy_weights_quantizer_states): inference then computes in
 * integers; NULL: in floats. A failed open leaves a closed workload. Not to be moved while it is open. */
CVY_CHECKED cvy_status cvy_workload_open(struct cvy_workload *workload, cvy_device *device,
                                         const struct cvy_architecture *architecture,
                                         const struct cvy_model_options *model, enum cvy_dtype dtype, bool training,
                                         int32_t batch, const struct cvy_loader_options *loader,
                                         const float *quantizer_states);
void cvy_workload_close(struct cvy_workload *workload); /* accepts a zeroed one */
/* The plan of a step, or of a batch's first stream, and how many streams compute such a one. */
struct cvy_plan *cvy_workload_plan(struct cvy_workload *workload);
int cvy_workload_streams(const struct cvy_workload *workload);
/* One iteration: a whole training step, whose loss is read by the next one, as the loop does; or one batch classified.
 */
CVY_CHECKED cvy_status cvy_workload_iterate(struct cvy_workload *workload);
/* Runs `iterations` iterations after one for warm-up, timing the steps of the plan one by one: step->seconds is then
 * the shortest time of each (where a batch takes several passes, a pass's share of it), *seconds that of a whole
 * iteration, including what surrounds the plan (optimizer, reading results). */
CVY_CHECKED cvy_status cvy_workload_profile(struct cvy_workload *workload, int32_t iterations, double *seconds);

#endif
