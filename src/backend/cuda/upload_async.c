/* Asynchronous uploads of batches while the GPU computes.
 *
 * Call n copies into a place that was last read by work queued before call n - 1: at every call an event is recorded in
 * the stream of the work, and the copies of call n wait for the event of call n - 1. */
#include <pthread.h>
#include <string.h>

#include "backend/cuda/gpu.h"
#include "base/parallel.h"
#include "base/resources.h"

/* A batch goes through pinned memory in pieces, so that the GPU fetches one while the next is being copied there; of
 * large ones several threads copy, as one is slower than the bus. */
enum { ALIGNMENT = 256, PIECE = 1 << 20, LARGE = 4 * PIECE, COPIERS = 4 };

static size_t align_up(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static cvy_status open_uploads(struct gpu_uploads *uploads)
{
    CVY_TRY(gpu_stream_open(&uploads->stream));
    for (int i = 0; i < 2; i++) {
        CVY_TRY(gpu_event_open(false, &uploads->copied[i]));
        CVY_TRY(gpu_event_open(false, &uploads->queued[i]));
    }
    return CVY_OK;
}

void gpu_uploads_close(struct gpu_uploads *uploads)
{
    for (int i = 0; i < 2; i++) {
        gpu_event_close(uploads->copied[i]);
        gpu_event_close(uploads->queued[i]);
        gpu_release_pinned(uploads->pinned[i]);
    }
    gpu_stream_close(uploads->stream);
    memset(uploads, 0, sizeof *uploads);
}

/* Pinned memory of this turn, once its last copies are done. */
static cvy_status take_pinned(struct gpu_device *gpu, int turn, size_t bytes)
{
    struct gpu_uploads *uploads = &gpu->uploads;

    if (uploads->calls >= 2)
        CVY_TRY(gpu_event_wait(uploads->copied[turn]));
    if (bytes <= uploads->pinned_bytes[turn])
        return CVY_OK;
    CVY_TRY(gpu_wait(gpu, NULL)); /* as allocating may, but no longer than a group's rules allow */
    gpu_release_pinned(uploads->pinned[turn]);
    uploads->pinned[turn] = NULL;
    uploads->pinned_bytes[turn] = 0;
    CVY_TRY(gpu_allocate_pinned(bytes, &uploads->pinned[turn]));
    uploads->pinned_bytes[turn] = bytes;
    return CVY_OK;
}

struct copy {
    struct gpu_device *gpu;
    pthread_mutex_t mutex; /* the stream's queue */
    char *to, *pinned;
    const char *host;
    size_t bytes;
};

static cvy_status copy_begin(void *context, void **state)
{
    *state = NULL;
    return gpu_enter_of(((struct copy *)context)->gpu);
}

static cvy_status copy_piece(void *context, void *state, int64_t index)
{
    struct copy *copy = context;
    const size_t done = (size_t)index * PIECE, left = copy->bytes - done, bytes = left < PIECE ? left : PIECE;
    cvy_status status;

    (void)state;
    memcpy(copy->pinned + done, copy->host + done, bytes);
    pthread_mutex_lock(&copy->mutex);
    status = gpu_upload(copy->gpu->uploads.stream, copy->to + done, copy->pinned + done, bytes);
    pthread_mutex_unlock(&copy->mutex);
    return status;
}

/* By way of pinned memory of as many bytes. */
static cvy_status copy_through(struct gpu_device *gpu, void *to, char *pinned, const void *host, size_t bytes)
{
    const int cores = cvy_default_threads(), threads = bytes < LARGE ? 1 : cores < COPIERS ? cores : COPIERS;
    struct copy copy = {.gpu = gpu, .to = to, .pinned = pinned, .host = host, .bytes = bytes};
    const struct cvy_parallel work = {.context = &copy, .begin = copy_begin, .each = copy_piece};
    cvy_status status;

    pthread_mutex_init(&copy.mutex, NULL);
    status = cvy_parallel_run(&work, (int64_t)((bytes + PIECE - 1) / PIECE), threads);
    pthread_mutex_destroy(&copy.mutex);
    return status;
}

/* Pageable memory goes by way of pinned memory; what is pinned or the GPU's own is copied from where it is. */
static cvy_status copy_in(struct gpu_device *gpu, void *to, const void *from, enum gpu_memory place, size_t bytes,
                          size_t *used)
{
    struct gpu_uploads *uploads = &gpu->uploads;
    char *pinned = (char *)uploads->pinned[uploads->turn] + *used;

    if (place == GPU_MEMORY_DEVICE)
        return gpu_copy(uploads->stream, to, from, bytes);
    if (place == GPU_MEMORY_PINNED)
        return gpu_upload(uploads->stream, to, from, bytes);
    *used += align_up(bytes);
    return copy_through(gpu, to, pinned, from, bytes);
}

cvy_status gpu_upload_async(cvy_device *device, void *const *to, const void *const *from, const size_t *bytes,
                            int count)
{
    struct gpu_device *gpu = gpu_of(device);
    struct gpu_uploads *uploads = &gpu->uploads;
    const int turn = uploads->turn;
    size_t sum = 0, used = 0;
    bool direct = false;

    CVY_TRY(gpu_enter_of(gpu));
    if (!uploads->stream)
        CVY_TRY(open_uploads(uploads));
    for (int i = 0; i < count; i++)
        sum += gpu_memory_of(from[i]) == GPU_MEMORY_HOST ? align_up(bytes[i]) : 0;
    CVY_TRY(take_pinned(gpu, turn, sum));
    CVY_TRY(gpu_event_record(uploads->queued[turn], gpu->stream));
    if (uploads->calls > 0)
        CVY_TRY(gpu_stream_wait_event(uploads->stream, uploads->queued[!turn]));
    for (int i = 0; i < count; i++) {
        const enum gpu_memory place = gpu_memory_of(from[i]);
        CVY_TRY(copy_in(gpu, to[i], from[i], place, bytes[i], &used));
        direct |= place != GPU_MEMORY_HOST;
    }
    CVY_TRY(gpu_event_record(uploads->copied[turn], uploads->stream));
    CVY_TRY(gpu_stream_wait_event(gpu->stream, uploads->copied[turn]));
    uploads->turn = !turn;
    if (uploads->calls < 2)
        uploads->calls++;
    /* The caller may change its memory after return. What the copies wait for is the step before the one that runs. */
    return direct ? gpu_wait(gpu, uploads->copied[turn]) : CVY_OK;
}
