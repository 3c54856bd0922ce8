/* Data sets: checking one before training, and writing the built-in one. */
#ifndef CONVOY_DATASET_H
#define CONVOY_DATASET_H

#include <stdbool.h>

#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- convoy check ---- */
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
    int64_t other_files; /* in class folders, neither JPEG, PNG nor WebP by their names: left out */
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

/* ---- convoy dataset shapes ---- */
struct cvy_shapes_options {
    int train_per_class, val_per_class;
    int image_size; /* side of the square images, 32..1024 */
    uint64_t seed;  /* train and val draw from disjoint streams of it */
    int quality;    /* JPEG quality 1..100 */
    int threads;    /* <= 0: all cores */
};
#ifdef __cplusplus
#define CVY_SHAPES_DEFAULTS                                                                                            \
    ([] {                                                                                                              \
        struct cvy_shapes_options cvy_options_ = cvy_shapes_options();                                                 \
        cvy_options_.train_per_class = 400;                                                                            \
        cvy_options_.val_per_class = 100;                                                                              \
        cvy_options_.image_size = 48;                                                                                  \
        cvy_options_.quality = 90;                                                                                     \
        return cvy_options_;                                                                                           \
    }())
#else
#define CVY_SHAPES_DEFAULTS                                                                                            \
    ((struct cvy_shapes_options){.train_per_class = 400, .val_per_class = 100, .image_size = 48, .quality = 90})
#endif
/* Writes OUT/{train,val}/<class>/<number>.jpg for ten classes of drawn objects with varied colour, texture, size,
 * rotation, clutter and noise. The same options give the same bytes. An existing non-empty OUT is refused
 * (CVY_CANNOT_CREATE). */
CVY_API CVY_CHECKED cvy_status cvy_write_shapes(const char *folder, const struct cvy_shapes_options *options);

/* The same objects, up to six on an image, with a box around each. */
struct cvy_shape_boxes_options {
    int train_images, val_images;
    int classes;    /* 1..10 of the shapes */
    int image_size; /* longer side, 64..1024; the other one is as long or three quarters of it */
    uint64_t seed;
    int quality; /* JPEG quality 1..100 */
    int threads; /* <= 0: all cores */
};
#ifdef __cplusplus
#define CVY_SHAPE_BOXES_DEFAULTS                                                                                       \
    ([] {                                                                                                              \
        struct cvy_shape_boxes_options cvy_options_ = cvy_shape_boxes_options();                                       \
        cvy_options_.train_images = 600;                                                                               \
        cvy_options_.val_images = 150;                                                                                 \
        cvy_options_.classes = 4;                                                                                      \
        cvy_options_.image_size = 320;                                                                                 \
        cvy_options_.quality = 90;                                                                                     \
        return cvy_options_;                                                                                           \
    }())
#else
#define CVY_SHAPE_BOXES_DEFAULTS                                                                                       \
    ((struct cvy_shape_boxes_options){                                                                                 \
        .train_images = 600, .val_images = 150, .classes = 4, .image_size = 320, .quality = 90})
#endif
/* Writes OUT/train/<number>.jpg, OUT/val/<number>.jpg and their boxes in OUT/annotations/instances_{train,val}.json, as
 * COCO has them. The same options give the same bytes; a larger set begins with the smaller one. OUT as above. */
CVY_API CVY_CHECKED cvy_status cvy_write_shape_boxes(const char *folder, const struct cvy_shape_boxes_options *options);

/* ---- convoy dataset tfrecord, convoy dataset index ---- */
struct cvy_tfrecord_options {
    int train_shards, val_shards; /* files; 0: as many images in each as ImageNet's have */
    uint64_t seed;                /* of the order of the images, and of the split */
    bool keep_order;              /* by class and path instead of shuffled */
    double val_split;             /* > 0: the share of the training images set aside for validation */
    int threads;                  /* <= 0: all cores */
    void (*progress)(void *context, int64_t done, int64_t total); /* images; from any thread, one call at a time */
    void *context;
    const char *boxes; /* of an image folder: ImageNet's boxes, lines "FILE,xmin,ymin,xmax,ymax"; NULL: none */
};
#ifdef __cplusplus
#define CVY_TFRECORD_DEFAULTS (cvy_tfrecord_options())
#else
#define CVY_TFRECORD_DEFAULTS ((struct cvy_tfrecord_options){0})
#endif
struct cvy_tfrecord_result {
    int64_t train_images, val_images; /* those left out included */
    int64_t boxes;                    /* of detection sets, and of the option `boxes` */
    int64_t reencoded, left_out;      /* made JPEGs; unreadable */
    int classes, train_shards, val_shards;
};
/* A detection set `source` becomes FOLDER/coco_train.record-00000-of-00100, ..., coco_val.record-..., with the keys of
 * TensorFlow's COCO records, and FOLDER/label_map.pbtxt; image i goes to file i mod their number.
 * Writes the image folder (or list) `source` as FOLDER/train-00000-of-00010, ..., FOLDER/validation-00000-of-00002, ...
 * and FOLDER/classes.txt, with the keys of TensorFlow's ImageNet records. Bytes of JPEG files are kept; PNG and CMYK
 * become RGB JPEGs of quality 100. Images that cannot be read are named in the log and left out. The same options give
 * the same bytes. FOLDER must be new or empty (CVY_CANNOT_CREATE); on failure none of the files stays. */
CVY_API CVY_CHECKED cvy_status cvy_write_tfrecords(const char *source, const char *folder,
                                                   const struct cvy_tfrecord_options *options,
                                                   struct cvy_tfrecord_result *result);
/* Writes an index of each file FOLDER/train-* and FOLDER/validation-* under its name in the folder `out`: lines "offset
 * size", as DALI reads them. */
CVY_API CVY_CHECKED cvy_status cvy_write_tfrecord_index(const char *folder, const char *out, int threads,
                                                        int64_t *files, int64_t *records);

/* ---- convoy dataset pack ---- */
struct cvy_pack_options {
    int train_shards, val_shards; /* files; 0: about 4096 images in each, at least 16 files of 64 images */
    int shorter_side;             /* larger images are made as small as this; 0: none */
    int quality;                  /* of JPEGs made smaller, 1..100; 0: 90 */
    bool raw;                     /* decoded pixels instead of encoded images */
    bool exif_orientation;        /* with either: turned as the image says */
    double val_split;             /* > 0: the share of the training images set aside for validation */
    uint64_t seed;                /* of the split */
    int threads;                  /* <= 0: all cores */
    void (*progress)(void *context, int64_t done, int64_t total); /* images; from any thread, one call at a time */
    void *context;
};
#ifdef __cplusplus
#define CVY_PACK_DEFAULTS (cvy_pack_options())
#else
#define CVY_PACK_DEFAULTS ((struct cvy_pack_options){0})
#endif
struct cvy_pack_result {
    int64_t train_images, val_images; /* in the files */
    int64_t reencoded, left_out;      /* made again in this call; unreadable */
    int64_t bytes;
    int classes, train_shards, val_shards;
    int kept_shards; /* that were there already */
};
/* Writes the labelled images of `source` (an image folder, a list, TFRecords, a packed set) as FOLDER/train-00000-of-
 * 00004.pack, ..., FOLDER/val-..., in the order of the data set (doc/records.md). Each file appears whole; a call like
 * one that was ended before keeps the files that are there. Images that cannot be read are named in the log and left
 * out. The same options give the same bytes. CVY_CANNOT_CREATE: FOLDER holds something else. */
CVY_API CVY_CHECKED cvy_status cvy_write_pack(const char *source, const char *folder,
                                              const struct cvy_pack_options *options, struct cvy_pack_result *result);

#ifdef __cplusplus
}
#endif
#endif
