/* Files of named tensors: safetensors and PyTorch in and out, TensorFlow's checkpoints in. tensors.h opens any of them.
 */
#ifndef CVY_FORMATS_WEIGHTS_API_H
#define CVY_FORMATS_WEIGHTS_API_H

#include "formats/weights/pytorch_write.h"
#include "formats/weights/safetensors.h"
#include "formats/weights/tensors.h"

#endif
