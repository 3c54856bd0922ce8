/* A detection set from a COCO file and a folder of images. */
#ifndef CVY_DATA_DETECTION_COCO_SET_H
#define CVY_DATA_DETECTION_COCO_SET_H

#include "data/detection/coco_file.h"
#include "data/set/dataset.h"

/* COCO's category ids go to 90, with gaps: its program gives each id its own slot. */
enum { CVY_COCO_SLOTS = 90 };

/* How categories are mapped to slots. */
struct cvy_category_rule {
    bool coco;                /* its id, of CVY_COCO_SLOTS; else 1.. in the order of the ids */
    const char *const *names; /* of the training data or the weights: (count); NULL: not known yet */
    const int64_t *ids;       /* (count); NULL: categories are known by their names */
    int32_t count;
};

/* The set of the images `folder`/file_name, in the bytewise order of their paths. Objects are set aside if they have no
 * width or height, reach beyond the right or lower edge of their image, or lie wholly outside, and left out if they are
 * not finite; a warning says how many. CVY_BAD_DATA names the byte: an unknown image or category, an id twice. Images
 * are not examined. */
CVY_CHECKED cvy_status cvy_dataset_open_coco(struct cvy_dataset *dataset, const char *json, const char *folder,
                                             const struct cvy_category_rule *rule);
/* The same from a file that was read; `json` is its name. */
CVY_CHECKED cvy_status cvy_dataset_from_coco(struct cvy_dataset *dataset, const char *json,
                                             const struct cvy_coco_file *file, const char *folder,
                                             const struct cvy_category_rule *rule);

#endif
