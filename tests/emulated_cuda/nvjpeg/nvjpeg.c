/* nvJPEG for emulated GPUs: libjpeg into "device memory", with the pixels of Convoy's own decoder. Work is done at
 * once. CONVOY_EMULATED_NVJPEG is a list of words: software    there is no decoder in hardware, whose work this else is
 *   repeated    flags are unknown, as in versions before 12.1
 *   useless     no backend can be had
 *   choosy      images of an odd width are not supported
 *   breaking    every third batch breaks */
#include "backend/cuda/nvjpeg.h"

#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* what is loaded by name */

enum { NOT_INITIALIZED = 1, INVALID_PARAMETER = 2, EXECUTION_FAILED = 6, ARCH_MISMATCH = 7 };

struct nvjpegHandle {
    int backend;
};
struct nvjpegJpegState {
    int images, format;
};
struct nvjpegJpegStream {
    int width;
    bool progressive;
};

static bool asked_for(const char *word)
{
    const char *words = getenv("CONVOY_EMULATED_NVJPEG");

    return words && strstr(words, word) != NULL;
}

int nvjpegGetProperty(int type, int *value)
{
    static const int version[] = {13, 0, 99};

    *value = version[type];
    return NVJPEG_SUCCESS;
}

int nvjpegCreateEx(int backend, void *device_allocator, void *pinned_allocator, unsigned flags, nvjpeg_handle *handle)
{
    (void)device_allocator;
    (void)pinned_allocator;
    if (asked_for("useless") || (asked_for("software") && backend == NVJPEG_BACKEND_HARDWARE))
        return ARCH_MISMATCH;
    if (flags != 0 && asked_for("repeated"))
        return INVALID_PARAMETER;
    *handle = malloc(sizeof **handle);
    if (!*handle)
        return EXECUTION_FAILED;
    (*handle)->backend = backend;
    return NVJPEG_SUCCESS;
}

int nvjpegDestroy(nvjpeg_handle handle)
{
    free(handle);
    return NVJPEG_SUCCESS;
}

int nvjpegGetHardwareDecoderInfo(nvjpeg_handle handle, unsigned *engines, unsigned *cores)
{
    *engines = handle->backend == NVJPEG_BACKEND_HARDWARE ? 2 : 0;
    *cores = 1;
    return NVJPEG_SUCCESS;
}

int nvjpegJpegStateCreate(nvjpeg_handle handle, nvjpeg_state *state)
{
    (void)handle;
    *state = calloc(1, sizeof **state);
    return *state ? NVJPEG_SUCCESS : EXECUTION_FAILED;
}

int nvjpegJpegStateDestroy(nvjpeg_state state)
{
    free(state);
    return NVJPEG_SUCCESS;
}

int nvjpegJpegStreamCreate(nvjpeg_handle handle, nvjpeg_stream *stream)
{
    (void)handle;
    *stream = calloc(1, sizeof **stream);
    return *stream ? NVJPEG_SUCCESS : EXECUTION_FAILED;
}

int nvjpegJpegStreamDestroy(nvjpeg_stream stream)
{
    free(stream);
    return NVJPEG_SUCCESS;
}

/* ---- libjpeg ---- */

struct decoder {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    jmp_buf jump;
};

static void on_error(j_common_ptr common)
{
    struct decoder *decoder = common->client_data;

    longjmp(decoder->jump, 1);
}

static void on_message(j_common_ptr common, int level)
{
    if (level < 0)
        on_error(common);
}

static void read_header(struct decoder *decoder, const unsigned char *data, size_t bytes)
{
    decoder->info.err = jpeg_std_error(&decoder->errors);
    decoder->errors.error_exit = on_error;
    decoder->errors.emit_message = on_message;
    jpeg_create_decompress(&decoder->info);
    decoder->info.client_data = decoder;
    jpeg_mem_src(&decoder->info, data, bytes);
    (void)jpeg_read_header(&decoder->info, TRUE);
}

int nvjpegJpegStreamParseHeader(nvjpeg_handle handle, const unsigned char *data, size_t bytes, nvjpeg_stream stream)
{
    struct decoder decoder = {.info = {.client_data = &decoder}};
    volatile int status = NVJPEG_BAD_JPEG;

    (void)handle;
    if (setjmp(decoder.jump) == 0) {
        read_header(&decoder, data, bytes);
        stream->width = (int)decoder.info.image_width;
        stream->progressive = decoder.info.progressive_mode;
        status = NVJPEG_SUCCESS;
    }
    jpeg_destroy_decompress(&decoder.info);
    return status;
}

int nvjpegDecodeBatchedSupported(nvjpeg_handle handle, nvjpeg_stream stream, int *refusal)
{
    (void)handle;
    *refusal = stream->progressive || (asked_for("choosy") && stream->width % 2 == 1);
    return NVJPEG_SUCCESS;
}

static int decode(const unsigned char *data, size_t bytes, const struct nvjpeg_image *image)
{
    struct decoder decoder = {.info = {.client_data = &decoder}};
    volatile int status = NVJPEG_BAD_JPEG;

    if (setjmp(decoder.jump) == 0) {
        read_header(&decoder, data, bytes);
        decoder.info.out_color_space = JCS_RGB;
        (void)jpeg_start_decompress(&decoder.info);
        while (decoder.info.output_scanline < decoder.info.output_height) {
            JSAMPROW row = image->channel[0] + decoder.info.output_scanline * image->pitch[0];
            (void)jpeg_read_scanlines(&decoder.info, &row, 1);
        }
        (void)jpeg_finish_decompress(&decoder.info);
        status = decoder.info.progressive_mode ? NVJPEG_JPEG_NOT_SUPPORTED : NVJPEG_SUCCESS;
    }
    jpeg_destroy_decompress(&decoder.info);
    return status;
}

/* ---- batches ---- */

int nvjpegDecodeBatchedInitialize(nvjpeg_handle handle, nvjpeg_state state, int images, int threads, int format)
{
    (void)handle;
    if (images < 1 || threads < 1 || format != NVJPEG_OUTPUT_RGBI)
        return INVALID_PARAMETER;
    state->images = images;
    state->format = format;
    return NVJPEG_SUCCESS;
}

int nvjpegDecodeBatched(nvjpeg_handle handle, nvjpeg_state state, const unsigned char *const *data, const size_t *bytes,
                        struct nvjpeg_image *images, void *stream)
{
    static atomic_int calls; /* lanes decode side by side */

    (void)handle;
    if (state->images < 1 || !stream)
        return NOT_INITIALIZED;
    if (asked_for("breaking") && ++calls % 3 == 0)
        return EXECUTION_FAILED;
    for (int i = 0; i < state->images; i++) {
        const int status = decode(data[i], bytes[i], &images[i]);
        if (status != NVJPEG_SUCCESS)
            return status;
    }
    return NVJPEG_SUCCESS;
}
