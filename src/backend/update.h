/* What training needs from a device besides a plan's steps: the optimizer's step and operations on whole arenas. Each
 * is one pass over memory. */
#ifndef CVY_BACKEND_UPDATE_H
#define CVY_BACKEND_UPDATE_H

#include "backend/scaler.h"
#include "base/error.h"

enum cvy_update_kind {
    CVY_UPDATE_SGD,    /* v = momentum v + (1 - dampening) d;  w -= learning_rate (nesterov ? d + momentum v : v) */
    CVY_UPDATE_RMSPROP /* s = alpha s + (1 - alpha) d^2;  v = momentum v + d / (sqrt(s) + epsilon);
                        * w -= learning_rate v */
};
/* A slice of the arenas with its own learning rate and weight decay. */
struct cvy_update_segment {
    int64_t first, count; /* elements */
    float rate;           /* its learning rate as a multiple of the step's */
    float weight_decay;
};
/* What changes from step to step. It lies in device memory, so that a captured step can be launched again. */
struct cvy_rates {
    float learning_rate;
    float average_share; /* of a moving average: what CVY_COMBINE_TOWARDS takes */
};
/* One step over slices of the arenas, with d = gradient_scale g + weight_decay w. */
struct cvy_update {
    enum cvy_update_kind kind;
    float *weights, *momentum_buffer;          /* w, v: device memory */
    float *square_average;                     /* s: of RMSprop */
    const float *gradients;                    /* g */
    const struct cvy_update_segment *segments; /* host memory, disjoint */
    int32_t segment_count;
    const float *learning_rate; /* device memory */
    float momentum, gradient_scale;
    float dampening; /* SGD only */
    bool nesterov;
    double alpha, epsilon; /* RMSprop only */
    /* Loss scaling (scaler.h), or NULL: gradients are divided by its scale as well, nothing changes when one of them is
     * not finite, and its state moves on by the rule. Device memory. */
    struct cvy_scaler *scaler;
    struct cvy_scaler_rule rule;
};
/* CVY_FAILED where the rate or a buffer of the rule is missing. */
CVY_CHECKED static inline cvy_status cvy_update_check(const struct cvy_update *step)
{
    if (!step->learning_rate)
        return cvy_fail(CVY_FAILED, "the optimizer step has no learning rate");
    if (!step->momentum_buffer)
        return cvy_fail(CVY_FAILED, "the optimizer step has no momentum buffer");
    if (step->kind == CVY_UPDATE_RMSPROP && !step->square_average)
        return cvy_fail(CVY_FAILED, "the optimizer step has no average of squares");
    return CVY_OK;
}
/* For devices that share the host's memory: whether the step is taken, and the factor for its gradients (gradient_scale
 * over the loss scale). The caller ends the step with cvy_scaler_update where there is a scaler. */
bool cvy_update_begin(const struct cvy_update *step, int threads, float *factor);

/* Two arenas, element by element. */
enum cvy_combine {
    CVY_COMBINE_COPY,   /* y = x */
    CVY_COMBINE_ADD,    /* y += x */
    CVY_COMBINE_TOWARDS /* y += share (x - y): a moving average, which stays where it is when x is there too */
};

#endif
