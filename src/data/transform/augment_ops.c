/* Pillow's operations on images. Where it computes in float or in fixed point, so does this, in the same order, and no
 * multiply and add is contracted to one rounding. */
#include "data/transform/augment_ops.h"

#include <math.h>
#include <string.h>

#pragma STDC FP_CONTRACT OFF

/* ---- geometry ---- */

static void fill_pixel(uint8_t *out)
{
    memset(out, CVY_AUGMENT_FILL, 3);
}

/* Cubic interpolation with a = -1 between v[1] and v[2]. */
static double cubic(const double v[4], double d)
{
    const double p2 = -v[0] + v[2], p3 = 2 * (v[0] - v[1]) + v[2] - v[3], p4 = -v[0] + v[1] - v[2] + v[3];

    return v[1] + d * (p2 + d * (p3 + d * p4));
}

/* Towards zero, unlike the resize's rounding. */
static uint8_t clip(double v)
{
    return v <= 0 ? 0 : v >= 255 ? 255 : (uint8_t)v;
}

static int32_t inside(int32_t at, int32_t size)
{
    return at < 0 ? 0 : at >= size ? size - 1 : at;
}

/* Four neighbours along one axis around position `at` of `size`, `step` bytes apart, and where between them it is.
 * false: outside. */
static bool find_neighbours(double at, int32_t size, size_t step, size_t offsets[4], double *d)
{
    if (at < 0 || at >= size)
        return false;
    at -= 0.5;
    const int32_t whole = (int32_t)floor(at);
    *d = at - whole;
    for (int32_t i = 0; i < 4; i++)
        offsets[i] = (size_t)inside(whole - 1 + i, size) * step;
    return true;
}

static void interpolate(const uint8_t *line, const size_t offsets[4], double d, uint8_t *out)
{
    for (size_t c = 0; c < 3; c++) {
        const double v[4] = {line[offsets[0] + c], line[offsets[1] + c], line[offsets[2] + c], line[offsets[3] + c]};
        out[c] = clip(cubic(v, d));
    }
}

/* Pixel centres lie at + 0.5. In the direction that is not sheared positions are whole, and the filter is the identity
 * there. */
void cvy_shear(uint8_t *image, int32_t size, double slope, bool down, uint8_t *scratch)
{
    const size_t row = (size_t)size * 3, step = down ? row : 3;
    size_t offsets[4];
    double d;

    memcpy(scratch, image, row * (size_t)size);
    for (int32_t y = 0; y < size; y++) {
        for (int32_t x = 0; x < size; x++, image += 3) {
            const int32_t along = down ? y : x, across = down ? x : y;
            const double at = along + 0.5 + slope * (across + 0.5);
            if (find_neighbours(at, size, step, offsets, &d))
                interpolate(scratch + (size_t)across * (down ? 3 : row), offsets, d, image);
            else
                fill_pixel(image);
        }
    }
}

void cvy_translate(uint8_t *image, int32_t size, double dx, double dy, uint8_t *scratch)
{
    const size_t row = (size_t)size * 3;

    memcpy(scratch, image, row * (size_t)size);
    for (int32_t y = 0; y < size; y++) {
        const double from_y = y + 0.5 + dy;
        for (int32_t x = 0; x < size; x++, image += 3) {
            const double from_x = x + 0.5 + dx;
            if (from_x >= 0 && from_x < size && from_y >= 0 && from_y < size)
                memcpy(image, scratch + (size_t)from_y * row + (size_t)from_x * 3, 3);
            else
                fill_pixel(image);
        }
    }
}

/* To 15 decimals, as Pillow rounds the matrix of a rotation. */
static double round_15(double v)
{
    return (double)rintl((long double)v * 1e15L) / 1e15;
}

static int32_t fixed_16(double v)
{
    return (int32_t)floor(v * 65536.0 + 0.5);
}

/* In 16.16 fixed point, from pixel centre to pixel centre. */
void cvy_rotate(uint8_t *image, int32_t size, double degrees, uint8_t *scratch)
{
    const double pi = 3.14159265358979323846, angle = -((degrees < 0 ? degrees + 360 : degrees) * (pi / 180.0));
    const double a = round_15(cos(angle)), b = round_15(sin(angle)), c = round_15(-sin(angle)), centre = size / 2.0;
    const double from_x = a * -centre + b * -centre + 0.0 + centre, from_y = c * -centre + a * -centre + 0.0 + centre;
    const int32_t step_xx = fixed_16(a), step_xy = fixed_16(b), step_yx = fixed_16(c), step_yy = fixed_16(a);
    int32_t row_x = fixed_16(from_x + a * 0.5 + b * 0.5), row_y = fixed_16(from_y + c * 0.5 + a * 0.5);
    const size_t row = (size_t)size * 3;

    if (degrees == 0)
        return;
    memcpy(scratch, image, row * (size_t)size);
    for (int32_t y = 0; y < size; y++, row_x += step_xy, row_y += step_yy) {
        int32_t at_x = row_x, at_y = row_y;
        for (int32_t x = 0; x < size; x++, image += 3, at_x += step_xx, at_y += step_yx) {
            const int32_t px = at_x >> 16, py = at_y >> 16;
            if (px >= 0 && px < size && py >= 0 && py < size)
                memcpy(image, scratch + (size_t)py * row + (size_t)px * 3, 3);
            else
                fill_pixel(image);
        }
    }
}

/* ---- blends ---- */

/* From `base` towards `value` and beyond, in float, towards zero. */
static uint8_t blend(int32_t base, int32_t value, float factor)
{
    const float v = (float)base + factor * (float)(value - base);

    return v <= 0 ? 0 : v >= 255 ? 255 : (uint8_t)v;
}

/* ITU-R 601 luma with 16 bits of fraction. */
static int32_t grey(const uint8_t *rgb)
{
    return (int32_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 0x8000u) >> 16);
}

void cvy_enhance_color(uint8_t *image, int32_t size, double factor)
{
    const size_t pixels = (size_t)size * (size_t)size;

    for (size_t i = 0; i < pixels; i++, image += 3) {
        const int32_t base = grey(image);
        for (int c = 0; c < 3; c++)
            image[c] = blend(base, image[c], (float)factor);
    }
}

/* Every byte through a table. */
static void lookup(uint8_t *image, int32_t size, const uint8_t table[256])
{
    const size_t bytes = (size_t)size * (size_t)size * 3;

    for (size_t i = 0; i < bytes; i++)
        image[i] = table[image[i]];
}

static void blend_with(uint8_t *image, int32_t size, int32_t base, double factor)
{
    uint8_t table[256];

    for (int32_t v = 0; v < 256; v++)
        table[v] = blend(base, v, (float)factor);
    lookup(image, size, table);
}

void cvy_enhance_contrast(uint8_t *image, int32_t size, double factor)
{
    const size_t pixels = (size_t)size * (size_t)size;
    double sum = 0; /* of whole numbers: exact */

    for (size_t i = 0; i < pixels; i++)
        sum += grey(image + i * 3);
    blend_with(image, size, (int32_t)(sum / (double)pixels + 0.5), factor);
}

void cvy_enhance_brightness(uint8_t *image, int32_t size, double factor)
{
    blend_with(image, size, 0, factor);
}

/* The mean of 3 x 3 with five times the weight in the middle; borders stay. The sum over 13 never lies halfway between
 * two numbers, so that whole numbers round as any float does. */
static void smooth(const uint8_t *image, int32_t size, uint8_t *out)
{
    const size_t row = (size_t)size * 3;

    memcpy(out, image, row * (size_t)size);
    for (int32_t y = 1; y + 1 < size; y++) {
        const uint8_t *above = image + (size_t)(y - 1) * row, *here = above + row, *below = here + row;
        for (size_t i = 3; i + 3 < row; i++) {
            const int sum = above[i - 3] + above[i] + above[i + 3] + here[i - 3] + 5 * here[i] + here[i + 3] +
                            below[i - 3] + below[i] + below[i + 3];
            out[(size_t)y * row + i] = (uint8_t)((2 * sum + 13) / 26);
        }
    }
}

void cvy_enhance_sharpness(uint8_t *image, int32_t size, double factor, uint8_t *scratch)
{
    const size_t bytes = (size_t)size * (size_t)size * 3;

    smooth(image, size, scratch);
    for (size_t i = 0; i < bytes; i++)
        image[i] = blend(scratch[i], image[i], (float)factor);
}

/* ---- tables ---- */

void cvy_posterize(uint8_t *image, int32_t size, int bits)
{
    uint8_t table[256];

    for (int v = 0; v < 256; v++)
        table[v] = (uint8_t)(v & ~((1 << (8 - bits)) - 1));
    lookup(image, size, table);
}

void cvy_solarize(uint8_t *image, int32_t size, double threshold)
{
    uint8_t table[256];

    for (int v = 0; v < 256; v++)
        table[v] = (uint8_t)(v < threshold ? v : 255 - v);
    lookup(image, size, table);
}

void cvy_solarize_add(uint8_t *image, int32_t size, double addition)
{
    uint8_t table[256];

    for (int v = 0; v < 256; v++)
        table[v] = v < 128 ? clip(v + addition) : (uint8_t)v;
    lookup(image, size, table);
}

/* (3, 256) */
static void count_values(const uint8_t *image, int32_t size, uint32_t counts[3][256])
{
    const size_t pixels = (size_t)size * (size_t)size;

    memset(counts, 0, sizeof(uint32_t[3][256]));
    for (size_t i = 0; i < pixels; i++, image += 3)
        for (int c = 0; c < 3; c++)
            counts[c][image[c]]++;
}

static void lookup_channels(uint8_t *image, int32_t size, uint8_t tables[3][256])
{
    const size_t pixels = (size_t)size * (size_t)size;

    for (size_t i = 0; i < pixels; i++, image += 3)
        for (int c = 0; c < 3; c++)
            image[c] = tables[c][image[c]];
}

/* The smallest and largest value of a channel. */
static void find_ends(const uint32_t counts[256], int *low, int *high)
{
    for (*low = 0; *low < 255 && counts[*low] == 0;)
        ++*low;
    for (*high = 255; *high > 0 && counts[*high] == 0;)
        --*high;
}

void cvy_autocontrast(uint8_t *image, int32_t size)
{
    uint32_t counts[3][256];
    uint8_t tables[3][256];
    int low, high;

    count_values(image, size, counts);
    for (int c = 0; c < 3; c++) {
        find_ends(counts[c], &low, &high);
        const double scale = high > low ? 255.0 / (high - low) : 1, offset = high > low ? -low * scale : 0;
        for (int v = 0; v < 256; v++)
            tables[c][v] = clip(v * scale + offset);
    }
    lookup_channels(image, size, tables);
}

/* The table of a channel: how many pixels are below a value, in steps of which 255 cover all pixels but those of the
 * largest value. Too few pixels for a step, or one value only: as it is. */
static void equalize_channel(const uint32_t counts[256], uint32_t pixels, uint8_t table[256])
{
    int low, high;
    uint32_t sum;

    find_ends(counts, &low, &high);
    const uint32_t step = low < high ? (pixels - counts[high]) / 255 : 0;
    sum = step / 2;
    for (int v = 0; v < 256; v++) {
        const uint32_t value = step > 0 ? sum / step : (uint32_t)v;
        table[v] = (uint8_t)(value > 255 ? 255 : value);
        sum += counts[v];
    }
}

void cvy_equalize(uint8_t *image, int32_t size)
{
    uint32_t counts[3][256];
    uint8_t tables[3][256];

    count_values(image, size, counts);
    for (int c = 0; c < 3; c++)
        equalize_channel(counts[c], (uint32_t)size * (uint32_t)size, tables[c]);
    lookup_channels(image, size, tables);
}

/* Pillow's HSV of a pixel, each of 8 bits; what is after the comma is cut off. */
static void to_hsv(const uint8_t rgb[3], uint8_t hsv[3])
{
    const uint8_t max = rgb[0] > rgb[1] ? (rgb[0] > rgb[2] ? rgb[0] : rgb[2]) : (rgb[1] > rgb[2] ? rgb[1] : rgb[2]);
    const uint8_t min = rgb[0] < rgb[1] ? (rgb[0] < rgb[2] ? rgb[0] : rgb[2]) : (rgb[1] < rgb[2] ? rgb[1] : rgb[2]);

    hsv[0] = hsv[1] = 0;
    hsv[2] = max;
    if (max == min)
        return;
    const float chroma = (float)(max - min), saturation = chroma / (float)max;
    const float r = (float)(max - rgb[0]) / chroma, g = (float)(max - rgb[1]) / chroma;
    const float b = (float)(max - rgb[2]) / chroma;
    const float sixths = rgb[0] == max   ? b - g
                         : rgb[1] == max ? (float)(2.0 + (double)r - (double)b)
                                         : (float)(4.0 + (double)g - (double)r);
    const float hue = (float)fmod((double)sixths / 6.0 + 1.0, 1.0);
    hsv[0] = (uint8_t)((double)hue * 255.0);
    hsv[1] = (uint8_t)((double)saturation * 255.0);
}

static void from_hsv(const uint8_t hsv[3], uint8_t rgb[3])
{
    /* Which of value, p, q and t red, green and blue are, by sixths of the circle. */
    static const uint8_t parts[6][3] = {{0, 3, 1}, {2, 0, 1}, {1, 0, 3}, {1, 2, 0}, {3, 1, 0}, {0, 1, 2}};
    const double place = (double)hsv[0] * 6.0 / 255.0;
    const int sixth = (int)floor(place);
    const float rest = (float)(place - sixth), saturation = (float)((double)hsv[1] / 255.0), value = hsv[2];
    const uint8_t colors[4] = {hsv[2], (uint8_t)round((double)value * (1.0 - (double)saturation)),
                               (uint8_t)round((double)value * (1.0 - (double)saturation * (double)rest)),
                               (uint8_t)round((double)value * (1.0 - (double)saturation * (1.0 - (double)rest)))};

    for (int c = 0; c < 3; c++)
        rgb[c] = hsv[1] == 0 ? hsv[2] : colors[parts[sixth % 6][c]];
}

void cvy_turn_hue(uint8_t *image, int32_t size, double turn)
{
    const size_t pixels = (size_t)size * (size_t)size;
    const uint8_t shift = (uint8_t)(int32_t)(turn * 255);

    for (size_t i = 0; i < pixels; i++, image += 3) {
        uint8_t hsv[3];
        to_hsv(image, hsv);
        hsv[0] = (uint8_t)(hsv[0] + shift);
        from_hsv(hsv, image);
    }
}
