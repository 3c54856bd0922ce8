/* Sums between GPUs: NCCL behind backend/collective.h. It works on a stream of its own beside the device's, ordered by
 * two events: a sum waits for what made its numbers, and the optimizer for the sums. The communicator is a nonblocking
 * one, so that no call of it hangs, and whoever waits for the GPU asks NCCL and the other ranks how things stand. */
#include <nccl.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cuda/find_library.h"
#include "backend/cuda/gpu.h"
#include "backend/cuda/kernels/kernels.h"
#include "base/system.h"
#include "base/watchdog.h"

_Static_assert(sizeof(ncclUniqueId) == CVY_COLLECTIVE_KEY_BYTES, "a key is NCCL's unique id");

enum { OLDEST = 21800 }; /* 2.18: communicators that do not block */
static const double POLL_SECONDS = 0.05, SPIN_SECONDS = 0.005, LEAVE_SECONDS = 10;

#define NCCL_FUNCTIONS(each)                                                                                           \
    each(ncclGetVersion) each(ncclGetUniqueId) each(ncclCommInitRankConfig) each(ncclCommFinalize)                     \
        each(ncclCommDestroy) each(ncclCommAbort) each(ncclGetErrorString) each(ncclGetLastError)                      \
            each(ncclCommGetAsyncError) each(ncclAllReduce)
#define NCCL_FUNCTION(name) __typeof__(name) *name;
struct nccl {
    NCCL_FUNCTIONS(NCCL_FUNCTION)
    int version; /* 22809 = 2.28.9; 0: not loaded */
};
#undef NCCL_FUNCTION

/* A device among those of other ranks. */
struct gpu_group {
    struct nccl nccl;
    struct cvy_collective_group options;
    ncclComm_t comm; /* NULL once it is given up */
    void *stream, *ready, *done;
    void *narrow; /* (reserved), of 16 bits: the sums take turns in it, */
    void *bound;  /* and here (gpu_find_largest): what no sum is larger than */
    int64_t reserved;
    cvy_status status; /* of the first failure, with its sentence */
    char sentence[1024];
    double last_check; /* when the others were asked last */
};

/* ---- the library ---- */

static void version_text(int version, char *text, size_t size)
{
    snprintf(text, size, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

static bool accept(void *object, char found[32])
{
    ncclResult_t (*get_version)(int *version);
    int version = 0;

    if (!gpu_library_function(object, "ncclGetVersion", &get_version) || get_version(&version) != ncclSuccess) {
        snprintf(found, 32, "something else");
        return false;
    }
    version_text(version, found, 32);
    return version >= OLDEST;
}

static cvy_status load(struct nccl *nccl)
{
    static const char *const files[] = {"libnccl.so.2", NULL};
    static const struct gpu_library library = {"NCCL 2.18 or newer", "CONVOY_NCCL", files, accept};
    const char *named = getenv(library.variable);
    void *object;

    memset(nccl, 0, sizeof *nccl);
    if (named && strcmp(named, "none") == 0)
        return cvy_fail(CVY_UNAVAILABLE, "CONVOY_NCCL=none");
    CVY_TRY(gpu_library_find(&library, &object));
#define GET(name)                                                                                                      \
    if (!gpu_library_function(object, #name, &nccl->name))                                                             \
        return cvy_fail(CVY_UNAVAILABLE, "the NCCL found here has no %s", #name);
    NCCL_FUNCTIONS(GET)
#undef GET
    return nccl->ncclGetVersion(&nccl->version) == ncclSuccess ? CVY_OK
                                                               : cvy_fail(CVY_UNAVAILABLE, "NCCL has no version");
}

/* ---- failing ---- */

static cvy_status nccl_fail(const struct gpu_group *group, const struct nccl *nccl, ncclResult_t result,
                            const char *what)
{
    const char *last = nccl->ncclGetLastError(group ? group->comm : NULL);

    return cvy_fail(CVY_FAILED, "%s: NCCL says: %s (%d)%s%s", what, nccl->ncclGetErrorString(result), (int)result,
                    last && last[0] ? ", " : "", last && last[0] ? cvy_quote(last) : "");
}

/* Kernels of sums that hang end with the communicator; where NCCL hangs in that, the log says so as CVY_LOG_FATAL. */
static void abandon(struct gpu_group *group)
{
    struct cvy_watchdog *watchdog;
    char text[sizeof group->sentence + 64];

    if (!group->comm)
        return;
    snprintf(text, sizeof text, "%s%sNCCL does not let go of its sums", group->sentence,
             group->sentence[0] ? "; " : "");
    watchdog = cvy_watchdog_start(LEAVE_SECONDS, text);
    (void)group->nccl.ncclCommAbort(group->comm);
    cvy_watchdog_stop(watchdog);
    group->comm = NULL;
}

/* The first failure is kept. */
static cvy_status give_up(struct gpu_group *group, cvy_status status)
{
    if (group->status == CVY_OK) {
        group->status = status;
        cvy_error_get(group->sentence, sizeof group->sentence);
    }
    abandon(group);
    cvy_error_put(group->sentence);
    return group->status;
}

static cvy_status failed_before(const struct gpu_group *group)
{
    if (group->status != CVY_OK)
        cvy_error_put(group->sentence);
    return group->status;
}

/* How things stand, asked now and then by whoever waits since `begin`. `sums`: for sums, not for this GPU's own work.
 */
static cvy_status poll_ranks(struct gpu_group *group, double begin, bool sums)
{
    const double now = cvy_clock();
    ncclResult_t result = ncclSuccess;
    cvy_status status;

    if (now - group->last_check < POLL_SECONDS)
        return CVY_OK;
    group->last_check = now;
    status = group->options.reason(group->options.context, false); /* whoever failed knows better than NCCL */
    if (status != CVY_OK)
        return status;
    if (group->nccl.ncclCommGetAsyncError(group->comm, &result) != ncclSuccess ||
        (result != ncclSuccess && result != ncclInProgress))
        return nccl_fail(group, &group->nccl, result, "the sum of the gradients failed on this rank's GPU");
    if (sums && now - begin > group->options.timeout)
        return group->options.reason(group->options.context, true);
    return CVY_OK;
}

/* What waits for milliseconds sleeps; who has come in time does not. */
static void pause_since(double begin)
{
    const struct timespec moment = {.tv_nsec = 50000};

    if (cvy_clock() - begin < SPIN_SECONDS)
        sched_yield();
    else
        nanosleep(&moment, NULL);
}

/* Until a call has done its part on the host, which a nonblocking communicator does in a thread of its own. */
static cvy_status finish_call(struct gpu_group *group, ncclResult_t result, const char *what)
{
    const double begin = cvy_clock();

    while (result == ncclInProgress) {
        const cvy_status status = poll_ranks(group, begin, true);

        if (status != CVY_OK)
            return give_up(group, status);
        pause_since(begin);
        if (group->nccl.ncclCommGetAsyncError(group->comm, &result) != ncclSuccess)
            result = ncclInternalError;
    }
    return result == ncclSuccess ? CVY_OK : give_up(group, nccl_fail(group, &group->nccl, result, what));
}

/* ---- waiting for the GPU ---- */

/* Whether the work has come to the event, or (NULL) to its end. */
static cvy_status is_done(const struct gpu_device *gpu, void *event, bool *done)
{
    return event ? gpu_event_done(event, done) : gpu_stream_done(gpu->stream, done);
}

static cvy_status wait_alone(const struct gpu_device *gpu, void *event)
{
    return event ? gpu_event_wait(event) : gpu_stream_wait(gpu->stream);
}

cvy_status gpu_wait(struct gpu_device *gpu, void *event)
{
    struct gpu_group *group = gpu->group;
    const double begin = cvy_clock();
    bool done = false, summed = false;

    if (!group)
        return wait_alone(gpu, event);
    CVY_TRY(failed_before(group));
    for (;;) {
        cvy_status status = is_done(gpu, event, &done);

        if (status == CVY_OK && done)
            return wait_alone(gpu, event);
        if (status == CVY_OK)
            status = gpu_stream_done(group->stream, &summed);
        if (status == CVY_OK)
            status = poll_ranks(group, begin, !summed);
        if (status != CVY_OK)
            return give_up(group, status);
        pause_since(begin);
    }
}

/* ---- of the backend ---- */

static cvy_status query(cvy_device *device, struct cvy_collective_view *view)
{
    struct nccl nccl;

    CVY_TRY(load(&nccl));
    version_text(nccl.version, view->version, sizeof view->version);
    return gpu_identity(gpu_of(device)->index, &view->device);
}

static cvy_status make_key(cvy_device *device, unsigned char key[CVY_COLLECTIVE_KEY_BYTES])
{
    struct nccl nccl;
    ncclUniqueId id;
    ncclResult_t result;

    (void)device;
    CVY_TRY(load(&nccl));
    result = nccl.ncclGetUniqueId(&id);
    if (result != ncclSuccess)
        return nccl_fail(NULL, &nccl, result, "no meeting place for the GPUs can be made");
    memcpy(key, &id, sizeof id);
    return CVY_OK;
}

static cvy_status reserve(cvy_device *device, int64_t max)
{
    struct gpu_group *group = gpu_of(device)->group;

    if (max <= group->reserved)
        return CVY_OK;
    CVY_TRY(gpu_enter_of(gpu_of(device)));
    gpu_release(group->narrow);
    group->narrow = NULL;
    group->reserved = 0;
    if (!group->bound)
        CVY_TRY(gpu_allocate(gpu_of(device)->stream, (1 + GPU_LARGEST_BLOCKS) * sizeof(float), &group->bound));
    CVY_TRY(gpu_allocate(gpu_of(device)->stream, (size_t)max * sizeof(uint16_t), &group->narrow));
    group->reserved = max;
    return CVY_OK;
}

static cvy_status all_reduce(struct gpu_group *group, void *values, int64_t count, ncclDataType_t type)
{
    return finish_call(group,
                       group->nccl.ncclAllReduce(values, values, (size_t)count, type, ncclSum, group->comm,
                                                 (cudaStream_t)group->stream),
                       "the gradients cannot be summed");
}

static cvy_status sum(cvy_device *device, float *values, int64_t count, enum cvy_dtype wire_dtype)
{
    struct gpu_device *gpu = gpu_of(device);
    struct gpu_group *group = gpu->group;
    float *bound = wire_dtype == CVY_F16 ? group->bound : NULL;

    CVY_TRY(failed_before(group));
    CVY_TRY(gpu_event_record(group->ready, gpu->stream));
    CVY_TRY(gpu_stream_wait_event(group->stream, group->ready));
    if (wire_dtype == CVY_F32)
        return all_reduce(group, values, count, ncclFloat32);
    if (count > group->reserved)
        return cvy_fail(CVY_FAILED, "no memory was reserved for gradients that are sent in 16 bits");
    if (bound) {
        gpu_find_largest(group->stream, values, count, bound);
        CVY_TRY(all_reduce(group, bound, 1, ncclFloat32));
    }
    gpu_narrow_floats(group->stream, wire_dtype, group->narrow, values, count, bound);
    CVY_TRY(all_reduce(group, group->narrow, count, wire_dtype == CVY_F16 ? ncclFloat16 : ncclBfloat16));
    gpu_widen_floats(group->stream, wire_dtype, values, group->narrow, count, bound);
    return gpu_queued(gpu);
}

static cvy_status fence(cvy_device *device)
{
    struct gpu_device *gpu = gpu_of(device);

    CVY_TRY(failed_before(gpu->group));
    CVY_TRY(gpu_event_record(gpu->group->done, gpu->group->stream));
    return gpu_stream_wait_event(gpu->stream, gpu->group->done);
}

/* Connections are made with the first sum: here, where it is known what it must come to. */
static cvy_status try_sum(cvy_device *device)
{
    struct gpu_device *gpu = gpu_of(device);
    const int world = gpu->group->options.world;
    const float expected = (float)world * (float)(world + 1) / 2;
    float value = (float)(gpu->group->options.rank + 1);
    void *memory;
    cvy_status status;

    CVY_TRY(gpu_allocate(gpu->stream, sizeof value, &memory));
    status = gpu_upload(gpu->stream, memory, &value, sizeof value);
    if (status == CVY_OK)
        status = sum(device, memory, 1, CVY_F32);
    if (status == CVY_OK)
        status = fence(device);
    if (status == CVY_OK)
        status = gpu_wait(gpu, NULL);
    if (status == CVY_OK)
        status = gpu_download(gpu->stream, &value, memory, sizeof value);
    gpu_release(memory);
    CVY_TRY(status);
    return value == expected ? CVY_OK
                             : cvy_fail(CVY_FAILED, "a first sum over the GPUs of %d ranks is %g instead of %g", world,
                                        (double)value, (double)expected);
}

static void leave(cvy_device *device, bool failed)
{
    struct gpu_device *gpu = gpu_of(device);
    struct gpu_group *group = gpu->group;
    double begin;

    if (!group)
        return;
    begin = cvy_clock();
    if (group->comm && !failed) {
        ncclResult_t result = group->nccl.ncclCommFinalize(group->comm);
        while (result == ncclInProgress && cvy_clock() - begin < LEAVE_SECONDS) {
            pause_since(begin);
            if (group->nccl.ncclCommGetAsyncError(group->comm, &result) != ncclSuccess)
                result = ncclInternalError;
        }
        if (result == ncclSuccess && group->nccl.ncclCommDestroy(group->comm) == ncclSuccess)
            group->comm = NULL;
    }
    abandon(group);
    gpu_release(group->narrow);
    gpu_release(group->bound);
    gpu_event_close(group->ready);
    gpu_event_close(group->done);
    gpu_stream_close(group->stream);
    cvy_free(group);
    gpu->group = NULL;
    device->joined = false;
}

static cvy_status join(cvy_device *device, const struct cvy_collective_group *options)
{
    struct gpu_device *gpu = gpu_of(device);
    struct gpu_group *group = cvy_calloc(1, sizeof *group);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    cvy_status status;

    if (!group)
        return cvy_fail_memory(sizeof *group, "the GPUs of the other ranks");
    gpu->group = group;
    group->options = *options;
    CVY_GOTO(load(&group->nccl));
    CVY_GOTO(gpu_enter_of(gpu));
    CVY_GOTO(gpu_stream_open_urgent(&group->stream));
    CVY_GOTO(gpu_event_open(false, &group->ready));
    CVY_GOTO(gpu_event_open(false, &group->done));
    config.blocking = 0;
    memcpy(&id, options->key, sizeof id);
    CVY_GOTO(finish_call(group,
                         group->nccl.ncclCommInitRankConfig(&group->comm, options->world, id, options->rank, &config),
                         "the GPUs of the ranks cannot be connected"));
    CVY_GOTO(try_sum(device));
    device->joined = true;
    return CVY_OK;
fail:
    leave(device, true);
    return status;
}

const struct cvy_collective gpu_collective = {
    .name = "NCCL",
    .query = query,
    .make_key = make_key,
    .join = join,
    .reserve = reserve,
    .sum = sum,
    .fence = fence,
    .leave = leave,
};

void gpu_group_close(struct gpu_device *gpu)
{
    leave(&gpu->base, true);
}
