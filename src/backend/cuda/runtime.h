/* The few operations the module needs from the CUDA runtime. runtime.c implements them with CUDA; the tests have
 * another implementation that keeps "device memory" on the host (tests/emulated_cuda). All functions return CVY_OK or
 * record a sentence. */
#ifndef CVY_BACKEND_CUDA_RUNTIME_H
#define CVY_BACKEND_CUDA_RUNTIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convoy/program/program.h"

struct gpu_info {
    char name[64];
    int major, minor;    /* compute capability */
    int processors;      /* streaming multiprocessors */
    size_t memory;       /* bytes */
    int driver, runtime; /* 13000 = 13.0 */
};

/* CVY_UNAVAILABLE with the reason (no driver, no GPU, no such index) when it is missing; *count may be NULL. */
CVY_CHECKED cvy_status gpu_find(int index, int *count);
/* Its name and the cores near it; does not open the GPU. */
CVY_CHECKED cvy_status gpu_query(int index, struct cvy_gpu *gpu);
/* Makes the GPU the calling thread's current one, and describes it. */
CVY_CHECKED cvy_status gpu_select(int index, struct gpu_info *info);
/* Makes it the calling thread's current one; cheap when it already is. */
CVY_CHECKED cvy_status gpu_enter(int index);
/* Properties of the GPU as JSON in cuDNN's form, for planning without it; freed with cvy_free. */
CVY_CHECKED cvy_status gpu_describe(int index, char **json);
CVY_CHECKED cvy_status gpu_free_memory(size_t *bytes);
/* A number that no other GPU has, of any machine. */
CVY_CHECKED cvy_status gpu_identity(int index, uint64_t *identity);

CVY_CHECKED cvy_status gpu_stream_open(void **stream);
CVY_CHECKED cvy_status
gpu_stream_open_urgent(void **stream); /* its kernels have priority over those of other streams */
void gpu_stream_close(void *stream);   /* accepts NULL */
CVY_CHECKED cvy_status gpu_stream_wait(void *stream);
/* Whether all that is queued has run. */
CVY_CHECKED cvy_status gpu_stream_done(void *stream, bool *done);

/* CVY_NO_MEMORY when there is none. Zeroed; waits for the stream. */
CVY_CHECKED cvy_status gpu_allocate(void *stream, size_t bytes, void **memory);
void gpu_release(void *memory); /* waits for all work; accepts NULL */
/* Pinned host memory, for asynchronous copies. */
CVY_CHECKED cvy_status gpu_allocate_pinned(size_t bytes, void **memory);
void gpu_release_pinned(void *memory);
/* Where memory lies that a copy begins at. */
enum gpu_memory { GPU_MEMORY_HOST, GPU_MEMORY_PINNED, GPU_MEMORY_DEVICE };
enum gpu_memory gpu_memory_of(const void *memory);
/* Queued; the memory at `host` must stay valid until the stream has reached the copy. */
CVY_CHECKED cvy_status gpu_upload(void *stream, void *to, const void *host, size_t bytes);
/* Waits for the stream. */
CVY_CHECKED cvy_status gpu_download(void *stream, void *host, const void *from, size_t bytes);
/* Queued; `host` is pinned memory. */
CVY_CHECKED cvy_status gpu_download_queued(void *stream, void *host, const void *from, size_t bytes);
CVY_CHECKED cvy_status gpu_zero(void *stream, void *memory, size_t bytes);
CVY_CHECKED cvy_status gpu_copy(void *stream, void *to, const void *from, size_t bytes);
/* The error of the last launches. */
CVY_CHECKED cvy_status gpu_last_error(void);

/* Points in a stream. */
CVY_CHECKED cvy_status gpu_event_open(bool timing, void **event);
void gpu_event_close(void *event);
CVY_CHECKED cvy_status gpu_event_record(void *event, void *stream);
CVY_CHECKED cvy_status gpu_stream_wait_event(void *stream, void *event);
CVY_CHECKED cvy_status gpu_event_wait(void *event);
/* Whether the stream has reached it. */
CVY_CHECKED cvy_status gpu_event_done(void *event, bool *done);
/* Between two events with timing that have passed. */
CVY_CHECKED cvy_status gpu_event_seconds(void *from, void *to, double *seconds);

/* CUDA graph capture: work queued between begin and end is captured instead of executed. */
CVY_CHECKED cvy_status gpu_capture_begin(void *stream);
CVY_CHECKED cvy_status gpu_capture_end(void *stream, void **graph);
CVY_CHECKED cvy_status gpu_graph_launch(void *graph, void *stream);
void gpu_graph_close(void *graph); /* accepts NULL */

#endif
