/* Bias, residual and activation after a convolution that could not fuse them. */
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"

enum { EPILOGUE_THREADS = 256 };

struct epilogue_args {
    void *y;
    const float *bias;    /* `channels` numbers, or NULL */
    const void *residual; /* like y, or NULL */
    int64_t count;
    int32_t channels;
    enum cvy_activation activation;
};

/* NaN stays NaN. */
GPU_BODY float epilogue_of(const struct epilogue_args *a, float y, int32_t channel, float residual)
{
    y += residual;
    if (a->bias)
        y += a->bias[channel];
    return gpu_activated(y, a->activation);
}

#define TYPE f32
#include "backend/cuda/kernels/epilogue.inc"
#undef TYPE
#define TYPE f16
#include "backend/cuda/kernels/epilogue.inc"
#undef TYPE
#define TYPE bf16
#include "backend/cuda/kernels/epilogue.inc"
#undef TYPE

GPU_EXTERN void gpu_epilogue(void *stream, enum cvy_dtype dtype, void *y, const float *bias, const void *residual,
                             enum cvy_activation activation, int64_t rows, int64_t channels)
{
    struct epilogue_args args = {y, bias, residual, rows * channels, (int32_t)channels, activation};
    const int64_t blocks = (args.count + 8 * EPILOGUE_THREADS - 1) / (8 * EPILOGUE_THREADS);

    if (blocks == 0)
        return;
    if (dtype == CVY_F16)
        GPU_LAUNCH(epilogue_f16, stream, blocks, 1, EPILOGUE_THREADS, args);
    else if (dtype == CVY_BF16)
        GPU_LAUNCH(epilogue_bf16, stream, blocks, 1, EPILOGUE_THREADS, args);
    else
        GPU_LAUNCH(epilogue_f32, stream, blocks, 1, EPILOGUE_THREADS, args);
}
