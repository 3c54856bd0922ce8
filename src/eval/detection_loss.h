/* The losses of a detector on the images of a validation. */
#ifndef CVY_EVAL_DETECTION_LOSS_H
#define CVY_EVAL_DETECTION_LOSS_H

#include "convoy/train.h"
#include "data/loader/loader.h"
#include "network/network.h"

/* Those of training, of each image by itself: their mean over the images is what TensorFlow's program reports, which
 * evaluates batches of one. A plan of its own reads what the plan for inference has predicted. Zero-initialise. */
struct cvy_detection_loss {
    struct cvy_network *network; /* borrowed */
    struct cvy_store none;       /* the plan has no parameters */
    struct cvy_plan plan;        /* of one image */
    void *memory[4];             /* device memory of its inputs */
    float *codes, *logits;       /* (batch, anchors, 4), (batch, anchors, width) of the last batch */
    size_t batch, anchors, width;
};
/* predictions: the plan for inference whose results are read; batches have the images that it has. */
CVY_CHECKED cvy_status cvy_detection_loss_open(struct cvy_detection_loss *loss, struct cvy_network *network,
                                               const struct cvy_plan *predictions);
/* The memory that this takes: on the host for a batch of `batch` images, on the device for one. */
size_t cvy_detection_loss_bytes(const struct cvy_model_options *model, int64_t batch);
void cvy_detection_loss_close(struct cvy_detection_loss *loss); /* accepts a zeroed one */
enum { CVY_EVAL_LOSSES = 2 };                                   /* localisation, classification */
/* Adds the losses of the readable images of the batch that `predictions` has just computed. CVY_USAGE where it has
 * computed a part of them: the plan of one of several streams, or the last of several parts. */
CVY_CHECKED cvy_status cvy_detection_loss_add(struct cvy_detection_loss *loss, struct cvy_plan *predictions,
                                              const struct cvy_batch *batch, double sums[CVY_EVAL_LOSSES]);
/* "localization_loss", "classification_loss" and "total_loss", which also has the penalty on the weights of `store`
 * (L2, as in training), are added to COCO's measures. NULL losses: their names, with 0. */
CVY_CHECKED cvy_status cvy_detection_loss_measures(const struct cvy_network *network, const struct cvy_store *store,
                                                   const double losses[CVY_EVAL_LOSSES], struct cvy_measures *measures);

#endif
