/* Images times one factor for each channel of each image, and the factors' gradient. */
#include "backend/cpu/cpu.h"

/* x (and what looks like it) in any layout of images, the factors plain. */
static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan, uint32_t inputs,
                          uint32_t outputs)
{
    CVY_TRY(cpu_expect_images(desc, inputs, outputs, 0, 0));
    cpu_agree(cpu_of(device), desc, inputs, outputs);
    cpu_plain(desc, inputs, outputs);
    const struct cpu_image image = cpu_image_of(&desc->in[0]);
    return cpu_state(plan, &image, sizeof(image));
}

cvy_status cpu_scale_channels_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    plan->in_place[0] = 0;
    return prepare(device, desc, plan, 1U << 0, 1U << 0);
}

cvy_status cpu_scale_channels_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                  void *const *out, void *scratch)
{
    (void)scratch;
    const struct cpu_image *image = plan->state;
    const struct cpu_loops *loops = cpu_loops_for(device, image->dtype);
#pragma omp parallel for num_threads(device->threads) schedule(static) collapse(2)
    for (int64_t n = 0; n < image->batch; n++)
        for (int64_t b = 0; b < image->blocks; b++) {
            const size_t at = cpu_run_offset(image, n, b);
            float lanes[CPU_LANES];
            cpu_spread(in[1], n * image->channels + b * image->block, image->block, lanes);
            loops->scale(cpu_run_at(out[0], at), cpu_run_of(in[0], at), image->run, lanes);
        }
    return CVY_OK;
}

cvy_status cpu_scale_channels_bwd_scale_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                                struct cvy_kernel_plan *plan)
{
    return prepare(device, desc, plan, 1U << 0 | 1U << 1, 0);
}

cvy_status cpu_scale_channels_bwd_scale_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                            void *const *out, void *scratch)
{
    (void)scratch;
    const struct cpu_image *image = plan->state;
    const struct cpu_loops *loops = cpu_loops_for(device, image->dtype);
#pragma omp parallel for num_threads(device->threads) schedule(static) collapse(2)
    for (int64_t n = 0; n < image->batch; n++)
        for (int64_t b = 0; b < image->blocks; b++) {
            const size_t at = cpu_run_offset(image, n, b);
            double lanes[CPU_LANES];
            loops->sum_products(cpu_run_of(in[0], at), cpu_run_of(in[1], at), image->run, lanes);
            cpu_fold_mean(lanes, image->block, 1, (float *)out[0] + n * image->channels + b * image->block);
        }
    return CVY_OK;
}
