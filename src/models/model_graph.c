/* From an architecture to the whole graph of a mode: input, forward pass, loss, backward pass. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "models/models.h"
#include "ops/anchors.h"
#include "ops/ops.h"

/* MAX_BOXES: what a batch has (CVY_MAX_BOXES, data/sample/objects.h), and what is found at most. */
enum { SMALLEST_IMAGE = 32, SMALLEST_PYRAMID = 64, MAX_BOXES = 100, LARGEST_SQUEEZE = 65536 };

bool cvy_padding_parse(const char *text, bool *same)
{
    *same = strcmp(text, "same") == 0;
    return *same || strcmp(text, "torch") == 0;
}

const char *cvy_padding_name(bool same)
{
    return same ? "same" : "torch";
}

bool cvy_strides_parse(const char *text, bool *torchvision)
{
    *torchvision = strcmp(text, "torchvision") == 0;
    return *torchvision || strcmp(text, "slim") == 0;
}

const char *cvy_strides_name(bool torchvision)
{
    return torchvision ? "torchvision" : "slim";
}

static const char *const quantize_names[] = {
    [CVY_QUANTIZE_NONE] = "none",
    [CVY_QUANTIZE_ASYMMETRIC] = "asymmetric",
    [CVY_QUANTIZE_SYMMETRIC] = "symmetric",
    [CVY_QUANTIZE_CHANNELS] = "channels",
    [CVY_QUANTIZE_FOLDED_ASYMMETRIC] = "folded-asymmetric",
    [CVY_QUANTIZE_FOLDED_SYMMETRIC] = "folded-symmetric",
};

bool cvy_quantize_parse(const char *text, enum cvy_quantize *quantize)
{
    for (int i = 0; i <= CVY_QUANTIZE_FOLDED_SYMMETRIC; i++) {
        *quantize = (enum cvy_quantize)i;
        if (strcmp(text, quantize_names[i]) == 0)
            return true;
    }
    return false;
}

const char *cvy_quantize_name(enum cvy_quantize quantize)
{
    return quantize_names[quantize];
}

bool cvy_quantize_symmetric(enum cvy_quantize quantize)
{
    return quantize == CVY_QUANTIZE_SYMMETRIC || quantize == CVY_QUANTIZE_CHANNELS ||
           quantize == CVY_QUANTIZE_FOLDED_SYMMETRIC;
}

bool cvy_quantize_folds(enum cvy_quantize quantize)
{
    return quantize == CVY_QUANTIZE_FOLDED_ASYMMETRIC || quantize == CVY_QUANTIZE_FOLDED_SYMMETRIC;
}

cvy_status cvy_squeeze_width_parse(const char *text, int32_t *width)
{
    const bool share = (text[0] == 'c' || text[0] == 'C') && text[1] == '/';
    const char *digits = share ? text + 2 : text;
    const size_t length = strspn(digits, "0123456789");
    const long value = length <= 6 ? strtol(digits, NULL, 10) : 0;

    *width = 0;
    if (!text[0])
        return CVY_OK;
    if (digits[length] != '\0' || value < 1 || value > LARGEST_SQUEEZE)
        return cvy_fail(CVY_USAGE,
                        "option --squeeze-width is a number of hidden units such as 16, or a share of the channels "
                        "such as c/16, not %s",
                        cvy_quote(text));
    *width = (int32_t)(share ? -value : value);
    return CVY_OK;
}

const char *cvy_squeeze_width_text(int32_t width, char buffer[16])
{
    buffer[0] = '\0';
    if (width > 0)
        snprintf(buffer, 16, "%d", (int)width);
    else if (width < 0)
        snprintf(buffer, 16, "c/%lld", -(long long)width);
    return buffer;
}

/* Side of the square input of a graph for this mode. */
static int32_t input_size(const struct cvy_model_options *options, enum cvy_model_mode mode)
{
    return mode != CVY_MODEL_INFER && options->train_size != 0 ? options->train_size : options->image_size;
}

size_t cvy_model_image_bytes(const struct cvy_model_options *options, enum cvy_model_mode mode)
{
    const size_t side = (size_t)input_size(options, mode);

    return side * side * 3 * (options->float_images ? sizeof(float) : 1);
}

/* Each level has half the extent of the one below it. */
cvy_status cvy_detector_check_size(const struct cvy_architecture *architecture, int32_t size)
{
    if (size >= SMALLEST_PYRAMID && size % SMALLEST_IMAGE == 0)
        return CVY_OK;
    return cvy_fail(CVY_USAGE, "%s takes images of a multiple of %d pixels, %d or more, not %d", architecture->name,
                    SMALLEST_IMAGE, SMALLEST_PYRAMID, (int)size);
}

static cvy_status check_options(const struct cvy_architecture *architecture, const struct cvy_model_options *options,
                                int32_t input_size)
{
    if (options->num_classes < 1)
        return cvy_fail(CVY_USAGE, "%s needs 1 or more classes, not %d", architecture->name, (int)options->num_classes);
    if (options->image_size < SMALLEST_IMAGE || input_size < SMALLEST_IMAGE)
        return cvy_fail(CVY_USAGE, "%s needs images of %d pixels or more, not %d", architecture->name, SMALLEST_IMAGE,
                        (int)(options->image_size < SMALLEST_IMAGE ? options->image_size : input_size));
    if (architecture->task == CVY_TASK_DETECT) {
        CVY_TRY(cvy_detector_check_size(architecture, options->image_size));
        CVY_TRY(cvy_detector_check_size(architecture, input_size));
    }
    if (options->resnet.squeeze_width != 0 && architecture->squeeze_width == 0)
        return cvy_fail(CVY_USAGE, "%s has no squeeze-and-excitation: a squeeze width is of no use",
                        architecture->name);
    if (options->quantize != CVY_QUANTIZE_NONE && options->freeze && options->freeze[0])
        return cvy_fail(CVY_USAGE, "options --quantize and --freeze exclude each other: what is rounded must learn");
    return CVY_OK;
}

/* What follows the losses. */
static void add_backward(struct cvy_graph *graph, cvy_val loss, cvy_val loss_scale,
                         const struct cvy_model_options *options, bool fuse)
{
    if (fuse)
        cvy_rewrite_fuse_training(graph);
    cvy_graph_backward(graph, cvy_ops, loss, loss_scale);
    if (fuse) {
        if (!options->keep_activations)
            cvy_rewrite_recompute(graph);
        cvy_rewrite_fuse_backward(graph);
    }
}

static void add_training(struct cvy_graph *graph, cvy_val logits, struct cvy_mix_values mix,
                         const struct cvy_model_options *options, bool fuse)
{
    cvy_val target, loss_scale, class_weights = CVY_NONE, loss;

    target = options->soft_targets
                 ? cvy_graph_input(graph, "target", CVY_F32, cvy_shape2(CVY_BATCH, options->num_classes), false)
                 : cvy_graph_input(graph, "target", CVY_I32, cvy_shape1(CVY_BATCH), false);
    loss_scale = cvy_graph_input(graph, "loss_scale", CVY_F32, cvy_shape0(), false);
    if (options->class_weights)
        class_weights = cvy_graph_input(graph, "class_weights", CVY_F32, cvy_shape1(options->num_classes), false);
    loss = cvy_softmax_cross_entropy_mixed(graph, logits, target, mix, class_weights, options->label_smoothing);
    cvy_graph_result(graph, CVY_RESULT_NAMED, "loss", -1, loss);
    cvy_graph_result(graph, CVY_RESULT_NAMED, "logits", -1, logits);
    add_backward(graph, loss, loss_scale, options, fuse);
}

/* What the layer that makes the logits reads, before it is rounded. */
static cvy_val features_of(struct cvy_graph *graph, cvy_val logits)
{
    cvy_val value = logits;

    for (int32_t n; (n = value == CVY_NONE ? -1 : graph->values[value].producer) >= 0;) {
        value = graph->nodes[n].in[0];
        if (graph->nodes[n].op != CVY_OP_LINEAR)
            continue;
        n = graph->values[value].producer;
        return n >= 0 && graph->nodes[n].op == CVY_OP_FAKE_QUANTIZE ? graph->nodes[n].in[0] : value;
    }
    return cvy_graph_fail(graph, CVY_FAILED, "the network has no layer for its classes");
}

/* What the layer of that name makes last: of a block the sum after its ReLU. */
static cvy_val layer_output(struct cvy_graph *graph, const char *name)
{
    const size_t length = strlen(name);

    if (graph->status != CVY_OK)
        return CVY_NONE;
    for (int32_t n = graph->node_count; n-- > 0;) {
        const char *scope = graph->nodes[n].scope;
        if (strncmp(scope, name, length) == 0 && (scope[length] == '.' || scope[length] == '\0'))
            return graph->nodes[n].out[0];
    }
    return cvy_graph_fail(graph, CVY_USAGE,
                          "option feature_layer: the network has no layer %s; it has \"layer1\", a block of it as "
                          "\"layer1.0\", and others",
                          cvy_quote(name));
}

/* `features`: the result of that name, CVY_NONE: none is wanted. */
static void add_inference(struct cvy_graph *graph, cvy_val logits, cvy_val features, bool fuse)
{
    if (features != CVY_NONE && graph->status == CVY_OK)
        cvy_graph_result(graph, CVY_RESULT_NAMED, CVY_FEATURES, -1, features);
    cvy_graph_result(graph, CVY_RESULT_NAMED, "logits", -1, logits);
    cvy_graph_result(graph, CVY_RESULT_NAMED, "probabilities", -1, cvy_softmax(graph, logits));
    if (fuse)
        cvy_rewrite_fuse_inference(graph);
}

/* ---- detectors ---- */

/* The L2 loss of all kernels, learnt or frozen; CVY_NONE: there is not memory enough. */
static cvy_val regularization(struct cvy_graph *graph, float factor)
{
    cvy_val *kernels = cvy_calloc((size_t)graph->param_count + 1, sizeof *kernels), loss;
    int32_t count = 0;

    if (!kernels)
        return cvy_graph_fail(graph, CVY_NO_MEMORY, "out of memory while building the graph");
    for (int32_t i = 0; i < graph->param_count; i++) {
        if (graph->params[i].shape.rank == 4)
            kernels[count++] = graph->params[i].value;
    }
    loss = cvy_l2_loss(graph, kernels, count, factor);
    cvy_free(kernels);
    return loss;
}

static void add_detector_training(struct cvy_graph *graph, struct cvy_predictions predictions,
                                  const struct cvy_anchors *anchors, const struct cvy_model_options *options, bool fuse)
{
    const cvy_val boxes = cvy_graph_input(graph, "boxes", CVY_F32,
                                          (struct cvy_shape){.rank = 3, .dim = {CVY_BATCH, MAX_BOXES, 4}}, false);
    const cvy_val labels = cvy_graph_input(graph, "labels", CVY_I32, cvy_shape2(CVY_BATCH, MAX_BOXES), false);
    const cvy_val loss_scale = cvy_graph_input(graph, "loss_scale", CVY_F32, cvy_shape0(), false);
    const struct cvy_match_values match = cvy_detection_match(graph, boxes, labels, anchors);
    const cvy_val classes = cvy_focal_loss(graph, predictions.logits, match.classes, match.positives);
    const cvy_val places = cvy_smooth_l1_loss(graph, predictions.codes, match.targets, match.classes, match.positives);
    const cvy_val loss = cvy_add(graph, places, classes);

    cvy_graph_result(graph, CVY_RESULT_NAMED, "loss", -1, loss);
    cvy_graph_result(graph, CVY_RESULT_NAMED, "localization_loss", -1, places);
    cvy_graph_result(graph, CVY_RESULT_NAMED, "classification_loss", -1, classes);
    cvy_graph_result(graph, CVY_RESULT_NAMED, "regularization_loss", -1,
                     regularization(graph, options->detector.regularization));
    add_backward(graph, loss, loss_scale, options, fuse);
}

static void add_detector_inference(struct cvy_graph *graph, struct cvy_predictions predictions,
                                   const struct cvy_anchors *anchors, bool fuse)
{
    const struct cvy_detect_values found = cvy_detect(graph, predictions.codes, predictions.logits, anchors, NULL);

    cvy_graph_result(graph, CVY_RESULT_NAMED, "codes", -1, predictions.codes);
    cvy_graph_result(graph, CVY_RESULT_NAMED, "logits", -1, predictions.logits);
    cvy_graph_result(graph, CVY_RESULT_NAMED, "boxes", -1, found.boxes);
    cvy_graph_result(graph, CVY_RESULT_NAMED, "scores", -1, found.scores);
    cvy_graph_result(graph, CVY_RESULT_NAMED, "classes", -1, found.classes);
    cvy_graph_result(graph, CVY_RESULT_NAMED, "count", -1, found.count);
    if (fuse)
        cvy_rewrite_fuse_inference(graph);
}

/* ---- the whole ---- */

/* The forward pass of training: what its batch norms do not need falls away. */
static void add_statistics(struct cvy_graph *graph, bool fuse)
{
    if (fuse && graph->status == CVY_OK)
        cvy_rewrite_fuse_training(graph);
}

static void quantize(struct cvy_graph *graph, const struct cvy_model_options *options)
{
    const bool folds = cvy_quantize_folds(options->quantize);
    const struct cvy_fake_quantize_attr form = {
        .symmetric = cvy_quantize_symmetric(options->quantize),
        .channels = options->quantize == CVY_QUANTIZE_CHANNELS,
        .positive = options->quantize == CVY_QUANTIZE_CHANNELS,
        .ends = folds && !options->quantize_straight,
        .straight = folds && options->quantize_straight,
        .delay = options->quant_delay,
    };

    if (folds)
        cvy_rewrite_fold(graph, &form, options->freeze_norms);
    if (options->quantize != CVY_QUANTIZE_NONE)
        cvy_rewrite_quantize(graph, &form);
}

static void build_detector(struct cvy_graph *graph, const struct cvy_architecture *architecture, cvy_val image,
                           const struct cvy_model_options *options, enum cvy_model_mode mode, bool fuse)
{
    const int32_t side = input_size(options, mode);
    const struct cvy_anchors anchors = cvy_anchors_ssd(side, side);
    const struct cvy_predictions predictions = architecture->build_detector(graph, image, options);

    quantize(graph, options);
    if (mode == CVY_MODEL_TRAIN)
        add_detector_training(graph, predictions, &anchors, options, fuse);
    else if (mode == CVY_MODEL_STATISTICS)
        add_statistics(graph, fuse);
    else
        add_detector_inference(graph, predictions, &anchors, fuse);
}

static void build_classifier(struct cvy_graph *graph, const struct cvy_architecture *architecture, cvy_val image,
                             struct cvy_mix_values mix, const struct cvy_model_options *options,
                             enum cvy_model_mode mode, bool fuse)
{
    const cvy_val logits = architecture->build(graph, image, options, architecture->config);
    const bool layer = options->features && options->feature_layer[0];
    const cvy_val made = layer && mode == CVY_MODEL_INFER ? layer_output(graph, options->feature_layer) : CVY_NONE;

    quantize(graph, options);
    if (mode == CVY_MODEL_TRAIN)
        add_training(graph, logits, mix, options, fuse);
    else if (mode == CVY_MODEL_STATISTICS)
        add_statistics(graph, fuse);
    else
        add_inference(graph, logits, options->features && !layer ? features_of(graph, logits) : made, fuse);
}

cvy_status cvy_model_graph(const struct cvy_architecture *architecture, const struct cvy_model_options *options,
                           enum cvy_model_mode mode, bool fuse, struct cvy_graph *graph)
{
    const int32_t side = input_size(options, mode);
    struct cvy_model_options chosen = *options;
    struct cvy_mix_values mix = {CVY_NONE, CVY_NONE};
    cvy_val image;
    cvy_status status;

    cvy_graph_init(graph, mode != CVY_MODEL_INFER);
    CVY_TRY(check_options(architecture, options, side));
    graph->freeze = options->freeze;
    graph->batch_norm_momentum = mode == CVY_MODEL_STATISTICS ? 1 : options->batch_norm_momentum;
    image = cvy_graph_input(graph, "image", options->float_images ? CVY_F32 : CVY_U8,
                            cvy_shape4(CVY_BATCH, 3, side, side), true);
    if (mode == CVY_MODEL_TRAIN && options->mixup) {
        mix.partner = cvy_graph_input(graph, "partner", CVY_I32, cvy_shape1(CVY_BATCH), false);
        mix.coefficient = cvy_graph_input(graph, "coefficient", CVY_F32, cvy_shape1(CVY_BATCH), false);
    }
    image = cvy_normalize_mixed(graph, image, mix, options->mean, options->std);
    if (chosen.resnet.squeeze_width == 0)
        chosen.resnet.squeeze_width = architecture->squeeze_width;
    if (architecture->task == CVY_TASK_DETECT)
        build_detector(graph, architecture, image, &chosen, mode, fuse);
    else
        build_classifier(graph, architecture, image, mix, &chosen, mode, fuse);
    cvy_rewrite_remove_dead(graph);
    graph->freeze = NULL;
    status = cvy_graph_status(graph);
    if (status != CVY_OK)
        cvy_graph_release(graph);
    return status;
}
