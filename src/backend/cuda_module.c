/* Loading the CUDA module. */
#include "backend/cuda_module.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "base/module_file.h"
#include "convoy/status.h"

static const char FILE_NAME[] = "libconvoy_cuda.so";

static struct cvy_module_host host;
static const struct cvy_backend *module;
static char reason[PATH_MAX + 256]; /* why there is none */

static void pass_on(enum cvy_log_level level, const char *text)
{
    cvy_log(level, "%s", text);
}

static void load(void)
{
    const char *named = getenv("CONVOY_CUDA_MODULE");
    char beside[PATH_MAX];
    void *library;
    cvy_cuda_module_entry entry;

    if (!named || !named[0]) {
        if (!cvy_module_find(FILE_NAME, beside)) {
            snprintf(reason, sizeof reason, "this build has no CUDA module (%s)", FILE_NAME);
            return;
        }
        named = beside;
    }
    library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(reason, sizeof reason, "the CUDA module cannot be loaded: %s", dlerror());
        return;
    }
    *(void **)&entry = dlsym(library, CVY_CUDA_MODULE_ENTRY);
    host = cvy_module_host_make(cvy_version());
    host.error_put = cvy_error_put;
    host.error_get = cvy_error_get;
    host.log = pass_on;
    module = entry ? entry(&host) : NULL;
    if (!module) {
        snprintf(reason, sizeof reason, "the CUDA module %s %s", named,
                 entry ? "belongs to another build of Convoy" : "is none of Convoy's");
        dlclose(library);
    }
}

cvy_status cvy_cuda_backend(const struct cvy_backend **backend)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, load);
    *backend = module;
    return module ? CVY_OK : cvy_fail(CVY_UNAVAILABLE, "%s", reason);
}
