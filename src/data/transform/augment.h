/* AutoAugment as the reference program applies it to ImageNet: one of 25 pairs of operations, each operation bit for
 * bit as Pillow does it (doc/data.md). */
#ifndef CVY_DATA_TRANSFORM_AUGMENT_H
#define CVY_DATA_TRANSFORM_AUGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"

enum cvy_augment_op {
    CVY_AUGMENT_SHEAR_X, /* geometric ones first: they have a random sign */
    CVY_AUGMENT_SHEAR_Y,
    CVY_AUGMENT_TRANSLATE_X,
    CVY_AUGMENT_TRANSLATE_Y,
    CVY_AUGMENT_ROTATE,
    CVY_AUGMENT_COLOR,
    CVY_AUGMENT_CONTRAST,
    CVY_AUGMENT_SHARPNESS,
    CVY_AUGMENT_BRIGHTNESS,
    CVY_AUGMENT_POSTERIZE,
    CVY_AUGMENT_SOLARIZE,
    CVY_AUGMENT_SOLARIZE_ADD,
    CVY_AUGMENT_AUTOCONTRAST,
    CVY_AUGMENT_EQUALIZE,
    CVY_AUGMENT_INVERT,
    CVY_AUGMENT_OPS
};
enum { CVY_AUGMENT_LEVELS = 11 }; /* magnitudes of an operation, evenly spaced */

/* "shearX", as in the published policies; NULL past the end. */
const char *cvy_augment_name(enum cvy_augment_op op);
/* The magnitude at `level` (0 to 10): slope, pixels, degrees, factor, bits or threshold; 0 where there is none. */
double cvy_augment_magnitude(enum cvy_augment_op op, int level);

/* One drawn operation of a pair. */
struct cvy_augmentation {
    enum cvy_augment_op op;
    int level;
    int sign;     /* -1 or 1, of a geometric operation */
    bool applied; /* chance may leave it out */
};
/* Draw a pair. The draws taken from `rng` do not depend on what is drawn. */
void cvy_autoaugment_draw(struct cvy_rng *rng, struct cvy_augmentation pair[2]);

/* Change `image` (size, size, 3), size >= 3. scratch: as many bytes. */
void cvy_augment_apply(const struct cvy_augmentation *augmentation, uint8_t *image, int32_t size, uint8_t *scratch);
/* Draw and apply. */
void cvy_autoaugment(struct cvy_rng *rng, uint8_t *image, int32_t size, uint8_t *scratch);

#endif
