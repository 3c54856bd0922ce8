/* Arithmetic in float where TensorFlow's program computes in float; shares of pixels are divided in double, as its
 * records are made. */
#include "data/transform/detection.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "data/transform/tensorflow.h"

/* Any part of a box is enough, and every box has one in any crop: what is refused is refused for its shape. */
static const struct cvy_tensorflow_rules crop_rules = {.min_area = 0.75F, .min_ratio = 0.75F, .max_ratio = 3.0F};

enum { YMIN, XMIN, YMAX, XMAX };

void cvy_object_shares(const struct cvy_coco_image *image, const struct cvy_coco_object *object, float box[4])
{
    const double *b = object->bbox;

    box[YMIN] = (float)(b[1] / image->height);
    box[XMIN] = (float)(b[0] / image->width);
    box[YMAX] = (float)((b[1] + b[3]) / image->height);
    box[XMAX] = (float)((b[0] + b[2]) / image->width);
}

static void mirror(float box[4])
{
    const float xmin = box[XMIN];

    box[XMIN] = 1 - box[XMAX];
    box[XMAX] = 1 - xmin;
}

static float clip(float share)
{
    return share < 0 ? 0 : share > 1 ? 1 : share;
}

cvy_status cvy_detection_draw(struct cvy_rng *rng, int32_t width, int32_t height, const struct cvy_truth *truth,
                              struct cvy_detection_crop *crop)
{
    struct cvy_object_box *boxes = NULL;

    if (truth->count > 0) {
        boxes = cvy_calloc(truth->count, sizeof *boxes);
        if (!boxes)
            return cvy_fail_memory(truth->count * sizeof *boxes, "the boxes of an image");
    }
    crop->mirrored = cvy_rng_uniform(rng) > 0.5;
    for (size_t i = 0; i < truth->count; i++) {
        float box[4];
        cvy_object_shares(truth->image, &truth->objects[i], box);
        if (crop->mirrored)
            mirror(box);
        boxes[i] = (struct cvy_object_box){clip(box[XMIN]), clip(box[YMIN]), clip(box[XMAX]), clip(box[YMAX])};
    }
    crop->window = cvy_tensorflow_crop_by(&crop_rules, rng, width, height, boxes, truth->count);
    cvy_free(boxes);
    return CVY_OK;
}

/* From shares of the image to shares of the window. False where nothing of the box is in it, or it has no area. */
static bool move_into(const float window[4], float box[4])
{
    const float height = window[YMAX] - window[YMIN], width = window[XMAX] - window[XMIN];

    if (box[YMIN] >= window[YMAX] || box[XMIN] >= window[XMAX] || box[YMAX] <= window[YMIN] ||
        box[XMAX] <= window[XMIN] || !((box[YMAX] - box[YMIN]) * (box[XMAX] - box[XMIN]) > 0))
        return false;
    for (int i = 0; i < 4; i++)
        box[i] = clip((box[i] - window[i & 1]) / (i & 1 ? width : height));
    return true;
}

void cvy_detection_boxes(const struct cvy_truth *truth, const struct cvy_detection_crop *crop, int32_t width,
                         int32_t height, struct cvy_target_boxes *out)
{
    float window[4] = {0, 0, 1, 1};
    int count = 0;

    memset(out->boxes, 0, CVY_MAX_BOXES * sizeof *out->boxes);
    memset(out->labels, 0, CVY_MAX_BOXES * sizeof *out->labels);
    if (crop) {
        const struct cvy_box *w = &crop->window;
        window[YMIN] = (float)w->y / (float)height;
        window[XMIN] = (float)w->x / (float)width;
        window[YMAX] = (float)(w->y + w->height) / (float)height;
        window[XMAX] = (float)(w->x + w->width) / (float)width;
    }
    for (size_t i = 0; i < truth->count && count < CVY_MAX_BOXES; i++) {
        float box[4];
        cvy_object_shares(truth->image, &truth->objects[i], box);
        if (crop && crop->mirrored)
            mirror(box);
        if (!move_into(window, box))
            continue;
        memcpy(out->boxes[count], box, sizeof box);
        out->labels[count++] = truth->objects[i].slot;
    }
}
