#include "eval/detection.h"

#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "data/transform/detection.h"

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

/* All objects in the order of the file, on which equal overlaps depend: those that training excludes, which come from
 * number `included` on, are merged with the others. */
static void merge_truths(const struct cvy_coco_image *image, const struct cvy_coco_object *objects, size_t included,
                         size_t count, enum cvy_area_rule rule, struct cvy_coco_truth *truths)
{
    for (size_t i = 0, used = 0, excluded = included; i < count; i++) {
        const bool next_used = excluded == count || (used < included && objects[used].place <= objects[excluded].place);
        truths[i] = truth_of(image, &objects[next_used ? used++ : excluded++], rule);
    }
}

/* Those of the evaluation's categories, in pixels; how many there are. */
static size_t list_detections(const struct cvy_coco_image *image, const struct cvy_detection *detections, size_t count,
                              int32_t categories, struct cvy_coco_detection *found)
{
    size_t found_count = 0;

    for (size_t i = 0; i < count; i++) {
        struct cvy_coco_detection *one = &found[found_count];
        float pixels[4];

        if (detections[i].label < 0 || detections[i].label >= categories)
            continue;
        cvy_box_pixels(detections[i].box, image->width, image->height, pixels);
        widen(pixels, one->box);
        one->score = (double)detections[i].score;
        one->category = detections[i].label;
        found_count++;
    }
    return found_count;
}

cvy_status cvy_detections_evaluate(struct cvy_coco_evaluation *evaluation, const struct cvy_dataset *dataset,
                                   uint32_t sample, const struct cvy_detection *detections, size_t count,
                                   enum cvy_area_rule rule)
{
    const struct cvy_coco_image *image = &dataset->images[sample];
    const struct cvy_coco_object *objects;
    struct cvy_coco_truth *truths;
    struct cvy_coco_detection *found;
    size_t object_count, found_count;
    cvy_status status;

    if (rule == CVY_AREA_ANNOTATION)
        cvy_dataset_all_objects(dataset, sample, &objects, &object_count);
    else
        cvy_dataset_objects(dataset, sample, &objects, &object_count);
    truths = cvy_calloc(object_count + 1, sizeof *truths);
    found = cvy_calloc(count + 1, sizeof *found);
    if (truths && found) {
        merge_truths(image, objects, image->object_count, object_count, rule, truths);
        found_count = list_detections(image, detections, count, evaluation->category_count, found);
        status = cvy_coco_add(evaluation, image->id, truths, object_count, found, found_count);
    } else {
        status = cvy_fail_memory((object_count + count) * sizeof *truths, "the detections of an image");
    }
    cvy_free(truths);
    cvy_free(found);
    return status;
}

/* ---- for the report ---- */

cvy_status cvy_detections_picture(struct cvy_picture_collector *collector, const struct cvy_dataset *dataset,
                                  uint32_t sample, const float *pixels, int32_t size,
                                  const struct cvy_detection *detections, size_t count)
{
    const struct cvy_coco_image *image = &dataset->images[sample];
    const struct cvy_coco_object *objects;
    struct cvy_mark *truths;
    size_t object_count;
    cvy_status status;

    if (!cvy_pictures_wants(collector, sample))
        return CVY_OK;
    cvy_dataset_objects(dataset, sample, &objects, &object_count);
    truths = cvy_calloc(object_count + 1, sizeof *truths);
    if (!truths)
        return cvy_fail_memory(object_count * sizeof *truths, "the objects of a picture");
    for (size_t i = 0; i < object_count; i++) {
        truths[i] = (struct cvy_mark){.label = objects[i].slot - 1, .crowd = objects[i].crowd};
        cvy_object_shares(image, &objects[i], truths[i].box);
    }
    status = cvy_pictures_add(collector, sample,
                              &(struct cvy_network_view){
                                  .file = dataset->samples[sample].path,
                                  .width = image->width,
                                  .height = image->height,
                                  .pixels = pixels,
                                  .size = size,
                                  .truths = truths,
                                  .truth_count = object_count,
                                  .detections = detections,
                                  .detection_count = count,
                              });
    cvy_free(truths);
    return status;
}

/* Precision at each recall, as floats. */
static void copy_curve(const double *precision, struct cvy_precision_curve *curve)
{
    for (int r = 0; r < CVY_COCO_RECALLS; r++)
        curve->precision[r] = (float)precision[r];
}

/* The mean over the classes that have something to find, of the thresholds from `first` to `last`. */
static void mean_curve(const struct cvy_coco_result *result, int first, int last, struct cvy_precision_curve *curve)
{
    for (int r = 0; r < CVY_COCO_RECALLS; r++) {
        double sum = 0;
        int64_t count = 0;
        for (int32_t c = 0; c < result->category_count; c++)
            for (int t = first; t <= last && result->categories[c].ap >= 0; t++, count++)
                sum += result->precision[((int64_t)c * CVY_COCO_THRESHOLDS + t) * CVY_COCO_RECALLS + r];
        curve->precision[r] = count > 0 ? (float)(sum / (double)count) : -1;
    }
}

static cvy_status copy_classes(const struct cvy_coco_result *result, const struct cvy_dataset *dataset,
                               struct cvy_detection_validation *v)
{
    const size_t count = (size_t)result->category_count;

    v->class_count = result->category_count;
    v->classes = cvy_arena_alloc(&v->arena, count * sizeof *v->classes);
    v->precisions = cvy_arena_alloc(&v->arena, count * sizeof *v->precisions);
    if (!v->classes || !v->precisions)
        return cvy_fail_memory(count * sizeof *v->precisions, "the classes of a validation");
    for (size_t i = 0; i < count; i++) {
        const struct cvy_coco_category *category = &result->categories[i];
        struct cvy_class_precision *to = &v->precisions[i];
        to->truths = category->truths;
        to->detections = category->detections;
        to->ap = category->ap;
        to->ap50 = category->ap50;
        to->ap75 = category->ap75;
        to->recall = category->recall;
        copy_curve(result->precision + i * CVY_COCO_THRESHOLDS * CVY_COCO_RECALLS, &to->curve);
        if (i >= (size_t)dataset->class_count || !dataset->classes[i] || !dataset->classes[i][0])
            continue;
        v->classes[i] = cvy_arena_strdup(&v->arena, dataset->classes[i]);
        if (!v->classes[i])
            return cvy_fail_memory(strlen(dataset->classes[i]), "the name of a class");
    }
    return CVY_OK;
}

cvy_status cvy_detections_validation(const struct cvy_coco_result *result, const struct cvy_dataset *dataset,
                                     struct cvy_picture_collector *collector,
                                     struct cvy_detection_validation *validation)
{
    _Static_assert((int)CVY_COCO_STATS == (int)CVY_DETECTION_STATS && (int)CVY_COCO_RECALLS == (int)CVY_CURVE_POINTS,
                   "the report knows COCO's numbers");
    struct cvy_detection_validation *v = validation;
    cvy_status status;

    *v = (struct cvy_detection_validation){.epoch = -1, .images = result->images};
    if (collector)
        CVY_GOTO(cvy_pictures_move(collector, v));
    memcpy(v->stats, result->stats, sizeof v->stats);
    mean_curve(result, 0, 0, &v->curves[CVY_CURVE_50]);
    mean_curve(result, 5, 5, &v->curves[CVY_CURVE_75]);
    mean_curve(result, 0, CVY_COCO_THRESHOLDS - 1, &v->curves[CVY_CURVE_ALL]);
    CVY_GOTO(copy_classes(result, dataset, v));
    return CVY_OK;
fail:
    cvy_detection_validation_release(v);
    return status;
}
