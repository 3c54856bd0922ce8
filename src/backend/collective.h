/* Sums over the ranks of a run that their devices do among themselves, beside other work: NCCL's. The host says what is
 * summed and when, and watches. Every rank makes the same calls in the same order, from one thread. */
#ifndef CVY_BACKEND_COLLECTIVE_H
#define CVY_BACKEND_COLLECTIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/types.h"
#include "convoy/status.h"

typedef struct cvy_device cvy_device;

/* What the ranks must know of each other before they join. */
struct cvy_collective_view {
    char version[16]; /* of the library, "2.28.9": must be the same on all ranks */
    uint64_t device;  /* the same number on two ranks: it is one device, which cannot sum with itself */
};

enum { CVY_COLLECTIVE_KEY_BYTES = 128 };
struct cvy_collective_group {
    int rank, world;
    unsigned char key[CVY_COLLECTIVE_KEY_BYTES]; /* rank 0's, the same on all */
    double timeout;                              /* seconds for which a call, or the device behind it, waits at most */
    /* Asked now and then while something waits: why it should not go on. `late`: the time limit is over; whose fault
     * that is, always a failure. */
    cvy_status (*reason)(void *context, bool late);
    void *context;
};

/* Of a backend. Between join and leave every call that waits for the device ends within the time limit when a sum
 * fails, or when a rank does not come to it; what failed once fails again. */
struct cvy_collective {
    const char *name; /* "NCCL" */
    /* CVY_UNAVAILABLE with the reason where sums cannot be had. */
    cvy_status (*look)(cvy_device *device, struct cvy_collective_view *view);
    cvy_status (*make_key)(cvy_device *device, unsigned char key[CVY_COLLECTIVE_KEY_BYTES]);
    /* Meets the other ranks and tries a sum. */
    cvy_status (*join)(cvy_device *device, const struct cvy_collective_group *group);
    /* Room for sums of `most` floats that travel in 16 bits. */
    cvy_status (*reserve)(cvy_device *device, int64_t most);
    /* Sum `count` floats in place, once what is queued now has run; what is queued later runs beside it and must leave
     * them alone. `travel`: CVY_F32, or CVY_BF16 or CVY_F16 where what goes from device to device, and each sum of two,
     * is rounded to that; f16 with the power of two that keeps all sums just in its range. */
    cvy_status (*sum)(cvy_device *device, float *values, int64_t count, enum cvy_dtype travel);
    /* What is queued from now on waits for all sums. */
    cvy_status (*settle)(cvy_device *device);
    /* `failed`: sums that hang are given up. Else all must be done, and the other ranks leave too. Nothing where the
     * device has not joined. */
    void (*leave)(cvy_device *device, bool failed);
};

#endif
