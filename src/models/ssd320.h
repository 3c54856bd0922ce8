/* SSD320: a single-shot detector on a ResNet-50 with a feature pyramid and one predictor for all levels (RetinaNet's
 * form, Lin et al. 2017, after TensorFlow's object detection API). */
#ifndef CVY_MODELS_SSD320_H
#define CVY_MODELS_SSD320_H

#include "models/models.h"

/* Images are square, of a side that is a multiple of 32, 64 or more. */
struct cvy_predictions cvy_ssd320_build(struct cvy_graph *graph, cvy_val image,
                                        const struct cvy_model_options *options);

#endif
