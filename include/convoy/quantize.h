/* From trained weights to a network of 8-bit integers, without training. */
#ifndef CONVOY_QUANTIZE_H
#define CONVOY_QUANTIZE_H

#include <stdbool.h>

#include "convoy/infer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Called after each batch: `stage` says what is being done ("calibration", ...), `done` of `total` batches. False stops
 * the work: CVY_STOPPED, and no file is written unless it was already, and only its measurement is missing. */
typedef bool (*cvy_quantize_progress)(void *context, const char *stage, int64_t done, int64_t total);

struct cvy_quantize_options {
    size_t size; /* sizeof(struct cvy_quantize_options) */
    /* `weights` of a network in floats, and how they are opened (required); its batches are those of the evaluations.
     * It computes in fp32, whatever `precision` says. */
    const struct cvy_classifier_options *network;
    const char *output; /* a safetensors file (required) */
    /* A data set (required): ranges come from its training images (from those for validation where there are no
     * others), accuracies from its validation images. */
    const char *data;
    const char *calibration; /* "minmax", "mean", "percentile", "mse" or "entropy"; NULL: "mean" */
    int images;              /* how many are drawn for the calibration; 0: 300 */
    uint64_t seed;           /* of the draw */
    /* Points of top-1 (of a detector: of AP) that may be lost on the validation images: the layers that cost the
     * most stay in floats until no more is. */
    double max_drop;
    bool bias_correction;           /* take back what rounding does to the mean of each channel */
    cvy_quantize_progress progress; /* NULL: none */
    void *context;                  /* of progress */
};
#ifdef __cplusplus
#define CVY_QUANTIZE_DEFAULTS                                                                                          \
    ([] {                                                                                                              \
        struct cvy_quantize_options cvy_options_ = CVY_SIZED(cvy_quantize_options);                                    \
        cvy_options_.max_drop = 0.1;                                                                                   \
        return cvy_options_;                                                                                           \
    }())
#else
#define CVY_QUANTIZE_DEFAULTS                                                                                          \
    ((struct cvy_quantize_options){.size = sizeof(struct cvy_quantize_options), .max_drop = 0.1})
#endif

/* A layer, or a value between layers that has 8 bits of its own (of an addition, before a mean). */
struct cvy_quantized_layer {
    const char *name; /* "layer1.0.conv1" */
    bool layer;       /* a convolution or linear layer */
    bool quantized;   /* false: it stays in floats */
    /* dB: the layer's output (the value) against the error of computing it in 8 bits from an exact input; infinite
     * where there is no error. */
    double sqnr;
    /* The squared error of the network's answers when nothing else has 8 bits, relative to the answers' squares; -1:
     * not measured, for no layer had to stay in floats. */
    double cost;
};

/* One network, measured. Accuracy is top-1 in percent, of a detector AP times 100. */
struct cvy_quantize_side {
    double accuracy, loss; /* loss: of classifiers */
    double single_ms;      /* the median time for one image */
    double batch_ms;       /* for a batch */
    int64_t bytes;         /* of the file that was written; of the network in floats, of its tensors */
};

struct cvy_quantize_result {
    char arch[64];
    bool detector;
    int64_t calibration_images, validation_images; /* read */
    const char *calibration;                       /* the method */
    struct cvy_quantize_side floats, quantized;    /* the quantised one as the output file gives it */
    double everything;                  /* accuracy when every layer has 8 bits, before any of them is left in floats */
    double agreement;                   /* percent of the images with the same answer; of detectors -1 */
    int batch_size;                     /* of batch_ms */
    struct cvy_quantized_layer *layers; /* (layer_count) in the network's order */
    int layer_count, float_layers;      /* float_layers: not quantized */
    int64_t weights, integer_weights;   /* numbers in layers; of them those that have 8 bits */
    double peak_memory_mib;             /* of the process so far */
};

/* Quantises a network. The output appears whole or not at all; it is a weights file as quantised training writes it.
 * `result` is filled in when the call succeeds, and released by cvy_quantize_result_release. CVY_USAGE, CVY_NO_INPUT,
 * CVY_BAD_DATA (not weights, quantised already, data that do not fit), CVY_CANNOT_CREATE, CVY_CANNOT_WRITE,
 * CVY_NO_MEMORY, CVY_STOPPED. */
CVY_API CVY_CHECKED cvy_status cvy_quantize_network(const struct cvy_quantize_options *options,
                                                    struct cvy_quantize_result *result);
CVY_API void cvy_quantize_result_release(struct cvy_quantize_result *result); /* accepts NULL and a zeroed one */

#ifdef __cplusplus
}
#endif
#endif
