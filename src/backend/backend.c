/* Opening devices by name and choosing kernels from their tables. */
#include "backend/backend.h"

#include <stdio.h>
#include <string.h>

#include "backend/choice_internal.h"
#include "base/error.h"

bool cvy_layout_equal(const struct cvy_layout *a, const struct cvy_layout *b)
{
    if (a->kind != b->kind)
        return false;
    if (a->kind != CVY_LAYOUT_OPAQUE)
        return true;
    return a->detail_size == b->detail_size && memcmp(a->detail, b->detail, a->detail_size) == 0;
}

const char *cvy_layout_name(const struct cvy_layout *layout)
{
    static const char *const names[] = {"plain", "nhwc", "nChw16c", "nChw8c", "opaque"};
    return names[layout->kind];
}

/* The backends of this build, in the order in which "auto" tries them. `ref` and `check` are only used by name. */
static const struct cvy_backend *const backends[] = {&cvy_backend_cpu, &cvy_backend_ref, &cvy_backend_check};

cvy_status cvy_device_open(const char *name, int threads, cvy_device **device)
{
    char backend_name[32];
    const char *spec;
    size_t length;

    *device = NULL;
    if (!name || strcmp(name, "auto") == 0)
        name = "cpu";
    spec = strchr(name, ':');
    length = spec ? (size_t)(spec - name) : strlen(name);
    for (size_t i = 0; i < sizeof backends / sizeof *backends; i++) {
        if (strlen(backends[i]->name) == length && strncmp(backends[i]->name, name, length) == 0)
            return backends[i]->open(backends[i], spec ? spec + 1 : NULL, threads, device);
    }
    if (length == 4 && strncmp(name, "cuda", 4) == 0)
        return cvy_fail(CVY_UNAVAILABLE, "device %s is not available: this build has no CUDA module", cvy_quote(name));
    snprintf(backend_name, sizeof backend_name, "%.*s", (int)(length < 31 ? length : 31), name);
    return cvy_fail(CVY_USAGE, "unknown device %s: use auto, cpu, ref or check:cpu", cvy_quote(backend_name));
}

void cvy_device_close(cvy_device *device)
{
    if (device)
        device->backend->close(device);
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
