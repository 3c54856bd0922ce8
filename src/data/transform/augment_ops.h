/* The operations behind data/transform/augment.h, on square RGB images (size, size, 3) in place. Each gives the bytes
 * that Pillow gives. scratch has as many bytes as the image. */
#ifndef CVY_DATA_TRANSFORM_AUGMENT_OPS_H
#define CVY_DATA_TRANSFORM_AUGMENT_OPS_H

#include <stdbool.h>
#include <stdint.h>

enum { CVY_AUGMENT_FILL = 128 }; /* the fill value of geometric operations outside the image */

/* Result (x, y) is the image at (x + slope * y, y), or with `down` at (x, y + slope * x); bicubic. */
void cvy_shear(uint8_t *image, int32_t size, double slope, bool down, uint8_t *scratch);
/* Result (x, y) is the image at (x + dx, y + dy), the nearest pixel. */
void cvy_translate(uint8_t *image, int32_t size, double dx, double dy, uint8_t *scratch);
/* Counter-clockwise around the centre, the nearest pixel. degrees: above -90 and below 90. */
void cvy_rotate(uint8_t *image, int32_t size, double degrees, uint8_t *scratch);

/* Blends: factor 1 is the image, 0 its grey form, its mean grey, a smoothed form, black. */
void cvy_enhance_color(uint8_t *image, int32_t size, double factor);
void cvy_enhance_contrast(uint8_t *image, int32_t size, double factor);
void cvy_enhance_sharpness(uint8_t *image, int32_t size, double factor, uint8_t *scratch);
void cvy_enhance_brightness(uint8_t *image, int32_t size, double factor);

/* Tables. */
void cvy_posterize(uint8_t *image, int32_t size, int bits);           /* the highest bits stay */
void cvy_solarize(uint8_t *image, int32_t size, double threshold);    /* from there on inverted */
void cvy_solarize_add(uint8_t *image, int32_t size, double addition); /* below 128, up to 255 */
void cvy_autocontrast(uint8_t *image, int32_t size);                  /* each channel over 0 to 255 */
void cvy_equalize(uint8_t *image, int32_t size);                      /* each channel's histogram made flat */

/* The hue turned by this share of its circle, -0.5 to 0.5: through Pillow's HSV of 8 bits, as torchvision does it. */
void cvy_turn_hue(uint8_t *image, int32_t size, double turn);

#endif
