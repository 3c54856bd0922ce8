/* The module's only exported function. The module has its own copies of a few files of base/; sentences about failures
 * and the log go to the library. */
#include <string.h>

#include "backend/cuda_module.h"
#include "base/log.h"

extern const struct cvy_backend gpu_backend;

static void (*pass_on)(enum cvy_log_level level, const char *text);

static void log_handler(void *context, enum cvy_log_level level, const char *text)
{
    (void)context;
    pass_on(level, text);
}

__attribute__((visibility("default"))) const struct cvy_backend *
convoy_cuda_module(const struct cvy_module_host *library);

const struct cvy_backend *convoy_cuda_module(const struct cvy_module_host *library)
{
    const struct cvy_module_host own = cvy_module_host_make(CONVOY_VERSION);

    if (strcmp(library->version, own.version) != 0 || library->device_bytes != own.device_bytes ||
        library->desc_bytes != own.desc_bytes || library->kernel_plan_bytes != own.kernel_plan_bytes ||
        library->backend_bytes != own.backend_bytes)
        return NULL;
    pass_on = library->log;
    cvy_error_share(library->error_put, library->error_get);
    cvy_set_log_handler(log_handler, NULL);
    return &gpu_backend;
}
