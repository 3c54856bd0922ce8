/* The optimizer's step, and sums over whole arenas. */
#include "backend/cuda/kernels/launch.h"
#define CVY_SCALER_FUNCTION GPU_BODY
#include "backend/cuda/kernels/kernels.h"

enum { UPDATE_THREADS = 256, UPDATE_EACH = 4 }; /* elements of a thread */

/* The segment of a block: the last one that begins at or before it. */
GPU_BODY int32_t segment_of(const struct gpu_update_args *a, int64_t block)
{
    int32_t low = 0, high = a->segment_count - 1;

    while (low < high) {
        const int32_t middle = (low + high + 1) / 2;
        if (a->segments[middle].block <= block)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Where thread k of the block's segment begins. */
GPU_BODY int64_t start_of(const struct gpu_update_segment *segment)
{
    return (GPU_BLOCK_X - segment->block) * (int64_t)(UPDATE_THREADS * UPDATE_EACH) + GPU_THREAD;
}

GPU_BODY void find_in_segment(const struct gpu_update_args *a)
{
    const struct gpu_update_segment segment = a->segments[segment_of(a, GPU_BLOCK_X)];
    const int64_t start = start_of(&segment);
    bool bad = false;

    GPU_UNROLL
    for (int k = 0; k < UPDATE_EACH; k++) {
        const int64_t at = start + k * UPDATE_THREADS;
        if (at < segment.count)
            bad = bad || (gpu_bits_of_float(a->gradients[segment.first + at]) & 0x7f800000U) == 0x7f800000U;
    }
    if (bad)
        a->scaler->overflow = 1; /* whoever comes, writes the same */
}

GPU_KERNEL_OF(find_overflow, struct gpu_update_args, UPDATE_THREADS, find_in_segment)

/* The rules of backend/update.h. */
GPU_BODY void update_segment(const struct gpu_update_args *a)
{
    const struct gpu_update_segment segment = a->segments[segment_of(a, GPU_BLOCK_X)];
    const int64_t start = start_of(&segment);
    const float rate = *a->learning_rate * segment.rate, decay = segment.weight_decay;
    const float scale = a->scaler ? a->gradient_scale / a->scaler->scale : a->gradient_scale;

    if (a->scaler && a->scaler->overflow)
        return;
    GPU_UNROLL
    for (int k = 0; k < UPDATE_EACH; k++) {
        const int64_t at = start + k * UPDATE_THREADS, i = segment.first + at;
        float w, d, v;
        if (at >= segment.count)
            continue;
        w = a->weights[i];
        d = scale * a->gradients[i] + decay * w;
        if (a->square_average) {
            const float s = a->alpha * a->square_average[i] + a->fresh * d * d;
            a->square_average[i] = s;
            v = a->momentum * a->momentum_buffer[i] + d / (sqrtf(s) + a->epsilon);
        } else {
            v = a->momentum * a->momentum_buffer[i] + a->damping * d;
        }
        a->momentum_buffer[i] = v;
        a->weights[i] = w - rate * (a->nesterov && !a->square_average ? d + a->momentum * v : v);
    }
}

GPU_KERNEL_OF(update_step, struct gpu_update_args, UPDATE_THREADS, update_segment)

struct combine_args {
    float *y;
    const float *x;
    int64_t count;
    const float *share; /* NULL: y += x */
};

GPU_KERNEL(combine, struct combine_args, UPDATE_THREADS)
{
    const int64_t start = (int64_t)GPU_BLOCK_X * (UPDATE_THREADS * UPDATE_EACH) + GPU_THREAD;
    const float share = a.share ? *a.share : 0;

    GPU_UNROLL
    for (int k = 0; k < UPDATE_EACH; k++) {
        const int64_t i = start + k * UPDATE_THREADS;
        if (i < a.count)
            a.y[i] += a.share ? share * (a.x[i] - a.y[i]) : a.x[i];
    }
}

struct end_args {
    struct cvy_scaler *scaler;
    struct cvy_scaler_rule rule;
};

GPU_KERNEL(end_step, struct end_args, 32)
{
    if (GPU_THREAD == 0)
        cvy_scaler_update(a.scaler, &a.rule);
}

/* Deals blocks to the segments; how many there are. */
static int64_t assign_blocks(struct gpu_update_args *args)
{
    const int64_t of_block = UPDATE_THREADS * UPDATE_EACH;
    int64_t blocks = 0;

    for (int32_t s = 0; s < args->segment_count; s++) {
        args->segments[s].block = blocks;
        blocks += (args->segments[s].count + of_block - 1) / of_block;
    }
    return blocks;
}

GPU_EXTERN void gpu_update_step(void *stream, struct gpu_update_args *args)
{
    const int64_t blocks = assign_blocks(args);

    if (blocks)
        GPU_LAUNCH(update_step, stream, blocks, 1, UPDATE_THREADS, *args);
}

GPU_EXTERN void gpu_find_overflow(void *stream, struct gpu_update_args *args)
{
    const int64_t blocks = assign_blocks(args);

    if (blocks)
        GPU_LAUNCH(find_overflow, stream, blocks, 1, UPDATE_THREADS, *args);
}

static void launch_combine(void *stream, float *y, const float *x, int64_t count, const float *share)
{
    const int64_t of_block = UPDATE_THREADS * UPDATE_EACH, blocks = (count + of_block - 1) / of_block;
    struct combine_args args = {y, x, count, share};

    if (blocks)
        GPU_LAUNCH(combine, stream, blocks, 1, UPDATE_THREADS, args);
}

GPU_EXTERN void gpu_sum_floats(void *stream, float *y, const float *x, int64_t count)
{
    launch_combine(stream, y, x, count, NULL);
}

GPU_EXTERN void gpu_average_floats(void *stream, float *y, const float *x, int64_t count, const float *share)
{
    launch_combine(stream, y, x, count, share);
}

GPU_EXTERN void gpu_end_step(void *stream, struct cvy_scaler *scaler, const struct cvy_scaler_rule *rule)
{
    struct end_args args = {scaler, *rule};

    GPU_LAUNCH(end_step, stream, 1, 1, 32, args);
}

struct put_args {
    unsigned char *to, bytes[GPU_SMALL_UPLOAD_BYTES];
    int32_t count;
};

/* One thread, for arguments are at hand only where their place is known when this is compiled. */
GPU_KERNEL(put, struct put_args, 32)
{
    if (GPU_THREAD != 0)
        return;
    GPU_UNROLL
    for (int k = 0; k < GPU_SMALL_UPLOAD_BYTES; k++) {
        if (k < a.count)
            a.to[k] = a.bytes[k];
    }
}

GPU_EXTERN void gpu_put_bytes(void *stream, void *to, const void *bytes, size_t count)
{
    struct put_args args = {(unsigned char *)to, {0}, (int32_t)count};

    memcpy(args.bytes, bytes, count);
    GPU_LAUNCH(put, stream, 1, 1, 32, args);
}
