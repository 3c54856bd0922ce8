/* nvJPEG's header against what the module says of it (src/backend/cuda/nvjpeg.h): compiled where there is one, never
 * run. */
#include <stddef.h>

#include <nvjpeg.h>

/* Their names are macros' here, so that both can be in one file. */
#define NVJPEG_BACKEND_DEFAULT    OUR_BACKEND_DEFAULT
#define NVJPEG_BACKEND_HYBRID     OUR_BACKEND_HYBRID
#define NVJPEG_BACKEND_GPU_HYBRID OUR_BACKEND_GPU_HYBRID
#define NVJPEG_BACKEND_HARDWARE   OUR_BACKEND_HARDWARE
#define NVJPEG_OUTPUT_RGBI        OUR_OUTPUT_RGBI
#include "backend/cuda/nvjpeg.h"
#undef NVJPEG_BACKEND_DEFAULT
#undef NVJPEG_BACKEND_HYBRID
#undef NVJPEG_BACKEND_GPU_HYBRID
#undef NVJPEG_BACKEND_HARDWARE
#undef NVJPEG_OUTPUT_RGBI

_Static_assert(NVJPEG_STATUS_SUCCESS == (int)NVJPEG_SUCCESS && NVJPEG_STATUS_BAD_JPEG == (int)NVJPEG_BAD_JPEG &&
                   NVJPEG_STATUS_JPEG_NOT_SUPPORTED == (int)NVJPEG_JPEG_NOT_SUPPORTED,
               "results");
_Static_assert((int)NVJPEG_BACKEND_DEFAULT == OUR_BACKEND_DEFAULT && (int)NVJPEG_BACKEND_HYBRID == OUR_BACKEND_HYBRID &&
                   (int)NVJPEG_BACKEND_GPU_HYBRID == OUR_BACKEND_GPU_HYBRID &&
                   (int)NVJPEG_BACKEND_HARDWARE == OUR_BACKEND_HARDWARE,
               "backends");
_Static_assert((int)NVJPEG_OUTPUT_RGBI == OUR_OUTPUT_RGBI, "formats");
#ifdef NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION /* since 12.1 */
_Static_assert((NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION) == NVJPEG_FLAG_INTERPOLATION, "flags");
#endif
_Static_assert((int)MAJOR_VERSION == NVJPEG_MAJOR_VERSION && (int)MINOR_VERSION == NVJPEG_MINOR_VERSION &&
                   (int)PATCH_LEVEL == NVJPEG_PATCH_LEVEL,
               "properties");
_Static_assert(sizeof(nvjpegImage_t) == sizeof(struct nvjpeg_image) &&
                   offsetof(nvjpegImage_t, pitch) == offsetof(struct nvjpeg_image, pitch),
               "images");
_Static_assert(sizeof(nvjpegStatus_t) == sizeof(int) && sizeof(nvjpegBackend_t) == sizeof(int), "numbers");

/* The functions take what the module gives them. */
void nvjpeg_header_use(void);
void nvjpeg_header_use(void)
{
    nvjpegStatus_t (*create)(nvjpegBackend_t backend, nvjpegDevAllocator_t * device, nvjpegPinnedAllocator_t * pinned,
                             unsigned flags, nvjpegHandle_t *handle) = nvjpegCreateEx;
    nvjpegStatus_t (*header)(nvjpegHandle_t handle, const unsigned char *data, size_t bytes,
                             nvjpegJpegStream_t stream) = nvjpegJpegStreamParseHeader;
    nvjpegStatus_t (*supported)(nvjpegHandle_t handle, nvjpegJpegStream_t stream, int *refusal) =
        nvjpegDecodeBatchedSupported;
    nvjpegStatus_t (*begin)(nvjpegHandle_t handle, nvjpegJpegState_t state, int images, int threads,
                            nvjpegOutputFormat_t format) = nvjpegDecodeBatchedInitialize;
    nvjpegStatus_t (*decode)(nvjpegHandle_t handle, nvjpegJpegState_t state, const unsigned char *const *data,
                             const size_t *bytes, nvjpegImage_t *images, cudaStream_t stream) = nvjpegDecodeBatched;

    (void)create, (void)header, (void)supported, (void)begin, (void)decode;
}
