/* The reference backend: plain loops that define what every op means. Float and double come from one source: the *.inc
 * files are compiled twice, with REAL defined as the element type. Sums run in double in both. */
#ifndef CVY_BACKEND_REF_REF_H
#define CVY_BACKEND_REF_REF_H

#include <omp.h>

#include "backend/backend.h"

/* One call of a kernel. */
struct ref_call {
    const struct cvy_op_desc *desc;
    void *const *in, *const *out; /* in the order of op.h; NULL where absent */
    double *scratch;              /* `scratch_row` doubles for each thread */
    size_t scratch_row;
    int threads;
    const cvy_device *device;
};
typedef cvy_status (*ref_function)(const struct ref_call *call);

/* Kernels of ops on f32 and f64, and after them that of an addition with ReLU; NULL for those below. */
enum { REF_ADD_RELU = CVY_OP_COUNT, REF_FUNCTIONS };
extern const ref_function ref_functions_f32[REF_FUNCTIONS], ref_functions_f64[REF_FUNCTIONS];
/* Kernels for mixed types. */
cvy_status ref_reorder(const struct ref_call *call);
cvy_status ref_cast(const struct ref_call *call);

/* Bytes in plain, NHWC or blocked layout; 0 on overflow and for opaque layouts. */
size_t ref_tensor_bytes(cvy_device *device, const struct cvy_tensor *tensor);

/* What prepare() finds out. CVY_UNAVAILABLE with a reason when the kernels here do not take the op as described. */
struct ref_state {
    struct cvy_op_desc desc;
    ref_function function;
    size_t scratch_row;
};
CVY_CHECKED cvy_status ref_prepare_state(struct cvy_op_desc *desc, struct ref_state *state);

/* The same for ops of integer inference (int8.c). */
CVY_CHECKED cvy_status ref_int8_prepare_state(struct cvy_op_desc *desc, struct ref_state *state);

static inline double *ref_thread_scratch(const struct ref_call *call)
{
    return call->scratch + call->scratch_row * (size_t)omp_get_thread_num();
}

/* ---- shapes as the loops need them ---- */

/* Extents of x (N,C,H,W), w (K,C/g,R,S), y (N,K,P,Q); also for pooling, where K = C and w is absent. */
struct ref_window {
    int64_t n, c, h, w, k, p, q, r, s;
    int64_t group_receive, group_send; /* channels of x and y in one group */
    int64_t stride[2], dilation[2], pad[2];
};
struct ref_window ref_conv_window(const struct cvy_conv2d_attr *attr, const struct cvy_shape *x,
                                  const struct cvy_shape *y);
struct ref_window ref_pool_window(const struct cvy_pool_attr *attr, const struct cvy_shape *x,
                                  const struct cvy_shape *y);

/* The outputs first <= p < end for which tap p * stride + offset reads inside 0 .. extent - 1. */
struct ref_range {
    int64_t first, end;
};
static inline struct ref_range ref_inside(int64_t offset, int64_t stride, int64_t extent, int64_t outputs)
{
    struct ref_range range = {0, 0};

    if (stride == 1) { /* the common case, without divisions */
        range.first = offset < 0 ? -offset : 0;
        range.end = extent - offset;
    } else {
        if (offset < 0)
            range.first = (-offset + stride - 1) / stride;
        if (offset < extent)
            range.end = (extent - offset - 1) / stride + 1;
    }
    if (range.end > outputs)
        range.end = outputs;
    if (range.end < range.first)
        range.end = range.first;
    return range;
}

/* A tensor (N,C,...) as images of channels of planes. */
struct ref_planes {
    int64_t images, channels, plane;
};
static inline struct ref_planes ref_planes(const struct cvy_shape *shape)
{
    struct ref_planes planes = {shape->dim[0], shape->dim[1], 1};

    for (int32_t i = 2; i < shape->rank; i++)
        planes.plane *= shape->dim[i];
    return planes;
}

#endif
