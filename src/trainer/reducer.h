/* The sums of gradients over the ranks that come before the optimizer. */
#ifndef CVY_TRAINER_REDUCER_H
#define CVY_TRAINER_REDUCER_H

#include "backend/plan.h"
#include "comm/worker.h"

/* Gradients are summed over the ranks in slices of the arena ("buckets"), each as soon as all of its parameters and
 * those of the buckets before it are ready: all ranks make the same sums in the same order. They overlap with the rest
 * of the backward pass: a thread does them, or the devices among themselves. Where the host cannot read the device's
 * memory and devices do not sum, all of them are downloaded, summed on the host and uploaded again when it is over. */
struct cvy_reducer {
    struct cvy_comm *comm;   /* borrowed */
    enum cvy_comm_type type; /* the type in which gradients are sent: CVY_COMM_F32 until cvy_reducer_wire_dtype */
    struct cvy_store *store; /* borrowed */
    /* Added to each bucket before it is summed over the ranks; NULL: nothing. Borrowed. */
    const float *gradient_sum;
    int32_t *bucket_of; /* by parameter that has a gradient */
    struct cvy_bucket {
        int64_t first, count; /* elements */
        int32_t parameters, waiting;
    } * buckets;
    int32_t bucket_count;
    int32_t next;                   /* the bucket that is summed next */
    bool on_device;                 /* the devices sum (backend/collective.h) */
    struct cvy_comm_worker *worker; /* NULL: of a single process, sums of devices, or sums after the pass */
    float *staged;                  /* the arena in the host's memory, where the device's cannot be read */
};
/* Buckets hold about `elements` elements (25 MB of floats is usual), filled from the last parameter on; the last one at
 * most a sixteenth of that, since no more is computed while it is summed. Parameters that the loss does not see have no
 * gradient and are in no bucket. Where devices sum, the plan's captures are split after each bucket. */
CVY_CHECKED cvy_status cvy_reducer_open(struct cvy_reducer *reducer, struct cvy_comm *comm, struct cvy_store *store,
                                        struct cvy_plan *plan, int64_t elements);
/* Another plan of the same network whose gradients it sums: its captures are split likewise. */
void cvy_reducer_split(struct cvy_reducer *reducer, struct cvy_plan *plan);
/* Sets the type in which gradients are sent between ranks: CVY_COMM_F32 or 16 bits. */
CVY_CHECKED cvy_status cvy_reducer_wire_dtype(struct cvy_reducer *reducer, enum cvy_comm_type type);
void cvy_reducer_close(struct cvy_reducer *reducer); /* accepts a zeroed one */
void cvy_reducer_start(struct cvy_reducer *reducer); /* before each step */
/* The gradient hook of a plan; context is the reducer. */
cvy_status cvy_reducer_ready(void *context, int32_t param);
/* After the pass: waits until all sums are complete. */
CVY_CHECKED cvy_status cvy_reducer_finish(struct cvy_reducer *reducer);

#endif
