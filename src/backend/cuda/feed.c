/* Batches on their way to the GPU while it computes.
 *
 * Call n copies into a place that was last read by work queued before call n - 1: at every call an event is recorded in
 * the stream of the work, and the copies of call n wait for the event of call n - 1. */
#include <string.h>

#include "backend/cuda/gpu.h"

enum { ALIGNMENT = 256 };

static size_t align_up(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static cvy_status open_feed(struct gpu_feed *feed)
{
    CVY_TRY(gpu_stream_open(&feed->stream));
    for (int i = 0; i < 2; i++) {
        CVY_TRY(gpu_event_open(false, &feed->copied[i]));
        CVY_TRY(gpu_event_open(false, &feed->queued[i]));
    }
    return CVY_OK;
}

void gpu_feed_close(struct gpu_feed *feed)
{
    for (int i = 0; i < 2; i++) {
        gpu_event_close(feed->copied[i]);
        gpu_event_close(feed->queued[i]);
        gpu_release_pinned(feed->pinned[i]);
    }
    gpu_stream_close(feed->stream);
    memset(feed, 0, sizeof *feed);
}

/* Pinned memory of this turn, once its last copies are done. */
static cvy_status take_pinned(struct gpu_device *gpu, int turn, size_t bytes)
{
    struct gpu_feed *feed = &gpu->feed;

    if (feed->calls >= 2)
        CVY_TRY(gpu_event_wait(feed->copied[turn]));
    if (bytes <= feed->pinned_bytes[turn])
        return CVY_OK;
    CVY_TRY(gpu_wait(gpu, NULL)); /* as allocating may, but no longer than a group's rules allow */
    gpu_release_pinned(feed->pinned[turn]);
    feed->pinned[turn] = NULL;
    feed->pinned_bytes[turn] = 0;
    CVY_TRY(gpu_allocate_pinned(bytes, &feed->pinned[turn]));
    feed->pinned_bytes[turn] = bytes;
    return CVY_OK;
}

cvy_status gpu_feed(cvy_device *device, void *const *to, const void *const *host, const size_t *bytes, int count)
{
    struct gpu_device *gpu = gpu_of(device);
    struct gpu_feed *feed = &gpu->feed;
    const int turn = feed->turn;
    size_t sum = 0, used = 0;

    CVY_TRY(gpu_enter_of(gpu));
    if (!feed->stream)
        CVY_TRY(open_feed(feed));
    for (int i = 0; i < count; i++)
        sum += align_up(bytes[i]);
    CVY_TRY(take_pinned(gpu, turn, sum));
    CVY_TRY(gpu_event_record(feed->queued[turn], gpu->stream));
    if (feed->calls > 0)
        CVY_TRY(gpu_stream_wait_event(feed->stream, feed->queued[!turn]));
    for (int i = 0; i < count; i++) {
        char *pinned = (char *)feed->pinned[turn] + used;
        memcpy(pinned, host[i], bytes[i]);
        CVY_TRY(gpu_upload(feed->stream, to[i], pinned, bytes[i]));
        used += align_up(bytes[i]);
    }
    CVY_TRY(gpu_event_record(feed->copied[turn], feed->stream));
    CVY_TRY(gpu_stream_wait_event(gpu->stream, feed->copied[turn]));
    feed->turn = !turn;
    if (feed->calls < 2)
        feed->calls++;
    return CVY_OK;
}
