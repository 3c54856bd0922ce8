/* The optimizer over the store's arenas: which parameters decay, and by which rule they move. */
#ifndef CVY_TRAINER_OPTIMIZER_H
#define CVY_TRAINER_OPTIMIZER_H

#include "network/network.h"
#include "trainer/decay.h"
#include "trainer/loss_scale.h"

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
    bool average_by_step; /* it moves after every step, not after every batch */
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
/* What weight decay would be as a term of the loss, as TensorFlow's program has it: half of it for the square of each
 * parameter that decays. Reads the weights back from the device. */
CVY_CHECKED cvy_status cvy_optimizer_l2_loss(const struct cvy_optimizer *optimizer, const struct cvy_store *store,
                                             double *loss);
/* Adds to *sum the squares of `count` values of the store's device memory. */
CVY_CHECKED cvy_status cvy_store_sum_squares(const struct cvy_store *store, const float *weights, int64_t count,
                                             double *sum);

#endif
