/* Files of named tensors: safetensors, PyTorch's and TensorFlow's checkpoints, in and out. tensors.h opens any of them.
 */
#ifndef CVY_FORMATS_WEIGHTS_API_H
#define CVY_FORMATS_WEIGHTS_API_H

#include "formats/weights/pytorch_write.h"
#include "formats/weights/safetensors.h"
#include "formats/weights/tensorflow_write.h"
#include "formats/weights/tensors.h"

#endif
