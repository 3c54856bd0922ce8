/* Matrix products on cuBLASLt. It counts in columns: a row-major C = A B is the column-major C' = B' A' of the same
 * memory, so the operands change places. */
#include "backend/cuda/gemm.h"

#include <string.h>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/libraries.h"
#include "base/log.h"

/* Memory of others (slices of the arenas) may begin at any float; what is usual begins at more, and is faster. Where
 * cuBLASLt has nothing for an alignment, the algorithm of a smaller one does it, else a plain kernel of ours. */
enum { ALIGNMENTS = 2 };
static const uint32_t alignments[ALIGNMENTS] = {16, sizeof(float)};
static const uint64_t max_workspace = 32 << 20;

struct gpu_gemm {
    const struct gpu_libraries *libraries; /* the device's */
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t first, second, result; /* B, A and C */
    struct gpu_gemm_problem problem;
    cublasLtMatmulAlgo_t algorithms[ALIGNMENTS];
    bool has[ALIGNMENTS]; /* such an algorithm */
    size_t workspace;
};

static cvy_status check(const struct gpu_libraries *libraries, cublasStatus_t result, const char *what)
{
    if (result == CUBLAS_STATUS_SUCCESS)
        return CVY_OK;
    return cvy_fail(result == CUBLAS_STATUS_NOT_SUPPORTED ? CVY_UNAVAILABLE : CVY_FAILED, "%s: %s", what,
                    libraries->cublaslt.cublasLtGetStatusString(result));
}

/* ---- descriptors ---- */

static cvy_status set(const struct gpu_gemm *gemm, cublasLtMatmulDescAttributes_t name, const void *value, size_t size)
{
    return check(gemm->libraries,
                 gemm->libraries->cublaslt.cublasLtMatmulDescSetAttribute(gemm->operation, name, value, size),
                 "cuBLASLt does not take an attribute of a product");
}

/* A row-major matrix of `rows` rows. */
static cvy_status lay_out(const struct gpu_gemm *gemm, int64_t rows, int64_t columns, cublasLtMatrixLayout_t *layout)
{
    const cudaDataType_t type = gemm->problem.dtype == CVY_F16    ? CUDA_R_16F
                                : gemm->problem.dtype == CVY_BF16 ? CUDA_R_16BF
                                                                  : CUDA_R_32F;

    return check(
        gemm->libraries,
        gemm->libraries->cublaslt.cublasLtMatrixLayoutCreate(layout, type, (uint64_t)columns, (uint64_t)rows, columns),
        "cuBLASLt does not take a matrix");
}

static cvy_status describe(struct gpu_gemm *gemm, const struct gpu_gemm_problem *p)
{
    const cublasComputeType_t compute =
        p->tf32 && p->dtype == CVY_F32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    const cublasOperation_t first = p->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = p->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasLtEpilogue_t epilogue = p->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;

    CVY_TRY(check(gemm->libraries,
                  gemm->libraries->cublaslt.cublasLtMatmulDescCreate(&gemm->operation, compute, CUDA_R_32F),
                  "cuBLASLt does not take a product"));
    CVY_TRY(set(gemm, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    CVY_TRY(set(gemm, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second));
    CVY_TRY(set(gemm, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    CVY_TRY(lay_out(gemm, p->transpose_b ? p->n : p->k, p->transpose_b ? p->k : p->n, &gemm->first));
    CVY_TRY(lay_out(gemm, p->transpose_a ? p->k : p->m, p->transpose_a ? p->m : p->k, &gemm->second));
    return lay_out(gemm, p->m, p->n, &gemm->result);
}

/* ---- the algorithm ---- */

static cvy_status prefer(const struct gpu_libraries *libraries, cublasLtMatmulPreference_t preference,
                         uint32_t alignment)
{
    /* Sums that are split over blocks only where their parts are stored and then added by a step of its own: else the
     * order may be the hardware's. */
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t size;
    } wishes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &max_workspace, sizeof max_workspace},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment, sizeof alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment, sizeof alignment},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, sizeof alignment},
    };

    for (size_t i = 0; i < sizeof wishes / sizeof *wishes; i++)
        CVY_TRY(check(libraries,
                      libraries->cublaslt.cublasLtMatmulPreferenceSetAttribute(preference, wishes[i].name,
                                                                               wishes[i].value, wishes[i].size),
                      "cuBLASLt does not take a wish"));
    return CVY_OK;
}

static cvy_status choose(struct gpu_gemm *gemm, int which)
{
    const struct gpu_libraries *libraries = gemm->libraries;
    const void *bias = (const void *)(uintptr_t)alignments[which]; /* only its alignment matters */
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    cvy_status status;

    CVY_GOTO(
        check(libraries, libraries->cublaslt.cublasLtMatmulPreferenceCreate(&preference), "cuBLASLt takes no wishes"));
    CVY_GOTO(prefer(libraries, preference, alignments[which]));
    if (gemm->problem.bias)
        CVY_GOTO(set(gemm, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    CVY_GOTO(check(libraries,
                   libraries->cublaslt.cublasLtMatmulAlgoGetHeuristic(libraries->cublaslt_handle, gemm->operation,
                                                                      gemm->first, gemm->second, gemm->result,
                                                                      gemm->result, preference, 1, &found, &count),
                   "cuBLASLt has nothing for a product"));
    if (count < 1 || found.state != CUBLAS_STATUS_SUCCESS) {
        status = cvy_fail(CVY_UNAVAILABLE, "cuBLASLt has no algorithm for a product");
        goto fail;
    }
    gemm->algorithms[which] = found.algo;
    gemm->has[which] = true;
    if (found.workspaceSize > gemm->workspace)
        gemm->workspace = found.workspaceSize;
fail:
    if (preference)
        (void)libraries->cublaslt.cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

/* ---- the door ---- */

cvy_status gpu_gemm_open(struct gpu_device *device, const struct gpu_gemm_problem *problem, struct gpu_gemm **gemm)
{
    struct gpu_gemm *made = cvy_calloc(1, sizeof *made);
    cvy_status status;

    *gemm = NULL;
    if (!made)
        return cvy_fail_memory(sizeof *made, "a matrix product");
    made->libraries = device->libraries;
    made->problem = *problem;
    CVY_GOTO(describe(made, problem));
    for (int i = 0; i < ALIGNMENTS && !device->described; i++) {
        status = choose(made, i);
        if (status == CVY_UNAVAILABLE)
            cvy_log(CVY_LOG_INFO, "a product of %lld x %lld x %lld at multiples of %d bytes: %s", (long long)problem->m,
                    (long long)problem->n, (long long)problem->k, (int)alignments[i], cvy_error());
        else if (status != CVY_OK)
            goto fail;
    }
    *gemm = made;
    return CVY_OK;
fail:
    gpu_gemm_close(made);
    return status;
}

void gpu_gemm_close(struct gpu_gemm *gemm)
{
    if (!gemm)
        return;
    if (gemm->first)
        (void)gemm->libraries->cublaslt.cublasLtMatrixLayoutDestroy(gemm->first);
    if (gemm->second)
        (void)gemm->libraries->cublaslt.cublasLtMatrixLayoutDestroy(gemm->second);
    if (gemm->result)
        (void)gemm->libraries->cublaslt.cublasLtMatrixLayoutDestroy(gemm->result);
    if (gemm->operation)
        (void)gemm->libraries->cublaslt.cublasLtMatmulDescDestroy(gemm->operation);
    cvy_free(gemm);
}

size_t gpu_gemm_scratch(const struct gpu_gemm *gemm)
{
    return gemm->workspace;
}

cvy_status gpu_gemm_run(struct gpu_device *device, const struct gpu_gemm *gemm, const void *a, const void *b,
                        const float *bias, void *c, void *scratch)
{
    const float one = 1, zero = 0;
    const uintptr_t all = (uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)bias;
    const int which = all % alignments[0] == 0 && gemm->has[0] ? 0 : 1;

    if (!gemm->has[which]) {
        const struct gpu_gemm_problem *p = &gemm->problem;
        if (p->dtype != CVY_F32)
            return cvy_fail(CVY_UNAVAILABLE, "there is no product of %s without cuBLASLt", cvy_dtype_name(p->dtype));
        gpu_product(device->stream, &(struct gpu_product){p->m, p->n, p->k, p->transpose_a, p->transpose_b}, a, b,
                    p->bias ? bias : NULL, c);
        return gpu_queued(device);
    }
    if (gemm->problem.bias)
        CVY_TRY(set(gemm, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias));
    return check(gemm->libraries,
                 gemm->libraries->cublaslt.cublasLtMatmul(
                     gemm->libraries->cublaslt_handle, gemm->operation, &one, b, gemm->first, a, gemm->second, &zero, c,
                     gemm->result, c, gemm->result, &gemm->algorithms[which], scratch, gemm->workspace, device->stream),
                 "a product of matrices failed");
}
