/* What a detector finds, and one validation of it in detail: the numbers of COCO's evaluation, precision by class and
 * recall, some pictures. Kept as JSON (validation.json, described in doc/detection.md), shown on the page. */
#ifndef CVY_REPORT_DETECTION_H
#define CVY_REPORT_DETECTION_H

#include "base/memory.h"
#include "convoy/status.h"
#include "data/objects.h"

struct cvy_detection {
    float box[4];  /* ymin, xmin, ymax, xmax as shares of the image */
    float score;   /* 0..1 */
    int32_t label; /* from 0: slot - 1 */
};

#endif
