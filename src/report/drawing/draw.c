#include "report/drawing/draw.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "report/drawing/cairo_api.h"

enum {
    TILE = 4096,    /* pixels of a side that cairo gets at once: it knows no surface wider than 32,767 */
    LONGEST = 256,  /* bytes of a text; the rest of a longer name is cut off */
    SMALLEST = 9,   /* letters that can still be read, pixels */
    LARGEST = 200,  /* of pictures as large as a house */
    MAX_TRIES = 200 /* labels that a new one keeps away from; later ones may lie on others */
};

/* ---- colours ---- */

static double channel(double hue, double saturation, double value, double shift)
{
    const double k = fmod(shift + hue * 6, 6);

    return value * (1 - saturation * fmax(0, fmin(1, fmin(k, 4 - k))));
}

/* Luminance of a colour as WCAG 2 defines it. */
static double luminance(const struct cvy_label_colour *c)
{
    const double part[3] = {c->red, c->green, c->blue}, weight[3] = {0.2126, 0.7152, 0.0722};
    double sum = 0;

    for (int i = 0; i < 3; i++)
        sum += weight[i] * (part[i] <= 0.04045 ? part[i] / 12.92 : pow((part[i] + 0.055) / 1.055, 2.4));
    return sum;
}

/* Hues a golden section apart: neighbours differ however many labels there are. */
struct cvy_label_colour cvy_label_colour(int32_t label)
{
    const uint32_t number = (uint32_t)label;
    const double hue = fmod(0.58 + 0.618033988749895 * (double)(number % 4096), 1);
    const double saturation = number % 3 == 2 ? 0.65 : 0.9, value = number % 2 ? 0.85 : 1;
    struct cvy_label_colour colour = {
        channel(hue, saturation, value, 5),
        channel(hue, saturation, value, 3),
        channel(hue, saturation, value, 1),
        false,
    };

    /* Contrast with white is 1.05 / (L + 0.05), with black (L + 0.05) / 0.05. */
    colour.black_text = (luminance(&colour) + 0.05) * (luminance(&colour) + 0.05) > 1.05 * 0.05;
    return colour;
}

/* ---- what is drawn ---- */

struct label {
    char text[LONGEST];
    double x, y, width, height; /* of its background */
    double baseline, size;      /* of the letters: from the top; their height */
};
struct drawing {
    const struct cvy_drawn_box *boxes;
    struct label *labels; /* (count) */
    size_t count;
    double width, height; /* of the picture */
    double line, letters; /* width of lines, size of letters; pixels */
};

/* Name and score as well-formed UTF-8 without control characters. */
static void write_text(const struct cvy_drawn_box *box, char text[LONGEST])
{
    const char *name = box->name ? box->name : "";
    size_t left = strlen(name), used = 0;
    const size_t max = LONGEST - 16; /* room for the score */

    while (left > 0) {
        uint32_t code = 0;
        const size_t length = cvy_utf8_sequence(name, left, &code);
        const bool good = length > 0 && code >= 0x20 && code != 0x7f;
        if (used + (good ? length : 1) > max)
            break;
        if (good)
            memcpy(text + used, name, length);
        else
            text[used] = '?';
        used += good ? length : 1;
        name += length > 0 ? length : 1;
        left -= length > 0 ? length : 1;
    }
    text[used] = '\0';
    if (box->score >= 0)
        snprintf(text + used, LONGEST - used, "%s%.0f%%", used > 0 ? " " : "", 100 * fmin(box->score, 1));
}

static bool is_disjoint(const struct label *a, const struct label *b)
{
    return a->x >= b->x + b->width || b->x >= a->x + a->width || a->y >= b->y + b->height || b->y >= a->y + a->height;
}

static bool is_free(const struct drawing *drawing, size_t index)
{
    const size_t max = index < MAX_TRIES ? index : MAX_TRIES;

    for (size_t i = 0; i < max; i++)
        if (drawing->labels[i].text[0] && !is_disjoint(&drawing->labels[i], &drawing->labels[index]))
            return false;
    return true;
}

/* Above the box, inside it, below it, inside at its foot: the first place within the picture where no better label
 * is. */
static void find_place(const struct drawing *drawing, size_t index)
{
    const struct cvy_drawn_box *box = &drawing->boxes[index];
    struct label *label = &drawing->labels[index];
    const double foot = box->y + box->height;
    const double places[] = {box->y - label->height, box->y, foot, foot - label->height};
    const double lowest = fmax(0, drawing->height - label->height);

    label->x = fmax(0, fmin(box->x - drawing->line / 2, drawing->width - label->width));
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        label->y = places[i];
        if (label->y >= 0 && label->y <= lowest && is_free(drawing, index))
            return;
    }
    label->y = fmax(0, fmin(places[0] >= 0 ? places[0] : places[1], lowest));
}

/* Size and place of every label. A name that is too wide gets smaller letters, and loses its end where these could not
 * be read. */
static void lay_out(cairo_t *cairo, const struct drawing *drawing)
{
    for (size_t i = 0; i < drawing->count; i++) {
        const struct cvy_drawn_box *box = &drawing->boxes[i];
        struct label *label = &drawing->labels[i];
        cairo_text_extents_t extents;
        cairo_font_extents_t font;

        write_text(box, label->text);
        if (!label->text[0])
            continue;
        /* Smaller on small things, of which there are often many. */
        label->size = fmin(drawing->letters, fmax(SMALLEST + 1, 0.4 * fmax(box->width, box->height)));
        cvy_cairo.set_font_size(cairo, label->size);
        cvy_cairo.text_extents(cairo, label->text, &extents);
        const double capacity = drawing->width - label->size * 0.6;
        if (extents.x_advance > capacity && extents.x_advance > 0) {
            label->size = fmax(label->size * capacity / extents.x_advance, fmin(SMALLEST, label->size));
            cvy_cairo.set_font_size(cairo, label->size);
            cvy_cairo.text_extents(cairo, label->text, &extents);
        }
        cvy_cairo.font_extents(cairo, &font);
        label->width = fmin(extents.x_advance + label->size * 0.6, drawing->width);
        label->height = font.ascent + font.descent;
        label->baseline = font.ascent;
        find_place(drawing, i);
    }
}

static void draw_label(cairo_t *cairo, const struct label *label, const struct cvy_label_colour *colour)
{
    const double ink = colour->black_text ? 0 : 1;

    cvy_cairo.save(cairo);
    cvy_cairo.rectangle(cairo, label->x, label->y, label->width, label->height);
    cvy_cairo.clip(cairo);
    cvy_cairo.set_source_rgba(cairo, colour->red, colour->green, colour->blue, 0.9);
    cvy_cairo.paint(cairo);
    cvy_cairo.set_source_rgb(cairo, ink, ink, ink);
    cvy_cairo.set_font_size(cairo, label->size);
    cvy_cairo.move_to(cairo, label->x + label->size * 0.3, label->y + label->baseline);
    cvy_cairo.show_text(cairo, label->text);
    cvy_cairo.restore(cairo);
}

/* Everything, in the picture's coordinates: the last boxes first, then the labels. */
static void draw_all(cairo_t *cairo, const struct drawing *drawing)
{
    for (size_t i = drawing->count; i-- > 0;) {
        const struct cvy_drawn_box *box = &drawing->boxes[i];
        const struct cvy_label_colour colour = cvy_label_colour(box->label);
        const double half = drawing->line / 2;
        /* The line lies inside the picture where the box ends at its edge. */
        const double left = fmax(box->x, half), top = fmax(box->y, half);
        const double right = fmin(box->x + box->width, drawing->width - half);
        const double bottom = fmin(box->y + box->height, drawing->height - half);

        cvy_cairo.rectangle(cairo, left, top, fmax(right - left, 0), fmax(bottom - top, 0));
        cvy_cairo.set_source_rgba(cairo, colour.black_text ? 0 : 1, colour.black_text ? 0 : 1,
                                  colour.black_text ? 0 : 1, 0.5); /* an edge, seen where picture and line are alike */
        cvy_cairo.set_line_width(cairo, drawing->line * 1.6);
        cvy_cairo.stroke_preserve(cairo);
        cvy_cairo.set_source_rgb(cairo, colour.red, colour.green, colour.blue);
        cvy_cairo.set_line_width(cairo, drawing->line);
        cvy_cairo.stroke(cairo);
    }
    for (size_t i = drawing->count; i-- > 0;) {
        const struct cvy_label_colour colour = cvy_label_colour(drawing->boxes[i].label);
        if (drawing->labels[i].text[0])
            draw_label(cairo, &drawing->labels[i], &colour);
    }
}

/* ---- tiles ---- */

static cvy_status check_cairo(cairo_status_t status)
{
    if (status == CAIRO_STATUS_SUCCESS)
        return CVY_OK;
    return cvy_fail(status == CAIRO_STATUS_NO_MEMORY ? CVY_NO_MEMORY : CVY_FAILED, "boxes cannot be drawn: %s",
                    cvy_cairo.status_to_string(status));
}

/* Between R, G, B bytes and cairo's words 0xXXRRGGBB. */
static void load_tile(const struct cvy_picture *picture, const struct cvy_box *tile, cairo_surface_t *surface)
{
    uint8_t *data = cvy_cairo.image_surface_get_data(surface);
    const size_t stride = (size_t)cvy_cairo.image_surface_get_stride(surface);

    for (int32_t y = 0; y < tile->height; y++) {
        const uint8_t *from = picture->pixels + ((size_t)(tile->y + y) * (size_t)picture->width + (size_t)tile->x) * 3;
        for (int32_t x = 0; x < tile->width; x++, from += 3) {
            const uint32_t word = (uint32_t)from[0] << 16 | (uint32_t)from[1] << 8 | from[2];
            memcpy(data + (size_t)y * stride + (size_t)x * 4, &word, 4);
        }
    }
    cvy_cairo.surface_mark_dirty(surface);
}

static void store_tile(cairo_surface_t *surface, const struct cvy_box *tile, struct cvy_picture *picture)
{
    cvy_cairo.surface_flush(surface);
    const uint8_t *data = cvy_cairo.image_surface_get_data(surface);
    const size_t stride = (size_t)cvy_cairo.image_surface_get_stride(surface);

    for (int32_t y = 0; y < tile->height; y++) {
        uint8_t *to = picture->pixels + ((size_t)(tile->y + y) * (size_t)picture->width + (size_t)tile->x) * 3;
        for (int32_t x = 0; x < tile->width; x++, to += 3) {
            uint32_t word;
            memcpy(&word, data + (size_t)y * stride + (size_t)x * 4, 4);
            to[0] = (uint8_t)(word >> 16);
            to[1] = (uint8_t)(word >> 8);
            to[2] = (uint8_t)word;
        }
    }
}

/* The labels are placed with the first tile. */
static cvy_status draw_tile(struct cvy_picture *picture, const struct cvy_box *tile, const struct drawing *drawing)
{
    cairo_surface_t *surface = cvy_cairo.image_surface_create(CAIRO_FORMAT_RGB24, tile->width, tile->height);
    cairo_t *cairo = NULL;
    cvy_status status;

    CVY_GOTO(check_cairo(cvy_cairo.surface_status(surface)));
    load_tile(picture, tile, surface);
    cairo = cvy_cairo.create(surface);
    CVY_GOTO(check_cairo(cvy_cairo.status(cairo)));
    cvy_cairo.select_font_face(cairo, "sans-serif", CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_BOLD);
    if (tile->x == 0 && tile->y == 0)
        lay_out(cairo, drawing);
    cvy_cairo.translate(cairo, -tile->x, -tile->y);
    draw_all(cairo, drawing);
    CVY_GOTO(check_cairo(cvy_cairo.status(cairo)));
    store_tile(surface, tile, picture);
fail:
    cvy_cairo.destroy(cairo); /* accepts NULL */
    cvy_cairo.surface_destroy(surface);
    return status;
}

static bool is_finite(const struct cvy_drawn_box *box)
{
    return isfinite(box->x) && isfinite(box->y) && isfinite(box->width) && isfinite(box->height);
}

cvy_status cvy_draw_boxes(struct cvy_picture *picture, const struct cvy_drawn_box *boxes, size_t count)
{
    const double longer = picture->width > picture->height ? picture->width : picture->height;
    struct drawing drawing = {
        .boxes = boxes,
        .labels = cvy_calloc(count + 1, sizeof *drawing.labels),
        .count = count,
        .width = picture->width,
        .height = picture->height,
        .line = fmax(1.5, longer / 320),
        .letters = fmin(fmax(longer / 50, SMALLEST + 2), LARGEST),
    };
    cvy_status status;

    if (!drawing.labels)
        return cvy_fail_memory(count * sizeof *drawing.labels, "the labels of a picture");
    CVY_GOTO(cvy_cairo_load());
    for (size_t i = 0; i < count; i++)
        if (!is_finite(&boxes[i])) {
            status = cvy_fail(CVY_FAILED, "box %zu is not finite", i);
            goto fail;
        }
    for (int32_t y = 0; y < picture->height; y += TILE)
        for (int32_t x = 0; x < picture->width; x += TILE) {
            const int32_t width = picture->width - x, height = picture->height - y;
            const struct cvy_box tile = {x, y, width < TILE ? width : TILE, height < TILE ? height : TILE};
            CVY_GOTO(draw_tile(picture, &tile, &drawing));
        }
fail:
    cvy_free(drawing.labels);
    return status;
}

cvy_status cvy_draw_check(void)
{
    return cvy_cairo_load();
}

const char *cvy_draw_text(char buffer[512], bool *available)
{
    *available = cvy_cairo_load() == CVY_OK;
    if (*available)
        snprintf(buffer, 512, "cairo %s", cvy_cairo.version_string());
    else
        snprintf(buffer, 512, "%s", cvy_error());
    return buffer;
}
