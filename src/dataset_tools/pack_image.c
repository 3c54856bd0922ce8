#include "dataset_tools/pack_image.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/image/codec.h"
#include "data/image/picture.h"
#include "data/image/resize.h"

enum { USUAL_QUALITY = 90 };

struct cvy_pack_maker {
    const struct cvy_pack_options *options;
    struct cvy_decoder *decoder;
    struct cvy_resizer resizer;
};

cvy_status cvy_pack_maker_new(const struct cvy_pack_options *options, struct cvy_pack_maker **out)
{
    struct cvy_pack_maker *maker = *out = cvy_calloc(1, sizeof *maker);

    if (!maker)
        return cvy_fail_memory(sizeof *maker, "an image decoder");
    maker->options = options;
    const cvy_status status = cvy_decoder_new(&maker->decoder);
    if (status != CVY_OK) {
        cvy_pack_maker_free(maker);
        *out = NULL;
    }
    return status;
}

void cvy_pack_maker_free(struct cvy_pack_maker *maker)
{
    if (!maker)
        return;
    cvy_decoder_free(maker->decoder);
    cvy_resizer_release(&maker->resizer);
    cvy_free(maker);
}

void cvy_pack_image_release(struct cvy_pack_image *image)
{
    free(image->owned); /* libjpeg's, or of cvy_realloc, which free() takes too */
    *image = (struct cvy_pack_image){0};
}

/* The size with this shorter side, 0: as it is; the longer one rounded down, as in evaluation. Nothing grows. */
static void shrink(int32_t side, int32_t size[2])
{
    const int32_t shorter = size[0] < size[1] ? size[0] : size[1];

    for (int i = 0; side > 0 && shorter > side && i < 2; i++)
        size[i] = (int32_t)((int64_t)size[i] * side / shorter);
}

/* The picture as a JPEG or PPM of to[0] x to[1] pixels. */
static cvy_status encode(struct cvy_pack_maker *maker, const struct cvy_picture *picture, const int32_t to[2],
                         struct cvy_pack_image *image)
{
    const struct cvy_pack_options *options = maker->options;
    const struct cvy_box all = {0, 0, to[0], to[1]};
    const size_t bytes = (size_t)to[0] * (size_t)to[1] * 3;
    char header[CVY_PPM_HEADER];
    const size_t front = options->raw ? cvy_ppm_header(to[0], to[1], header) : 0;
    uint8_t *out = cvy_realloc(NULL, front + bytes, 1), *jpeg = NULL;

    if (!out)
        return cvy_fail_memory(front + bytes, "the pixels of an image");
    cvy_status status = cvy_resize(&maker->resizer, picture->pixels, (size_t)picture->width * 3, picture->width,
                                   picture->height, to[0], to[1], &all, false, out + front);
    image->reencoded = true;
    if (options->raw) {
        memcpy(out, header, front);
        image->data = image->owned = out;
        image->size = front + bytes;
        return status;
    }
    if (status == CVY_OK)
        status = cvy_jpeg_encode(out, to[0], to[1], options->quality ? options->quality : USUAL_QUALITY, &jpeg,
                                 &image->size);
    cvy_free(out);
    image->data = image->owned = jpeg;
    return status;
}

cvy_status cvy_pack_image_make(struct cvy_pack_maker *maker, const struct cvy_encoded *encoded,
                               struct cvy_pack_image *image)
{
    const struct cvy_pack_options *options = maker->options;
    struct cvy_picture picture = {0};
    int32_t width, height;
    cvy_status status;

    *image = (struct cvy_pack_image){.data = encoded->data, .size = encoded->size};
    CVY_TRY(cvy_decoder_start(maker->decoder, encoded->name, encoded->data, encoded->size, &width, &height));
    const int turn = cvy_decoder_orientation(maker->decoder);
    const int32_t shorter = width < height ? width : height;
    if (!options->raw && (options->shorter_side == 0 || (shorter <= options->shorter_side && turn == 1)))
        return CVY_OK;
    CVY_GOTO(cvy_picture_turn(maker->decoder, width, height, options->exif_orientation ? turn : 1, &picture));
    int32_t size[2] = {picture.width, picture.height};
    shrink(options->shorter_side, size);
    CVY_GOTO(encode(maker, &picture, size, image));
fail:
    cvy_picture_release(&picture);
    return status;
}
