/* What is the same for all devices. */
#include "backend/backend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/resources.h"
#include "ops/ops.h"

/* Whether one of the settings "A=x B=y" begins with these characters and ends there or (`more`) continues. */
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

void cvy_kernel_plan_clear(struct cvy_kernel_plan *plan, const struct cvy_kernel *kernel)
{
    memset(plan, 0, sizeof *plan);
    plan->kernel = kernel;
    for (int i = 0; i < CVY_MAX_OUTPUTS; i++)
        plan->in_place[i] = -1;
}

cvy_status cvy_kernel_prepare(cvy_device *device, const struct cvy_kernel *kernel, struct cvy_op_desc *desc,
                              struct cvy_kernel_plan *plan)
{
    struct cvy_op_desc attempt = *desc;
    cvy_status status;
    bool quiet;

    cvy_kernel_plan_clear(plan, kernel);
    if (cvy_ops[desc->op].elementwise)
        plan->in_place[0] = cvy_op_in_place(desc->op);
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

void cvy_kernel_release(cvy_device *device, struct cvy_kernel_plan *plan)
{
    if (plan->kernel && plan->kernel->release)
        plan->kernel->release(device, plan);
    cvy_kernel_plan_clear(plan, NULL);
}

cvy_status cvy_device_sum(const cvy_device *device, double *values, int64_t count)
{
    return device->sum_ranks ? device->sum_ranks(device->sum_context, values, count) : CVY_OK;
}
