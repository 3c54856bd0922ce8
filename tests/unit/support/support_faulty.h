/* A check device over the reference with faults put in. */
#ifndef SUPPORT_FAULTY_H
#define SUPPORT_FAULTY_H

#include "backend/backend.h"

enum fault {
    FAULT_NONE,
    FAULT_VALUE, /* the largest element of an output is 1 % too large */
    FAULT_HOLE,  /* the last element of an output is not written */
    FAULT_SHIFT  /* BATCH_NORM_BWD uses beta + shift in its mask */
};
struct faulty {
    enum fault fault;
    int32_t output;
    float shift;
};
extern struct faulty faulty;
/* Set by the test before each run: the tensor that a fault strikes. */
extern struct cvy_tensor faulty_tensor;
/* The kernels of the device that is checked; filled in by open_faulty. */
extern struct cvy_backend faulty_backend;

cvy_device *open_faulty(void);

#endif
