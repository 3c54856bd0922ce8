/* Weights between files and networks: checkpoints, pretrained weights, and the network that a file belongs to. */
#ifndef CVY_WEIGHTS_API_H
#define CVY_WEIGHTS_API_H

#include "weights/checkpoint.h"
#include "weights/model_variant.h"
#include "weights/published.h"

#endif
