/* How a batch is computed in inference. */
#ifndef CVY_NETWORK_SPLIT_H
#define CVY_NETWORK_SPLIT_H

#include "backend/backend.h"
#include "graph/graph.h"

struct cvy_split {
    int64_t images; /* that are computed at once: a divisor of the batch */
    int streams;    /* which compute so many each, by one thread; 1: all threads of the device work together */
};
/* All of `batch` together, but for inference in integers, whose quantizers' states stay, and in 16-bit floats with
 * parameters that are `constant` (cvy_network.constant): streams share what is made of the parameters.
 *
 * In integers, whose steps take about as long as memory does, and whose results depend on neither number (products that
 * are left in floats may round otherwise): the most images, but at least one, with which what the widest step reads and
 * writes, of all streams together, stays in half of the cache that the cores share (cvy_device.cache_bytes; unknown, or
 * too small for one image: all of the batch). Streams wait for nobody after each step and find in their own caches what
 * they have written: one for each thread, unless in the last round more than one in 32 of all places for images would
 * be empty. In 16-bit floats streams are the same, of four images at least where the batch has as many
 * for each; where there can be none, all of the batch is computed at once. */
struct cvy_split cvy_split_batch(const struct cvy_graph *graph, const cvy_device *device, bool constant, int64_t batch);

#endif
