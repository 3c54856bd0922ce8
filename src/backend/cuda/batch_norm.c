/* Rows of batch norm. Images of rows = N * H * W pixels, channels last; (N,C) is an image of N pixels. */
#include <stdio.h>

#include "backend/cuda/gpu.h"
#include "backend/cuda/kernels/kernels.h"

struct batch_norm {
    enum cvy_dtype dtype;
    int64_t rows, channels;
    float eps, momentum;
    enum cvy_activation activation;
    bool sums;    /* the given statistics are sums */
    bool numbers; /* scale and shift are wanted behind rstd */
    bool sign;    /* backward: what passes the activation is there in bits, instead of y */
};

static cvy_status prepare(struct cvy_op_desc *desc, struct cvy_kernel_plan *plan, uint32_t image_inputs,
                          uint32_t image_outputs)
{
    const struct cvy_shape *x = &desc->in[0].shape;
    struct batch_norm state = {.channels = x->dim[1],
                               .eps = desc->attr.batch_norm.eps,
                               .momentum = desc->attr.batch_norm.momentum,
                               .activation = desc->attr.batch_norm.activation};
    const int64_t elements = cvy_shape_elements(x);

    CVY_TRY(gpu_expect(desc, image_inputs, image_outputs, 0, 0, &state.dtype));
    if (x->rank != 2 && x->rank != 4)
        return cvy_fail(CVY_UNAVAILABLE, "batch norm takes 2 or 4 dimensions, not %d", (int)x->rank);
    if (elements < 1 || state.channels > INT32_MAX)
        return cvy_fail(CVY_UNAVAILABLE, "the tensor has no elements, or too many");
    gpu_lay_out_dense(desc, image_inputs, image_outputs);
    state.rows = elements / state.channels;
    return gpu_state(plan, &state, sizeof state);
}

static int64_t bytes_of(cvy_device *device, const struct cvy_tensor *tensor)
{
    return cvy_tensor_present(tensor) ? (int64_t)gpu_tensor_bytes(device, tensor) : 0;
}

/* The scratch memory of sums over the rows, of this many batch norms, and whether there are counters for all tiles of
 * channels. */
static cvy_status prepare_sums(struct cvy_kernel_plan *plan, int norms)
{
    const struct batch_norm *state = plan->state;
    int64_t tiles, floats;

    gpu_batch_norm_shape(state->rows, state->channels, &tiles, &floats);
    if (tiles > GPU_TICKETS)
        return cvy_fail(CVY_UNAVAILABLE, "%lld channels are too many", (long long)state->channels);
    plan->scratch_bytes = (size_t)norms * (size_t)floats * sizeof(float);
    return CVY_OK;
}

static struct gpu_batch_norm call_of(const struct cvy_kernel_plan *plan, void *const *in, void *const *out)
{
    const struct batch_norm *state = plan->state;

    return (struct gpu_batch_norm){.dtype = state->dtype,
                                   .rows = state->rows,
                                   .channels = state->channels,
                                   .x = in[0],
                                   .y = out[0],
                                   .eps = state->eps,
                                   .momentum = state->momentum,
                                   .activation = state->activation};
}

/* The given statistics as they come, and the numbers as their readers like them. */
static void take_forms(const cvy_device *device, bool sums, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    struct batch_norm *state = plan->state;

    state->sums = sums;
    if (sums)
        desc->in[6].layout = desc->in[7].layout = gpu_form_layout(GPU_FORM_SUMS, CVY_F32);
    state->numbers = gpu_may_form(device, desc) && !cvy_tensor_present(&desc->out[0]) &&
                     cvy_tensor_present(&desc->in[6]) && cvy_dtype_size(state->dtype) == 2;
    if (state->numbers)
        desc->out[2].layout = gpu_form_layout(GPU_FORM_NUMBERS, state->dtype);
    if (cvy_tensor_present(&desc->out[5]))
        desc->out[5].layout = gpu_form_layout(GPU_FORM_SIGN, CVY_U8);
}

/* What else the kernels do, for `info --plan`. */
static void describe(const struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const bool pair = cvy_tensor_present(&desc->in[desc->op == CVY_OP_BATCH_NORM ? 8 : 10]);
    const bool sign = gpu_form_of(desc->op == CVY_OP_BATCH_NORM ? &desc->out[5] : &desc->in[6]) == GPU_FORM_SIGN;

    snprintf(plan->implementation, sizeof plan->implementation, "%s%s%s", pair ? "with the residual's" : "",
             pair && sign ? ", " : "", sign ? "mask in bits" : "");
}

cvy_status gpu_batch_norm_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const bool sums = cvy_tensor_present(&desc->in[6]) && gpu_form_of(&desc->in[6]) == GPU_FORM_SUMS;

    plan->in_place[0] = cvy_tensor_present(&desc->out[0]) ? 0 : -1;
    plan->in_place[3] = 3;
    plan->in_place[4] = 4;
    if (cvy_tensor_present(&desc->out[5]) && (!gpu_may_form(device, desc) || !cvy_tensor_present(&desc->out[0])))
        return cvy_fail(CVY_UNAVAILABLE, "what passes the activation is kept beside y, and in bits alone");
    CVY_TRY(prepare(desc, plan, 1U << 0 | 1U << 5, 1U << 0 | 1U << 5));
    take_forms(device, sums, desc, plan);
    describe(desc, plan);
    if (cvy_tensor_present(&desc->in[6])) {
        if (!cvy_tensor_present(&desc->out[0])) /* then x is not read */
            plan->extra_bytes = -bytes_of(device, &desc->in[0]);
        return CVY_OK;
    }
    if (cvy_tensor_present(&desc->out[0])) {
        plan->extra_launches = 1;
        plan->extra_bytes = bytes_of(device, &desc->in[0]);
    }
    return prepare_sums(plan, 1);
}

cvy_status gpu_batch_norm_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                              void *scratch)
{
    const struct batch_norm *state = plan->state;
    struct gpu_batch_norm call = call_of(plan, in, out);

    call.sums = state->sums;
    call.scale = state->numbers ? gpu_form_scale(out[2], state->channels) : NULL;
    call.shift = state->numbers ? gpu_form_shift(out[2], state->channels) : NULL;
    call.gamma = in[1];
    call.beta = in[2];
    call.running_mean = in[3];
    call.running_var = in[4];
    call.residual = in[5];
    call.residual_gamma = in[8];
    call.residual_beta = in[9];
    call.residual_mean = in[10];
    call.residual_rstd = in[11];
    call.sign = out[5];
    call.mean = out[1];
    call.rstd = out[2];
    call.new_mean = out[3];
    call.new_var = out[4];
    if (!out[0] && in[6])
        gpu_batch_norm_numbers(gpu_of(device)->stream, &call, in[6], in[7]);
    else if (in[6])
        gpu_batch_norm_given(gpu_of(device)->stream, &call, in[6], in[7]);
    else
        gpu_batch_norm(gpu_of(device)->stream, &call, scratch, gpu_of(device)->tickets);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_batch_norm_apply_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    return prepare(desc, plan, 1U << 0 | 1U << 5, 1U << 0);
}

cvy_status gpu_batch_norm_apply_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                    void *const *out, void *scratch)
{
    struct gpu_batch_norm call = call_of(plan, in, out);

    (void)scratch;
    call.gamma = in[1];
    call.beta = in[2];
    call.mean = in[3];
    call.rstd = in[4];
    call.residual = in[5];
    gpu_batch_norm_apply(gpu_of(device)->stream, &call);
    return gpu_queued(gpu_of(device));
}

/* What the kernel that makes dx reads again after the one that sums. */
static void count_second(cvy_device *device, const struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    if (!cvy_tensor_present(&desc->out[0]) || cvy_tensor_present(&desc->in[8]))
        return;
    plan->extra_launches = 1;
    plan->extra_bytes = bytes_of(device, &desc->in[0]) + bytes_of(device, &desc->in[10]);
    if (cvy_tensor_present(&desc->out[3]) && !cvy_tensor_present(&desc->in[10]))
        plan->extra_bytes += bytes_of(device, &desc->out[3]);
    else
        for (int i = 5; i < 8; i++)
            plan->extra_bytes += bytes_of(device, &desc->in[i]);
}

cvy_status gpu_batch_norm_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const bool pair = cvy_tensor_present(&desc->in[10]);

    plan->in_place[0] = 0;
    plan->in_place[3] = 5;
    if (pair && gpu_form_of(&desc->in[6]) != GPU_FORM_SIGN)
        return cvy_fail(CVY_UNAVAILABLE, "two batch norms at once take what passes their sum in bits alone");
    CVY_TRY(prepare(desc, plan, 1U << 0 | 1U << 5 | 1U << 6 | 1U << 7 | 1U << 10, 1U << 0 | 1U << 3));
    ((struct batch_norm *)plan->state)->sign = gpu_form_of(&desc->in[6]) == GPU_FORM_SIGN;
    describe(desc, plan);
    count_second(device, desc, plan);
    return prepare_sums(plan, pair ? 2 : 1);
}

cvy_status gpu_batch_norm_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                  void *const *out, void *scratch)
{
    const struct batch_norm *state = plan->state;
    const struct gpu_batch_norm_bwd call = {.dtype = state->dtype,
                                            .rows = state->rows,
                                            .channels = state->channels,
                                            .x = in[0],
                                            .dy = in[5],
                                            .more = in[7],
                                            .y = state->sign ? NULL : in[6],
                                            .sign = state->sign ? in[6] : NULL,
                                            .gamma = in[1],
                                            .beta = in[2],
                                            .mean = in[3],
                                            .rstd = in[4],
                                            .dx = out[0],
                                            .dresidual = in[10] ? NULL : out[3],
                                            .dgamma = out[1],
                                            .dbeta = out[2],
                                            .given_dgamma = in[8],
                                            .given_dbeta = in[9],
                                            .activation = state->activation};

    const struct gpu_batch_norm_bwd residual = {.dtype = state->dtype,
                                                .rows = state->rows,
                                                .channels = state->channels,
                                                .x = in[10],
                                                .gamma = in[11],
                                                .mean = in[12],
                                                .rstd = in[13],
                                                .dx = out[3],
                                                .dgamma = out[4],
                                                .dbeta = out[5]};

    if (in[10])
        gpu_batch_norm_pair_bwd(gpu_of(device)->stream, &call, &residual, scratch, gpu_of(device)->tickets);
    else
        gpu_batch_norm_bwd(gpu_of(device)->stream, &call, scratch, gpu_of(device)->tickets);
    return gpu_queued(gpu_of(device));
}

/* ---- inference ---- */

cvy_status gpu_batch_norm_inference_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    plan->in_place[0] = 0;
    return prepare(desc, plan, 1U << 0 | 1U << 5, 1U << 0);
}

cvy_status gpu_batch_norm_inference_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                        void *const *out, void *scratch)
{
    struct gpu_batch_norm call = call_of(plan, in, out);

    (void)scratch;
    call.gamma = in[1];
    call.beta = in[2];
    call.running_mean = in[3];
    call.running_var = in[4];
    call.residual = in[5];
    gpu_batch_norm_inference(gpu_of(device)->stream, &call);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_batch_norm_inference_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                                struct cvy_kernel_plan *plan)
{
    (void)device;
    plan->in_place[0] = 0;
    return prepare(desc, plan, 1U << 0, 1U << 0);
}

cvy_status gpu_batch_norm_inference_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                            void *const *out, void *scratch)
{
    struct gpu_batch_norm call = call_of(plan, in, out);

    (void)scratch;
    call.gamma = in[1];
    call.running_var = in[2];
    call.activation = CVY_ACTIVATION_NONE;
    gpu_batch_norm_inference_bwd(gpu_of(device)->stream, &call);
    return gpu_queued(gpu_of(device));
}
