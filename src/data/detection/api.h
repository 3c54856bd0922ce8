/* Images with the boxes of objects: sets of COCO and of records, and how boxes are stored with an image. */
#ifndef CVY_DATA_DETECTION_API_H
#define CVY_DATA_DETECTION_API_H

#include "data/detection/coco_set.h"
#include "data/detection/detection_records.h"
#include "data/detection/detection_set.h"
#include "data/detection/label_map.h"
#include "data/detection/object_record.h"

#endif
