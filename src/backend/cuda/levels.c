/* Rows of feature pyramids: maps of twice the extent, levels as rows. A map with the channels last is its rows already:
 * they are copied. */
#include "backend/cuda/gpu.h"
#include "backend/cuda/kernels/kernels.h"

/* ---- nearest neighbour, twice the extent ---- */

struct upsample {
    enum cvy_dtype dtype;
    int64_t images, height, width, channels; /* of the small map */
};

static cvy_status upsample_prepare(struct cvy_op_desc *desc, const struct cvy_tensor *small,
                                   struct cvy_kernel_plan *plan)
{
    const int64_t *dim = small->shape.dim;
    struct upsample state = {.images = dim[0], .height = dim[2], .width = dim[3], .channels = dim[1]};

    CVY_TRY(gpu_expect(desc, 1, 1, 0, 0, &state.dtype));
    if (state.channels > INT32_MAX || state.width > INT32_MAX)
        return cvy_fail(CVY_UNAVAILABLE, "the images are too large");
    gpu_lay_out_dense(desc, 1, 1);
    return gpu_state(plan, &state, sizeof state);
}

cvy_status gpu_upsample_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    return upsample_prepare(desc, &desc->in[0], plan);
}

cvy_status gpu_upsample_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                            void *scratch)
{
    const struct upsample *s = plan->state;

    (void)scratch;
    gpu_upsample(gpu_of(device)->stream, s->dtype, in[0], out[0], s->images, s->height, s->width, s->channels);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_upsample_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    return upsample_prepare(desc, &desc->out[0], plan);
}

cvy_status gpu_upsample_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                void *const *out, void *scratch)
{
    const struct upsample *s = plan->state;

    (void)scratch;
    gpu_upsample_bwd(gpu_of(device)->stream, s->dtype, in[0], out[0], s->images, s->height, s->width, s->channels);
    return gpu_queued(gpu_of(device));
}

/* ---- levels as rows ---- */

struct levels {
    int32_t count;
    struct gpu_level level[CVY_MAX_MAPS];
};

static cvy_status levels_prepare(struct cvy_op_desc *desc, int32_t count, const struct cvy_tensor *maps,
                                 const struct cvy_tensor *table, bool to_rows, struct cvy_kernel_plan *plan)
{
    struct levels state = {.count = count};
    enum cvy_dtype dtype;
    int64_t first = 0;

    CVY_TRY(gpu_expect(desc, ~0U, ~0U, 0, 0, &dtype));
    gpu_lay_out_dense(desc, ~0U, ~0U);
    for (int32_t i = 0; i < count; i++) {
        const int64_t *dim = maps[i].shape.dim;
        state.level[i] = (struct gpu_level){.dtype = dtype,
                                            .to_rows = to_rows,
                                            .images = dim[0],
                                            .map = dim[1] * dim[2] * dim[3],
                                            .table = table->shape.dim[1] * table->shape.dim[2],
                                            .first = first};
        first += state.level[i].map;
        plan->extra_launches += cvy_tensor_present(&maps[i]);
    }
    plan->extra_launches--;
    return gpu_state(plan, &state, sizeof state);
}

cvy_status gpu_flatten_levels_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    return levels_prepare(desc, desc->inputs, desc->in, &desc->out[0], true, plan);
}

cvy_status gpu_flatten_levels_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                  void *const *out, void *scratch)
{
    const struct levels *state = plan->state;

    (void)scratch;
    for (int32_t i = 0; i < state->count; i++)
        gpu_move_level(gpu_of(device)->stream, &state->level[i], in[i], out[0]);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_flatten_levels_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    return levels_prepare(desc, desc->outputs, desc->out, &desc->in[0], false, plan);
}

cvy_status gpu_flatten_levels_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                      void *const *out, void *scratch)
{
    const struct levels *state = plan->state;

    (void)scratch;
    for (int32_t i = 0; i < state->count; i++) {
        if (out[i])
            gpu_move_level(gpu_of(device)->stream, &state->level[i], in[0], out[i]);
    }
    return gpu_queued(gpu_of(device));
}
