/* All-reduce between the devices of the ranks of a run, overlapping other work: NCCL's. The host decides what is summed
 * and when, and watches for failures. Every rank makes the same calls in the same order, from one thread. */
#ifndef CVY_BACKEND_COLLECTIVE_H
#define CVY_BACKEND_COLLECTIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/types.h"
#include "convoy/status.h"

typedef struct cvy_device cvy_device;

/* What the ranks must know about each other before they join. */
struct cvy_collective_view {
    char version[16]; /* of the library, "2.28.9": must be the same on all ranks */
    uint64_t device;  /* equal on two ranks: they share one device, which cannot sum with itself */
};

enum { CVY_COLLECTIVE_KEY_BYTES = 128 };
struct cvy_collective_group {
    int rank, world;
    unsigned char key[CVY_COLLECTIVE_KEY_BYTES]; /* rank 0's, the same on all */
    double timeout;                              /* seconds that a call, or the device after it, waits at most */
    /* Polled while a call waits: a failure that should end the wait. `late`: the time limit has expired; names the rank
     * at fault, always a failure. */
    cvy_status (*reason)(void *context, bool late);
    void *context;
};

/* Implemented by a backend. Between join and leave every call that waits for the device returns within the time limit
 * when a sum fails, or when a rank does not reach it; what failed once fails again. */
struct cvy_collective {
    const char *name; /* "NCCL" */
    /* CVY_UNAVAILABLE with the reason where collectives are not available. */
    cvy_status (*query)(cvy_device *device, struct cvy_collective_view *view);
    cvy_status (*make_key)(cvy_device *device, unsigned char key[CVY_COLLECTIVE_KEY_BYTES]);
    /* Meets the other ranks and tries a sum. */
    cvy_status (*join)(cvy_device *device, const struct cvy_collective_group *group);
    /* Reserves buffers for sums of up to `max` floats that are sent in 16 bits. */
    cvy_status (*reserve)(cvy_device *device, int64_t max);
    /* All-reduces `count` floats in place, once what is queued now has run; what is queued later runs concurrently and
     * must not touch them. `wire_dtype`: CVY_F32, or CVY_BF16 or CVY_F16, to which what is sent between devices, and
     * each partial sum, is rounded; f16 is scaled by the power of two that keeps all sums just within its range. */
    cvy_status (*sum)(cvy_device *device, float *values, int64_t count, enum cvy_dtype wire_dtype);
    /* Fence: work queued from now on waits for all sums. */
    cvy_status (*fence)(cvy_device *device);
    /* `failed`: hanging sums are aborted. Else all must be complete, and the other ranks leave too. Does nothing where
     * the device has not joined. */
    void (*leave)(cvy_device *device, bool failed);
};

#endif
