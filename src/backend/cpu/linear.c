/* The linear layer: matrix products by oneDNN, bias by our own code. All tensors are plain. */
#include <string.h>

#include "backend/cpu/cpu.h"

struct linear {
    int64_t batch, channels, outputs;
};

static cvy_status linear_state(struct cvy_op_desc *desc, struct cvy_kernel_plan *plan, struct linear state)
{
    CVY_TRY(cpu_expect_f32(desc, 0, 0));
    cpu_plain(desc, 0, 0);
    return cpu_state(plan, &state, sizeof(state));
}

cvy_status cpu_linear_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    const int64_t *x = desc->in[0].shape.dim, *w = desc->in[1].shape.dim;
    return linear_state(desc, plan, (struct linear){.batch = x[0], .channels = x[1], .outputs = w[0]});
}

cvy_status cpu_linear_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                          void *scratch)
{
    (void)scratch;
    const struct linear *s = plan->state;
    CVY_TRY(cpu_sgemm_blocks(device, s->batch, s->outputs, s->channels, in[0], in[1], out[0]));
    if (in[2])
        for (int64_t n = 0; n < s->batch; n++)
            cpu_of(device)->kernels->f32->accumulate((float *)out[0] + n * s->outputs, in[2], (size_t)s->outputs);
    return CVY_OK;
}

cvy_status cpu_linear_bwd_data_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    const int64_t *w = desc->in[0].shape.dim, *dy = desc->in[1].shape.dim;
    return linear_state(desc, plan, (struct linear){.batch = dy[0], .channels = w[1], .outputs = w[0]});
}

cvy_status cpu_linear_bwd_data_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    (void)scratch;
    const struct linear *s = plan->state;
    return cpu_sgemm(device, false, false, s->batch, s->channels, s->outputs, in[1], in[0], out[0]);
}

cvy_status cpu_linear_bwd_weights_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    const int64_t *x = desc->in[0].shape.dim, *dy = desc->in[1].shape.dim;
    return linear_state(desc, plan, (struct linear){.batch = x[0], .channels = x[1], .outputs = dy[1]});
}

cvy_status cpu_linear_bwd_weights_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                      void *const *out, void *scratch)
{
    (void)scratch;
    const struct linear *s = plan->state;
    CVY_TRY(cpu_sgemm(device, true, false, s->outputs, s->channels, s->batch, in[1], in[0], out[0]));
    const float *dy = in[1];
    float *dbias = out[1];
    if (dbias)
        for (int64_t k = 0; k < s->outputs; k++) {
            double total = 0;
            for (int64_t n = 0; n < s->batch; n++)
                total += (double)dy[n * s->outputs + k];
            dbias[k] = (float)total;
        }
    return CVY_OK;
}
