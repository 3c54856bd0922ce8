/* Rows of fake quantisation. */
#include "backend/cuda/gpu.h"
#include "backend/cuda/kernels/kernels.h"

struct quantize {
    struct gpu_quantize what;
    bool updates, needs_range; /* makes a new state; needs the tensor's range */
};

/* Channels that fill up a pixel are zero, and zero stays what it is. */
static cvy_status prepare(struct cvy_op_desc *desc, struct cvy_kernel_plan *plan, uint32_t images, bool forward)
{
    struct quantize state = {.what = {.attr = desc->attr.fake_quantize}};
    struct cvy_shape stored = desc->in[0].shape;

    state.what.stored = state.what.channels = 1;
    CVY_TRY(gpu_expect(desc, images, 1, 0, 0, &state.what.dtype));
    gpu_lay_out(desc, images, 1);
    if (stored.rank == 4) {
        state.what.channels = stored.dim[1];
        state.what.stored = stored.dim[1] = gpu_stored_channels(&desc->in[0]);
    }
    state.what.count = cvy_shape_elements(&stored);
    state.what.rows = stored.rank > 0 ? stored.dim[0] : 1;
    if (state.what.count < 0)
        return cvy_fail(CVY_UNAVAILABLE, "the tensor has too many elements");
    state.updates = forward && desc->outputs > 1 && cvy_tensor_present(&desc->out[1]);
    state.needs_range = forward && (state.updates || state.what.attr.weights);
    state.what.steps = state.updates;
    if (state.needs_range) {
        plan->scratch_bytes = GPU_QUANTIZE_SCRATCH * sizeof(float);
        plan->extra_launches = 2;
        plan->extra_bytes = state.what.count * (int64_t)cvy_dtype_size(desc->in[0].dtype);
    }
    return gpu_state(plan, &state, sizeof state);
}

cvy_status gpu_fake_quantize_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    plan->in_place[0] = 0;
    return prepare(desc, plan, 1U << 0, true);
}

cvy_status gpu_fake_quantize_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                 void *const *out, void *scratch)
{
    const struct quantize *state = plan->state;
    struct gpu_quantize what = state->what;
    float *const ranges = scratch;

    what.x = in[0];
    what.y = out[0];
    what.observed = in[1];
    if (state->needs_range) {
        float *const now = state->updates ? out[1] : ranges + GPU_QUANTIZE_SCRATCH - 3;
        gpu_quantize_range(gpu_of(device)->stream, &what, now, ranges);
        what.observed = now;
    }
    gpu_fake_quantize(gpu_of(device)->stream, &what);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_fake_quantize_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    plan->in_place[0] = 2;
    return prepare(desc, plan, 1U << 0 | 1U << 2, false);
}

cvy_status gpu_fake_quantize_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                     void *const *out, void *scratch)
{
    const struct quantize *state = plan->state;
    struct gpu_quantize what = state->what;

    (void)scratch;
    what.x = in[0];
    what.observed = in[1];
    what.dy = in[2];
    what.y = out[0];
    gpu_fake_quantize_bwd(gpu_of(device)->stream, &what);
    return gpu_queued(gpu_of(device));
}
