/* The architectures. Each builds a graph from options; a registry finds them by name. */
#ifndef CVY_MODELS_MODELS_H
#define CVY_MODELS_MODELS_H

#include "graph/graph.h"

/* Quantisation-aware training to 8-bit integers: cvy_rewrite_quantize. */
enum cvy_quantize {
    CVY_QUANTIZE_NONE,
    CVY_QUANTIZE_ASYMMETRIC,
    CVY_QUANTIZE_SYMMETRIC,
    CVY_QUANTIZE_CHANNELS, /* symmetric; weights have a scale for each output channel, and what is never negative 255
                              levels above zero */
    /* As TensorFlow's program: batch norms are folded into the weights before these are rounded (cvy_rewrite_fold). */
    CVY_QUANTIZE_FOLDED_ASYMMETRIC,
    CVY_QUANTIZE_FOLDED_SYMMETRIC
};

/* What residual networks (models/resnet.h) can have beside their table. */
struct cvy_resnet_options {
    bool fan_out_init;    /* --model-config classic: std sqrt(2 / fan_out) instead of fan_in */
    bool tensorflow_init; /* start values as the TensorFlow program draws them, convolutions by fan_in or fan_out too */
    bool last_bn_gamma_zero;
    /* Hidden units of squeeze-and-excitation over C channels. 0: the architecture's; n > 0: n; n < 0: C / -n. */
    int32_t squeeze_width;
    /* TensorFlow's SAME: strided windows are padded by what the extent needs, the odd pixel below and on the right.
     * Otherwise (kernel - 1) / 2 on every side. */
    bool same_padding;
};

/* What detectors can have. */
struct cvy_detector_options {
    /* The backbone has the strides and the padding of torchvision's ResNet-50 instead of TF-slim's, for weights that
     * were trained so. */
    bool torchvision_backbone;
    float regularization; /* the L2 loss, 1/2 of this for each squared weight of a kernel, for reports */
};

struct cvy_model_options {
    int32_t num_classes;       /* >= 1 */
    int32_t image_size;        /* square input, 32 or more */
    int32_t train_size;        /* side of the input in training; 0: image_size */
    float mean[3], std[3];     /* of the 0..255 scale, R G B */
    bool float_images;         /* the input "image" is f32 of that scale instead of u8 */
    float batch_norm_momentum; /* share of a batch in the running statistics; 0: the architecture's */
    float label_smoothing;     /* of the training loss */
    bool soft_targets;         /* the target input is (N,K) f32 instead of labels */
    bool mixup;         /* training: samples are mixed by the inputs "partner" i32 (N) and "coefficient" f32 (N) */
    bool class_weights; /* training: the loss is weighted by the input "class_weights" f32 (K) */
    /* Training: nothing of the forward pass is computed again for the backward pass: more memory, fewer bytes moved. */
    bool keep_activations;
    bool features;          /* inference of classifiers: a result CVY_FEATURES (N,F), what the last layer reads */
    char feature_layer[32]; /* of this layer, by its scope, what it makes instead, as (N,C,H,W); "": none */
    /* Prefixes of parameters that training leaves as they are, separated by commas; NULL: none. Borrowed. */
    const char *freeze;
    enum cvy_quantize quantize;
    int64_t quant_delay;                  /* training steps before values are rounded */
    bool quantize_straight;               /* training: quantizers let every gradient pass; of folded networks */
    int64_t freeze_norms;                 /* training of folded networks: steps after which running statistics stay */
    struct cvy_resnet_options resnet;     /* only where the architecture is one */
    struct cvy_detector_options detector; /* likewise */
};

#define CVY_FEATURES "features"

/* What kind of graph to build. */
enum cvy_model_mode {
    CVY_MODEL_TRAIN, /* inputs "image" NHWC, "target", "loss_scale" f32 scalar, those of mixup and class weights;
                        results "loss", "logits", gradients, new running statistics. Detectors: inputs "image", "boxes"
                        f32 (N,100,4), "labels" i32 (N,100), "loss_scale"; results "loss" and its parts
                        "localization_loss", "classification_loss"; beside it "regularization_loss", which has no
                        gradient (weight decay is the optimizer's) */
    CVY_MODEL_INFER, /* input "image"; results "logits", "probabilities". Detectors: "boxes" f32 (N,100,4), "scores" f32
                        (N,100), "classes" i32 (N,100) from 0 up, "count" i32 (N), and what they are made of, "codes"
                        (N,A,4) and "logits" (N,A,1 + classes) */
    CVY_MODEL_STATISTICS /* input "image" as in training; results: the running statistics become those of the batch */
};

/* The task of a network: the class of an image, or the boxes and classes of the objects on it. */
enum cvy_task { CVY_TASK_CLASSIFY, CVY_TASK_DETECT };

/* The predictions of a detector: for each anchor a box, as codes relative to it (N,A,4), and logits of background and
 * classes (N,A,1 + classes). */
struct cvy_predictions {
    cvy_val codes, logits;
};

struct cvy_architecture {
    enum cvy_task task;
    const char *name;  /* "resnet50" */
    const char *alias; /* how others spell it beyond "_" for "-"; NULL: no other way */
    /* Builds the forward part into an initialised graph from the normalised image (N,3,S,S); returns logits (N,K).
     * options->squeeze_width is resolved: 0 means none. */
    cvy_val (*build)(struct cvy_graph *graph, cvy_val image, const struct cvy_model_options *options,
                     const void *config);
    const void *config;
    /* For detectors, instead of `build`. */
    struct cvy_predictions (*build_detector)(struct cvy_graph *graph, cvy_val image,
                                             const struct cvy_model_options *options);
    int32_t default_image_size; /* 224 */
    int32_t squeeze_width;      /* default of the option; 0: there is no squeeze-and-excitation */
};

/* Bytes of one image of the input of a graph for this mode. */
size_t cvy_model_image_bytes(const struct cvy_model_options *options, enum cvy_model_mode mode);
/* By name or alias; underscores for hyphens accepted. NULL when unknown. */
const struct cvy_architecture *cvy_architecture_find(const char *name);
/* CVY_USAGE, for a name that is none: with the nearest one and all there are. */
CVY_CHECKED cvy_status cvy_architecture_fail(const char *name);
/* The i-th architecture, NULL past the end. */
const struct cvy_architecture *cvy_architecture_at(size_t index);

/* "torch" -> false, "same" -> true: --padding. False when it is neither. */
bool cvy_padding_parse(const char *text, bool *same);
const char *cvy_padding_name(bool same);
/* "slim" -> false, "torchvision" -> true: --backbone-strides. False when it is neither. */
bool cvy_strides_parse(const char *text, bool *torchvision);
const char *cvy_strides_name(bool torchvision);
/* "none", "asymmetric", "symmetric", "channels", "folded-asymmetric", "folded-symmetric". False when it is none of
 * them. */
bool cvy_quantize_parse(const char *text, enum cvy_quantize *quantize);
const char *cvy_quantize_name(enum cvy_quantize quantize);
/* Whether levels lie on both sides of zero without a zero point. */
bool cvy_quantize_symmetric(enum cvy_quantize quantize);
/* Whether batch norms are folded into the weights before these are rounded. */
bool cvy_quantize_folds(enum cvy_quantize quantize);
/* "16" -> 16, "c/16" (or "C/16") -> -16, "" -> 0: --squeeze-width. CVY_USAGE for anything else. */
CVY_CHECKED cvy_status cvy_squeeze_width_parse(const char *text, int32_t *width);
/* The inverse; "" for 0. Returns buffer. */
const char *cvy_squeeze_width_text(int32_t width, char buffer[16]);

/* Checks whether a detector supports images of this size: CVY_USAGE if not. */
CVY_CHECKED cvy_status cvy_detector_check_size(const struct cvy_architecture *architecture, int32_t size);

/* Initialises `graph` and builds the whole thing for a mode: input, normalise, forward, loss, fusing rewrites,
 * backward, recomputation of activations, dead code removed. On failure the graph is released. `fuse` off keeps the
 * nodes as the model wrote them. */
CVY_CHECKED cvy_status cvy_model_graph(const struct cvy_architecture *architecture,
                                       const struct cvy_model_options *options, enum cvy_model_mode mode, bool fuse,
                                       struct cvy_graph *graph);

#endif
