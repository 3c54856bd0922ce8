/* Shared by the files of the check backend: check_device.c is the device, check_kernel.c runs both kernels,
 * check_compare.c compares the outputs, check_update.c checks what is not a kernel. */
#ifndef CVY_BACKEND_CHECK_INTERNAL_H
#define CVY_BACKEND_CHECK_INTERNAL_H

#include <pthread.h>

#include "backend/backend.h"

/* ---- the device (check_device.c) ---- */
/* Buffers of a device: one kernel runs at a time, so all kernels share them. They grow while kernels are prepared. */
enum check_slot {
    SLOT_IN,                                 /* inputs in double; of integer inference, as all here, in their types */
    SLOT_CHECKED = SLOT_IN + CVY_MAX_INPUTS, /* outputs of the checked kernel in double */
    SLOT_REFERENCE = SLOT_CHECKED + CVY_MAX_OUTPUTS,
    SLOT_SCALE = SLOT_REFERENCE + CVY_MAX_OUTPUTS,
    SLOT_RAW = SLOT_SCALE + CVY_MAX_OUTPUTS, /* a tensor as it comes from the checked device */
    SLOT_SECOND,                             /* another one */
    SLOT_SCRATCH,                            /* of reference kernels */
    SLOT_STAGE,                              /* on the checked device: a tensor in another layout */
    SLOT_STAGE_SCRATCH,                      /* on the checked device: of its reorders */
    SLOT_COUNT
};
struct check_buffer {
    void *memory;
    size_t bytes;
};

struct check_device {
    struct cvy_device base;
    cvy_device *inner, *reference;
    struct check_buffer slots[SLOT_COUNT];
    pthread_mutex_t lock; /* one kernel at a time */
    bool lock_made;
};

static inline struct check_device *check_of(cvy_device *device)
{
    return (struct check_device *)device;
}
static inline void *check_slot(const struct check_device *check, int index)
{
    return check->slots[index].memory;
}
/* Grow a buffer to at least this many bytes; its content is lost when it grows. */
CVY_CHECKED cvy_status check_reserve(struct check_device *check, int index, size_t bytes);
/* A device that checks `inner`, which it owns from now on, also on failure. */
CVY_CHECKED cvy_status check_wrap(cvy_device *inner, cvy_device **device);

/* ---- its kernels (check_kernel.c) ---- */
cvy_status check_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan);
cvy_status check_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                     void *scratch);
void check_release(cvy_device *device, struct cvy_kernel_plan *plan);

/* ---- the optimizer's step and sums over arenas (check_update.c) ---- */
/* Buffers for the two below. */
CVY_CHECKED cvy_status check_update_reserve(struct check_device *check);
cvy_status check_update(cvy_device *device, const struct cvy_update *step);
cvy_status check_combine(cvy_device *device, enum cvy_combine how, float *y, const float *x, int64_t count,
                         const float *share);

/* ---- comparison (check_compare.c) ---- */

/* One call of a kernel, ready for comparison. Everything is plain and in double, except images (u8, NHWC), labels,
 * classes and counts (i32) and positions (u8); NULL where absent. */
struct check_case {
    const struct cvy_op_desc *desc; /* shapes, and the types that the checked kernel computes in */
    void *in[CVY_MAX_INPUTS];
    void *checked[CVY_MAX_OUTPUTS];   /* what the checked kernel gave */
    void *reference[CVY_MAX_OUTPUTS]; /* what the reference gave; rounded to the output's type for exact ops */
    double *scale[CVY_MAX_OUTPUTS];   /* of each element: see check_judge() */
    double coarseness;                /* added to the limits: relative */
};

/* How the size of the terms behind each output is found; of CVY_CHECK_ABSOLUTE by running the reference again. */
enum cvy_op_check check_kind(const struct cvy_op_desc *desc);
/* Make the inputs absolute values; a mean that is subtracted becomes a negative one. */
void check_make_absolute(struct check_case *item);
void check_fill_scales(struct check_case *item);    /* of CVY_CHECK_RESULT and CVY_CHECK_FORMULA */
void check_scale_variance(struct check_case *item); /* of a convolution that gives statistics */

/* Compare output `index`. *error = rms(checked - reference) / rms(scale), where scale is the sum of the absolute values
 * of the terms that make up the element: what rounding errors are proportional to, also where the terms cancel. *limit
 * comes from the number of terms. Returns whether error <= limit. */
bool check_judge(const struct check_case *item, int32_t index, double *error, double *limit);
double check_unit(enum cvy_dtype dtype); /* half the distance from 1 to the next number */

/* ---- masks of activations that the backward pass of batch norm recomputes ---- */
/* mask = 1 where the gradient passes the recomputed y, else 0 (shape of x). */
void check_fill_mask(const struct check_case *item, double *mask);
/* Where y is so near to 0 (or, with ReLU6, to 6) that rounding decides its side, the checked kernel may mask either
 * way: follow its decision, read from its dx. The sums follow from it and are compared as strictly as ever. Returns
 * whether the mask changed. */
bool check_follow_mask(const struct check_case *item, double *mask);

#endif
