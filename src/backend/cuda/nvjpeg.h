/* What is used of nvJPEG 12 and 13, whose header need not be here: numbers, types and functions are as its
 * documentation has them. */
#ifndef CVY_BACKEND_CUDA_NVJPEG_H
#define CVY_BACKEND_CUDA_NVJPEG_H

#include <stddef.h>

#include "convoy/status.h"

enum { NVJPEG_SUCCESS = 0, NVJPEG_BAD_JPEG = 3, NVJPEG_JPEG_NOT_SUPPORTED = 4 };
enum nvjpeg_backend {
    NVJPEG_BACKEND_DEFAULT,
    NVJPEG_BACKEND_HYBRID,
    NVJPEG_BACKEND_GPU_HYBRID,
    NVJPEG_BACKEND_HARDWARE
};
enum { NVJPEG_OUTPUT_RGBI = 5, NVJPEG_FLAG_INTERPOLATION = 1 << 5 };
enum { NVJPEG_MAJOR_VERSION, NVJPEG_MINOR_VERSION, NVJPEG_PATCH_LEVEL };

/* Output planes: interleaved pixels take the first. */
struct nvjpeg_image {
    unsigned char *channel[4];
    size_t pitch[4];
};

typedef struct nvjpegHandle *nvjpeg_handle;
typedef struct nvjpegJpegState *nvjpeg_state;   /* of one thread */
typedef struct nvjpegJpegStream *nvjpeg_stream; /* a parsed header; of one thread */

/* The functions that are used, under their own names; all but the streams of work are those of its header. */
struct nvjpeg_functions {
    int (*nvjpegGetProperty)(int type, int *value);
    int (*nvjpegCreateEx)(int backend, void *device_allocator, void *pinned_allocator, unsigned flags,
                          nvjpeg_handle *handle);
    int (*nvjpegDestroy)(nvjpeg_handle handle);
    int (*nvjpegJpegStateCreate)(nvjpeg_handle handle, nvjpeg_state *state);
    int (*nvjpegJpegStateDestroy)(nvjpeg_state state);
    int (*nvjpegJpegStreamCreate)(nvjpeg_handle handle, nvjpeg_stream *stream);
    int (*nvjpegJpegStreamDestroy)(nvjpeg_stream stream);
    int (*nvjpegJpegStreamParseHeader)(nvjpeg_handle handle, const unsigned char *data, size_t bytes,
                                       nvjpeg_stream stream);
    /* 0: it can be decoded in a batch. */
    int (*nvjpegDecodeBatchedSupported)(nvjpeg_handle handle, nvjpeg_stream stream, int *refusal);
    int (*nvjpegDecodeBatchedInitialize)(nvjpeg_handle handle, nvjpeg_state state, int images, int threads, int format);
    int (*nvjpegDecodeBatched)(nvjpeg_handle handle, nvjpeg_state state, const unsigned char *const *data,
                               const size_t *bytes, struct nvjpeg_image *images, void *stream);
    /* NULL in those of 2023. */
    int (*nvjpegGetHardwareDecoderInfo)(nvjpeg_handle handle, unsigned *engines, unsigned *cores);
};

/* The library, loaded at the first call, and a handle of the best backend that this GPU has: its decoder in hardware,
 * else kernels of nvJPEG's. CVY_UNAVAILABLE with the reason. CONVOY_NVJPEG names a file, or is "none". */
struct gpu_nvjpeg {
    struct nvjpeg_functions f;
    nvjpeg_handle handle;
    enum nvjpeg_backend backend;
    int smallest; /* pixels of a side of images that it is given: CONVOY_NVJPEG_SMALLEST */
    char description[96];
};
CVY_CHECKED cvy_status gpu_nvjpeg_open(struct gpu_nvjpeg *nvjpeg);
void gpu_nvjpeg_close(struct gpu_nvjpeg *nvjpeg); /* accepts a zeroed one */
CVY_CHECKED cvy_status gpu_nvjpeg_check(int result, const char *what);

#endif
