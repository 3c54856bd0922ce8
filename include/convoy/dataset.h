/* Data sets in other forms: TFRecords, and packed files for faster reading. */
#ifndef CONVOY_DATASET_H
#define CONVOY_DATASET_H

#include <stdbool.h>

#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- convoy dataset tfrecord, convoy dataset index ---- */
struct cvy_tfrecord_options {
    size_t size;                  /* sizeof(struct cvy_tfrecord_options) */
    int train_shards, val_shards; /* files; 0: as many images in each as ImageNet's have */
    uint64_t seed;                /* of the order of the images, and of the split */
    bool keep_order;              /* by class and path instead of shuffled */
    double val_split;             /* > 0: the share of the training images set aside for validation */
    int threads;                  /* <= 0: all cores */
    void (*progress)(void *context, int64_t done, int64_t total); /* images; from any thread, one call at a time */
    void *context;
    const char *boxes; /* of an image folder: ImageNet's boxes, lines "FILE,xmin,ymin,xmax,ymax"; NULL: none */
};
#define CVY_TFRECORD_DEFAULTS CVY_SIZED(cvy_tfrecord_options)
struct cvy_tfrecord_result {
    int64_t train_images, val_images; /* in the files */
    int64_t boxes;                    /* there: of detection sets, and of the option `boxes` */
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
    size_t size;                  /* sizeof(struct cvy_pack_options) */
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
#define CVY_PACK_DEFAULTS CVY_SIZED(cvy_pack_options)
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
