/* Softmax and its cross-entropy, and sums of columns. A block for each row; sums in a fixed order. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"

enum { ROW_THREADS = 256, COLUMN_THREADS = 256, COLUMN_WIDTH = 32 };

struct row_args {
    const float *logits, *probabilities, *targets, *dloss;
    const int32_t *labels;
    float *to, *losses; /* to: probabilities, or the gradient of the logits */
    int64_t rows, classes;
    float smoothing;
};

/* The larger; a NaN wins. */
GPU_BODY float larger(float u, float v)
{
    return u >= v || u != u ? u : v;
}

GPU_BODY float block_maximum(float *room, float value)
{
    room[GPU_THREAD] = value;
    GPU_SYNC();
    for (int32_t step = GPU_THREADS / 2; step > 0; step /= 2) {
        if (GPU_THREAD < step)
            room[GPU_THREAD] = larger(room[GPU_THREAD], room[GPU_THREAD + step]);
        GPU_SYNC();
    }
    value = room[0];
    GPU_SYNC();
    return value;
}

/* q of class k: (1 - s) t + s / classes. */
GPU_BODY float target_of(const struct row_args *a, int64_t row, int64_t k)
{
    const float t = a->labels ? (a->labels[row] == k ? 1.0f : 0.0f) : a->targets[row * a->classes + k];

    return (1 - a->smoothing) * t + a->smoothing / (float)a->classes;
}

/* Writes a row of probabilities; the row's maximum and the logarithm of its sum of exponentials come back. */
GPU_BODY void softmax_row(const struct row_args *a, float *room, float *maximum, float *log_sum)
{
    const float *x = a->logits + (int64_t)GPU_BLOCK_X * a->classes;
    float *p = a->to ? a->to + (int64_t)GPU_BLOCK_X * a->classes : 0;
    float most = x[0], sum = 0;

    for (int64_t k = GPU_THREAD; k < a->classes; k += ROW_THREADS)
        most = larger(most, x[k]);
    most = block_maximum(room, most);
    for (int64_t k = GPU_THREAD; k < a->classes; k += ROW_THREADS)
        sum += expf(x[k] - most);
    sum = gpu_block_sum(room, sum);
    for (int64_t k = GPU_THREAD; p && k < a->classes; k += ROW_THREADS)
        p[k] = expf(x[k] - most) / sum;
    *maximum = most;
    *log_sum = logf(sum);
}

GPU_KERNEL_SHARED(softmax_rows, struct row_args, ROW_THREADS)
{
    GPU_SHARED float room[ROW_THREADS];
    float maximum, log_sum;

    softmax_row(&a, room, &maximum, &log_sum);
}

GPU_KERNEL_SHARED(cross_entropy_rows, struct row_args, ROW_THREADS)
{
    GPU_SHARED float room[ROW_THREADS];
    const float *x = a.logits + (int64_t)GPU_BLOCK_X * a.classes;
    float maximum, log_sum, loss = 0;

    softmax_row(&a, room, &maximum, &log_sum);
    for (int64_t k = GPU_THREAD; k < a.classes; k += ROW_THREADS) {
        const float q = target_of(&a, GPU_BLOCK_X, k);
        if (q != 0)
            loss -= q * (x[k] - maximum - log_sum);
    }
    loss = gpu_block_sum(room, loss);
    if (GPU_THREAD == 0)
        a.losses[GPU_BLOCK_X] = loss;
}

/* One block: the mean of the rows' losses. */
GPU_KERNEL_SHARED(mean_loss, struct row_args, ROW_THREADS)
{
    GPU_SHARED float room[ROW_THREADS];
    float sum = 0;

    for (int64_t row = GPU_THREAD; row < a.rows; row += ROW_THREADS)
        sum += a.losses[row];
    sum = gpu_block_sum(room, sum);
    if (GPU_THREAD == 0)
        *a.to = sum / (float)a.rows;
}

/* dloss (p sum_k q - q) / rows */
GPU_KERNEL_SHARED(cross_entropy_bwd_rows, struct row_args, ROW_THREADS)
{
    GPU_SHARED float room[ROW_THREADS];
    const int64_t first = (int64_t)GPU_BLOCK_X * a.classes;
    const float scale = *a.dloss / (float)a.rows;
    float total = 1;

    if (!a.labels) { /* soft targets need not sum to 1 */
        float sum = 0;
        for (int64_t k = GPU_THREAD; k < a.classes; k += ROW_THREADS)
            sum += target_of(&a, GPU_BLOCK_X, k);
        total = gpu_block_sum(room, sum);
    }
    for (int64_t k = GPU_THREAD; k < a.classes; k += ROW_THREADS)
        a.to[first + k] = scale * (a.probabilities[first + k] * total - target_of(&a, GPU_BLOCK_X, k));
}

GPU_EXTERN void gpu_softmax(void *stream, const float *logits, float *probabilities, int64_t rows, int64_t classes)
{
    struct row_args args;

    memset(&args, 0, sizeof args);
    args.logits = logits;
    args.to = probabilities;
    args.classes = classes;
    GPU_LAUNCH(softmax_rows, stream, rows, 1, ROW_THREADS, args);
}

GPU_EXTERN void gpu_cross_entropy(void *stream, const float *logits, const int32_t *labels, const float *targets,
                                  float smoothing, float *loss, float *probabilities, float *losses, int64_t rows,
                                  int64_t classes)
{
    struct row_args args;

    memset(&args, 0, sizeof args);
    args.logits = logits;
    args.labels = labels;
    args.targets = targets;
    args.to = probabilities;
    args.losses = losses;
    args.rows = rows;
    args.classes = classes;
    args.smoothing = smoothing;
    GPU_LAUNCH(cross_entropy_rows, stream, rows, 1, ROW_THREADS, args);
    args.to = loss;
    GPU_LAUNCH(mean_loss, stream, 1, 1, ROW_THREADS, args);
}

GPU_EXTERN void gpu_cross_entropy_bwd(void *stream, const float *probabilities, const int32_t *labels,
                                      const float *targets, float smoothing, const float *dloss, float *dlogits,
                                      int64_t rows, int64_t classes)
{
    struct row_args args;

    memset(&args, 0, sizeof args);
    args.probabilities = probabilities;
    args.labels = labels;
    args.targets = targets;
    args.dloss = dloss;
    args.to = dlogits;
    args.rows = rows;
    args.classes = classes;
    args.smoothing = smoothing;
    GPU_LAUNCH(cross_entropy_bwd_rows, stream, rows, 1, ROW_THREADS, args);
}

/* ---- sums of columns ---- */

struct column_args {
    const void *x;
    float *sums;
    int64_t rows, columns;
    enum cvy_dtype dtype;
};

/* A block for COLUMN_WIDTH columns: its threads stand in rows of that width, and their sums are added in order. */
GPU_KERNEL_SHARED(column_sums, struct column_args, COLUMN_THREADS)
{
    GPU_SHARED float room[COLUMN_THREADS];
    const int64_t column = (int64_t)GPU_BLOCK_X * COLUMN_WIDTH + GPU_THREAD % COLUMN_WIDTH;
    float sum = 0;

    if (column < a.columns) {
        for (int64_t row = GPU_THREAD / COLUMN_WIDTH; row < a.rows; row += COLUMN_THREADS / COLUMN_WIDTH) {
            const int64_t i = row * a.columns + column;
            sum += gpu_get_any(a.dtype, a.x, i);
        }
    }
    room[GPU_THREAD] = sum;
    GPU_SYNC();
    if (GPU_THREAD < COLUMN_WIDTH && column < a.columns) {
        sum = 0;
        for (int32_t t = GPU_THREAD; t < COLUMN_THREADS; t += COLUMN_WIDTH)
            sum += room[t];
        a.sums[column] = sum;
    }
}

GPU_EXTERN void gpu_column_sums(void *stream, enum cvy_dtype dtype, const void *x, float *sums, int64_t rows,
                                int64_t columns)
{
    struct column_args args = {x, sums, rows, columns, dtype};

    GPU_LAUNCH(column_sums, stream, (columns + COLUMN_WIDTH - 1) / COLUMN_WIDTH, 1, COLUMN_THREADS, args);
}
