/* NVIDIA's libraries for convolutions and matrix products, and what each device keeps of them. */
#include "backend/cuda/libraries.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/conv_engine.h"
#include "backend/cuda/find_library.h"
#include "base/cache.h"
#include "base/log.h"

/* ---- which ---- */

/* 91900 -> "9.19.0" */
static void version_text(size_t version, char *text, size_t size)
{
    snprintf(text, size, "%zu.%zu.%zu", version / 10000, version % 10000 / 100, version % 100);
}

/* Both libraries count their versions alike. */
static bool accept_version(void *object, const char *function, size_t oldest, char found[32])
{
    size_t (*version)(void);

    if (!gpu_library_function(object, function, &version)) {
        snprintf(found, 32, "something else");
        return false;
    }
    version_text(version(), found, 32);
    return version() / 10000 == oldest / 10000 && version() >= oldest;
}

static bool accept_cudnn(void *object, char found[32])
{
    return accept_version(object, "cudnnGetVersion", 90800, found); /* plans for a GPU that is not there */
}

static bool accept_cublaslt(void *object, char found[32])
{
    return accept_version(object, "cublasLtGetVersion", 10000 * (size_t)CUBLAS_VER_MAJOR, found);
}

static cvy_status get_cudnn(void *object, struct cudnn_functions *functions)
{
#define GET(name)                                                                                                      \
    if (!gpu_library_function(object, #name, &functions->name))                                                        \
        return cvy_fail(CVY_UNAVAILABLE, "the cuDNN found here has no %s", #name);
    CUDNN_FUNCTIONS(GET)
#undef GET
    return CVY_OK;
}

static cvy_status get_cublaslt(void *object, struct cublaslt_functions *functions)
{
#define GET(name)                                                                                                      \
    if (!gpu_library_function(object, #name, &functions->name))                                                        \
        return cvy_fail(CVY_UNAVAILABLE, "the cuBLASLt found here has no %s", #name);
    CUBLASLT_FUNCTIONS(GET)
#undef GET
    return CVY_OK;
}

/* NVRTC loads its builtins by a name that holds its version, and does not look into its own folder. */
static cvy_status load_builtins(void *object)
{
    int (*version)(int *major, int *minor) = NULL;
    char name[64];
    const char *files[] = {name, NULL};
    const struct gpu_library builtins = {"NVRTC's builtins", NULL, files, NULL};
    int major = 0, minor = 0;

    if (!gpu_library_function(object, "nvrtcVersion", &version) || version(&major, &minor) != 0)
        return cvy_fail(CVY_UNAVAILABLE, "NVRTC does not tell its version");
    snprintf(name, sizeof name, "libnvrtc-builtins.so.%d.%d", major, minor);
    if (gpu_library_beside(object, "nvrtcVersion", name))
        return CVY_OK;
    return gpu_library_find(&builtins, &object);
}

/* The libraries are those of the CUDA that the module is built with. */
#define TEXT_OF(x)  #x
#define VALUE_OF(x) TEXT_OF(x)
#define CUDA_MAJOR  VALUE_OF(CUBLAS_VER_MAJOR)

static cvy_status find_all(struct gpu_libraries *libraries)
{
    static const char *const cublaslt_files[] = {"libcublasLt.so." CUDA_MAJOR, NULL};
    static const char *const nvrtc_files[] = {"libnvrtc.so." CUDA_MAJOR, NULL};
    static const char *const cudnn_files[] = {"libcudnn_graph.so.9", "libcudnn.so.9", NULL};
    static const struct gpu_library cublaslt = {"cuBLASLt " CUDA_MAJOR, "CONVOY_CUBLASLT", cublaslt_files,
                                                accept_cublaslt};
    static const struct gpu_library cudnn = {"cuDNN 9.8 or newer", "CONVOY_CUDNN", cudnn_files, accept_cudnn};
    static const struct gpu_library nvrtc = {"NVRTC " CUDA_MAJOR, NULL, nvrtc_files, NULL};
    void *object;

    CVY_TRY(gpu_library_find(&cublaslt, &object));
    CVY_TRY(get_cublaslt(object, &libraries->cublaslt));
    /* cuDNN's engines that are compiled when they are used ask for NVRTC by name; it does without if need be. */
    if (gpu_library_find(&nvrtc, &object) != CVY_OK || load_builtins(object) != CVY_OK)
        cvy_log(CVY_LOG_INFO, "no convolutions that are compiled at run time: %s", cvy_error());
    CVY_TRY(gpu_library_find(&cudnn, &object));
    CVY_TRY(get_cudnn(object, &libraries->cudnn));
    libraries->cublaslt_version = libraries->cublaslt.cublasLtGetVersion();
    libraries->cudnn_version = libraries->cudnn.cudnnGetVersion();
    return CVY_OK;
}

/* ---- of a device ---- */

cvy_status gpu_cudnn_fail(const struct gpu_libraries *libraries, cudnnStatus_t result, const char *what)
{
    char detail[400] = "";
    size_t length;

    libraries->cudnn.cudnnGetLastErrorString(detail, sizeof detail);
    detail[sizeof detail - 1] = '\0';
    for (char *c = detail; *c; c++) {
        if ((unsigned char)*c < ' ')
            *c = ' ';
    }
    for (length = strlen(detail); length > 0 && (detail[length - 1] == ' ' || detail[length - 1] == '.'); length--)
        detail[length - 1] = '\0';
    return cvy_fail(CUDNN_STATUS_CATEGORY(result) == CUDNN_STATUS_NOT_SUPPORTED ? CVY_UNAVAILABLE : CVY_FAILED,
                    "%s: %s%s%s", what, libraries->cudnn.cudnnGetErrorString(result), detail[0] ? ", " : "", detail);
}

/* What cuDNN plans for where there is no GPU. */
static cvy_status open_properties(struct gpu_libraries *libraries, const char *json)
{
    const struct cudnn_functions *cudnn = &libraries->cudnn;
    cudnnStatus_t result =
        cudnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &libraries->properties);

    if (result == CUDNN_STATUS_SUCCESS)
        result = cudnn->cudnnBackendSetAttribute(libraries->properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                                 CUDNN_TYPE_CHAR, (int64_t)strlen(json), json);
    if (result == CUDNN_STATUS_SUCCESS)
        result = cudnn->cudnnBackendFinalize(libraries->properties);
    if (result == CUDNN_STATUS_SUCCESS)
        return CVY_OK;
    (void)gpu_cudnn_fail(libraries, result, "the description of the GPU is none that cuDNN understands");
    return CVY_BAD_DATA;
}

static cvy_status open_handles(struct gpu_libraries *libraries, void *stream)
{
    cudnnStatus_t result = libraries->cudnn.cudnnCreate(&libraries->cudnn_handle);
    cublasStatus_t blas;

    if (result == CUDNN_STATUS_SUCCESS)
        result = libraries->cudnn.cudnnSetStream(libraries->cudnn_handle, stream);
    if (result != CUDNN_STATUS_SUCCESS)
        return gpu_cudnn_fail(libraries, result, "cuDNN cannot use this GPU");
    blas = libraries->cublaslt.cublasLtCreate(&libraries->cublaslt_handle);
    if (blas != CUBLAS_STATUS_SUCCESS)
        return cvy_fail(CVY_FAILED, "cuBLASLt cannot use this GPU: %s",
                        libraries->cublaslt.cublasLtGetStatusString(blas));
    return CVY_OK;
}

cvy_status gpu_libraries_open(struct gpu_device *device)
{
    struct gpu_libraries *libraries = cvy_calloc(1, sizeof *libraries);

    if (!libraries)
        return cvy_fail_memory(sizeof *libraries, "the libraries of a GPU");
    if (pthread_mutex_init(&libraries->lock, NULL) != 0) {
        cvy_free(libraries);
        return cvy_fail(CVY_FAILED, "a lock cannot be made");
    }
    device->libraries = libraries;
    CVY_TRY(cvy_kernels_are_timed(&libraries->timing));
    libraries->timing = libraries->timing && !device->described;
    CVY_TRY(find_all(libraries));
    if (device->described)
        CVY_TRY(open_properties(libraries, device->description_json));
    else
        CVY_TRY(open_handles(libraries, device->stream));
    return cudnn_autotuner_open(device);
}

void gpu_libraries_close(struct gpu_device *device)
{
    struct gpu_libraries *libraries = device->libraries;

    if (!libraries)
        return;
    cudnn_autotuner_close(device);
    if (libraries->properties)
        (void)libraries->cudnn.cudnnBackendDestroyDescriptor(libraries->properties);
    if (libraries->cudnn_handle)
        (void)libraries->cudnn.cudnnDestroy(libraries->cudnn_handle);
    if (libraries->cublaslt_handle)
        (void)libraries->cublaslt.cublasLtDestroy(libraries->cublaslt_handle);
    pthread_mutex_destroy(&libraries->lock);
    cvy_free(libraries);
    device->libraries = NULL;
}

void gpu_libraries_text(const struct gpu_device *device, char *text, size_t size)
{
    char cudnn[24], cublaslt[24];

    version_text(device->libraries->cudnn_version, cudnn, sizeof cudnn);
    version_text(device->libraries->cublaslt_version, cublaslt, sizeof cublaslt);
    snprintf(text, size, "cuDNN %s, cuBLASLt %s", cudnn, cublaslt);
}
