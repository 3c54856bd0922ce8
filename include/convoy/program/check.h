/* `convoy check`: a data set before training. */
#ifndef CONVOY_PROGRAM_CHECK_H
#define CONVOY_PROGRAM_CHECK_H

#include <stdbool.h>

#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cvy_check_options {
    int threads;          /* <= 0: all cores */
    const char *val_list; /* validation images from a list instead of DIR/val; NULL: none */
    int image_size;       /* detection sets only: side of the detector's images; 0: SSD320's usual 320 */
};
#ifdef __cplusplus
#define CVY_CHECK_DEFAULTS (cvy_check_options())
#else
#define CVY_CHECK_DEFAULTS ((struct cvy_check_options){0})
#endif

struct cvy_check_class {
    char name[256];
    int64_t train, val;             /* images; of detection sets, those that show one */
    int64_t train_boxes, val_boxes; /* detection sets only */
};
/* The boxes of one part of a detection set. */
struct cvy_check_boxes {
    int64_t boxes, crowds;                     /* boxes: crowds included */
    int64_t small, medium, large;              /* area up to 32 x 32 pixels, up to 96 x 96, more; without crowds */
    int64_t empty, outside, not_finite;        /* left out: no width or height, beyond the image, no number */
    int64_t images_without, images_over, most; /* images without boxes, with more than 100; most on one */
    int64_t anchors, forced, missed;           /* anchors of SSD320 that training gives to boxes; boxes that none of
                                                  theirs overlaps by half; boxes without any. Of the first 100 on
                                                  each, images as they are */
};
struct cvy_check_problem {
    char path[4096];
    char text[512]; /* one sentence */
};
enum {
    CVY_CHECK_TINY = 32,   /* a side of fewer pixels is tiny */
    CVY_CHECK_LISTED = 100 /* images of a kind that are named: tiny, turned, repeated; all are counted */
};
/* Images in the order of the set, training first; those in records as "FILE@BYTE". */
struct cvy_check_names {
    char **list;
    size_t count; /* at most CVY_CHECK_LISTED */
};
struct cvy_check_report {
    struct cvy_check_class *classes;
    size_t class_count;
    /* Unreadable, truncated, mislabelled (content is not what the name says) files, and the first of those left out for
     * their endings, in path order. */
    struct cvy_check_problem *problems;
    size_t problem_count;
    int64_t train_images, val_images, bad_images;
    int64_t set_aside;   /* there is no part for validation: training would keep so many of train_images for it */
    int64_t other_files; /* in class folders, no images of a kind that is read by their names: left out */
    int32_t min_side, median_side, max_side;   /* of the shorter sides, readable images */
    int32_t smallest_size[2], largest_size[2]; /* width and height of the images with the fewest and most pixels */
    int64_t tiny_images, turned_images;        /* turned: by their EXIF orientation */
    struct cvy_check_names tiny, turned;       /* the first of them */
    /* Images with the very pixels of another one that comes before; of them, those of another class than that, and
     * those of validation where that is in training. */
    int64_t duplicates, in_two_classes, in_both_parts;
    size_t smallest_class, largest_class; /* by training images, the first ones of several */
    bool detection;
    int32_t anchor_image_size; /* detection sets only: for which the anchors are */
    struct cvy_check_boxes train_boxes, val_boxes;
};
/* Reads every image of DIR/train and DIR/val (or DIR/<class>, or the list DIR, or a detection set) fully. CVY_OK even
 * when files are bad (see report->bad_images); CVY_NO_INPUT, CVY_BAD_DATA for folders that cannot be a data set.
 * Release the report in any case. */
CVY_API CVY_CHECKED cvy_status cvy_check_dataset(const char *folder, const struct cvy_check_options *options,
                                                 struct cvy_check_report *report);
CVY_API void cvy_check_report_release(struct cvy_check_report *report);

#ifdef __cplusplus
}
#endif
#endif
