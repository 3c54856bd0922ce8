/* List files: a data set as a text file of lines "path<TAB>label" (doc/data.md). */
#ifndef CVY_DATA_SET_LIST_H
#define CVY_DATA_SET_LIST_H

#include "data/set/sample_set.h"

/* Read a list. Labels are class names; or, when every label of the list is an integer, indices: then classes are named
 * by their numbers. With given `classes` labels are their names or, when one of the labels is no such name, all of them
 * indices. Paths are relative to the list's folder. Samples come sorted as cvy_dataset_open sorts them. CVY_NO_INPUT:
 * missing or unreadable; CVY_BAD_DATA names the line. */
CVY_CHECKED cvy_status cvy_dataset_open_list(struct cvy_dataset *dataset, const char *file, const char *const *classes,
                                             int32_t class_count);

/* The same from `size` bytes that were in a file of this name. They are changed; a 0 byte must follow them. */
CVY_CHECKED cvy_status cvy_dataset_read_list(struct cvy_dataset *dataset, const char *file, char *text, size_t size,
                                             const char *const *classes, int32_t class_count);

#endif
