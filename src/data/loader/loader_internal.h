/* What the files of the loader share.
 *
 * One mutex guards the state; decoding happens outside it. Workers take single samples in order ("tickets"), so that a
 * batch is made by all of them together; a batch's place in the ring is free again once the second next call of
 * cvy_loader_next has come. With a device that decodes, workers read and draw what they do not decode themselves, and
 * its lanes, threads too, finish batch by batch. */
#ifndef CVY_DATA_LOADER_LOADER_INTERNAL_H
#define CVY_DATA_LOADER_LOADER_INTERNAL_H

#include <pthread.h>

#include "backend/image_decoder.h"
#include "data/loader/loader.h"

enum { LOADER_CALLERS_BATCHES = 2 /* of the ring, that the caller may be reading */ };

struct loader_slot {
    struct cvy_batch batch; /* what the caller sees */
    uint8_t *images;
    int32_t *labels;
    float (*boxes)[4]; /* detection; else NULL */
    int32_t *box_labels;
    uint32_t *samples;
    cvy_status *status;
    char **errors;
    int32_t done; /* samples of the batch that are finished, or left to the device */
    bool ready;   /* all of it is finished */
    /* with a device that decodes, else NULL */
    uint8_t *device_images;
    struct cvy_device_image *jobs; /* (batch_size) */
    struct cvy_encoded *encoded;   /* (batch_size) of jobs; held until the batch is finished */
    bool *left;                    /* (batch_size) whether the place is left to the device */
};

struct loader_worker {
    struct cvy_loader *loader;
    pthread_t thread;
    bool running;
    int32_t number; /* among the workers, or among the lanes */
    bool on_host;   /* decodes everything itself: a lane, for what the device did not take in the end */
    struct cvy_decoder *decoder;
    struct cvy_resizer resizer;
    uint8_t *scratch;               /* (size, size, 3) for the augmentation; NULL: none */
    struct cvy_loader_stats sample; /* of what it is at, and of samples that it gave up */
};

struct cvy_loader {
    struct cvy_loader_options options;
    size_t image_bytes;
    struct loader_slot *ring;
    int32_t ring_size;
    struct loader_worker *workers;
    struct cvy_sampler sampler;
    struct cvy_epoch_slot *order; /* (rank_count) what this epoch takes */
    uint8_t *named;               /* (sample_count) bad samples that were named in the log */
    int64_t rank_count, batches;
    /* the device that decodes; NULL: none */
    struct cvy_image_decoder *device;
    const struct cvy_image_decoding *decoding;
    struct loader_worker *lanes;
    int32_t lane_count, device_places; /* of each batch, the first ones, that the device may decode */

    pthread_mutex_t mutex;
    pthread_cond_t work;  /* workers wait: something to do, or stopping */
    pthread_cond_t ready; /* the caller waits: a batch is complete, a worker went idle, or a failure */
    bool has_mutex, has_work, has_ready;
    /* guarded by the mutex */
    bool stopping, active;
    uint32_t epoch;
    int64_t next_ticket; /* position in `order` of the next sample to make */
    int64_t end_ticket;  /* past the last sample of the epoch */
    int64_t first_batch; /* where this epoch began */
    int64_t next_batch;  /* the batch that cvy_loader_next returns next */
    int64_t lane_batch;  /* the batch that a lane takes next */
    int32_t busy;        /* workers at a sample, lanes at a batch */
    int64_t bad_samples;
    bool refused; /* the device did not decode what it was expected to, which has been said */
    cvy_status failure;
    char failure_text[1024];
    double wait_seconds, start_clock;
    struct cvy_loader_stats stats; /* of samples that are done */
};

/* ---- loader_worker.c ---- */
/* Past the last batch that may be made: the ring also holds the two that the caller may be reading. */
int64_t cvy_loader_batch_limit(const struct cvy_loader *loader);
/* Fills one place of a batch, or leaves it to the device. Fails only for what is not the image's fault, or when no
 * image can be read. */
CVY_CHECKED cvy_status cvy_loader_fill(struct loader_worker *worker, uint32_t epoch, struct cvy_epoch_slot from,
                                       struct loader_slot *slot, int32_t place);
/* With the mutex: the first failure is kept. */
void cvy_loader_record_failure(struct cvy_loader *loader, cvy_status status);
/* With the mutex: what a worker or lane has counted. */
void cvy_loader_count(struct loader_worker *worker);
void cvy_loader_clear_boxes(struct loader_slot *slot, size_t first, size_t count);
void *cvy_loader_work(void *argument); /* a thread */

/* ---- loader_device.c ---- */
CVY_CHECKED cvy_status cvy_loader_open_device(struct cvy_loader *loader); /* nothing where none decodes */
CVY_CHECKED cvy_status cvy_loader_start_lanes(struct cvy_loader *loader);
void cvy_loader_close_device(struct cvy_loader *loader); /* after its threads have ended */
/* The memory for a batch of images: pinned where it is for a device that has such. */
CVY_CHECKED cvy_status cvy_loader_init_images(struct cvy_loader *loader, struct loader_slot *slot, size_t bytes);
void cvy_loader_release_images(struct cvy_loader *loader, struct loader_slot *slot);
/* What a batch that was not finished still holds. */
void cvy_loader_drop_encoded(struct loader_slot *slot, int32_t batch_size);
/* Leaves the sample to the device if that can take it; `rng` is used only then. */
CVY_CHECKED cvy_status cvy_loader_leave(struct loader_worker *worker, const struct cvy_encoded *encoded,
                                        struct cvy_rng *rng, struct loader_slot *slot, int32_t place);

#endif
