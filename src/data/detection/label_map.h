/* Names of categories and their ids, as the label maps of TensorFlow's detection programs have them. */
#ifndef CVY_DATA_DETECTION_LABEL_MAP_H
#define CVY_DATA_DETECTION_LABEL_MAP_H

#include "base/memory.h"
#include "convoy/status.h"

struct cvy_label {
    int64_t id;
    const char *name, *display_name; /* display_name: NULL where there is none */
};
/* Zero-initialise; release accepts a zeroed one. */
struct cvy_label_map {
    struct cvy_arena arena;
    struct cvy_label *labels;
    size_t count;
};
void cvy_label_map_release(struct cvy_label_map *map);

/* The file of a folder of records. */
#define CVY_LABEL_MAP_FILE "label_map.pbtxt"

/* COCO's 80 categories with their own ids, 1 to 90. */
CVY_CHECKED cvy_status cvy_label_map_coco(struct cvy_label_map *map);
/* A text like
 *   item { name: "/m/01g317" id: 1 display_name: "person" }
 * with comments from # on. CVY_BAD_DATA names the line. */
CVY_CHECKED cvy_status cvy_label_map_parse(const char *what, const char *text, size_t size, struct cvy_label_map *map);
CVY_CHECKED cvy_status cvy_label_map_read(const char *path, struct cvy_label_map *map);
/* Append an item. */
void cvy_label_map_write(struct cvy_text *text, int64_t id, const char *name);
/* The id of the label whose name or display name is `text`, the larger one where there are two; -1: none. */
int64_t cvy_label_map_find(const struct cvy_label_map *map, const char *text);

#endif
