/* Numbers on their way to the host while the GPU computes on: copies into pinned memory behind the work that made them,
 * and an event behind the copies. */
#include <string.h>

#include "backend/cuda/gpu.h"

static cvy_status open_letters(struct gpu_letters *letters)
{
    for (int i = 0; i < 2; i++) {
        void *memory;

        CVY_TRY(gpu_event_open(false, &letters->arrived[i]));
        CVY_TRY(gpu_allocate_pinned(CVY_SEND_BYTES, &memory));
        letters->pinned[i] = memory;
    }
    return CVY_OK;
}

void gpu_letters_close(struct gpu_letters *letters)
{
    for (int i = 0; i < 2; i++) {
        gpu_event_close(letters->arrived[i]);
        gpu_release_pinned(letters->pinned[i]);
    }
    memset(letters, 0, sizeof *letters);
}

cvy_status gpu_send(cvy_device *device, int place, const void *const *from, const size_t *bytes, int count)
{
    struct gpu_device *gpu = gpu_of(device);
    struct gpu_letters *letters = &gpu->letters;
    size_t used = 0;
    cvy_status status;

    CVY_TRY(gpu_enter_of(gpu));
    if (!letters->pinned[0]) {
        CVY_TRY(gpu_wait(gpu, NULL)); /* as allocating may, but no longer than a group's rules allow */
        status = open_letters(letters);
        if (status != CVY_OK) {
            gpu_letters_close(letters);
            return status;
        }
    }
    for (int i = 0; i < count; i++) {
        CVY_TRY(gpu_download_later(gpu->stream, letters->pinned[place] + used, from[i], bytes[i]));
        used += bytes[i];
    }
    return gpu_event_record(letters->arrived[place], gpu->stream);
}

cvy_status gpu_receive(cvy_device *device, int place, void *host, size_t bytes)
{
    struct gpu_device *gpu = gpu_of(device);

    CVY_TRY(gpu_enter_of(gpu));
    CVY_TRY(gpu_wait(gpu, gpu->letters.arrived[place]));
    memcpy(host, gpu->letters.pinned[place], bytes);
    return CVY_OK;
}
