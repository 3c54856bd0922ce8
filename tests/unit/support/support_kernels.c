/* The kernel checker: data, layouts, guarded buffers, comparison. */
#include "support_kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/rng.h"
#include "base/system.h"
#include "support_layouts.h"

/* ---- cases ---- */

int32_t kernel_input(struct kernel_case *kernel, struct cvy_shape shape, enum kernel_fill fill)
{
    const int32_t i = kernel->desc.inputs++;
    kernel->desc.in[i] = (struct cvy_tensor){.shape = shape, .dtype = CVY_F32};
    kernel->fill[i] = fill;
    return i;
}

void kernel_absent_input(struct kernel_case *kernel)
{
    kernel->desc.inputs++; /* begins as absent */
}

int32_t kernel_output(struct kernel_case *kernel, struct cvy_shape shape, struct kernel_bound bound)
{
    const int32_t i = kernel->desc.outputs++;
    kernel->desc.out[i] = (struct cvy_tensor){.shape = shape, .dtype = CVY_F32};
    kernel->bound[i] = bound;
    return i;
}

void kernel_case_release(struct kernel_case *kernel)
{
    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        free(kernel->in[i]);
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        free(kernel->want[i]);
    memset(kernel->in, 0, sizeof(kernel->in));
    memset(kernel->want, 0, sizeof(kernel->want));
}

static void *allocate(size_t bytes)
{
    void *block = malloc(bytes ? bytes : 1);
    if (!block)
        abort();
    return block;
}

/* ---- data ---- */

static float small(struct cvy_rng *rng, enum kernel_data data)
{
    if (data == DATA_INTEGERS)
        return (float)cvy_rng_below(rng, 5) - 2;
    const uint32_t bits = cvy_rng_u32(rng);
    if (data == DATA_SPECIAL) {
        static const float special[] = {NAN, INFINITY, -INFINITY, -0.0f, 0.0f, 1.0f, 1.0f, -1.0f};
        return bits % 2 ? special[bits / 2 % 8] : (float)(int)(bits / 2 % 7) - 3;
    }
    return (float)bits * (2.0f / 4294967296.0f) - 1;
}

static void fill_floats(float *to, int64_t count, enum kernel_fill fill, enum kernel_data data, int64_t row,
                        struct cvy_rng *rng)
{
    for (int64_t i = 0; i < count; i++) {
        switch (fill) {
        case FILL_RARE:
            to[i] = small(rng, data == DATA_SPECIAL && cvy_rng_below(rng, 97) ? DATA_INTEGERS : data);
            break;
        case FILL_DYADIC:
            to[i] = ((float)cvy_rng_below(rng, 257) - 128) / 64;
            break;
        case FILL_EIGHTHS:
            to[i] = ((float)cvy_rng_below(rng, 33) - 16) / 8;
            break;
        case FILL_BETWEEN:
            to[i] = ((float)cvy_rng_below(rng, 33) - 16) / 8 + 0x1p-11f;
            break;
        case FILL_POWERS:
            to[i] = ldexpf(1, (int)cvy_rng_below(rng, 3) - 1);
            break;
        case FILL_POSITIVE:
            to[i] = (float)cvy_rng_range(rng, 0.5, 2);
            break;
        case FILL_FAR:
            to[i] = 1000 + small(rng, data);
            break;
        case FILL_RECTIFIED:
            to[i] = fmaxf(small(rng, data), 0);
            break;
        case FILL_ACROSS:
            to[i] = small(rng, data) * (data == DATA_FLOATS ? 5 : 3) + 3;
            break;
        case FILL_SIXES:
            to[i] = 6 + ((float)cvy_rng_below(rng, 33) - 16) / 8;
            break;
        case FILL_UNIT:
            to[i] = (float)cvy_rng_uniform(rng);
            if (cvy_rng_below(rng, 8) == 0)
                to[i] = roundf(to[i]);
            break;
        case FILL_LOGITS:
            to[i] = (float)(3 * cvy_rng_normal(rng) - 4);
            break;
        case FILL_SHARES:
            to[i] = (float)(cvy_rng_uniform(rng) * 2 / (double)row);
            break;
        default:
            to[i] = small(rng, data);
            break;
        }
    }
}

void kernel_fill_inputs(struct kernel_case *kernel, uint64_t seed)
{
    for (int32_t i = 0; i < kernel->desc.inputs; i++) {
        const struct cvy_tensor *tensor = &kernel->desc.in[i];
        if (!cvy_tensor_present(tensor) || kernel->fill[i] == FILL_GIVEN)
            continue;
        struct cvy_rng rng = cvy_rng_new(seed, CVY_RNG_TEST, 0, (uint32_t)i);
        const int64_t count = cvy_shape_elements(&tensor->shape);
        free(kernel->in[i]);
        kernel->in[i] = allocate(layout_plain_bytes(tensor));
        if (kernel->fill[i] == FILL_BYTES)
            for (int64_t k = 0; k < count; k++)
                ((uint8_t *)kernel->in[i])[k] = (uint8_t)cvy_rng_u32(&rng);
        else if (kernel->fill[i] == FILL_PARTNERS)
            for (int64_t k = 0; k < count; k++)
                ((int32_t *)kernel->in[i])[k] = (int32_t)cvy_rng_below(&rng, (uint32_t)count);
        else if (kernel->fill[i] == FILL_LABELS || kernel->fill[i] == FILL_FEW_LABELS)
            for (int64_t k = 0; k < count; k++) {
                const bool none = kernel->fill[i] == FILL_FEW_LABELS && cvy_rng_below(&rng, 16) > 0;
                ((int32_t *)kernel->in[i])[k] = none ? 0 : (int32_t)cvy_rng_below(&rng, (uint32_t)kernel->labels);
            }
        else
            fill_floats(kernel->in[i], count, kernel->fill[i], kernel->data,
                        tensor->shape.rank > 1 ? tensor->shape.dim[1] : 1, &rng);
    }
}

/* ---- runs ---- */

struct buffers {
    struct guarded in[CVY_MAX_INPUTS], out[CVY_MAX_OUTPUTS], scratch;
    void *in_memory[CVY_MAX_INPUTS], *out_memory[CVY_MAX_OUTPUTS], *scratch_memory;
};

static void release_buffers(cvy_device *device, struct buffers *b)
{
    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        guarded_release(device, &b->in[i]);
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        guarded_release(device, &b->out[i]);
    guarded_release(device, &b->scratch);
}

static bool bring_all_back(cvy_device *device, struct buffers *b)
{
    bool back = guarded_bring_back(device, &b->scratch);

    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        back = back && guarded_bring_back(device, &b->in[i]);
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        back = back && guarded_bring_back(device, &b->out[i]);
    return back;
}

static void failure(struct kernel_run *run, const char *text, int index)
{
    if (!run->failure[0])
        snprintf(run->failure, sizeof(run->failure), text, index);
}

static bool load_input(struct kernel_case *kernel, cvy_device *device, struct kernel_run *run, struct guarded *to,
                       int32_t i)
{
    const struct cvy_tensor *tensor = &run->desc.in[i];
    if (tensor->layout.kind == CVY_LAYOUT_OPAQUE) {
        if (layout_convert_opaque(device, tensor, to->memory, kernel->in[i], false) != CVY_OK) {
            snprintf(run->failure, sizeof(run->failure), "input %d: %s", (int)i, cvy_error());
            return false;
        }
    } else {
        layout_convert(tensor, to->memory, kernel->in[i], false);
    }
    to->sum = guarded_checksum(to);
    return true;
}

static bool make_buffers(struct kernel_case *kernel, cvy_device *device, struct kernel_run *run, struct buffers *b)
{
    const struct cvy_op_desc *desc = &run->desc;
    for (int32_t i = 0; i < desc->inputs; i++) {
        if (!cvy_tensor_present(&desc->in[i]))
            continue;
        b->in[i] = guarded_new(device->backend->tensor_bytes(device, &desc->in[i]));
        if (!load_input(kernel, device, run, &b->in[i], i))
            return false;
        b->in_memory[i] = guarded_place(device, &b->in[i]);
    }
    for (int32_t i = 0; i < desc->outputs; i++) {
        if (!cvy_tensor_present(&desc->out[i]))
            continue;
        const int32_t over = run->plan.in_place[i];
        if (i == run->in_place && over >= 0 && cvy_tensor_present(&desc->in[over])) {
            b->out_memory[i] = b->in_memory[over];
            run->ran_in_place = true;
            continue;
        }
        run->plan.out_bytes[i] = device->backend->tensor_bytes(device, &desc->out[i]);
        b->out[i] = guarded_new(run->plan.out_bytes[i]);
        b->out_memory[i] = guarded_place(device, &b->out[i]);
    }
    b->scratch = guarded_new(run->plan.scratch_bytes);
    b->scratch_memory = guarded_place(device, &b->scratch);
    return true;
}

static void check_buffers(struct kernel_run *run, const struct buffers *b)
{
    const struct cvy_op_desc *desc = &run->desc;
    for (int32_t i = 0; i < desc->inputs; i++) {
        bool taken = false;
        for (int32_t k = 0; k < desc->outputs; k++)
            taken = taken || (b->in_memory[i] && b->out_memory[k] == b->in_memory[i]);
        if (!guarded_intact(&b->in[i]))
            failure(run, "wrote beside input %d", i);
        if (b->in[i].memory && !taken && guarded_checksum(&b->in[i]) != b->in[i].sum)
            failure(run, "changed input %d", i);
    }
    for (int32_t i = 0; i < desc->outputs; i++)
        if (!guarded_intact(&b->out[i]))
            failure(run, "wrote beside output %d", i);
    if (!guarded_intact(&b->scratch))
        failure(run, "wrote beside the scratch memory%.0d", 0);
}

/* The host's copy of what lies at `memory` for the kernel. */
static void *host_of(const struct buffers *b, const void *memory)
{
    for (int i = 0; i < CVY_MAX_INPUTS; i++)
        if (b->in[i].block && b->in_memory[i] == memory)
            return b->in[i].memory;
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        if (b->out[i].block && b->out_memory[i] == memory)
            return b->out[i].memory;
    return NULL;
}

static void take_outputs(cvy_device *device, struct kernel_run *run, const struct buffers *b)
{
    for (int32_t i = 0; i < run->desc.outputs; i++) {
        const struct cvy_tensor *tensor = &run->desc.out[i];
        if (!cvy_tensor_present(tensor))
            continue;
        run->got[i] = allocate(layout_plain_bytes(tensor));
        if (tensor->layout.kind == CVY_LAYOUT_OPAQUE) {
            if (layout_convert_opaque(device, tensor, host_of(b, b->out_memory[i]), run->got[i], true) != CVY_OK)
                snprintf(run->failure, sizeof(run->failure), "output %d: %s", (int)i, cvy_error());
        } else if (!layout_convert(tensor, host_of(b, b->out_memory[i]), run->got[i], true)) {
            failure(run, "padding channels of output %d are not zero", i);
        }
    }
}

static void set_layouts(const struct kernel_case *kernel, enum kernel_variant variant, struct cvy_op_desc *desc)
{
    for (int32_t i = 0; i < desc->inputs; i++) {
        struct cvy_tensor *tensor = &desc->in[i];
        if (kernel->fixed || !(kernel->images & 1U << i) || !cvy_tensor_present(tensor) || tensor->shape.rank != 4)
            continue;
        const int64_t channels = tensor->shape.dim[1];
        enum cvy_layout_kind kind = CVY_LAYOUT_PLAIN;
        if (variant == VARIANT_NHWC)
            kind = CVY_LAYOUT_NHWC;
        else if (channels % 16 == 0 && (variant == VARIANT_BLOCKED16 || (variant == VARIANT_MIXED && i == 0)))
            kind = CVY_LAYOUT_BLOCKED16;
        else if (channels % 8 == 0 && variant == VARIANT_BLOCKED8)
            kind = CVY_LAYOUT_BLOCKED8;
        tensor->layout = (struct cvy_layout){.kind = kind};
    }
}

static cvy_status run_once(cvy_device *device, const struct kernel_run *run, const struct buffers *b)
{
    CVY_TRY(run->plan.kernel->run(device, &run->plan, b->in_memory, b->out_memory, b->scratch_memory));
    return device->backend->synchronize(device);
}

/* Within a parallel region each inner one has a single thread. */
static cvy_status run_with_few_threads(cvy_device *device, const struct kernel_run *run, const struct buffers *b)
{
    cvy_status status = CVY_OK;

#pragma omp parallel num_threads(2)
#pragma omp master
    status = run_once(device, run, b);
    return status;
}

static cvy_status execute(cvy_device *device, struct kernel_run *run, const struct buffers *b)
{
    const double limit = run->seconds;
    if (run->few_threads)
        return run_with_few_threads(device, run, b);
    double start = cvy_clock(), before = start;
    CVY_TRY(run_once(device, run, b));
    run->seconds = cvy_clock() - before;
    while (limit > 0 && cvy_clock() - start < limit) {
        before = cvy_clock();
        CVY_TRY(run_once(device, run, b));
        run->seconds = fmin(run->seconds, cvy_clock() - before);
    }
    return CVY_OK;
}

struct cvy_op_desc kernel_asked(const struct kernel_case *kernel, enum kernel_variant variant)
{
    struct cvy_op_desc desc = kernel->desc;
    set_layouts(kernel, variant, &desc);
    return desc;
}

static bool prepare(struct kernel_case *kernel, cvy_device *device, struct kernel_run *run)
{
    run->desc = kernel_asked(kernel, run->variant);
    if ((run->row ? cvy_kernel_prepare(device, run->row, &run->desc, &run->plan)
                  : cvy_kernel_select(device, &run->desc, &run->plan)) == CVY_OK)
        return true;
    snprintf(run->failure, sizeof(run->failure), "refused: %s", cvy_error());
    return false;
}

bool kernel_prepare_only(struct kernel_case *kernel, cvy_device *device, struct kernel_run *run)
{
    if (!prepare(kernel, device, run))
        return false;
    cvy_kernel_release(device, &run->plan);
    return true;
}

void kernel_run(struct kernel_case *kernel, cvy_device *device, struct kernel_run *run)
{
    struct buffers b = {0};
    if (!prepare(kernel, device, run))
        return;
    if (make_buffers(kernel, device, run, &b)) {
        if (execute(device, run, &b) != CVY_OK)
            snprintf(run->failure, sizeof(run->failure), "failed: %s", cvy_error());
        if (bring_all_back(device, &b)) {
            check_buffers(run, &b);
            take_outputs(device, run, &b);
        } else if (!run->failure[0]) {
            snprintf(run->failure, sizeof(run->failure), "failed: %s", cvy_error());
        }
    }
    release_buffers(device, &b);
    const struct cvy_kernel_plan done = run->plan;
    cvy_kernel_release(device, &run->plan);
    run->plan = done;
    run->plan.state = NULL;
}

void kernel_run_release(struct kernel_run *run)
{
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        free(run->got[i]);
    memset(run->got, 0, sizeof(run->got));
}

cvy_status kernel_reference(struct kernel_case *kernel, cvy_device *ref)
{
    struct kernel_run run = {.in_place = -1};
    kernel_run(kernel, ref, &run);
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++) {
        free(kernel->want[i]);
        kernel->want[i] = run.got[i];
    }
    return run.failure[0] ? cvy_fail(CVY_FAILED, "reference: %s", run.failure) : CVY_OK;
}

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

/* The nearest number of the type, found without bit tricks. Finite values of ordinary size only. */
static float rounded(enum cvy_dtype dtype, float value)
{
    int exponent;
    const float significand = frexpf(value, &exponent);
    const int unit = dtype == CVY_F16 && exponent < -13 ? -24 : exponent - digits_of(dtype); /* subnormal */
    return ldexpf(nearbyintf(ldexpf(significand, exponent - unit)), unit);
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
        halves[i] = allocate((size_t)count * sizeof(halves[i][0]));
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

/* Does each number differ by no more than that? A NaN is no. Without branches, for nearly all outputs are done here. */
static bool all_within(const float *got, const float *want, int64_t count, double allowed)
{
    int64_t beyond = 0;
    for (int64_t i = 0; i < count; i++)
        beyond += !(fabs((double)got[i] - (double)want[i]) <= allowed);
    return beyond == 0;
}

/* own_unit: relative size of one rounding to the output's type, in addition to the bound; 0 for f32. own_step: its size
 * for numbers that are too small for all digits. */
static void compare_floats(const float *got, const float *want, int64_t count, struct kernel_bound bound,
                           double own_unit, double own_step, struct kernel_run *run, int32_t output)
{
    if (memcmp(got, want, (size_t)count * sizeof(got[0])) == 0)
        return;
    const double allowed = bound.ulps * 0x1p-24 * fmax(bound.scale, (double)largest_finite(want, count));
    if (all_within(got, want, count, allowed))
        return;
    int64_t wrong = 0, worst = -1;
    double worst_error = 0;
    for (int64_t i = 0; i < count; i++) {
        if (got[i] == want[i] || (isnan(got[i]) && isnan(want[i])))
            continue;
        const double error = fabs((double)got[i] - (double)want[i]);
        if (error <= allowed + fmax(own_unit * fabs((double)want[i]), own_step))
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
    float *values = allocate((size_t)count * sizeof(*values)), *want = kernel->want[i];
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
        else if (!same_elements(tensor, run->got[i], kernel->want[i]))
            failure(run, "output %d differs", i);
    }
}
