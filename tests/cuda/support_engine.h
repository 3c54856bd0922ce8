/* What the tests of the engine of convolutions share: a folder for its file of choices, the warnings that came, and a
 * device that plans on a real cuDNN and only notes what it is to run. */
#ifndef SUPPORT_ENGINE_H
#define SUPPORT_ENGINE_H

#include "backend/cuda/cudnn/cudnn_engine.h"

extern char folder[256]; /* CONVOY_CACHE_DIR of a test */
extern char warnings[4096];

int make_folder(void **state); /* clears the warnings too */
int remove_folder(void **state);
void note_warnings(void); /* from now on, in `warnings` */

void must(cvy_status status);
void must_say(const char *part); /* of the last error */

/* ---- a device on a real cuDNN ---- */
extern struct gpu_device device;
/* On the clock of the emulated GPU, where all else takes a microsecond: no choice depends on this machine's load. */
void pass_milliseconds(int milliseconds);
/* What cudnnBackendExecute was called with. All plans take 20 ms of the emulated clock but the one that is meant to
 * win, `fastest` in the order in which they were tried. */
enum { MAX_PLANS = 64 };
extern struct ran {
    cudnnBackendDescriptor_t plans[MAX_PLANS];
    int plan_count, calls, fastest;
    cudnnStatus_t (*work)(int plan); /* what a plan does, by its place in the order; NULL: nothing */
    int64_t ids[16];
    void *pointers[16];
    int64_t count;
} ran;
/* The described H200; with `running` it seems to be there, and kernels can be timed on it. False: there is no cuDNN. */
bool open_device(bool running);
void close_device(void);
/* A running device that compares results, on which a plan does `work`. */
void open_comparing(cudnnStatus_t (*work)(int plan));
void close_comparing(void);
bool cudnn_is_there(void); /* says why, if not */

extern const struct gpu_conv_problem usual; /* 3x3, f16 */
/* Fails unless both texts of the convolution hold these parts. */
void expect_text(const struct gpu_conv *conv, const char *implementation, const char *reason);
void *pointer_of(enum cudnn_tensor id); /* in the last call */

#endif
