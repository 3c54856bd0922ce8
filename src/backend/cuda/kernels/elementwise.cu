/* ReLU, sigmoid, sums, casts, and the normalisation of images. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"

enum { MAP_THREADS = 256 };
enum map_what { MAP_RELU, MAP_RELU_BWD, MAP_RELU6, MAP_RELU6_BWD, MAP_SIGMOID, MAP_SIGMOID_BWD, MAP_ADD, MAP_ADD_RELU };

struct map_args {
    const void *a, *b;
    void *y;
    int64_t count;
    enum map_what what;
};

struct normalize_args {
    struct gpu_normalize what;
    const void *x;
    void *y;
};

/* Channel c of a pixel, normalised. */
GPU_BODY float normalized_pixel(const struct normalize_args *a, int64_t pixel, int c)
{
    const int64_t at = a->what.planes * pixel + c;
    const float value = a->what.floats ? ((const float *)a->x)[at] : (float)((const uint8_t *)a->x)[at];

    return (value - a->what.mean[c]) / a->what.std[c];
}

GPU_BODY float map_one(enum map_what what, float u, float v)
{
    switch (what) {
    case MAP_RELU:
        return gpu_relu_of(u);
    case MAP_RELU_BWD: /* y, dy */
        return u > 0 ? v : 0;
    case MAP_RELU6:
        return gpu_activated(u, CVY_ACTIVATION_RELU6);
    case MAP_RELU6_BWD: /* y, dy */
        return gpu_passes(u, CVY_ACTIVATION_RELU6) ? v : 0;
    case MAP_SIGMOID:
        return 1 / (1 + expf(-u));
    case MAP_SIGMOID_BWD: /* y, dy */
        return v * u * (1 - u);
    case MAP_ADD:
        return u + v;
    case MAP_ADD_RELU:
        return gpu_relu_of(u + v);
    }
    return 0;
}

#define TYPE f32
#include "backend/cuda/kernels/elementwise.inc"
#undef TYPE
#define TYPE f16
#include "backend/cuda/kernels/elementwise.inc"
#undef TYPE
#define TYPE bf16
#include "backend/cuda/kernels/elementwise.inc"
#undef TYPE

static int64_t blocks_for(int64_t work)
{
    return (work + MAP_THREADS - 1) / MAP_THREADS;
}

static void map(void *stream, enum cvy_dtype dtype, enum map_what what, const void *u, const void *v, void *y,
                int64_t count)
{
    struct map_args args = {u, v, y, count, what};
    const int64_t blocks = blocks_for((count + 7) / 8);

    if (blocks == 0)
        return;
    if (dtype == CVY_F16)
        GPU_LAUNCH(map_f16, stream, blocks, 1, MAP_THREADS, args);
    else if (dtype == CVY_BF16)
        GPU_LAUNCH(map_bf16, stream, blocks, 1, MAP_THREADS, args);
    else
        GPU_LAUNCH(map_f32, stream, blocks, 1, MAP_THREADS, args);
}

GPU_EXTERN void gpu_relu(void *stream, enum cvy_dtype dtype, const void *x, void *y, int64_t count)
{
    map(stream, dtype, MAP_RELU, x, 0, y, count);
}

GPU_EXTERN void gpu_relu_bwd(void *stream, enum cvy_dtype dtype, const void *y, const void *dy, void *dx, int64_t count)
{
    map(stream, dtype, MAP_RELU_BWD, y, dy, dx, count);
}

GPU_EXTERN void gpu_relu6(void *stream, enum cvy_dtype dtype, const void *x, void *y, int64_t count)
{
    map(stream, dtype, MAP_RELU6, x, 0, y, count);
}

GPU_EXTERN void gpu_relu6_bwd(void *stream, enum cvy_dtype dtype, const void *y, const void *dy, void *dx,
                              int64_t count)
{
    map(stream, dtype, MAP_RELU6_BWD, y, dy, dx, count);
}

GPU_EXTERN void gpu_sigmoid(void *stream, enum cvy_dtype dtype, const void *x, void *y, int64_t count)
{
    map(stream, dtype, MAP_SIGMOID, x, 0, y, count);
}

GPU_EXTERN void gpu_sigmoid_bwd(void *stream, enum cvy_dtype dtype, const void *y, const void *dy, void *dx,
                                int64_t count)
{
    map(stream, dtype, MAP_SIGMOID_BWD, y, dy, dx, count);
}

GPU_EXTERN void gpu_add(void *stream, enum cvy_dtype dtype, const void *u, const void *v, void *y, int64_t count,
                        bool relu)
{
    map(stream, dtype, relu ? MAP_ADD_RELU : MAP_ADD, u, v, y, count);
}

GPU_EXTERN void gpu_normalize(void *stream, const struct gpu_normalize *what, const void *x, void *y)
{
    struct normalize_args args = {*what, x, y};
    const int64_t blocks = blocks_for(what->images * what->pixels);

    if (blocks == 0)
        return;
    if (what->dtype == CVY_F16)
        GPU_LAUNCH(normalize_f16, stream, blocks, 1, MAP_THREADS, args);
    else if (what->dtype == CVY_BF16)
        GPU_LAUNCH(normalize_bf16, stream, blocks, 1, MAP_THREADS, args);
    else
        GPU_LAUNCH(normalize_f32, stream, blocks, 1, MAP_THREADS, args);
}

/* ---- casts ---- */

struct cast_args {
    const void *x;
    void *y;
    int64_t count;
    enum cvy_dtype from, to;
};

GPU_KERNEL(cast_all, struct cast_args, MAP_THREADS)
{
    const int64_t first = 4 * ((int64_t)GPU_BLOCK_X * MAP_THREADS + GPU_THREAD);

    GPU_UNROLL
    for (int k = 0; k < 4; k++) {
        const int64_t i = first + k;
        if (i < a.count)
            gpu_put_any(a.to, a.y, i, gpu_get_any(a.from, a.x, i));
    }
}

GPU_EXTERN void gpu_cast(void *stream, enum cvy_dtype from, enum cvy_dtype to, const void *x, void *y, int64_t count)
{
    struct cast_args args = {x, y, count, from, to};
    const int64_t blocks = blocks_for((count + 3) / 4);

    if (blocks)
        GPU_LAUNCH(cast_all, stream, blocks, 1, MAP_THREADS, args);
}
