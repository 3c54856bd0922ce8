/* Finds the annotations of a folder and opens the sets in it (doc/data.md): COCO files, or records. */
#ifndef CVY_DATA_DETECTION_DETECTION_SET_H
#define CVY_DATA_DETECTION_DETECTION_SET_H

#include "data/detection/coco_set.h"

enum cvy_detection_part { CVY_DETECTION_TRAIN, CVY_DETECTION_VAL, CVY_DETECTION_PARTS };

/* Whether `path` holds a detection set: one of its parts at least, or one that is not divided into parts. */
bool cvy_holds_detection(const char *path);
/* The same; CVY_NO_MEMORY where that cannot be found out. */
CVY_CHECKED cvy_status cvy_find_detection(const char *path, bool *holds);
/* Whether `path` is a folder with this part. */
bool cvy_holds_detection_part(const char *path, enum cvy_detection_part part);
/* One part of `path`; where it is not divided into parts, all of it. CVY_NO_INPUT: there is none. */
CVY_CHECKED cvy_status cvy_dataset_open_detection(struct cvy_dataset *dataset, const char *path,
                                                  enum cvy_detection_part part, const struct cvy_category_rule *rule);
/* Both parts, which must be there; or, with val_split > 0 (fraction, by seed), a split (data/set/split.h) of what there
 * is for training, and then there must be nothing for validation: CVY_USAGE. The classes of validation are those of
 * training. `coco`: COCO's 90 slots. On failure both are closed. */
CVY_CHECKED cvy_status cvy_dataset_open_detection_pair(const char *path, bool coco, double val_split, uint64_t seed,
                                                       struct cvy_dataset *train, struct cvy_dataset *val);
/* The same split, regardless of what else exists. On failure both are closed. */
CVY_CHECKED cvy_status cvy_dataset_split_detection(const char *path, const struct cvy_category_rule *rule,
                                                   double val_split, uint64_t seed, struct cvy_dataset *train,
                                                   struct cvy_dataset *val);
/* Training, and validation where there is one (else an empty set); of a set without parts all of it as training. On
 * failure both are closed. */
CVY_CHECKED cvy_status cvy_dataset_open_detection_parts(const char *path, struct cvy_dataset *train,
                                                        struct cvy_dataset *val);
/* The rule that gives another set the classes of this one. */
struct cvy_category_rule cvy_categories_of(const struct cvy_dataset *dataset);

#endif
