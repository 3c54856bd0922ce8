/* What the 32 threads of a warp do together: products on tensor cores, and the fragments of matrices that these want;
 * and copies into shared memory that nobody waits for at once. Compute capability 8.0; on 7.5 copies are waited for, a
 * product is two of half the depth, and there is no bf16. On 7.0 nothing of this is called (own.c).
 *
 * All threads of a warp must come to each of the calls on matrices together (the kernel is declared with
 * GPU_KERNEL_SHARED). g = lane / 4 and t = lane % 4 below; pairs of 16-bit floats lie in 32 bits, the first one low. */
#ifndef CVY_BACKEND_CUDA_KERNELS_WARP_H
#define CVY_BACKEND_CUDA_KERNELS_WARP_H

#include "backend/cuda/kernels/launch.h"

#define GPU_LANE (GPU_THREAD % 32)
#define GPU_WARP (GPU_THREAD / 32)

#ifdef __CUDACC__

/* Turing and Volta; false on the host's side of the compiler too. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define GPU_OLDER 1
#else
#define GPU_OLDER 0
#endif

/* The begin of a kernel that is not asked for before 8.0: nothing of it is in the code for older GPUs. */
#define GPU_FROM_AMPERE()                                                                                              \
    do {                                                                                                               \
        if (GPU_OLDER) {                                                                                               \
            __trap();                                                                                                  \
            return;                                                                                                    \
        }                                                                                                              \
    } while (0)

/* Two 16-bit floats at once, to an address that is a multiple of 4. */
GPU_BODY void gpu_store_pair(uint16_t *to, uint32_t pair)
{
    *(uint32_t *)to = pair;
}

GPU_BODY uint32_t gpu_load_pair(const uint16_t *from)
{
    return *(const uint32_t *)from;
}

GPU_BODY uint32_t gpu_shared_address(const void *shared)
{
    return (uint32_t)__cvta_generic_to_shared(shared);
}

/* GPU_LANE, read where it stands: what is computed of it is not kept in registers around a loop. */
GPU_BODY int32_t gpu_lane_here(void)
{
    int32_t lane;

    __asm__ volatile("mov.u32 %0, %%laneid;\n" : "=r"(lane));
    return lane;
}

/* Queues a copy of 16 bytes; zeros where `there` is false (`from` must be a valid address all the same). */
GPU_BODY void gpu_copy_words(void *to, const void *from, bool there)
{
#if GPU_OLDER
    *(uint4 *)to = there ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
#else
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(gpu_shared_address(to)), "l"(from),
                     "r"(there ? 16 : 0)
                     : "memory");
#endif
}

/* The same of 8 bytes, four 16-bit floats. */
GPU_BODY void gpu_copy_four(void *to, const void *from, bool there)
{
#if GPU_OLDER
    *(uint2 *)to = there ? *(const uint2 *)from : make_uint2(0, 0);
#else
    __asm__ volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;\n" ::"r"(gpu_shared_address(to)), "l"(from),
                     "r"(there ? 8 : 0)
                     : "memory");
#endif
}

/* What this thread has queued since the last call is one group. */
GPU_BODY void gpu_copy_group(void)
{
#if !GPU_OLDER
    __asm__ volatile("cp.async.commit_group;\n" ::: "memory");
#endif
}

/* Waits until all but the last `pending` groups of this thread, a constant, have arrived. Others see them after the
 * next GPU_SYNC(). */
#if GPU_OLDER
#define GPU_COPY_WAIT(pending)
#else
#define GPU_COPY_WAIT(pending) __asm__ volatile("cp.async.wait_group %0;\n" ::"n"(pending) : "memory")
#endif
GPU_BODY void gpu_copy_wait(void)
{
    GPU_COPY_WAIT(1);
}

/* d (16 x 8, f32) += a (16 x 16) b (16 x 8). d: {row g, columns 2t, 2t + 1; the same of row g + 8}. a: {row g, columns
 * 2t and 2t + 1; row g + 8; row g, columns 2t + 8 and 2t + 9; row g + 8}. b: {rows 2t and 2t + 1 of column g; rows 2t +
 * 8 and 2t + 9}. PTX, mma.m16n8k16. gpu_mma8 is of half the depth, m16n8k8: of a the first two, of b the first. */
#define GPU_MMA(type)                                                                                                  \
    GPU_BODY void gpu_mma_##type(float d[4], const uint32_t a[4], const uint32_t b[2])                                 \
    {                                                                                                                  \
        __asm__("mma.sync.aligned.m16n8k16.row.col.f32." #type "." #type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "   \
                "{%8, %9}, {%0, %1, %2, %3};\n"                                                                        \
                : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                       \
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                                   \
    }                                                                                                                  \
    GPU_BODY void gpu_mma8_##type(float d[4], const uint32_t a[2], uint32_t b)                                         \
    {                                                                                                                  \
        __asm__("mma.sync.aligned.m16n8k8.row.col.f32." #type "." #type ".f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, "      \
                "{%0, %1, %2, %3};\n"                                                                                  \
                : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                       \
                : "r"(a[0]), "r"(a[1]), "r"(b));                                                                       \
    }
#if GPU_OLDER && __CUDA_ARCH__ >= 750
/* The two halves of the depth: m16n8k8 takes the first two registers of a and the first of b, then the others. */
GPU_BODY void gpu_mma_half(float d[4], uint32_t a0, uint32_t a1, uint32_t b)
{
    __asm__("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};\n"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a0), "r"(a1), "r"(b));
}

GPU_BODY void gpu_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    gpu_mma_half(d, a[0], a[1], b[0]);
    gpu_mma_half(d, a[2], a[3], b[1]);
}

GPU_BODY void gpu_mma8_f16(float d[4], const uint32_t a[2], uint32_t b)
{
    gpu_mma_half(d, a[0], a[1], b);
}
#elif GPU_OLDER
GPU_BODY void gpu_mma_f16(float[4], const uint32_t[4], const uint32_t[2])
{
    __trap();
}

GPU_BODY void gpu_mma8_f16(float[4], const uint32_t[2], uint32_t)
{
    __trap();
}
#else
GPU_MMA(f16)
GPU_MMA(bf16)
#endif
#undef GPU_MMA

#if GPU_OLDER
GPU_BODY void gpu_mma_bf16(float[4], const uint32_t[4], const uint32_t[2])
{
    __trap();
}

GPU_BODY void gpu_mma8_bf16(float[4], const uint32_t[2], uint32_t)
{
    __trap();
}
#endif

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 750
GPU_BODY void gpu_no_matrices(uint32_t *m, int count)
{
    GPU_UNROLL
    for (int i = 0; i < count; i++)
        m[i] = 0;
    __trap();
}

GPU_BODY void gpu_load_matrices(const uint16_t *, uint32_t m[4])
{
    gpu_no_matrices(m, 4);
}

GPU_BODY void gpu_load_matrices2(const uint16_t *, uint32_t m[2])
{
    gpu_no_matrices(m, 2);
}

GPU_BODY void gpu_load_turned(const uint16_t *, uint32_t m[4])
{
    gpu_no_matrices(m, 4);
}

GPU_BODY void gpu_load_turned2(const uint16_t *, uint32_t m[2])
{
    gpu_no_matrices(m, 2);
}
#else
/* Four matrices of 8 x 8 from shared memory, rows of 16 bytes anywhere: lane 8 i + j gives the address of row j of
 * matrix i. This lane gets columns 2t and 2t + 1 of row g. */
GPU_BODY void gpu_load_matrices(const uint16_t *row, uint32_t m[4])
{
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                     : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                     : "r"(gpu_shared_address(row))
                     : "memory");
}

/* Two matrices; lanes from 16 on give any valid address. */
GPU_BODY void gpu_load_matrices2(const uint16_t *row, uint32_t m[2])
{
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\n"
                     : "=r"(m[0]), "=r"(m[1])
                     : "r"(gpu_shared_address(row))
                     : "memory");
}

/* Four, turned round: rows 2t and 2t + 1 of column g. */
GPU_BODY void gpu_load_turned(const uint16_t *row, uint32_t m[4])
{
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                     : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                     : "r"(gpu_shared_address(row))
                     : "memory");
}

/* Two matrices, turned round; lanes from 16 on give any valid address. */
GPU_BODY void gpu_load_turned2(const uint16_t *row, uint32_t m[2])
{
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n"
                     : "=r"(m[0]), "=r"(m[1])
                     : "r"(gpu_shared_address(row))
                     : "memory");
}
#endif

#else

#define GPU_FROM_AMPERE() (void)0

GPU_BODY int32_t gpu_lane_here(void)
{
    return GPU_LANE;
}

GPU_BODY void gpu_store_pair(uint16_t *to, uint32_t pair)
{
    assert(((uintptr_t)to & 3) == 0);
    memcpy(to, &pair, sizeof pair);
}

GPU_BODY uint32_t gpu_load_pair(const uint16_t *from)
{
    uint32_t pair;

    assert(((uintptr_t)from & 3) == 0);
    memcpy(&pair, from, sizeof pair);
    return pair;
}

GPU_BODY void gpu_copy_words(void *to, const void *from, bool there)
{
    emulated_copy(to, from, there, 16);
}

GPU_BODY void gpu_copy_four(void *to, const void *from, bool there)
{
    emulated_copy(to, from, there, 8);
}

GPU_BODY void gpu_copy_group(void)
{
    emulated_copy_group();
}

#define GPU_COPY_WAIT(pending) emulated_copy_wait(pending)
GPU_BODY void gpu_copy_wait(void)
{
    GPU_COPY_WAIT(1);
}

GPU_BODY void gpu_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    emulated_mma(gpu_from_f16, d, a, b);
}

GPU_BODY void gpu_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    emulated_mma(gpu_from_bf16, d, a, b);
}

GPU_BODY void gpu_mma8_of(float (*widen)(uint16_t bits), float d[4], const uint32_t a[2], uint32_t b)
{
    const uint32_t whole[4] = {a[0], a[1], 0, 0}, both[2] = {b, 0};

    emulated_mma(widen, d, whole, both);
}

GPU_BODY void gpu_mma8_f16(float d[4], const uint32_t a[2], uint32_t b)
{
    gpu_mma8_of(gpu_from_f16, d, a, b);
}

GPU_BODY void gpu_mma8_bf16(float d[4], const uint32_t a[2], uint32_t b)
{
    gpu_mma8_of(gpu_from_bf16, d, a, b);
}

GPU_BODY void gpu_load_matrices2(const uint16_t *row, uint32_t m[2])
{
    emulated_load_matrices(row, 2, false, m);
}

GPU_BODY void gpu_load_matrices(const uint16_t *row, uint32_t m[4])
{
    emulated_load_matrices(row, 4, false, m);
}

GPU_BODY void gpu_load_turned(const uint16_t *row, uint32_t m[4])
{
    emulated_load_matrices(row, 4, true, m);
}

GPU_BODY void gpu_load_turned2(const uint16_t *row, uint32_t m[2])
{
    emulated_load_matrices(row, 2, true, m);
}

#endif

GPU_BODY struct gpu_words gpu_words_of(const float v[4])
{
    struct gpu_words words;

    GPU_UNROLL
    for (int i = 0; i < 4; i++)
        words.word[i] = gpu_bits_of_float(v[i]);
    return words;
}

#endif
