/* `convoy quantize` inside: one network on its way to 8 bits. */
#ifndef CVY_INFER_QUANTIZE_PTQ_H
#define CVY_INFER_QUANTIZE_PTQ_H

#include "convoy/quantize.h"
#include "infer/predictor.h"
#include "infer/quantize/parts.h"
#include "infer/quantize/range.h"

/* The form that quantised files have. */
#define CVY_PTQ_FORM CVY_QUANTIZE_CHANNELS

enum { CVY_PTQ_IMAGES = 300 }; /* of a calibration, if nobody says another number */

/* What a network says about the validation images. */
struct cvy_ptq_score {
    double accuracy, loss;
    int64_t images;
    int32_t *answers; /* (validation images), -1 where one could not be read; NULL of detectors */
};

/* A parameter that corrects the means of a layer's channels. */
struct cvy_ptq_mean {
    int32_t param, part;
    int64_t channels;
    float *original, *corrected; /* (channels) */
};

struct cvy_ptq {
    const struct cvy_quantize_options *options;
    const char *name;    /* of the weights, in errors */
    int64_t float_bytes; /* of their tensors, as floats */
    bool written;        /* the output is complete */
    enum cvy_calibration calibration;
    struct cvy_predictor plain; /* the network in floats */
    struct cvy_network network; /* the same with quantizers */
    struct cvy_ptq_parts parts;
    struct cvy_ptq_mean *means; /* (mean_count) of layers, in the arena of the parts */
    int32_t mean_count;
    struct cvy_dataset images;    /* the drawn ones, for the calibration */
    struct cvy_dataset val;       /* for the evaluations */
    int64_t calibration_images;   /* read */
    struct cvy_evaluator rounded; /* the network with quantizers */
    struct cvy_ptq_score floats;  /* what `plain` says */
};

/* ---- images (images.c) ---- */
/* Opens the sets, and draws the images of the calibration. */
CVY_CHECKED cvy_status cvy_ptq_open_images(struct cvy_ptq *ptq);
/* Receives a batch that `evaluator` has just computed. */
typedef cvy_status (*cvy_ptq_batch)(void *context, struct cvy_evaluator *evaluator, const struct cvy_batch *batch);
/* Runs the graph of this kind over the images of the calibration in small batches, whose values are all kept until the
 * batch is done. */
CVY_CHECKED cvy_status cvy_ptq_run(struct cvy_ptq *ptq, enum cvy_ptq_graph kind, const char *stage,
                                   cvy_ptq_batch receive, void *context);
/* Accuracy of a network on the validation images; `evaluator` has its batch. score->answers is allocated (cvy_free). */
CVY_CHECKED cvy_status cvy_ptq_evaluate(struct cvy_ptq *ptq, struct cvy_evaluator *evaluator, const char *stage,
                                        struct cvy_ptq_score *score);
/* CVY_STOPPED when the caller wants no more. */
CVY_CHECKED cvy_status cvy_ptq_progress(const struct cvy_ptq *ptq, const char *stage, int64_t done, int64_t total);

/* ---- ranges and corrections (calibrate.c, correct.c) ---- */
/* Chooses the range of every quantizer. */
CVY_CHECKED cvy_status cvy_ptq_calibrate(struct cvy_ptq *ptq);
/* Measures each layer against itself in floats: its error, and the correction of its means. */
CVY_CHECKED cvy_status cvy_ptq_compare(struct cvy_ptq *ptq);
/* Writes into the network what the parts say: quantizers and corrections of the quantised ones. */
CVY_CHECKED cvy_status cvy_ptq_apply(struct cvy_ptq *ptq);

/* The values of a parameter, from the device. */
CVY_CHECKED cvy_status cvy_ptq_download(const struct cvy_network *network, int32_t param, float *values);

/* ---- layers that stay in floats (select.c) ---- */
/* No more than max_drop points are lost; one image of 1,000 is 0.1 of them, whatever its double is. */
bool cvy_ptq_is_enough(double floats, double accuracy, double max_drop);
/* *everything: the accuracy with all parts quantised. */
CVY_CHECKED cvy_status cvy_ptq_select(struct cvy_ptq *ptq, double *everything);

/* ---- the file (output.c) ---- */
CVY_CHECKED cvy_status cvy_ptq_write(struct cvy_ptq *ptq);

#endif
