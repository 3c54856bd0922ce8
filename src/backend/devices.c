/* Opening devices by name. */
#include <stdio.h>
#include <string.h>

#include "backend/cuda_module.h"
#include "base/error.h"
#include "base/log.h"
#include "base/nearest.h"

/* The backends of the library itself; CUDA's is in a module. */
static const struct cvy_backend *const backends[] = {&cvy_backend_cpu, &cvy_backend_ref, &cvy_backend_check};

enum { MAX_THREADS = 4096 }; /* as the program's options have it: OpenMP ends the process where it cannot start them */

cvy_status cvy_device_open(const char *name, int threads, cvy_device **device)
{
    const struct cvy_backend *cuda;
    char backend_name[32], reason[512];
    struct cvy_gpu gpu;
    int gpus;
    const char *spec;
    size_t length;

    *device = NULL;
    if (threads > MAX_THREADS)
        return cvy_fail(CVY_USAGE, "option --threads: %d is above %d", threads, MAX_THREADS);
    if (!name || strcmp(name, "auto") == 0) {
        if (cvy_cuda_backend(&cuda) == CVY_OK) {
            if (cuda->open(cuda, NULL, threads, device) == CVY_OK)
                return CVY_OK;
            cvy_error_get(reason, sizeof reason);
            if (cuda->query_gpu && cuda->query_gpu(0, &gpu, &gpus) == CVY_OK)
                cvy_log(CVY_LOG_WARNING, "the CPU computes, for the %s cannot be used: %s", gpu.name, reason);
        }
        name = "cpu";
    }
    spec = strchr(name, ':');
    length = spec ? (size_t)(spec - name) : strlen(name);
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
        if (strlen(backends[i]->name) == length && strncmp(backends[i]->name, name, length) == 0)
            return backends[i]->open(backends[i], spec ? spec + 1 : NULL, threads, device);
    }
    if (length == 4 && strncmp(name, "cuda", 4) == 0) {
        cvy_status status = cvy_cuda_backend(&cuda);
        if (status == CVY_OK)
            status = cuda->open(cuda, spec ? spec + 1 : NULL, threads, device);
        return status == CVY_UNAVAILABLE ? cvy_fail_context(status, "device %s is not available", cvy_quote(name))
                                         : status;
    }
    snprintf(backend_name, sizeof backend_name, "%.*s", (int)(length < 31 ? length : 31), name);
    return cvy_fail(CVY_USAGE, "unknown device %s%s: use auto, cpu, cuda:0, ref or check:cpu", cvy_quote(backend_name),
                    CVY_PERHAPS(backend_name, "auto", "cpu", "cuda", "ref", "check"));
}

cvy_status cvy_device_set_deterministic(cvy_device *device, const char *word)
{
    if (!word || !word[0])
        return CVY_OK;
    if (strcmp(word, "yes") != 0 && strcmp(word, "sums") != 0 && strcmp(word, "no") != 0)
        return cvy_fail(CVY_USAGE, "option --deterministic is yes, sums or no, not %s", cvy_quote(word));
    return device->backend->set_deterministic ? device->backend->set_deterministic(device, word) : CVY_OK;
}

cvy_status cvy_gpu_query(int number, struct cvy_gpu *gpu, int *count)
{
    CVY_REQUIRE(gpu);
    CVY_REQUIRE(count);
    const struct cvy_backend *cuda;

    *count = 0;
    CVY_TRY(cvy_cuda_backend(&cuda));
    return cuda->query_gpu(number, gpu, count);
}
