/* The names that NVIDIA's TensorFlow program for classification gives the variables of ResNet-50, ResNeXt101-32x4d and
 * SE-ResNeXt101-32x4d: a scope with the network's name, and in it the layers of model/resnet.py and model/blocks.
 *
 * Convoy                     TensorFlow, after "resnet50/"
 * conv1, bn1                 conv2d/conv2d, conv2d/BatchNorm
 * layer<s+1>.<b>.conv<i>     btlnck_block_<s>_<b>/bottleneck_<i>/conv2d; of groups
 * .../bottleneck_2/bottleneck_2group_filter layer<s+1>.<b>.bn<i>       btlnck_block_<s>_<b>/bottleneck_<i>/BatchNorm
 * layer<s+1>.<b>.downsample  btlnck_block_<s>_<b>/shortcut/conv2d/conv2d and .../BatchNorm
 * layer<s+1>.<b>.se.fc1, 2   btlnck_block_<s>_<b>/bottleneck_se_layer/dense and .../dense_1
 * fc                         output/dense, with --use_final_conv a convolution */
#ifndef CVY_MODELS_NAMING_TENSORFLOW_H
#define CVY_MODELS_NAMING_TENSORFLOW_H

#include "formats/weights/tensors.h"

/* The key of a file's metadata for the number of steps of its training. */
#define CVY_TENSORFLOW_STEP "tensorflow.global_step"

/* By the first convolution of the first block, in whatever scope. */
bool cvy_tensorflow_naming_looks_like(const struct cvy_tensor_file *file);
/* Every tensor of the network gets Convoy's name, shape and order of values (a copy); what is not the network's goes
 * away: counters and settings of the training, and the ranges that quantisation-aware training keeps. Names in the
 * network's scope that are not known stay, for loading to name them. The file's metadata gets the padding and the
 * transform of the program, where it does not speak of them, and the number of steps. */
CVY_CHECKED cvy_status cvy_tensorflow_naming_read(struct cvy_tensor_file *file);
/* CVY_USAGE for a network that the program does not have. */
CVY_CHECKED cvy_status cvy_tensorflow_naming_check(const char *arch);
/* Its squeeze-and-excitation layers over C channels have C / 16 hidden units. */
#define CVY_TENSORFLOW_SQUEEZE (-16)
/* One tensor of the network `arch` to TensorFlow's name, shape and order of values; what is new lives in the arena.
 * CVY_USAGE where there is no name for it. */
CVY_CHECKED cvy_status cvy_tensorflow_naming_write(struct cvy_arena *arena, const char *arch,
                                                   struct cvy_named_tensor *tensor);

#endif
