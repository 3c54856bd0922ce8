/* The check backend: "check:cpu" runs every kernel of the cpu device and, on the same inputs, the reference kernel in
 * double, and fails on the first output that is further away than rounding explains; of integer inference on the first
 * byte that differs. Slow; for finding a wrong kernel.
 */
#include <stdio.h>
#include <string.h>

#include "backend/check_internal.h"
#include "base/error.h"

cvy_status check_reserve(struct check_device *check, int index, size_t bytes)
{
    cvy_device *owner = index == SLOT_STAGE || index == SLOT_STAGE_SCRATCH ? check->inner : check->reference;
    struct check_buffer *buffer = &check->slots[index];

    if (bytes <= buffer->bytes)
        return CVY_OK;
    owner->backend->release(owner, buffer->memory);
    *buffer = (struct check_buffer){NULL, 0};
    CVY_TRY(owner->backend->allocate(owner, bytes, &buffer->memory));
    buffer->bytes = bytes;
    return CVY_OK;
}

/* ---- device ---- */

static void close_device(cvy_device *device)
{
    struct check_device *check = check_of(device);

    if (!check)
        return;
    for (int i = 0; i < SLOT_COUNT; i++) {
        cvy_device *owner = i == SLOT_STAGE || i == SLOT_STAGE_SCRATCH ? check->inner : check->reference;
        if (owner)
            owner->backend->release(owner, check->slots[i].memory);
    }
    cvy_device_close(check->inner);
    cvy_device_close(check->reference);
    if (check->lock_made)
        pthread_mutex_destroy(&check->lock);
    cvy_free(check);
}

cvy_status check_wrap(cvy_device *inner, cvy_device **device)
{
    struct check_device *check = cvy_calloc(1, sizeof *check);
    cvy_status status;

    *device = NULL;
    if (!check) {
        cvy_device_close(inner);
        return cvy_fail_memory(sizeof *check, "a device");
    }
    check->base.backend = &cvy_backend_check;
    check->base.threads = inner->threads;
    check->base.gpu = inner->gpu;
    check->base.older = inner->older;
    check->base.conv_statistics = inner->conv_statistics;
    check->base.int8 = inner->int8;
    check->inner = inner;
    inner->checked = true;
    if (pthread_mutex_init(&check->lock, NULL) != 0) {
        status = cvy_fail(CVY_FAILED, "a lock cannot be made");
        goto fail;
    }
    check->lock_made = true;
    CVY_GOTO(cvy_device_open("ref", inner->threads, &check->reference));
    CVY_GOTO(check_update_reserve(check));
    snprintf(check->base.description, sizeof check->base.description, "check of %.*s",
             (int)sizeof check->base.description - 10, inner->description);
    memcpy(check->base.settings, inner->settings, sizeof check->base.settings);
    check->base.autotuner =
        inner->autotuner; /* its rows do not compete: what is chosen is chosen among the inner ones */
    *device = &check->base;
    return CVY_OK;
fail:
    close_device(&check->base);
    return status;
}

static cvy_status open_device(const struct cvy_backend *backend, const char *spec, int threads, cvy_device **device)
{
    cvy_device *inner;

    (void)backend;
    *device = NULL;
    if (!spec || !spec[0] || strncmp(spec, "check", 5) == 0)
        return cvy_fail(CVY_USAGE, "device \"check\" needs the device to check, as in check:cpu");
    CVY_TRY(cvy_device_open(spec, threads, &inner));
    return check_wrap(inner, device);
}

static cvy_status allocate(cvy_device *device, size_t bytes, void **memory)
{
    cvy_device *inner = check_of(device)->inner;

    return inner->backend->allocate(inner, bytes, memory);
}

static void release(cvy_device *device, void *memory)
{
    cvy_device *inner = check_of(device)->inner;

    inner->backend->release(inner, memory);
}

static cvy_status enter(cvy_device *device)
{
    return cvy_device_enter(check_of(device)->inner);
}

static cvy_status set_deterministic(cvy_device *device, const char *word)
{
    cvy_device *inner = check_of(device)->inner;

    CVY_TRY(cvy_device_set_deterministic(inner, word));
    memcpy(device->settings, inner->settings, sizeof device->settings);
    return CVY_OK;
}

static cvy_status upload(cvy_device *device, void *to, const void *host, size_t bytes)
{
    cvy_device *inner = check_of(device)->inner;

    return inner->backend->upload(inner, to, host, bytes);
}

static cvy_status download(cvy_device *device, void *host, const void *from, size_t bytes)
{
    cvy_device *inner = check_of(device)->inner;

    return inner->backend->download(inner, host, from, bytes);
}

static cvy_status synchronize(cvy_device *device)
{
    cvy_device *inner = check_of(device)->inner;

    return inner->backend->synchronize(inner);
}

static size_t tensor_bytes(cvy_device *device, const struct cvy_tensor *tensor)
{
    cvy_device *inner = check_of(device)->inner;

    return inner->backend->tensor_bytes(inner, tensor);
}

/* ---- the table ---- */

#define CVY_OP(ID, text, ...)                                                                                          \
    {.op = CVY_OP_##ID, .name = "check." #text, .prepare = check_prepare, .run = check_run, .release = check_release},
#define CVY_OP_CLOSED(...)
static const struct cvy_kernel kernels[] = {
#include "graph/ops.def"
};

const struct cvy_backend cvy_backend_check = {
    .name = "check",
    .open = open_device,
    .close = close_device,
    .enter = enter,
    .set_deterministic = set_deterministic,
    .allocate = allocate,
    .release = release,
    .upload = upload,
    .download = download,
    .synchronize = synchronize,
    .update = check_update,
    .combine = check_combine,
    .tensor_bytes = tensor_bytes,
    .kernels = kernels,
    .kernel_count = sizeof kernels / sizeof *kernels,
    .host_memory = false, /* that depends on the device it checks */
};
