/* runtime.h for a GPU that is not there: its memory is the host's. */
#include "backend/cuda/runtime.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/memory.h"
#include "recording.h"

/* ---- streams and captured work ---- */

struct entry {
    void (*play)(const void *data);
    void *data;
};

struct graph {
    struct entry *entries;
    size_t count, room;
};

struct stream {
    struct graph *capturing; /* NULL: work is done at once */
};

void emulated_do(void *handle, void (*play)(const void *data), const void *data, size_t bytes)
{
    struct stream *stream = handle;
    struct graph *graph = stream ? stream->capturing : NULL;

    if (!graph) {
        play(data);
        return;
    }
    if (graph->count == graph->room) {
        graph->room = graph->room ? 2 * graph->room : 64;
        graph->entries = cvy_realloc(graph->entries, graph->room, sizeof *graph->entries);
        if (!graph->entries)
            abort();
    }
    graph->entries[graph->count].play = play;
    graph->entries[graph->count].data = cvy_calloc(1, bytes);
    if (!graph->entries[graph->count].data)
        abort();
    memcpy(graph->entries[graph->count++].data, data, bytes);
}

cvy_status gpu_stream_open(void **stream)
{
    *stream = cvy_calloc(1, sizeof(struct stream));
    return *stream ? CVY_OK : cvy_fail_memory(sizeof(struct stream), "a stream");
}

void gpu_stream_close(void *stream)
{
    cvy_free(stream);
}

static cvy_status refuse_in_capture(const struct stream *stream, const char *what)
{
    return stream && stream->capturing ? cvy_fail(CVY_FAILED, "%s is not allowed while work is captured", what)
                                       : CVY_OK;
}

cvy_status gpu_stream_wait(void *stream)
{
    return refuse_in_capture(stream, "waiting");
}

cvy_status gpu_capture_begin(void *handle)
{
    struct stream *stream = handle;

    CVY_TRY(refuse_in_capture(stream, "a second capture"));
    stream->capturing = cvy_calloc(1, sizeof *stream->capturing);
    return stream->capturing ? CVY_OK : cvy_fail_memory(sizeof *stream->capturing, "captured work");
}

cvy_status gpu_capture_end(void *handle, void **graph)
{
    struct stream *stream = handle;

    *graph = stream->capturing;
    if (!stream->capturing)
        return cvy_fail(CVY_FAILED, "no work is being captured");
    stream->capturing = NULL;
    return CVY_OK;
}

cvy_status gpu_graph_launch(void *handle, void *stream)
{
    const struct graph *graph = handle;

    CVY_TRY(refuse_in_capture(stream, "starting captured work"));
    for (size_t i = 0; i < graph->count; i++)
        graph->entries[i].play(graph->entries[i].data);
    return CVY_OK;
}

void gpu_graph_close(void *handle)
{
    struct graph *graph = handle;

    for (size_t i = 0; graph && i < graph->count; i++)
        cvy_free(graph->entries[i].data);
    if (graph)
        cvy_free(graph->entries);
    cvy_free(graph);
}

/* ---- the GPU ---- */

cvy_status gpu_find(int index, int *count)
{
    if (count)
        *count = 1;
    return index == 0 ? CVY_OK : cvy_fail(CVY_UNAVAILABLE, "there is no GPU %d: this process sees 1 of them", index);
}

cvy_status gpu_select(int index, struct gpu_info *info)
{
    (void)index;
    *info = (struct gpu_info){.name = "emulated GPU",
                              .major = 9,
                              .processors = 4,
                              .memory = (size_t)4 << 30,
                              .l2_bytes = 1 << 20,
                              .driver = 13000,
                              .runtime = 13000};
    return CVY_OK;
}

cvy_status gpu_describe(int index, char **json)
{
    (void)index;
    *json = cvy_strdup("{\"deviceName\": \"emulated GPU\", \"multiProcessorCount\": 4}");
    return *json ? CVY_OK : cvy_fail_memory(64, "the GPU's properties");
}

cvy_status gpu_free_memory(size_t *bytes)
{
    *bytes = (size_t)4 << 30;
    return CVY_OK;
}

/* ---- memory ---- */

cvy_status gpu_allocate(void *stream, size_t bytes, void **memory)
{
    *memory = NULL;
    CVY_TRY(refuse_in_capture(stream, "allocating"));
    *memory = aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
    if (!*memory)
        return cvy_fail_memory(bytes, "tensors on the emulated GPU");
    memset(*memory, 0, bytes);
    return CVY_OK;
}

void gpu_release(void *memory)
{
    free(memory);
}

cvy_status gpu_allocate_pinned(size_t bytes, void **memory)
{
    return gpu_allocate(NULL, bytes, memory);
}

void gpu_release_pinned(void *memory)
{
    free(memory);
}

struct copy {
    void *to;
    const void *from; /* NULL: zeros */
    size_t bytes;
};

static void play_copy(const void *data)
{
    const struct copy *copy = data;

    if (copy->from)
        memmove(copy->to, copy->from, copy->bytes);
    else
        memset(copy->to, 0, copy->bytes);
}

cvy_status gpu_upload(void *stream, void *to, const void *host, size_t bytes)
{
    const struct copy copy = {to, host, bytes};

    CVY_TRY(refuse_in_capture(stream, "a copy from memory that is not pinned"));
    play_copy(&copy);
    return CVY_OK;
}

cvy_status gpu_download(void *stream, void *host, const void *from, size_t bytes)
{
    const struct copy copy = {host, from, bytes};

    CVY_TRY(refuse_in_capture(stream, "a copy to the host"));
    play_copy(&copy);
    return CVY_OK;
}

cvy_status gpu_zero(void *stream, void *memory, size_t bytes)
{
    const struct copy copy = {memory, NULL, bytes};

    emulated_do(stream, play_copy, &copy, sizeof copy);
    return CVY_OK;
}

cvy_status gpu_copy(void *stream, void *to, const void *from, size_t bytes)
{
    const struct copy copy = {to, from, bytes};

    emulated_do(stream, play_copy, &copy, sizeof copy);
    return CVY_OK;
}

cvy_status gpu_last_error(void)
{
    return CVY_OK;
}

/* ---- events: moments of the host's clock ---- */

cvy_status gpu_event_open(bool timing, void **event)
{
    (void)timing;
    *event = cvy_calloc(1, sizeof(struct timespec));
    return *event ? CVY_OK : cvy_fail_memory(sizeof(struct timespec), "an event");
}

void gpu_event_close(void *event)
{
    cvy_free(event);
}

cvy_status gpu_event_record(void *event, void *stream)
{
    (void)stream;
    clock_gettime(CLOCK_MONOTONIC, event);
    return CVY_OK;
}

cvy_status gpu_stream_wait_event(void *stream, void *event)
{
    (void)stream;
    (void)event;
    return CVY_OK;
}

cvy_status gpu_event_wait(void *event)
{
    (void)event;
    return CVY_OK;
}

cvy_status gpu_event_seconds(void *from, void *to, double *seconds)
{
    const struct timespec *a = from, *b = to;

    *seconds = (double)(b->tv_sec - a->tv_sec) + 1e-9 * (double)(b->tv_nsec - a->tv_nsec);
    return CVY_OK;
}
