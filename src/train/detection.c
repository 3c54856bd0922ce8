#include "train/detection.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "data/transform_detection.h"

void cvy_detections_gather(const float *boxes, const float *scores, const int32_t *classes, int32_t count,
                           struct cvy_detection *detections)
{
    for (int32_t i = 0; i < count; i++) {
        memcpy(detections[i].box, boxes + 4 * i, sizeof detections[i].box);
        detections[i].score = scores[i];
        detections[i].label = classes[i];
    }
}

void cvy_box_pixels(const float box[4], int32_t width, int32_t height, float pixels[4])
{
    const float w = (float)width, h = (float)height;
    const float top = box[0] * h, left = box[1] * w, bottom = box[2] * h, right = box[3] * w;

    pixels[0] = left;
    pixels[1] = top;
    pixels[2] = right - left;
    pixels[3] = bottom - top;
}

static const char *const rule_names[] = {"annotation", "box"};

bool cvy_area_rule_parse(const char *text, enum cvy_area_rule *rule)
{
    for (int i = 0; i < 2; i++)
        if (strcmp(text, rule_names[i]) == 0) {
            *rule = (enum cvy_area_rule)i;
            return true;
        }
    return false;
}

const char *cvy_area_rule_name(enum cvy_area_rule rule)
{
    return rule_names[rule];
}

static void widen(const float pixels[4], double box[4])
{
    for (int i = 0; i < 4; i++)
        box[i] = (double)pixels[i];
}

static struct cvy_coco_truth truth_of(const struct cvy_coco_image *image, const struct cvy_coco_object *object,
                                      enum cvy_area_rule rule)
{
    struct cvy_coco_truth truth = {.area = object->area, .category = object->slot - 1, .crowd = object->crowd};
    float shares[4], pixels[4];

    memcpy(truth.box, object->bbox, sizeof truth.box);
    if (rule == CVY_AREA_ANNOTATION)
        return truth;
    cvy_object_shares(image, object, shares);
    cvy_box_pixels(shares, image->width, image->height, pixels);
    widen(pixels, truth.box);
    truth.area = (double)(pixels[2] * pixels[3]);
    return truth;
}

cvy_status cvy_detections_evaluate(struct cvy_coco_evaluation *evaluation, const struct cvy_dataset *dataset,
                                   uint32_t sample, const struct cvy_detection *detections, size_t count,
                                   enum cvy_area_rule rule)
{
    const struct cvy_coco_image *image = &dataset->images[sample];
    const struct cvy_coco_object *objects;
    struct cvy_coco_truth *truths = NULL;
    struct cvy_coco_detection *found = NULL;
    size_t object_count, found_count = 0;
    cvy_status status;

    cvy_dataset_objects(dataset, sample, &objects, &object_count);
    truths = cvy_calloc(object_count + 1, sizeof *truths);
    found = cvy_calloc(count + 1, sizeof *found);
    if (!truths || !found) {
        status = cvy_fail_memory((object_count + count) * sizeof *truths, "the detections of an image");
        goto fail;
    }
    for (size_t i = 0; i < object_count; i++)
        truths[i] = truth_of(image, &objects[i], rule);
    for (size_t i = 0; i < count; i++) {
        struct cvy_coco_detection *one = &found[found_count];
        float pixels[4];
        if (detections[i].label < 0 || detections[i].label >= evaluation->category_count)
            continue;
        cvy_box_pixels(detections[i].box, image->width, image->height, pixels);
        widen(pixels, one->box);
        one->score = (double)detections[i].score;
        one->category = detections[i].label;
        found_count++;
    }
    status = cvy_coco_add(evaluation, image->id, truths, object_count, found, found_count);
fail:
    cvy_free(truths);
    cvy_free(found);
    return status;
}
