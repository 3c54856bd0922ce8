/* The statistics of batch norms over some batches, with weights that stay as they are. */
#ifndef CVY_NETWORK_STATISTICS_H
#define CVY_NETWORK_STATISTICS_H

#include "network/batch_upload.h"
#include "network/network.h"

struct cvy_statistics {
    struct cvy_network *network; /* borrowed */
    struct cvy_plan plan;
    struct cvy_batch_upload upload;
    struct cvy_store store; /* weights of the network or its average; its state is that of the last batch */
    float *mean;            /* device memory, as a store's state: the means so far */
    float *share;           /* device memory: of the last batch in them */
    int64_t batches;        /* so far */
};
/* A plan of the forward pass over `batch` images, in the network's reserved memory where it fits. */
CVY_CHECKED cvy_status cvy_statistics_open(struct cvy_statistics *statistics, struct cvy_network *network,
                                           int64_t batch);
void cvy_statistics_close(struct cvy_statistics *statistics); /* accepts a zeroed one */
/* Starts over, for the weights of `store`: the network's or its average's. */
CVY_CHECKED cvy_status cvy_statistics_start(struct cvy_statistics *statistics, const struct cvy_store *store);
/* Takes a batch of the network's training images in. */
CVY_CHECKED cvy_status cvy_statistics_add(struct cvy_statistics *statistics, const uint8_t *images);
/* Replaces the state of `store` by the means. */
CVY_CHECKED cvy_status cvy_statistics_finish(struct cvy_statistics *statistics, struct cvy_store *store);

#endif
