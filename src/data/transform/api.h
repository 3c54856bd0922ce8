/* From a decoded image to the network's input: crops, mirroring, colours, mixing, by the rules of several programs, and
 * the boxes of objects moved along. */
#ifndef CVY_DATA_TRANSFORM_API_H
#define CVY_DATA_TRANSFORM_API_H

#include "data/transform/augment.h"
#include "data/transform/detection.h"
#include "data/transform/mixup.h"
#include "data/transform/tensorflow.h"
#include "data/transform/transform.h"

#endif
