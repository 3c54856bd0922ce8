/* Batch norms that are folded into weights: for inference, and for training whose weights are rounded then
 * (ops/fold.c), where there is something to compute for each channel besides. */
#include <math.h>

#include "backend/cpu/cpu.h"

/* ---- batch norm as part of the convolution before it ---- */

struct fold {
    int64_t outputs, weights; /* weights of one output channel */
    float eps;
};

static cvy_status prepare_fold(struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    CVY_TRY(cpu_expect_f32(desc, 0, 0));
    cpu_plain(desc, 0, 0);
    const int64_t elements = cvy_shape_elements(&desc->in[0].shape), outputs = desc->in[0].shape.dim[0];
    if (elements < 0 || outputs < 1)
        return cvy_fail(CVY_UNAVAILABLE, "the weights have no output channels");
    const struct fold state = {.outputs = outputs, .weights = elements / outputs, .eps = desc->attr.batch_norm.eps};
    return cpu_state(plan, &state, sizeof(state));
}

cvy_status cpu_fold_batch_norm_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    plan->in_place[0] = 0;
    return prepare_fold(desc, plan);
}

cvy_status cpu_fold_batch_norm_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    (void)device;
    (void)scratch;
    const struct fold *state = plan->state;
    const float *w = in[0], *gamma = in[1], *beta = in[2], *mean = in[3], *var = in[4], *bias = in[5];
    float *new_w = out[0], *new_bias = out[1];
    for (int64_t k = 0; k < state->outputs; k++) {
        const double scale = (double)gamma[k] / sqrt((double)var[k] + (double)state->eps);
        for (int64_t i = k * state->weights; i < (k + 1) * state->weights; i++)
            new_w[i] = (float)((double)w[i] * scale);
        new_bias[k] = (float)((double)beta[k] + ((bias ? (double)bias[k] : 0.0) - (double)mean[k]) * scale);
    }
    return CVY_OK;
}

cvy_status cpu_fold_batch_norm_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    return prepare_fold(desc, plan);
}

cvy_status cpu_fold_batch_norm_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                       void *const *out, void *scratch)
{
    (void)scratch;
    const struct fold *state = plan->state;
    const float *w = in[0], *gamma = in[1], *var = in[2], *dfolded = in[3];
    float *dw = out[0], *dgamma = out[1];
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t k = 0; k < state->outputs; k++) {
        const double rstd = 1 / sqrt((double)var[k] + (double)state->eps), factor = (double)gamma[k] * rstd;
        double sum = 0;
        for (int64_t i = k * state->weights; i < (k + 1) * state->weights; i++) {
            sum += (double)dfolded[i] * (double)w[i];
            if (dw)
                dw[i] = (float)((double)dfolded[i] * factor);
        }
        if (dgamma)
            dgamma[k] = (float)(sum * rstd);
    }
    return CVY_OK;
}

/* ---- what training computes for each channel ---- */

struct correction {
    int64_t channels;
    double count; /* elements of a channel */
    float eps;
    int64_t freeze;
};

/* The extent of in[0] alone is read: any layout will do. */
static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct cvy_shape *x = &desc->in[0].shape;
    const int64_t elements = cvy_shape_elements(x);
    CVY_TRY(cpu_expect_images(desc, 1U << 0, 0, 0, 0));
    if (elements < 1 || x->rank < 2)
        return cvy_fail(CVY_UNAVAILABLE, "the tensor has no channels, or too many elements");
    if (cvy_device_ranks(device) > 1)
        return cvy_fail(CVY_UNAVAILABLE, "batches of several ranks cannot count as one where batch norms are folded");
    cpu_agree(cpu_of(device), desc, 1U << 0, 0);
    cpu_plain(desc, 1U << 0, 0);
    const struct correction state = {.channels = x->dim[1],
                                     .count = (double)elements / (double)x->dim[1],
                                     .eps = desc->attr.batch_norm.eps,
                                     .freeze = desc->attr.batch_norm.freeze};
    return cpu_state(plan, &state, sizeof(state));
}

/* Whether the running statistics count alone by now. */
static bool frozen(const struct correction *state, const float *observed)
{
    return state->freeze > 0 && observed && (double)observed[2] >= (double)state->freeze;
}

cvy_status cpu_fold_correction_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return prepare(device, desc, plan);
}

cvy_status cpu_fold_correction_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    (void)device;
    (void)scratch;
    const struct correction *state = plan->state;
    const float *gamma = in[1], *beta = in[2], *mean = in[3], *rstd = in[4], *old_mean = in[5], *old_var = in[6];
    const float *next_mean = in[7], *next_var = in[8];
    float *scale = out[0], *shift = out[1], *center = out[2], *factor = out[3], *new_mean = out[4], *new_var = out[5];
    const bool stays = frozen(state, in[9]);
    for (int64_t c = 0; c < state->channels; c++) {
        const double sigma = sqrt((double)old_var[c] + (double)state->eps);
        scale[c] = (float)(stays ? 1 / (double)rstd[c] : sigma);
        shift[c] = beta[c];
        center[c] = (float)((double)(stays ? old_mean[c] : mean[c]) * (double)gamma[c] / sigma);
        factor[c] = rstd[c];
        if (new_mean)
            new_mean[c] = stays ? old_mean[c] : next_mean[c];
        if (new_var)
            new_var[c] = stays ? old_var[c] : next_var[c];
    }
    return CVY_OK;
}

cvy_status cpu_fold_correction_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    return prepare(device, desc, plan);
}

/* The formulas are beside the reference's. */
cvy_status cpu_fold_correction_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                       void *const *out, void *scratch)
{
    (void)device;
    (void)scratch;
    const struct correction *state = plan->state;
    const float *gamma = in[1], *mean = in[2], *rstd = in[3], *old_mean = in[4], *old_var = in[5];
    const float *dscale = in[6], *dshift = in[7];
    float *dgamma = out[0], *slope = out[1], *offset = out[2];
    const bool stays = frozen(state, in[8]);
    for (int64_t c = 0; c < state->channels; c++) {
        const double sigma = sqrt((double)old_var[c] + (double)state->eps), s = (double)rstd[c];
        if (dgamma)
            dgamma[c] = (float)(-(stays ? (double)old_mean[c] / sigma : (double)mean[c] * s) * (double)dshift[c]);
        if (slope)
            slope[c] = (float)(stays ? 0 : -s * sigma * (double)dscale[c] / state->count);
        if (offset)
            offset[c] = (float)(stays ? 0 : -(double)gamma[c] * s * (double)dshift[c] / state->count);
    }
    return CVY_OK;
}
