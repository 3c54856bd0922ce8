/* Ten classes that differ only in their outline: colours, textures, size, position and rotation are drawn from the same
 * distributions for all of them. An image is layers from back to front: ground, clutter, object, perhaps a mark in
 * front; then light and noise. Lengths are fractions of the side.
 *
 * How hard it is was tuned: a linear model on the pixels stays near 30 %, because colours are free and in one image of
 * five the object is the darker part; a small residual network passes 95 % within a few passes over 400 images a class,
 * because the object fills most of the image and stands out. With smaller objects, any rotation, even odds of dark and
 * light and more clutter, people still saw every class, but a network needed several times the epochs. */
#include "dataset_tools/drawn_objects.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

static const double pi = 3.14159265358979323846;

const char *const cvy_drawn_class_names[CVY_DRAWN_CLASSES] = {
    "arrow", "circle", "crescent", "cross", "heart", "ring", "spiral", "square", "star", "triangle",
};
enum shape { ARROW, CIRCLE, CRESCENT, CROSS, HEART, RING, SPIRAL, SQUARE, STAR, TRIANGLE, LINE, BLOB, ARC, CORNER };

struct point {
    double x, y;
};

/* A figure in its own coordinates (about the unit disc), and where it lies. */
struct figure {
    enum shape shape;
    struct point center;
    double radius, cosine, sine; /* size and rotation */
    double stretch;              /* along its own x; divided along y */
    double detail;               /* 0..1: varies the proportions of a class */
    bool mirrored;
};

/* ---- outlines ---- */

/* Even-odd rule. */
static bool in_polygon(const struct point *corners, int count, struct point p)
{
    bool inside = false;
    for (int i = 0, j = count - 1; i < count; j = i++) {
        const struct point a = corners[i], b = corners[j];
        if ((a.y > p.y) != (b.y > p.y) && p.x < (b.x - a.x) * (p.y - a.y) / (b.y - a.y) + a.x)
            inside = !inside;
    }
    return inside;
}

static bool in_star(struct point p, int points, double inner)
{
    struct point corners[16];
    for (int i = 0; i < 2 * points; i++) {
        const double angle = pi * i / points, radius = i % 2 ? inner : 1.0;
        corners[i] = (struct point){radius * sin(angle), radius * cos(angle)};
    }
    return in_polygon(corners, 2 * points, p);
}

static bool in_arrow(struct point p, double shaft)
{
    const struct point corners[] = {{1.0, 0},        {0.1, 0.72},   {0.1, shaft}, {-0.95, shaft},
                                    {-0.95, -shaft}, {0.1, -shaft}, {0.1, -0.72}};
    return in_polygon(corners, 7, p);
}

/* r = pitch * angle, drawn with a pen half as wide as the gap between turns. */
static bool in_spiral(struct point p)
{
    const double turn = 0.42, radius = hypot(p.x, p.y);
    const double angle = atan2(p.y, p.x) / (2 * pi); /* in turns, -0.5..0.5 */
    const double nearest = rint(radius / turn - angle) + angle;
    return radius < 0.06 || (nearest > 0.05 && nearest < 2.25 && fabs(radius - nearest * turn) < 0.105);
}

static bool in_outline(const struct figure *figure, struct point p)
{
    const double square = p.x * p.x + p.y * p.y, detail = figure->detail;

    switch (figure->shape) {
    case ARROW:
        return in_arrow(p, 0.2 + 0.14 * detail);
    case CIRCLE:
        return square < 0.9 * 0.9;
    case CRESCENT: {
        const double x = p.x - 0.42 - 0.16 * detail;
        return square < 0.95 * 0.95 && x * x + p.y * p.y > 0.8 * 0.8;
    }
    case CROSS: {
        const double arm = 0.22 + 0.12 * detail;
        return (fabs(p.x) < arm && fabs(p.y) < 0.95) || (fabs(p.y) < arm && fabs(p.x) < 0.95);
    }
    case HEART: {
        const double x = 1.2 * p.x, y = 1.2 * p.y + 0.1, body = x * x + y * y - 1;
        return body * body * body < x * x * y * y * y;
    }
    case RING:
        return square < 0.95 * 0.95 && square > (0.5 + 0.16 * detail) * (0.5 + 0.16 * detail);
    case SPIRAL:
        return in_spiral(p);
    case SQUARE:
        return fabs(p.x) < 0.74 && fabs(p.y) < 0.74;
    case STAR:
        return in_star(p, 5, 0.4 + 0.08 * detail);
    case TRIANGLE:
        return p.y > -0.5 && p.y < 1 - sqrt(3.0) * fabs(p.x);
    case LINE:
        return fabs(p.x) < 1 && fabs(p.y) < 1;
    case BLOB:
        return square < 1;
    case ARC:
        return square < 1 && square > 0.8 * 0.8 && p.x > 0.1 + 0.5 * detail;
    case CORNER:
        return (fabs(p.x + 0.8) < 0.15 && fabs(p.y) < 0.95) || (fabs(p.y + 0.8) < 0.15 && fabs(p.x) < 0.95);
    }
    return false;
}

/* The part of the pixel at (x, y) that a figure covers: 4 x 4 samples. */
static double coverage(const struct figure *figure, int x, int y, int side)
{
    enum { SAMPLES = 4 };
    const double reach = 1.1 * figure->radius * fmax(figure->stretch, 1 / figure->stretch) + 1.0 / side;
    const double from_x = (x + 0.5) / side - figure->center.x, from_y = (y + 0.5) / side - figure->center.y;
    int count = 0;

    if (from_x * from_x + from_y * from_y > reach * reach)
        return 0;
    for (int i = 0; i < SAMPLES * SAMPLES; i++) {
        const int column = i % SAMPLES, row = i / SAMPLES;
        const double dx = (x + (column + 0.5) / SAMPLES) / side - figure->center.x;
        const double dy = (y + (row + 0.5) / SAMPLES) / side - figure->center.y;
        struct point p = {(dx * figure->cosine + dy * figure->sine) / (figure->radius * figure->stretch),
                          (dy * figure->cosine - dx * figure->sine) / (figure->radius / figure->stretch)};
        if (figure->mirrored)
            p.y = -p.y;
        count += in_outline(figure, p);
    }
    return (double)count / (SAMPLES * SAMPLES);
}

/* ---- textures ---- */

struct color {
    double channel[3]; /* 0..255 */
};
enum texture_kind { SOLID, STRIPES, CHECKS, DOTS, GRADIENT, TEXTURE_COUNT };
struct texture {
    enum texture_kind kind;
    struct color colors[2];
    double period, cosine, sine, phase_x, phase_y;
};

static struct color random_color(struct cvy_rng *rng)
{
    struct color color;
    for (int c = 0; c < 3; c++)
        color.channel[c] = cvy_rng_range(rng, 15, 240);
    return color;
}

static struct color near_color(struct cvy_rng *rng, struct color from, double max)
{
    for (int c = 0; c < 3; c++) {
        const double value = from.channel[c] + cvy_rng_range(rng, -max, max);
        from.channel[c] = fmin(fmax(value, 0), 255);
    }
    return from;
}

static double color_distance(struct color a, struct color b)
{
    double sum = 0;
    for (int c = 0; c < 3; c++)
        sum += (a.channel[c] - b.channel[c]) * (a.channel[c] - b.channel[c]);
    return sqrt(sum);
}

static struct texture random_texture(struct cvy_rng *rng)
{
    const double angle = cvy_rng_range(rng, 0, 2 * pi);
    struct texture texture = {.kind = (enum texture_kind)cvy_rng_below(rng, TEXTURE_COUNT),
                              .period = cvy_rng_range(rng, 0.08, 0.3),
                              .cosine = cos(angle),
                              .sine = sin(angle),
                              .phase_x = cvy_rng_uniform(rng),
                              .phase_y = cvy_rng_uniform(rng)};
    texture.colors[0] = random_color(rng);
    texture.colors[1] = near_color(rng, texture.colors[0], 20);
    return texture;
}

/* The sum of the channels. */
static double lightness(const struct texture *texture)
{
    const double *channel = texture->colors[0].channel;
    return channel[0] + channel[1] + channel[2];
}

/* Ground and object: random, but clearly apart in colour and lightness; the object is the lighter one in four images of
 * five. */
static void random_textures(struct cvy_rng *rng, struct texture *ground, struct texture *object)
{
    const double sign = cvy_rng_uniform(rng) < 0.8 ? 1 : -1;

    for (int attempt = 0; attempt < 2000; attempt++) {
        double min = 1e9;
        *ground = random_texture(rng);
        *object = random_texture(rng);
        for (int i = 0; i < 4; i++)
            min = fmin(min, color_distance(ground->colors[i / 2], object->colors[i % 2]));
        if (min > 120 && sign * (lightness(object) - lightness(ground)) > 90)
            return;
    }
}

static double clamp01(double value)
{
    return fmin(fmax(value, 0), 1);
}

static struct color texture_at(const struct texture *texture, double x, double y)
{
    const double u = x * texture->cosine + y * texture->sine, v = y * texture->cosine - x * texture->sine;
    const double s = u / texture->period + texture->phase_x, t = v / texture->period + texture->phase_y;
    struct color color;
    double mix = 0;

    switch (texture->kind) {
    case STRIPES:
        mix = clamp01(0.5 + 3 * sin(2 * pi * s));
        break;
    case CHECKS:
        mix = clamp01(0.5 + 6 * sin(pi * s) * sin(pi * t));
        break;
    case DOTS: {
        const double dx = s - rint(s), dy = t - rint(t);
        mix = clamp01((0.3 - sqrt(dx * dx + dy * dy)) * 8);
        break;
    }
    case GRADIENT:
        mix = clamp01(0.5 + u - 0.5 * (texture->cosine + texture->sine));
        break;
    case SOLID:
    case TEXTURE_COUNT:
        break;
    }
    for (int c = 0; c < 3; c++)
        color.channel[c] =
            texture->colors[0].channel[c] + mix * (texture->colors[1].channel[c] - texture->colors[0].channel[c]);
    return color;
}

/* ---- an image ---- */

enum { MAX_LAYERS = 16 };
struct layer {
    struct figure figure;
    struct texture texture;
};

/* `turn`: the largest rotation to either side. */
static struct figure random_figure(struct cvy_rng *rng, enum shape shape, double radius, double stretch, double turn)
{
    const double angle = cvy_rng_range(rng, -turn, turn);
    return (struct figure){.shape = shape,
                           .center = {cvy_rng_uniform(rng), cvy_rng_uniform(rng)},
                           .radius = radius,
                           .cosine = cos(angle),
                           .sine = sin(angle),
                           .stretch = stretch,
                           .detail = cvy_rng_uniform(rng),
                           .mirrored = cvy_rng_uniform(rng) < 0.5};
}

static struct layer random_object(struct cvy_rng *rng, enum shape shape, const struct texture *texture)
{
    const double size = cvy_rng_range(rng, 0.6, 0.92);
    struct layer layer = {random_figure(rng, shape, size / 2, exp(cvy_rng_range(rng, -0.1, 0.1)), 0.6), *texture};
    /* Inside the image, but for an occasional tip. */
    const double capacity = 0.5 - 0.47 * size;
    layer.figure.center.x = 0.5 + capacity * (2 * layer.figure.center.x - 1);
    layer.figure.center.y = 0.5 + capacity * (2 * layer.figure.center.y - 1);
    return layer;
}

/* A mark that belongs to no class: a long line, a flat blob, a piece of an arc, a corner. `front`: small and thin, so
 * that it never hides what the object is. */
static struct layer random_clutter(struct cvy_rng *rng, bool front)
{
    static const enum shape kinds[] = {LINE, BLOB, ARC, CORNER};
    const enum shape shape = kinds[cvy_rng_below(rng, front ? 2 : 4)];
    double radius = 0, stretch = 1;

    if (shape == LINE) { /* half length radius * stretch, half width radius / stretch */
        const double length = cvy_rng_range(rng, 0.2, 0.8), width = cvy_rng_range(rng, 0.006, front ? 0.012 : 0.02);
        radius = sqrt(length * width);
        stretch = sqrt(length / width);
    } else if (shape == BLOB) {
        radius = front ? cvy_rng_range(rng, 0.02, 0.035) : cvy_rng_range(rng, 0.04, 0.1);
        stretch = cvy_rng_range(rng, 1.5, 1.9);
    } else {
        radius = cvy_rng_range(rng, 0.08, 0.18);
    }
    struct layer layer = {random_figure(rng, shape, radius, stretch, pi), random_texture(rng)};
    return layer;
}

static int random_layers(struct cvy_rng *rng, enum shape shape, struct texture *ground, struct layer *layers)
{
    struct texture object;
    int count = 0;

    random_textures(rng, ground, &object);
    for (uint32_t i = 1 + cvy_rng_below(rng, 3); i > 0; i--)
        layers[count++] = random_clutter(rng, false);
    layers[count++] = random_object(rng, shape, &object);
    for (uint32_t i = cvy_rng_below(rng, 2); i > 0; i--)
        layers[count++] = random_clutter(rng, true);
    return count;
}

/* About normal, standard deviation 1: the sum of four bytes. */
static double cheap_normal(struct cvy_rng *rng)
{
    const uint32_t bits = cvy_rng_u32(rng);
    const double sum = (bits & 255) + (bits >> 8 & 255) + (bits >> 16 & 255) + (bits >> 24);
    return (sum - 510) / 147.8;
}

/* What is drawn, and the pixels of it that are more than half covered. */
struct picture {
    struct texture ground;
    struct layer layers[MAX_LAYERS];
    struct extent {
        int left, top, right, bottom; /* of the pixels, the last ones included */
        int64_t pixels;
    } extents[MAX_LAYERS];
    int count;
};

static void add_pixel(struct extent *extent, int x, int y)
{
    if (extent->pixels++ == 0)
        *extent = (struct extent){x, y, x, y, 1};
    extent->left = x < extent->left ? x : extent->left;
    extent->right = x > extent->right ? x : extent->right;
    extent->bottom = y;
}

/* (height, width, 3); `side`: the pixels of a length of 1. */
static void draw(struct cvy_rng *rng, struct picture *picture, int width, int height, int side, uint8_t *pixels)
{
    const double noise = cvy_rng_range(rng, 1, 6);
    const double light_x = cvy_rng_range(rng, -0.3, 0.3), light_y = cvy_rng_range(rng, -0.3, 0.3);

    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++, pixels += 3) {
            const double u = (x + 0.5) / side, v = (y + 0.5) / side;
            const double light = 1 + light_x * (u - 0.5) + light_y * (v - 0.5);
            struct color color = texture_at(&picture->ground, u, v);
            for (int i = 0; i < picture->count; i++) {
                const double part = coverage(&picture->layers[i].figure, x, y, side);
                if (part == 0)
                    continue;
                if (part > 0.5)
                    add_pixel(&picture->extents[i], x, y);
                const struct color over = texture_at(&picture->layers[i].texture, u, v);
                for (int c = 0; c < 3; c++)
                    color.channel[c] += part * (over.channel[c] - color.channel[c]);
            }
            for (int c = 0; c < 3; c++) {
                const double value = color.channel[c] * light + noise * cheap_normal(rng);
                pixels[c] = (uint8_t)lrint(fmin(fmax(value, 0), 255));
            }
        }
}

void cvy_draw_object(struct cvy_rng *rng, int shape, int side, uint8_t *pixels)
{
    struct picture picture = {0};

    picture.count = random_layers(rng, (enum shape)shape, &picture.ground, picture.layers);
    draw(rng, &picture, side, side, side, pixels);
}

/* ---- several objects ---- */

/* Easily told apart ones first. */
const int cvy_scene_classes[CVY_DRAWN_CLASSES] = {CIRCLE, SQUARE, TRIANGLE, STAR,     CROSS,
                                                  HEART,  RING,   ARROW,    CRESCENT, SPIRAL};

/* A place in the image that leaves the other objects visible. False where 60 attempts find none. */
static bool place_object(struct cvy_rng *rng, const struct layer *others, int count, double width, double height,
                         struct figure *figure)
{
    for (int attempt = 0; attempt < 60; attempt++) {
        const double reach = figure->radius * 1.02;
        bool free = 2 * reach < width && 2 * reach < height;
        figure->center.x = reach + cvy_rng_uniform(rng) * (width - 2 * reach);
        figure->center.y = reach + cvy_rng_uniform(rng) * (height - 2 * reach);
        for (int i = 0; free && i < count; i++) {
            const struct figure *other = &others[i].figure;
            free = hypot(figure->center.x - other->center.x, figure->center.y - other->center.y) >
                   0.85 * (figure->radius + other->radius);
        }
        if (free)
            return true;
    }
    return false;
}

/* A texture that stands out from the ground. */
static struct texture texture_over(struct cvy_rng *rng, const struct texture *ground)
{
    struct texture texture = random_texture(rng);

    for (int attempt = 0; attempt < 2000; attempt++) {
        double min = 1e9;
        for (int i = 0; i < 4; i++)
            min = fmin(min, color_distance(ground->colors[i / 2], texture.colors[i % 2]));
        if (min > 120 && fabs(lightness(&texture) - lightness(ground)) > 90)
            break;
        texture = random_texture(rng);
    }
    return texture;
}

int cvy_draw_scene(struct cvy_rng *rng, int classes, int width, int height, uint8_t *pixels,
                   struct cvy_scene_object objects[CVY_SCENE_OBJECTS])
{
    const int side = width > height ? width : height;
    struct picture picture = {.ground = random_texture(rng)};
    int kinds[MAX_LAYERS] = {0}, first, count = 0;
    const uint32_t wanted = cvy_rng_uniform(rng) < 0.04 ? 0 : 1 + cvy_rng_below(rng, CVY_SCENE_OBJECTS);

    for (uint32_t i = 1 + cvy_rng_below(rng, 3); i > 0; i--)
        picture.layers[picture.count++] = random_clutter(rng, false);
    first = picture.count;
    for (uint32_t i = 0; i < wanted; i++) {
        const int kind = (int)cvy_rng_below(rng, (uint32_t)classes);
        const double size = 0.11 * exp(cvy_rng_uniform(rng) * log(5.0)); /* of the longer side, 0.11 to 0.55 */
        struct layer layer = {.texture = texture_over(rng, &picture.ground)};
        layer.figure = random_figure(rng, (enum shape)cvy_scene_classes[kind], size / 2, 1, 0.5);
        if (!place_object(rng, picture.layers + first, picture.count - first, (double)width / side,
                          (double)height / side, &layer.figure))
            continue;
        kinds[picture.count] = kind;
        picture.layers[picture.count++] = layer;
    }
    draw(rng, &picture, width, height, side, pixels);
    for (int i = first; i < picture.count; i++) {
        const struct extent *e = &picture.extents[i];
        if (e->pixels > 0)
            objects[count++] = (struct cvy_scene_object){
                kinds[i], {e->left, e->top, e->right + 1 - e->left, e->bottom + 1 - e->top}, e->pixels};
    }
    return count;
}
