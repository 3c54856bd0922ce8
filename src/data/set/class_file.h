/* Class names for data sets whose labels are numbers: from a file beside them, or from other sources. */
#ifndef CVY_DATA_SET_CLASS_FILE_H
#define CVY_DATA_SET_CLASS_FILE_H

#include "data/set/sample_set.h"

/* In DIR: the names of the classes, one a line, the first for the first label. */
#define CVY_CLASS_FILE "classes.txt"

enum { CVY_MAX_CLASSES = 1000000 }; /* as many as --num-classes allows */

/* What a data set knows about its labels. */
struct cvy_numbered_classes {
    int32_t highest;                                         /* label of a sample */
    int32_t first;                                           /* what label 0 is in the set, for messages */
    const char *(*name)(const void *context, int32_t label); /* in its files; NULL: there are none */
    const void *context;
};
/* Names: with given `classes`, those, and what the set says must agree with them; else of CVY_CLASS_FILE, else of the
 * set's files, else numbers. CVY_BAD_DATA: a label or a name that does not fit. */
CVY_CHECKED cvy_status cvy_dataset_name_classes(struct cvy_dataset *dataset, const char *folder,
                                                const struct cvy_numbered_classes *numbered, const char *const *classes,
                                                int32_t class_count);

#endif
