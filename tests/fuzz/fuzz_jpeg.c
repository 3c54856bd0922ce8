/* Any bytes as an image: refused with a sentence, or a part decodes to the pixels of the whole, and both transforms
 * succeed. Large images are passed over, to keep the fuzzer fast. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/transform.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SIZE = 32 };

static void expect_sentence(cvy_status status)
{
    if ((status != CVY_BAD_DATA && status != CVY_NO_MEMORY) || !strstr(cvy_error(), "\"input\"") ||
        strchr(cvy_error(), '\n'))
        abort();
}

/* A middle part, which any image may have decoded with columns and rows left out. */
static void compare_part(struct cvy_decoder *decoder, const uint8_t *data, size_t size, const uint8_t *all,
                         int32_t width, int32_t height)
{
    struct cvy_box need = {width / 3, height / 3, (width + 2) / 3, (height + 2) / 3};
    const uint8_t *pixels;
    size_t stride;
    int32_t w, h;

    if (cvy_decoder_start(decoder, "input", data, size, &w, &h) != CVY_OK || w != width || h != height ||
        cvy_decoder_read(decoder, &need, &pixels, &stride) != CVY_OK)
        abort(); /* the whole was read, so every part can be */
    for (int32_t y = 0; y < need.height; y++)
        if (memcmp(pixels + (size_t)y * stride, all + ((size_t)(need.y + y) * (size_t)width + (size_t)need.x) * 3,
                   (size_t)need.width * 3) != 0)
            abort();
}

static void transform(struct cvy_decoder *decoder, const uint8_t *data, size_t size, bool training, bool tensorflow)
{
    const struct cvy_transform how = {.training = training,
                                      .tensorflow = tensorflow,
                                      .size = SIZE,
                                      .resize = tensorflow ? SIZE : SIZE - 3,
                                      .exif_orientation = true};
    struct cvy_object_box box = {0.1F, 0.25F, 0.5F, 1};
    const struct cvy_encoded encoded = {.name = "input", .data = data, .size = size, .boxes = &box, .box_count = 1};
    struct cvy_rng rng = cvy_rng_new(size, CVY_RNG_TEST, 0, 0);
    struct cvy_resizer resizer = {0};
    uint8_t *out = malloc(cvy_transform_bytes(&how));

    if (!out)
        abort();
    const cvy_status status = cvy_transform_image(&how, decoder, &resizer, &encoded, &rng, out);
    if (status != CVY_OK)
        expect_sentence(status);
    cvy_resizer_release(&resizer);
    free(out);
}

/* By torchvision's rules or by TensorFlow's, which decode JPEGs in another way too. */
static void look(struct cvy_decoder *decoder, const uint8_t *data, size_t size, bool tensorflow)
{
    const uint8_t *pixels;
    size_t stride;
    int32_t width = 0, height = 0;

    cvy_decoder_set_speed(decoder, tensorflow ? CVY_JPEG_FAST : CVY_JPEG_EXACT);
    cvy_status status = cvy_decoder_start(decoder, "input", data, size, &width, &height);
    if (status == CVY_OK && (int64_t)width * height <= 1 << 20) {
        status = cvy_decoder_read(decoder, &(struct cvy_box){0, 0, width, height}, &pixels, &stride);
        if (status == CVY_OK) {
            uint8_t *all = malloc((size_t)width * (size_t)height * 3);
            if (!all)
                abort();
            for (int32_t y = 0; y < height; y++)
                memcpy(all + (size_t)y * (size_t)width * 3, pixels + (size_t)y * stride, (size_t)width * 3);
            compare_part(decoder, data, size, all, width, height);
            free(all);
        }
        transform(decoder, data, size, false, tensorflow);
        transform(decoder, data, size, true, tensorflow);
    }
    if (status != CVY_OK)
        expect_sentence(status);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cvy_decoder *decoder;

    if (cvy_decoder_new(&decoder) != CVY_OK)
        abort();
    look(decoder, data, size, false);
    look(decoder, data, size, true);
    cvy_decoder_free(decoder);
    return 0;
}
