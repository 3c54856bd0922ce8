/* Rows of pooling. */
#include <stdio.h>

#include "backend/cuda/gpu.h"
#include "backend/cuda/kernels/kernels.h"

/* ---- maxima over windows ---- */

/* Every window must hold at least one pixel of the image, or there is no maximum. */
static bool windows_hit(int64_t extent, int64_t windows, int32_t kernel, int32_t stride, int32_t pad)
{
    return pad < kernel && (windows - 1) * stride - pad < extent;
}

/* `images`: the inputs that have the type of x and y. */
static cvy_status max_pool_prepare(struct cvy_op_desc *desc, struct cvy_kernel_plan *plan, const struct cvy_tensor *x,
                                   const struct cvy_tensor *y, uint32_t images)
{
    const struct cvy_pool_attr *attr = &desc->attr.pool;
    struct gpu_pool pool = {.n = x->shape.dim[0],
                            .c = x->shape.dim[1],
                            .h = x->shape.dim[2],
                            .w = x->shape.dim[3],
                            .p = y->shape.dim[2],
                            .q = y->shape.dim[3],
                            .kernel = {attr->kernel[0], attr->kernel[1]},
                            .stride = {attr->stride[0], attr->stride[1]},
                            .pad = {attr->pad[0], attr->pad[2]}};
    const bool forward = desc->op == CVY_OP_MAX_POOL;

    if (attr->kernel[0] * attr->kernel[1] > 256)
        return cvy_fail(CVY_UNAVAILABLE, "a window of %dx%d does not fit an index of 8 bits", (int)attr->kernel[0],
                        (int)attr->kernel[1]);
    if (pool.c > INT32_MAX || pool.h > INT32_MAX / 2 || pool.w > INT32_MAX / 2)
        return cvy_fail(CVY_UNAVAILABLE, "the image is too large");
    if (!windows_hit(pool.h, pool.p, attr->kernel[0], attr->stride[0], attr->pad[0]) ||
        !windows_hit(pool.w, pool.q, attr->kernel[1], attr->stride[1], attr->pad[2]))
        return cvy_fail(CVY_UNAVAILABLE, "some windows lie in the padding alone");
    /* All but the index, which is the other output or input. */
    CVY_TRY(gpu_expect(desc, images, 1, forward ? 0 : 2, forward ? 2 : 0, &pool.dtype));
    gpu_lay_out_dense(desc, ~0U, ~0U);
    return gpu_state(plan, &pool, sizeof pool);
}

cvy_status gpu_max_pool_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    if (cvy_tensor_present(&desc->in[1]))
        snprintf(plan->implementation, sizeof plan->implementation, "with the batch norm");
    return max_pool_prepare(desc, plan, &desc->in[0], &desc->out[0], 1U << 0);
}

cvy_status gpu_max_pool_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in, void *const *out,
                            void *scratch)
{
    struct gpu_pool pool = *(const struct gpu_pool *)plan->state;

    (void)scratch;
    pool.gamma = in[1];
    pool.beta = in[2];
    pool.mean = in[3];
    pool.rstd = in[4];
    gpu_max_pool(gpu_of(device)->stream, &pool, in[0], out[0], out[1]);
    return gpu_queued(gpu_of(device));
}

/* With the batch norm before it: two kernels that read the same, the first of which sums. */
static cvy_status prepare_norm(cvy_device *device, const struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct gpu_pool *pool = plan->state;
    int64_t tiles, floats;

    gpu_batch_norm_shape(pool->n * pool->h * pool->w, pool->c, &tiles, &floats);
    if (tiles > GPU_TICKETS)
        return cvy_fail(CVY_UNAVAILABLE, "%lld channels are too many", (long long)pool->c);
    snprintf(plan->implementation, sizeof plan->implementation, "with the batch norm");
    plan->scratch_bytes = (size_t)floats * sizeof(float);
    plan->in_place[0] = 3;
    plan->extra_launches = 1;
    for (int i = 0; i < 4; i++) {
        if (cvy_tensor_present(&desc->in[i]))
            plan->extra_bytes += (int64_t)gpu_tensor_bytes(device, &desc->in[i]);
    }
    return CVY_OK;
}

cvy_status gpu_max_pool_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    CVY_TRY(max_pool_prepare(desc, plan, &desc->out[0], &desc->in[0], 1U << 0 | 1U << 2 | 1U << 3));
    return cvy_tensor_present(&desc->in[3]) ? prepare_norm(device, desc, plan) : CVY_OK;
}

cvy_status gpu_max_pool_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                void *const *out, void *scratch)
{
    struct gpu_pool pool = *(const struct gpu_pool *)plan->state;
    const struct gpu_batch_norm_bwd norm = {.dtype = pool.dtype,
                                            .rows = pool.n * pool.h * pool.w,
                                            .channels = pool.c,
                                            .x = in[3],
                                            .gamma = in[4],
                                            .beta = in[5],
                                            .mean = in[6],
                                            .rstd = in[7],
                                            .dx = out[0],
                                            .dgamma = out[1],
                                            .dbeta = out[2],
                                            .activation = CVY_ACTIVATION_RELU};

    pool.more = in[2];
    if (in[3])
        gpu_norm_pool_bwd(gpu_of(device)->stream, &pool, in[0], in[1], &norm, scratch, gpu_of(device)->tickets);
    else
        gpu_max_pool_bwd(gpu_of(device)->stream, &pool, in[0], in[1], out[0]);
    return gpu_queued(gpu_of(device));
}

/* ---- the mean over an image ---- */

struct mean {
    enum cvy_dtype dtype;
    int64_t images, rows, channels;
};

static cvy_status mean_prepare(struct cvy_op_desc *desc, struct cvy_kernel_plan *plan, const struct cvy_tensor *image,
                               uint32_t inputs, uint32_t outputs)
{
    const int64_t *dim = image->shape.dim;
    struct mean mean = {.images = dim[0], .rows = dim[2] * dim[3], .channels = dim[1]};

    CVY_TRY(gpu_expect(desc, inputs, outputs, 0, 0, &mean.dtype));
    if (mean.channels > INT32_MAX || mean.rows > INT32_MAX / 2)
        return cvy_fail(CVY_UNAVAILABLE, "the images are too large");
    gpu_lay_out_dense(desc, inputs, outputs);
    return gpu_state(plan, &mean, sizeof mean);
}

cvy_status gpu_global_avg_pool_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    return mean_prepare(desc, plan, &desc->in[0], 1, 0);
}

cvy_status gpu_global_avg_pool_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                   void *const *out, void *scratch)
{
    const struct mean *mean = plan->state;

    (void)scratch;
    gpu_image_sums(gpu_of(device)->stream, mean->dtype, in[0], NULL, out[0], mean->images, mean->rows, mean->channels,
                   (float)mean->rows);
    return gpu_queued(gpu_of(device));
}

cvy_status gpu_global_avg_pool_bwd_prepare(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    (void)device;
    return mean_prepare(desc, plan, &desc->out[0], 0, 1);
}

cvy_status gpu_global_avg_pool_bwd_run(cvy_device *device, const struct cvy_kernel_plan *plan, void *const *in,
                                       void *const *out, void *scratch)
{
    const struct mean *mean = plan->state;

    (void)scratch;
    gpu_fill_images(gpu_of(device)->stream, mean->dtype, in[0], out[0], mean->images, mean->rows, mean->channels,
                    (float)mean->rows);
    return gpu_queued(gpu_of(device));
}
