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
    (void)cpu_make_pieces(&image);
    return cpu_state(plan, &image, sizeof(image));
}

cvy_status cpu_conv2d_bwd_bias_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    (void)scratch;
    const struct cpu_image *image = plan->state;
    const struct cpu_loops *loops = cpu_loops_for(device, image->dtype);
    const int64_t together = cpu_blocks_together(device, image, 1);
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t first = 0; first < image->blocks; first += together) {
        const int64_t blocks = cpu_blocks_at(image, first, together);
        const struct cpu_rows rows = cpu_rows_of(image, blocks);
        double total[CPU_ROW_BLOCKS][CPU_LANES] = {{0}}, channels[CPU_LANES];
        struct cpu_sums sums[CPU_ROW_BLOCKS];
        for (int64_t n = 0; n < image->batch; n++) {
            const void *const dy = cpu_run_of(in[0], cpu_run_offset(image, n, first));
            if (cpu_in_rows(image))
                loops->rows_sum(dy, &rows, sums);
            else
                loops->sum(dy, image->run, sums->first);
            for (int64_t b = 0; b < blocks; b++) {
                cpu_fold(sums[b].first, image->block, channels);
                for (int32_t c = 0; c < image->block; c++)
                    total[b][c] += channels[c];
            }
        }
        for (int64_t b = 0; b < blocks; b++) {
            const int64_t at = (first + b) * image->block;
            for (int32_t c = 0; c < image->block && at + c < image->channels; c++)
                ((float *)out[0])[at + c] = (float)total[b][c];
        }
    }
    return CVY_OK;
}
