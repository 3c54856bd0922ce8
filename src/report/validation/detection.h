/* Detections, and one validation of a detector in detail: the numbers of COCO's evaluation, precision by class and
 * recall, some pictures. Kept as JSON (validation.json, described in doc/detection.md), shown on the page. */
#ifndef CVY_REPORT_VALIDATION_DETECTION_H
#define CVY_REPORT_VALIDATION_DETECTION_H

#include "base/memory.h"
#include "convoy/status.h"
#include "data/sample/objects.h"

struct cvy_detection {
    float box[4];  /* ymin, xmin, ymax, xmax as shares of the image */
    float score;   /* 0..1 */
    int32_t label; /* from 0: slot - 1 */
};

/* ---- a validation ---- */

enum {
    CVY_DETECTION_STATS = 12,  /* COCO's twelve numbers */
    CVY_CURVE_POINTS = 101,    /* recall 0, 0.01, ..., 1 */
    CVY_SHOWN_PICTURES = 12,   /* of a page */
    CVY_SHOWN_DETECTIONS = 20, /* on one of them, */
};
/* Precision at each recall; all -1: nothing to find. */
struct cvy_precision_curve {
    float precision[CVY_CURVE_POINTS];
};
/* Fractions; -1: nothing to find. */
struct cvy_class_precision {
    int64_t truths, detections;
    double ap, ap50, ap75, recall;
    struct cvy_precision_curve curve; /* of an overlap of 0.50 */
};
/* An object, or a detection. */
struct cvy_mark {
    float box[4]; /* ymin, xmin, ymax, xmax as shares of the picture */
    float score;  /* of a detection */
    int32_t label;
    bool crowd; /* of an object */
};
struct cvy_marked_picture {
    const char *file;      /* NULL: none */
    const char *jpeg;      /* as base64, square; NULL: none */
    int32_t width, height; /* of the original: how it is shown */
    struct cvy_mark *truths, *found;
    size_t truth_count, found_count;
};
enum cvy_mean_curve { CVY_CURVE_50, CVY_CURVE_75, CVY_CURVE_ALL, CVY_MEAN_CURVES };
/* Texts and arrays live in the arena. */
struct cvy_detection_validation {
    struct cvy_arena arena;
    int64_t epoch; /* from 0; -1: no training continues */
    int64_t images, skipped;
    double stats[CVY_DETECTION_STATS];                  /* fractions; -1: nothing to find */
    struct cvy_precision_curve curves[CVY_MEAN_CURVES]; /* means over the classes */
    int32_t class_count;
    const char **classes;                   /* (class_count); NULL where one has no name */
    struct cvy_class_precision *precisions; /* (class_count) */
    struct cvy_marked_picture *pictures;
    size_t picture_count;
};
void cvy_detection_validation_release(struct cvy_detection_validation *validation); /* accepts a zeroed one */
/* Written whole or not at all. CVY_CANNOT_CREATE, CVY_CANNOT_WRITE, CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_detection_validation_write(const struct cvy_detection_validation *validation,
                                                      const char *path);
/* *found is false where the file holds a validation of another kind. CVY_NO_INPUT, CVY_BAD_DATA, CVY_NO_MEMORY. */
CVY_CHECKED cvy_status cvy_detection_validation_read(struct cvy_detection_validation *validation, const char *path,
                                                     bool *found);

/* ---- its pictures ---- */

/* The first readable image of each of CVY_SHOWN_PICTURES equal parts of a data set: the same ones in every pass.
 * Zero-initialise; images of a part may come in any order of parts. */
struct cvy_picture_collector {
    struct cvy_arena arena;
    uint32_t image_count;
    struct cvy_marked_picture pictures[CVY_SHOWN_PICTURES];
    bool taken[CVY_SHOWN_PICTURES];
};
void cvy_pictures_open(struct cvy_picture_collector *collector, uint32_t image_count);
void cvy_pictures_close(struct cvy_picture_collector *collector); /* accepts a zeroed one */
/* Begin another pass. */
void cvy_pictures_clear(struct cvy_picture_collector *collector);
/* Whether the collector would keep sample `index` of the data set. */
bool cvy_pictures_wants(const struct cvy_picture_collector *collector, uint32_t index);
/* Copied. The detections come by falling score; those below 0.3 and beyond CVY_SHOWN_DETECTIONS are left out. */
struct cvy_network_view {
    const char *file;      /* NULL: none */
    int32_t width, height; /* of the original */
    const float *pixels;   /* (size, size, 3), 0..255, as the network saw it */
    int32_t size;
    const struct cvy_mark *truths;
    size_t truth_count;
    const struct cvy_detection *detections;
    size_t detection_count;
};
CVY_CHECKED cvy_status cvy_pictures_add(struct cvy_picture_collector *collector, uint32_t index,
                                        const struct cvy_network_view *image);
/* Hand the pictures over; the collector is cleared. */
CVY_CHECKED cvy_status cvy_pictures_move(struct cvy_picture_collector *collector,
                                         struct cvy_detection_validation *validation);

#endif
