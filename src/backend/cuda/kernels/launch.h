/* One source for two compilers. nvcc makes GPU code of the .cu files; for the tests a C compiler makes functions of
 * them that run thread after thread on the host (tests/emulated_cuda). They are therefore C, but for the words below.
 *
 * A kernel takes one struct by value, has one-dimensional blocks and a grid of one or two dimensions:
 *
 *     GPU_KERNEL(double_it, struct double_args, 256)
 *     {
 *         const int64_t i = (int64_t)GPU_BLOCK_X * GPU_THREADS + GPU_THREAD;
 *         if (i < a.count)
 *             a.y[i] = 2 * a.x[i];
 *     }
 *     ... GPU_LAUNCH(double_it, stream, blocks, 1, 256, args);
 *
 * One with many arguments is better a function of a pointer to them, which the host need not copy for each thread:
 * GPU_KERNEL_OF(name, struct name_args, 256, function).
 *
 * One that waits for the other threads of its block with GPU_SYNC() is declared with GPU_KERNEL_SHARED: all threads of
 * the block must reach every GPU_SYNC(). GPU_KERNEL_DENSE is the same with registers for `blocks` of them at once on a
 * processor. */
#ifndef CVY_BACKEND_CUDA_KERNELS_LAUNCH_H
#define CVY_BACKEND_CUDA_KERNELS_LAUNCH_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/types.h"
#include "graph/op.h"

#ifdef __CUDACC__

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define GPU_BODY                               static __device__ __forceinline__
#define GPU_KERNEL(name, type, threads)        static __global__ void __launch_bounds__(threads) name(const type a)
#define GPU_KERNEL_SHARED(name, type, threads) GPU_KERNEL(name, type, threads)
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define GPU_DENSITY(blocks) 1 /* they need other registers there; without a number ptxas may choose too few of them */
#else
#define GPU_DENSITY(blocks) blocks
#endif
#define GPU_KERNEL_DENSE(name, type, threads, blocks)                                                                  \
    static __global__ void __launch_bounds__(threads, GPU_DENSITY(blocks)) name(const type a)
#define GPU_KERNEL_OF(name, type, threads, function)                                                                   \
    GPU_KERNEL(name, type, threads)                                                                                    \
    {                                                                                                                  \
        function(&a);                                                                                                  \
    }
#define GPU_SHARED   __shared__
#define GPU_SYNC()   __syncthreads()
#define GPU_THREAD   ((int32_t)threadIdx.x)
#define GPU_THREADS  ((int32_t)blockDim.x)
#define GPU_BLOCK_X  ((int32_t)blockIdx.x)
#define GPU_BLOCK_Y  ((int32_t)blockIdx.y)
#define GPU_BLOCKS_X ((int32_t)gridDim.x)
#define GPU_BLOCKS_Y ((int32_t)gridDim.y)
/* Adds to a counter of all blocks and returns what was there; what this thread wrote before is seen by whoever sees the
 * new count. */
#define GPU_TICKET(counter) (__threadfence(), atomicAdd(counter, 1U))
#define GPU_FENCE()         __threadfence()
#define GPU_UNROLL          _Pragma("unroll")
#define GPU_ROLLED          _Pragma("unroll 1")
/* How many blocks walk over tiles is made for the processors of an H200, and the same everywhere: so are sums. */
#define GPU_PROCESSORS 132
#define GPU_LAUNCH(name, stream, blocks_x, blocks_y, threads, args)                                                    \
    name<<<dim3((unsigned)(blocks_x), (unsigned)(blocks_y)), dim3((unsigned)(threads)), 0, (cudaStream_t)(stream)>>>(  \
        args)
/* Shared memory of more than 48 KiB, the only one of its kernel: `name` is a pointer to a `type`, whose size the launch
 * gives. */
#define GPU_ROOM(type, name)                                                                                           \
    extern __shared__ __align__(128) uint8_t gpu_room[];                                                               \
    type *const name = (type *)gpu_room
#define GPU_LAUNCH_ROOM(name, stream, blocks_x, blocks_y, threads, bytes, args)                                        \
    do {                                                                                                               \
        /* What this returns the launch returns too. */                                                                \
        (void)cudaFuncSetAttribute((const void *)name, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)(bytes));     \
        name<<<dim3((unsigned)(blocks_x), (unsigned)(blocks_y)), dim3((unsigned)(threads)), (size_t)(bytes),           \
               (cudaStream_t)(stream)>>>(args);                                                                        \
    } while (0)
#define GPU_EXTERN extern "C"
#define restrict __restrict__

#else

#include <emulate.h> /* of tests/emulated_cuda */

#endif

#ifdef __CUDACC__

/* GPU_THREAD, read again: what is computed of it in a loop is not kept in registers around it. */
GPU_BODY int32_t gpu_thread_again(void)
{
    uint32_t thread;

    __asm__ volatile("mov.u32 %0, %%tid.x;\n" : "=r"(thread));
    return (int32_t)(thread & 1023);
}

#else

GPU_BODY int32_t gpu_thread_again(void)
{
    return GPU_THREAD;
}

#endif

/* ---- 16-bit floats, stored as uint16_t ---- */

#ifdef __CUDACC__

GPU_BODY float gpu_from_f16(uint16_t bits)
{
    return __half2float(__ushort_as_half(bits));
}

GPU_BODY uint16_t gpu_to_f16(float value)
{
    return __half_as_ushort(__float2half_rn(value));
}

GPU_BODY float gpu_from_bf16(uint16_t bits)
{
    return __uint_as_float((uint32_t)bits << 16);
}

/* Before 8.0 there is no instruction for it; the header's own way there takes more registers. */
GPU_BODY uint16_t gpu_to_bf16(float value)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    const uint32_t bits = __float_as_uint(value);

    if ((bits & 0x7fffffffU) > 0x7f800000U)
        return 0x7fff;
    return (uint16_t)((bits + 0x7fffU + (bits >> 16 & 1)) >> 16);
#else
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
#endif
}

#endif

/* What the suffixes of a type mean: the element in memory and the ways in and out. */
#define GPU_ELEMENT_f32   float
#define GPU_ELEMENT_f16   uint16_t
#define GPU_ELEMENT_bf16  uint16_t
#define GPU_JOIN_(a, b)   a##b
#define GPU_JOIN(a, b)    GPU_JOIN_(a, b)
#define GPU_ELEMENT(type) GPU_JOIN(GPU_ELEMENT_, type)

GPU_BODY float gpu_get_f32(const float *from)
{
    return *from;
}

GPU_BODY float gpu_get_f16(const uint16_t *from)
{
    return gpu_from_f16(*from);
}

GPU_BODY float gpu_get_bf16(const uint16_t *from)
{
    return gpu_from_bf16(*from);
}

GPU_BODY void gpu_put_f32(float *to, float value)
{
    *to = value;
}

GPU_BODY void gpu_put_f16(uint16_t *to, float value)
{
    *to = gpu_to_f16(value);
}

GPU_BODY void gpu_put_bf16(uint16_t *to, float value)
{
    *to = gpu_to_bf16(value);
}

/* An element of a type that only the launch knows: f32, f16 or bf16. */
GPU_BODY float gpu_get_any(enum cvy_dtype dtype, const void *x, int64_t i)
{
    if (dtype == CVY_F16)
        return gpu_get_f16((const uint16_t *)x + i);
    if (dtype == CVY_BF16)
        return gpu_get_bf16((const uint16_t *)x + i);
    return gpu_get_f32((const float *)x + i);
}

GPU_BODY void gpu_put_any(enum cvy_dtype dtype, void *y, int64_t i, float value)
{
    if (dtype == CVY_F16)
        gpu_put_f16((uint16_t *)y + i, value);
    else if (dtype == CVY_BF16)
        gpu_put_bf16((uint16_t *)y + i, value);
    else
        gpu_put_f32((float *)y + i, value);
}

/* max(x, 0), and no more than 6 of ReLU6; NaN stays NaN. */
GPU_BODY float gpu_relu_of(float x)
{
    return x <= 0 ? 0 : x;
}

GPU_BODY float gpu_activated(float x, enum cvy_activation activation)
{
    if (activation != CVY_ACTIVATION_NONE && x <= 0)
        return 0;
    return activation == CVY_ACTIVATION_RELU6 && x > 6 ? 6 : x;
}

/* Whether a gradient passes the activation applied to y, if there is one. */
GPU_BODY bool gpu_passes(float y, enum cvy_activation activation)
{
    return activation == CVY_ACTIVATION_NONE || (y > 0 && (activation != CVY_ACTIVATION_RELU6 || y < 6));
}

/* What is left of a number that goes to memory in a type. */
GPU_BODY float gpu_round_f32(float value)
{
    return value;
}

GPU_BODY float gpu_round_f16(float value)
{
    return gpu_from_f16(gpu_to_f16(value));
}

GPU_BODY float gpu_round_bf16(float value)
{
    return gpu_from_bf16(gpu_to_bf16(value));
}

/* 16 bytes at a time, from addresses that are multiples of 16. */
struct gpu_words {
    uint32_t word[4];
};

#ifdef __CUDACC__

GPU_BODY struct gpu_words gpu_load_words(const void *from)
{
    const uint4 v = *(const uint4 *)from;
    struct gpu_words words = {{v.x, v.y, v.z, v.w}};
    return words;
}

GPU_BODY void gpu_store_words(void *to, struct gpu_words words)
{
    *(uint4 *)to = make_uint4(words.word[0], words.word[1], words.word[2], words.word[3]);
}

GPU_BODY float gpu_float_of_bits(uint32_t bits)
{
    return __uint_as_float(bits);
}

GPU_BODY uint32_t gpu_bits_of_float(float value)
{
    return __float_as_uint(value);
}

#else

GPU_BODY struct gpu_words gpu_load_words(const void *from)
{
    struct gpu_words words;

    assert(((uintptr_t)from & 15) == 0);
    memcpy(&words, from, sizeof words);
    return words;
}

GPU_BODY void gpu_store_words(void *to, struct gpu_words words)
{
    assert(((uintptr_t)to & 15) == 0);
    memcpy(to, &words, sizeof words);
}

#endif

/* Two elements of 16 bits: of floats, and added and rounded: a sum in f32, rounded again, is the same, as f32 has more
 * than twice their digits. */
#ifdef __CUDACC__

GPU_BODY uint32_t gpu_to_pair_f16(float low, float high)
{
    const __half2 pair = __floats2half2_rn(low, high);

    return *(const uint32_t *)&pair;
}

GPU_BODY uint32_t gpu_to_pair_bf16(float low, float high)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    return gpu_to_bf16(low) | (uint32_t)gpu_to_bf16(high) << 16;
#else
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);

    return *(const uint32_t *)&pair;
#endif
}

GPU_BODY uint32_t gpu_add_pair_f16(uint32_t a, uint32_t b)
{
    const __half2 x = *(const __half2 *)&a, y = *(const __half2 *)&b, sum = __hadd2_rn(x, y);

    return *(const uint32_t *)&sum;
}

GPU_BODY uint32_t gpu_add_pair_bf16(uint32_t a, uint32_t b)
{
    const __nv_bfloat162 x = *(const __nv_bfloat162 *)&a, y = *(const __nv_bfloat162 *)&b, sum = __hadd2_rn(x, y);

    return *(const uint32_t *)&sum;
}

/* sum + v where `bits` is 0, else sum. */
GPU_BODY float gpu_add_unless(uint32_t bits, float sum, float v)
{
    asm("{\n\t.reg .pred p;\n\tsetp.eq.u32 p, %1, 0;\n\t@p add.rn.f32 %0, %0, %2;\n\t}"
        : "+f"(sum)
        : "r"(bits), "f"(v));
    return sum;
}

#else

GPU_BODY uint32_t gpu_to_pair_f16(float low, float high)
{
    return gpu_to_f16(low) | (uint32_t)gpu_to_f16(high) << 16;
}

GPU_BODY uint32_t gpu_to_pair_bf16(float low, float high)
{
    return gpu_to_bf16(low) | (uint32_t)gpu_to_bf16(high) << 16;
}

GPU_BODY uint32_t gpu_add_pair_f16(uint32_t a, uint32_t b)
{
    const float low = gpu_from_f16((uint16_t)a) + gpu_from_f16((uint16_t)b);
    const float high = gpu_from_f16((uint16_t)(a >> 16)) + gpu_from_f16((uint16_t)(b >> 16));

    return gpu_to_pair_f16(low, high);
}

GPU_BODY uint32_t gpu_add_pair_bf16(uint32_t a, uint32_t b)
{
    const float low = gpu_from_bf16((uint16_t)a) + gpu_from_bf16((uint16_t)b);
    const float high = gpu_from_bf16((uint16_t)(a >> 16)) + gpu_from_bf16((uint16_t)(b >> 16));

    return gpu_to_pair_bf16(low, high);
}

GPU_BODY float gpu_add_unless(uint32_t bits, float sum, float v)
{
    return bits ? sum : sum + v;
}

#endif

/* Eight elements as floats: as they were loaded (gpu_widen8), or loaded at once (gpu_get8). */
GPU_BODY void gpu_widen8_f32(const struct gpu_words words[2], float v[8])
{
    GPU_UNROLL
    for (int i = 0; i < 8; i++)
        v[i] = gpu_float_of_bits(words[i / 4].word[i % 4]);
}

GPU_BODY void gpu_get8_f32(const float *from, float v[8])
{
    const struct gpu_words words[2] = {gpu_load_words(from), gpu_load_words(from + 4)};

    gpu_widen8_f32(words, v);
}

GPU_BODY void gpu_put8_f32(float *to, const float v[8])
{
    GPU_UNROLL
    for (int half = 0; half < 2; half++) {
        struct gpu_words words;
        GPU_UNROLL
        for (int i = 0; i < 4; i++)
            words.word[i] = gpu_bits_of_float(v[4 * half + i]);
        gpu_store_words(to + 4 * half, words);
    }
}

#define GPU_EIGHT(type)                                                                                                \
    GPU_BODY void gpu_widen8_##type(const struct gpu_words words[1], float v[8])                                       \
    {                                                                                                                  \
        GPU_UNROLL                                                                                                     \
        for (int i = 0; i < 4; i++) {                                                                                  \
            v[2 * i] = gpu_from_##type((uint16_t)words[0].word[i]);                                                    \
            v[2 * i + 1] = gpu_from_##type((uint16_t)(words[0].word[i] >> 16));                                        \
        }                                                                                                              \
    }                                                                                                                  \
    GPU_BODY void gpu_get8_##type(const uint16_t *from, float v[8])                                                    \
    {                                                                                                                  \
        const struct gpu_words words[1] = {gpu_load_words(from)};                                                      \
        gpu_widen8_##type(words, v);                                                                                   \
    }                                                                                                                  \
    GPU_BODY struct gpu_words gpu_narrow8_##type(const float v[8])                                                     \
    {                                                                                                                  \
        struct gpu_words words;                                                                                        \
        GPU_UNROLL                                                                                                     \
        for (int i = 0; i < 4; i++)                                                                                    \
            words.word[i] = gpu_to_pair_##type(v[2 * i], v[2 * i + 1]);                                                \
        return words;                                                                                                  \
    }                                                                                                                  \
    GPU_BODY void gpu_put8_##type(uint16_t *to, const float v[8])                                                      \
    {                                                                                                                  \
        gpu_store_words(to, gpu_narrow8_##type(v));                                                                    \
    }
GPU_EIGHT(f16)
GPU_EIGHT(bf16)
#undef GPU_EIGHT

/* Sum over the threads of a block, in a fixed order; every thread gets it. `shared_sums` has GPU_THREADS floats of
 * shared memory, which may be used again after the next GPU_SYNC(). GPU_THREADS is a power of two. */
GPU_BODY float gpu_block_sum(float *shared_sums, float value)
{
    shared_sums[GPU_THREAD] = value;
    GPU_SYNC();
    for (int32_t step = GPU_THREADS / 2; step > 0; step /= 2) {
        if (GPU_THREAD < step)
            shared_sums[GPU_THREAD] += shared_sums[GPU_THREAD + step];
        GPU_SYNC();
    }
    value = shared_sums[0];
    GPU_SYNC();
    return value;
}

#endif
