/* A detector's results on the host: from the outputs of its plan to COCO's evaluation. */
#ifndef CVY_EVAL_DETECTION_H
#define CVY_EVAL_DETECTION_H

#include "data/set/dataset.h"
#include "eval/coco_evaluation.h"
#include "report/validation/detection.h"

/* The first `count` rows of a plan's results for one image, by descending score. */
void cvy_detections_gather(const float *boxes /* (n, 4) */, const float *scores, const int32_t *classes, int32_t count,
                           struct cvy_detection *detections);
/* A box as x, y, width, height in pixels of an image. In float, as TensorFlow's program computes them. */
void cvy_box_pixels(const float box[4], int32_t width, int32_t height, float pixels[4]);

/* What decides whether an object is small, medium or large: the area that its annotation gives, which is COCO's rule;
 * or that of its box, as in TensorFlow's program, which also takes the boxes as the records hold them, in float, and so
 * does not know those that are set aside. */
enum cvy_area_rule { CVY_AREA_ANNOTATION, CVY_AREA_BOX };
/* "annotation", "box". False when it is neither. */
bool cvy_area_rule_parse(const char *text, enum cvy_area_rule *rule);

/* Add one image of a data set and what was found on it, in the data set's own pixels. The evaluation's categories are
 * the data set's classes; what was found of others (slots that no class has) is left out. CVY_BAD_DATA: a box or score
 * is not finite. */
CVY_CHECKED cvy_status cvy_detections_evaluate(struct cvy_coco_evaluation *evaluation,
                                               const struct cvy_dataset *dataset, uint32_t sample,
                                               const struct cvy_detection *detections, size_t count,
                                               enum cvy_area_rule rule);

/* ---- for the report ---- */

/* Hand an image of the pass to the collector, if it is one to show. pixels: (size, size, 3), 0..255, as the network saw
 * it. */
CVY_CHECKED cvy_status cvy_detections_picture(struct cvy_picture_collector *collector,
                                              const struct cvy_dataset *dataset, uint32_t sample, const float *pixels,
                                              int32_t size, const struct cvy_detection *detections, size_t count);
/* The numbers of a pass, and the collector's pictures, which are moved (NULL: none). Epoch and skipped images are the
 * caller's to set. */
CVY_CHECKED cvy_status cvy_detections_validation(const struct cvy_coco_result *result,
                                                 const struct cvy_dataset *dataset,
                                                 struct cvy_picture_collector *collector,
                                                 struct cvy_detection_validation *validation);

#endif
