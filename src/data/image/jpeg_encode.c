#include <stdio.h> /* jpeglib.h needs FILE */

#include <jerror.h>
#include <jpeglib.h>
#include <setjmp.h>
#include <stdlib.h>

#include "base/error.h"
#include "data/image/codec.h"

struct encoder {
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    jmp_buf jump;
    char message[JMSG_LENGTH_MAX];
    bool out_of_memory;
    unsigned char *data;
    unsigned long size;
};

static void on_error(j_common_ptr common)
{
    struct encoder *encoder = common->client_data;
    encoder->out_of_memory = common->err->msg_code == JERR_OUT_OF_MEMORY;
    common->err->format_message(common, encoder->message);
    longjmp(encoder->jump, 1);
}

static void on_output(j_common_ptr common)
{
    (void)common;
}

/* False when libjpeg gave up; the encoder says why. */
static bool encode(struct encoder *encoder, const uint8_t *pixels, int32_t width, int32_t height, int quality)
{
    struct jpeg_compress_struct *info = &encoder->info;

    if (setjmp(encoder->jump) != 0)
        return false;
    jpeg_create_compress(info);
    info->client_data = encoder;
    jpeg_mem_dest(info, &encoder->data, &encoder->size);
    info->image_width = (JDIMENSION)width;
    info->image_height = (JDIMENSION)height;
    info->input_components = 3;
    info->in_color_space = JCS_RGB;
    jpeg_set_defaults(info);
    jpeg_set_quality(info, quality, TRUE);
    jpeg_start_compress(info, TRUE);
    while (info->next_scanline < info->image_height) {
        JSAMPROW row = (JSAMPROW)(uintptr_t)(pixels + (size_t)info->next_scanline * (size_t)width * 3);
        (void)jpeg_write_scanlines(info, &row, 1);
    }
    jpeg_finish_compress(info);
    return true;
}

cvy_status cvy_jpeg_encode(const uint8_t *pixels, int32_t width, int32_t height, int quality, uint8_t **data,
                           size_t *size)
{
    struct encoder encoder = {0};
    /* No baseline image is longer: a block of 64 samples takes at most about 200 bytes. libjpeg would replace a buffer
     * that is too small by one of its own and lose it on an error. */
    const size_t enough = (size_t)(width + 16) * (size_t)(height + 16) * 12 + 65536;
    uint8_t *buffer = malloc(enough);

    *data = NULL;
    *size = 0;
    if (!buffer)
        return cvy_fail_memory(enough, "encoding a JPEG");
    encoder.data = buffer;
    encoder.size = enough;
    encoder.info.err = jpeg_std_error(&encoder.errors);
    encoder.info.client_data = &encoder;
    encoder.errors.error_exit = on_error;
    encoder.errors.output_message = on_output;
    const bool done = encode(&encoder, pixels, width, height, quality);
    jpeg_destroy_compress(&encoder.info);
    if (!done) {
        free(buffer);
        return encoder.out_of_memory ? cvy_fail(CVY_NO_MEMORY, "out of memory while encoding a JPEG")
                                     : cvy_fail(CVY_FAILED, "a JPEG cannot be encoded: %s", encoder.message);
    }
    if (encoder.data != buffer)
        free(buffer);
    *data = encoder.data;
    *size = encoder.size;
    return CVY_OK;
}
