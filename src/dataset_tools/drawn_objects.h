/* The drawn objects of `convoy dataset shapes`. */
#ifndef CVY_DATASET_TOOLS_DRAWN_OBJECTS_H
#define CVY_DATASET_TOOLS_DRAWN_OBJECTS_H

#include <stdint.h>

#include "base/memory.h"
#include "base/rng.h"
#include "convoy/status.h"
#include "data/image/image.h"
#include "dataset_tools/new_folder.h"

enum { CVY_DRAWN_CLASSES = 10 };
/* Sorted bytewise, so that the index is the label a data set gives. */
extern const char *const cvy_drawn_class_names[CVY_DRAWN_CLASSES];

/* Draw one object of class `shape` on a random background: (side, side, 3) RGB. */
void cvy_draw_object(struct cvy_rng *rng, int shape, int side, uint8_t *pixels);

/* The shapes in the order in which a set of scenes takes them for its classes. */
extern const int cvy_scene_classes[CVY_DRAWN_CLASSES];
enum { CVY_SCENE_OBJECTS = 6 };
struct cvy_scene_object {
    int kind;           /* 0..classes - 1: the shape is cvy_scene_classes[kind] */
    struct cvy_box box; /* around the pixels that are more than half covered by it */
    int64_t area;       /* this many */
};
/* Draw none to CVY_SCENE_OBJECTS objects of the first `classes` shapes, hardly hiding each other: (height, width, 3)
 * RGB. Returns their number. */
int cvy_draw_scene(struct cvy_rng *rng, int classes, int width, int height, uint8_t *pixels,
                   struct cvy_scene_object objects[CVY_SCENE_OBJECTS]);

/* A new file of an image (height, width, 3), called `name` in the folder; the name is released. */
CVY_CHECKED cvy_status cvy_write_new_jpeg(const struct cvy_new_folder *folder, struct cvy_text *name,
                                          const uint8_t *pixels, int32_t width, int32_t height, int quality);

#endif
