/* The interface between the library and its CUDA module, a shared object that is loaded when a CUDA device is
 * requested: the program itself needs neither the driver nor NVIDIA's libraries. Library and module come from one
 * build. */
#ifndef CVY_BACKEND_CUDA_MODULE_H
#define CVY_BACKEND_CUDA_MODULE_H

#include "backend/backend.h"

#define CVY_CUDA_MODULE_ENTRY "convoy_cuda_module"

/* What the module takes from the library: error reporting and the log. */
struct cvy_module_host {
    const char *version;                                               /* of the library */
    size_t device_bytes, desc_bytes, kernel_plan_bytes, backend_bytes; /* sizeof of the structs that both use */
    void (*error_put)(const char *text);
    void (*error_get)(char *text, size_t size);
    void (*log)(enum cvy_log_level level, const char *text);
};
/* The host's side as this build sees it. */
static inline struct cvy_module_host cvy_module_host_make(const char *version)
{
    return (struct cvy_module_host){
        .version = version,
        .device_bytes = sizeof(struct cvy_device),
        .desc_bytes = sizeof(struct cvy_op_desc),
        .kernel_plan_bytes = sizeof(struct cvy_kernel_plan),
        .backend_bytes = sizeof(struct cvy_backend),
    };
}

/* NULL (with a sentence in host->error_put) when the module is of another build. The host must stay valid. */
typedef const struct cvy_backend *(*cvy_cuda_module_entry)(const struct cvy_module_host *host);

/* The module's backend, loaded at the first call. CVY_UNAVAILABLE with the reason when there is none.
 * CONVOY_CUDA_MODULE names another file than the one beside the library. */
CVY_CHECKED cvy_status cvy_cuda_backend(const struct cvy_backend **backend);

#endif
