/* The drawn objects of `convoy dataset shapes`. */
#ifndef CVY_DATA_SHAPES_H
#define CVY_DATA_SHAPES_H

#include <stdint.h>

#include "base/rng.h"

enum { CVY_SHAPE_COUNT = 10 };
/* Sorted bytewise, so that the index is the label a data set gives. */
extern const char *const cvy_shape_names[CVY_SHAPE_COUNT];

/* Draw one object of class `shape` on a random background: (side, side, 3) RGB. */
void cvy_draw_shape(struct cvy_rng *rng, int shape, int side, uint8_t *pixels);

#endif
