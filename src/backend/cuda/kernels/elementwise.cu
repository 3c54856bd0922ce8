/* Ops that look at one element at a time, casts, and the normalisation of images. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"

enum { MAP_THREADS = 256 };

/* ---- y = f(x), y = f(a, b): one line of arithmetic for each CVY_OP_UNARY and CVY_OP_BINARY of graph/ops.def ---- */

#define UNARY(name, value)                                                                                             \
    GPU_BODY float name##_of(float x)                                                                                  \
    {                                                                                                                  \
        return value;                                                                                                  \
    }
#define BINARY(name, value)                                                                                            \
    GPU_BODY float name##_of(float a, float b)                                                                         \
    {                                                                                                                  \
        return value;                                                                                                  \
    }

UNARY(relu, gpu_relu_of(x))
BINARY(relu_bwd, a > 0 ? b : 0)
UNARY(relu6, gpu_activated(x, CVY_ACTIVATION_RELU6))
BINARY(relu6_bwd, gpu_passes(a, CVY_ACTIVATION_RELU6) ? b : 0)
UNARY(sigmoid, 1 / (1 + expf(-x)))
BINARY(sigmoid_bwd, b * a * (1 - a))
UNARY(silu, x * sigmoid_of(x))
BINARY(silu_bwd, b * sigmoid_of(a) * (1 + a * sigmoid_of(-a)))
BINARY(add, a + b)
BINARY(add_relu, gpu_relu_of(a + b))

/* An enum cvy_op, or an addition with ReLU. */
enum { MAP_ADD_RELU = CVY_OP_COUNT };

GPU_BODY float map_one(int what, float a, float b)
{
    switch (what) {
#define CVY_OP(...)
#define CVY_OP_UNARY(ID, name, ...)                                                                                    \
    case CVY_OP_##ID:                                                                                                  \
        return name##_of(a);
#define CVY_OP_BINARY(ID, name, ...)                                                                                   \
    case CVY_OP_##ID:                                                                                                  \
        return name##_of(a, b);
#include "graph/ops.def"
    case MAP_ADD_RELU:
        return add_relu_of(a, b);
    default:
        return 0;
    }
}

struct map_args {
    const void *a, *b;
    void *y;
    int64_t count;
    int what;
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

GPU_EXTERN void gpu_elementwise(void *stream, enum cvy_op op, enum cvy_dtype dtype, const void *a, const void *b,
                                void *y, int64_t count, bool relu)
{
    struct map_args args = {a, b, y, count, relu ? MAP_ADD_RELU : (int)op};
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
