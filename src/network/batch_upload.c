/* Two buffers of device memory for each input, used in turn. */
#include "network/batch_upload.h"

#include <string.h>

#include "base/error.h"
#include "data/loader/loader.h"

static const char *const input_names[CVY_BATCH_INPUTS] = {"image",       "target", "partner",
                                                          "coefficient", "boxes",  "labels"};
/* For one image, where that is always the same. */
static const size_t bytes_per_image[CVY_BATCH_INPUTS] = {0,
                                                         sizeof(int32_t),
                                                         sizeof(int32_t),
                                                         sizeof(float),
                                                         CVY_MAX_BOXES * 4 * sizeof(float),
                                                         CVY_MAX_BOXES * sizeof(int32_t)};

cvy_status cvy_batch_upload_open(struct cvy_batch_upload *upload, cvy_device *device, int64_t batch, size_t image_bytes)
{
    const struct cvy_backend *backend = device->backend;
    cvy_status status;

    memset(upload, 0, sizeof *upload);
    upload->device = device;
    for (int p = 1; p < CVY_BATCH_INPUTS; p++)
        upload->bytes[p] = (size_t)batch * bytes_per_image[p];
    if (!cvy_size_mul((size_t)batch, image_bytes, &upload->bytes[0]))
        return cvy_fail(CVY_NO_MEMORY, "a batch of %lld images is too large", (long long)batch);
    for (int p = 0; p < CVY_BATCH_INPUTS && !backend->host_memory; p++) {
        for (int i = 0; i < 2; i++)
            CVY_GOTO(backend->allocate(device, upload->bytes[p], &upload->memory[p][i]));
    }
    return CVY_OK;
fail:
    cvy_batch_upload_close(upload);
    return status;
}

void cvy_batch_upload_close(struct cvy_batch_upload *upload)
{
    for (int p = 0; upload->device && p < CVY_BATCH_INPUTS; p++) {
        for (int i = 0; i < 2; i++)
            upload->device->backend->release(upload->device, upload->memory[p][i]);
    }
    memset(upload, 0, sizeof *upload);
}

/* In the order of input_names. */
static void inputs_of(const struct cvy_host_batch *batch, const void *inputs[CVY_BATCH_INPUTS])
{
    inputs[0] = batch->images;
    inputs[1] = batch->labels;
    inputs[2] = batch->partner;
    inputs[3] = batch->coefficient;
    inputs[4] = batch->boxes;
    inputs[5] = batch->box_labels;
}

static cvy_status upload_batch(struct cvy_batch_upload *upload, const struct cvy_host_batch *batch)
{
    const struct cvy_backend *backend = upload->device->backend;
    const void *inputs[CVY_BATCH_INPUTS], *from[CVY_BATCH_INPUTS];
    void *to[CVY_BATCH_INPUTS];
    size_t bytes[CVY_BATCH_INPUTS];
    int count = 0;

    upload->turn = !upload->turn;
    inputs_of(batch, inputs);
    for (int p = 0; p < CVY_BATCH_INPUTS; p++) {
        if (!inputs[p])
            continue;
        from[count] = inputs[p];
        to[count] = upload->memory[p][upload->turn];
        bytes[count++] = upload->bytes[p];
    }
    if (backend->upload_async)
        return backend->upload_async(upload->device, to, from, bytes, count);
    for (int i = 0; i < count; i++)
        CVY_TRY(backend->upload(upload->device, to[i], from[i], bytes[i]));
    return CVY_OK;
}

cvy_status cvy_batch_upload_bind(struct cvy_batch_upload *upload, struct cvy_plan *plan,
                                 const struct cvy_host_batch *batch)
{
    const bool host = upload->device->backend->host_memory;
    const void *inputs[CVY_BATCH_INPUTS];

    if (!host)
        CVY_TRY(upload_batch(upload, batch));
    inputs_of(batch, inputs);
    for (int p = 0; p < CVY_BATCH_INPUTS; p++) {
        if (inputs[p])
            CVY_TRY(cvy_plan_bind(plan, input_names[p], host ? inputs[p] : upload->memory[p][upload->turn]));
    }
    return CVY_OK;
}
