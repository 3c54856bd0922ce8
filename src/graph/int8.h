/* The arithmetic of networks that run in 8-bit integers: unsigned bytes, each of which is a level plus the tensor's
 * zero point, so that value = (byte - zero) * scale. Sums of products are 32-bit integers. Everything after them is
 * single precision in a fixed order, with one rounding where fmaf stands, so that every device gives the same bytes. */
#ifndef CVY_GRAPH_INT8_H
#define CVY_GRAPH_INT8_H

#include <math.h>

#include "graph/op.h"

/* The byte of a value in units of the levels, of which `low` is the lowest that may be: -zero, after a ReLU 0. NaN
 * gives the lowest. */
static inline uint8_t cvy_int8_byte(float units, float low, int32_t zero)
{
    const float high = (float)(255 - zero), above = units > low ? units : low, level = above < high ? above : high;

    return (uint8_t)((int32_t)rintf(level) + zero);
}

/* What a convolution makes of its sums, for one output channel. */
struct cvy_int8_finish {
    float factor, shift; /* of the sums, in units of the first rounding's levels; without one, of values */
};

/* The levels that are rounded to first: those before the addition where there is one. */
static inline const struct cvy_int8_levels *cvy_int8_first(const struct cvy_int8_attr *attr)
{
    return attr->middle.scale > 0 ? &attr->middle : &attr->y;
}

static inline struct cvy_int8_finish cvy_int8_finish_of(const struct cvy_int8_attr *attr, float multiplier, float bias)
{
    const struct cvy_int8_levels *first = cvy_int8_first(attr);
    const float inverse = first->scale > 0 ? 1 / first->scale : 1;

    return (struct cvy_int8_finish){attr->x.scale * multiplier * inverse, bias * inverse};
}

/* max(v, 0), min(max(v, 0), six): six is 6 in the units of v. */
static inline float cvy_int8_activation(enum cvy_activation activation, float v, float six)
{
    if (activation == CVY_ACTIVATION_NONE)
        return v;
    v = v > 0 ? v : 0;
    return activation == CVY_ACTIVATION_RELU6 && v > six ? six : v;
}

/* An addition is in units of y's levels, or of values where y is floats: the scales of its operands. */
struct cvy_int8_scales {
    float middle, residual;
};

static inline struct cvy_int8_scales cvy_int8_scales_of(const struct cvy_int8_attr *attr)
{
    const float inverse = attr->y.scale > 0 ? 1 / attr->y.scale : 1;

    return (struct cvy_int8_scales){attr->middle.scale * inverse, attr->residual.scale * inverse};
}

/* Whether what an addition gives stays far within 32 bits; without one there is nothing to ask. */
static inline bool cvy_int8_bounded(const struct cvy_int8_attr *attr)
{
    const struct cvy_int8_scales scales = cvy_int8_scales_of(attr);

    return attr->middle.scale <= 0 || 255 * (scales.middle + scales.residual) < 1e9f;
}

/* From a sum to the value before its last rounding, in units of y's levels, or the value itself where y is floats.
 * `residual`: the byte that is added, with attr->middle. */
static inline float cvy_int8_finished(const struct cvy_int8_attr *attr, struct cvy_int8_finish finish, int32_t sum,
                                      int32_t residual)
{
    const float inverse = attr->y.scale > 0 ? 1 / attr->y.scale : 1;
    float v = fmaf((float)sum, finish.factor, finish.shift);

    if (attr->middle.scale > 0) {
        const int32_t zero = attr->middle.zero;
        const float level = (float)(cvy_int8_byte(v, (float)-zero, zero) - zero);
        const struct cvy_int8_scales scales = cvy_int8_scales_of(attr);

        v = fmaf(level, scales.middle, (float)(residual - attr->residual.zero) * scales.residual);
    }
    return cvy_int8_activation(attr->conv2d.activation, v, 6 * inverse);
}

#endif
