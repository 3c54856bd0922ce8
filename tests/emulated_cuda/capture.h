/* Streams of the emulated GPU. Work is done at once as long as nothing before it waits; after what waits for another
 * process (a sum of the ranks' gradients) it queues up, and is done when somebody asks. While a stream is being
 * captured its work is recorded. */
#ifndef CVY_TESTS_EMULATED_CUDA_CAPTURE_H
#define CVY_TESTS_EMULATED_CUDA_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include "convoy/status.h"

/* Threads take turns: a function that begins with EMULATED_ALONE() runs alone among those that do. They may call one
 * another. */
int emulated_enter(void);
void emulated_leave(const int *unused);
#define EMULATED_ALONE() const __attribute__((cleanup(emulated_leave), unused)) int alone = emulated_enter()

/* Call play(data) when it is its turn, or keep a copy of the data and call it whenever the captured graph is launched.
 */
void emulated_do(void *stream, void (*replay)(const void *data), const void *data, size_t bytes);
/* The GPU of the calling thread: work is refused by abort() on a stream that was opened on another one. */
int emulated_gpu(void);
/* Whether work would be done at once. */
bool emulated_is_idle(void *stream);
/* CVY_FAILED while the stream is being captured. */
CVY_CHECKED cvy_status emulated_refuse_in_capture(const void *stream, const char *what);
/* Until all streams have done their work: what freeing memory waits for. */
void emulated_drain(void);

/* Events take the time from `read`, or from the host's clock again (NULL): so that a test of timed choices depends on
 * nothing but what it says a kernel takes. */
void emulated_set_clock(void (*read)(struct timespec *now));

/* As after a kernel that faulted, which the one is that CONVOY_EMULATED_FAULT names: waiting for a stream fails. */
extern bool emulated_broken;

/* How every stream begins: for the stand-in of NCCL, which is another library. */
struct emulated_stream_door {
    /* What is queued later waits until done(op) says true, which is asked from when all that was queued before is done.
     */
    void (*attach)(void *stream, bool (*done)(void *op), void *op);
};

#endif
