/* What computes the batches of inference: one plan by all threads of a device together, or, in integers or 16-bit
 * floats on the CPU, several plans at the same time, each by a thread of its own over images of its own (split.h). The
 * network's parameters stay as they are meanwhile. */
#ifndef CVY_NETWORK_STREAMS_H
#define CVY_NETWORK_STREAMS_H

#include "network/batch_upload.h"
#include "network/network.h"
#include "network/split.h"

struct cvy_stream {
    cvy_device *device;         /* of one thread; NULL: the network's own computes */
    struct cvy_network network; /* on that device, beside the network; empty without one */
    struct cvy_plan plan;
    struct cvy_batch_upload upload;
};
struct cvy_streams {
    struct cvy_stream *stream;
    int count;
    int64_t batch; /* a multiple of the plans' */
};

/* For the batch as cvy_split_batch divides it. beside: a plan of the network that this one was opened beside, whose
 * constants all read where they want the same; NULL, or where the first stream wants others: it makes its own, for all.
 * A failed open leaves none. */
CVY_CHECKED cvy_status cvy_streams_open(struct cvy_streams *streams, struct cvy_network *network, int64_t batch,
                                        struct cvy_plan *beside);
/* A single one over a graph for the whole batch, which it takes over as cvy_plan_open does. */
CVY_CHECKED cvy_status cvy_streams_open_graph(struct cvy_streams *streams, struct cvy_network *network,
                                              struct cvy_graph *graph, int64_t batch);
void cvy_streams_close(struct cvy_streams *streams); /* accepts a zeroed one */

/* Calls `part` for the parts of the batch that hold its first `images` images: those from `first` on, as many as the
 * stream's plan has. Parts go to whichever stream is free; while a plan is profiled they go round. The first failure
 * that is met ends it. */
typedef cvy_status (*cvy_stream_part)(void *context, struct cvy_stream *stream, int64_t first);
CVY_CHECKED cvy_status cvy_streams_run(struct cvy_streams *streams, int64_t images, cvy_stream_part part,
                                       void *context);
/* The parts of a batch that the first stream computes when they go round: no other one has more. */
int64_t cvy_streams_rounds(const struct cvy_streams *streams);

/* A device of one thread like `device`, the CPU, with whose autotuner it decides. */
CVY_CHECKED cvy_status cvy_stream_device_open(const cvy_device *device, cvy_device **one);
void cvy_stream_device_close(cvy_device *one); /* accepts NULL; before `device` is closed */
/* Memory of the plans of all streams of a split, one of which is `plan`. */
size_t cvy_streams_bytes(const struct cvy_plan *plan, int streams);

#endif
