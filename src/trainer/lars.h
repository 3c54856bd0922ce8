/* LARS (You, Gitman, Ginsburg, "Large Batch Training of Convolutional Networks", 2017): each layer's step in proportion
 * to the size of its weights, for batches of thousands of images. */
#ifndef CVY_TRAINER_LARS_H
#define CVY_TRAINER_LARS_H

#include "network/network.h"
#include "trainer/decay.h"

struct cvy_lars {
    double eta;
    float weight_decay;
    enum cvy_decay_rule decay_rule;
};

/* Gradients become eta |w| / (|g| + decay |w|) (g + decay w) with g the gradient times gradient_scale, and SGD with
 * momentum and without decay follows. Biases and batch norms, which have one dimension, keep g + decay w. In the host's
 * memory; a layer whose weights or gradients are all zero keeps them too. */
void cvy_lars_scale(const struct cvy_lars *lars, const struct cvy_graph *table, struct cvy_store *store,
                    float gradient_scale);

#endif
