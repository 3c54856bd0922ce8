/* Choosing kernels from the table of a device: the first row that accepts, and why the others refuse. */
#include <stdio.h>
#include <string.h>

#include "backend/autotune_internal.h"
#include "base/error.h"

/* Adds to the reason what fits. */
static void add_reason(struct cvy_kernel_plan *plan, const char *text)
{
    const size_t used = strlen(plan->reason), capacity = sizeof plan->reason - 1 - used, length = strlen(text);

    memcpy(plan->reason + used, text, length < capacity ? length : capacity);
    plan->reason[used + (length < capacity ? length : capacity)] = '\0';
}

void cvy_refusals_add(struct cvy_refusals *refusals, const struct cvy_kernel *kernel, bool quiet)
{
    const size_t capacity = sizeof refusals->text - refusals->used;
    int written;

    if (quiet || refusals->used >= sizeof refusals->text)
        return;
    written = snprintf(refusals->text + refusals->used, capacity, "%s%s: %s", refusals->used ? "; " : "", kernel->name,
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
    cvy_kernel_plan_clear(plan, NULL);
    return cvy_fail(CVY_UNAVAILABLE, "no kernel of device %s takes this operation (%s)", backend->name,
                    all.used ? all.text : "none in its table");
}
