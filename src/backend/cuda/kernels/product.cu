/* A product of matrices for where no library has one: tiles of both factors in shared memory, a thread for each element
 * of a tile of the result. Any alignment. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"

enum { PRODUCT_TILE = 16, PRODUCT_THREADS = PRODUCT_TILE * PRODUCT_TILE };

struct product_args {
    struct gpu_product what;
    const float *a, *b, *bias;
    float *c;
};

/* Element (row, column) of a matrix as it is multiplied, 0 beyond its ends. */
GPU_BODY float product_factor(const float *x, bool transposed, int64_t rows, int64_t columns, int64_t row,
                              int64_t column)
{
    if (row >= rows || column >= columns)
        return 0;
    return transposed ? x[column * rows + row] : x[row * columns + column];
}

GPU_KERNEL_SHARED(product, struct product_args, PRODUCT_THREADS)
{
    GPU_SHARED float left[PRODUCT_TILE][PRODUCT_TILE + 1], right[PRODUCT_TILE][PRODUCT_TILE + 1];
    const int32_t across = GPU_THREAD % PRODUCT_TILE, down = GPU_THREAD / PRODUCT_TILE;
    const int64_t row0 = (int64_t)GPU_BLOCK_Y * PRODUCT_TILE, column0 = (int64_t)GPU_BLOCK_X * PRODUCT_TILE;
    /* Threads beside each other read elements beside each other, also of what is transposed. */
    const int32_t left_row = a.what.transpose_a ? across : down, left_column = a.what.transpose_a ? down : across;
    const int32_t right_row = a.what.transpose_b ? across : down, right_column = a.what.transpose_b ? down : across;
    float sum = 0;

    for (int64_t k = 0; k < a.what.k; k += PRODUCT_TILE) {
        left[left_row][left_column] =
            product_factor(a.a, a.what.transpose_a, a.what.m, a.what.k, row0 + left_row, k + left_column);
        right[right_row][right_column] =
            product_factor(a.b, a.what.transpose_b, a.what.k, a.what.n, k + right_row, column0 + right_column);
        GPU_SYNC();
        for (int32_t i = 0; i < PRODUCT_TILE; i++)
            sum = fmaf(left[down][i], right[i][across], sum);
        GPU_SYNC();
    }
    if (row0 + down < a.what.m && column0 + across < a.what.n)
        a.c[(row0 + down) * a.what.n + column0 + across] = sum + (a.bias ? a.bias[column0 + across] : 0);
}

GPU_EXTERN void gpu_product(void *stream, const struct gpu_product *what, const float *a, const float *b,
                            const float *bias, float *c)
{
    const struct product_args args = {*what, a, b, bias, c};
    const int64_t across = (what->n + PRODUCT_TILE - 1) / PRODUCT_TILE,
                  down = (what->m + PRODUCT_TILE - 1) / PRODUCT_TILE;

    if (across > 0 && down > 0)
        GPU_LAUNCH(product, stream, across, down, PRODUCT_THREADS, args);
}
