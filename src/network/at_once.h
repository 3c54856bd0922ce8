/* How many images of a batch inference computes together. */
#ifndef CVY_NETWORK_AT_ONCE_H
#define CVY_NETWORK_AT_ONCE_H

#include "backend/backend.h"
#include "graph/graph.h"

/* All of `batch`; for a graph in integers a divisor of it: the most images with which what the widest step reads and
 * writes stays in half of the cache that the cores share (cvy_device.cache_bytes). Its steps take about as long as
 * memory does, so a batch is faster in parts; what is computed in integers does not depend on it. The batch itself
 * where it fits, where the cache is not known, and where there would be fewer images than threads. */
int64_t cvy_images_at_once(const struct cvy_graph *graph, const cvy_device *device, int64_t batch);

#endif
