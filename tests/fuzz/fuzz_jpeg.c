/* Any bytes as an image: refused with a sentence, or a part decodes to the pixels of the whole, at the lower
 * resolutions of --decode fast too, and the transforms of all rules succeed. Large images are skipped, to keep the
 * fuzzer fast. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/transform/augment.h"
#include "data/transform/transform.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SIZE = 32 };
static const struct cvy_color_jitter colors = {.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.2};

static void expect_sentence(cvy_status status)
{
    if ((status != CVY_BAD_DATA && status != CVY_NO_MEMORY) || !strstr(cvy_error(), "\"input\"") ||
        strchr(cvy_error(), '\n'))
        abort();
}

/* Start to read at eighths of the size. */
static bool begin(struct cvy_decoder *decoder, const uint8_t *data, size_t size, int eighths, int32_t *width,
                  int32_t *height)
{
    if (cvy_decoder_start(decoder, "input", data, size, width, height) != CVY_OK)
        return false;
    return eighths == 8 || cvy_decoder_scale(decoder, eighths, width, height) == CVY_OK;
}

/* A middle part, which any image may have decoded with columns and rows left out. */
static void compare_part(struct cvy_decoder *decoder, const uint8_t *data, size_t size, int eighths, const uint8_t *all,
                         int32_t width, int32_t height)
{
    struct cvy_box need = {width / 3, height / 3, (width + 2) / 3, (height + 2) / 3};
    const uint8_t *pixels;
    size_t stride;
    int32_t w, h;

    if (!begin(decoder, data, size, eighths, &w, &h) || w != width || h != height ||
        cvy_decoder_read(decoder, &need, &pixels, &stride) != CVY_OK)
        abort(); /* the whole was read, so every part can be */
    for (int32_t y = 0; y < need.height; y++)
        if (memcmp(pixels + (size_t)y * stride, all + ((size_t)(need.y + y) * (size_t)width + (size_t)need.x) * 3,
                   (size_t)need.width * 3) != 0)
            abort();
}

/* Our own decoder and libjpeg take the same files, and make the same pixels of them. */
static void compare_decoders(struct cvy_decoder *decoder, const uint8_t *data, size_t size, cvy_status status,
                             const uint8_t *all, int32_t width, int32_t height)
{
    const uint8_t *pixels;
    size_t stride;

    cvy_decoder_set_speed(decoder, CVY_JPEG_EXACT);
    if (!begin(decoder, data, size, 8, &width, &height))
        abort();
    if (cvy_decoder_read(decoder, &(struct cvy_box){0, 0, width, height}, &pixels, &stride) != status)
        abort();
    for (int32_t y = 0; all && y < height; y++)
        if (memcmp(pixels + (size_t)y * stride, all + (size_t)y * (size_t)width * 3, (size_t)width * 3) != 0)
            abort();
}

/* The whole and a part of it; what reading the whole came to. */
static cvy_status compare(struct cvy_decoder *decoder, const uint8_t *data, size_t size, int eighths, bool exactly)
{
    const uint8_t *pixels;
    size_t stride;
    int32_t width, height;

    if (exactly)
        cvy_decoder_set_speed(decoder, CVY_JPEG_LIBRARY);
    if (!begin(decoder, data, size, eighths, &width, &height))
        abort(); /* it was begun before */
    const cvy_status status = cvy_decoder_read(decoder, &(struct cvy_box){0, 0, width, height}, &pixels, &stride);
    uint8_t *all = status == CVY_OK ? malloc((size_t)width * (size_t)height * 3) : NULL;
    if (status == CVY_OK && !all)
        abort();
    for (int32_t y = 0; all && y < height; y++)
        memcpy(all + (size_t)y * (size_t)width * 3, pixels + (size_t)y * stride, (size_t)width * 3);
    if (exactly)
        compare_decoders(decoder, data, size, status, all, width, height);
    if (all)
        compare_part(decoder, data, size, eighths, all, width, height);
    free(all);
    return status;
}

/* By these rules, at a size that shrinks most inputs; evaluation pads where torchvision's rules do. */
static void transform(struct cvy_decoder *decoder, const uint8_t *data, size_t size, struct cvy_transform how)
{
    how.size = SIZE;
    how.resize = how.tensorflow ? SIZE : SIZE - 3;
    how.exif_orientation = true;
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
    if (status == CVY_OK && how.training && !how.tensorflow) {
        uint8_t *scratch = malloc(cvy_transform_bytes(&how));
        if (!scratch)
            abort();
        cvy_autoaugment(&rng, out, SIZE, scratch);
        free(scratch);
    }
    cvy_resizer_release(&resizer);
    free(out);
}

/* With an object on it that reaches beyond the image, as boxes in files do. */
static void detect(struct cvy_decoder *decoder, const uint8_t *data, size_t size, bool training)
{
    const struct cvy_transform how = {
        .training = training, .detection = true, .size = SIZE, .exif_orientation = true, .color = colors};
    const struct cvy_encoded encoded = {.name = "input", .data = data, .size = size};
    const struct cvy_coco_object object = {.area = 600, .slot = 1, .bbox = {3, -2, 20, 30}};
    const struct cvy_coco_image image = {.width = 40, .height = 30, .object_count = 1};
    const struct cvy_truth truth = {.image = &image, .objects = &object, .count = 1};
    struct cvy_rng rng = cvy_rng_new(size, CVY_RNG_TEST, 1, 0);
    struct cvy_resizer resizer = {0};
    float(*boxes)[4] = malloc(CVY_MAX_BOXES * sizeof *boxes), *out = malloc(cvy_transform_bytes(&how));
    int32_t *labels = malloc(CVY_MAX_BOXES * sizeof *labels);

    if (!out || !boxes || !labels)
        abort();
    const cvy_status status = cvy_transform_detection(&how, decoder, &resizer, &encoded, &truth, &rng, out,
                                                      &(struct cvy_target_boxes){boxes, labels});
    if (status != CVY_OK)
        expect_sentence(status);
    cvy_resizer_release(&resizer);
    free(out);
    free(boxes);
    free(labels);
}

/* What torchvision's rules may be changed by, DALI's, and those of a detector; AutoAugment after one of them. */
static void transform_otherwise(struct cvy_decoder *decoder, const uint8_t *data, size_t size, bool scales)
{
    for (int training = 0; training < 2; training++) {
        transform(decoder, data, size, (struct cvy_transform){.training = training, .filter = CVY_FILTER_BICUBIC});
        transform(decoder, data, size, (struct cvy_transform){.training = training, .dali = true, .color = colors});
        detect(decoder, data, size, training);
    }
    if (scales)
        transform(decoder, data, size,
                  (struct cvy_transform){.training = true, .fast = true, .filter = CVY_FILTER_BICUBIC});
}

/* By torchvision's rules or by TensorFlow's, which decode JPEGs in another way too. */
static void look(struct cvy_decoder *decoder, const uint8_t *data, size_t size, bool tensorflow)
{
    int32_t width = 0, height = 0;

    cvy_decoder_set_speed(decoder, tensorflow ? CVY_JPEG_FAST : CVY_JPEG_EXACT);
    cvy_status status = cvy_decoder_start(decoder, "input", data, size, &width, &height);
    const bool scales = status == CVY_OK && cvy_decoder_can_scale(decoder) && !tensorflow;
    if (status == CVY_OK && (int64_t)width * height <= 1 << 20) {
        status = compare(decoder, data, size, 8, !tensorflow);
        for (int eighths = 1; scales && eighths < 8; eighths *= 2) {
            const cvy_status lower = compare(decoder, data, size, eighths, false);
            if (lower != CVY_OK)
                expect_sentence(lower);
        }
        transform(decoder, data, size, (struct cvy_transform){.tensorflow = tensorflow});
        transform(decoder, data, size,
                  (struct cvy_transform){.tensorflow = tensorflow, .training = true, .color = colors});
        if (!tensorflow)
            transform_otherwise(decoder, data, size, scales);
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
