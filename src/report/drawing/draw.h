/* Boxes with names drawn onto a picture. */
#ifndef CVY_REPORT_DRAWING_DRAW_H
#define CVY_REPORT_DRAWING_DRAW_H

#include "data/image/picture.h"

struct cvy_drawn_box {
    double x, y, width, height; /* pixels; parts outside the picture are not seen */
    int32_t label;              /* decides the colour */
    const char *name;           /* UTF-8; what is none becomes "?"; NULL: without */
    double score;               /* 0..1, drawn in per cent; below 0: without */
};
/* The first ones come to lie on top. Pictures of any size; lines and letters grow with them. CVY_UNAVAILABLE
 * without cairo, CVY_NO_MEMORY, CVY_FAILED. */
CVY_CHECKED cvy_status cvy_draw_boxes(struct cvy_picture *picture, const struct cvy_drawn_box *boxes, size_t count);

/* Whether boxes can be drawn here at all: CVY_UNAVAILABLE without cairo. */
CVY_CHECKED cvy_status cvy_draw_check(void);
/* The library that draws, "cairo 1.18.0"; or why there is none. Returns buffer. */
const char *cvy_draw_text(char buffer[512], bool *available);

/* The colour of a label, 0..1 each, and whether black letters are better to read on it than white ones. */
struct cvy_label_colour {
    double red, green, blue;
    bool black_text;
};
struct cvy_label_colour cvy_label_colour(int32_t label);

#endif
