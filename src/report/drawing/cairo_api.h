/* cairo, loaded when something is drawn: everything else works without it, and starts faster. */
#ifndef CVY_REPORT_DRAWING_CAIRO_API_H
#define CVY_REPORT_DRAWING_CAIRO_API_H

#include <cairo/cairo.h>

#include "convoy/status.h"

/* The functions that are used; cvy_cairo.paint() is cairo_paint(). */
#define CVY_CAIRO_FUNCTIONS(FUNCTION)                                                                                  \
    FUNCTION(clip)                                                                                                     \
    FUNCTION(create)                                                                                                   \
    FUNCTION(destroy)                                                                                                  \
    FUNCTION(font_extents)                                                                                             \
    FUNCTION(image_surface_create)                                                                                     \
    FUNCTION(image_surface_get_data)                                                                                   \
    FUNCTION(image_surface_get_stride)                                                                                 \
    FUNCTION(move_to)                                                                                                  \
    FUNCTION(paint)                                                                                                    \
    FUNCTION(rectangle)                                                                                                \
    FUNCTION(restore)                                                                                                  \
    FUNCTION(save)                                                                                                     \
    FUNCTION(select_font_face)                                                                                         \
    FUNCTION(set_font_size)                                                                                            \
    FUNCTION(set_line_width)                                                                                           \
    FUNCTION(set_source_rgb)                                                                                           \
    FUNCTION(set_source_rgba)                                                                                          \
    FUNCTION(show_text)                                                                                                \
    FUNCTION(status)                                                                                                   \
    FUNCTION(status_to_string)                                                                                         \
    FUNCTION(stroke)                                                                                                   \
    FUNCTION(stroke_preserve)                                                                                          \
    FUNCTION(surface_destroy)                                                                                          \
    FUNCTION(surface_flush)                                                                                            \
    FUNCTION(surface_mark_dirty)                                                                                       \
    FUNCTION(surface_status)                                                                                           \
    FUNCTION(text_extents)                                                                                             \
    FUNCTION(translate)                                                                                                \
    FUNCTION(version_string)

struct cvy_cairo_api {
#define CVY_CAIRO_POINTER(name) __typeof__(cairo_##name) *name;
    CVY_CAIRO_FUNCTIONS(CVY_CAIRO_POINTER)
#undef CVY_CAIRO_POINTER
};
extern struct cvy_cairo_api cvy_cairo;

/* Fills cvy_cairo, once for the process. CVY_UNAVAILABLE: cairo is not there, or lacks a function. */
CVY_CHECKED cvy_status cvy_cairo_load(void);

#endif
