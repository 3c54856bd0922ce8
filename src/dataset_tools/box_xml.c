#include "dataset_tools/box_xml.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "base/json_out.h"
#include "base/memory.h"

enum { LIMIT = 1 << 20 }; /* bytes of a file */

/* What follows <tag> before `end`; NULL: it is not there. */
static const char *find(const char *from, const char *end, const char *tag)
{
    const char *at = strstr(from, tag);

    return at && at < end ? at + strlen(tag) : NULL;
}

static bool read_number(const char *from, const char *end, const char *tag, double *number)
{
    const char *at = find(from, end, tag);
    char *after;

    if (!at)
        return false;
    *number = cvy_double_parse(at, &after);
    return after > at && *after == '<' && isfinite(*number);
}

/* Four decimals, as the scripts print them. */
static float share(double position, double extent)
{
    const double value = position / extent;

    return (float)(rint((value < 0 ? 0 : value > 1 ? 1 : value) * 1e4) / 1e4);
}

static bool read_box(const char *from, const char *end, const double size[2], struct cvy_object_box *box)
{
    double x[2], y[2];

    if (!read_number(from, end, "<xmin>", &x[0]) || !read_number(from, end, "<xmax>", &x[1]) ||
        !read_number(from, end, "<ymin>", &y[0]) || !read_number(from, end, "<ymax>", &y[1]))
        return false;
    box->xmin = share(fmin(x[0], x[1]), size[0]);
    box->xmax = share(fmax(x[0], x[1]), size[0]);
    box->ymin = share(fmin(y[0], y[1]), size[1]);
    box->ymax = share(fmax(y[0], y[1]), size[1]);
    return true;
}

/* Named after another class of the data set. Some are named in words instead: those count. */
static bool is_of_another(const char *from, const char *end, const struct cvy_box_classes *classes)
{
    const char *name = find(from, end, "<name>");
    const size_t length = name ? strcspn(name, "<") : 0;

    if (!name || (strncmp(name, classes->own, length) == 0 && classes->own[length] == '\0'))
        return false;
    for (int32_t i = 0; i < classes->count; i++) {
        if (strncmp(name, classes->names[i], length) == 0 && classes->names[i][length] == '\0')
            return true;
    }
    return false;
}

static size_t count_objects(const char *text)
{
    size_t count = 0;

    while ((text = strstr(text, "<object>")) != NULL) {
        text++;
        count++;
    }
    return count;
}

static bool read_objects(const char *text, const struct cvy_box_classes *classes, struct cvy_object_box *boxes,
                         size_t *count)
{
    const char *end = text + strlen(text), *at = text;
    double size[2];

    if (!read_number(text, end, "<width>", &size[0]) || !read_number(text, end, "<height>", &size[1]) ||
        !(size[0] > 0 && size[1] > 0))
        return false;
    while ((at = find(at, end, "<object>")) != NULL) {
        const char *last = strstr(at, "</object>");
        struct cvy_object_box *box = &boxes[*count];
        if (!last || !read_box(at, last, size, box))
            return false;
        *count += box->xmin < box->xmax && box->ymin < box->ymax && !is_of_another(at, last, classes);
        at = last;
    }
    return true;
}

/* The folder of the class, else that of all images of the validation. */
static bool find_file(const char *folder, const char *filename, const struct cvy_box_classes *classes,
                      char path[PATH_MAX])
{
    const char *const below[] = {classes->own, "val"}, *dot = strrchr(filename, '.');
    const int length = (int)(dot ? (size_t)(dot - filename) : strlen(filename));

    for (int i = 0; i < 2; i++) {
        const int size = snprintf(path, PATH_MAX, "%s/%s/%.*s.xml", folder, below[i], length, filename);
        if (size < PATH_MAX && cvy_path_exists(path))
            return true;
    }
    return false;
}

cvy_status cvy_box_xml_read(const char *folder, const char *filename, const struct cvy_box_classes *classes,
                            struct cvy_object_box **boxes, size_t *count)
{
    char path[PATH_MAX];
    void *text = NULL;
    size_t size;
    cvy_status status;

    *boxes = NULL;
    *count = 0;
    if (!find_file(folder, filename, classes, path))
        return CVY_OK;
    CVY_TRY(cvy_file_read(path, LIMIT, &text, &size));
    *boxes = cvy_calloc(count_objects(text) + 1, sizeof **boxes);
    if (!*boxes)
        status = cvy_fail_memory(size, "the boxes of an image");
    else if (!read_objects(text, classes, *boxes, count))
        status = cvy_fail(CVY_BAD_DATA, "%s has no boxes as ImageNet's files have them", cvy_quote(path));
    else
        status = CVY_OK;
    cvy_free(text);
    if (status == CVY_OK)
        return CVY_OK;
    cvy_free(*boxes);
    *boxes = NULL;
    *count = 0;
    return status;
}
