/* The words of kernels/launch.h for a C compiler: blocks and threads run one after the other on the host. A kernel with
 * barriers gets a stack for each thread of a block, and the threads take turns at every barrier. Launches can be
 * recorded and played again, which stands for stream capture. Not found this way: races between barriers, misaligned
 * addresses beyond those that are asserted, limits of registers. */
#ifndef CVY_TESTS_EMULATED_CUDA_EMULATE_H
#define CVY_TESTS_EMULATED_CUDA_EMULATE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct emulated_kernel {
    void (*call)(const void *args);
    size_t args_bytes;
    bool shared; /* its threads wait for each other */
    const char *name;
};

struct emulated_thread_position {
    int32_t thread, threads, block_x, block_y, blocks_x, blocks_y;
};
extern struct emulated_thread_position emulated_thread_position; /* one thread launches at a time */

void emulated_launch(const struct emulated_kernel *kernel, void *stream, int64_t blocks_x, int64_t blocks_y,
                     int threads, const void *args);
void emulated_sync(void);
unsigned emulated_ticket(unsigned *counter);
/* Stand-ins for kernels/warp.h, which documents them. Copies are made when they are waited for, matrices meet all
 * threads of a warp. */
void emulated_copy(void *to, const void *from, bool there, size_t bytes);
void emulated_copy_group(void);
void emulated_copy_wait(int pending); /* until no more than so many groups are on their way */
void emulated_mma(float (*widen)(uint16_t bits), float d[4], const uint32_t a[4], const uint32_t b[2]);
void emulated_load_matrices(const uint16_t *row, int count, bool turned, uint32_t *m);

#define GPU_BODY static inline __attribute__((unused))
/* A kernel without barriers is a loop over the threads of a block; one with them is called for each thread. */
#define EMULATED_FLAT(name, type)                                                                                      \
    static inline __attribute__((always_inline)) void name(const type a);                                              \
    static void name##_call(const void *args)                                                                          \
    {                                                                                                                  \
        type copy;                                                                                                     \
        memcpy(&copy, args, sizeof copy);                                                                              \
        for (int32_t t = 0; t < emulated_thread_position.threads; t++) {                                               \
            emulated_thread_position.thread = t;                                                                       \
            name(copy);                                                                                                \
        }                                                                                                              \
    }                                                                                                                  \
    static const struct emulated_kernel name##_kernel = {name##_call, sizeof(type), false, #name};                     \
    static inline __attribute__((always_inline)) void name(const type a)
#define EMULATED_SHARED(name, type)                                                                                    \
    static void name(const type a);                                                                                    \
    static void name##_call(const void *args)                                                                          \
    {                                                                                                                  \
        type copy;                                                                                                     \
        memcpy(&copy, args, sizeof copy);                                                                              \
        name(copy);                                                                                                    \
    }                                                                                                                  \
    static const struct emulated_kernel name##_kernel = {name##_call, sizeof(type), true, #name};                      \
    static void name(const type a)
#define GPU_KERNEL_OF(name, type, most_threads, function)                                                              \
    static void name##_call(const void *args)                                                                          \
    {                                                                                                                  \
        for (int32_t t = 0; t < emulated_thread_position.threads; t++) {                                               \
            emulated_thread_position.thread = t;                                                                       \
            function(args);                                                                                            \
        }                                                                                                              \
    }                                                                                                                  \
    static const struct emulated_kernel name##_kernel = {name##_call, sizeof(type), false, #name};
/* One step more, so that a name that is a macro is replaced before it is joined. */
#define GPU_KERNEL(name, type, most_threads)               EMULATED_FLAT(name, type)
#define GPU_KERNEL_SHARED(name, type, most_threads)        EMULATED_SHARED(name, type)
#define GPU_KERNEL_DENSE(name, type, most_threads, blocks) EMULATED_SHARED(name, type)
#define GPU_SHARED                                         static
#define GPU_SYNC()                                         emulated_sync()
#define GPU_THREAD                                         (emulated_thread_position.thread)
#define GPU_THREADS                                        (emulated_thread_position.threads)
#define GPU_BLOCK_X                                        (emulated_thread_position.block_x)
#define GPU_BLOCK_Y                                        (emulated_thread_position.block_y)
#define GPU_BLOCKS_X                                       (emulated_thread_position.blocks_x)
#define GPU_BLOCKS_Y                                       (emulated_thread_position.blocks_y)
#define GPU_TICKET(counter)                                emulated_ticket(counter)
#define GPU_FENCE()                                        ((void)0)
#define GPU_UNROLL
#define GPU_ROLLED
#define GPU_PROCESSORS 2 /* few, so that small images keep their blocks walking */
#define GPU_LAUNCH(name, stream, blocks_x, blocks_y, threads, args)                                                    \
    emulated_launch(&name##_kernel, stream, blocks_x, blocks_y, threads, &(args))
#define GPU_ROOM(type, name)                                                                                           \
    static __attribute__((aligned(128))) type name##_room;                                                             \
    type *const name = &name##_room
#define GPU_LAUNCH_ROOM(name, stream, blocks_x, blocks_y, threads, bytes, args)                                        \
    GPU_LAUNCH(name, stream, blocks_x, blocks_y, threads, args)
#define GPU_EXTERN

static inline float gpu_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t gpu_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float gpu_from_bf16(uint16_t bits)
{
    return gpu_float_of_bits((uint32_t)bits << 16);
}

static inline uint16_t gpu_to_bf16(float value)
{
    const uint32_t bits = gpu_bits_of_float(value);

    if ((bits & 0x7fffffffU) > 0x7f800000U)
        return 0x7fff;
    return (uint16_t)((bits + 0x7fffU + (bits >> 16 & 1)) >> 16);
}

static inline float gpu_from_f16(uint16_t bits)
{
    const uint32_t magnitude = bits & 0x7fffU, sign = (uint32_t)(bits & 0x8000U) << 16;
    /* Exponent and fraction in their places, then the bias: a product of a power of two, which is exact also where the
     * half is subnormal. */
    const float value = gpu_float_of_bits(magnitude << 13) * 0x1p112f;

    return gpu_float_of_bits(sign | (magnitude >= 0x7c00U ? 0x7f800000U | magnitude << 13 : gpu_bits_of_float(value)));
}

/* Round to nearest, ties to even. */
static inline uint16_t gpu_to_f16(float value)
{
    const uint32_t bits = gpu_bits_of_float(value), magnitude = bits & 0x7fffffffU;
    uint32_t half;

    if (magnitude > 0x7f800000U)
        return 0x7fff;
    if (magnitude >= 0x477ff000U) /* 65520: half way to what there is not */
        half = 0x7c00;
    else if (magnitude < 0x38800000U) /* 2^-14: in steps of 2^-24, which are those of floats from 0.5 to 1 */
        half = gpu_bits_of_float(gpu_float_of_bits(magnitude) + 0.5F) - 0x3f000000U;
    else /* a carry into the exponent comes out right by itself */
        half = (magnitude - 0x38000000U + 0xfffU + (magnitude >> 13 & 1)) >> 13;
    return (uint16_t)(half | (bits >> 16 & 0x8000U));
}

#endif
