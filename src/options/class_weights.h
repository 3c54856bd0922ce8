/* --class-weights: how much each class counts in the loss. */
#ifndef CVY_OPTIONS_CLASS_WEIGHTS_H
#define CVY_OPTIONS_CLASS_WEIGHTS_H

#include "data/set/dataset.h"

/* The weights (outputs) that `text` means for the images of `data`:
 *   balanced      all images / (classes * images of the class), over the classes that have images; 1 for the others
 *   NAME=W,...    those of the classes named, 1 for the others
 *   FILE          a line NAME, tab or comma or =, W for each of them; # begins a comment
 * Weights are above 0. CVY_USAGE, or CVY_NO_INPUT and CVY_BAD_DATA of a file, with the sentence. */
CVY_CHECKED cvy_status cvy_class_weights_make(const char *text, const struct cvy_dataset *data, int32_t outputs,
                                              float *weights);
/* Whether `text` names a file. */
bool cvy_class_weights_is_file(const char *text);

#endif
