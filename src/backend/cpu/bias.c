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
    if (cpu_in_rows(&image))
        plan->scratch_bytes = (size_t)(image.batch * image.blocks) * sizeof(struct cpu_sums);
    return cpu_state(plan, &image, sizeof(image));
}

/* Pieces of images lie on end: each is summed over all its channels, then the pieces in their order. */
static void sum_rows(const cvy_device *device, const struct cpu_image *image, const void *dy, struct cpu_sums *sums,
                     float *dbias)
{
    const struct cpu_loops *loops = cpu_loops_for(device, image->dtype);
    const struct cpu_rows rows = cpu_rows_of(image, image->blocks);
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t n = 0; n < image->batch; n++)
        loops->rows_sum(cpu_run_of(dy, cpu_run_offset(image, n, 0)), &rows, sums + n * image->blocks);
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t b = 0; b < image->blocks; b++)
        for (int32_t c = 0; c < image->block && b * image->block + c < image->channels; c++) {
            double total = 0;
            for (int64_t n = 0; n < image->batch; n++)
                total += sums[n * image->blocks + b].first[c];
            dbias[b * image->block + c] = (float)total;
        }
}

static void sum_runs(const cvy_device *device, const struct cpu_image *image, const void *dy, float *dbias)
{
    const struct cpu_loops *loops = cpu_loops_for(device, image->dtype);
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t b = 0; b < image->blocks; b++) {
        double total[CPU_LANES] = {0}, lanes[CPU_LANES], channels[CPU_LANES];
        for (int64_t n = 0; n < image->batch; n++) {
            loops->sum(cpu_run_of(dy, cpu_run_offset(image, n, b)), image->run, lanes);
            cpu_fold(lanes, image->block, channels);
            for (int32_t c = 0; c < image->block; c++)
                total[c] += channels[c];
        }
        for (int32_t c = 0; c < image->block && b * image->block + c < image->channels; c++)
            dbias[b * image->block + c] = (float)total[c];
    }
}

cvy_status cpu_conv2d_bwd_bias_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    const struct cpu_image *image = plan->state;
    if (cpu_in_rows(image))
        sum_rows(device, image, in[0], scratch, out[0]);
    else
        sum_runs(device, image, in[0], out[0]);
    return CVY_OK;
}
