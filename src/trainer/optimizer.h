/* The optimizer over the store's arenas: which parameters decay, and the sums over ranks that come before it. */
#ifndef CVY_TRAINER_OPTIMIZER_H
#define CVY_TRAINER_OPTIMIZER_H

#include "comm/worker.h"
#include "network/network.h"
#include "trainer/decay.h"

struct cvy_optimizer_options {
    enum cvy_update_kind kind;
    float momentum, weight_decay;
    bool nesterov;
    double alpha, epsilon; /* RMSprop only */
    enum cvy_decay_rule decay_rule;
    float loss_scale; /* at the start; 0: the loss is not scaled */
    struct cvy_scaler_rule scaler;
    double head_ratio;    /* learning rate of the classifier as a multiple of the rest's; 0: the same */
    int64_t accumulate;   /* batches whose gradients make one step; 0: 1 */
    double lars_eta;      /* LARS (trainer/lars.h) before SGD; 0: SGD alone */
    double average_decay; /* for the moving average of the weights (EMA); 0: there is none */
};
/* The memory of these options beyond weights, gradients and momentum: arenas of the store (cvy_store_extend), and
 * whether there is a second store for the average. */
int cvy_optimizer_extras(const struct cvy_optimizer_options *options);
struct cvy_optimizer {
    struct cvy_optimizer_options options;
    struct cvy_update_segment *segments; /* neighbours in the arena with the same decay and rate are one segment */
    int32_t segment_count;
    const struct cvy_graph *table; /* borrowed */
};
CVY_CHECKED cvy_status cvy_optimizer_open(struct cvy_optimizer *optimizer, const struct cvy_graph *table,
                                          const struct cvy_optimizer_options *options);
void cvy_optimizer_close(struct cvy_optimizer *optimizer); /* accepts a zeroed one */
/* One step over the whole store; the rate lies in device memory; gradients are multiplied by gradient_scale first, and
 * divided by the scale of `scaler` (device memory) unless it is NULL. */
CVY_CHECKED cvy_status cvy_optimizer_step(struct cvy_optimizer *optimizer, struct cvy_store *store,
                                          const float *learning_rate, float gradient_scale, struct cvy_scaler *scaler);
/* The rule of a name: "torch" (GradScaler: doubled after 100 good steps), "apex" (after 2000, 2^24 at most),
 * "fp16-utils" (after 1000, 1 at least) or "static" (fixed; no step is left out). `start`: its usual first scale. False
 * when there is none of that name. */
bool cvy_scaler_rule_find(const char *name, struct cvy_scaler_rule *rule, float *start);

/* Gradients are summed over the ranks in slices of the arena ("buckets"), each as soon as all of its parameters are
 * ready, so that the sums overlap with the rest of the backward pass: a thread does them, or the devices among
 * themselves. Where the host cannot read the device's memory and devices do not sum, all of them are downloaded after
 * the pass, summed on the host and uploaded again. */
struct cvy_reducer {
    struct cvy_comm *comm;   /* borrowed */
    enum cvy_comm_type type; /* the type in which gradients are sent: CVY_COMM_F32 until cvy_reducer_wire_dtype */
    struct cvy_store *store; /* borrowed */
    /* Added to each bucket before it is summed over the ranks; NULL: nothing. Borrowed. */
    const float *gradient_sum;
    int32_t *bucket_of; /* by parameter that has a gradient */
    struct cvy_bucket {
        int64_t first, count; /* elements */
        int32_t parameters, waiting;
    } * buckets;
    int32_t bucket_count;
    bool on_device;                 /* the devices sum (backend/collective.h) */
    struct cvy_comm_worker *worker; /* NULL: of a single process, sums of devices, or sums after the pass */
    float *staged;                  /* the arena in the host's memory, where the device's cannot be read */
};
/* Buckets hold about `elements` elements (25 MB of floats is usual), filled in the order in which the plan's gradients
 * become ready; the last one at most a sixteenth of that, since no more is computed while it is summed. Parameters that
 * the loss does not see have no gradient and are in no bucket. Where devices sum, the plan's captures are split after
 * each bucket. */
CVY_CHECKED cvy_status cvy_reducer_open(struct cvy_reducer *reducer, struct cvy_comm *comm, struct cvy_store *store,
                                        struct cvy_plan *plan, int64_t elements);
/* Sets the type in which gradients are sent between ranks: CVY_COMM_F32 or 16 bits. */
CVY_CHECKED cvy_status cvy_reducer_wire_dtype(struct cvy_reducer *reducer, enum cvy_comm_type type);
void cvy_reducer_close(struct cvy_reducer *reducer); /* accepts a zeroed one */
void cvy_reducer_start(struct cvy_reducer *reducer); /* before each step */
/* The gradient hook of a plan; context is the reducer. */
cvy_status cvy_reducer_ready(void *context, int32_t param);
/* After the pass: waits until all sums are complete. */
CVY_CHECKED cvy_status cvy_reducer_finish(struct cvy_reducer *reducer);

#endif
