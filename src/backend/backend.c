/* Opening devices by name and choosing kernels from their tables. */
#include "backend/backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/choice_internal.h"
#include "backend/cuda_module.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/log.h"

/* The backends of the library itself; CUDA's is in a module. */
static const struct cvy_backend *const backends[] = {&cvy_backend_cpu, &cvy_backend_ref, &cvy_backend_check};

cvy_status cvy_device_open(const char *name, int threads, cvy_device **device)
{
    const struct cvy_backend *cuda;
    char backend_name[32], reason[512];
    struct cvy_gpu gpu;
    int gpus;
    const char *spec;
    size_t length;

    *device = NULL;
    if (!name || strcmp(name, "auto") == 0) {
        if (cvy_cuda_backend(&cuda) == CVY_OK) {
            if (cuda->open(cuda, NULL, threads, device) == CVY_OK)
                return CVY_OK;
            cvy_error_get(reason, sizeof reason);
            if (cuda->look && cuda->look(0, &gpu, &gpus) == CVY_OK)
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
    return cvy_fail(CVY_USAGE, "unknown device %s: use auto, cpu, cuda:0, ref or check:cpu", cvy_quote(backend_name));
}

cvy_status cvy_gpu_look(int number, struct cvy_gpu *gpu, int *count)
{
    const struct cvy_backend *cuda;

    *count = 0;
    CVY_TRY(cvy_cuda_backend(&cuda));
    return cuda->look(number, gpu, count);
}

/* Whether one of the settings "A=x B=y" begins with these characters and ends there or (`more`) goes on. */
static bool has_setting(const char *settings, const char *text, size_t length, bool more)
{
    for (const char *at = settings; *at; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        if (strncmp(at, text, length) == 0 && (more || at[length] == ' ' || !at[length]))
            return true;
    }
    return false;
}

bool cvy_settings_agree(const char *then, const char *now)
{
    char name[64];

    for (const char *at = then; *(at += strspn(at, " ")); at += strcspn(at, " "))
        if (!has_setting(now, at, strcspn(at, " "), false))
            return false;
    for (const char *at = now; *(at += strspn(at, " ")); at += strcspn(at, " ")) {
        const size_t length = strcspn(at, "= ");
        if (has_setting(then, at, length + 1, true))
            continue;
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        const char *set = getenv(name);
        if (set && set[0])
            return false;
    }
    return true;
}

void cvy_device_close(cvy_device *device)
{
    if (device)
        device->backend->close(device);
}

size_t cvy_device_available_memory(cvy_device *device)
{
    size_t bytes = SIZE_MAX;

    if (!device->backend->available)
        return cvy_available_memory();
    return device->backend->available(device, &bytes) == CVY_OK ? bytes : SIZE_MAX;
}

bool cvy_update_begin(const struct cvy_update *step, int threads, float *factor)
{
    bool overflow = false;

    *factor = step->gradient_scale;
    if (!step->scaler)
        return true;
    *factor = step->gradient_scale / step->scaler->scale;
    for (int32_t s = 0; s < step->segment_count && step->rule.skips; s++) {
        const int64_t first = step->segments[s].first, end = first + step->segments[s].count;
#pragma omp parallel for num_threads(threads) reduction(|| : overflow)
        for (int64_t i = first; i < end; i++)
            overflow = overflow || !isfinite(step->gradients[i]);
    }
    step->scaler->overflow = overflow;
    return !overflow;
}

static void clear_plan(struct cvy_kernel_plan *plan, const struct cvy_kernel *kernel)
{
    memset(plan, 0, sizeof *plan);
    plan->kernel = kernel;
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        plan->in_place[i] = -1;
}

/* Adds to the reason what fits. */
static void add_reason(struct cvy_kernel_plan *plan, const char *text)
{
    const size_t used = strlen(plan->reason), room = sizeof plan->reason - 1 - used, length = strlen(text);

    memcpy(plan->reason + used, text, length < room ? length : room);
    plan->reason[used + (length < room ? length : room)] = '\0';
}

void cvy_refusals_add(struct cvy_refusals *refusals, const struct cvy_kernel *kernel, bool quiet)
{
    const size_t room = sizeof refusals->text - refusals->used;
    int written;

    if (quiet || refusals->used >= sizeof refusals->text)
        return;
    written = snprintf(refusals->text + refusals->used, room, "%s%s: %s", refusals->used ? "; " : "", kernel->name,
                       cvy_error());
    refusals->used += written > 0 ? (size_t)written : 0;
}

void cvy_refusals_complete(const struct cvy_refusals *refusals, struct cvy_kernel_plan *plan)
{
    char own[sizeof plan->reason];

    memcpy(own, plan->reason, sizeof own);
    plan->reason[0] = '\0';
    add_reason(plan, refusals->text);
    add_reason(plan, refusals->text[0] && own[0] ? "; " : "");
    add_reason(plan, own);
    if (!plan->reason[0])
        add_reason(plan, CVY_REASON_FIRST);
}

cvy_status cvy_kernel_prepare(cvy_device *device, const struct cvy_kernel *kernel, struct cvy_op_desc *desc,
                              struct cvy_kernel_plan *plan)
{
    struct cvy_op_desc attempt = *desc;
    cvy_status status;
    bool quiet;

    clear_plan(plan, kernel);
    status = kernel->prepare(device, &attempt, plan);
    if (status == CVY_OK) {
        *desc = attempt;
        return CVY_OK;
    }
    quiet = plan->quiet;
    cvy_kernel_release(device, plan);
    plan->quiet = quiet;
    return status;
}

cvy_status cvy_kernel_select_first(cvy_device *device, struct cvy_op_desc *desc, struct cvy_kernel_plan *plan)
{
    const struct cvy_backend *backend = device->backend;
    struct cvy_refusals loud = {0}, all = {0};

    for (size_t i = 0; i < backend->kernel_count; i++) {
        cvy_status status;

        if (backend->kernels[i].op != desc->op)
            continue;
        status = cvy_kernel_prepare(device, &backend->kernels[i], desc, plan);
        if (status == CVY_OK) {
            cvy_refusals_complete(&loud, plan);
            return CVY_OK;
        }
        if (status != CVY_UNAVAILABLE)
            return status;
        cvy_refusals_add(&all, &backend->kernels[i], false);
        cvy_refusals_add(&loud, &backend->kernels[i], plan->quiet);
    }
    clear_plan(plan, NULL);
    return cvy_fail(CVY_UNAVAILABLE, "no kernel of device %s takes this operation (%s)", backend->name,
                    all.used ? all.text : "none in its table");
}

void cvy_kernel_release(cvy_device *device, struct cvy_kernel_plan *plan)
{
    if (plan->kernel && plan->kernel->release)
        plan->kernel->release(device, plan);
    clear_plan(plan, NULL);
}

cvy_status cvy_device_sum(const cvy_device *device, double *values, int64_t count)
{
    return device->sum_ranks ? device->sum_ranks(device->sum_context, values, count) : CVY_OK;
}
