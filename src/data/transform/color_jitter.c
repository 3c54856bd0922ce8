/* ColorJitter. */
#include "data/transform/color_jitter.h"

#include <math.h>

#include "data/transform/augment_ops.h"

bool cvy_color_jitter_is_on(const struct cvy_color_jitter *jitter)
{
    return jitter->brightness > 0 || jitter->contrast > 0 || jitter->saturation > 0 || jitter->hue > 0;
}

/* ---- floats ---- */

static float clamp(float value)
{
    return value < 0 ? 0 : value > 255 ? 255 : value;
}

/* ITU-R BT.601, as Pillow and TensorFlow have it. */
static float grey(const float *pixel)
{
    return 0.299F * pixel[0] + 0.587F * pixel[1] + 0.114F * pixel[2];
}

static void scale(float *pixels, size_t count, float factor)
{
    for (size_t i = 0; i < 3 * count; i++)
        pixels[i] = clamp(pixels[i] * factor);
}

static void change_contrast(float *pixels, size_t count, float factor)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += (double)grey(pixels + 3 * i);
    const float mean = (float)(sum / (double)count);
    for (size_t i = 0; i < 3 * count; i++)
        pixels[i] = clamp(mean + (pixels[i] - mean) * factor);
}

static void saturate(float *pixels, size_t count, float factor)
{
    for (size_t i = 0; i < count; i++) {
        const float to = grey(pixels + 3 * i);
        for (int c = 0; c < 3; c++)
            pixels[3 * i + (size_t)c] = clamp(to + (pixels[3 * i + (size_t)c] - to) * factor);
    }
}

/* The hue of HSV, in sixths of the circle; value and chroma stay. */
static float hue_of(const float *pixel, float max, float chroma)
{
    if (max == pixel[0])
        return (pixel[1] - pixel[2]) / chroma;
    if (max == pixel[1])
        return (pixel[2] - pixel[0]) / chroma + 2;
    return (pixel[0] - pixel[1]) / chroma + 4;
}

static void turn_hue(float *pixels, size_t count, float sixths)
{
    static const float offsets[3] = {5, 3, 1}; /* of red, green and blue on the circle */

    for (size_t i = 0; i < count; i++) {
        float *pixel = pixels + 3 * i;
        const float max = fmaxf(fmaxf(pixel[0], pixel[1]), pixel[2]);
        const float chroma = max - fminf(fminf(pixel[0], pixel[1]), pixel[2]);
        if (chroma <= 0)
            continue;
        const float hue = hue_of(pixel, max, chroma) + sixths + 6; /* above 0 */
        for (int c = 0; c < 3; c++) {
            const float k = fmodf(hue + offsets[c], 6);
            pixel[c] = max - chroma * fmaxf(0, fminf(1, fminf(k, 4 - k)));
        }
    }
}

void cvy_color_jitter_apply(const struct cvy_color_jitter *jitter, struct cvy_rng *rng, float *pixels, size_t count)
{
    if (jitter->brightness > 0)
        scale(pixels, count, (float)cvy_rng_range(rng, 1 - jitter->brightness, 1 + jitter->brightness));
    if (jitter->contrast > 0)
        change_contrast(pixels, count, (float)cvy_rng_range(rng, 1 - jitter->contrast, 1 + jitter->contrast));
    if (jitter->saturation > 0)
        saturate(pixels, count, (float)cvy_rng_range(rng, 1 - jitter->saturation, 1 + jitter->saturation));
    if (jitter->hue > 0)
        turn_hue(pixels, count, (float)(6 * cvy_rng_range(rng, -jitter->hue, jitter->hue)));
}

/* ---- bytes ---- */

enum change { BRIGHTNESS, CONTRAST, SATURATION, HUE, CHANGES };

static double factor(struct cvy_rng *rng, double max)
{
    return max > 0 ? cvy_rng_range(rng, max < 1 ? 1 - max : 0, 1 + max) : 1;
}

void cvy_color_jitter_bytes(const struct cvy_color_jitter *jitter, struct cvy_rng *rng, uint8_t *image, int32_t size)
{
    enum change order[CHANGES] = {BRIGHTNESS, CONTRAST, SATURATION, HUE};

    for (uint32_t i = CHANGES - 1; i > 0; i--) {
        const uint32_t with = cvy_rng_below(rng, i + 1);
        const enum change change = order[i];
        order[i] = order[with];
        order[with] = change;
    }
    const double brightness = factor(rng, jitter->brightness), contrast = factor(rng, jitter->contrast);
    const double saturation = factor(rng, jitter->saturation);
    const double turn = jitter->hue > 0 ? cvy_rng_range(rng, -jitter->hue, jitter->hue) : 0;
    for (int i = 0; i < CHANGES; i++) {
        if (order[i] == BRIGHTNESS && jitter->brightness > 0)
            cvy_enhance_brightness(image, size, brightness);
        else if (order[i] == CONTRAST && jitter->contrast > 0)
            cvy_enhance_contrast(image, size, contrast);
        else if (order[i] == SATURATION && jitter->saturation > 0)
            cvy_enhance_color(image, size, saturation);
        else if (order[i] == HUE && jitter->hue > 0)
            cvy_turn_hue(image, size, turn);
    }
}
