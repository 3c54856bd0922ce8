/* Networks of bottleneck blocks, and one training pass through them. */
#ifndef SUPPORT_BOTTLENECK_H
#define SUPPORT_BOTTLENECK_H

#include "backend/plan.h"

enum { BOTTLENECK_CLASSES = 5 };

struct bottleneck_network {
    int32_t height, width, stride; /* of the first block's 3x3 convolution and projection */
    int32_t last_stride;           /* of those of a third block, with a projection; 0: there is none */
    const char *freeze;            /* NULL: everything is trained */
};

/* In `dtype`, fused but in double: two or three blocks, an average over the pixels, a classifier, a loss. */
void bottleneck_build(struct cvy_graph *graph, const struct bottleneck_network *network, bool training,
                      enum cvy_dtype dtype);

struct bottleneck_outcome {
    double loss;
    float *gradients, *state; /* in the order of the parameter table */
    int64_t gradient_count, state_count;
};
/* In bf16, or on the reference in double. Twice, so that the second pass finds what the first left in memory. `inspect`
 * sees the plan; NULL: nobody does. */
struct bottleneck_outcome bottleneck_run(const char *device, int threads, const struct bottleneck_network *network,
                                         int64_t batch, void (*inspect)(const struct cvy_plan *plan, void *context),
                                         void *context);
void bottleneck_release(struct bottleneck_outcome *outcome);
void bottleneck_same_bits(const struct bottleneck_outcome *one, const struct bottleneck_outcome *other);

#endif
