/* What convoy check finds by comparing images: duplicates, and their sizes. */
#ifndef CVY_DATASET_TOOLS_CHECK_DUPLICATES_H
#define CVY_DATASET_TOOLS_CHECK_DUPLICATES_H

#include "convoy/program/check.h"
#include "data/set/dataset.h"

/* The fingerprint of an image. */
struct cvy_check_fingerprint {
    uint64_t hash;         /* of its pixels */
    int32_t width, height; /* 0: unreadable */
    uint8_t orientation;   /* as EXIF says; 1: as it is stored */
};
/* One part of a data set; fingerprints NULL: there is no such part. */
struct cvy_check_part {
    const struct cvy_dataset *dataset;
    const struct cvy_check_fingerprint *fingerprints; /* (sample_count) */
};

/* The hash of width x height RGB pixels: equal images have equal hashes; different ones collide with probability 2^-64.
 */
uint64_t cvy_check_hash(const uint8_t *pixels, size_t stride, int32_t width, int32_t height);

void cvy_check_names_release(struct cvy_check_names *names); /* accepts a zeroed one */

/* Adds to the report what the fingerprints of training [0] and validation [1] show: sizes, tiny and turned images, and
 * the images that are there more than once, with a problem for each of the first CVY_CHECK_LISTED of a kind. */
CVY_CHECKED cvy_status cvy_check_compare(struct cvy_check_report *report, const struct cvy_check_part parts[2]);

#endif
