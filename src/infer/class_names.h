/* Names for the classes of weights that carry none: those of a file, or the built-in ones of ImageNet and COCO. They
 * are for answers only: nothing is compared with them. */
#ifndef CVY_INFER_CLASS_NAMES_H
#define CVY_INFER_CLASS_NAMES_H

#include <stdbool.h>

#include "base/memory.h"
#include "convoy/status.h"

struct cvy_class_names {
    const char **names; /* (count), in the arena or static; "" where there is none */
    int32_t count;
    struct cvy_arena arena;
};

/* Read a file: a JSON array of texts, or lines: a name each, or a WordNet id and a name ("n01440764 tench, Tinca
 * tinca", as in ImageNet's LOC_synset_mapping.txt). CVY_BAD_DATA: there are not `count` of them, or it is no text. */
CVY_CHECKED cvy_status cvy_class_names_read(struct cvy_class_names *names, const char *path, int32_t count);
/* The name of a class of a network with `count` of them, 1000 of ImageNet or 90 of COCO; NULL for others. */
const char *cvy_class_name_usual(bool detector, int32_t count, int32_t index);
/* The name that was read; NULL past the end, and where nothing was read. */
const char *cvy_class_names_get(const struct cvy_class_names *names, int32_t index);
void cvy_class_names_release(struct cvy_class_names *names);

#endif
