/* Softmax and its cross-entropy, and sums of columns. A block for each row; sums in a fixed order. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/invalid_label.h"

enum { ROW_THREADS = 256, COLUMN_THREADS = 256, COLUMN_WIDTH = 32 };

struct row_args {
    struct gpu_targets targets;
    const float *logits, *probabilities, *dloss;
    float *to, *losses; /* to: probabilities, or the gradient of the logits */
    int64_t rows, classes;
};

/* The larger; a NaN wins. */
GPU_BODY float larger(float u, float v)
{
    return u >= v || u != u ? u : v;
}

GPU_BODY float block_maximum(float *shared_sums, float value)
{
    shared_sums[GPU_THREAD] = value;
    GPU_SYNC();
    for (int32_t step = GPU_THREADS / 2; step > 0; step /= 2) {
        if (GPU_THREAD < step)
            shared_sums[GPU_THREAD] = larger(shared_sums[GPU_THREAD], shared_sums[GPU_THREAD + step]);
        GPU_SYNC();
    }
    value = shared_sums[0];
    GPU_SYNC();
    return value;
}

GPU_BODY float target_alone(const struct row_args *a, int64_t row, int64_t k)
{
    const struct gpu_targets *t = &a->targets;

    return t->labels ? (t->labels[row] == k ? 1.0f : 0.0f) : t->soft[row * a->classes + k];
}

/* q of class k: w ((1 - s) t + s / classes). */
GPU_BODY float target_of(const struct row_args *a, int64_t row, int64_t k)
{
    const struct gpu_targets *t = &a->targets;
    float q = target_alone(a, row, k);

    if (t->partner)
        q = t->coefficient[row] * q + (1 - t->coefficient[row]) * target_alone(a, t->partner[row], k);
    q = (1 - t->smoothing) * q + t->smoothing / (float)a->classes;
    return t->class_weights ? t->class_weights[k] * q : q;
}

GPU_BODY bool wrong_label(const struct row_args *a, int64_t row)
{
    const int32_t *labels = a->targets.labels;

    return labels && (labels[row] < 0 || labels[row] >= a->classes);
}

/* The weight of a label; one outside gives NaN. */
GPU_BODY float weight_of(const struct row_args *a, int64_t row)
{
    const int32_t label = a->targets.labels[row];

    return label >= 0 && label < a->classes ? a->targets.class_weights[label] : gpu_float_of_bits(0x7fc00000u);
}

/* What the sum over the batch is divided by: the rows, or the weights of their labels. Every thread gets it. */
GPU_BODY float divisor_of(const struct row_args *a, float *shared_sums)
{
    const struct gpu_targets *t = &a->targets;
    float sum = 0;

    if (!t->class_weights || !t->labels)
        return (float)a->rows;
    for (int64_t row = GPU_THREAD; row < a->rows; row += ROW_THREADS) {
        if (t->partner)
            sum += t->coefficient[row] * weight_of(a, row) + (1 - t->coefficient[row]) * weight_of(a, t->partner[row]);
        else
            sum += weight_of(a, row);
    }
    return gpu_block_sum(shared_sums, sum);
}

/* Writes a row of probabilities; the row's maximum and the logarithm of its sum of exponentials come back. */
GPU_BODY void softmax_row(const struct row_args *a, float *shared_sums, float *maximum, float *log_sum)
{
    const float *x = a->logits + (int64_t)GPU_BLOCK_X * a->classes;
    float *p = a->to ? a->to + (int64_t)GPU_BLOCK_X * a->classes : 0;
    float largest = x[0], sum = 0;

    for (int64_t k = GPU_THREAD; k < a->classes; k += ROW_THREADS)
        largest = larger(largest, x[k]);
    largest = block_maximum(shared_sums, largest);
    for (int64_t k = GPU_THREAD; k < a->classes; k += ROW_THREADS)
        sum += expf(x[k] - largest);
    sum = gpu_block_sum(shared_sums, sum);
    for (int64_t k = GPU_THREAD; p && k < a->classes; k += ROW_THREADS)
        p[k] = expf(x[k] - largest) / sum;
    *maximum = largest;
    *log_sum = logf(sum);
}

GPU_KERNEL_SHARED(softmax_rows, struct row_args, ROW_THREADS)
{
    GPU_SHARED float shared_sums[ROW_THREADS];
    float maximum, log_sum;

    softmax_row(&a, shared_sums, &maximum, &log_sum);
}

GPU_KERNEL_SHARED(cross_entropy_rows, struct row_args, ROW_THREADS)
{
    GPU_SHARED float shared_sums[ROW_THREADS];
    const float *x = a.logits + (int64_t)GPU_BLOCK_X * a.classes;
    float maximum, log_sum, loss = 0;

    softmax_row(&a, shared_sums, &maximum, &log_sum);
    for (int64_t k = GPU_THREAD; k < a.classes; k += ROW_THREADS) {
        const float q = target_of(&a, GPU_BLOCK_X, k);
        if (q != 0)
            loss -= q * (x[k] - maximum - log_sum);
    }
    loss = gpu_block_sum(shared_sums, loss);
    if (GPU_THREAD == 0)
        a.losses[GPU_BLOCK_X] = wrong_label(&a, GPU_BLOCK_X) ? CVY_INVALID_LABEL_LOSS : loss;
}

/* One block: the mean of the rows' losses. */
GPU_KERNEL_SHARED(mean_loss, struct row_args, ROW_THREADS)
{
    GPU_SHARED float shared_sums[ROW_THREADS];
    const float divisor = divisor_of(&a, shared_sums);
    float sum = 0, wrong = 0;

    for (int64_t row = GPU_THREAD; row < a.rows; row += ROW_THREADS) {
        sum += a.losses[row];
        wrong += a.losses[row] == CVY_INVALID_LABEL_LOSS ? 1.0f : 0.0f;
    }
    sum = gpu_block_sum(shared_sums, sum);
    wrong = gpu_block_sum(shared_sums, wrong);
    if (GPU_THREAD == 0)
        *a.to = wrong > 0 ? CVY_INVALID_LABEL_LOSS : sum / divisor;
}

/* dloss (p sum_k q - q) / divisor */
GPU_KERNEL_SHARED(cross_entropy_bwd_rows, struct row_args, ROW_THREADS)
{
    GPU_SHARED float shared_sums[ROW_THREADS];
    const int64_t first = (int64_t)GPU_BLOCK_X * a.classes;
    const float scale = *a.dloss / divisor_of(&a, shared_sums);
    float total = 1;

    if (!a.targets.labels || a.targets.class_weights) { /* else the targets sum to 1 */
        float sum = 0;
        for (int64_t k = GPU_THREAD; k < a.classes; k += ROW_THREADS)
            sum += target_of(&a, GPU_BLOCK_X, k);
        total = gpu_block_sum(shared_sums, sum);
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

GPU_EXTERN void gpu_cross_entropy(void *stream, const float *logits, const struct gpu_targets *targets, float *loss,
                                  float *probabilities, float *losses, int64_t rows, int64_t classes)
{
    struct row_args args;

    memset(&args, 0, sizeof args);
    args.targets = *targets;
    args.logits = logits;
    args.to = probabilities;
    args.losses = losses;
    args.rows = rows;
    args.classes = classes;
    GPU_LAUNCH(cross_entropy_rows, stream, rows, 1, ROW_THREADS, args);
    args.to = loss;
    GPU_LAUNCH(mean_loss, stream, 1, 1, ROW_THREADS, args);
}

GPU_EXTERN void gpu_cross_entropy_bwd(void *stream, const float *probabilities, const struct gpu_targets *targets,
                                      const float *dloss, float *dlogits, int64_t rows, int64_t classes)
{
    struct row_args args;

    memset(&args, 0, sizeof args);
    args.targets = *targets;
    args.probabilities = probabilities;
    args.dloss = dloss;
    args.to = dlogits;
    args.rows = rows;
    args.classes = classes;
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
    GPU_SHARED float shared_sums[COLUMN_THREADS];
    const int64_t column = (int64_t)GPU_BLOCK_X * COLUMN_WIDTH + GPU_THREAD % COLUMN_WIDTH;
    float sum = 0;

    if (column < a.columns) {
        for (int64_t row = GPU_THREAD / COLUMN_WIDTH; row < a.rows; row += COLUMN_THREADS / COLUMN_WIDTH) {
            const int64_t i = row * a.columns + column;
            sum += gpu_get_any(a.dtype, a.x, i);
        }
    }
    shared_sums[GPU_THREAD] = sum;
    GPU_SYNC();
    if (GPU_THREAD < COLUMN_WIDTH && column < a.columns) {
        sum = 0;
        for (int32_t t = GPU_THREAD; t < COLUMN_THREADS; t += COLUMN_WIDTH)
            sum += shared_sums[t];
        a.sums[column] = sum;
    }
}

GPU_EXTERN void gpu_column_sums(void *stream, enum cvy_dtype dtype, const void *x, float *sums, int64_t rows,
                                int64_t columns)
{
    struct column_args args = {x, sums, rows, columns, dtype};

    GPU_LAUNCH(column_sums, stream, (columns + COLUMN_WIDTH - 1) / COLUMN_WIDTH, 1, COLUMN_THREADS, args);
}
