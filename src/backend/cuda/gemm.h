/* Matrix products as linear.c and peak.c ask for them: cuBLASLt (gemm.c), and in the tests plain loops. Row-major. */
#ifndef CVY_BACKEND_CUDA_GEMM_H
#define CVY_BACKEND_CUDA_GEMM_H

#include "backend/cuda/gpu.h"

/* C (m x n) = op(A) op(B), op = transpose where asked for: A is m x k or k x m, B is k x n or n x k. */
struct gpu_gemm_problem {
    int64_t m, n, k;
    enum cvy_dtype dtype; /* of all three: f32, or f16 and bf16 with sums in f32 */
    bool transpose_a, transpose_b;
    bool bias; /* C += bias (n) in every row */
    bool tf32; /* on tensor cores */
};
struct gpu_gemm;
CVY_CHECKED cvy_status gpu_gemm_open(struct gpu_device *device, const struct gpu_gemm_problem *problem,
                                     struct gpu_gemm **gemm);
void gpu_gemm_close(struct gpu_gemm *gemm); /* accepts NULL */
size_t gpu_gemm_scratch(const struct gpu_gemm *gemm);
CVY_CHECKED cvy_status gpu_gemm_run(struct gpu_device *device, const struct gpu_gemm *gemm, const void *a,
                                    const void *b, const float *bias, void *c, void *scratch);

#endif
