/* A detection set in TFRecord files: DIR/coco_train.record-00003-of-00100 and the like, each record one image
 * (data/detection/object_record.h). */
#ifndef CVY_DATA_DETECTION_DETECTION_RECORDS_H
#define CVY_DATA_DETECTION_DETECTION_RECORDS_H

#include "data/detection/coco_set.h"

/* Files belong to a part by their names: the word ("train", "val") in it, and ".record" or ".tfrecord" after. */
bool cvy_holds_object_records(const char *folder, const char *word);
/* The part's images. Categories are those of the label map in the folder (*.pbtxt), or else COCO's. CVY_BAD_DATA names
 * file and byte. */
CVY_CHECKED cvy_status cvy_dataset_open_object_records(struct cvy_dataset *dataset, const char *folder,
                                                       const char *word, const struct cvy_category_rule *rule);

#endif
