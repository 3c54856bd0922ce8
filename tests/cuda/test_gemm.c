/* Matrix products where cuBLASLt has algorithms for all alignments, for one, or for none: a cuBLASLt of our own says
 * which. On an emulated CUDA runtime. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/gemm.h"
#include "backend/cuda/kernels/kernels.h"
#include "emulate.h"
#include "support_engine.h"

/* ---- a cuBLASLt ---- */

/* The smallest alignment it has an algorithm for; the alignment that was asked for last, and that of the algorithm that
 * ran (0: none did). */
static struct {
    uint32_t least, asked, ran;
    cublasStatus_t refusal;
} blas;

static cublasStatus_t make_operation(cublasLtMatmulDesc_t *made, cublasComputeType_t compute, cudaDataType_t scale)
{
    (void)compute, (void)scale;
    *made = (cublasLtMatmulDesc_t)&blas;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set_operation(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t name,
                                    const void *value, size_t size)
{
    (void)operation, (void)name, (void)value, (void)size;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t drop_operation(cublasLtMatmulDesc_t operation)
{
    (void)operation;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t make_layout(cublasLtMatrixLayout_t *made, cudaDataType type, uint64_t rows, uint64_t columns,
                                  int64_t stride)
{
    (void)type, (void)rows, (void)columns, (void)stride;
    *made = (cublasLtMatrixLayout_t)&blas;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t drop_layout(cublasLtMatrixLayout_t layout)
{
    (void)layout;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t make_preference(cublasLtMatmulPreference_t *made)
{
    *made = (cublasLtMatmulPreference_t)&blas;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t drop_preference(cublasLtMatmulPreference_t preference)
{
    (void)preference;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set_preference(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t name,
                                     const void *value, size_t size)
{
    (void)preference;
    if (name == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES)
        memcpy(&blas.asked, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t get_heuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                                    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                    cublasLtMatmulPreference_t preference, int most,
                                    cublasLtMatmulHeuristicResult_t *found, int *count)
{
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference, (void)most;
    *count = blas.asked >= blas.least;
    *found = (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_SUCCESS};
    found->algo.data[0] = blas.asked;
    return *count ? CUBLAS_STATUS_SUCCESS : blas.refusal;
}

static cublasStatus_t multiply(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void *alpha,
                               const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                               cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                               cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                               const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes,
                               cudaStream_t stream)
{
    (void)handle, (void)operation, (void)alpha, (void)a, (void)a_layout, (void)b, (void)b_layout, (void)beta, (void)c;
    (void)c_layout, (void)d, (void)d_layout, (void)workspace, (void)workspace_bytes, (void)stream;
    blas.ran = (uint32_t)algorithm->data[0];
    return CUBLAS_STATUS_SUCCESS;
}

static const char *status_text(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "broken";
}

static struct gpu_libraries libraries = {.cublaslt = {
                                             .cublasLtGetStatusString = status_text,
                                             .cublasLtMatmulDescCreate = make_operation,
                                             .cublasLtMatmulDescDestroy = drop_operation,
                                             .cublasLtMatmulDescSetAttribute = set_operation,
                                             .cublasLtMatrixLayoutCreate = make_layout,
                                             .cublasLtMatrixLayoutDestroy = drop_layout,
                                             .cublasLtMatmulPreferenceCreate = make_preference,
                                             .cublasLtMatmulPreferenceDestroy = drop_preference,
                                             .cublasLtMatmulPreferenceSetAttribute = set_preference,
                                             .cublasLtMatmulAlgoGetHeuristic = get_heuristic,
                                             .cublasLtMatmul = multiply,
                                         }};
static struct gpu_device gpu = {.libraries = &libraries};

/* ---- products ---- */

enum { MOST = 2048 };
static float a[MOST + 4] __attribute__((aligned(16))), b[MOST + 4] __attribute__((aligned(16))),
    c[MOST + 4] __attribute__((aligned(16))), bias[MOST] __attribute__((aligned(16)));

/* Small integers: their sums are exact in any order. */
static void fill(void)
{
    for (int i = 0; i < MOST + 4; i++) {
        a[i] = (float)(i * 7 % 23 - 11);
        b[i] = (float)(i * 5 % 17 - 8);
        c[i] = -1e9F;
    }
    for (int i = 0; i < MOST; i++)
        bias[i] = (float)(i % 9 - 4);
}

static void expect_product(const struct gpu_gemm_problem *p, const float *left)
{
    for (int64_t row = 0; row < p->m; row++) {
        for (int64_t column = 0; column < p->n; column++) {
            float sum = p->bias ? bias[column] : 0;
            for (int64_t i = 0; i < p->k; i++)
                sum += left[p->transpose_a ? i * p->m + row : row * p->k + i] *
                       b[p->transpose_b ? column * p->k + i : i * p->n + column];
            assert_true(c[row * p->n + column] == sum);
        }
    }
    assert_true(c[p->m * p->n] == -1e9F);
}

/* The alignment of the algorithm that ran; 0 where the kernel of ours did, whose result is looked at. */
static uint32_t run(const struct gpu_gemm_problem *p, uint32_t least, int offset)
{
    struct gpu_gemm *gemm;

    fill();
    blas.least = least;
    blas.ran = 0;
    must(gpu_gemm_open(&gpu, p, &gemm));
    must(gpu_gemm_run(&gpu, gemm, a + offset, b, p->bias ? bias : NULL, c, NULL));
    gpu_gemm_close(gemm);
    if (blas.ran == 0)
        expect_product(p, a + offset);
    return blas.ran;
}

static void every_shape_has_a_product(void **state)
{
    static const int shapes[][3] = {{1, 1, 1}, {16, 16, 16}, {3, 10, 64}, {17, 33, 18}, {40, 5, 31}, {2, 1000, 2}};

    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (int what = 0; what < 8; what++) {
            const struct gpu_gemm_problem problem = {.m = shapes[s][0],
                                                     .n = shapes[s][1],
                                                     .k = shapes[s][2],
                                                     .transpose_a = what & 1,
                                                     .transpose_b = what & 2,
                                                     .bias = what & 4};
            assert_int_equal(run(&problem, 1024, what % 4), 0);
        }
    }
}

static void the_second_alignment_is_optional(void **state)
{
    const struct gpu_gemm_problem problem = {.m = 5, .n = 7, .k = 9, .transpose_b = true, .bias = true};

    (void)state;
    blas.refusal = CUBLAS_STATUS_NOT_SUPPORTED;
    assert_int_equal(run(&problem, 4, 0), 16);
    assert_int_equal(run(&problem, 4, 1), 4);
    assert_int_equal(run(&problem, 16, 0), 16);
    assert_int_equal(run(&problem, 16, 1), 0);
    blas.refusal = CUBLAS_STATUS_SUCCESS; /* none, without an error */
    assert_int_equal(run(&problem, 16, 1), 0);
}

static void other_failures_stay_failures(void **state)
{
    const struct gpu_gemm_problem problem = {.m = 5, .n = 7, .k = 9};
    struct gpu_gemm *gemm;

    (void)state;
    blas.least = 1024;
    blas.refusal = CUBLAS_STATUS_EXECUTION_FAILED;
    assert_int_equal(gpu_gemm_open(&gpu, &problem, &gemm), CVY_FAILED);
    assert_null(gemm);
    must_say("cuBLASLt has nothing for a product: broken");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_has_a_product),
        cmocka_unit_test(the_second_alignment_is_optional),
        cmocka_unit_test(other_failures_stay_failures),
    };

    blas.refusal = CUBLAS_STATUS_NOT_SUPPORTED;
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
