/* Batches of transformed images, prefetched by worker threads. The number of threads never affects the data: what a
 * batch holds is a function of seed, epoch and position alone. */
#ifndef CVY_DATA_LOADER_LOADER_H
#define CVY_DATA_LOADER_LOADER_H

#include "backend/backend.h"
#include "data/loader/loader_stats.h"
#include "data/loader/sample_cache.h"
#include "data/loader/sampler.h"
#include "data/transform/transform.h"

enum { CVY_PREFETCH = 2 }; /* batches prefetched by default */

struct cvy_loader_options {
    const struct cvy_dataset *dataset; /* borrowed */
    struct cvy_transform transform;
    int32_t batch_size;
    int32_t workers;  /* threads, >= 1 */
    int32_t prefetch; /* batches made ahead, >= 1 */
    uint64_t seed;
    enum cvy_sampler_kind sampler;
    bool autoaugment; /* training: AutoAugment after the mirror, from the same random stream */
    bool drop_last;   /* training; evaluation delivers a short last batch (count < batch_size, the rest zero) */
    bool even_last;   /* training, with drop_last: a short last batch too, of as many samples on every rank */
    bool replace_bad; /* training: the next readable sample in data-set order fills the slot; else it is marked bad */
    bool name_bad;    /* samples that are marked bad are named, too; where a sentence is said of them anyway: false */
    struct cvy_sample_cache *cache; /* of the images of the set; NULL: each is read each time. Borrowed */
    int32_t rank, world;            /* this rank takes perm[rank::world]; 0, 1 for one process */
    cvy_device *device; /* that batches are for: it copies from their memory as it is; NULL: any. Borrowed */
    /* It decodes what it can (backend/image_decoder.h), and batches lie in its memory. CVY_UNAVAILABLE where it cannot,
     * CVY_USAGE where the transform is the host's. */
    bool device_decodes;
    int32_t lanes;     /* batches that it decodes side by side; 0: 2 */
    double host_share; /* of each batch that the host decodes nevertheless, the last ones */
};

struct cvy_batch {
    const uint8_t *images; /* (batch_size, size, size, 3), 64-byte aligned; of floats with TensorFlow's rules */
    bool on_device;        /* the images lie in memory of the loader's device */
    const int32_t *labels; /* (batch_size); -1 in slots that are bad or past the end */
    /* Detection sets only, else NULL: the objects on each image, CVY_MAX_BOXES at most, the rest zero. */
    const float *boxes;        /* (batch_size, CVY_MAX_BOXES, 4) ymin, xmin, ymax, xmax as shares of the image */
    const int32_t *box_labels; /* (batch_size, CVY_MAX_BOXES) slots, 1..class_count; 0: no object */
    const uint32_t *samples;   /* (batch_size) data-set indices */
    const cvy_status *status;  /* (batch_size) CVY_OK, or why this slot is bad (evaluation) */
    const char *const *errors; /* (batch_size) sentence for bad slots, else NULL */
    int32_t count;             /* slots that hold a sample (bad ones included) */
    int64_t epoch, index;      /* batch number within the epoch */
};

struct cvy_loader;
/* What the device decodes with, "nvJPEG 13.0.1, in hardware"; NULL: the host decodes. */
const char *cvy_loader_decoder(const struct cvy_loader *loader);
CVY_CHECKED cvy_status cvy_loader_open(const struct cvy_loader_options *options, struct cvy_loader **loader);
void cvy_loader_close(struct cvy_loader *loader); /* accepts NULL; stops the threads */
/* Batches in one epoch: floor(sample_count / (world * batch_size)) with drop_last, the same on every rank, and one more
 * with even_last where at least `world` samples are left; else ceil(samples of this rank / batch_size). */
int64_t cvy_loader_batches(const struct cvy_loader *loader);
/* Begin an epoch at a batch (0, or the position of a resumed run). Work in flight for another epoch is discarded. */
CVY_CHECKED cvy_status cvy_loader_start(struct cvy_loader *loader, uint32_t epoch, int64_t first_batch);
/* Before an epoch is started: it begins at sample `skip` of its order (cvy_sampler_skip). */
void cvy_loader_skip(struct cvy_loader *loader, uint32_t epoch, uint32_t skip);
/* The next batch; *batch is NULL at the end of the epoch. It stays valid until the second next call (two batches are
 * readable at a time, so that a device may still copy the last one). Fails when an image cannot be replaced (every
 * image unreadable). */
CVY_CHECKED cvy_status cvy_loader_next(struct cvy_loader *loader, const struct cvy_batch **batch);
/* Samples replaced (or, in evaluation, left out) so far, each named once through cvy_log as a warning. */
int64_t cvy_loader_bad_samples(struct cvy_loader *loader);
/* Their indices in the data set, ascending: up to `capacity` of them. Returns how many. */
int64_t cvy_loader_list_bad(struct cvy_loader *loader, uint32_t *samples, int64_t capacity);
/* Seconds spent waiting in cvy_loader_next since the last start. */
double cvy_loader_wait_seconds(const struct cvy_loader *loader);
/* What the threads have done since then. */
void cvy_loader_get_stats(struct cvy_loader *loader, struct cvy_loader_stats *stats);
/* One sentence about them (data/loader/loader_stats.h), with what is known of the set. */
void cvy_loader_advise(struct cvy_loader *loader, const struct cvy_loader_stats *stats, char text[CVY_ADVICE_TEXT]);

/* The memory a loader needs, in bytes: its rings for each image of a batch, and the rest (decoders that have decoded
 * images of `pixels` pixels). */
size_t cvy_loader_image_bytes(const struct cvy_loader_options *options);
size_t cvy_loader_other_bytes(const struct cvy_loader_options *options, int64_t pixels);
/* And that of the device's lanes, where it decodes such images: cvy_image_lane_bytes. */
struct cvy_image_lanes cvy_loader_lanes(const struct cvy_loader_options *options, int64_t pixels);

#endif
