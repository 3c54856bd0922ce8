/* Losses of a detector: focal loss over all logits, smooth L1 over codes, squares of weights. Sums in a fixed order. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"

enum { LOSS_THREADS = 256, ROW_LANES = 32 };

struct loss_args {
    struct gpu_predictions what;
    float *sums; /* of each block */
};

/* Adds up what the threads of a block have; thread 0 writes it. */
GPU_BODY void put_block_sum(float *shared_sums, float value, float *to)
{
    value = gpu_block_sum(shared_sums, value);
    if (GPU_THREAD == 0)
        *to = value;
}

/* ---- focal loss ---- */

/* With z = x, or -x where the target is 1: sigmoid(z), sigmoid(-z) and log(1 + exp(z)) from one exponential. */
struct focal {
    float wrong, right, plus;
};

GPU_BODY struct focal focal_of(float z)
{
    const float e = expf(-fabsf(z)), larger = 1 / (1 + e), lesser = e * larger;
    struct focal f;

    f.wrong = z >= 0 ? larger : lesser;
    f.right = z >= 0 ? lesser : larger;
    f.plus = (z > 0 ? z : 0) + log1pf(e);
    return f;
}

/* A warp takes a row of logits after another: no division tells which. A class outside gives NaN, and with it a loss
 * that says so. */
GPU_KERNEL_SHARED(focal_rows, struct loss_args, LOSS_THREADS)
{
    GPU_SHARED float shared_sums[LOSS_THREADS];
    const struct gpu_predictions *w = &a.what;
    const int32_t lane = GPU_THREAD % ROW_LANES, rows = LOSS_THREADS / ROW_LANES;
    float sum = 0;

    for (int64_t i = (int64_t)GPU_BLOCK_X * rows + GPU_THREAD / ROW_LANES; i < w->anchors;
         i += (int64_t)GPU_BLOCKS_X * rows) {
        const int32_t label = w->classes[i];
        for (int64_t k = lane; k < w->columns; k += ROW_LANES) {
            const float x = gpu_get_any(w->dtype, w->predictions, i * w->columns + k);
            const bool is = label > 0 && label == k;
            const struct focal f = focal_of(is ? -x : x);
            sum += (is ? 0.25f : 0.75f) * f.wrong * f.wrong * f.plus;
        }
        if (label < 0 || label >= w->columns)
            sum = gpu_float_of_bits(0x7fc00000u);
    }
    put_block_sum(shared_sums, sum, a.sums + GPU_BLOCK_X);
}

/* dL/dz = alpha w^2 (w + 2 (1 - w) log(1 + exp(z))); from 104 on 1 - w is 0, whatever the logarithm is. */
GPU_KERNEL(focal_bwd_rows, struct loss_args, LOSS_THREADS)
{
    const struct gpu_predictions *w = &a.what;
    const int32_t lane = GPU_THREAD % ROW_LANES, rows = LOSS_THREADS / ROW_LANES;
    const float scale = *w->dloss / *w->positives;

    for (int64_t i = (int64_t)GPU_BLOCK_X * rows + GPU_THREAD / ROW_LANES; i < w->anchors;
         i += (int64_t)GPU_BLOCKS_X * rows) {
        const int32_t label = w->classes[i];
        for (int64_t k = lane; k < w->columns; k += ROW_LANES) {
            const float x = gpu_get_any(w->dtype, w->predictions, i * w->columns + k);
            const bool is = label > 0 && label == k;
            const struct focal f = focal_of(is ? -x : x);
            const float plus = f.plus > 104 ? 104 : f.plus;
            const float slope = f.wrong * f.wrong * (f.wrong + 2 * f.right * plus);
            gpu_put_any(w->dtype, w->gradient, i * w->columns + k, scale * (is ? -0.25f : 0.75f) * slope);
        }
    }
}

/* ---- smooth L1 ---- */

/* The difference of code i: 0 where the anchor has no class or the target is NaN. */
GPU_BODY float difference_of(const struct gpu_predictions *w, int64_t i)
{
    const float target = w->targets[i];

    if (w->classes[i / 4] <= 0 || target != target)
        return 0;
    return gpu_get_any(w->dtype, w->predictions, i) - target;
}

GPU_KERNEL_SHARED(smooth_l1_codes, struct loss_args, LOSS_THREADS)
{
    GPU_SHARED float shared_sums[LOSS_THREADS];
    float sum = 0;

    for (int64_t i = (int64_t)GPU_BLOCK_X * LOSS_THREADS + GPU_THREAD; i < a.what.anchors * 4;
         i += (int64_t)GPU_BLOCKS_X * LOSS_THREADS) {
        const float d = fabsf(difference_of(&a.what, i));
        sum += d <= 1 ? d * d / 2 : d - 0.5f;
    }
    put_block_sum(shared_sums, sum, a.sums + GPU_BLOCK_X);
}

GPU_KERNEL(smooth_l1_bwd_codes, struct loss_args, LOSS_THREADS)
{
    const int64_t i = (int64_t)GPU_BLOCK_X * LOSS_THREADS + GPU_THREAD;
    const float scale = *a.what.dloss / (4 * *a.what.positives);

    if (i < a.what.anchors * 4) {
        const float d = difference_of(&a.what, i);
        gpu_put_any(a.what.dtype, a.what.gradient, i, scale * (d > 1 ? 1 : d < -1 ? -1 : d));
    }
}

/* ---- sums of sums ---- */

struct total_args {
    const float *sums, *term, *positives; /* term, positives: may be NULL */
    float *to;
    int64_t count;
    float factor;
};

/* One block: term + factor * sum / positives. */
GPU_KERNEL_SHARED(total_of_sums, struct total_args, LOSS_THREADS)
{
    GPU_SHARED float shared_sums[LOSS_THREADS];
    float sum = 0;

    for (int64_t i = GPU_THREAD; i < a.count; i += LOSS_THREADS)
        sum += a.sums[i];
    sum = gpu_block_sum(shared_sums, sum);
    if (GPU_THREAD == 0)
        *a.to = (a.term ? *a.term : 0) + a.factor * (a.positives ? sum / *a.positives : sum);
}

static void add_up(void *stream, const float *sums, int64_t count, const float *term, const float *positives,
                   float factor, float *to)
{
    struct total_args args;

    memset(&args, 0, sizeof args);
    args.sums = sums;
    args.count = count;
    args.term = term;
    args.positives = positives;
    args.factor = factor;
    args.to = to;
    GPU_LAUNCH(total_of_sums, stream, 1, 1, LOSS_THREADS, args);
}

/* Blocks for this many pieces of work, `at_once` for each. */
static int64_t blocks_for(int64_t pieces, int64_t at_once)
{
    const int64_t blocks = (pieces + at_once - 1) / at_once;

    return blocks < GPU_LOSS_BLOCKS ? blocks : GPU_LOSS_BLOCKS;
}

GPU_EXTERN void gpu_focal_loss(void *stream, const struct gpu_predictions *what, float *loss, float *scratch)
{
    const int64_t blocks = blocks_for(what->anchors, LOSS_THREADS / ROW_LANES);
    struct loss_args args;

    args.what = *what;
    args.sums = scratch;
    GPU_LAUNCH(focal_rows, stream, blocks, 1, LOSS_THREADS, args);
    add_up(stream, scratch, blocks, 0, what->positives, 1, loss);
}

GPU_EXTERN void gpu_focal_loss_bwd(void *stream, const struct gpu_predictions *what)
{
    const int64_t rows = LOSS_THREADS / ROW_LANES, blocks = (what->anchors + rows - 1) / rows;
    struct loss_args args;

    args.what = *what;
    args.sums = 0;
    GPU_LAUNCH(focal_bwd_rows, stream, blocks < 1 << 20 ? blocks : 1 << 20, 1, LOSS_THREADS, args);
}

GPU_EXTERN void gpu_smooth_l1_loss(void *stream, const struct gpu_predictions *what, float *loss, float *scratch)
{
    const int64_t blocks = blocks_for(what->anchors * 4, LOSS_THREADS);
    struct loss_args args;

    args.what = *what;
    args.sums = scratch;
    GPU_LAUNCH(smooth_l1_codes, stream, blocks, 1, LOSS_THREADS, args);
    add_up(stream, scratch, blocks, 0, what->positives, 0.25f, loss);
}

GPU_EXTERN void gpu_smooth_l1_loss_bwd(void *stream, const struct gpu_predictions *what)
{
    struct loss_args args;

    args.what = *what;
    args.sums = 0;
    GPU_LAUNCH(smooth_l1_bwd_codes, stream, (what->anchors * 4 + LOSS_THREADS - 1) / LOSS_THREADS, 1, LOSS_THREADS,
               args);
}

/* ---- squares of weights ---- */

struct squares_args {
    const float *x;
    float *sums;
    int64_t count;
};

GPU_KERNEL_SHARED(squares_of, struct squares_args, LOSS_THREADS)
{
    GPU_SHARED float shared_sums[LOSS_THREADS];
    float sum = 0;

    for (int64_t i = (int64_t)GPU_BLOCK_X * LOSS_THREADS + GPU_THREAD; i < a.count;
         i += (int64_t)GPU_BLOCKS_X * LOSS_THREADS)
        sum += a.x[i] * a.x[i];
    put_block_sum(shared_sums, sum, a.sums + GPU_BLOCK_X);
}

GPU_EXTERN void gpu_l2_loss(void *stream, const struct gpu_l2_loss *what, float *loss, float *scratch)
{
    int64_t used = 0;

    for (int32_t i = 0; i < what->weights; i++) {
        const int64_t blocks = blocks_for(what->count[i], LOSS_THREADS);
        struct squares_args args;
        args.x = what->weight[i];
        args.sums = scratch + used;
        args.count = what->count[i];
        GPU_LAUNCH(squares_of, stream, blocks, 1, LOSS_THREADS, args);
        used += blocks;
    }
    add_up(stream, scratch, used, what->term, 0, what->factor / 2, loss);
}
