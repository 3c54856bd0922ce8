/* A batch where a plan can read it: uploaded beside the device's work, or the host's memory itself. */
#ifndef CVY_NETWORK_BATCH_UPLOAD_H
#define CVY_NETWORK_BATCH_UPLOAD_H

#include "backend/plan.h"

/* The inputs of a pass, in host memory: N images and, in training, their labels or the objects on them; with mixup
 * partners and coefficients. What a plan has no input for is NULL. */
struct cvy_host_batch {
    const uint8_t *images; /* (N, S, S, 3), of floats where the network takes such */
    const int32_t *labels, *partner;
    const float *coefficient;
    const float *boxes; /* of struct cvy_batch */
    const int32_t *box_labels;
};
enum { CVY_BATCH_INPUTS = 6 };

/* A batch where the device can read it: the host's memory itself, or two buffers used in turn. */
struct cvy_batch_upload {
    cvy_device *device; /* borrowed */
    size_t bytes[CVY_BATCH_INPUTS];
    void *memory[CVY_BATCH_INPUTS][2]; /* NULL where the device reads the host's memory */
    int turn;
};
CVY_CHECKED cvy_status cvy_batch_upload_open(struct cvy_batch_upload *upload, cvy_device *device, int64_t batch,
                                             size_t image_bytes);
void cvy_batch_upload_close(struct cvy_batch_upload *upload); /* accepts a zeroed one */
/* Uploads a batch, overlapping the device's work, and binds "image" and, as far as they are given, "target", "partner",
 * "coefficient", "boxes" and "labels". The batch stays in use until the second next call. */
CVY_CHECKED cvy_status cvy_batch_upload_bind(struct cvy_batch_upload *upload, struct cvy_plan *plan,
                                             const struct cvy_host_batch *batch);

#endif
