/* A copy of what training changes in a network, in the device's memory: what a training goes back to. */
#ifndef CVY_NETWORK_SNAPSHOT_H
#define CVY_NETWORK_SNAPSHOT_H

#include "network/network.h"

struct cvy_snapshot {
    struct cvy_store store;   /* weights, momentum, averages of squares, running statistics; no gradients */
    struct cvy_store average; /* of a network that has one */
    bool open, taken;         /* taken: there is a copy */
};
/* Memory for the copies of a network that is complete: cvy_network_extend comes before. */
CVY_CHECKED cvy_status cvy_snapshot_open(struct cvy_snapshot *snapshot, const struct cvy_network *network);
void cvy_snapshot_close(struct cvy_snapshot *snapshot); /* accepts a zeroed one */
/* Queue the copies. Neither allocates. The host's counters are the caller's. */
CVY_CHECKED cvy_status cvy_snapshot_take(struct cvy_snapshot *snapshot, const struct cvy_network *network);
CVY_CHECKED cvy_status cvy_snapshot_restore(const struct cvy_snapshot *snapshot, struct cvy_network *network);

#endif
