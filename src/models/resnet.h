/* Residual networks (He et al. 2015), v1.5: the stride of a bottleneck sits on its 3x3 convolution. */
#ifndef CVY_MODELS_RESNET_H
#define CVY_MODELS_RESNET_H

#include "models/models.h"

/* One row of the paper's table 1. */
struct cvy_resnet {
    bool bottleneck;   /* 1x1, 3x3, 1x1; else 3x3, 3x3 */
    int32_t blocks[4]; /* of each stage */
    int32_t width[4];  /* channels of the 3x3 convolutions */
    int32_t expansion; /* channels out of a block = width * expansion */
    int32_t groups;    /* of the 3x3 convolutions */
};

cvy_val cvy_resnet_build(struct cvy_graph *graph, cvy_val image, const struct cvy_model_options *options,
                         const void *config);

#endif
