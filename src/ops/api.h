/* One builder for each operation of a graph, with its rules for shapes, gradients and cost. No arithmetic is done here.
 */
#ifndef CVY_OPS_API_H
#define CVY_OPS_API_H

#include "ops/anchors.h"
#include "ops/ops.h"

#endif
