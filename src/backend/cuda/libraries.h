/* NVIDIA's libraries, found and loaded when a CUDA device is opened: cuDNN for convolutions, cuBLASLt for matrix
 * products. Their headers are needed to build; the libraries themselves only to run. */
#ifndef CVY_BACKEND_CUDA_LIBRARIES_H
#define CVY_BACKEND_CUDA_LIBRARIES_H

#include <cublasLt.h>
#include <cudnn_graph.h>
#include <pthread.h>

#include "backend/cuda/gpu.h"

/* The functions that are used, under their own names. */
#define CUDNN_FUNCTIONS(each)                                                                                          \
    each(cudnnGetVersion) each(cudnnGetErrorString) each(cudnnGetLastErrorString) each(cudnnCreate) each(cudnnDestroy) \
        each(cudnnSetStream) each(cudnnBackendCreateDescriptor) each(cudnnBackendDestroyDescriptor)                    \
            each(cudnnBackendSetAttribute) each(cudnnBackendGetAttribute) each(cudnnBackendFinalize)                   \
                each(cudnnBackendExecute)
#define CUBLASLT_FUNCTIONS(each)                                                                                       \
    each(cublasLtGetVersion) each(cublasLtGetStatusString) each(cublasLtCreate) each(cublasLtDestroy)                  \
        each(cublasLtMatmulDescCreate) each(cublasLtMatmulDescDestroy) each(cublasLtMatmulDescSetAttribute)            \
            each(cublasLtMatrixLayoutCreate) each(cublasLtMatrixLayoutDestroy) each(cublasLtMatmulPreferenceCreate)    \
                each(cublasLtMatmulPreferenceDestroy) each(cublasLtMatmulPreferenceSetAttribute)                       \
                    each(cublasLtMatmulAlgoGetHeuristic) each(cublasLtMatmul)
#define LIBRARY_FUNCTION(name) __typeof__(name) *name;
struct cudnn_functions {
    CUDNN_FUNCTIONS(LIBRARY_FUNCTION)
};
struct cublaslt_functions {
    CUBLASLT_FUNCTIONS(LIBRARY_FUNCTION)
};
#undef LIBRARY_FUNCTION

/* One per device. */
struct gpu_libraries {
    struct cudnn_functions cudnn;
    struct cublaslt_functions cublaslt;
    size_t cudnn_version, cublaslt_version; /* 91900 = 9.19.0; 130100 = 13.1.0 */
    /* Set on a device that can run; NULL on one that is only described. */
    cudnnHandle_t cudnn_handle;
    cublasLtHandle_t cublaslt_handle;
    cudnnBackendDescriptor_t properties;  /* of a described device, else NULL */
    bool timing;                          /* candidates may be timed, and earlier times believed */
    pthread_mutex_t lock;                 /* of `convolutions` */
    struct cudnn_autotuner *convolutions; /* what was chosen so far (cudnn_autotune.c) */
};

/* ---- failures ---- */

/* Records "what: reason" in cuDNN's words. CVY_UNAVAILABLE for what it does not support, else CVY_FAILED. */
cvy_status gpu_cudnn_fail(const struct gpu_libraries *libraries, cudnnStatus_t result, const char *what);

#endif
