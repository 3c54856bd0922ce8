/* Asynchronous downloads while the GPU continues computing: copies into pinned memory after the work that produced the
 * numbers, and an event after the copies. */
#include <string.h>

#include "backend/cuda/gpu.h"

static cvy_status open_downloads(struct gpu_downloads *downloads)
{
    for (int i = 0; i < 2; i++) {
        void *memory;

        CVY_TRY(gpu_event_open(false, &downloads->arrived[i]));
        CVY_TRY(gpu_allocate_pinned(CVY_ASYNC_DOWNLOAD_BYTES, &memory));
        downloads->pinned[i] = memory;
    }
    return CVY_OK;
}

void gpu_downloads_close(struct gpu_downloads *downloads)
{
    for (int i = 0; i < 2; i++) {
        gpu_event_close(downloads->arrived[i]);
        gpu_release_pinned(downloads->pinned[i]);
    }
    memset(downloads, 0, sizeof *downloads);
}

cvy_status gpu_download_async(cvy_device *device, int place, const void *const *from, const size_t *bytes, int count)
{
    struct gpu_device *gpu = gpu_of(device);
    struct gpu_downloads *downloads = &gpu->downloads;
    size_t used = 0;
    cvy_status status;

    CVY_TRY(gpu_enter_of(gpu));
    if (!downloads->pinned[0]) {
        CVY_TRY(gpu_wait(gpu, NULL)); /* as allocating may, but no longer than a group's rules allow */
        status = open_downloads(downloads);
        if (status != CVY_OK) {
            gpu_downloads_close(downloads);
            return status;
        }
    }
    for (int i = 0; i < count; i++) {
        CVY_TRY(gpu_download_queued(gpu->stream, downloads->pinned[place] + used, from[i], bytes[i]));
        used += bytes[i];
    }
    return gpu_event_record(downloads->arrived[place], gpu->stream);
}

cvy_status gpu_download_wait(cvy_device *device, int place, void *host, size_t bytes)
{
    struct gpu_device *gpu = gpu_of(device);

    CVY_TRY(gpu_enter_of(gpu));
    CVY_TRY(gpu_wait(gpu, gpu->downloads.arrived[place]));
    memcpy(host, gpu->downloads.pinned[place], bytes);
    return CVY_OK;
}
