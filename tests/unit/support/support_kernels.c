/* The kernel checker: data, layouts, guarded buffers. */
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

void *kernel_allocate(size_t bytes)
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
        kernel->in[i] = kernel_allocate(layout_plain_bytes(tensor));
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
        run->got[i] = kernel_allocate(layout_plain_bytes(tensor));
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
