/* Finding NVIDIA's libraries, and what each device keeps of them. */
#include "backend/cuda/libraries.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/conv_engine.h"
#include "backend/cuda/cudnn_engine.h"
#include "base/log.h"

/* ---- where ---- */

static const char *const toolkit_folders[] = {"/usr/local/cuda/lib64", "/usr/local/cuda/lib"};
/* Folders of Python's packages, and those of NVIDIA's packages in them: newer ones share cu13, older ones have a folder
 * each. */
static const char *const package_folders[] = {
    "/usr/lib/python3*/dist-packages", "/usr/lib/python3/dist-packages", "/usr/local/lib/python3*/dist-packages",
    "/usr/local/lib/python3*/site-packages", "/opt/*/lib/python3*/site-packages"};
static const char *const package_variables[] = {"VIRTUAL_ENV", "CONDA_PREFIX"};
static const char *const package_names[] = {"cudnn", "cu13", "cublas", "cuda_nvrtc"};

/* A search: what was found and would not do is told in the end. */
struct search {
    const struct gpu_library *library;
    void *object;
    struct cvy_text refusals;
};

/* Loads `path` and keeps it if it is good. A plain name is looked for by the loader and may be missing silently. */
static bool try_file(struct search *search, const char *path)
{
    const bool named = strchr(path, '/') != NULL;
    char found[32] = "";

    if (named && access(path, R_OK) != 0)
        return false;
    search->object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!search->object) {
        const char *why = dlerror();
        if (named)
            cvy_text_printf(&search->refusals, "; %s cannot be loaded: %s", cvy_quote(path),
                            why ? why : "unknown reason");
        return false;
    }
    if (!search->library->accept || search->library->accept(search->object, found))
        return true;
    cvy_text_printf(&search->refusals, "; %s is %s", cvy_quote(path), found);
    dlclose(search->object);
    search->object = NULL;
    return false;
}

static bool try_folder(struct search *search, const char *folder, size_t length)
{
    char path[PATH_MAX];

    for (const char *const *file = search->library->files; *file; file++) {
        const int written = snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, *file);
        if (written > 0 && (size_t)written < sizeof path && try_file(search, path))
            return true;
    }
    return false;
}

static bool try_beside(struct search *search)
{
    Dl_info here;
    const char *slash;

    if (!dladdr(toolkit_folders, &here) || !here.dli_fname)
        return false;
    slash = strrchr(here.dli_fname, '/');
    return slash ? try_folder(search, here.dli_fname, (size_t)(slash - here.dli_fname)) : try_folder(search, ".", 1);
}

static bool try_packages(struct search *search, const char *packages)
{
    char pattern[PATH_MAX];
    bool good = false;

    for (size_t i = 0; i < sizeof package_names / sizeof *package_names && !good; i++) {
        const int written = snprintf(pattern, sizeof pattern, "%s/nvidia/%s/lib", packages, package_names[i]);
        glob_t found;
        if (written <= 0 || (size_t)written >= sizeof pattern || glob(pattern, 0, NULL, &found) != 0)
            continue;
        for (size_t k = 0; k < found.gl_pathc && !good; k++)
            good = try_folder(search, found.gl_pathv[k], strlen(found.gl_pathv[k]));
        globfree(&found);
    }
    return good;
}

static bool try_places(struct search *search)
{
    char packages[PATH_MAX];

    if (try_beside(search))
        return true;
    for (const char *const *file = search->library->files; *file; file++) {
        if (try_file(search, *file))
            return true;
    }
    for (size_t i = 0; i < sizeof toolkit_folders / sizeof *toolkit_folders; i++) {
        if (try_folder(search, toolkit_folders[i], strlen(toolkit_folders[i])))
            return true;
    }
    for (size_t i = 0; i < sizeof package_variables / sizeof *package_variables; i++) {
        const char *prefix = getenv(package_variables[i]);
        const int written = snprintf(packages, sizeof packages, "%s/lib/python3*/site-packages", prefix ? prefix : "");
        if (prefix && prefix[0] && (size_t)written < sizeof packages && try_packages(search, packages))
            return true;
    }
    for (size_t i = 0; i < sizeof package_folders / sizeof *package_folders; i++) {
        if (try_packages(search, package_folders[i]))
            return true;
    }
    return false;
}

cvy_status gpu_library_find(const struct gpu_library *library, void **object)
{
    const char *named = library->variable ? getenv(library->variable) : NULL;
    struct search search = {.library = library};
    const char *refusals;

    if (named && named[0]) {
        if (access(named, R_OK) != 0)
            return cvy_fail(CVY_UNAVAILABLE, "%s names %s for %s, which is not there", library->variable,
                            cvy_quote(named), library->title);
        (void)try_file(&search, named);
    } else {
        (void)try_places(&search);
    }
    *object = search.object;
    refusals = search.refusals.text && !search.refusals.failed ? search.refusals.text : "";
    if (!search.object && named && named[0])
        (void)cvy_fail(CVY_UNAVAILABLE, "%s names no %s%s", library->variable, library->title, refusals);
    else if (!search.object)
        (void)cvy_fail(CVY_UNAVAILABLE,
                       "%s is not to be found: looked for %s beside Convoy's CUDA module, where the loader looks, in "
                       "/usr/local/cuda and in Python's packages%s%s%s",
                       library->title, library->files[0], library->variable ? "; the file can be named by " : "",
                       library->variable ? library->variable : "", refusals);
    cvy_text_release(&search.refusals);
    return *object ? CVY_OK : CVY_UNAVAILABLE;
}

/* ---- which ---- */

/* POSIX lets dlsym's result be a function. */
static bool get_function(void *object, const char *name, void *to)
{
    void *symbol = dlsym(object, name);

    memcpy(to, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* 91900 -> "9.19.0" */
static void version_text(size_t version, char *text, size_t size)
{
    snprintf(text, size, "%zu.%zu.%zu", version / 10000, version % 10000 / 100, version % 100);
}

/* Both libraries count their versions alike. */
static bool accept_version(void *object, const char *function, size_t oldest, char found[32])
{
    size_t (*version)(void);

    if (!get_function(object, function, &version)) {
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
    return accept_version(object, "cublasLtGetVersion", 130000, found);
}

static cvy_status get_cudnn(void *object, struct cudnn_functions *functions)
{
#define GET(name)                                                                                                      \
    if (!get_function(object, #name, &functions->name))                                                                \
        return cvy_fail(CVY_UNAVAILABLE, "the cuDNN found here has no %s", #name);
    CUDNN_FUNCTIONS(GET)
#undef GET
    return CVY_OK;
}

static cvy_status get_cublaslt(void *object, struct cublaslt_functions *functions)
{
#define GET(name)                                                                                                      \
    if (!get_function(object, #name, &functions->name))                                                                \
        return cvy_fail(CVY_UNAVAILABLE, "the cuBLASLt found here has no %s", #name);
    CUBLASLT_FUNCTIONS(GET)
#undef GET
    return CVY_OK;
}

static cvy_status find_all(struct gpu_libraries *libraries)
{
    static const char *const cublaslt_files[] = {"libcublasLt.so.13", NULL};
    static const char *const nvrtc_files[] = {"libnvrtc.so.13", NULL};
    static const char *const builtins_files[] = {"libnvrtc-builtins.so.13.0", NULL};
    static const char *const cudnn_files[] = {"libcudnn_graph.so.9", "libcudnn.so.9", NULL};
    static const struct gpu_library cublaslt = {"cuBLASLt 13", "CONVOY_CUBLASLT", cublaslt_files, accept_cublaslt};
    static const struct gpu_library cudnn = {"cuDNN 9.8 or newer", "CONVOY_CUDNN", cudnn_files, accept_cudnn};
    /* cuDNN's engines that are compiled when they are used ask for these by name; it does without if need be. */
    static const struct gpu_library compiler[] = {{"NVRTC 13", NULL, nvrtc_files, NULL},
                                                  {"NVRTC's headers", NULL, builtins_files, NULL}};
    void *object;

    CVY_TRY(gpu_library_find(&cublaslt, &object));
    CVY_TRY(get_cublaslt(object, &libraries->cublaslt));
    for (size_t i = 0; i < sizeof compiler / sizeof *compiler; i++) {
        if (gpu_library_find(&compiler[i], &object) != CVY_OK)
            cvy_log(CVY_LOG_DEBUG, "no convolutions that are compiled at run time: %s", cvy_error());
    }
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
    const char *kernels = getenv("CONVOY_KERNELS");
    struct gpu_libraries *libraries = cvy_calloc(1, sizeof *libraries);

    if (!libraries)
        return cvy_fail_memory(sizeof *libraries, "the libraries of a GPU");
    if (pthread_mutex_init(&libraries->lock, NULL) != 0) {
        cvy_free(libraries);
        return cvy_fail(CVY_FAILED, "a lock cannot be made");
    }
    device->libraries = libraries;
    libraries->timing = !device->described && !(kernels && strcmp(kernels, "first") == 0);
    CVY_TRY(find_all(libraries));
    if (device->described)
        CVY_TRY(open_properties(libraries, device->description_json));
    else
        CVY_TRY(open_handles(libraries, device->stream));
    return cudnn_choices_open(device);
}

void gpu_libraries_close(struct gpu_device *device)
{
    struct gpu_libraries *libraries = device->libraries;

    if (!libraries)
        return;
    cudnn_choices_close(device);
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
