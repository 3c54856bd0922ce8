/* What the verbs of the program ask the library for, beside its public functions. */
#ifndef CONVOY_PROGRAM_PROGRAM_H
#define CONVOY_PROGRAM_PROGRAM_H

#include <stdbool.h>

#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The name that a misspelt word most likely means: of `count` names (NULL ones are left out) the one that the fewest
 * letters differ from, if they are few enough for a mistake. NULL: none is near. Borrowed from `names`. */
CVY_API const char *cvy_nearest_name(const char *text, const char *const *names, size_t count);

/* "1 image", "3 images", "2 classes": a number with its noun, for the middle of a sentence. One of eight buffers of the
 * thread; valid until the eighth call after this one. */
CVY_API const char *cvy_counted(int64_t count, const char *noun);

/* The line that COCO's program prints for the number `index` (0 to 11) of a detector, without a newline. Returns
 * buffer. */
CVY_API const char *cvy_evaluation_line(int index, double value, char buffer[96]);

/* The rank of this process as its launcher tells it in the environment, 0 when alone (or where what it tells makes no
 * sense). *ranks: how many there are; 0: an MPI will tell. */
CVY_API int cvy_train_rank(int *ranks);

/* A GPU that this process sees (CUDA_VISIBLE_DEVICES decides which those are, and their order). */
struct cvy_gpu {
    char name[64];   /* "NVIDIA H200" */
    char cores[256]; /* the cores near it, "0-31,64-95"; "" where unknown */
};
/* The one with this number from 0 on, as in --device cuda:1; *count: how many there are. It is not opened.
 * CVY_UNAVAILABLE with the reason where there is none. */
CVY_API CVY_CHECKED cvy_status cvy_gpu_query(int number, struct cvy_gpu *gpu, int *count);

#ifdef __cplusplus
}
#endif
#endif
