/* The names that TensorFlow's programs on TF-slim and the Object Detection API give SSD320's variables, and those of
 * slim's resnet_v1_50, with which its backbone starts. Kernels are (H, W, I, O) there. */
#ifndef CVY_MODELS_NAMING_SLIM_H
#define CVY_MODELS_NAMING_SLIM_H

#include "formats/weights/tensors.h"

/* By the first convolution of a resnet_v1_50. */
bool cvy_slim_looks_like(const struct cvy_tensor_file *file);
/* Every tensor of the network gets Convoy's name, shape and order of values (a copy); what is not the network's goes
 * away: counters and settings of the training, the classifier of resnet_v1_50. Names in the network's scopes that are
 * not known stay, for loading to name them. The file's metadata gets the strides of slim's backbone, where it does not
 * speak of a model. */
CVY_CHECKED cvy_status cvy_slim_read(struct cvy_tensor_file *file);
/* One tensor to TensorFlow's name, shape and order of values; what is new lives in the arena. CVY_USAGE where there is
 * no name for it. */
CVY_CHECKED cvy_status cvy_slim_write(struct cvy_arena *arena, struct cvy_named_tensor *tensor);

#endif
