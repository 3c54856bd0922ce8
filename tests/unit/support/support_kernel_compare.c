/* The kernel checker: types of 16 bits, and by how much an output may differ from the reference's. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_kernels.h"
#include "support_layouts.h"

/* ---- 16 bits ---- */

/* Bits of the significand, the leading one included. */
static int digits_of(enum cvy_dtype dtype)
{
    return dtype == CVY_F16 ? 11 : 8;
}

static float widen(enum cvy_dtype dtype, uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    const int exponent = half >> 10 & 31, fraction = half & 1023;
    float value;
    memcpy(&value, &bits, sizeof(value));
    if (dtype == CVY_BF16)
        return value;
    if (exponent == 31)
        value = fraction ? NAN : INFINITY;
    else
        value = exponent ? ldexpf((float)(1024 + fraction), exponent - 25) : ldexpf((float)fraction, -24);
    return half & 0x8000 ? -value : value;
}

/* 2 to the power of a number from -100 to 100: ldexpf(), with which all values are made, takes its time. */
static float power(int exponent)
{
    static float powers[201];
    if (powers[0] == 0)
        for (int i = 0; i < 201; i++)
            powers[i] = ldexpf(1, i - 100);
    return powers[exponent + 100];
}

/* The nearest number of the type, found without bit tricks. Finite values of ordinary size only. */
static float rounded(enum cvy_dtype dtype, float value)
{
    int exponent;
    const float significand = frexpf(value, &exponent);
    const int unit = dtype == CVY_F16 && exponent < -13 ? -24 : exponent - digits_of(dtype); /* subnormal */
    return nearbyintf(significand * power(exponent - unit)) * power(unit);
}

static uint16_t narrow(enum cvy_dtype dtype, float value)
{
    const float near = rounded(dtype, value);
    uint32_t bits;
    if (dtype == CVY_BF16) {
        memcpy(&bits, &near, sizeof(bits));
        return (uint16_t)(bits >> 16);
    }
    const float magnitude = fabsf(near);
    int exponent, number; /* positive halves are ordered like their bits */
    const float significand = frexpf(magnitude, &exponent);
    if (magnitude < 0x1p-14f)
        number = (int)ldexpf(magnitude, 24);
    else
        number = (exponent + 13) * 1024 + (int)(significand * 2048);
    return (uint16_t)(number | (signbit(near) ? 0x8000 : 0));
}

cvy_status kernel_narrow(struct kernel_case *kernel, cvy_device *ref, enum cvy_dtype dtype, uint32_t f32_inputs,
                         uint32_t f32_outputs)
{
    uint16_t *halves[CVY_MAX_INPUTS] = {0};
    kernel->narrowed = true;
    for (int32_t i = 0; i < kernel->desc.inputs; i++) {
        struct cvy_tensor *tensor = &kernel->desc.in[i];
        if (!cvy_tensor_present(tensor) || tensor->dtype != CVY_F32 || f32_inputs >> i & 1)
            continue;
        const int64_t count = cvy_shape_elements(&tensor->shape);
        float *values = kernel->in[i];
        halves[i] = kernel_allocate((size_t)count * sizeof(halves[i][0]));
        for (int64_t k = 0; k < count; k++) {
            halves[i][k] = narrow(dtype, values[k]);
            values[k] = widen(dtype, halves[i][k]);
        }
    }
    const cvy_status status = ref ? kernel_reference(kernel, ref) : CVY_OK;
    for (int32_t i = 0; i < kernel->desc.inputs; i++)
        if (halves[i]) {
            free(kernel->in[i]);
            kernel->in[i] = halves[i];
            kernel->desc.in[i].dtype = dtype;
        }
    for (int32_t i = 0; i < kernel->desc.outputs; i++)
        if (cvy_tensor_present(&kernel->desc.out[i]) && kernel->desc.out[i].dtype == CVY_F32 && !(f32_outputs >> i & 1))
            kernel->desc.out[i].dtype = dtype;
    return status;
}

/* ---- comparison ---- */

/* The largest finite number, without its sign: floats without signs are ordered like their bits, and infinity and NaN
 * come last. */
static float largest_finite(const float *values, int64_t count)
{
    int32_t largest = 0;
    float value;
    for (int64_t i = 0; i < count; i++) {
        int32_t bits;
        memcpy(&bits, &values[i], sizeof(bits));
        bits &= 0x7fffffff;
        bits = bits < 0x7f800000 ? bits : 0;
        largest = bits > largest ? bits : largest;
    }
    memcpy(&value, &largest, sizeof(value));
    return value;
}

/* Does each number differ by no more than that, and own_unit of its size? A NaN is no, and so is an infinite number
 * that is to be rounded. Without branches, for nearly all outputs are done here. */
static bool all_within(const float *got, const float *want, int64_t count, double allowed, double own_unit)
{
    int64_t beyond = 0;
    for (int64_t i = 0; i < count; i++)
        beyond += !(fabs((double)got[i] - (double)want[i]) - own_unit * fabs((double)want[i]) <= allowed);
    return beyond == 0;
}

/* own_unit: relative size of one rounding to the output's type, in addition to the bound; 0 for f32. own_step: its size
 * for numbers that are too small for all digits, of f16 alone. Instead of infinity the type's largest number will do,
 * where rounding decides. */
static void compare_floats(const float *got, const float *want, int64_t count, struct kernel_bound bound,
                           double own_unit, double own_step, struct kernel_run *run, int32_t output)
{
    if (memcmp(got, want, (size_t)count * sizeof(got[0])) == 0)
        return;
    const double allowed = bound.ulps * 0x1p-24 * fmax(bound.scale, (double)largest_finite(want, count));
    const double largest = own_step > 0 ? 65504 : FLT_MAX;
    if (all_within(got, want, count, allowed, own_unit))
        return;
    int64_t wrong = 0, worst = -1;
    double worst_error = 0;
    for (int64_t i = 0; i < count; i++) {
        if (got[i] == want[i] || (isnan(got[i]) && isnan(want[i])))
            continue;
        const double wanted = own_unit > 0 && isinf(want[i]) ? copysign(largest, (double)want[i]) : (double)want[i];
        const double error = fabs((double)got[i] - wanted);
        if (error <= allowed + fmax(own_unit * fabs(wanted), own_step))
            continue;
        wrong++;
        if (worst < 0 || !(error <= worst_error)) {
            worst = i;
            worst_error = error;
        }
    }
    if (wrong && !run->failure[0])
        snprintf(run->failure, sizeof(run->failure),
                 "output %d: %lld of %lld wrong, worst at %lld: got %.9g, want %.9g (allowed %.3g)", (int)output,
                 (long long)wrong, (long long)count, (long long)worst, (double)got[worst], (double)want[worst],
                 allowed);
}

/* What is rounded to 16 bits within the kernel. */
static double inner_ulps(const struct kernel_case *kernel)
{
    const enum cvy_dtype images = kernel->desc.in[0].dtype;
    return images == CVY_F32 ? 0 : kernel->inner_roundings * ldexp(1, 24 - digits_of(images));
}

static void compare_halves(const struct kernel_case *kernel, struct kernel_run *run, int32_t i)
{
    const struct cvy_pool_attr *pool = &kernel->desc.attr.pool;
    const int64_t count = cvy_shape_elements(&kernel->desc.out[i].shape);
    const bool adds_halves = kernel->desc.op == CVY_OP_MAX_POOL_BWD; /* each addition rounds a sum of up to that many */
    const int32_t window = adds_halves ? pool->kernel[0] * pool->kernel[1] : 0;
    const enum cvy_dtype dtype = kernel->desc.out[i].dtype;
    const double unit =
        ldexp(1, 24 - digits_of(dtype) - 1); /* half a unit in the last place of numbers from 1 to 2, in ulps */
    struct kernel_bound bound = kernel->bound[i];
    bound.ulps += inner_ulps(kernel);
    float *values = kernel_allocate((size_t)count * sizeof(*values)), *want = kernel->want[i];
    for (int64_t k = 0; k < count; k++) {
        values[k] = widen(dtype, ((const uint16_t *)run->got[i])[k]);
        if (dtype == CVY_F16 && fabsf(want[k]) >= 65520) /* beyond the largest number by half a unit and more */
            want[k] = copysignf(INFINITY, want[k]);
    }
    if (adds_halves)
        bound = (struct kernel_bound){.ulps = unit * window, .scale = window};
    /* The sum of two gradients below 1 is rounded between the two passes, then multiplied by gamma and rstd, 2 each. */
    if (kernel->desc.op == CVY_OP_BATCH_NORM_BWD && i == 0 && kernel->in[7])
        bound = (struct kernel_bound){.ulps = unit, .scale = 2 * 4};
    /* One rounding to the type, and the one to f32 before it. */
    compare_floats(values, want, count, bound, 1.01 * ldexp(1, -digits_of(dtype)),
                   dtype == CVY_F16 ? 1.01 * 0x1p-25 : 0, run, i);
    free(values);
}

/* The additional rounding of gradients of weights that come out of 16-bit kernels. */
static double weight_unit(const struct kernel_case *kernel)
{
    const enum cvy_dtype images = kernel->desc.in[0].dtype;
    if (!kernel->rounded_weights || kernel->desc.op != CVY_OP_CONV2D_BWD_WEIGHTS || images == CVY_F32)
        return 0;
    return 1.01 * ldexp(1, -digits_of(images));
}

/* What rounding output 0 to 16 bits can do to statistics of it, in ulps: half a unit to the mean, which is no larger
 * than the largest element, and a unit to the variance, whose scale is that of its squares. */
static double statistics_ulps(const struct kernel_case *kernel, int32_t output)
{
    const enum cvy_dtype images = kernel->desc.out[0].dtype;
    if (!kernel->output_statistics || output == 0 || images == CVY_F32)
        return 0;
    return output * ldexp(1, 24 - digits_of(images));
}

/* Bit for bit, but that one NaN is like the other. */
static bool same_elements(const struct cvy_tensor *tensor, const void *got, const void *want)
{
    const uint16_t *a = got, *b = want;
    if (memcmp(got, want, layout_plain_bytes(tensor)) == 0)
        return true;
    if (tensor->dtype != CVY_BF16 && tensor->dtype != CVY_F16)
        return false;
    for (int64_t k = 0; k < cvy_shape_elements(&tensor->shape); k++)
        if (a[k] != b[k] && !(isnan(widen(tensor->dtype, a[k])) && isnan(widen(tensor->dtype, b[k]))))
            return false;
    return true;
}

void kernel_compare(const struct kernel_case *kernel, struct kernel_run *run)
{
    for (int32_t i = 0; i < kernel->desc.outputs; i++) {
        const struct cvy_tensor *tensor = &kernel->desc.out[i];
        if (!cvy_tensor_present(tensor) || !run->got[i])
            continue;
        struct kernel_bound bound = kernel->bound[i];
        bound.ulps += statistics_ulps(kernel, i) + inner_ulps(kernel);
        if (tensor->dtype == CVY_F32)
            compare_floats(run->got[i], kernel->want[i], cvy_shape_elements(&tensor->shape), bound, weight_unit(kernel),
                           0, run, i);
        else if (kernel->narrowed && (tensor->dtype == CVY_BF16 || tensor->dtype == CVY_F16))
            compare_halves(kernel, run, i);
        else if (!same_elements(tensor, run->got[i], kernel->want[i]) && !run->failure[0])
            snprintf(run->failure, sizeof(run->failure), "output %d differs", (int)i);
    }
}
