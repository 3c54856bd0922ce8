/* Where batches come from: a loader over files, or synthetic images that change from batch to batch. */
#ifndef CVY_DATA_LOADER_SOURCE_H
#define CVY_DATA_LOADER_SOURCE_H

#include "data/loader/loader.h"

enum { CVY_SYNTHETIC_BUFFERS = 4 }; /* different batches, given in turn */

struct cvy_source {
    struct cvy_loader *loader; /* NULL: synthetic */
    struct cvy_batch batches[CVY_SYNTHETIC_BUFFERS];
    uint8_t *images[CVY_SYNTHETIC_BUFFERS];
    int32_t *labels[CVY_SYNTHETIC_BUFFERS];
    float *boxes[CVY_SYNTHETIC_BUFFERS]; /* NULL unless there are some */
    int32_t *box_labels[CVY_SYNTHETIC_BUFFERS];
    uint32_t *samples;
    cvy_status *status;
    const char **errors;
    int64_t count, position; /* batches of an epoch, and the next one */
    int64_t epoch;
};
CVY_CHECKED cvy_status cvy_source_open(struct cvy_source *source, const struct cvy_loader_options *options);
/* Random images and labels, a function of the seed. */
struct cvy_synthetic {
    int32_t batch_size, image_size, num_classes;
    uint64_t seed;
    int64_t batches;   /* of an epoch */
    bool float_images; /* of 0..255; else bytes */
    bool boxes;        /* as many objects on each image as COCO's have in the mean */
};
CVY_CHECKED cvy_status cvy_source_open_synthetic(struct cvy_source *source, const struct cvy_synthetic *synthetic);
void cvy_source_close(struct cvy_source *source); /* accepts a zeroed one */
/* As the loader's functions of the same names. */
int64_t cvy_source_batches(const struct cvy_source *source);
CVY_CHECKED cvy_status cvy_source_start(struct cvy_source *source, int64_t epoch, int64_t first_batch);
void cvy_source_skip(struct cvy_source *source, int64_t epoch, int64_t skip); /* nothing with synthetic images */
CVY_CHECKED cvy_status cvy_source_next(struct cvy_source *source, const struct cvy_batch **batch);
int64_t cvy_source_bad_samples(const struct cvy_source *source);
int64_t cvy_source_list_bad(const struct cvy_source *source, uint32_t *samples, int64_t capacity);
double cvy_source_wait_seconds(const struct cvy_source *source);
/* Zeros where images are synthetic. */
void cvy_source_get_stats(const struct cvy_source *source, struct cvy_loader_stats *stats);

#endif
