/* Pooling. */
#include <string.h>

#include "backend/cpu/cpu.h"

struct max_pool {
    int64_t batch, blocks;
    struct cpu_pool window;
    enum cvy_dtype dtype; /* of the images */
};

/* Every window must hold at least one pixel of the image, or there is no maximum. */
static bool windows_hit(int64_t extent, int64_t out_extent, int32_t kernel, int32_t stride, int32_t pad)
{
    return pad < kernel && (out_extent - 1) * stride - pad < extent;
}

static cvy_status max_pool_state(const struct cvy_op_desc *desc, const struct cvy_shape *x, const struct cvy_shape *y,
                                 const struct cvy_layout *layout, struct cvy_kernel_plan *plan)
{
    const struct cvy_pool_attr *attr = &desc->attr.pool;
    if (attr->kernel[0] * attr->kernel[1] > 256)
        return cvy_fail(CVY_UNAVAILABLE, "a window of %dx%d does not fit an index of 8 bits", (int)attr->kernel[0],
                        (int)attr->kernel[1]);
    if (x->dim[2] * x->dim[3] > INT32_MAX / 16 || y->dim[2] * y->dim[3] > INT32_MAX / 16)
        return cvy_fail(CVY_UNAVAILABLE, "images of more than %d pixels", INT32_MAX / 16);
    if (!windows_hit(x->dim[2], y->dim[2], attr->kernel[0], attr->stride[0], attr->pad[0]) ||
        !windows_hit(x->dim[3], y->dim[3], attr->kernel[1], attr->stride[1], attr->pad[2]))
        return cvy_fail(CVY_UNAVAILABLE, "some windows lie in the padding alone");
    /* Channels-last: all of them are one block. */
    const int32_t block = layout->kind == CVY_LAYOUT_NHWC ? (int32_t)x->dim[1] : cpu_block(layout);
    const struct max_pool state = {.batch = x->dim[0],
                                   .blocks = x->dim[1] / block,
                                   .window = {.height = (int32_t)x->dim[2],
                                              .width = (int32_t)x->dim[3],
                                              .out_height = (int32_t)y->dim[2],
                                              .out_width = (int32_t)y->dim[3],
                                              .kernel = {attr->kernel[0], attr->kernel[1]},
                                              .stride = {attr->stride[0], attr->stride[1]},
                                              .pad = {attr->pad[0], attr->pad[2]},
                                              .lanes = block},
                                   .dtype = desc->out[0].dtype};
    return cpu_state(plan, &state, sizeof(state));
}

cvy_status cpu_max_pool_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    if (cvy_tensor_present(&desc->in[1]))
        return cvy_fail(CVY_UNAVAILABLE, "pools with the batch norm before them are for other devices");
    CVY_TRY(cpu_expect_images(desc, 1U, 1U, 0, 1U << 1));
    cpu_agree(cpu_of(device), desc, 1U, ~0U);
    return max_pool_state(desc, &desc->in[0].shape, &desc->out[0].shape, &desc->out[0].layout, plan);
}

/* Rows [first, end) of what the window gives, of one run: as a window of its own. */
static void max_pool_rows(const struct cpu_loops *loops, const struct cpu_pool *whole, int32_t first, int32_t end,
                          const void *x, void *y, uint8_t *positions)
{
    const int32_t top = first * whole->stride[0] - whole->pad[0];
    const size_t x_row = (size_t)whole->width * (size_t)whole->lanes;
    const size_t y_at = (size_t)first * (size_t)whole->out_width * (size_t)whole->lanes;
    struct cpu_pool window = *whole;

    window.out_height = end - first;
    window.pad[0] = top < 0 ? -top : 0;
    window.height -= top < 0 ? 0 : top;
    loops->max_pool(cpu_run_at(y, y_at * loops->size), cpu_run_at(positions, y_at),
                    cpu_run_of(x, top < 0 ? 0 : (size_t)top * x_row * loops->size), &window);
}

/* Where there are fewer runs than threads, rows are shared out, too. */
cvy_status cpu_max_pool_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                            void *scratch)
{
    (void)scratch;
    const struct max_pool *state = plan->state;
    const struct cpu_loops *loops = cpu_loops_for(device, state->dtype);
    const struct cpu_pool *window = &state->window;
    const size_t x_run = (size_t)window->height * (size_t)window->width * (size_t)window->lanes;
    const size_t y_run = (size_t)window->out_height * (size_t)window->out_width * (size_t)window->lanes;
    const int64_t runs = state->batch * state->blocks, shares = (device->threads + runs - 1) / runs;
    const int64_t pieces = shares < window->out_height ? shares : window->out_height;
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t i = 0; i < runs * pieces; i++) {
        const int64_t run = i / pieces, piece = i % pieces;
        max_pool_rows(loops, window, (int32_t)(window->out_height * piece / pieces),
                      (int32_t)(window->out_height * (piece + 1) / pieces),
                      cpu_run_of(in[0], (size_t)run * x_run * loops->size),
                      cpu_run_at(out[0], (size_t)run * y_run * loops->size), cpu_run_at(out[1], (size_t)run * y_run));
    }
    return CVY_OK;
}

cvy_status cpu_max_pool_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    if (cvy_tensor_present(&desc->in[2]) || cvy_tensor_present(&desc->in[3]))
        return cvy_fail(CVY_UNAVAILABLE, "pools with the batch norm before them are for other devices");
    CVY_TRY(cpu_expect_images(desc, 1U, 1U, 1U << 1, 0));
    cpu_agree(cpu_of(device), desc, ~0U, ~0U);
    return max_pool_state(desc, &desc->out[0].shape, &desc->in[0].shape, &desc->out[0].layout, plan);
}

cvy_status cpu_max_pool_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                void *const *out, void *scratch)
{
    (void)scratch;
    const struct max_pool *state = plan->state;
    const struct cpu_loops *loops = cpu_loops_for(device, state->dtype);
    const struct cpu_pool *window = &state->window;
    const size_t x_run = (size_t)window->height * (size_t)window->width * (size_t)window->lanes;
    const size_t y_run = (size_t)window->out_height * (size_t)window->out_width * (size_t)window->lanes;
    const int64_t runs = state->batch * state->blocks;
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int64_t i = 0; i < runs; i++)
        loops->max_pool_bwd(cpu_run_at(out[0], (size_t)i * x_run * loops->size),
                            cpu_run_of(in[0], (size_t)i * y_run * loops->size), cpu_run_of(in[1], (size_t)i * y_run),
                            window);
    return CVY_OK;
}

/* ---- the mean over an image ---- */

cvy_status cpu_global_avg_pool_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    CVY_TRY(cpu_expect_images(desc, 1U, 0, 0, 0));
    cpu_agree(cpu_of(device), desc, 1U, 0);
    cpu_plain(desc, 1U, 0);
    const struct cpu_image image = cpu_image_of(&desc->in[0]);
    return cpu_state(plan, &image, sizeof(image));
}

static void average_rows(const struct cpu_loops *loops, const struct cpu_image *image, const void *x, int64_t blocks,
                         float *y)
{
    const struct cpu_rows rows = cpu_rows_of(image, blocks);
    struct cpu_sums sums[CPU_ROW_BLOCKS];
    loops->rows_sum(x, &rows, sums);
    for (int64_t b = 0; b < blocks; b++)
        cpu_fold_mean(sums[b].first, CPU_LANES, image->pixels, y + b * CPU_LANES);
}

cvy_status cpu_global_avg_pool_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    (void)scratch;
    const struct cpu_image *image = plan->state;
    const struct cpu_loops *loops = cpu_loops_for(device, image->dtype);
    const int64_t together = cpu_blocks_together(device, image, image->batch);
#pragma omp parallel for num_threads(device->threads) schedule(static) collapse(2)
    for (int64_t n = 0; n < image->batch; n++)
        for (int64_t b = 0; b < image->blocks; b += together) {
            const void *const x = cpu_run_of(in[0], cpu_run_offset(image, n, b));
            float *const y = (float *)out[0] + n * image->channels + b * image->block;
            double lanes[CPU_LANES];
            if (cpu_in_rows(image)) {
                average_rows(loops, image, x, cpu_blocks_at(image, b, together), y);
                continue;
            }
            loops->sum(x, image->run, lanes);
            cpu_fold_mean(lanes, image->block, image->pixels, y);
        }
    return CVY_OK;
}

cvy_status cpu_global_avg_pool_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    CVY_TRY(cpu_expect_images(desc, 0, 1U, 0, 0));
    cpu_plain(desc, 0, 0);
    desc->out[0].layout = cpu_image_layout(cpu_of(device), desc->images, desc->out[0].shape.dim[1], desc->out[0].dtype);
    const struct cpu_image image = cpu_image_of(&desc->out[0]);
    return cpu_state(plan, &image, sizeof(image));
}

static void spread_over_rows(const struct cpu_loops *loops, const struct cpu_image *image, void *dx, int64_t blocks,
                             const float *dy)
{
    const struct cpu_rows rows = cpu_rows_of(image, blocks);
    float values[CPU_ROW_BLOCKS * CPU_LANES];
    for (int64_t c = 0; c < blocks * CPU_LANES; c++)
        values[c] = dy[c] / (float)image->pixels;
    loops->rows_fill(dx, &rows, values);
}

cvy_status cpu_global_avg_pool_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                       void *const *out, void *scratch)
{
    (void)scratch;
    const struct cpu_image *image = plan->state;
    const struct cpu_loops *loops = cpu_loops_for(device, image->dtype);
    const int64_t together = cpu_blocks_together(device, image, image->batch);
#pragma omp parallel for num_threads(device->threads) schedule(static) collapse(2)
    for (int64_t n = 0; n < image->batch; n++)
        for (int64_t b = 0; b < image->blocks; b += together) {
            void *const dx = cpu_run_at(out[0], cpu_run_offset(image, n, b));
            const float *const dy = (const float *)in[0] + n * image->channels + b * image->block;
            float lanes[CPU_LANES];
            if (cpu_in_rows(image)) {
                spread_over_rows(loops, image, dx, cpu_blocks_at(image, b, together), dy);
                continue;
            }
            cpu_spread(dy, 0, image->block, lanes);
            for (int32_t lane = 0; lane < CPU_LANES; lane++)
                lanes[lane] /= (float)image->pixels;
            loops->fill(dx, image->run, lanes);
        }
    return CVY_OK;
}
