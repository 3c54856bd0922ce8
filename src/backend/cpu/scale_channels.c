/* Images times one factor for each channel of each image, and the factors' gradient. */
#include "backend/cpu/cpu.h"

struct scale_channels {
    struct cpu_image image;
    int64_t pieces; /* that an image is cut into */
    double shift_factor;
    bool relu;
};

/* x and what looks like it in any layout of images, numbers for each channel plain. */
static cvy_status prepare(cvy_device *device, struct cvy_op_desc *desc, uint32_t inputs, uint32_t outputs)
{
    CVY_TRY(cpu_expect_images(desc, inputs, outputs, 0, 0));
    cpu_agree(cpu_of(device), desc, inputs, outputs);
    cpu_plain(desc, inputs, outputs);
    return CVY_OK;
}

cvy_status cpu_scale_channels_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    CVY_TRY(prepare(device, desc, 1U << 0 | 1U << 3, 1U << 0));
    struct scale_channels state = {.image = cpu_image_of(&desc->in[0]),
                                   .shift_factor = desc->attr.scale_channels.shift_factor,
                                   .relu = desc->attr.scale_channels.relu};
    state.pieces = cpu_make_pieces(&state.image);
    plan->in_place[0] = 0;
    return cpu_state(plan, &state, sizeof(state));
}

/* The numbers of one run: x times a factor, and what is added to it, is a batch norm around a mean of 0. */
static void affine_of(const struct scale_channels *state, const float *s, const float *shift, int64_t first,
                      struct cpu_affine *lanes)
{
    const int32_t block = state->image.block;
    *lanes = (struct cpu_affine){.mean = {0}};
    cpu_spread(s, first, block, lanes->scale);
    for (int32_t lane = 0; shift && lane < CPU_LANES; lane++)
        lanes->shift[lane] = (float)((double)shift[first + lane % block] * state->shift_factor);
}

cvy_status cpu_scale_channels_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                  void *const *out, void *scratch)
{
    (void)scratch;
    const struct scale_channels *state = plan->state;
    const struct cpu_image *image = &state->image;
    const struct cpu_loops *loops = cpu_loops_for(device, image->dtype);
    const bool plain = !in[2] && !in[3] && !state->relu;
    const enum cvy_activation activation = state->relu ? CVY_ACTIVATION_RELU : CVY_ACTIVATION_NONE;
    const int64_t together = cpu_blocks_together(device, image, image->batch);
#pragma omp parallel for num_threads(device->threads) schedule(static) collapse(2)
    for (int64_t n = 0; n < image->batch; n++)
        for (int64_t first = 0; first < image->blocks; first += together) {
            const size_t at = cpu_run_offset(image, n, first);
            const int64_t blocks = cpu_blocks_at(image, first, together);
            const struct cpu_rows rows = cpu_rows_of(image, blocks);
            void *const y = cpu_run_at(out[0], at);
            const void *const x = cpu_run_of(in[0], at), *const residual = cpu_run_of(in[3], at);
            struct cpu_affine lanes[CPU_ROW_BLOCKS];
            for (int64_t b = 0; b < blocks; b++)
                affine_of(state, in[1], in[2], n / state->pieces * image->channels + (first + b) * image->block,
                          &lanes[b]);
            if (cpu_in_rows(image))
                loops->rows_affine(y, x, residual, &rows, lanes, activation);
            else if (plain)
                loops->scale(y, x, image->run, lanes->scale);
            else
                loops->affine(y, x, residual, image->run, lanes, activation);
        }
    return CVY_OK;
}

cvy_status cpu_scale_channels_bwd_scale_prepare(cvy_device *device, struct cvy_op_desc *desc,
                                                struct cvy_kernel_plan *plan)
{
    CVY_TRY(prepare(device, desc, 1U << 0 | 1U << 1, 0));
    const struct cpu_image image = cpu_image_of(&desc->in[0]);
    return cpu_state(plan, &image, sizeof(image));
}

cvy_status cpu_scale_channels_bwd_scale_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                            void *const *out, void *scratch)
{
    (void)scratch;
    const struct cpu_image *image = plan->state;
    const struct cpu_loops *loops = cpu_loops_for(device, image->dtype);
    const int64_t together = cpu_blocks_together(device, image, image->batch);
#pragma omp parallel for num_threads(device->threads) schedule(static) collapse(2)
    for (int64_t n = 0; n < image->batch; n++)
        for (int64_t first = 0; first < image->blocks; first += together) {
            const size_t at = cpu_run_offset(image, n, first);
            const int64_t blocks = cpu_blocks_at(image, first, together);
            const struct cpu_rows rows = cpu_rows_of(image, blocks);
            const void *const x = cpu_run_of(in[0], at), *const y = cpu_run_of(in[1], at);
            float *const to = (float *)out[0] + n * image->channels + first * image->block;
            struct cpu_sums sums[CPU_ROW_BLOCKS];
            if (cpu_in_rows(image))
                loops->rows_sum_products(x, y, &rows, sums);
            else
                loops->sum_products(x, y, image->run, sums->first);
            for (int64_t b = 0; b < blocks; b++)
                cpu_fold_mean(sums[b].first, image->block, 1, to + b * image->block);
        }
    return CVY_OK;
}
