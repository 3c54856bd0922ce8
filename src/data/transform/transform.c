#include "data/transform/transform.h"

#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "data/image/picture.h"
#include "data/transform/dali.h"
#include "data/transform/tensorflow.h"

/* An encoded image while it is transformed: its size as shown, and where the pixels come from. */
struct source {
    struct cvy_decoder *decoder;
    int32_t width, height;
    uint8_t *turned; /* the whole image after its EXIF orientation, packed; NULL: read from the decoder */
};

/* Decode the whole image and turn it as its EXIF orientation says. */
static cvy_status turn(struct source *source, int orientation)
{
    struct cvy_picture picture;
    const cvy_status status = cvy_picture_turn(source->decoder, source->width, source->height, orientation, &picture);

    source->width = picture.width;
    source->height = picture.height;
    source->turned = picture.pixels;
    return status;
}

static cvy_status read_pixels(struct source *source, const struct cvy_box *need, const uint8_t **pixels, size_t *stride)
{
    if (!source->turned)
        return cvy_decoder_read(source->decoder, need, pixels, stride);
    *stride = (size_t)source->width * 3;
    *pixels = source->turned + (size_t)need->y * *stride + (size_t)need->x * 3;
    return CVY_OK;
}

/* --decode fast: the crop must have this many times the pixels of the result on each side. Half of it and a quarter are
 * what libjpeg has fast kernels for: at 5/8 to 7/8 decoding takes longer than in full. With less than 1.5, photographs
 * differ by more than a grey level on average (doc/data.md). */
static const double fast_margin = 1.5;

/* The least resolution, in eighths, for this crop. */
static int32_t min_eighths(const struct cvy_transform *transform, const struct source *source,
                           const struct cvy_box *crop)
{
    const int32_t side = crop->width < crop->height ? crop->width : crop->height;

    if (!transform->fast || transform->dali || source->turned || !cvy_decoder_can_scale(source->decoder))
        return 8;
    for (int32_t eighths = 1; eighths < 8; eighths *= 2)
        if (side * (double)eighths >= 8 * fast_margin * transform->size)
            return eighths;
    return 8;
}

/* The part of the axis of `size` pixels that [from, from + length) needs. */
static void cover(double from, double length, int32_t size, int32_t *first, int32_t *count)
{
    const int32_t end = (int32_t)ceil(from + length);

    *first = (int32_t)from;
    *count = (end < size ? end : size) - *first;
}

/* Decode the crop at a lower resolution, and resize that. */
static cvy_status transform_scaled(const struct cvy_transform *transform, struct source *source,
                                   const struct cvy_box *crop, int32_t eighths, bool flip, struct cvy_resizer *resizer,
                                   uint8_t *out)
{
    const double scale = eighths / 8.0;
    struct cvy_view view = {crop->x * scale, crop->y * scale, crop->width * scale, crop->height * scale};
    struct cvy_box need;
    const uint8_t *pixels;
    size_t stride;
    int32_t width, height;

    CVY_TRY(cvy_decoder_scale(source->decoder, eighths, &width, &height));
    cover(view.x, view.width, width, &need.x, &need.width);
    cover(view.y, view.height, height, &need.y, &need.height);
    view.x -= need.x;
    view.y -= need.y;
    CVY_TRY(cvy_decoder_read(source->decoder, &need, &pixels, &stride));
    return cvy_resize_view(resizer, pixels, stride, need.width, need.height, &view, transform->size, flip, out);
}

/* The crop of an image for training, and whether it is mirrored. */
static struct cvy_box draw_crop(const struct cvy_transform *transform, struct cvy_rng *rng, int32_t width,
                                int32_t height, bool *flip)
{
    const double min_area = transform->min_crop_area > 0 ? transform->min_crop_area : 0.08;
    const float max_ratio = transform->triangular ? CVY_TENSORFLOW_DALI_MAX_RATIO : CVY_DALI_MAX_RATIO;
    const struct cvy_box crop = transform->dali ? cvy_dali_crop(rng, (float)min_area, max_ratio, width, height)
                                                : cvy_random_resized_crop(rng, min_area, width, height);

    *flip = cvy_rng_uniform(rng) < 0.5;
    return crop;
}

static cvy_status transform_training(const struct cvy_transform *transform, struct source *source,
                                     struct cvy_resizer *resizer, struct cvy_rng *rng, uint8_t *out)
{
    bool flip;
    const struct cvy_box crop = draw_crop(transform, rng, source->width, source->height, &flip);
    const struct cvy_box all = {0, 0, transform->size, transform->size};
    const uint8_t *pixels;
    size_t stride;

    const int32_t eighths = min_eighths(transform, source, &crop);
    if (eighths < 8)
        return transform_scaled(transform, source, &crop, eighths, flip, resizer, out);
    /* Cropping comes first: the filter never looks beyond the crop. */
    CVY_TRY(read_pixels(source, &crop, &pixels, &stride));
    return cvy_resize(resizer, pixels, stride, crop.width, crop.height, transform->size, transform->size, &all, flip,
                      out);
}

/* The crop of an image for evaluation, and what of the image it is cut out of. */
static cvy_status center_crop(const struct cvy_transform *transform, const char *name, int32_t width, int32_t height,
                              struct cvy_center_crop *crop, struct cvy_view *view)
{
    *view = (struct cvy_view){0, 0, width, height};
    CVY_TRY((transform->dali ? cvy_dali_center_crop : cvy_center_crop)(transform->resize, transform->size, width,
                                                                       height, name, crop));
    if (transform->dali && !transform->rounded_scale)
        *view = cvy_dali_view(transform->resize, width, height, crop);
    return CVY_OK;
}

static cvy_status transform_evaluation(const struct cvy_transform *transform, struct source *source, const char *name,
                                       struct cvy_resizer *resizer, uint8_t *out)
{
    const int32_t size = transform->size;
    struct cvy_center_crop crop;
    struct cvy_view view;
    const uint8_t *pixels;
    size_t stride;

    CVY_TRY(center_crop(transform, name, source->width, source->height, &crop, &view));
    const struct cvy_box need = cvy_resize_need(resizer->filter, source->width, source->height, &view, crop.full_width,
                                                crop.full_height, &crop.window);
    CVY_TRY(read_pixels(source, &need, &pixels, &stride));
    CVY_TRY(cvy_resize_part(resizer, pixels, stride, source->width, source->height, &view, crop.full_width,
                            crop.full_height, &crop.window, false, out));
    if (crop.window.width == size && crop.window.height == size)
        return CVY_OK;

    /* Smaller than the crop: it lies packed at the front of `out` and is moved into place from the last row up. */
    const size_t row = (size_t)crop.window.width * 3, out_row = (size_t)size * 3;
    memset(out + (size_t)crop.window.height * row, 0, out_row * (size_t)size - (size_t)crop.window.height * row);
    for (int32_t y = crop.window.height - 1; y >= 0; y--) {
        uint8_t *from = out + (size_t)y * row;
        uint8_t *to = out + (size_t)(crop.at_y + y) * out_row + (size_t)crop.at_x * 3;
        memmove(to, from, row);
        /* What of the old place the moved row does not cover is background. */
        if (to >= from + row)
            memset(from, 0, row);
        else if (to > from)
            memset(from, 0, (size_t)(to - from));
    }
    return CVY_OK;
}

/* ---- TensorFlow's rules ---- */

static cvy_status tensorflow_training(const struct cvy_transform *transform, struct source *source,
                                      const struct cvy_encoded *encoded, struct cvy_resizer *resizer,
                                      struct cvy_rng *rng, float *out)
{
    const double min_area = transform->min_crop_area > 0 ? transform->min_crop_area : CVY_TENSORFLOW_MIN_AREA;
    /* Boxes are those of the image as it is stored. */
    const size_t box_count = source->turned ? 0 : encoded->box_count;
    const struct cvy_box all = {0, 0, transform->size, transform->size};
    const uint8_t *pixels;
    size_t stride;

    for (size_t i = 0; i < box_count; i++)
        if (!cvy_object_box_is_valid(&encoded->boxes[i]))
            return cvy_fail(CVY_BAD_DATA, "box %zu of %s is not inside the image", i, cvy_quote(encoded->name));
    const struct cvy_box crop =
        cvy_tensorflow_crop(rng, source->width, source->height, (float)min_area, encoded->boxes, box_count);
    const bool flip = cvy_rng_uniform(rng) < 0.5;
    CVY_TRY(read_pixels(source, &crop, &pixels, &stride));
    return cvy_tensorflow_resize(resizer, pixels, stride, crop.width, crop.height, transform->size, transform->size,
                                 &all, flip, out);
}

static cvy_status tensorflow_evaluation(const struct cvy_transform *transform, struct source *source, const char *name,
                                        struct cvy_resizer *resizer, float *out)
{
    struct cvy_tensorflow_center center;
    const uint8_t *pixels;
    size_t stride;

    CVY_TRY(cvy_tensorflow_center(transform->resize, transform->size, source->width, source->height, name, &center));
    const struct cvy_box window = {center.x, center.y, transform->size, transform->size};
    const struct cvy_box need =
        cvy_tensorflow_resize_need(source->width, source->height, center.full_width, center.full_height, &window);
    CVY_TRY(read_pixels(source, &need, &pixels, &stride));
    return cvy_tensorflow_resize(resizer, pixels, stride, source->width, source->height, center.full_width,
                                 center.full_height, &window, false, out);
}

int32_t cvy_usual_resize(int64_t image_size)
{
    return (int32_t)((image_size * 256 + 112) / 224);
}

size_t cvy_transform_bytes(const struct cvy_transform *transform)
{
    const size_t side = (size_t)transform->size;

    return side * side * 3 * (transform->tensorflow || transform->detection ? sizeof(float) : 1);
}

/* Look at the image, and turn it where that is asked for. source->turned is freed by the caller. */
static cvy_status open_source(const struct cvy_transform *transform, const struct cvy_encoded *encoded,
                              struct source *source)
{
    CVY_TRY(cvy_decoder_start(source->decoder, encoded->name, encoded->data, encoded->size, &source->width,
                              &source->height));
    const int orientation = transform->exif_orientation ? cvy_decoder_orientation(source->decoder) : 1;
    return orientation == 1 ? CVY_OK : turn(source, orientation);
}

static void change_colors(const struct cvy_transform *transform, struct cvy_rng *rng, void *image)
{
    if (!transform->training || !cvy_color_jitter_is_on(&transform->color))
        return;
    if (transform->tensorflow)
        cvy_color_jitter_apply(&transform->color, rng, image, (size_t)transform->size * (size_t)transform->size);
    else
        cvy_color_jitter_bytes(&transform->color, rng, image, transform->size);
}

/* DALI's filters shrink without antialiasing, but for the one that its version of TensorFlow's program had. */
static enum cvy_filter filter_of(const struct cvy_transform *transform)
{
    if (!transform->dali || transform->triangular)
        return transform->filter;
    return transform->filter == CVY_FILTER_BICUBIC ? CVY_FILTER_CUBIC : CVY_FILTER_LINEAR;
}

cvy_status cvy_transform_image(const struct cvy_transform *transform, struct cvy_decoder *decoder,
                               struct cvy_resizer *resizer, const struct cvy_encoded *encoded, struct cvy_rng *rng,
                               void *out)
{
    cvy_status status = CVY_OK;
    struct source source = {.decoder = decoder};
    const char *name = encoded->name;

    resizer->filter = filter_of(transform);
    cvy_decoder_set_speed(decoder, transform->tensorflow ? CVY_JPEG_FAST : CVY_JPEG_EXACT);
    CVY_GOTO(open_source(transform, encoded, &source));
    if (transform->tensorflow)
        status = transform->training ? tensorflow_training(transform, &source, encoded, resizer, rng, out)
                                     : tensorflow_evaluation(transform, &source, name, resizer, out);
    else
        status = transform->training ? transform_training(transform, &source, resizer, rng, out)
                                     : transform_evaluation(transform, &source, name, resizer, out);
    if (status == CVY_OK)
        change_colors(transform, rng, out);
fail:
    cvy_free(source.turned);
    return status;
}

/* ---- for devices ---- */

const char *cvy_transform_unsuited(const struct cvy_transform *transform)
{
    if (transform->detection)
        return "images with boxes are decoded by the processor";
    if (transform->tensorflow)
        return "TensorFlow's transforms are the processor's";
    if (filter_of(transform) == CVY_FILTER_CUBIC)
        return "DALI's bicubic interpolation is the processor's";
    if (transform->training && cvy_color_jitter_is_on(&transform->color))
        return "colours are changed by the processor";
    return NULL;
}

static cvy_status describe(const struct cvy_transform *transform, const char *name, struct cvy_rng *rng,
                           struct cvy_device_image *image)
{
    const int32_t size = transform->size;
    struct cvy_center_crop center;
    struct cvy_view view;

    if (transform->training) {
        const struct cvy_box crop = draw_crop(transform, rng, image->width, image->height, &image->flip);
        image->x = crop.x;
        image->y = crop.y;
        image->across = (struct cvy_resize_axis){0, crop.width, crop.width, size, 0, size, 0};
        image->down = (struct cvy_resize_axis){0, crop.height, crop.height, size, 0, size, 0};
        return CVY_OK;
    }
    CVY_TRY(center_crop(transform, name, image->width, image->height, &center, &view));
    image->across = (struct cvy_resize_axis){view.x,          view.width,          image->width, center.full_width,
                                             center.window.x, center.window.width, center.at_x};
    image->down = (struct cvy_resize_axis){view.y,          view.height,          image->height, center.full_height,
                                           center.window.y, center.window.height, center.at_y};
    return CVY_OK;
}

cvy_status cvy_transform_describe(const struct cvy_transform *transform, struct cvy_decoder *decoder,
                                  const struct cvy_encoded *encoded, struct cvy_rng *rng,
                                  struct cvy_device_image *image, bool *suits)
{
    const enum cvy_filter filter = filter_of(transform);

    *image = (struct cvy_device_image){.data = encoded->data,
                                       .bytes = encoded->size,
                                       .cubic = filter == CVY_FILTER_BICUBIC,
                                       .antialiased = filter != CVY_FILTER_LINEAR};
    *suits = false;
    CVY_TRY(cvy_decoder_start(decoder, encoded->name, encoded->data, encoded->size, &image->width, &image->height));
    if (!cvy_decoder_is_usual_jpeg(decoder) || (transform->exif_orientation && cvy_decoder_orientation(decoder) != 1))
        return CVY_OK;
    *suits = true;
    return describe(transform, encoded->name, rng, image);
}

cvy_status cvy_transform_detection(const struct cvy_transform *transform, struct cvy_decoder *decoder,
                                   struct cvy_resizer *resizer, const struct cvy_encoded *encoded,
                                   const struct cvy_truth *truth, struct cvy_rng *rng, float *out,
                                   struct cvy_target_boxes *boxes)
{
    cvy_status status = CVY_OK;
    struct source source = {.decoder = decoder};
    const int32_t size = transform->size;
    const struct cvy_box all = {0, 0, size, size};
    struct cvy_detection_crop crop = {0};
    const uint8_t *pixels;
    size_t stride;

    cvy_decoder_set_speed(decoder, CVY_JPEG_FAST_DCT);
    CVY_GOTO(open_source(transform, encoded, &source));
    crop.window = (struct cvy_box){0, 0, source.width, source.height};
    if (transform->training)
        CVY_GOTO(cvy_detection_draw(rng, source.width, source.height, truth, &crop));
    cvy_detection_boxes(truth, transform->training ? &crop : NULL, source.width, source.height, boxes);
    /* The crop lies in the mirrored image. */
    if (crop.mirrored)
        crop.window.x = source.width - crop.window.x - crop.window.width;
    CVY_GOTO(read_pixels(&source, &crop.window, &pixels, &stride));
    CVY_GOTO(cvy_tensorflow_resize(resizer, pixels, stride, crop.window.width, crop.window.height, size, size, &all,
                                   crop.mirrored, out));
    if (transform->training)
        cvy_color_jitter_apply(&transform->color, rng, out, (size_t)size * (size_t)size);
fail:
    cvy_free(source.turned);
    return status;
}
