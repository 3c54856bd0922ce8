/* Gradients of weights out of the blocks in which oneDNN's convolutions leave them, into rows as the optimizer has
 * them. oneDNN's own reorder moves element by element, at half the speed. */
#include "backend/cpu/cpu.h"

struct unblock {
    int64_t output_blocks, input_blocks, window;
};

cvy_status cpu_unblock_weights_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct cvy_tensor *x = &desc->in[0], *y = &desc->out[0];
    const int64_t *w = x->shape.dim;

    plan->quiet = true; /* the next row's work */
    if (!cpu_of(device)->kernels->unblock || x->dtype != CVY_F32 || y->dtype != CVY_F32 || x->shape.rank != 4 ||
        y->layout.kind != CVY_LAYOUT_PLAIN || !cpu_onednn_has_blocks_16(x))
        return cvy_fail(CVY_UNAVAILABLE, "this kernel takes fp32 weights from blocks of 16 by 16 channels only");
    const struct unblock state = {.output_blocks = w[0] / 16, .input_blocks = w[1] / 16, .window = w[2] * w[3]};
    return cpu_state(plan, &state, sizeof state);
}

cvy_status cpu_unblock_weights_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    const struct unblock *s = plan->state;
    const struct cpu_kernels *kernels = cpu_of(device)->kernels;
    const int64_t row = s->input_blocks * 16 * s->window; /* elements of an output channel */
    const float *from = in[0];
    float *to = out[0];

    (void)scratch;
#pragma omp parallel for num_threads(device->threads) schedule(static) collapse(2)
    for (int64_t k = 0; k < s->output_blocks; k++)
        for (int64_t c = 0; c < s->input_blocks; c++)
            kernels->unblock(to + k * 16 * row + c * 16 * s->window, from + (k * s->input_blocks + c) * 256 * s->window,
                             row, s->window);
    return CVY_OK;
}
