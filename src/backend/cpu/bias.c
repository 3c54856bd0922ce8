/* The gradient of a convolution's bias: sums per channel. */
#include "backend/cpu/cpu.h"

cvy_status cpu_conv2d_bwd_bias_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    CVY_TRY(cpu_expect_images(desc, 1U, 0, 0, 0));
    if (cpu_block(&desc->in[0].layout) == 1) /* padded blocks too are summed as they are */
        cpu_agree(cpu_of(device), desc, 1U, 0);
    cpu_plain(desc, 1U, 0);
    struct cpu_image image = cpu_image_of(&desc->in[0]);
    image.blocks = (image.channels + image.block - 1) / image.block;
    (void)cpu_cut(&image);
    return cpu_state(plan, &image, sizeof(image));
}

cvy_status cpu_conv2d_bwd_bias_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    (void)scratch;
    const struct cpu_image *image = plan->state;
    const struct cpu_loops *loops = cpu_loops_for(device, image->dtype);
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t b = 0; b < image->blocks; b++) {
        double total[CPU_LANES] = {0}, lanes[CPU_LANES], channels[CPU_LANES];
        for (int64_t n = 0; n < image->batch; n++) {
            loops->sum(cpu_run_of(in[0], cpu_run_offset(image, n, b)), image->run, image->step, lanes);
            cpu_fold(lanes, image->block, channels);
            for (int32_t c = 0; c < image->block; c++)
                total[c] += channels[c];
        }
        for (int32_t c = 0; c < image->block && b * image->block + c < image->channels; c++)
            ((float *)out[0])[b * image->block + c] = (float)total[c];
    }
    return CVY_OK;
}
