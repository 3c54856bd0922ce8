/* The policy of AutoAugment for ImageNet (Cubuk et al., "AutoAugment: Learning Augmentation Policies from Data", 2019),
 * with the ranges and levels of the reference program's EfficientNet recipes. */
#include "data/transform/augment.h"

#include <math.h>
#include <stddef.h>

#include "data/transform/augment_ops.h"

/* Names and ends of the ranges. */
static const struct {
    const char *name;
    double low, high;
} ops[CVY_AUGMENT_OPS] = {
    [CVY_AUGMENT_SHEAR_X] = {"shearX", 0, 0.3},
    [CVY_AUGMENT_SHEAR_Y] = {"shearY", 0, 0.3},
    [CVY_AUGMENT_TRANSLATE_X] = {"translateX", 0, 250},
    [CVY_AUGMENT_TRANSLATE_Y] = {"translateY", 0, 250},
    [CVY_AUGMENT_ROTATE] = {"rotate", 0, 30},
    [CVY_AUGMENT_COLOR] = {"color", 0.1, 1.9},
    [CVY_AUGMENT_CONTRAST] = {"contrast", 0.1, 1.9},
    [CVY_AUGMENT_SHARPNESS] = {"sharpness", 0.1, 1.9},
    [CVY_AUGMENT_BRIGHTNESS] = {"brightness", 0.1, 1.9},
    [CVY_AUGMENT_POSTERIZE] = {"posterize", 0, 4},
    [CVY_AUGMENT_SOLARIZE] = {"solarize", 0, 256},
    [CVY_AUGMENT_SOLARIZE_ADD] = {"solarizeadd", 0, 110},
    [CVY_AUGMENT_AUTOCONTRAST] = {"autocontrast", 0, 0},
    [CVY_AUGMENT_EQUALIZE] = {"equalize", 0, 0},
    [CVY_AUGMENT_INVERT] = {"invert", 0, 0},
};

/* Pairs of {operation, level, probability}, each pair as likely as any other. */
#define OP(op_, level_, probability_)                                                                                  \
    {                                                                                                                  \
        CVY_AUGMENT_##op_, level_, probability_                                                                        \
    }
static const struct {
    enum cvy_augment_op op;
    int level;
    double probability;
} policy[25][2] = {
    {OP(EQUALIZE, 1, 0.8), OP(SHEAR_Y, 4, 0.8)},
    {OP(COLOR, 9, 0.4), OP(EQUALIZE, 3, 0.6)},
    {OP(COLOR, 1, 0.4), OP(ROTATE, 8, 0.6)},
    {OP(SOLARIZE, 3, 0.8), OP(EQUALIZE, 7, 0.4)},
    {OP(SOLARIZE, 2, 0.4), OP(SOLARIZE, 2, 0.6)},
    {OP(COLOR, 0, 0.2), OP(EQUALIZE, 8, 0.8)},
    {OP(EQUALIZE, 8, 0.4), OP(SOLARIZE_ADD, 3, 0.8)},
    {OP(SHEAR_X, 9, 0.2), OP(ROTATE, 8, 0.6)},
    {OP(COLOR, 1, 0.6), OP(EQUALIZE, 2, 1)},
    {OP(INVERT, 9, 0.4), OP(ROTATE, 0, 0.6)},
    {OP(EQUALIZE, 9, 1), OP(SHEAR_Y, 3, 0.6)},
    {OP(COLOR, 7, 0.4), OP(EQUALIZE, 0, 0.6)},
    {OP(POSTERIZE, 6, 0.4), OP(AUTOCONTRAST, 7, 0.4)},
    {OP(SOLARIZE, 8, 0.6), OP(COLOR, 9, 0.6)},
    {OP(SOLARIZE, 4, 0.2), OP(ROTATE, 9, 0.8)},
    {OP(ROTATE, 7, 1), OP(TRANSLATE_Y, 9, 0.8)},
    {OP(SHEAR_X, 0, 0), OP(SOLARIZE, 4, 0.8)},
    {OP(SHEAR_Y, 0, 0.8), OP(COLOR, 4, 0.6)},
    {OP(COLOR, 0, 1), OP(ROTATE, 2, 0.6)},
    {OP(EQUALIZE, 4, 0.8), OP(EQUALIZE, 8, 0)},
    {OP(EQUALIZE, 4, 1), OP(AUTOCONTRAST, 2, 0.6)},
    {OP(SHEAR_Y, 7, 0.4), OP(SOLARIZE_ADD, 7, 0.6)},
    {OP(POSTERIZE, 2, 0.8), OP(SOLARIZE, 10, 0.6)},
    {OP(SOLARIZE, 8, 0.6), OP(EQUALIZE, 1, 0.6)},
    {OP(COLOR, 6, 0.8), OP(ROTATE, 5, 0.4)},
};

const char *cvy_augment_name(enum cvy_augment_op op)
{
    return op < CVY_AUGMENT_OPS ? ops[op].name : NULL;
}

double cvy_augment_magnitude(enum cvy_augment_op op, int level)
{
    const double step = (ops[op].high - ops[op].low) / (CVY_AUGMENT_LEVELS - 1);
    const double value = level == CVY_AUGMENT_LEVELS - 1 ? ops[op].high : level * step + ops[op].low;

    return op == CVY_AUGMENT_POSTERIZE ? rint(value) : value; /* whole bits, halves to even */
}

void cvy_autoaugment_draw(struct cvy_rng *rng, struct cvy_augmentation pair[2])
{
    const uint32_t chosen = cvy_rng_below(rng, sizeof policy / sizeof policy[0]);

    for (int i = 0; i < 2; i++) {
        pair[i].op = policy[chosen][i].op;
        pair[i].level = policy[chosen][i].level;
        pair[i].applied = cvy_rng_uniform(rng) < policy[chosen][i].probability;
        pair[i].sign = cvy_rng_u32(rng) & 1 ? 1 : -1;
    }
}

void cvy_augment_apply(const struct cvy_augmentation *augmentation, uint8_t *image, int32_t size, uint8_t *scratch)
{
    const double magnitude = cvy_augment_magnitude(augmentation->op, augmentation->level);
    const double shift = magnitude * augmentation->sign;

    switch (augmentation->op) {
    case CVY_AUGMENT_SHEAR_X:
        cvy_shear(image, size, shift, false, scratch);
        break;
    case CVY_AUGMENT_SHEAR_Y:
        cvy_shear(image, size, shift, true, scratch);
        break;
    case CVY_AUGMENT_TRANSLATE_X:
        cvy_translate(image, size, shift, 0, scratch);
        break;
    case CVY_AUGMENT_TRANSLATE_Y:
        cvy_translate(image, size, 0, shift, scratch);
        break;
    case CVY_AUGMENT_ROTATE:
        cvy_rotate(image, size, shift, scratch);
        break;
    case CVY_AUGMENT_COLOR:
        cvy_enhance_color(image, size, magnitude);
        break;
    case CVY_AUGMENT_CONTRAST:
        cvy_enhance_contrast(image, size, magnitude);
        break;
    case CVY_AUGMENT_SHARPNESS:
        cvy_enhance_sharpness(image, size, magnitude, scratch);
        break;
    case CVY_AUGMENT_BRIGHTNESS:
        cvy_enhance_brightness(image, size, magnitude);
        break;
    case CVY_AUGMENT_POSTERIZE:
        cvy_posterize(image, size, (int)magnitude);
        break;
    case CVY_AUGMENT_SOLARIZE:
        cvy_solarize(image, size, magnitude);
        break;
    case CVY_AUGMENT_SOLARIZE_ADD:
        cvy_solarize_add(image, size, magnitude);
        break;
    case CVY_AUGMENT_AUTOCONTRAST:
        cvy_autocontrast(image, size);
        break;
    case CVY_AUGMENT_EQUALIZE:
        cvy_equalize(image, size);
        break;
    case CVY_AUGMENT_INVERT:
        cvy_solarize(image, size, 0);
        break;
    case CVY_AUGMENT_OPS:
        break;
    }
}

void cvy_autoaugment(struct cvy_rng *rng, uint8_t *image, int32_t size, uint8_t *scratch)
{
    struct cvy_augmentation pair[2];

    cvy_autoaugment_draw(rng, pair);
    for (int i = 0; i < 2; i++) {
        if (pair[i].applied)
            cvy_augment_apply(&pair[i], image, size, scratch);
    }
}
