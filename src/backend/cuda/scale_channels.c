/* Rows of squeeze and excitation: images times one factor for each channel of each image, and the factors' gradient. */
#include "backend/cuda/gpu.h"
#include "backend/cuda/kernels/kernels.h"

struct scale_channels {
    enum cvy_dtype dtype;
    int64_t images, rows, channels;
    float shift_factor;
    bool relu;
};

static cvy_status prepare(struct cvy_op_desc *desc, struct cvy_kernel_plan *plan, uint32_t inputs, uint32_t outputs)
{
    const int64_t *dim = desc->in[0].shape.dim;
    struct scale_channels state = {.images = dim[0], .rows = dim[2] * dim[3], .channels = dim[1]};

    CVY_TRY(gpu_expect(desc, inputs, outputs, 0, 0, &state.dtype));
    if (state.channels > INT32_MAX || state.rows > INT32_MAX / 2)
        return cvy_fail(CVY_UNAVAILABLE, "the images are too large");
    if (desc->op == CVY_OP_SCALE_CHANNELS) {
        state.shift_factor = (float)desc->attr.scale_channels.shift_factor;
        state.relu = desc->attr.scale_channels.relu;
    }
    gpu_lay_out_dense(desc, inputs, outputs);
    return gpu_state(plan, &state, sizeof state);
}

cvy_status gpu_scale_channels_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    plan->in_place[0] = 0;
    return prepare(desc, plan, 1U << 0 | 1U << 3, 1U << 0);
}

cvy_status gpu_scale_channels_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                  void *const *out, void *scratch)
{
    const struct scale_channels *state = plan->state;
    const struct gpu_scale_channels call = {.dtype = state->dtype,
                                            .images = state->images,
                                            .rows = state->rows,
                                            .channels = state->channels,
                                            .x = in[0],
                                            .residual = in[3],
                                            .y = out[0],
                                            .factor = in[1],
                                            .shift = in[2],
                                            .shift_factor = state->shift_factor,
                                            .relu = state->relu};

    (void)scratch;
    gpu_scale_channels(gpu_of(device)->stream, &call);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_scale_channels_bwd_scale_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                                struct cvy_kernel_plan *plan)
{
    (void)device;
    return prepare(desc, plan, 1U << 0 | 1U << 1, 0);
}

cvy_status gpu_scale_channels_bwd_scale_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                            void *const *out, void *scratch)
{
    const struct scale_channels *state = plan->state;

    (void)scratch;
    gpu_image_sums(gpu_of(device)->stream, state->dtype, in[0], in[1], out[0], state->images, state->rows,
                   state->channels, 1);
    return gpu_queued(gpu_of(device));
}
