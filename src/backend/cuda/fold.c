/* Rows of batch norms that are folded into weights, for inference and for training whose weights are rounded then. */
#include "backend/cuda/gpu.h"
#include "backend/cuda/kernels/kernels.h"

/* ---- batch norm as part of the convolution before it ---- */

struct fold {
    int64_t filters, weights; /* weights of one filter */
    float eps;
};

static cvy_status prepare_fold(struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const int64_t elements = cvy_shape_elements(&desc->in[0].shape);
    struct fold fold = {.filters = desc->in[0].shape.dim[0], .eps = desc->attr.batch_norm.eps};
    enum cvy_dtype dtype;

    CVY_TRY(gpu_expect(desc, 0, 0, 0, 0, &dtype));
    if (elements < 0 || fold.filters < 1 || fold.filters > INT32_MAX)
        return cvy_fail(CVY_UNAVAILABLE, "the weights have no output channels, or too many");
    gpu_lay_out(desc, 0, 0);
    fold.weights = elements / fold.filters;
    return gpu_state(plan, &fold, sizeof fold);
}

cvy_status gpu_fold_batch_norm_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    plan->in_place[0] = 0;
    return prepare_fold(desc, plan);
}

cvy_status gpu_fold_batch_norm_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    const struct fold *fold = plan->state;
    const struct gpu_fold call = {.w = in[0],
                                  .gamma = in[1],
                                  .beta = in[2],
                                  .mean = in[3],
                                  .var = in[4],
                                  .bias = in[5],
                                  .new_w = out[0],
                                  .new_bias = out[1],
                                  .filters = fold->filters,
                                  .weights = fold->weights,
                                  .eps = fold->eps};

    (void)scratch;
    gpu_fold_batch_norm(gpu_of(device)->stream, &call);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_fold_batch_norm_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    return prepare_fold(desc, plan);
}

cvy_status gpu_fold_batch_norm_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                       void *const *out, void *scratch)
{
    const struct fold *fold = plan->state;
    const struct gpu_fold_bwd call = {.w = in[0],
                                      .gamma = in[1],
                                      .var = in[2],
                                      .dfolded = in[3],
                                      .dw = out[0],
                                      .dgamma = out[1],
                                      .filters = fold->filters,
                                      .weights = fold->weights,
                                      .eps = fold->eps};

    (void)scratch;
    gpu_fold_batch_norm_bwd(gpu_of(device)->stream, &call);
    return gpu_queued(gpu_of(device));
}

/* ---- what training computes for each channel ---- */

struct correction {
    int64_t channels, freeze;
    double count;
    float eps;
};

/* The extent of in[0] alone is read. */
static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct cvy_shape *x = &desc->in[0].shape;
    const int64_t elements = cvy_shape_elements(x);
    struct correction state = {.freeze = desc->attr.batch_norm.freeze, .eps = desc->attr.batch_norm.eps};
    enum cvy_dtype dtype;

    CVY_TRY(gpu_expect(desc, 1U << 0, 0, 0, 0, &dtype));
    if (elements < 1 || x->rank < 2 || x->dim[1] > INT32_MAX)
        return cvy_fail(CVY_UNAVAILABLE, "the tensor has no channels, or too many elements");
    if (cvy_device_ranks(device) > 1)
        return cvy_fail(CVY_UNAVAILABLE, "batches of several ranks cannot count as one where batch norms are folded");
    gpu_lay_out_dense(desc, 1U << 0, 0);
    state.channels = x->dim[1];
    state.count = (double)elements / (double)x->dim[1];
    return gpu_state(plan, &state, sizeof state);
}

static struct gpu_correction call_of(const struct cvy_kernel_plan *plan)
{
    const struct correction *state = plan->state;

    return (struct gpu_correction){
        .channels = state->channels, .freeze = state->freeze, .count = state->count, .eps = state->eps};
}

cvy_status gpu_fold_correction_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return prepare(device, desc, plan);
}

cvy_status gpu_fold_correction_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    struct gpu_correction call = call_of(plan);

    (void)scratch;
    call.gamma = in[1];
    call.beta = in[2];
    call.mean = in[3];
    call.rstd = in[4];
    call.old_mean = in[5];
    call.old_var = in[6];
    call.next_mean = in[7];
    call.next_var = in[8];
    call.observed = in[9];
    call.scale = out[0];
    call.shift = out[1];
    call.center = out[2];
    call.factor = out[3];
    call.new_mean = out[4];
    call.new_var = out[5];
    gpu_fold_correction(gpu_of(device)->stream, &call);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_fold_correction_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return prepare(device, desc, plan);
}

cvy_status gpu_fold_correction_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                       void *const *out, void *scratch)
{
    struct gpu_correction call = call_of(plan);

    (void)scratch;
    call.gamma = in[1];
    call.mean = in[2];
    call.rstd = in[3];
    call.old_mean = in[4];
    call.old_var = in[5];
    call.dscale = in[6];
    call.dshift = in[7];
    call.observed = in[8];
    call.dgamma = out[0];
    call.slope = out[1];
    call.offset = out[2];
    gpu_fold_correction_bwd(gpu_of(device)->stream, &call);
    return gpu_queued(gpu_of(device));
}
