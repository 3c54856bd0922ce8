/* 1x1 convolutions in 16-bit floats, channels last, with the statistics of what they write, and their gradients of data
 * with what follows in the batch norm before them: products on tensor cores, sums in f32. For layers whose time is that
 * of their memory: what they write is not read again for its sums.
 *
 * A block, a walker, makes 64 or 128 outputs of the pixels of tiles that it walks over, 128 pixels each: DEPTH inputs at
 * a time come into shared memory, several such stages ahead of the products, those of the next tile while this one is
 * being written. It leaves the sums of its channels; a second kernel adds those of all walkers in order, so that the
 * results are the same in every run. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/warp.h"

enum {
    POINTWISE_THREADS = 256,
    ROWS = 128,         /* pixels of a tile */
    DEPTH = 32,         /* inputs of a stage */
    UNITS = DEPTH / 8,  /* of 16 bytes, for a pixel */
    LINES = POINTWISE_THREADS / UNITS,
    BLOCKS_EACH = 2     /* on a processor */
};

struct pointwise_args {
    const void *x, *w;
    void *y;
    float *partial; /* (walkers, 2, outputs): sums of y and of its square; backward of y (norm_x - mean) */
    /* Backward: x is dy and y is dx. */
    const void *norm_x, *more;
    const uint8_t *sign;
    const float *mean;
    int64_t rows;   /* pixels of y */
    int32_t inputs, outputs, tiles;
    int32_t stride, in[2], out[2]; /* stride 1: x has the rows of y */
};

/* The rows of x that a thread brings, or NULL after the last one. */
struct rows {
    const uint16_t *x[ROWS / LINES];
};

GPU_BODY struct rows rows_of(const struct pointwise_args *a, int64_t first_row)
{
    struct rows rows;

    GPU_UNROLL
    for (int i = 0; i < ROWS / LINES; i++) {
        const int64_t row = first_row + GPU_THREAD / UNITS + i * LINES;
        int64_t from = row;
        if (a->stride > 1) {
            const int32_t at = (int32_t)row, line = at / a->out[1], image = line / a->out[0];
            from = ((int64_t)image * a->in[0] + (line - image * a->out[0]) * a->stride) * a->in[1] +
                   (at - line * a->out[1]) * a->stride;
        }
        rows.x[i] = row < a->rows ? (const uint16_t *)a->x + from * a->inputs : NULL;
    }
    return rows;
}

/* Where 8 numbers lie in a stage, and of an output in the tile that is made: those of 8 neighbouring rows in banks of
 * their own. */
GPU_BODY int32_t stage_place(int32_t row, int32_t unit)
{
    return (row * UNITS + (unit ^ (row >> 1 & (UNITS - 1)))) * 8;
}

GPU_BODY int32_t made_place(int32_t row, int32_t unit, int32_t units)
{
    return (row * units + (unit ^ (row & 7))) * 8;
}

#define BACKWARD 0
#include "backend/cuda/kernels/pointwise_types.inc"
#undef BACKWARD
#define BACKWARD 1
#include "backend/cuda/kernels/pointwise_types.inc"
#undef BACKWARD

/* ---- launches ---- */

static int32_t wide_of(const struct gpu_pointwise *what)
{
    return what->outputs <= 64 ? 64 : 128;
}

static int64_t rows_in_all(const struct gpu_pointwise *what)
{
    return what->n * what->p * what->q;
}

static int64_t tiles_of(const struct gpu_pointwise *what)
{
    return (rows_in_all(what) + ROWS - 1) / ROWS;
}

/* Blocks that walk over the tiles, for each of the blocks of outputs: as many as there is room for at once. */
static int64_t walkers_of(const struct gpu_pointwise *what)
{
    const int64_t columns = (what->outputs + wide_of(what) - 1) / wide_of(what), tiles = tiles_of(what);
    const int64_t maximum = (BLOCKS_EACH * GPU_PROCESSORS + columns - 1) / columns;

    return maximum < tiles ? maximum : tiles;
}

GPU_EXTERN int64_t gpu_pointwise_scratch(const struct gpu_pointwise *what)
{
    return walkers_of(what) * 2 * what->outputs;
}

#define LAUNCH(suffix)                                                                                                 \
    GPU_LAUNCH_ROOM(pointwise##suffix, stream, walkers, columns, POINTWISE_THREADS, sizeof(union room##suffix), *args)
#define LAUNCH_TYPE(way)                                                                                               \
    do {                                                                                                               \
        if (what->dtype == CVY_F16 && wide == 64)                                                                      \
            LAUNCH(way##64_f16);                                                                                       \
        else if (what->dtype == CVY_F16)                                                                               \
            LAUNCH(way##128_f16);                                                                                      \
        else if (wide == 64)                                                                                           \
            LAUNCH(way##64_bf16);                                                                                      \
        else                                                                                                           \
            LAUNCH(way##128_bf16);                                                                                     \
    } while (0)

static struct pointwise_args args_of(const struct gpu_pointwise *what, float *scratch)
{
    struct pointwise_args args;

    memset(&args, 0, sizeof args);
    args.partial = scratch;
    args.rows = rows_in_all(what);
    args.inputs = (int32_t)what->inputs;
    args.outputs = (int32_t)what->outputs;
    args.tiles = (int32_t)tiles_of(what);
    args.stride = what->stride;
    args.in[0] = (int32_t)what->h;
    args.in[1] = (int32_t)what->w;
    args.out[0] = (int32_t)what->p;
    args.out[1] = (int32_t)what->q;
    return args;
}

static void launch(void *stream, const struct gpu_pointwise *what, bool backward, const struct pointwise_args *args)
{
    const int32_t wide = wide_of(what);
    const int64_t walkers = walkers_of(what), columns = (what->outputs + wide - 1) / wide;

    if (backward)
        LAUNCH_TYPE(_backward);
    else
        LAUNCH_TYPE(_forward);
}

GPU_EXTERN void gpu_pointwise_forward(void *stream, const struct gpu_pointwise *what, const void *x, const void *w,
                                      void *y, float *mean, float *variance, float *scratch)
{
    struct pointwise_args args = args_of(what, scratch);

    args.x = x;
    args.w = w;
    args.y = y;
    launch(stream, what, false, &args);
    gpu_walkers_moments(stream, scratch, walkers_of(what), args.rows, args.outputs, mean, variance);
}

GPU_EXTERN void gpu_pointwise_backward(void *stream, const struct gpu_pointwise *what,
                                       const struct gpu_pointwise_gradient *gradient, float *scratch)
{
    struct pointwise_args args = args_of(what, scratch);

    args.x = gradient->dy;
    args.w = gradient->w;
    args.y = gradient->dx;
    args.norm_x = gradient->x;
    args.more = gradient->more;
    args.sign = gradient->sign;
    args.mean = gradient->mean;
    launch(stream, what, true, &args);
    gpu_walkers_gradients(stream, scratch, walkers_of(what), args.outputs, gradient->rstd, gradient->dgamma,
                          gradient->dbeta);
}
