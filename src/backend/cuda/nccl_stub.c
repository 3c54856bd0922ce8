/* Replaces nccl.c where NCCL's header was not found when Convoy was built. */
#include "backend/cuda/gpu.h"

static cvy_status query(cvy_device *device, struct cvy_collective_view *view)
{
    (void)device, (void)view;
    return cvy_fail(CVY_UNAVAILABLE, "this build of Convoy has no NCCL (its header was missing)");
}

static void leave(cvy_device *device, bool failed)
{
    (void)device, (void)failed;
}

/* Nobody joins whose look fails. */
const struct cvy_collective gpu_collective = {.name = "NCCL", .query = query, .leave = leave};

cvy_status gpu_wait(struct gpu_device *gpu, void *event)
{
    return event ? gpu_event_wait(event) : gpu_stream_wait(gpu->stream);
}

void gpu_group_close(struct gpu_device *gpu)
{
    (void)gpu;
}
