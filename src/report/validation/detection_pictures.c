/* The pictures that a validation shows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/image/codec.h"
#include "report/drawing/html.h"
#include "report/validation/detection.h"

enum { QUALITY = 80 };
static const float min_score = 0.3F; /* a page full of guesses shows nothing */

void cvy_pictures_open(struct cvy_picture_collector *collector, uint32_t image_count)
{
    *collector = (struct cvy_picture_collector){.image_count = image_count};
}

void cvy_pictures_clear(struct cvy_picture_collector *collector)
{
    const uint32_t image_count = collector->image_count;

    cvy_arena_release(&collector->arena);
    cvy_pictures_open(collector, image_count);
}

void cvy_pictures_close(struct cvy_picture_collector *collector)
{
    cvy_pictures_clear(collector);
    collector->image_count = 0;
}

static size_t part_of(const struct cvy_picture_collector *collector, uint32_t index)
{
    return (size_t)((uint64_t)index * CVY_SHOWN_PICTURES / collector->image_count);
}

bool cvy_pictures_wants(const struct cvy_picture_collector *collector, uint32_t index)
{
    return index < collector->image_count && !collector->taken[part_of(collector, index)];
}

static cvy_status encode(struct cvy_arena *arena, const float *pixels, int32_t size, const char **jpeg)
{
    const size_t count = (size_t)size * (size_t)size * 3;
    struct cvy_text text = {0};
    uint8_t *bytes = cvy_calloc(count, 1), *encoded = NULL;
    size_t length = 0;
    cvy_status status;

    if (!bytes)
        return cvy_fail_memory(count, "a picture of the report");
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(fminf(fmaxf(pixels[i], 0), 255) + 0.5F);
    CVY_GOTO(cvy_jpeg_encode(bytes, size, size, QUALITY, &encoded, &length));
    cvy_base64(&text, encoded, length);
    *jpeg = text.failed ? NULL : cvy_arena_strdup(arena, text.text);
    if (!*jpeg)
        status = cvy_fail_memory(length, "a picture of the report");
fail:
    free(encoded); /* allocated by libjpeg */
    cvy_text_release(&text);
    cvy_free(bytes);
    return status;
}

static cvy_status copy_marks(struct cvy_arena *arena, const struct cvy_network_view *image,
                             struct cvy_marked_picture *picture)
{
    const size_t max = image->detection_count < CVY_SHOWN_DETECTIONS ? image->detection_count : CVY_SHOWN_DETECTIONS;

    picture->truths = cvy_arena_alloc(arena, (image->truth_count + 1) * sizeof *picture->truths);
    picture->found = cvy_arena_alloc(arena, (max + 1) * sizeof *picture->found);
    if (!picture->truths || !picture->found)
        return cvy_fail_memory((image->truth_count + max) * sizeof *picture->truths, "the boxes of a picture");
    if (image->truth_count > 0)
        memcpy(picture->truths, image->truths, image->truth_count * sizeof *picture->truths);
    picture->truth_count = image->truth_count;
    for (size_t i = 0; i < max && image->detections[i].score >= min_score; i++) {
        struct cvy_mark *mark = &picture->found[picture->found_count++];
        *mark = (struct cvy_mark){.score = image->detections[i].score, .label = image->detections[i].label};
        memcpy(mark->box, image->detections[i].box, sizeof mark->box);
    }
    return CVY_OK;
}

cvy_status cvy_pictures_add(struct cvy_picture_collector *collector, uint32_t index,
                            const struct cvy_network_view *image)
{
    struct cvy_marked_picture picture = {.width = image->width, .height = image->height};

    if (!cvy_pictures_wants(collector, index))
        return CVY_OK;
    if (image->file && !(picture.file = cvy_arena_strdup(&collector->arena, image->file)))
        return cvy_fail_memory(strlen(image->file), "a file name");
    CVY_TRY(copy_marks(&collector->arena, image, &picture));
    CVY_TRY(encode(&collector->arena, image->pixels, image->size, &picture.jpeg));
    collector->pictures[part_of(collector, index)] = picture;
    collector->taken[part_of(collector, index)] = true;
    return CVY_OK;
}

/* The validation's arena must be empty yet: it becomes the collector's. */
cvy_status cvy_pictures_move(struct cvy_picture_collector *collector, struct cvy_detection_validation *validation)
{
    struct cvy_marked_picture *pictures =
        cvy_arena_alloc(&collector->arena, CVY_SHOWN_PICTURES * sizeof *collector->pictures);
    size_t count = 0;

    if (!pictures)
        return cvy_fail_memory(CVY_SHOWN_PICTURES * sizeof *pictures, "the pictures of the report");
    for (size_t i = 0; i < CVY_SHOWN_PICTURES; i++)
        if (collector->taken[i])
            pictures[count++] = collector->pictures[i];
    validation->arena = collector->arena;
    validation->pictures = pictures;
    validation->picture_count = count;
    collector->arena = (struct cvy_arena){0};
    cvy_pictures_clear(collector);
    return CVY_OK;
}
